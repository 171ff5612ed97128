"""The coordinator's work for bytes of a client grows with their number, and no faster.

CPU is measured, which a busy machine makes longer: so what looks steep is measured again with many more elements, at
which the square of their number would be most of the work.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import ClassVar

import pytest

from sidecar.coordinator.placeholder.inflight_commits import UnderWay
from sidecar.core.classic.config import CLASSIC
from sidecar.core.classic.embedded import (
    CONSUMER_TYPE,
    NEWEST,
    OWNED_MAX,
    PARTITIONS_MAX,
    assigned,
    subscription,
    without_claims,
)
from sidecar.core.classic.events import DescribeClassic, JoinGroup, LeaveGroup, Leaving
from sidecar.core.classic.group import ClassicGroup
from sidecar.core.classic.records import AssignmentRecord, MemberRecord, StaleClaim
from sidecar.core.classic.stale_claims import shown, stale_claims_of
from sidecar.core.consumer.events import ConsumerHeartbeat, DescribeConsumerGroup
from sidecar.core.kinds import REGISTRY
from sidecar.core.modern.soft_state import Flight
from sidecar.core.runtime.offset_checks import Place
from sidecar.core.runtime.shard import Shard
from sidecar.core.runtime.turn import Now
from sidecar.core.share.config import ShareConfig
from sidecar.core.share.events import ShareHeartbeat
from sidecar.core.streams.endpoints import partitions_by_endpoint
from sidecar.core.streams.events import StreamsHeartbeat
from sidecar.core.streams.java_order import hash_order
from sidecar.core.streams.records import CurrentRecord, MemberState, TopologyRecord
from sidecar.core.streams.records import MemberRecord as StreamsMemberRecord
from sidecar.core.streams.tasks import AssignedTasks
from sidecar.core.streams.topology import CopartitionGroup, Subtopology, TopicInfo, Topology
from sidecar.core.vocabulary.topics import Topic
from sidecar.wire.generated import consumer_protocol_assignment as ca
from sidecar.wire.generated import consumer_protocol_subscription as cs
from sidecar.wire.primitives import ZERO_UUID
from tests.core.share.world import Client as ShareClient
from tests.core.share.world import World as ShareWorld
from tests.core.streams.world import Client as StreamsClient
from tests.core.streams.world import World as StreamsWorld
from tests.core.streams.world import quick
from tests.core.world import World, topic
from tests.harness.collector import no_collector

N, MORE, TRIES, FLOOR_MS = 1_000, 4, 10, 0.5
STEEP, SQUARE = 5, 8
"""Times as much CPU for four times as many elements: at which it is measured again, and at which it is no line."""
Work = Callable[[int], Callable[[], object]]
"""Prepares the work for so many elements, and returns the part that is measured."""


def owns(*topics: tuple[str, list[int]], generation: int = 1) -> bytes:
    owned = [cs.TopicPartition(name, partitions) for name, partitions in topics]
    said = cs.ConsumerProtocolSubscription(["t"], None, owned, generation, None)
    return NEWEST.to_bytes(2, "big") + said.encode(NEWEST)


def given(*topics: tuple[str, list[int]]) -> bytes:
    said = ca.ConsumerProtocolAssignment([ca.TopicPartition(name, partitions) for name, partitions in topics])
    return NEWEST.to_bytes(2, "big") + said.encode(NEWEST)


def group_of(claims: list[bytes], assignment: bytes = b"") -> ClassicGroup:
    group = ClassicGroup("g", type=CONSUMER_TYPE, protocol="range", assigned_generation=2)
    for i, metadata in enumerate(claims):
        protocols = (("range", metadata),)
        group.replay(MemberRecord("g", f"m{i}", None, "c", "/h", 10_000, 60_000, protocols))
    if assignment:
        group.replay(AssignmentRecord("g", "m0", 2, assignment))
    return group


def one_topic_again_and_again(n: int) -> bytes:
    return owns(*(("t", [i]) for i in range(n)))


def one_partition_again_and_again(n: int) -> Callable[[], object]:
    group = group_of([owns(("t", [1] * n)), owns(("t", [1] * n))])
    return lambda: stale_claims_of(group, "range")


def partitions_of_others(n: int) -> Callable[[], object]:
    group = group_of([b"\0\0", owns(("t", list(range(n))))], given(("t", list(range(n)))))
    return lambda: stale_claims_of(group, "range")


def everybody_claims_the_same(n: int) -> Callable[[], object]:
    group = group_of([owns(("t", [1]), generation=i % 3) for i in range(n)])
    return lambda: stale_claims_of(group, "range")


def taken_out(n: int) -> Callable[[], object]:
    metadata = owns(("t", list(range(n))))
    return lambda: without_claims(metadata, {"t": range(n)})


def shown_without(n: int) -> Callable[[], object]:
    stale = tuple(StaleClaim("t", (i,), 1, f"m{i}") for i in range(n))
    member = MemberRecord(
        "g", "m", None, "c", "/h", 1, 1, (("range", one_topic_again_and_again(n)),), stale_claims=stale
    )
    return lambda: shown(member, "range", strip=True)


def commits(n: int, *, named: bool, commits: int = 4) -> Callable[[], object]:
    """Over several connections, each for the same partition of `n` topics."""
    places: list[tuple[Place, ...]] = []
    for way in range(commits):
        ids = [i.to_bytes(16, "big") if not named and way % 2 else ZERO_UUID for i in range(1, n + 1)]
        places.append(tuple(("" if t != ZERO_UUID else f"t{i}", t, 0) for i, t in enumerate(ids)))

    def work() -> None:
        under_way = UnderWay()
        tickets = []
        for way, said in enumerate(places):
            under_way.before_commit("g", f"m{way}", said[: n if way == 0 or named else 1], (0, way))
            tickets.append(under_way.begin("g", f"m{way}", said, (0, way), 0))
        for ticket in tickets:
            under_way.end(ticket)

    return work


def leave_during_a_run(n: int) -> Callable[[], object]:
    """Half of them hand their places over first."""
    flight = Flight(1)

    def work() -> None:
        for i in range(n // 2):
            flight.gone(f"m{i}", f"new-{i}")
        for i in range(n // 2):
            flight.gone(f"new-{i}")
            flight.gone(f"m{n + i}")

    return work


# ---- topologies and topics -----------------------------------------------------------------------------------------
def chain(n: int) -> Topology:
    """Each subtopology reads what the next one in Kafka's order writes."""
    order = hash_order(map(str, range(n)))
    subs = [Subtopology(i, (), (f"r{k}",), (TopicInfo(f"r{k + 1}"),)) for k, i in enumerate(order[:-1])]
    last = Subtopology(order[-1], ("in",), (f"r{n - 1}",))
    return Topology(0, (*subs, last, Subtopology("end", (), (), (TopicInfo("r0"),))))


def copartitioned(n: int) -> Topology:
    fixed = tuple(TopicInfo(f"r{i}", 1) for i in range(n))
    groups = tuple(CopartitionGroup((), (i,)) for i in range(n))
    return Topology(0, (Subtopology("0", ("in",), tuple(t.name for t in fixed), fixed, (), groups),))


def joins_with(topology: Topology) -> Callable[[], object]:
    world = StreamsWorld()
    world.topics(**{"in": 1})
    beat = StreamsHeartbeat("g", "m", 0, topology=topology, active_tasks=(), standby_tasks=(), warmup_tasks=())
    return lambda: world.shard.handle(beat, 1, world.now)


def endpoints_of_members(n: int) -> Callable[[], object]:
    """A group of `n` members with endpoints, and as many subtopologies. Each member has a task."""
    world = StreamsWorld()
    image, changed = world.shard.image.next([Topic(i.to_bytes(16, "big"), f"in{i}", ((),)) for i in range(n)])
    world.shard.topics_changed(image, changed, world.now)
    topology = Topology(0, tuple(Subtopology(str(i), (f"in{i}",)) for i in range(n)))
    world.shard.replay(TopologyRecord("g", topology))
    for i in range(n):
        world.shard.replay(StreamsMemberRecord("g", f"m{i}", None, None, "c", "/h", 1, 0, "p", ("h", i)))
        has = AssignedTasks({str(i): {0: 1}})
        world.shard.replay(CurrentRecord("g", f"m{i}", 1, 1, MemberState.STABLE, has, AssignedTasks()))
    group = world.group()
    return lambda: partitions_by_endpoint(world.shard._turn, group, group.members["m0"])


def endpoint_of_a_topic_named_often(n: int) -> Callable[[], object]:
    """A member with an endpoint, whose subtopology names one topic `n` times. It has as many partitions. Symptom:
    20,000 names and 400 partitions held the loop for 0.7 s, with each heartbeat that had another port."""
    world = StreamsWorld()
    world.grow({"in": n})
    world.shard.replay(TopologyRecord("g", Topology(0, (Subtopology("0", ("in",) * n),))))
    world.shard.replay(StreamsMemberRecord("g", "m", None, None, "c", "/h", 1, 0, "p", ("h", 1)))
    has = AssignedTasks({"0": dict.fromkeys(range(n), 1)})
    world.shard.replay(CurrentRecord("g", "m", 1, 1, MemberState.STABLE, has, AssignedTasks()))
    group = world.group()
    return lambda: partitions_by_endpoint(world.shard._turn, group, group.members["m"])


def reaches_a_new_epoch(n: int) -> Callable[[], object]:
    """A share member that subscribes to so many topics."""
    world = ShareWorld()
    topics = [Topic(i.to_bytes(16, "big"), f"t{i}", ((),)) for i in range(1, n + 1)]
    world.topics(*topics)
    members = [ShareClient(world, "g", m, tuple(t.name for t in topics)) for m in ("a", "b")]
    members[0].heartbeat()
    world.initialised("g", {t.id: (0,) for t in topics})
    members[0].heartbeat()
    members[1].heartbeat()
    beat = ShareHeartbeat("g", "a", members[0].epoch, client_id="a")
    return lambda: world.shard.handle(beat, 1, world.now)


def share_group(n: int, *initialised: int) -> tuple[ShareWorld, ShareClient]:
    """A group with one topic of `n` partitions, of which these numbers have share state, one after the other. Its
    target is that of the first number."""
    world = ShareWorld(config=ShareConfig(assignor_offload_enable=False, join_wait_ms=0, assignment_interval_ms=15_000))
    one = Topic(bytes(15) + b"1", "t", ((),) * n)
    world.topics(one)
    member = ShareClient(world, "g", "a", ("t",))
    member.heartbeat()
    for number in initialised:
        world.initialised("g", {one.id: tuple(range(number))})
        member.heartbeat()
    return world, member


def more_have_share_state(n: int) -> Callable[[], object]:
    world, member = share_group(n, n - 1, n)
    beat = ShareHeartbeat("g", "a", member.epoch, topic_names=("t",), client_id="a")
    return lambda: world.shard.handle(beat, 1, world.now)


# ---- explained to people, by the owner's event loop ----------------------------------------------------------------
class NoRecords:
    names: ClassVar[dict[bytes, str]] = {}
    taken_over_ms = 0

    def since(self, kind: str, sub_id: str = "") -> int:
        return 0

    def offset(self, kind: str, sub_id: str = "") -> int:
        return -1


def explained(shard: Shard) -> Callable[[], object]:
    group = shard.groups["g"]
    explain = REGISTRY.kinds[group.kind].inspect.explain
    return lambda: explain(NoRecords(), group, shard.image, None)


def streams_members(n: int, *, settled: bool) -> StreamsWorld:
    """Two members of a group with `n` tasks and their standby tasks. The second one waits for the first, or has its
    tasks."""
    world = StreamsWorld(config=quick(num_standby_replicas=1, assignment_interval_ms=0))
    world.topics(**{"in": n, "c": n})
    topology = Topology(1, (Subtopology("0", ("in",), (), (), (TopicInfo("c"),)),))
    members = [StreamsClient(world, m, topology=topology) for m in ("a", "b")]
    for member in members * (4 if settled else 1):
        member.heartbeat()
    return world


def consumer_waits_for_another(n: int) -> World:
    world = World()
    world.topics(topic(1, "t", n))
    for m in ("a", "b"):
        world.request(ConsumerHeartbeat("g", m, 0, None, None, 60_000, ("t",), None, None, {}, "c", "/h", 1))
        world.sleep(5_000)
    return world


WORK: dict[str, Work] = {
    "partitions of a share group while another gets share state": more_have_share_state,
    "partitions of a share group, explained": lambda n: explained(share_group(n, n - 1)[0].shard),
    "tasks that a member waits for, explained": lambda n: explained(streams_members(n, settled=False).shard),
    "tasks that a member has, explained": lambda n: explained(streams_members(n, settled=True).shard),
    "partitions that a member waits for, explained": lambda n: explained(consumer_waits_for_another(n).shard),
    "endpoints of a streams group": endpoints_of_members,
    "an endpoint of a topic that is named often": endpoint_of_a_topic_named_often,
    "a chain of subtopologies": lambda n: joins_with(chain(n)),
    "copartition groups and topics with a number of their own": lambda n: joins_with(copartitioned(n)),
    "topics of a share member that reaches a new epoch": reaches_a_new_epoch,
    "a topic that a subscription names again and again": lambda n: lambda: subscription(one_topic_again_and_again(n)),
    "a topic that an assignment names again and again": lambda n: (
        lambda: assigned(given(*(("t", [i]) for i in range(n))))
    ),
    "a partition that is claimed again and again": one_partition_again_and_again,
    "claims of what others have": partitions_of_others,
    "members that claim the same": everybody_claims_the_same,
    "claims that are taken out": taken_out,
    "a member whose claims have many holders": shown_without,
    "members that leave while an assignor runs": leave_during_a_run,
    "commits by name": lambda n: commits(n, named=True),
    "commits by name and by id": lambda n: commits(n, named=False),
}


# ---- many members -------------------------------------------------------------------------------------------------
def classic_members(n: int) -> World:
    world = World()
    for i in range(n):
        world.request(joining(f"i{i}"))
    return settled(world)


def consumers(n: int) -> World:
    world = World()
    world.topics(topic(1, "t", 8))
    for i in range(n):
        world.request(ConsumerHeartbeat("g", f"m{i}", 0, f"i{i}", None, 60_000, ("t",), None, None, {}, "c", "/h", 1))
    return world


def both(n: int) -> World:
    world = consumers(n // 2)
    for i in range(n - n // 2):
        world.request(joining(f"old{i}"))
    return world


def joining(instance: str) -> JoinGroup:
    protocols = (("range", owns(("t", [1]))),)
    return JoinGroup("g", "", instance, CONSUMER_TYPE, protocols, 45_000, 60_000, None, "c", "/h", 5, "id")


def settled(world: World) -> World:
    world.sleep(70_000, 1_000)
    return world


def session_over(world: World) -> Callable[[], object]:
    later = Now(world.now_ms + 600_000, world.now_ms + 600_000)
    return lambda: world.shard.wake(later)


def described(world: World) -> Callable[[], object]:
    group = world.shard.groups["g"]
    event = DescribeClassic("g", 5) if group.kind == CLASSIC else DescribeConsumerGroup("g")
    return lambda: world.shard.handle(event, 1, world.now)


def removed(world: World) -> Callable[[], object]:
    """As an administrator removes all of them."""
    leaving = tuple(Leaving(m, None, None) for m in world.shard.groups["g"].member_ids())
    return lambda: world.shard.handle(LeaveGroup("g", leaving), 1, world.now)


def strangers_leave(world: World) -> Callable[[], object]:
    leaving = tuple(Leaving(f"nobody-{i}", None, None) for i in range(world.shard.groups["g"].member_count()))
    return lambda: world.shard.handle(LeaveGroup("g", leaving), 1, world.now)


MEMBERS: dict[str, Callable[[int], World]] = {"classic": classic_members, "consumer": consumers, "both": both}
OF_MEMBERS: dict[str, Callable[[World], Callable[[], object]]] = {
    "their sessions are over at once": session_over,
    "they are described": described,
    "they are removed": removed,
    "others leave that are none": strangers_leave,
}


@pytest.mark.parametrize("name", WORK)
def test_four_times_the_elements_take_four_times_the_work(name: str) -> None:
    grows(WORK[name], N)


@pytest.mark.tier("test")
@pytest.mark.parametrize("members", MEMBERS)
@pytest.mark.parametrize("name", OF_MEMBERS)
def test_four_times_the_members_take_four_times_the_work(name: str, members: str) -> None:
    grows(lambda n: OF_MEMBERS[name](MEMBERS[members](n)), N // 8)


def grows(work: Work, n: int) -> None:
    few, many = least_ms(work, n, 1), least_ms(work, 4 * n, 1)
    if many > STEEP * few:
        few = many = math.inf
        for _ in range(TRIES):  # a busy machine takes longer now and then; what grows with the square always does
            few = min(few, least_ms(work, MORE * n, 1))
            many = min(many, least_ms(work, 4 * MORE * n, 1))
            if many <= SQUARE * few:
                return
        raise AssertionError(f"{few:.2f} ms for {MORE * n} elements, {many:.2f} ms for {4 * MORE * n}")


def least_ms(work: Work, n: int, tries: int) -> float:
    return max(min(taken_ms(work(n)) for _ in range(tries)), FLOOR_MS)


def taken_ms(work: Callable[[], object]) -> float:
    with no_collector():
        began = time.process_time_ns()
        work()
        return (time.process_time_ns() - began) / 1e6


# ---- one member says a great deal ---------------------------------------------------------------------------------
LONG_MS = 100
"""Generous: 20 ms on a machine that does nothing else."""
SAID: dict[str, Callable[[int], bytes]] = {
    "topics": lambda n: owns(*((f"topic-{i}", [i]) for i in range(n))),
    "one topic": lambda n: owns(*(("t", [i]) for i in range(n))),
    "partitions": lambda n: owns(("t", list(range(n)))),
}
MANY = {"topics": 150_000, "one topic": 150_000, "partitions": 450_000}
MOST = {"topics": OWNED_MAX, "one topic": OWNED_MAX, "partitions": PARTITIONS_MAX}


@pytest.mark.tier("test")
@pytest.mark.parametrize("said", MANY)
def test_a_monstrous_subscription_is_not_read(said: str) -> None:
    """Symptom: 60,000 topics that a member owns held the loop for 0.2 s."""
    many = SAID[said](MANY[said])
    assert subscription(many) is None
    assert subscription(SAID[said](MOST[said])) is not None
    assert least_ms(lambda n: lambda: subscription(many), 1, TRIES) < LONG_MS


@pytest.mark.tier("test")
@pytest.mark.parametrize("said", MANY)
def test_a_group_that_claims_or_has_too_much_is_told_of_no_claims(said: str) -> None:
    group = group_of([SAID[said](MOST[said])] * 10)
    assert stale_claims_of(group, "range") == {}
    assert least_ms(lambda n: lambda: stale_claims_of(group, "range"), 1, TRIES) < LONG_MS
    assigned_much = group_of([owns(("t", [1]))], given(*(("t", [i]) for i in range(100_000))))
    assert stale_claims_of(assigned_much, "range") == {}


def test_the_claims_of_a_large_group_are_found() -> None:
    """10,000 partitions of 100 members, each of which claims its own; one claims another's, too."""
    claims = [owns((f"topic-{m % 10}", list(range(100 * m, 100 * m + 100))), generation=2) for m in range(99)]
    claims.append(owns(("topic-0", [5]), generation=1))
    (stale,) = stale_claims_of(group_of(claims), "range")["m99"]
    assert (stale.topic, stale.partitions) == ("topic-0", (5,))
