"""After a takeover the former owner may still tell members that all is well: until its lease is over, nobody is removed
who has not been heard here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sidecar.core.classic.events import JoinReply
from sidecar.core.consumer.config import ConsumerConfig
from sidecar.core.consumer.records import MemberRecord, MemberState
from sidecar.core.vocabulary.errors import Code
from tests.core.classic_client import ClassicClient, subscription
from tests.core.world import Client, World, topic

LEASE_MS = 15_000
SESSION_MS = 6_000


def consumers(count: int, rebalance_ms: int = 30_000) -> tuple[World, list[Client]]:
    """Members of one group that are settled."""
    config = ConsumerConfig(
        assignor_offload_enable=False,
        assignment_interval_ms=0,
        session_timeout_ms=SESSION_MS,
    )
    world = World(config)
    world.topics(topic(1, "t", 12))
    clients = [Client(world, "g", f"m{i}", ("t",), rebalance_ms=rebalance_ms) for i in range(count)]
    for _ in range(4):
        for c in clients:
            c.heartbeat()
    return world, clients


def beating(world: World, client: Client, ms: int) -> None:
    """Time goes on, and this member is heard all the while."""
    for _ in range(ms // 1_000):
        world.sleep(1_000)
        assert client.heartbeat().code == Code.NONE


def test_a_silent_member_stays_while_the_former_owner_may_answer_it() -> None:
    world, (heard, silent) = consumers(2)
    world.shard = world.rebuilt(LEASE_MS)
    beating(world, heard, LEASE_MS - 1_000)
    assert world.member_ids("g") == {heard.member_id, silent.member_id}
    beating(world, heard, 2_000)
    assert world.member_ids("g") == {heard.member_id}


def test_a_member_that_was_heard_here_has_its_session_and_no_more() -> None:
    world, (heard, silent) = consumers(2)
    world.shard = world.rebuilt(LEASE_MS)
    assert silent.heartbeat().code == Code.NONE
    beating(world, heard, SESSION_MS + 1_000)
    assert world.member_ids("g") == {heard.member_id}


@pytest.mark.parametrize("after_ms", [2_000, SESSION_MS + 2_000, LEASE_MS - 2_000])
def test_a_silent_member_has_its_session_from_the_word_of_the_former_owner(after_ms: int) -> None:
    """The former owner may have answered the member until then. No member stays longer than without such a word."""
    world, (heard, silent) = consumers(2)
    world.shard = world.rebuilt(LEASE_MS)
    beating(world, heard, after_ms)
    world.shard.set_former_leases_end(world.now_ms, world.now)
    beating(world, heard, min(SESSION_MS, LEASE_MS - after_ms) - 1_000)
    assert world.member_ids("g") == {heard.member_id, silent.member_id}
    beating(world, heard, 2_000)
    assert world.member_ids("g") == {heard.member_id}


def test_a_doubt_never_becomes_longer() -> None:
    world, (heard, silent) = consumers(2)
    world.shard = world.rebuilt(LEASE_MS)
    world.shard.set_former_leases_end(world.now_ms + 8_000, world.now)
    world.shard.set_former_leases_end(world.now_ms + LEASE_MS, world.now)
    beating(world, heard, 7_000)
    assert world.member_ids("g") == {heard.member_id, silent.member_id}
    beating(world, heard, 2_000)
    assert world.member_ids("g") == {heard.member_id}


def test_whoever_must_give_up_partitions_has_that_time_too() -> None:
    """The former owner told the member to give partitions up, and the member may still get its answers."""
    world, (one, _) = consumers(2, rebalance_ms=2_000)
    third = Client(world, "g", "m2", ("t",))
    third.heartbeat()
    one.heartbeat()  # it is told to give partitions up
    assert world.group("g").members[one.member_id].state is MemberState.UNREVOKED_PARTITIONS
    world.shard = world.rebuilt(LEASE_MS)
    for _ in range(LEASE_MS // 1_000 - 1):
        beating(world, third, 1_000)
        world.shard.touch("g", one.member_id, world.now)
    assert one.member_id in world.member_ids("g")
    beating(world, third, 2_000)
    assert one.member_id not in world.member_ids("g")


def classic_waits_for(phase: str) -> tuple[World, ClassicClient]:
    """After a takeover, one member has come to its rebalance, and the group waits for the other one."""
    world = World()
    protocols = (("range", subscription(["t"])),)
    clients = [
        ClassicClient(name, protocols=protocols, session_ms=60_000, rebalance_ms=2_000) for name in ("one", "two")
    ]
    for c in clients:
        reply = world.ask(c.join())
        assert isinstance(reply, JoinReply)
        c.joined(reply)
    tokens = [world.request(c.join()) for c in clients]
    world.sleep(3_000)
    for c, token in zip(clients, tokens, strict=True):
        reply = world.replies.pop(token).answer
        assert isinstance(reply, JoinReply)
        c.joined(reply)
    leader, other = sorted(clients, key=lambda c: not c.leads)
    nothing = {leader.member_id: b"", other.member_id: b""}
    if phase == "join":
        world.request(leader.sync(nothing))
        world.request(other.sync({}))
    world.shard = world.rebuilt(LEASE_MS)
    world.request(leader.sync(nothing) if phase == "sync" else leader.join(reason="once more"))
    return world, other


@pytest.mark.parametrize("phase", ["join", "sync"])
def test_a_classic_member_that_does_not_come_back_stays_as_long(phase: str) -> None:
    world, other = classic_waits_for(phase)
    world.sleep(LEASE_MS - 1_000)
    assert other.member_id in world.member_ids("g")
    world.sleep(2_000)
    assert other.member_id not in world.member_ids("g")


@pytest.mark.parametrize("phase", ["join", "sync"])
def test_a_rebalance_does_not_wait_for_it_once_the_former_owner_has_given_the_partition_up(phase: str) -> None:
    world, other = classic_waits_for(phase)
    world.shard.set_former_leases_end(world.now_ms, world.now)
    world.sleep(1_000)
    assert other.member_id in world.member_ids("g"), "it has its rebalance timeout"
    world.sleep(2_000)
    assert other.member_id not in world.member_ids("g")


def test_a_partition_tells_whether_members_of_its_groups_wait_for_one_another() -> None:
    world, _ = consumers(2)
    assert not world.shard.in_barrier(), "members of the consumer protocol go on by their heartbeats, wherever"
    world, _ = classic_waits_for("join")
    assert world.shard.in_barrier()
    world, _ = classic_waits_for("sync")
    assert not world.shard.in_barrier(), "the leader has synced; the other one can do so at any owner"


def test_a_record_that_names_a_topic_twice_names_it_once() -> None:
    """A client that may write to the state topic could otherwise stop the group's assignments: the kernels refuse such
    topics."""
    world, clients = consumers(2)
    world.log = [replace(r, topic_names=("t", "t")) if isinstance(r, MemberRecord) else r for r in world.log]
    world.shard = world.rebuilt(0)
    world.topics(topic(1, "t", 20))
    for _ in range(4):
        for c in clients:
            assert c.heartbeat().code == Code.NONE
    assert sum(len(ps) for c in clients for ps in c.owned.values()) == 20
