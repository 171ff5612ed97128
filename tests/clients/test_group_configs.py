"""Settings of groups and brokers: the same answers as the broker's own, and what they change."""

from __future__ import annotations

import asyncio

from sidecar.core.vocabulary.errors import Code
from sidecar.drill.local import LocalKafka
from sidecar.kafka.net import BrokerConnection
from sidecar.wire.generated import alter_configs as al
from sidecar.wire.generated import consumer_group_heartbeat as ch
from sidecar.wire.generated import describe_configs as dc
from sidecar.wire.generated import incremental_alter_configs as ia
from sidecar.wire.generated import list_config_resources as lr
from tests.clients.wire import join_request, talk

BROKER, GROUP = 4, 32
SET, DELETE, APPEND = 0, 1, 2
SESSION, INTERVAL = "consumer.session.timeout.ms", "consumer.assignment.interval.ms"
TOOL = "org.apache.kafka.tools.ConfigCommand"
Described = dict[str, tuple[object, ...]]
"""By name: value, source, read only, sensitive, type, synonyms, documentation."""


async def alter(
    conn: BrokerConnection,
    group: str,
    *ops: tuple[str, int, str | None],
    validate_only: bool = False,
    kind: int = GROUP,
) -> tuple[int, str | None]:
    configs = [ia.AlterableConfig(*op) for op in ops]
    req = ia.IncrementalAlterConfigsRequest([ia.AlterConfigsResource(kind, group, configs)], validate_only)
    res = (await conn.request(ia, "IncrementalAlterConfigs", req)).responses[0]
    assert (res.resource_type, res.resource_name) == (kind, group)
    return res.error_code, res.error_message


async def describe(conn: BrokerConnection, group: str, *names: str) -> Described:
    resource = dc.DescribeConfigsResource(GROUP, group, list(names) or None)
    req = dc.DescribeConfigsRequest([resource], include_synonyms=True, include_documentation=True)
    (result,) = (await conn.request(dc, "DescribeConfigs", req)).results
    assert result.error_code == Code.NONE, result.error_message
    return {
        c.name: (
            c.value,
            c.config_source,
            c.read_only,
            c.is_sensitive,
            c.config_type,
            [(s.name, s.value, s.source) for s in c.synonyms],
            c.documentation,
        )
        for c in result.configs
    }


async def until(conn: BrokerConnection, group: str, key: str, wanted: tuple[object, object]) -> Described:
    """The group's description once `key` has that value and source: a broker learns of a change a little later than
    it has answered it.

    Raises:
        TimeoutError: after a minute.
    """
    async with asyncio.timeout(60):
        while (told := await describe(conn, group))[key][:2] != wanted:
            pass
    return told


def test_changes_are_answered_as_the_broker_answers_them(kafka: LocalKafka) -> None:
    async def run(conn: BrokerConnection, group: str) -> list[tuple[int, str | None]]:
        return [
            await alter(conn, group, (SESSION, SET, "abc")),
            await alter(conn, group, (SESSION, SET, "0")),
            await alter(conn, group, (SESSION, SET, "99999999999")),
            await alter(conn, group, (SESSION, SET, "1000")),
            await alter(conn, group, (SESSION, SET, "70000")),
            await alter(conn, group, (INTERVAL, SET, "20000")),
            await alter(conn, group, (INTERVAL, SET, "1.5")),
            await alter(conn, group, (SESSION, SET, None)),
            await alter(conn, group, (SESSION, SET, "50000"), (SESSION, SET, "51000")),
            await alter(conn, group, (SESSION, APPEND, "50000")),
            await alter(conn, group, ("foo", SET, "1")),
            await alter(conn, group, (SESSION, SET, "50000"), ("foo", SET, "1")),
            await alter(conn, group, (SESSION, SET, "50000"), validate_only=True),
            await alter(conn, group, ("share.auto.offset.reset", SET, "sometime")),
            await alter(conn, group, ("share.auto.offset.reset", SET, "earliest"), (SESSION, SET, "50000")),
            await alter(conn, group, (SESSION, DELETE, None), (INTERVAL, DELETE, None)),
            await alter(conn, group),
            await alter(conn, ""),
        ]

    ours = talk(kafka, lambda c: run(c, "managed-alter"))
    theirs = talk(kafka, lambda c: run(c, "unmanaged-alter"), direct=True)
    assert ours == theirs
    assert ours[0][0] == ours[1][0] == Code.INVALID_CONFIG and ours[-4][0] == Code.NONE


def test_descriptions_are_the_brokers_with_our_values_in_them(kafka: LocalKafka) -> None:
    async def run(conn: BrokerConnection, group: str) -> list[Described]:
        before = await describe(conn, group)
        assert await alter(conn, group, (SESSION, SET, "50000"), (reset, SET, "earliest")) == (0, None)
        return [before, await until(conn, group, reset, ("earliest", 8)), await describe(conn, group, SESSION)]

    reset = "share.auto.offset.reset"

    ours = talk(kafka, lambda c: run(c, "managed-describe"))
    theirs = talk(kafka, lambda c: run(c, "unmanaged-describe"), direct=True)
    for a, b in zip(ours, theirs, strict=True):
        a.pop("consumer.assignor.offload.enable", None)
        a.pop("consumer.heartbeat.interval.ms", None), b.pop("consumer.heartbeat.interval.ms", None)
        assert a == b
    assert ours[2][SESSION][:2] == ("50000", 8)


def test_what_kafka_has_not(kafka: LocalKafka) -> None:
    """KIP-1263: offload by group, and -1 for the broker's interval."""

    async def run(conn: BrokerConnection) -> None:
        name = "consumer.assignor.offload.enable"
        assert (await describe(conn, "managed-kip", name))[name][0] == "true"
        assert await alter(conn, "managed-kip", (name, SET, "false"), (INTERVAL, SET, "-1")) == (0, None)
        told = await describe(conn, "managed-kip", name, INTERVAL)
        assert told[name][:2] == ("false", 8) and told[INTERVAL][0] == "-1"
        assert (await alter(conn, "managed-kip", (name, SET, "maybe")))[0] == Code.INVALID_CONFIG
        legacy = al.AlterConfigsRequest(
            [al.AlterConfigsResource(GROUP, "managed-kip", [al.AlterableConfig(SESSION, "46000")])]
        )
        (done,) = (await conn.request(al, "AlterConfigs", legacy)).responses
        assert done.error_code == Code.NONE, done.error_message
        told = await describe(conn, "managed-kip")
        assert told[name][:2] == ("true", 5) and told[SESSION][0] == "46000", "what the old request leaves out is reset"

    talk(kafka, run)


def test_a_groups_heartbeat_interval_counts_at_once_and_its_settings_are_listed(kafka: LocalKafka, topic: str) -> None:
    async def run(conn: BrokerConnection) -> None:
        group = "managed-interval"
        res = await conn.request(ch, "ConsumerGroupHeartbeat", join_request(group, "m", [topic]))
        assert res.heartbeat_interval_ms == 300
        assert await alter(conn, group, ("consumer.heartbeat.interval.ms", SET, "700")) == (0, None)
        for _ in range(2):
            steady = ch.ConsumerGroupHeartbeatRequest(group, "m", res.member_epoch)
            again = await conn.request(ch, "ConsumerGroupHeartbeat", steady)
            assert again.heartbeat_interval_ms == 700
        listed = await conn.request(lr, "ListConfigResources", lr.ListConfigResourcesRequest([GROUP]))
        assert (GROUP, group) in {(r.resource_type, r.resource_name) for r in listed.config_resources}

    talk(kafka, run)


def test_broker_settings_changed_through_the_sidecar_or_past_it(kafka: LocalKafka) -> None:
    name = "group.consumer.assignment.interval.ms"
    group = "managed-broker-level"

    async def alter_through_sidecar(conn: BrokerConnection) -> None:
        assert await alter(conn, "", (name, SET, "3000"), kind=BROKER) == (0, None)
        await until(conn, group, INTERVAL, ("3000", 3))
        assert await alter(conn, "", (name, DELETE, None), kind=BROKER) == (0, None)
        await until(conn, group, INTERVAL, ("1000", 5))
        offload = "group.consumer.assignor.offload.enable"
        assert await alter(conn, "1", (offload, SET, "maybe"), kind=BROKER) != (0, None)
        assert await alter(conn, "1", (offload, SET, "false"), kind=BROKER) == (0, None)
        key = "consumer.assignor.offload.enable"
        await until(conn, group, key, ("false", 2))
        assert await alter(conn, "1", (offload, DELETE, None), kind=BROKER) == (0, None)
        await until(conn, group, key, ("true", 5))

    async def alter_at_broker(conn: BrokerConnection) -> None:
        assert await alter(conn, "", (name, SET, "4000"), kind=BROKER) == (0, None)

    talk(kafka, alter_through_sidecar)
    talk(kafka, alter_at_broker, direct=True)
    talk(kafka, lambda c: until(c, group, INTERVAL, ("4000", 3)))

    async def restore_default(conn: BrokerConnection) -> None:
        assert await alter(conn, "", (name, DELETE, None), kind=BROKER) == (0, None)
        await until(conn, group, INTERVAL, ("1000", 5))

    talk(kafka, restore_default)


def test_all_levels_of_the_broker_are_told(kafka: LocalKafka) -> None:
    name = "group.consumer.assignment.interval.ms"

    async def set_both(conn: BrokerConnection) -> None:
        assert await alter(conn, "", (name, SET, "4000"), kind=BROKER) == (0, None)
        assert await alter(conn, "1", (name, SET, "5000"), kind=BROKER) == (0, None)

    async def told(conn: BrokerConnection, group: str) -> tuple[object, ...]:
        return (await until(conn, group, INTERVAL, ("5000", 2)))[INTERVAL]

    async def restore_defaults(conn: BrokerConnection) -> None:
        for broker in ("", "1"):
            assert await alter(conn, broker, (name, DELETE, None), kind=BROKER) == (0, None)
        await until(conn, "managed-levels", INTERVAL, ("1000", 5))

    talk(kafka, set_both)
    ours = talk(kafka, lambda c: told(c, "managed-levels"))
    theirs = talk(kafka, lambda c: told(c, "unmanaged-levels"), direct=True)
    talk(kafka, restore_defaults)
    assert ours == theirs
    assert ours[5] == [(name, "5000", 2), (name, "4000", 3), (name, "1000", 5)]


def test_kafka_configs_works_unchanged(kafka: LocalKafka) -> None:
    def tool(*args: str) -> str:
        code, out = kafka.run_tool(TOOL, "--bootstrap-server", kafka.bootstrap, "--entity-type", "groups", *args)
        assert code == 0, out
        return out

    entity = ("--entity-name", "managed-tool")
    tool("--alter", *entity, "--add-config", f"{SESSION}=55000,consumer.assignor.offload.enable=false")
    told = tool("--describe", *entity)
    assert f"{SESSION}=55000" in told and "DYNAMIC_GROUP_CONFIG" in told and "offload.enable=false" in told
    assert "managed-tool" in tool("--describe")
    tool("--alter", *entity, "--delete-config", f"{SESSION},consumer.assignor.offload.enable")
    assert SESSION not in tool("--describe", *entity)
