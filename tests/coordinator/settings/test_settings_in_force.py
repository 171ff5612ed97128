"""The settings in force: requests for them wait until the broker has told its own; changes go through the log."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from sidecar.coordinator.runtime import settings_requests
from sidecar.coordinator.settings import broker_settings, settings_in_force
from sidecar.coordinator.statelog import unfenced_append as unfenced
from sidecar.core.consumer.config import CONSUMER, ConsumerConfig
from sidecar.core.kinds import REGISTRY
from sidecar.core.modern.config import ModernConfig
from sidecar.core.share.config import ShareConfig
from sidecar.core.streams.config import StreamsConfig
from sidecar.core.vocabulary import group_config as cf
from sidecar.core.vocabulary.errors import Code
from sidecar.core.vocabulary.group_config import (
    BROKER,
    DEFAULT,
    DYNAMIC_BROKER,
    DYNAMIC_DEFAULT,
    GROUP,
    HEARTBEAT,
    INTERVAL,
    SESSION,
    STATIC,
)
from sidecar.link.messages import (
    AlterSettings,
    ConfiguredGroups,
    DescribeSettings,
    Reply,
    Request,
    SettingChange,
    SettingsPassed,
    SettingValue,
)
from sidecar.process.coordination import own_kind
from sidecar.process.sections import Consumer, Share, Streams
from sidecar.state.codec import CONFIG, Stamp
from sidecar.state.keys import encode_key
from sidecar.wire.apis import Api
from tests.inprocess import clock
from tests.inprocess.embedded_sidecar import EmbeddedSidecar, RecordingFront, turns, until
from tests.inprocess.messages import join

BROKER_OFFLOAD = "group." + cf.OFFLOAD


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unfenced, "RETRY_S", 0.002)


def run(test: Callable[[EmbeddedSidecar, RecordingFront], Coroutine[Any, Any, None]], **given: Any) -> None:
    """A sidecar that serves, and a front that asks it."""

    async def main() -> None:
        async with EmbeddedSidecar(**given) as sidecar:
            await test(sidecar, RecordingFront(sidecar.coordinator))

    clock.run(main())


def before(test: Callable[[EmbeddedSidecar, RecordingFront], Coroutine[Any, Any, None]]) -> None:
    """A sidecar whose broker has not told its settings yet."""

    async def main() -> None:
        sidecar = EmbeddedSidecar()
        await test(sidecar, RecordingFront(sidecar.coordinator))
        sidecar.background.stop()

    clock.run(main())


def value(found: tuple[SettingValue, ...], name: str) -> SettingValue:
    return next(v for v in found if v.name == name)


def config(sidecar: EmbeddedSidecar, group_id: str = "g") -> ConsumerConfig:
    found = sidecar.configs.groups[(CONSUMER, group_id)]
    assert isinstance(found, ConsumerConfig)
    return found


def change(name: str, value: str | None, group_id: str = "g", kind: int = GROUP) -> AlterSettings:
    return AlterSettings("", (SettingChange(kind, group_id, {name: value}),), validate_only=False, client="10.0.0.9")


# ---- before the broker has told its settings ------------------------------------------------------------------------
def test_a_description_waits_for_the_settings_of_the_broker() -> None:
    """Symptom: a client saw 1000 where the broker's static setting was 2000, when it asked early."""

    async def test(sidecar: EmbeddedSidecar, front: RecordingFront) -> None:
        front.send(Request(1, DescribeSettings("", ("g",))))
        await turns()
        assert len(front.messages) == 2, "lease and view, and no answer"
        sidecar.brokers.settings["group.consumer.assignment.interval.ms"] = ("2000", STATIC)
        await sidecar.configs.refresh(sidecar.cluster)
        answer = await front.reply(1)
        found = value(answer.groups["g"], INTERVAL)
        assert (found.own, found.broker, found.source, found.default) == (None, "2000", STATIC, "1000")

    before(test)


def test_a_broker_that_does_not_answer_is_waited_for_only_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings_requests, "KNOWN_WITHIN_S", 0.02)

    async def test(sidecar: EmbeddedSidecar, front: RecordingFront) -> None:
        front.send(Request(1, DescribeSettings("", ("g",))))
        front.send(Request(2, change(SESSION, "50000")))
        front.send(Request(3, ConfiguredGroups("")))
        for token in (1, 2, 3):
            answer = await front.reply(token)
            assert (answer.code, answer.message) == (
                Code.COORDINATOR_NOT_AVAILABLE,
                "The coordinator is not available.",
            )

    before(test)


def test_a_broker_that_keeps_its_settings_to_itself_is_not_waited_for() -> None:
    async def test(sidecar: EmbeddedSidecar, front: RecordingFront) -> None:
        sidecar.brokers.faults.fail(Api.DESCRIBE_CONFIGS, Code.CLUSTER_AUTHORIZATION_FAILED, times=2)
        front.send(Request(1, DescribeSettings("", ("g",))))
        for _ in range(2):
            assert not await sidecar.configs.refresh(sidecar.cluster)
        assert value((await front.reply(1)).groups["g"], SESSION).broker == "45000"
        told = "the broker does not tell its settings; the sidecar's own apply"
        assert sidecar.lines.events("warning") == [told], "and this is said once"
        assert sidecar.configs.broker.authorizer, "until the broker says that it has none"
        await sidecar.configs.refresh(sidecar.cluster)
        sidecar.brokers.faults.fail(Api.DESCRIBE_CONFIGS, Code.CLUSTER_AUTHORIZATION_FAILED)
        await sidecar.configs.refresh(sidecar.cluster)
        assert sidecar.lines.events("warning") == [told] * 2, "a refusal after an answer is news"

    before(test)


# ---- layers ---------------------------------------------------------------------------------------------------------
def test_the_broker_decides_where_it_has_set_something_and_else_the_sidecar() -> None:
    async def test(sidecar: EmbeddedSidecar, front: RecordingFront) -> None:
        assert config(sidecar).session_timeout_ms == 45_000 and config(sidecar).heartbeat_interval_ms == 6_000
        sidecar.brokers.settings.update(
            {
                "group.consumer.heartbeat.interval.ms": ("5000", DEFAULT),
                "group.consumer.session.timeout.ms": ("50000", STATIC),
            }
        )
        assert await sidecar.configs.refresh(sidecar.cluster)
        assert config(sidecar).session_timeout_ms == 50_000
        assert config(sidecar).heartbeat_interval_ms == 6_000, "the broker has only Kafka's default"
        assert not await sidecar.configs.refresh(sidecar.cluster), "nothing is different"
        await sidecar.settings(group_consumer_heartbeat_interval_ms="7000")
        assert config(sidecar).heartbeat_interval_ms == 7_000
        assert sidecar.lines.fields("settings of the broker changed") == {
            "group.consumer.heartbeat.interval.ms": "7000"
        }

    run(test, consumer={"heartbeat_interval_ms": 6_000})


def test_all_levels_at_the_broker_are_told() -> None:
    async def test(sidecar: EmbeddedSidecar, front: RecordingFront) -> None:
        name = "group.consumer.assignment.interval.ms"
        sidecar.brokers.settings[name] = ("3000", DYNAMIC_BROKER)
        sidecar.brokers.hidden[name] = [("2500", DYNAMIC_DEFAULT), ("2000", STATIC), ("1000", DEFAULT)]
        assert await sidecar.configs.refresh(sidecar.cluster)
        front.send(Request(1, DescribeSettings("", ("g",))))
        found = value((await front.reply(1)).groups["g"], INTERVAL)
        assert (found.broker, found.source, found.default) == ("3000", DYNAMIC_BROKER, "1000")
        assert found.hidden == (("2500", DYNAMIC_DEFAULT), ("2000", STATIC))

    run(test)


MANY = tuple(f"g{n}" for n in range(10 * settings_requests.AT_ONCE))


@pytest.mark.parametrize(
    "event",
    [
        DescribeSettings("", MANY),
        DescribeSettings("", MANY, own=True),
        AlterSettings("", tuple(SettingChange(GROUP, g, {SESSION: "50000"}) for g in MANY), validate_only=True),
    ],
    ids=["described", "own", "checked"],
)
def test_whoever_names_many_groups_holds_nobody_up(event: DescribeSettings | AlterSettings) -> None:
    """Symptom: the loop stood still for 0.4 s for a stranger's AlterConfigs that named 20,000 groups."""

    async def test(sidecar: EmbeddedSidecar, front: RecordingFront) -> None:
        front.send(Request(1, event))
        front.send(Request(2, DescribeSettings("", ("g",))))
        await front.reply(1)
        assert [r.token for r in front.of(Reply)] == [2, 1]

    run(test)


def test_only_groups_with_settings_of_their_own_are_described_to_whoever_wants_those() -> None:
    async def test(sidecar: EmbeddedSidecar, front: RecordingFront) -> None:
        sidecar.brokers.group_settings["old"] = {HEARTBEAT: "6000"}
        assert await sidecar.configs.refresh(sidecar.cluster)
        front.send(Request(1, change(SESSION, "50000")))
        await front.reply(1)
        front.send(Request(2, DescribeSettings("", ("g", "old", "plain"), own=True)))
        assert (await front.reply(2)).groups.keys() == {"g", "old"}

    run(test)


def test_settings_that_the_broker_keeps_for_a_group_count_until_the_group_has_its_own() -> None:
    async def test(sidecar: EmbeddedSidecar, front: RecordingFront) -> None:
        sidecar.brokers.group_settings["g"] = {HEARTBEAT: "6000"}
        sidecar.brokers.group_settings["theirs"] = {HEARTBEAT: "9000"}
        assert await sidecar.configs.refresh(sidecar.cluster)
        assert config(sidecar).heartbeat_interval_ms == 6_000
        front.send(Request(1, DescribeSettings("", ("g",))))
        answer = await front.reply(1)
        assert answer.at_broker == {"g": {HEARTBEAT: "6000"}} and value(answer.groups["g"], HEARTBEAT).own == "6000"
        asked = [r.resource_name for req in sidecar.brokers.requests(Api.DESCRIBE_CONFIGS) for r in req.resources]
        assert "theirs" not in asked, "it is not managed"

    run(test)


def test_settings_of_many_groups_are_read_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: the answer for 10,000 groups was decoded in one iteration of the loop, every two seconds."""
    read: list[int] = []
    real = broker_settings._read

    def counted(res: Any) -> Any:
        read.append(len(res.results))
        return real(res)

    monkeypatch.setattr(broker_settings, "_read", counted)
    most = broker_settings.GROUPS_AT_ONCE

    async def test(sidecar: EmbeddedSidecar, front: RecordingFront) -> None:
        kept, broker = sidecar.brokers.group_settings, sidecar.configs.broker
        kept |= {f"g{i}": {HEARTBEAT: "6000"} for i in range(2 * most + 1)}
        assert await sidecar.configs.refresh(sidecar.cluster)
        assert sorted(read) == [1, most, most] and broker.groups == kept
        assert not await sidecar.configs.refresh(sidecar.cluster)
        assert len(read) == 3, "the same answers are not read again"
        kept["g0"] = {HEARTBEAT: "7000"}
        assert await sidecar.configs.refresh(sidecar.cluster)
        assert len(read) == 4 and broker.groups == kept

    run(test)


def test_settings_of_groups_that_the_broker_keeps_to_itself_are_said_once() -> None:
    async def test(sidecar: EmbeddedSidecar, front: RecordingFront) -> None:
        sidecar.brokers.group_settings["g"] = {HEARTBEAT: "6000"}
        of_a_group: Callable[[Any], bool] = lambda req: req.resources[0].resource_type == GROUP  # noqa: E731
        sidecar.brokers.faults.fail(Api.DESCRIBE_CONFIGS, Code.GROUP_AUTHORIZATION_FAILED, 2, of_a_group)
        for _ in range(2):
            await sidecar.configs.refresh(sidecar.cluster)
        assert config(sidecar).heartbeat_interval_ms == 5_000
        told = "the broker does not tell its settings of groups; they do not count"
        assert sidecar.lines.events("warning") == [told]
        assert sidecar.lines.fields(told) == {"groups": 1, "group_id": "g", "error": "GROUP_AUTHORIZATION_FAILED"}
        await sidecar.configs.refresh(sidecar.cluster)
        assert config(sidecar).heartbeat_interval_ms == 6_000

    run(test)


def test_settings_of_groups_go_on_while_the_broker_does_not_list_them() -> None:
    """Symptom: a refused listing counted as one without groups, and all groups had the broker's defaults."""

    async def test(sidecar: EmbeddedSidecar, front: RecordingFront) -> None:
        sidecar.brokers.group_settings["g"] = {HEARTBEAT: "6000"}
        await sidecar.configs.refresh(sidecar.cluster)
        sidecar.brokers.faults.fail(Api.LIST_CONFIG_RESOURCES, Code.CLUSTER_AUTHORIZATION_FAILED, 2)
        for _ in range(2):
            assert not await sidecar.configs.refresh(sidecar.cluster)
        assert config(sidecar).heartbeat_interval_ms == 6_000
        told = "the broker does not tell which groups have settings; the former ones go on"
        assert sidecar.lines.events("warning") == [told]
        await sidecar.configs.refresh(sidecar.cluster)
        sidecar.brokers.faults.fail(Api.LIST_CONFIG_RESOURCES, Code.CLUSTER_AUTHORIZATION_FAILED)
        await sidecar.configs.refresh(sidecar.cluster)
        assert sidecar.lines.events("warning") == [told] * 2, "a refusal after an answer is news"

    run(test)


def test_a_broker_without_settings_of_groups_is_fine() -> None:
    async def test(sidecar: EmbeddedSidecar, front: RecordingFront) -> None:
        del sidecar.brokers.versions[Api.LIST_CONFIG_RESOURCES]
        sidecar.brokers.settings["group.consumer.session.timeout.ms"] = ("50000", STATIC)
        assert await sidecar.configs.refresh(sidecar.cluster)
        assert config(sidecar).session_timeout_ms == 50_000

    run(test)


def test_assignors_of_the_broker_are_those_that_are_here_too() -> None:
    async def test(sidecar: EmbeddedSidecar, front: RecordingFront) -> None:
        prefix = "org.apache.kafka.coordinator.group.assignor."
        await sidecar.settings(group_consumer_assignors=f"{prefix}RangeAssignor, com.example.Own")
        assert config(sidecar).assignors == ("range",)
        await sidecar.settings(group_consumer_assignors="com.example.Own")
        assert config(sidecar).assignors == ("uniform", "range")

    run(test)


def test_whether_there_is_an_authorizer_is_read_again_and_again() -> None:
    async def test(sidecar: EmbeddedSidecar, front: RecordingFront) -> None:
        assert not sidecar.configs.broker.authorizer
        await sidecar.settings(authorizer_class_name="Standard")
        assert sidecar.configs.broker.authorizer
        sidecar.brokers.settings.clear()
        assert await sidecar.configs.refresh(sidecar.cluster) and not sidecar.configs.broker.authorizer

    run(test)


# ---- changes --------------------------------------------------------------------------------------------------------
def test_a_setting_of_a_group_is_written_to_the_log_and_counts_when_the_tail_has_it() -> None:
    async def test(sidecar: EmbeddedSidecar, front: RecordingFront) -> None:
        front.send(Request(1, change(SESSION, "50000")))
        assert (await front.reply(1)).refused == {}
        assert config(sidecar).session_timeout_ms == 50_000 and config(sidecar, "other").session_timeout_ms == 45_000
        front.send(Request(2, ConfiguredGroups("")))
        assert (await front.reply(2)).groups == ("g",)
        front.send(Request(3, change(SESSION, None)))
        await front.reply(3)
        assert config(sidecar).session_timeout_ms == 45_000 and sidecar.requests.configured() == []

    run(test)


def test_each_change_of_a_setting_has_the_next_revision() -> None:
    async def test(sidecar: EmbeddedSidecar, front: RecordingFront) -> None:
        for token, text in enumerate(("50000", "51000"), 1):
            front.send(Request(token, change(SESSION, text)))
            await front.reply(token)
        p = sidecar.service.partition_of("g")
        raw = sidecar.state.partitions[p].configs["g"][SESSION]
        assert sidecar.codec.config_value(raw) == ("51000", 2)
        assert sidecar.codec.schemas.decode(raw)["why"] == "changed by 10.0.0.9"

    run(test)


def test_a_change_that_is_only_checked_is_not_written() -> None:
    async def test(sidecar: EmbeddedSidecar, front: RecordingFront) -> None:
        changes = (SettingChange(GROUP, "g", {SESSION: "50000"}), SettingChange(GROUP, "h", {SESSION: "1"}))
        front.send(Request(1, AlterSettings("", changes, validate_only=True)))
        words = f"{SESSION} must be in the range 45000 to 60000 inclusive."
        assert (await front.reply(1)).refused == {"32/h": (Code.INVALID_CONFIG, words)}
        assert config(sidecar).session_timeout_ms == 45_000

    run(test)


def test_offload_of_the_broker_is_kept_here_as_brokers_do_not_know_it() -> None:
    async def test(sidecar: EmbeddedSidecar, front: RecordingFront) -> None:
        assert config(sidecar).assignor_offload_enable
        front.send(Request(1, change(BROKER_OFFLOAD, "maybe", "1", BROKER)))
        (refused,) = (await front.reply(1)).refused.values()
        assert refused[0] == Code.INVALID_CONFIG
        front.send(Request(2, change(BROKER_OFFLOAD, "false", "1", BROKER)))
        assert (await front.reply(2)).refused == {}
        assert not config(sidecar).assignor_offload_enable
        assert sidecar.configs.broker_value(BROKER_OFFLOAD) == ("false", DYNAMIC_BROKER)

    run(test)


@pytest.mark.parametrize(("given", "on"), [("TRUE", True), (" true ", True), ("False", False)])
def test_offload_of_the_broker_is_read_as_kafka_reads_it(given: str, on: bool) -> None:
    """Symptom: TRUE was accepted, and turned it off."""

    async def test(sidecar: EmbeddedSidecar, front: RecordingFront) -> None:
        front.send(Request(1, change(BROKER_OFFLOAD, given, "1", BROKER)))
        assert (await front.reply(1)).refused == {}
        assert config(sidecar).assignor_offload_enable is on

    run(test)


def test_a_change_that_cannot_be_written_is_refused() -> None:
    async def test(sidecar: EmbeddedSidecar, front: RecordingFront) -> None:
        sidecar.brokers.faults.fail(Api.PRODUCE, Code.NOT_ENOUGH_REPLICAS, times=10_000)
        front.send(Request(1, change(SESSION, "50000")))
        ((code, text),) = (await front.reply(1)).refused.values()
        assert code == Code.REQUEST_TIMED_OUT and text is not None and "NOT_ENOUGH_REPLICAS" in text

    run(test, write_timeout_s=0.03)


def test_a_setting_that_cannot_be_read_is_left_out_and_told() -> None:
    async def test(sidecar: EmbeddedSidecar, front: RecordingFront) -> None:
        p = sidecar.service.partition_of("g")
        sidecar.state.partitions[p].configs["g"] = {SESSION: b"damaged", HEARTBEAT: b"damaged, too"}
        sidecar.configs.changed("g")
        assert config(sidecar).session_timeout_ms == 45_000
        assert sidecar.lines.events("error") == ["setting skipped", "setting skipped"]

    run(test)


def test_an_order_with_the_value_of_another_kind_is_left_out() -> None:
    """Symptom: the tail failed with a KeyError, and with it the sidecar, again after each restart."""

    async def test(sidecar: EmbeddedSidecar, front: RecordingFront) -> None:
        claim = sidecar.codec.claim(Stamp(1, 1), 1, "host:9092", "member", 1, "taken over")
        keys = [encode_key(CONFIG, "g", name) for name in (cf.MANAGED, cf.REBALANCE)]
        p = sidecar.service.partition_of("g")
        await sidecar.coordinator.append_unfenced(p, [claim._replace(key=key) for key in keys])
        await until(lambda: len(sidecar.state.partitions[p].configs.get("g", {})) == 2)
        await turns()
        assert sidecar.rules.overrides == {} and sidecar.stored.order("g") == ""
        assert "setting skipped" in sidecar.lines.events("error")

    run(test)


def test_a_setting_of_a_newer_version_is_kept_and_not_followed() -> None:
    async def test(sidecar: EmbeddedSidecar, front: RecordingFront) -> None:
        p = sidecar.service.partition_of("g")
        raw = sidecar.codec.config("g", "consumer.of.tomorrow", "7", 1, 1, "").value
        assert raw is not None
        sidecar.state.partitions[p].configs["g"] = {"consumer.of.tomorrow": raw}
        sidecar.configs.changed("g")
        before = config(sidecar, "other")
        assert config(sidecar) == before
        front.send(Request(1, change(SESSION, "50000")))
        assert (await front.reply(1)).refused == {}
        assert config(sidecar).session_timeout_ms == 50_000
        assert sidecar.state.partitions[p].configs["g"]["consumer.of.tomorrow"] == raw

    run(test)


def test_a_setting_that_cannot_be_read_can_be_written_anew() -> None:
    async def test(sidecar: EmbeddedSidecar, front: RecordingFront) -> None:
        p = sidecar.service.partition_of("g")
        sidecar.state.partitions[p].configs["g"] = {SESSION: b"damaged"}
        sidecar.configs.changed("g")
        front.send(Request(1, change(SESSION, "50000")))
        assert (await front.reply(1)).refused == {}
        assert config(sidecar).session_timeout_ms == 50_000

    run(test)


def test_settings_that_contradict_each_other_are_void() -> None:
    async def test(sidecar: EmbeddedSidecar, front: RecordingFront) -> None:
        sidecar.brokers.group_settings["g"] = {SESSION: "a while"}
        await sidecar.configs.refresh(sidecar.cluster)
        assert config(sidecar).session_timeout_ms == 45_000
        assert sidecar.lines.fields("a group's settings are void")["group_id"] == "g"

    run(test)


def test_a_change_that_passed_through_a_client_makes_the_broker_be_asked() -> None:
    async def test(sidecar: EmbeddedSidecar, front: RecordingFront) -> None:
        assert not sidecar.configs.broker.wanted.is_set()
        front.send(SettingsPassed())
        assert sidecar.configs.broker.wanted.is_set()

    run(test)


def test_members_are_told_the_new_interval_with_the_next_answer() -> None:
    async def test(sidecar: EmbeddedSidecar, front: RecordingFront) -> None:
        client = await sidecar.client()
        await sidecar.topics(orders=1)
        assert (await client.ask(join("g", "m1"), 1)).heartbeat_interval_ms == 5_000
        front.send(Request(1, change(HEARTBEAT, "6000")))
        await front.reply(1)
        await until(lambda: config(sidecar).heartbeat_interval_ms == 6_000)
        assert (await client.ask(join("g", "m1"), 1)).heartbeat_interval_ms == 6_000

    run(test)


def test_what_the_broker_says_in_milliseconds_is_milliseconds_here() -> None:
    async def test(sidecar: EmbeddedSidecar, front: RecordingFront) -> None:
        configs, broker = sidecar.configs, sidecar.configs.broker
        assert (broker.retention_check_ms, broker.fences_kept_ms) == (600_000, 604_800_000), "Kafka's defaults"
        sidecar.brokers.settings["offsets.retention.check.interval.ms"] = ("5000", cf.STATIC)
        sidecar.brokers.settings["transactional.id.expiration.ms"] = ("7000", cf.STATIC)
        assert await configs.refresh(sidecar.cluster)
        assert (broker.retention_check_ms, broker.fences_kept_ms) == (5_000, 7_000)
        own = configs._own.kinds[CONSUMER].values
        assert configs.assignor_timeout_s(CONSUMER) == own["assignor_timeout_ms"] / 1000

    run(test)


# ---- another kind ---------------------------------------------------------------------------------------------------
def crew_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kind of group with epochs is a table of rows, a row in the registry, and the sidecar's own section."""
    rows = cf.KindSettings(
        cf.Setting("crew.session.timeout.ms", "int", 1),
        cf.Setting("crew.heartbeat.interval.ms", "int", 1),
        cf.Setting("crew.assignment.interval.ms", "int", -1),
        cf.Setting("crew.assignor.offload.enable", "boolean", ranged=False),
    )
    kinds = {**cf.KINDS, "crew": rows}
    monkeypatch.setattr(cf, "KINDS", kinds)
    monkeypatch.setattr(cf, "SETTINGS", {s.name: s for kind in kinds.values() for s in kind.rows})
    monkeypatch.setattr(cf, "BROKER_OFFLOADS", {k.offload.broker_name: k.offload.name for k in kinds.values()})
    names = {kind: broker_settings.broker_names(kind) for kind in kinds}
    for user in (broker_settings, settings_in_force):
        monkeypatch.setattr(user, "FIELDS", names)
    monkeypatch.setattr(broker_settings, "BROKER_NAMES", [name for of_kind in names.values() for name in of_kind])
    kind = replace(REGISTRY.kinds[CONSUMER], name="crew", config=ModernConfig)
    monkeypatch.setitem(REGISTRY.kinds, "crew", kind)


def test_a_further_kind_has_settings_by_a_table_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    crew_settings(monkeypatch)
    consumer = own_kind(Consumer.model_validate({}))
    crew = replace(consumer, values={**consumer.values, "assignors": ("pairs",)})

    async def test(sidecar: EmbeddedSidecar, front: RecordingFront) -> None:
        def in_force() -> ModernConfig:
            found = sidecar.configs.groups[("crew", "g")]
            assert isinstance(found, ModernConfig)
            return found

        assert in_force() == ModernConfig(assignors=("pairs",))
        sidecar.brokers.settings["group.crew.assignment.interval.ms"] = ("2000", STATIC)
        sidecar.brokers.settings["group.crew.max.size"] = ("7", STATIC)
        await sidecar.configs.refresh(sidecar.cluster)
        assert in_force() == ModernConfig(assignors=("pairs",), assignment_interval_ms=2_000, max_size=7)
        front.send(Request(1, change("crew.session.timeout.ms", "50000")))
        await front.reply(1)
        assert in_force().session_timeout_ms == 50_000 and config(sidecar).session_timeout_ms == 45_000
        front.send(Request(2, change("crew.session.timeout.ms", "1")))
        words = "crew.session.timeout.ms must be in the range 45000 to 60000 inclusive."
        assert (await front.reply(2)).refused == {"32/g": (Code.INVALID_CONFIG, words)}
        front.send(Request(3, change("group.crew.assignor.offload.enable", "false", "1", BROKER)))
        await front.reply(3)
        assert not in_force().assignor_offload_enable and config(sidecar).assignor_offload_enable
        front.send(Request(4, DescribeSettings("", ("g",))))
        found = value((await front.reply(4)).groups["g"], "crew.assignment.interval.ms")
        assert (found.own, found.broker, found.source, found.default) == (None, "2000", STATIC, "1000")

    run(test, kinds={"crew": crew})


def test_streams_groups_have_settings_where_they_are_served() -> None:
    async def test(sidecar: EmbeddedSidecar, front: RecordingFront) -> None:
        def in_force() -> StreamsConfig:
            found = sidecar.configs.groups[("streams", "g")]
            assert isinstance(found, StreamsConfig)
            return found

        assert in_force() == StreamsConfig()
        sidecar.brokers.settings["group.streams.num.standby.replicas"] = ("2", STATIC)
        sidecar.brokers.settings["group.streams.initial.rebalance.delay.ms"] = ("7", STATIC)
        await sidecar.configs.refresh(sidecar.cluster)
        assert in_force() == StreamsConfig(num_standby_replicas=2, initial_rebalance_delay_ms=7)
        await sidecar.settings(group_streams_rack_aware_assignment_tags="zone, cluster")
        assert in_force().rack_aware_assignment_tags == ("zone", "cluster")
        await sidecar.settings(group_streams_rack_aware_assignment_tags="")
        assert in_force().rack_aware_assignment_tags == ()
        front.send(Request(1, change("streams.num.standby.replicas", "1")))
        await front.reply(1)
        assert in_force().standbys == 1
        front.send(Request(2, change("streams.num.standby.replicas", "3")))
        words = "streams.num.standby.replicas must be less than or equal to 2"
        assert (await front.reply(2)).refused == {"32/g": (Code.INVALID_CONFIG, words)}
        front.send(Request(3, change("streams.rack.aware.assignment.tags", "zone, rack")))
        front.send(Request(4, change("streams.assignor.name", "nope")))
        words = "streams.assignor.name 'nope' is not a registered task assignor. Registered assignors are: [sticky]."
        assert (await front.reply(4)).refused == {"32/g": (Code.INVALID_CONFIG, words)}
        front.send(Request(5, change("streams.assignor.name", "sticky")))
        await front.reply(5)
        assert (in_force().rack_aware_assignment_tags, in_force().assignor_name) == (("zone", "rack"), "sticky")
        front.send(Request(6, DescribeSettings("", ("g",))))
        told = {v.name: (v.own, v.broker, v.source, v.default) for v in (await front.reply(6)).groups["g"]}
        assert {"streams.num.standby.replicas", "consumer.session.timeout.ms"} <= told.keys()
        assert told["streams.assignor.name"] == ("sticky", "sticky", DEFAULT, "sticky")
        assert told["streams.rack.aware.assignment.tags"] == ("zone,rack", "", DYNAMIC_BROKER, "")

    run(test, kinds={"streams": own_kind(Streams.model_validate({}))})


def test_share_groups_have_settings_where_they_are_served() -> None:
    """Symptom: a share group had Kafka's defaults whatever was set at the broker, in the sidecar or for the group."""

    async def test(sidecar: EmbeddedSidecar, front: RecordingFront) -> None:
        def in_force() -> ShareConfig:
            found = sidecar.configs.groups[("share", "g")]
            assert isinstance(found, ShareConfig)
            return found

        assert in_force() == ShareConfig(join_wait_ms=7)
        sidecar.brokers.settings["group.share.max.size"] = ("9", STATIC)
        sidecar.brokers.settings["group.share.assignors"] = (
            "org.apache.kafka.coordinator.group.assignor.SimpleAssignor",
            STATIC,
        )
        await sidecar.settings(group_share_heartbeat_interval_ms="6000")
        assert in_force() == ShareConfig(join_wait_ms=7, max_size=9, heartbeat_interval_ms=6_000)
        front.send(Request(1, change("share.heartbeat.interval.ms", "8000")))
        await front.reply(1)
        assert in_force().heartbeat_interval_ms == 8_000
        front.send(Request(2, change("share.heartbeat.interval.ms", "15001")))
        words = "share.heartbeat.interval.ms must be in the range 5000 to 15000 inclusive."
        assert (await front.reply(2)).refused == {"32/g": (Code.INVALID_CONFIG, words)}
        front.send(Request(3, DescribeSettings("", ("g",))))
        names = [v.name for v in (await front.reply(3)).groups["g"] if v.name.startswith("share.")]
        own = ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms", "assignor.offload.enable")
        assert names == [f"share.{name}" for name in own], "the rest is the broker's"

    run(test, kinds={"share": own_kind(Share.model_validate({"join_wait_ms": 7}))})


def test_elsewhere_they_are_the_brokers() -> None:
    async def test(sidecar: EmbeddedSidecar, front: RecordingFront) -> None:
        sidecar.brokers.group_settings["g"] = {"streams.num.standby.replicas": "9"}
        await sidecar.configs.refresh(sidecar.cluster)
        front.send(Request(1, change("consumer.session.timeout.ms", "50000")))
        assert (await front.reply(1)).refused == {}
        front.send(Request(2, DescribeSettings("", ("g",))))
        assert not [v.name for v in (await front.reply(2)).groups["g"] if v.name.startswith("streams.")]

    run(test)
