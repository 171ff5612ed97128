"""Heartbeats of members of streams groups: limits, answers that a front may remember, and answers that wait."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from sidecar.core.runtime.events import DeleteGroup, Rebalance
from sidecar.core.runtime.member_limits import GROUP_BYTES, MemberLimits
from sidecar.core.streams.adoption import AdoptStreams, NativeStreamsMember
from sidecar.core.streams.config import StreamsConfig
from sidecar.core.streams.events import StreamsHeartbeat, StreamsHeartbeatReply, TopicsCreated
from sidecar.core.streams.group import TASK_BYTES
from sidecar.core.streams.soft_state import StreamsSoft
from sidecar.core.streams.task_offsets import OFFSET_BYTES
from sidecar.core.streams.tasks import NO_TASKS, Tasks
from sidecar.core.streams.topology import Subtopology, Topology
from sidecar.core.vocabulary.errors import Code
from tests.core.streams.world import TOPOLOGY, Client, World, quick


def ready(config: StreamsConfig | None = None) -> World:
    world = World(config or quick())
    world.grow({"in": 2, "app-r": 2, "app-c": 2})
    return world


def test_a_group_holds_no_more_than_it_may() -> None:
    world = ready()
    turn = world.shard._turn
    turn.ports = replace(turn.ports, limits=MemberLimits(group_bytes=2_400))
    wide = Topology(1, (Subtopology("0", tuple(f"t{i}" for i in range(20))),))
    refused = Client(world, "m0", topology=wide).heartbeat()
    assert refused.code == Code.GROUP_MAX_SIZE_REACHED and "2400 bytes" in (refused.message or "")
    assert "g" not in world.shard.groups and not world.log
    assert Client(world, "m1").heartbeat().code == Code.NONE
    assert Client(world, "m2").heartbeat().code == Code.GROUP_MAX_SIZE_REACHED
    assert Client(world, "m1").heartbeat().code == Code.NONE, "it needs no more than before"
    assert world.group().held_bytes == world.rebuilt().groups["g"].held_bytes > 0


def test_offsets_of_tasks_take_memory_that_counts() -> None:
    """Symptom: 200 members with one heartbeat of 360 KB each held 545 MB, of which 205 KB counted."""
    world = ready()
    members = [Client(world, f"m{i}") for i in range(2)]
    for m in members:
        m.heartbeat()
    before = world.shard.held_bytes
    members[0].offsets = (("1", 0, 7),)
    members[0].heartbeat()
    soft = world.shard.soft["g"]
    assert isinstance(soft, StreamsSoft)
    assert soft.offsets == {"m0": ({"1": {0: 7}}, {})}
    assert (
        world.shard.held_bytes == before + 2 * OFFSET_BYTES == world.group().held_bytes + GROUP_BYTES + soft.held_bytes
    )
    turn = world.shard._turn
    turn.ports = replace(turn.ports, limits=MemberLimits(group_bytes=world.group().limited_bytes + 2 * OFFSET_BYTES))
    members[1].offsets = (("1", 1, 7),)
    assert members[1].heartbeat().code == Code.NONE
    assert list(soft.offsets) == ["m0"], "no room is no reason to refuse a member"
    members[0].leave()
    assert world.shard.held_bytes == world.group().held_bytes + GROUP_BYTES
    members[1].offsets = (("1", 1, 7),)
    members[1].heartbeat()
    assert list(soft.offsets) == ["m1"]
    world.ask(DeleteGroup("g"))
    members[1].leave()
    world.ask(DeleteGroup("g"))
    assert world.shard.held_bytes == 0


def test_tasks_take_memory_that_counts() -> None:
    """Symptom: a group of 100,000 tasks held 30 MB, of which 60 KB counted."""
    world = ready()
    member = Client(world, "m")
    member.heartbeat()
    group = world.group()
    assert group.held_bytes == group.members_bytes + group.topology_bytes + 4 * TASK_BYTES
    assert group.held_bytes == world.rebuilt().groups["g"].held_bytes
    turn = world.shard._turn
    turn.ports = replace(turn.ports, limits=MemberLimits(group_bytes=group.held_bytes))
    other = Client(world, "m2")
    assert other.heartbeat().code == Code.NONE, "tasks do not count for the limit of the members of a group"
    for c in (member, other):
        c.leave()
    assert group.held_bytes == group.topology_bytes


def test_a_topic_that_grows_beyond_the_limit_of_tasks_gives_nobody_any() -> None:
    world = World(quick(max_tasks=4))
    world.grow({"in": 4})
    clients = [Client(world, f"m{i}", topology=Topology(1, (Subtopology("0", ("in",)),))) for i in range(2)]
    for c in (*clients, *clients):
        c.heartbeat()
    world.grow({"in": 5})
    assert clients[0].heartbeat().code == Code.STREAMS_INVALID_TOPOLOGY
    clients[1].leave()
    world.sleep(2_000)  # the timer of the next target, which no heartbeat brings
    assert world.group().target == {"m0": NO_TASKS}


def test_a_request_must_fit_into_a_record() -> None:
    world = ready()
    turn = world.shard._turn
    turn.ports = replace(turn.ports, record_bytes=100)
    wide = Topology(1, (Subtopology("0", ("t" * 101,)),))
    assert Client(world, "m", topology=wide).heartbeat().code == Code.UNKNOWN_SERVER_ERROR


def granted(world: World, client: Client) -> int | None:
    found = world.replies.pop(world.request(client.request())).grant
    return None if found is None else found.revision


def test_a_remembered_answer_ends_with_the_group_s_next_change() -> None:
    world = ready()
    client = Client(world, "m")
    client.heartbeat()
    client.heartbeat()
    assert client.full is False
    first = granted(world, client)
    assert first is not None and granted(world, client) == first
    soft = world.shard.soft["g"]
    other = Client(world, "n")
    for change in (lambda: world.grow({"app-c": 0}), other.heartbeat, other.leave):
        before = soft.revision
        change()
        assert soft.revision > before
    before = soft.revision
    world.grow({"no-topic-of-it": 1})
    assert soft.revision == before


def test_what_ends_by_time_is_not_remembered() -> None:
    """A status, and what a creation is waited for."""
    world = World(quick(assignment_interval_ms=0))
    world.grow({"in": 1})
    client = Client(world, "m")
    client.heartbeat()
    client.full = False
    assert granted(world, client) is None
    world.grow({"app-r": 1, "app-c": 1})
    client.heartbeat()
    client.heartbeat()
    assert granted(world, client) is not None


def test_the_session_lasts_from_what_the_front_has_answered() -> None:
    world = ready()
    Client(world, "m").heartbeat()
    for _ in range(5):
        world.sleep(40_000, 1_000)
        world.shard.touch("g", "m", world.now)
    assert "m" in world.group().members
    world.sleep(46_000, 1_000)
    assert "m" not in world.group().members


def test_a_member_that_leaves_while_it_waits_is_answered() -> None:
    world = ready(quick(assignor_offload_enable=True, join_wait_ms=500))
    client = Client(world, "m")
    client.send()
    assert client.take_reply() is None
    world.ask(structs.replace(client.request(), member_epoch=-1, topology=None))
    world.sleep(600)
    assert client.take_reply() is not None


def test_a_join_that_asks_twice_is_told_of_its_tasks_once() -> None:
    """The member has given up its first request, whose answer names no tasks."""
    world = ready(quick(assignor_offload_enable=True, join_wait_ms=500))
    join = Client(world, "m").request()
    first, second = world.request(join), world.request(join)
    told = world.replies.pop(first).answer
    assert isinstance(told, StreamsHeartbeatReply) and told.active_tasks == {}
    world.finish()
    told = world.replies.pop(second).answer
    assert isinstance(told, StreamsHeartbeatReply) and told.active_tasks == {"0": (0, 1), "1": (0, 1)}


def test_tasks_that_a_member_does_not_report_are_given_again_only_under_a_fenced_write() -> None:
    """The member may have given them up at another owner, whose answer was lost."""
    world = ready()
    client = Client(world, "m")
    client.heartbeat()
    assert client.heartbeat().active_tasks is None and client.active()
    has, client.tasks, client.full = client.tasks, NO_TASKS, True
    world.takeover()
    fx = world.shard.handle(client.request(), 100, world.now)
    (reply,) = fx.replies
    assert isinstance(reply.answer, StreamsHeartbeatReply) and reply.answer.active_tasks == has.active
    assert fx.proved == ["g"] and not fx.records
    client.tasks = has
    assert not world.shard.handle(client.request(), 101, world.now).proved


def test_an_answer_that_waits_keeps_what_is_to_be_created() -> None:
    """The run is under way for a topology that is not ready, too."""
    world = World(quick(assignor_offload_enable=True, join_wait_ms=500))
    world.grow({"in": 2})
    client = Client(world, "m")
    client.send()
    assert client.take_reply() is None
    world.finish()
    told = client.take_reply()
    assert told is not None and {t.name for t in told.create} == {"app-r", "app-c"}
    assert client.heartbeat().create == ()


def test_only_sources_are_looked_up_first() -> None:
    """Internal topics are created by the member that misses them."""
    world = World(quick(join_wait_ms=500))
    Client(world, "m").send()
    assert [look.names for look in world.looks] == [("in",)]


def test_topics_of_a_group_that_is_gone_are_created() -> None:
    world = World()
    assert world.ask(TopicsCreated("g", "m", (("app-r", Code.NONE, None),))).code == Code.NONE
    assert not world.log and not world.looks


def test_an_endpoint_without_tasks_lacks_nothing() -> None:
    """Internal topics are missing when the first member comes, who has no task then: nothing is told of it again."""
    world = World(quick())
    world.grow({"in": 2})
    first = Client(world, "m", endpoint=("a", 1)).heartbeat()
    assert first.endpoint_epoch == 0 and len(first.partitions_by_endpoint or ()) == 1
    world.grow({"app-r": 2, "app-c": 2})
    second = Client(world, "n", endpoint=("b", 2)).heartbeat()
    assert second.endpoint_epoch == 1


def test_a_member_that_comes_from_another_address_rebalances_nobody() -> None:
    """The broker that a group comes from knows the address of a sidecar in the place of each member's."""
    world = ready()
    client = Client(world, "m")
    client.heartbeat()
    client.heartbeat()
    epoch = world.group().epoch
    elsewhere = structs.replace(client.request(), client_host="/elsewhere")
    assert world.ask(elsewhere).code == Code.NONE
    assert (world.group().epoch, world.group().members["m"].client_host) == (epoch, "/elsewhere")
    assert world.ask(structs.replace(elsewhere, rack_id="r")).code == Code.NONE
    assert world.group().epoch == epoch + 1


@pytest.mark.parametrize("own", [None, "i2"])
def test_a_member_that_takes_over_another_s_instance_id_leaves_no_task_without_owner(own: str | None) -> None:
    """Symptom: the group was Stable, and nobody had the tasks that the member had before."""
    world = ready(quick(assignment_interval_ms=0))
    first = Client(world, "m1", process_id="p", instance_id="i1")
    second = Client(world, "m2", process_id="p", instance_id=own)
    for member in (first, second) * 4:
        member.heartbeat()
    assert len(second.active()) == 2
    world.ask(StreamsHeartbeat("g", "m1", -2, instance_id="i1"))
    if own is not None:
        world.ask(StreamsHeartbeat("g", "m2", -2, instance_id=own))
    second.instance_id, second.epoch, second.tasks = "i1", 0, NO_TASKS
    for _ in range(3):
        assert second.heartbeat().code == Code.NONE
    assert len(second.active()) == 4 and list(world.group().members) == ["m2"]


def test_a_member_that_moves_to_another_process_is_not_held_up_by_what_it_had_in_the_last_one() -> None:
    """Kafka decides on a request by the state before it. Symptom: replicas came a heartbeat later."""
    world = ready(quick(assignment_interval_ms=0, num_standby_replicas=1))
    a, b = Client(world, "a", process_id="p1"), Client(world, "b", process_id="p2")
    for member in (a, b) * 4:
        member.heartbeat()
    had = b.tasks
    assert had.active and had.standby
    a.process_id, b.process_id = "p1", "p1"  # one process needs no replicas
    for member in (a, b):
        member.full = True
        world.ask(member.request())
    assert world.group().members["b"].pending.standby == had.standby
    b.process_id, b.tasks = "p2", Tasks(had.active)
    world.ask(b.request())
    now = world.group().members["b"]
    assert now.assigned.without_epochs() == had and not now.pending


def test_a_member_whose_answer_waits_is_not_the_one_that_is_asked_for_the_whole_topology() -> None:
    """Symptom: it was counted as asked, and no other member was for two heartbeat intervals."""
    world = ready(StreamsConfig(assignment_interval_ms=0))
    natives = [
        NativeStreamsMember(m, None, None, 5, m, "/h", 1, m, None, (), Tasks({"0": (p,), "1": (p,)}))
        for p, m in enumerate("ab")
    ]
    world.deliver(AdoptStreams("g", 5, 5, "sticky", TOPOLOGY, tuple(natives), 300_000, "moved"))
    a, b = (StreamsHeartbeat("g", m, 5, client_id=m, client_host="/h") for m in "ab")
    world.ask(Rebalance("g", "why"))
    world.sleep(100)
    token = world.request(a)
    assert world.running and token not in world.replies
    world.grow({"app-r": 0})
    world.finish()
    world.sleep(600)
    assert world.replies.pop(token).answer.code == Code.NONE
    assert world.ask(b).code == Code.FENCED_MEMBER_EPOCH
