"""Timers belong to a member and to an epoch or generation: none is left behind, and one of another time changes
nothing."""

from __future__ import annotations

import pytest

from sidecar.core.classic.adoption import AdoptClassic, NativeMember
from sidecar.core.classic.embedded import CONSUMER_TYPE, assignment
from sidecar.core.classic.events import JoinReply
from sidecar.core.consumer.config import ConsumerConfig
from sidecar.core.consumer.records import MemberState
from sidecar.core.kinds import REGISTRY
from sidecar.core.vocabulary.errors import Code
from tests.core.classic_client import ClassicClient, subscription
from tests.core.world import Client, World, topic

NO_WAIT = ConsumerConfig(assignor_offload_enable=False, assignment_interval_ms=0, join_wait_ms=0)


def consumers(count: int) -> tuple[World, list[Client]]:
    """Settled members of one consumer group."""
    world = World(NO_WAIT)
    world.topics(topic(1, "t", 12))
    clients = [Client(world, "g", f"m{i}", ("t",)) for i in range(count)]
    for _ in range(4):
        for c in clients:
            c.heartbeat()
    return world, clients


def revoking() -> tuple[World, Client]:
    """A member that has been told to give partitions up, and has not done so."""
    world, (first,) = consumers(1)
    Client(world, "g", "new", ("t",)).heartbeat()
    first.heartbeat()
    assert world.group("g").members[first.member_id].state is MemberState.UNREVOKED_PARTITIONS
    return world, first


def of_member(world: World, member_id: str) -> set[str]:
    """The names of its timers."""
    return {key[0] for key in world.shard.timers._deadlines if member_id in key[2:]}


def fires(world: World, name: str, member_id: str, tag: int) -> int:
    """Returns the number of records that a timer writes if it fires now."""
    turn, key = world.shard._turn, (name, "g", member_id) if member_id else (name, "g")
    fx = turn.begin(world.now)
    group = world.shard.groups["g"]
    REGISTRY.kinds[group.kind].timers[name](turn, group, key, tag)
    return len(fx.records)


def test_a_member_that_is_gone_leaves_no_timer() -> None:
    world, (a, b, c) = consumers(3)
    assert all(of_member(world, m.member_id) == {"session"} for m in (a, b, c))
    a.leave()
    b.leave()
    assert of_member(world, a.member_id) == of_member(world, b.member_id) == set()
    world, late = revoking()
    assert of_member(world, late.member_id) == {"session", "rebalance"}
    late.leave()
    assert of_member(world, late.member_id) == set()


def test_a_member_that_has_given_everything_up_is_given_no_time_for_it_any_more() -> None:
    world, first = revoking()
    first.heartbeat()
    assert of_member(world, first.member_id) == {"session"}


def test_a_rebalance_timer_removes_only_in_the_epoch_that_it_was_set_in() -> None:
    world, first = revoking()
    epoch = world.group("g").members[first.member_id].member_epoch
    assert fires(world, "rebalance", first.member_id, epoch - 1) == 0
    assert fires(world, "rebalance", "nobody", epoch) == 0
    assert fires(world, "rebalance", first.member_id, epoch) > 0


def test_a_sync_timer_removes_only_in_the_generation_that_it_was_set_in() -> None:
    world = World(NO_WAIT)
    world.topics(topic(1, "t", 12))
    world.classic = type(world.classic)(initial_rebalance_delay_ms=0)
    client = ClassicClient("c", version=3, protocols=(("range", subscription(["t"])),))
    reply = world.replies[world.request(client.join())].answer
    assert isinstance(reply, JoinReply) and reply.generation == 1
    assert fires(world, "classic_sync", "", 0) == 0 == fires(world, "classic_sync", "", 2)
    assert fires(world, "classic_sync", "", 1) > 0


@pytest.mark.parametrize(
    ("said", "next_one"), [(-1, 8), (3, 8), (7, 8), (9, 10), (2**30 - 1, 2**30), (2**30, 8), (2**31 - 2, 8)]
)
def test_a_group_that_was_taken_in_goes_on_above_every_generation_that_a_member_speaks_of(
    said: int, next_one: int
) -> None:
    """The broker does not tell the generation of its group. A member may speak of a later one only when it joins.
    Symptom: a member that claimed 2^31 - 2 left its group a single generation that fits into 32 bits."""
    world = World(NO_WAIT)
    world.topics(topic(1, "t", 12))
    native = NativeMember("m1", None, "c", "/h", subscription(["t"], {"t": (0,)}, 7), assignment(3, [("t", (0,))]))
    adopted = AdoptClassic("g", CONSUMER_TYPE, "range", (native,), 10_000, 60_000, "ordered")
    assert world.ask(adopted).code == Code.NONE
    owned = {"t": (0,)} if said >= 0 else {}
    client = ClassicClient("c", member_id="m1", protocols=(("range", subscription(["t"], owned, said)),))
    reply = world.replies[world.request(client.join())].answer
    assert isinstance(reply, JoinReply) and (reply.code, reply.generation) == (Code.NONE, next_one)
