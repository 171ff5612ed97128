"""Live share groups and streams groups are taken in from their brokers, over brokers in memory. Their members go on
with what they have: no heartbeat is refused."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from sidecar.coordinator.moves import adoption_event
from sidecar.coordinator.moves.unstable_groups import UNSERVED_S
from sidecar.core.vocabulary.errors import Code
from sidecar.kafka import native
from sidecar.kafka.native import Member, Native
from sidecar.wire.generated import share_group_heartbeat as sh
from sidecar.wire.generated import streams_group_describe as td
from sidecar.wire.generated import streams_group_heartbeat as th
from tests.coordinator.moves.moving import Broker, classic, run, store_settings
from tests.inprocess.embedded_sidecar import EmbeddedSidecar, until
from tests.inprocess.share import BrokerShareGroup
from tests.inprocess.share import Member as ShareMember

SERVED: dict[str, Any] = {"front": {"share": True, "streams": True}}
GROUP = "g"


def share(sidecar: EmbeddedSidecar, *members: str, epoch: int = 7) -> Native:
    """Each has both partitions of `orders`, whose share state the broker keeps."""
    orders = sidecar.topic_id("orders")
    sidecar.brokers.share.groups[GROUP] = BrokerShareGroup(initialised={("orders", 0), ("orders", 1)})
    natives = tuple(
        Member(m, None, "app", "/h", rack_id="r", names=("orders",), epoch=epoch, owned={orders: (0, 1)})
        for m in members
    )
    return Native(native.SHARE, "Stable", natives, "", "", epoch, "simple", {orders: "orders"}, epoch)


def consumer(sidecar: EmbeddedSidecar, *members: str) -> Native:
    """Each has one partition of `orders`."""
    orders = sidecar.topic_id("orders")
    natives = tuple(
        Member(m, None, "app", "/h", names=("orders",), epoch=5, owned={orders: (i,)}, target={orders: (i,)})
        for i, m in enumerate(members)
    )
    return Native(native.CONSUMER, "Stable", natives, epoch=5, assignor="uniform", topics={orders: "orders"})


def streams(*members: str, state: str = "Stable", epoch: int = 7, behind: bool = False) -> Native:
    """The first has all tasks. `behind`: the last has not given up what it should."""
    natives = []
    for i, m in enumerate(members):
        has = td.Assignment([td.TaskIds("0", [0, 1] if i == 0 else [])])
        old = epoch - 1 if behind and m == members[-1] else epoch
        told = td.Member(m, old, None, "r", "app", "/h", 1, f"process-{m}", assignment=has, target_assignment=has)
        natives.append(Member(m, None, "app", "/h", epoch=old, streams=told))
    topology = td.Topology(1, [td.Subtopology("0", ["orders"])])
    return Native(
        native.STREAMS,
        state,
        tuple(natives),
        epoch=epoch,
        assignor="sticky",
        assignment_epoch=epoch,
        topology=topology,
    )


def share_beat(member_id: str, epoch: int, names: list[str] | None = None) -> sh.ShareGroupHeartbeatRequest:
    return sh.ShareGroupHeartbeatRequest(GROUP, member_id, epoch, None, names)


def streams_beat(member_id: str, epoch: int) -> th.StreamsGroupHeartbeatRequest:
    return th.StreamsGroupHeartbeatRequest(GROUP, member_id, epoch, 0)


def sidecar_group(sidecar: EmbeddedSidecar) -> Any:
    shard = sidecar.owner_of(GROUP).shard
    return None if shard is None else shard.groups.get(GROUP)


def test_members_of_a_share_group_go_on_with_their_epochs_and_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(monkeypatch, Native(native.NO_MEMBERS))

    async def test(sidecar: EmbeddedSidecar) -> None:
        broker.group = share(sidecar, "n1", "n2")
        client = await sidecar.client()
        reply = await client.ask(share_beat("n1", 7), 1)
        assert (reply.error_code, reply.member_epoch, reply.assignment) == (Code.NONE, 7, None)
        assert broker.gone == ["n1", "n2"] and broker.asked == 1
        assert {m.member_id: m.assigned for m in sidecar_group(sidecar).members.values()} == {
            m: {sidecar.topic_id("orders"): (0, 1)} for m in ("n1", "n2")
        }
        joined = await client.ask(share_beat("n3", 0, ["orders"]), 1)
        assert joined.error_code == Code.NONE and joined.member_epoch > 7, "epochs go on from the broker's"
        await until(lambda: sidecar.brokers.share.group(GROUP).members)
        assert sidecar.metrics.value("moves", "sidecar", "done") == 1

    run(test, **SERVED)


def test_members_of_a_streams_group_go_on_with_their_epochs_and_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker has seen the address of a sidecar in the place of theirs."""
    broker = Broker(monkeypatch, streams("n1", "n2"))

    async def test(sidecar: EmbeddedSidecar) -> None:
        client = await sidecar.client()
        for member_id in ("n1", "n2"):
            reply = await client.ask(streams_beat(member_id, 7), 1)
            assert (reply.error_code, reply.active_tasks) == (Code.NONE, None)
        assert reply.member_epoch == 7 and sorted(broker.gone) == ["n1", "n2"]
        group = sidecar_group(sidecar)
        assert group.members["n1"].active_epoch("0", 1) == 7 and group.topology_partial
        await sidecar.all_joined()

    run(test, **SERVED)


@pytest.mark.parametrize("kind", [native.SHARE, native.STREAMS])
def test_an_order_takes_a_live_group_in(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    broker = Broker(monkeypatch, Native(native.NO_MEMBERS))

    async def test(sidecar: EmbeddedSidecar) -> None:
        broker.group = share(sidecar, "n1") if kind == native.SHARE else streams("n1")
        await store_settings(sidecar, "theirs", managed="true")
        await until(lambda: sidecar.rules.whereabouts("theirs") == "sidecar" and broker.gone == ["n1"])

    run(test, **SERVED)


@pytest.mark.parametrize("state", ["Stable", "Assigning"])
def test_a_streams_group_comes_when_no_member_has_a_task_to_give_up(
    monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """The description does not tell which tasks such a member still works on: another member might be given them."""
    broker = Broker(monkeypatch, streams("n1", "n2", state=state, behind=True))

    async def test(sidecar: EmbeddedSidecar) -> None:
        client = await sidecar.client()
        assert (await client.ask(streams_beat("n1", 7), 1)).error_code == Code.NOT_COORDINATOR
        assert sidecar.rules.overrides == {GROUP: "later"} and broker.gone == []
        broker.group = streams("n1", "n2")
        await until(lambda: sidecar.rules.overrides == {}, 3)
        assert (await client.ask(streams_beat("n2", 7), 1)).error_code == Code.NONE

    run(test, **SERVED)


def test_a_streams_group_waits_until_its_topics_are_known_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without its topics the group would not be ready, and every member would give up its tasks."""
    topology = td.Topology(1, [td.Subtopology("0", ["orders", "late"])])
    Broker(monkeypatch, replace(streams("n1"), topology=topology))

    async def test(sidecar: EmbeddedSidecar) -> None:
        client = await sidecar.client()
        client.post(streams_beat("n1", 7), 1)
        await asyncio.sleep(0.05)
        assert sidecar_group(sidecar) is None
        await sidecar.topics(late=2)
        assert (await client.answer(streams_beat("n1", 7), 1)).error_code == Code.NONE
        assert sidecar_group(sidecar).members["n1"].assigned

    run(test, **SERVED)


@pytest.mark.parametrize("kind", [native.SHARE, native.STREAMS])
def test_a_successor_removes_those_whom_the_former_owner_took_in(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """The former owner was cut off between its records and the members' end at the broker. The placeholder finds them
    there."""
    broker = Broker(monkeypatch, Native(native.NO_MEMBERS))
    broker.cut_off = True

    async def test(sidecar: EmbeddedSidecar) -> None:
        broker.group = share(sidecar, "n1") if kind == native.SHARE else streams("n1")
        sidecar.brokers.placeholders[GROUP].natives = 1 if kind == native.STREAMS else 0
        if kind == native.SHARE:
            sidecar.brokers.share.group(GROUP).members["n1"] = ShareMember(("orders",))
        beat = share_beat("n1", 7) if kind == native.SHARE else streams_beat("n1", 7)
        client = await sidecar.client()
        client.post(beat, 1)
        await until(lambda: sidecar_group(sidecar) is not None)
        sidecar.assign(2)
        assert (await client.answer(beat, 1)).error_code == Code.NOT_COORDINATOR
        broker.cut_off = False
        await sidecar.own()
        reply = await client.ask(beat, 1)
        assert (reply.error_code, reply.member_epoch) == (Code.NONE, 7)
        await until(lambda: broker.gone == ["n1"])
        if kind == native.STREAMS:
            sidecar.brokers.placeholders[GROUP].natives = 0
            await sidecar.all_joined()

    run(test, **SERVED)


@pytest.mark.parametrize("kind", [native.CLASSIC, native.CONSUMER, native.SHARE, native.STREAMS])
def test_a_group_that_is_recorded_is_not_judged_again(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Symptom: a group was recorded here, and a lost connection left some of its members at the broker. The next try
    found that group not stable, so the whole group waited there again, and its members here were sent back."""
    broker = Broker(monkeypatch, Native(native.NO_MEMBERS))
    broker.cut_off = True

    async def test(sidecar: EmbeddedSidecar) -> None:
        groups: dict[str, Callable[..., Native]]
        groups = {native.CLASSIC: classic, native.CONSUMER: partial(consumer, sidecar), native.STREAMS: streams}
        broker.group = groups.get(kind, partial(share, sidecar))("n1", "n2")
        await store_settings(sidecar, GROUP, managed="true")
        await until(lambda: sidecar_group(sidecar) is not None)
        members, epoch = broker.group.members[1:], broker.group.epoch + 1
        broker.group = replace(broker.group, state="PreparingRebalance", members=members, epoch=epoch)
        asked = broker.asked
        await until(lambda: broker.asked > asked + 2)
        broker.cut_off = False
        await until(lambda: broker.gone == ["n2"] and not sidecar.coordinator.moves.adoptions.under_way)
        assert sidecar.rules.overrides == {GROUP: "true"} and set(sidecar_group(sidecar).members) == {"n1", "n2"}
        assert sidecar.metrics.value("moves", "sidecar", "done") == 1
        assert sidecar.metrics.value("moves", "sidecar", "given up") == 0

    run(test, **SERVED)


# ---- fleets of which not all coordinate the kind --------------------------------------------------------------------
BEFORE = ("classic", "consumer")


def test_an_order_ends_where_not_all_coordinate_the_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(monkeypatch, streams("n1"))

    async def test(sidecar: EmbeddedSidecar) -> None:
        sidecar.kinds_of = {2: BEFORE}
        sidecar.assign(1, 2)
        await store_settings(sidecar, "theirs", managed="true")
        await until(lambda: sidecar.rules.overrides == {"theirs": "false"})
        assert "sidecars 2 do not coordinate these" in sidecar.lines.fields("group not taken in")["problem"]
        assert broker.gone == []

    run(test, **SERVED)


@pytest.mark.parametrize("kind", [native.SHARE, native.STREAMS])
def test_what_the_patterns_name_comes_when_the_last_sidecar_coordinates_the_kind(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Symptom: while `groups.kinds` was rolled out, members of live groups were told UNKNOWN_MEMBER_ID, and could not
    join before the last sidecar had it. It may take longer than a group is waited for that is not stable."""
    broker = Broker(monkeypatch, Native(native.NO_MEMBERS))

    async def test(sidecar: EmbeddedSidecar) -> None:
        sidecar.kinds_of = {2: BEFORE}
        sidecar.assign(1, 2)
        broker.group = share(sidecar, "n1") if kind == native.SHARE else streams("n1")
        beat = share_beat("n1", 7) if kind == native.SHARE else streams_beat("n1", 7)
        client = await sidecar.client()
        assert (await client.ask(beat, 1)).error_code == Code.NOT_COORDINATOR
        assert sidecar.rules.overrides == {GROUP: "later"} and "sidecars 2" in sidecar.stored.why(GROUP)
        await asyncio.sleep(1.0)
        assert sidecar.rules.overrides == {GROUP: "later"} and not sidecar.rules.managed(GROUP)
        sidecar.kinds_of = {}
        sidecar.assign(1, 2)
        await until(lambda: sidecar.rules.overrides == {}, 3)
        reply = await client.ask(beat, 1)
        assert (reply.error_code, reply.member_epoch) == (Code.NONE, 7) and broker.gone == ["n1"]

    run(test, **SERVED)


def test_a_group_of_a_kind_that_not_all_coordinate_is_asked_for_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: while `groups.kinds` was rolled out, the owners described each waiting group twice a second, without an
    end where one sidecar was forgotten."""
    broker = Broker(monkeypatch, streams("n1"))

    async def test(sidecar: EmbeddedSidecar) -> None:
        sidecar.kinds_of = {2: BEFORE}
        sidecar.assign(1, 2)
        assert (await (await sidecar.client()).ask(streams_beat("n1", 7), 1)).error_code == Code.NOT_COORDINATOR
        assert sidecar.rules.overrides == {GROUP: "later"}
        asked, begun_s = broker.asked, time.monotonic()
        await until(lambda: broker.asked == asked + 2)
        assert time.monotonic() - begun_s >= UNSERVED_S
        broker.group = Native(native.NO_MEMBERS)
        await until(lambda: sidecar.rules.overrides == {}, 2 * UNSERVED_S)

    run(test, **SERVED)


def test_a_name_of_a_kind_that_nobody_coordinates_is_no_matter_of_the_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(monkeypatch, streams("n1"))

    async def test(sidecar: EmbeddedSidecar) -> None:
        sidecar.kinds_of = {1: BEFORE}
        sidecar.assign(1)
        sidecar.coordinator.moves.adoptions.begin(GROUP)
        await until(lambda: broker.asked and not sidecar.coordinator.moves.adoptions.under_way)
        assert sidecar.rules.overrides == {} and broker.gone == [] and sidecar_group(sidecar) is None

    run(test, **SERVED)


def test_a_streams_group_of_more_tasks_than_may_be_here_stays() -> None:
    """The sidecar would refuse the heartbeats of its members, which ends them."""
    group = streams("n1", "n2")
    tasks = sum(len(t.partitions) for m in group.members if m.streams for t in m.streams.assignment.active_tasks)
    for most, problem in ((tasks, ""), (tasks - 1, f"a streams group of {tasks} tasks")):
        found = adoption_event.obstacle(group, most)
        assert problem in found and bool(problem) == bool(found)
