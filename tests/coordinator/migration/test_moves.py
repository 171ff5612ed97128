"""Groups come from the brokers and go back, over brokers in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from sidecar.coordinator.clock import now
from sidecar.coordinator.migration import moves as module
from sidecar.coordinator.migration.moves import MoveSettings
from sidecar.coordinator.placeholder import broker_membership as seating
from sidecar.coordinator.placeholder import placeholders
from sidecar.core.classic.embedded import assignment
from sidecar.core.runtime.phases import Phase
from sidecar.core.vocabulary import group_config as cf
from sidecar.core.vocabulary.errors import Code
from sidecar.kafka import native
from sidecar.kafka.cluster import ConnectionLost
from sidecar.kafka.membership import INSTANCE_ID
from sidecar.kafka.native import Member, Native
from sidecar.link.messages import GroupRules
from sidecar.wire.apis import Api
from sidecar.wire.generated import heartbeat as hb
from sidecar.wire.generated import join_group as jg
from sidecar.wire.generated import sync_group as sg
from tests.core.classic_client import subscription
from tests.inprocess import clock
from tests.inprocess.house import Heard, House, HouseClient, until
from tests.inprocess.messages import beat, commit, join

NEWCOMER = [jg.JoinGroupRequestProtocol("range", subscription(["orders"], {}, -1))]
QUICK = MoveSettings(settle_s=0.01, hold_s=0.5, limit_s=0.3, look_s=0.01)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE_S", 0.005)
    monkeypatch.setattr(seating, "EARLY_S", 0.005)
    monkeypatch.setattr(placeholders, "PAUSE_MS", 5)
    monkeypatch.setattr(placeholders, "PAUSE_MAX_MS", 20)


class Broker:
    """What the broker says of a group, and whom it was asked to send away."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, group: Native) -> None:
        self.group = group
        self.asked = 0
        self.silent = False
        self.gone: list[str] = []
        monkeypatch.setattr(native, "describe", self._describe)
        monkeypatch.setattr(native, "send_away", self._send_away)

    async def _describe(self, conn: object, group_id: str, timeout_s: float) -> Native:
        self.asked += 1
        if self.silent:
            raise TimeoutError
        return self.group

    async def _send_away(self, conn: object, group_id: str, members: Any, reason: str, timeout_s: float) -> None:
        self.gone += [m.member_id for m in members]
        left = tuple(m for m in self.group.members if m.member_id not in self.gone)
        self.group = replace(self.group, members=left) if left else Native(native.NOBODY)


def run(test: Callable[[House], Coroutine[Any, Any, None]], **given: Any) -> None:
    async def whole() -> None:
        house = House(**{"partitions": 1, "consumer": {"join_wait_ms": 0}, **given})
        house.coordinator.moves._settings = QUICK
        async with house:
            await house.topics(orders=2)
            await test(house)

    clock.run(whole())


async def say(house: House, group_id: str, **values: str | None) -> None:
    named = {f"sidecar.{n}": v for n, v in values.items()}
    await house.configs.put(group_id, named, "changed by a test", house.coordinator.append_unfenced)


def classic(*members: str, state: str = "Stable") -> Native:
    said, given = subscription(["orders"], {}, 4), assignment(3, [("orders", (0,))])
    natives = tuple(Member(m, None, "app", "/h", said, given) for m in members)
    return Native(native.CLASSIC, state, natives, "consumer", "range")


async def being_taken_over(house: House) -> None:
    """The only partition is another's for a moment, and then what is written there is being read."""
    house.assign(2)
    house.hold_tail()
    house.assign(1)
    await until(lambda: house.coordinator.service.owners[0].phase is Phase.REPLAYING)


def beats(member_id: str, generation: int, group: str = "g") -> hb.HeartbeatRequest:
    return hb.HeartbeatRequest(group, generation, member_id)


async def joins(client: HouseClient, member_id: str, group: str = "g") -> Any:
    protocols = [jg.JoinGroupRequestProtocol("range", subscription(["orders"], {"orders": (0,)}, 7))]
    return await client.ask(jg.JoinGroupRequest(group, 10_000, 60_000, member_id, None, "consumer", protocols), 9)


async def at_work(house: House, client: HouseClient) -> int:
    """Member m1 of group g owns both partitions; its epoch."""
    epoch = (await client.ask(join("g", "m1"), 1)).member_epoch
    group: Any = house.owner_of("g").shard.groups["g"]  # type: ignore[union-attr]
    while not group.members["m1"].assigned:
        epoch = (await client.ask(beat("g", "m1", epoch), 1)).member_epoch
        await asyncio.sleep(0.005)
    return int(epoch)


def test_a_classic_group_of_the_broker_is_taken_in_at_its_first_request(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(monkeypatch, classic("n1"))

    async def test(house: House) -> None:
        client = await house.client()
        assert (await client.ask(beats("n1", 7), 4)).error_code == Code.REBALANCE_IN_PROGRESS
        assert broker.gone == ["n1"]
        done = await client.ask(commit("g", "n1", 7, "orders", {0: 5}), 8)
        assert done.topics[0].partitions[0].error_code == Code.NONE, "in the placeholder's name"
        joined = await joins(client, "n1")
        assert (joined.error_code, joined.member_id, joined.generation_id) == (Code.NONE, "n1", 8)
        assert house.metrics.value("moves", "sidecar", "done") == 1
        assert broker.asked == 1

    run(test)


def test_a_group_that_nobody_is_in_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(monkeypatch, Native(native.NOBODY))

    async def test(house: House) -> None:
        client = await house.client()
        for member in ("m1", "m2"):
            assert (await client.ask(join("g", member), 1)).error_code == Code.NONE
        assert broker.asked == 1

    run(test)


def test_a_member_that_the_broker_has_removed_before_its_group_came_joins_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Symptom: GROUP_ID_NOT_FOUND, and librdkafka's consumers of a group that came while they were silent are dead."""
    Broker(monkeypatch, Native(native.NOBODY))

    async def test(house: House) -> None:
        client = await house.client()
        for epoch in (7, -1):
            assert (await client.ask(beat("g", "m1", epoch), 1)).error_code == Code.UNKNOWN_MEMBER_ID
        done = await client.ask(commit("g", "m1", 7, "orders", {0: 5}), 9)
        assert done.topics[0].partitions[0].error_code == Code.UNKNOWN_MEMBER_ID
        assert (await client.ask(join("g", "m1"), 1)).error_code == Code.NONE

    run(test)


def test_a_group_that_is_not_stable_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(monkeypatch, classic("n1", state="PreparingRebalance"))

    async def test(house: House) -> None:
        client = await house.client()
        assert (await client.ask(join("g", "m1"), 1)).error_code == Code.NOT_COORDINATOR
        assert house.rules.overrides == {"g": "later"} and not house.rules.managed("g")
        broker.group = classic("n1")
        await until(lambda: house.rules.overrides == {}, 3)
        assert (await client.ask(beats("n1", 7), 4)).error_code == Code.REBALANCE_IN_PROGRESS

    run(test)


@pytest.mark.parametrize("limit_s", [0.0, 300.0])
def test_what_is_said_while_the_broker_is_asked_counts(monkeypatch: pytest.MonkeyPatch, limit_s: float) -> None:
    """The broker says that the group is stable, or it has been waited for long enough; meanwhile an administrator has
    said something else, which must stand."""
    broker = Broker(monkeypatch, classic("n1", state="PreparingRebalance"))
    word = "true" if limit_s == 0.0 else "false"

    async def test(house: House) -> None:
        await say(house, "theirs", managed="true")
        await until(lambda: house.rules.overrides == {"theirs": "later"}, 3)
        house.coordinator.moves._settings = replace(QUICK, limit_s=limit_s, look_s=0.01)

        said = asyncio.Event()

        async def describe(conn: object, group_id: str, timeout_s: float) -> Native:
            if house.rules.overrides.get(group_id) == "later":
                broker.group = classic("n1")
                await say(house, group_id, managed=word)
                await until(lambda: house.rules.overrides == {"theirs": word}, 3)
                said.set()
            return broker.group

        monkeypatch.setattr(native, "describe", describe)
        await asyncio.wait_for(said.wait(), 3)
        await until(lambda: not house.coordinator.moves._watched, 3)
        await asyncio.sleep(0.05)
        assert house.rules.overrides == {"theirs": word}
        assert house.rules.why("theirs") == "changed by a test"

    run(test)


def test_what_never_becomes_stable_stays_with_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    Broker(monkeypatch, classic("n1", state="PreparingRebalance"))

    async def test(house: House) -> None:
        await say(house, "theirs", managed="true")
        await until(lambda: house.rules.overrides == {"theirs": "false"}, 3)
        assert "does not become stable" in house.lines.fields("group not taken in")["problem"]
        assert house.metrics.value("moves", "sidecar", "given up") == 1
        assert "not taken in" in house.rules.why("theirs")

    run(test)


@pytest.mark.parametrize(
    ("group", "problem"),
    [
        (Native(native.OTHER), "share or streams"),
        (Native(native.CONSUMER, "Stable", (Member("n1", None, "", "", classic=True),)), "members of the classic"),
    ],
)
def test_what_cannot_be_taken_in_is_refused(monkeypatch: pytest.MonkeyPatch, group: Native, problem: str) -> None:
    Broker(monkeypatch, group)

    async def test(house: House) -> None:
        await say(house, "theirs", managed="true")
        await until(lambda: house.rules.overrides == {"theirs": "false"})
        assert problem in house.lines.fields("group not taken in")["problem"]

    run(test)


def test_a_stable_consumer_group_goes_on_with_its_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(house: House) -> None:
        orders = house.topic_id("orders")
        owned: dict[bytes, tuple[int, ...]] = {orders: (0, 1)}
        member = Member("n1", None, "app", "/h", names=("orders",), epoch=5, owned=owned, target=owned)
        group = Native(native.CONSUMER, "Stable", (member,), epoch=5, assignor="uniform", topics={orders: "orders"})
        broker = Broker(monkeypatch, group)
        client = await house.client()
        reply = await client.ask(beat("g", "n1", 5), 1)
        assert (reply.error_code, reply.member_epoch, reply.assignment) == (Code.NONE, 5, None)
        assert broker.gone == ["n1"]

    run(test)


def test_requests_wait_until_the_broker_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(monkeypatch, classic("n1"))
    broker.silent = True

    async def test(house: House) -> None:
        client, patient = await house.client(), await house.client()
        patient.post(join("g", "m1"), 1)
        assert (await patient.answer(join("g", "m1"), 1)).error_code == Code.COORDINATOR_LOAD_IN_PROGRESS
        client.post(beats("n1", 7), 4)
        await until(lambda: broker.asked > 2)
        broker.silent = False
        assert (await client.answer(beats("n1", 7), 4)).error_code == Code.REBALANCE_IN_PROGRESS

    run(test)


@pytest.mark.parametrize("said", ["beat", "join"])
def test_what_waits_for_a_takeover_is_not_answered_before_the_broker_has_told_of_the_group(
    monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    """The core knows nothing of the group: it would answer UNKNOWN_MEMBER_ID, or begin a second group."""
    broker = Broker(monkeypatch, classic("n1"))

    async def test(house: House) -> None:
        client, other = await house.client(), await house.client()
        await being_taken_over(house)
        client.post(beats("n1", 7), 4)
        if said == "join":
            other.post(jg.JoinGroupRequest("g", 10_000, 60_000, "", None, "consumer", NEWCOMER), 3)
        await asyncio.sleep(0.02)
        house.tail.release()
        assert (await client.answer(beats("n1", 7), 4)).error_code == Code.REBALANCE_IN_PROGRESS
        assert broker.gone == ["n1"]
        group: Any = house.owner_of("g").shard.groups["g"]  # type: ignore[union-attr]
        assert "n1" in group.members and group.adopted

    run(test)


def test_a_request_that_waits_for_the_lease_does_not_get_past_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by the simulation: the brokers' word came after the group was ordered here, and a newcomer founded it anew
    beside its members at the broker."""
    broker = Broker(monkeypatch, classic("n1"))

    async def test(house: House) -> None:
        client, other = await house.client(), await house.client()
        house.coordinator.service._lease_until_ms = 0
        other.post(jg.JoinGroupRequest("g", 10_000, 60_000, "", None, "consumer", NEWCOMER), 3)
        client.post(beats("n1", 7), 4)
        await until(lambda: house.metrics.value("parked") == 2)
        house.prove()
        assert (await client.answer(beats("n1", 7), 4)).error_code == Code.REBALANCE_IN_PROGRESS
        assert broker.gone == ["n1"]
        group: Any = house.owner_of("g").shard.groups["g"]  # type: ignore[union-attr]
        assert "n1" in group.members and group.adopted

    run(test)


def test_a_takeover_that_does_not_come_is_no_reason_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    Broker(monkeypatch, classic("n1"))

    async def test(house: House) -> None:
        client = await house.client()
        await being_taken_over(house)
        client.post(beats("n1", 7), 4)
        await asyncio.sleep(0.01)
        house.assign(2)
        assert (await client.answer(beats("n1", 7), 4)).error_code == Code.NOT_COORDINATOR

    run(test, service={"hold_ms": 60_000})


def test_who_has_no_lease_does_not_say_that_a_group_is_being_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: a member heard from a cut-off sidecar for ever that all was well, and the next owner removed it. Cause:
    heartbeats that had waited were told COORDINATOR_LOAD_IN_PROGRESS, which for a heartbeat of a classic member is no
    error (scene owner_is_alone_with_its_members)."""
    Broker(monkeypatch, classic("n1"))

    async def test(house: House) -> None:
        client = await house.client()
        await being_taken_over(house)
        client.post(beats("n1", 7), 4)
        assert (await client.answer(beats("n1", 7), 4)).error_code == Code.NONE, "it is being loaded here"
        house.coordinator.service._lease_until_ms = 0
        client.post(beats("n1", 7), 4)
        assert (await client.answer(beats("n1", 7), 4)).error_code == Code.NOT_COORDINATOR

    run(test, service={"hold_ms": 200})


# ---- giving back ----------------------------------------------------------------------------------------------------
def test_a_group_goes_back_when_its_members_own_nothing_and_its_seat_is_free() -> None:
    async def test(house: House) -> None:
        heard = Heard(house.coordinator)
        client = await house.client()
        epoch = await at_work(house, client)
        await house.seated()
        await say(house, "g", managed="false")
        assert heard.of(GroupRules)[-1].moved == {"g": True}, "it has records here"
        other = await client.ask(join("g", "m2"), 1)
        assert other.error_code == Code.NOT_COORDINATOR, "nobody joins any more"
        group: Any = house.owner_of("g").shard.groups["g"]  # type: ignore[union-attr]
        await until(lambda: not group.target.of("m1"))
        told = await client.ask(beat("g", "m1", epoch, {house.topic_id("orders"): [0, 1]}), 1)
        assert told.assignment is not None and not told.assignment.topic_partitions
        done = await client.ask(commit("g", "m1", epoch, "orders", {0: 5}), 9)
        assert done.topics[0].partitions[0].error_code == Code.NONE, "what it gives up can be committed"
        acknowledged = await client.ask(beat("g", "m1", epoch, {}), 1)
        assert acknowledged.error_code == Code.NONE
        gone = await client.ask(beat("g", "m1", acknowledged.member_epoch), 1)
        assert gone.error_code == Code.UNKNOWN_MEMBER_ID
        await until(lambda: heard.of(GroupRules)[-1].moved == {"g": False})
        assert house.brokers.seats["g"].state == "Empty", "before, no native client could have joined"
        assert house.metrics.value("moves", "broker", "done") == 1
        assert not house.state.partitions[0].groups

    run(test)


def test_a_new_owner_goes_on_with_what_is_to_leave() -> None:
    async def test(house: House) -> None:
        client = await house.client()
        epoch = await at_work(house, client)
        await house.seated()
        await say(house, "g", managed="false")
        await until(lambda: house.coordinator.moves._leaving)
        house.assign(2)
        await until(lambda: not house.coordinator.moves._leaving)
        await house.own()
        await until(lambda: house.coordinator.moves._leaving)
        await asyncio.sleep(0.05)
        for owned in ({house.topic_id("orders"): [0, 1]}, {}, {}, {}):
            told = await client.ask(beat("g", "m1", epoch, owned), 1)
            epoch = told.member_epoch or epoch
        assert told.error_code in (Code.UNKNOWN_MEMBER_ID, Code.NOT_COORDINATOR)
        await until(lambda: not house.rules.managed("g"))

    run(test)


@pytest.mark.parametrize("order", ["to this owner", "before it took over"])
def test_a_seat_of_an_owner_that_was_cut_off_goes_when_the_group_is_ordered_back(order: str) -> None:
    """Its owner was cut off while it took the group in, so nothing of the group is written; its seat is at the broker,
    which lets nobody of another protocol join beside that."""

    async def test(house: House) -> None:
        there = house.brokers.seats["g"]
        there.instance_id, there.state = INSTANCE_ID, "Stable"
        there.take()
        if order == "before it took over":
            house.assign(2)
            await say(house, "g", managed="false")
            await asyncio.sleep(0.02)
            assert there.state == "Stable", "it may be the seat of another owner"
            await house.own()
        else:
            await say(house, "g", managed="false")
        await until(lambda: there.state == "Empty")

    run(test)


def test_a_group_that_is_wanted_again_stays() -> None:
    async def test(house: House) -> None:
        client = await house.client()
        epoch = await at_work(house, client)
        await say(house, "g", managed="false")
        await until(lambda: house.coordinator.moves._leaving)
        await say(house, "g", managed=None)
        await until(lambda: not house.coordinator.moves._leaving)
        group: Any = house.owner_of("g").shard.groups["g"]  # type: ignore[union-attr]
        assert group.epoch > epoch
        assert (await client.ask(join("g", "m2"), 1)).error_code == Code.NONE

    run(test)


def static_join(instance: str, member_id: str = "") -> jg.JoinGroupRequest:
    return jg.JoinGroupRequest("g", 10_000, 60_000, member_id, instance, "consumer", NEWCOMER)


def test_a_static_member_that_is_started_again_meanwhile_takes_part_in_the_way_back() -> None:
    """Otherwise everybody would wait until the session of the one that it was has run out."""

    async def test(house: House) -> None:
        house.configs._own.classic.values["initial_rebalance_delay_ms"] = 20  # type: ignore[index]
        one, two, back = [await house.client() for _ in range(3)]
        one.post(static_join("i1"), 7)
        two.post(static_join("i2"), 7)
        leads, follows = await one.answer(static_join("i1"), 7), await two.answer(static_join("i2"), 7)
        clients = {"i1": one, "i2": two}
        assert {leads.generation_id, follows.generation_id} == {1}
        part = [sg.SyncGroupRequestAssignment(leads.member_id, assignment(0, [("orders", (0, 1))]))]
        for instance, joined in (("i1", leads), ("i2", follows)):
            sync = sg.SyncGroupRequest("g", 1, joined.member_id, instance, "consumer", "range", part)
            assert (await clients[instance].ask(sync, 5)).error_code == Code.NONE
            part = []
        await say(house, "g", managed="false")
        group: Any = house.owner_of("g").shard.groups["g"]  # type: ignore[union-attr]
        await until(lambda: group.state == "PreparingRebalance")
        beaten = await one.ask(hb.HeartbeatRequest("g", 1, leads.member_id, "i1"), 4)
        assert beaten.error_code == Code.REBALANCE_IN_PROGRESS
        assert (await back.ask(static_join("i3"), 7)).error_code == Code.NOT_COORDINATOR, "nobody new is let in"
        one.post(static_join("i1", leads.member_id), 7)
        back.post(static_join("i2"), 7)
        assert (await one.answer(static_join("i1"), 7)).error_code == Code.NOT_COORDINATOR
        assert (await back.answer(static_join("i2"), 7)).error_code == Code.NOT_COORDINATOR
        await until(lambda: not house.rules.managed("g"))

    run(test)


# ---- rules ----------------------------------------------------------------------------------------------------------
def test_stored_patterns_count_for_everybody_until_they_go() -> None:
    async def test(house: House) -> None:
        heard = Heard(house.coordinator)
        include = {f"/{cf.INCLUDE}": "theirs-[0-9]{1,2},theirs-more"}
        await house.configs.put("", include, "a test", house.coordinator.append_unfenced)
        assert heard.of(GroupRules)[-1].include == ("theirs-[0-9]{1,2}", "theirs-more")
        assert (
            house.rules.wanted("theirs-12")
            and not house.rules.wanted("g")
            and house.front._managed.managed("theirs-more")
        )
        assert not house.front._managed.managed("g")
        await house.configs.put("", {f"/{cf.INCLUDE}": None}, "a test", house.coordinator.append_unfenced)
        assert (
            house.rules.wanted("g")
            and house.front._managed.managed("g")
            and not house.front._managed.managed("theirs-more")
        )

    run(test)


def test_sidecars_whose_own_patterns_differ_are_told_until_patterns_are_stored() -> None:
    async def test(house: House) -> None:
        told = "sidecars have different patterns"
        house.rules.peers({1: house.rules.told(), 2: {"include": [], "exclude": []}})
        assert house.rules.differing() == [] and told not in house.lines.events()
        house.rules.peers({1: house.rules.told(), 2: {"include": ["b.*"], "exclude": []}})
        assert house.metrics.value("patterns_differ") == 1
        assert house.lines.fields(told)["theirs"] == {2: {"include": ["b.*"], "exclude": []}}
        include = {f"/{cf.INCLUDE}": "c.*"}
        await house.configs.put("", include, "a test", house.coordinator.append_unfenced)
        assert house.metrics.value("patterns_differ") == 0

    run(test)


def test_a_rebalance_is_forced_with_its_reason() -> None:
    async def test(house: House) -> None:
        client = await house.client()
        epoch = await at_work(house, client)
        group: Any = house.owner_of("g").shard.groups["g"]  # type: ignore[union-attr]
        await say(house, "g", rebalance="lag is uneven")
        await until(lambda: group.epoch == epoch + 1)
        assert "lag is uneven (changed by a test" in house.lines.fields("group epoch")["why"]

    run(test)


async def ordered(house: House, client: HouseClient) -> int:
    """Member m1 is at work, and a rebalance is asked for while this sidecar, which owned the group, owns nothing."""
    epoch = await at_work(house, client)
    house.assign(2)
    await say(house, "g", rebalance="lag is uneven")
    await asyncio.sleep(0.02)
    assert house.rules.value("g", cf.REBALANCE) == "lag is uneven"
    return epoch


def epoch_of(house: House) -> int:
    shard = house.owner_of("g").shard
    assert shard is not None
    group: Any = shard.groups.get("g")
    return -1 if group is None else int(group.epoch)


def test_the_next_owner_does_the_rebalance_that_the_last_one_did_not_begin() -> None:
    """Symptom: `sidecar groups rebalance` waited 330 s for an owner that had died before its record was written."""

    async def test(house: House) -> None:
        client = await house.client()
        epoch = await ordered(house, client)
        await house.own()
        await until(lambda: house.rules.value("g", cf.REBALANCE) is None)
        assert epoch_of(house) == epoch + 1
        assert house.lines.fields("group epoch")["why"].startswith("lag is uneven (changed by a test, 20")

    run(test)


def test_the_next_owner_does_not_repeat_a_rebalance_that_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(house: House) -> None:
        client = await house.client()
        epoch = await at_work(house, client)
        forced = house.coordinator.moves.forced
        store = forced._store

        async def fails(group_id: str, values: dict[str, str | None], why: str) -> None:
            raise ConnectionLost("the owner dies before it can say that it is done")

        monkeypatch.setattr(forced, "_store", fails)
        await say(house, "g", rebalance="lag is uneven")
        await until(lambda: epoch_of(house) == epoch + 1)
        house.assign(2)
        await until(lambda: not forced._at_work)
        monkeypatch.setattr(forced, "_store", store)
        await house.own()
        await until(lambda: house.rules.value("g", cf.REBALANCE) is None)
        assert (await client.ask(beat("g", "m1", epoch), 1)).error_code == Code.NONE
        assert epoch_of(house) == epoch + 1

    run(test)


def test_each_order_is_one_rebalance_and_none_is_left_for_a_group_that_is_not_there() -> None:
    async def test(house: House) -> None:
        client = await house.client()
        epoch = await at_work(house, client)
        for n in (1, 2):
            await say(house, "g", rebalance="the same reason")
            await until(lambda n=n: epoch_of(house) == epoch + n)  # type: ignore[misc]
            said_ms = now().wall_ms
            await until(lambda at=said_ms: now().wall_ms > at)  # type: ignore[misc] # an order is told by its time
        await say(house, "nobody", rebalance="of nothing")
        await until(lambda: house.rules.groups_with(cf.REBALANCE) == [])
        assert epoch_of(house) == epoch + 2

    run(test)


def test_a_rebalance_of_a_group_that_is_being_taken_in_waits_until_it_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(monkeypatch, classic("n1"))
    broker.silent = True

    async def test(house: House) -> None:
        await say(house, "theirs", managed="true")
        await until(lambda: broker.asked > 1)
        await say(house, "theirs", rebalance="lag is uneven")
        await asyncio.sleep(0.1)
        assert house.rules.groups_with(cf.REBALANCE) == ["theirs"]
        broker.silent = False
        await until(lambda: house.rules.groups_with(cf.REBALANCE) == [])
        assert broker.gone == ["n1"]

    run(test)


def test_what_was_found_at_the_broker_is_looked_for_anew_after_another_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the partition was another's, native members may have come."""
    broker = Broker(monkeypatch, Native(native.NOBODY))

    async def test(house: House) -> None:
        client = await house.client()
        assert (await client.ask(beats("n1", 7), 4)).error_code == Code.UNKNOWN_MEMBER_ID
        assert (await client.ask(beats("n1", 7), 4)).error_code == Code.UNKNOWN_MEMBER_ID
        assert broker.asked == 1
        house.assign(2)
        broker.group = classic("n1")
        await house.own()
        assert (await client.ask(beats("n1", 7), 4)).error_code == Code.REBALANCE_IN_PROGRESS
        assert broker.asked == 2 and broker.gone == ["n1"]

    run(test)


def test_only_those_are_sent_away_from_the_broker_who_are_members_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else may have joined there since the group was described."""
    broker = Broker(monkeypatch, classic("n1"))

    async def test(house: House) -> None:
        client = await house.client()
        assert (await client.ask(beats("n1", 7), 4)).error_code == Code.REBALANCE_IN_PROGRESS
        broker.gone.clear()
        broker.group = classic("n1", "stranger")
        house.coordinator.moves.strangers("g")
        await until(lambda: not house.coordinator.moves._sent_away)
        assert broker.gone == ["n1"]

    run(test)


def test_a_group_is_given_back_only_when_its_seat_at_the_broker_is_free() -> None:
    async def test(house: House) -> None:
        client = await house.client()
        epoch = await at_work(house, client)
        await house.seated()
        hung = house.brokers.faults.hang(Api.LEAVE_GROUP)
        await say(house, "g", managed="false")
        assert (await client.ask(beat("g", "m1", -1), 1)).error_code == Code.NONE
        await until(lambda: hung.met)
        await asyncio.sleep(0.05)
        assert house.rules.managed("g") and house.brokers.seats["g"].state != "Empty", epoch
        hung.release()
        await until(lambda: not house.rules.managed("g"))
        assert house.brokers.seats["g"].state == "Empty"

    run(test)


def test_whoever_is_ordered_back_while_its_broker_is_asked_is_not_taken_in(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(monkeypatch, classic("n1"))

    async def test(house: House) -> None:
        asked, told = asyncio.Event(), asyncio.Event()

        async def describe(conn: object, group_id: str, timeout_s: float) -> Native:
            asked.set()
            await told.wait()
            return broker.group

        monkeypatch.setattr(native, "describe", describe)
        client = await house.client()
        client.post(beats("n1", 7), 4)
        await asyncio.wait_for(asked.wait(), 3)
        await say(house, "g", managed="false")
        await until(lambda: house.rules.overrides == {"g": "false"})
        told.set()
        assert (await client.answer(beats("n1", 7), 4)).error_code == Code.NOT_COORDINATOR
        assert broker.gone == [] and not house.state.partitions[0].groups

    run(test)
