"""Timers, placement, topics, offset checks."""

from __future__ import annotations

import pytest

from sidecar.core.consumer.config import ConsumerConfig
from sidecar.core.consumer.events import ConsumerHeartbeat
from sidecar.core.consumer.group import ConsumerGroup
from sidecar.core.consumer.records import CurrentRecord, Kind, MemberState
from sidecar.core.runtime.effects import Observe
from sidecar.core.runtime.events import DeleteGroup
from sidecar.core.runtime.offset_checks import CommitCheck, FetchCheck
from sidecar.core.runtime.records import Tombstone
from sidecar.core.runtime.timers import Timers
from sidecar.core.vocabulary.errors import Code, InvariantError
from sidecar.core.vocabulary.placement import partition_for, place
from sidecar.core.vocabulary.topics import TopicImage
from sidecar.native import java_hash
from tests.core.world import Client, World, topic, topic_id


@pytest.mark.parametrize(
    ("text", "value"),
    [("", 0), ("a", 97), ("demo", 3079651), ("polygenelubricants", -(1 << 31)), ("☃", 9731), ("😀", 1772899)],
)
def test_java_hash(text: str, value: int) -> None:
    assert java_hash(text) == value


def test_partition_for_the_one_string_whose_abs_overflows() -> None:
    assert partition_for("polygenelubricants", 50) == 0


def test_place_beside_the_leader() -> None:
    assert place([1, 2, 3, 1], {1, 2, 3}, []) == [1, 2, 3, 1]


def test_place_stays_then_fills_the_least_loaded() -> None:
    assert place([1, 2, 3, 1], {2, 3}, [1, 2, 3, 3]) == [2, 2, 3, 3]
    assert place([1, 1], set(), [1, 1]) == [-1, -1]


def test_place_stays_while_the_leader_is_new() -> None:
    assert place([2, 2, 2, 1], {1, 2}, [1, 1, 3, 2], {0, 2}) == [1, 2, 2, 1]
    assert place([-1, 3], {1, 2}, [1, 2], {0, 1}) == [1, 2]


def test_a_deadline_moved_later_fires_late_and_once() -> None:
    t = Timers()
    t.set(("a",), 10)
    t.set(("b",), 20, tag=7)
    t.set(("a",), 30)
    assert t.next_ms() == 20
    assert list(t.expired(25)) == [(("b",), 7)]
    t.set(("a",), 26)
    assert list(t.expired(26)) == [(("a",), 0)]
    assert list(t.expired(100)) == [] and len(t) == 0


def test_a_cancelled_timer_does_not_fire_and_a_shift_gives_time_back() -> None:
    t = Timers()
    t.set(("a",), 10)
    t.set(("b",), 10)
    t.cancel(("a",))
    t.shift(100)
    assert list(t.expired(50)) == []
    assert list(t.expired(110)) == [(("b",), 0)]


def test_what_is_done_about_one_timer_may_move_or_cancel_those_that_are_due_after_it() -> None:
    """Symptom: members that waited for a dead leader were removed together with it."""
    t = Timers()
    for name in ("first", "moved", "cancelled", "renewed", "last"):
        t.set((name,), 10)
    seen = []
    for (name,), _ in t.expired(10):
        seen.append(name)
        if name == "cancelled":
            t.set(("moved",), 20)
            t.cancel(("first",))
            t.cancel(("renewed",))
            t.set(("renewed",), 30)
            t.set(("cancelled",), 10)
    assert seen == ["cancelled", "last"], "in order of their names, as they are due at once"
    assert list(t.expired(15)) == [(("cancelled",), 0)], "what is due again at once waits for the next time"
    assert [t.next_ms(), list(t.expired(25)), t.next_ms()] == [20, [(("moved",), 0)], 30]
    assert list(t.expired(100)) == [(("renewed",), 0)] and t.next_ms() is None and len(t) == 0


def test_image_tells_what_changed() -> None:
    image, changed = TopicImage().next([topic(1, "a", 2), topic(2, "b", 1)])
    assert changed == {"a", "b"} and image.names_version == 1
    again, changed = image.next([topic(1, "a", 3), topic(2, "b", 1)])
    assert changed == {"a"} and again.names_version == 1
    assert again.hash_of(["a"]) != image.hash_of(["a"])
    assert again.hash_of(["missing"]) == 0
    made_anew, changed = again.next([topic(3, "a", 3)])
    assert changed == {"a", "b"} and made_anew.names_version == 1, "patterns match nothing more than before"
    assert made_anew.next([topic(3, "a", 3), topic(4, "c", 1)])[0].names_version == 2


def commit(
    world: World, member: str, epoch: int, version: int | None = None, transactional: bool = False, partition: int = 0
) -> Code:
    version = version or (5 if transactional else 9)
    check = CommitCheck("g", member, epoch, None, version, transactional, (("t", topic_id(1), partition),))
    return world.ask(check).code


def test_offset_commit_is_fenced_by_epoch() -> None:
    world = World(ConsumerConfig(assignor_offload_enable=False, assignment_interval_ms=0))
    world.topics(topic(1, "t", 4))
    assert commit(world, "", -1) == 0, "a simple commit to a group without members"
    assert commit(world, "m", 3) == Code.UNKNOWN_MEMBER_ID
    assert commit(world, "m", 3, version=8) == Code.ILLEGAL_GENERATION
    assert commit(world, "m", 3, version=5, transactional=True) == Code.ILLEGAL_GENERATION
    assert commit(world, "m", 3, version=6, transactional=True) == Code.GROUP_ID_NOT_FOUND, "KIP-1319"
    a, b = Client(world, "g", "a", ("t",)), Client(world, "g", "b", ("t",))
    a.heartbeat()
    b.heartbeat()
    assert commit(world, "a", a.epoch) == 0
    assert commit(world, "a", a.epoch, version=8) == Code.UNSUPPORTED_VERSION
    assert commit(world, "a", a.epoch + 1) == Code.STALE_MEMBER_EPOCH
    assert commit(world, "a", a.epoch + 1, transactional=True) == Code.ILLEGAL_GENERATION
    assert commit(world, "a", a.epoch + 1, version=6, transactional=True) == Code.STALE_MEMBER_EPOCH, "KIP-1319"
    assert commit(world, "x", 2) == Code.UNKNOWN_MEMBER_ID
    assert commit(world, "", -1) == Code.UNKNOWN_MEMBER_ID, "members are there: nobody else may commit"
    assert commit(world, "", -1, transactional=True) == 0, "KIP-447: without member id it is not checked"
    old = a.epoch
    a.heartbeat()
    a.heartbeat()
    assert a.epoch == old + 1
    assert commit(world, "a", old, partition=0) == 0, "KIP-1251: still its own since before"
    assert commit(world, "a", old, partition=3) == Code.STALE_MEMBER_EPOCH, "no longer its own"


def test_an_older_epoch_commits_what_the_member_has_had_since_then_and_is_still_giving_up() -> None:
    """KIP-1251: not what it was given in a later epoch."""
    world = World(ConsumerConfig(assignor_offload_enable=False, assignment_interval_ms=0))
    world.topics(topic(1, "t", 4))
    a, b = Client(world, "g", "a", ("t",)), Client(world, "g", "b", ("t",))
    a.heartbeat()
    first = a.epoch
    b.heartbeat()
    for _ in range(2):
        a.heartbeat()
        b.heartbeat()
    with_two = a.epoch
    b.leave()
    while len(a.partitions()) < 4:
        a.heartbeat()
    assert first < with_two < a.epoch
    assert [commit(world, "a", with_two, partition=p) for p in range(4)] == [0, 0, *[Code.STALE_MEMBER_EPOCH] * 2]
    assert [commit(world, "a", a.epoch, partition=p) for p in range(4)] == [0] * 4
    Client(world, "g", "c", ("t",)).heartbeat()
    before = a.epoch
    a.heartbeat()
    member = world.group("g").members["a"]
    assert member.pending and member.member_epoch == before, "it is told to give two up"
    assert [commit(world, "a", before, partition=p) for p in range(4)] == [0] * 4
    a.owned = {t: ps[:2] for t, ps in a.owned.items()}
    member = world.group("g").members["a"]
    a.heartbeat()
    assert [commit(world, "a", before, partition=p) for p in range(4)] == [0, 0, *[Code.STALE_MEMBER_EPOCH] * 2]


def test_one_partition_that_may_not_be_committed_refuses_the_commit() -> None:
    """As at Kafka, whose validator ends the request (OffsetMetadataManager.commitOffset)."""
    world = World(ConsumerConfig(assignor_offload_enable=False, assignment_interval_ms=0))
    world.topics(topic(1, "t", 4))
    a, b = Client(world, "g", "a", ("t",)), Client(world, "g", "b", ("t",))
    a.heartbeat()
    first = a.epoch
    for client in (b, a, a, b):
        client.heartbeat()
    assert a.epoch > first and set(a.partitions()) == {(topic_id(1), 0), (topic_id(1), 1)}
    for epoch in (first, a.epoch):
        codes = []
        for partitions in ((0, 1), (1, 2)):
            places = tuple(("t", topic_id(1), p) for p in partitions)
            codes.append(world.ask(CommitCheck("g", "a", epoch, None, 9, False, places)).code)
        assert codes == [0, Code.STALE_MEMBER_EPOCH]


def test_an_older_epoch_commits_what_the_member_is_giving_up() -> None:
    """KIP-1251: what was consumed before the member was told to give it up."""
    world = World(ConsumerConfig(assignor_offload_enable=False, assignment_interval_ms=0))
    world.topics(topic(1, "t", 4), topic(2, "u", 1))
    a = Client(world, "g", "a", ("t",))
    a.heartbeat()
    first = a.epoch
    Client(world, "g", "of another topic", ("u",)).heartbeat()
    a.heartbeat()
    assert a.epoch == first + 1
    Client(world, "g", "c", ("t",)).heartbeat()
    a.heartbeat()
    member = world.group("g").members["a"]
    assert member.member_epoch == a.epoch == first + 1 and set(member.pending[topic_id(1)]) == {2, 3}
    assert [commit(world, "a", first, partition=p) for p in range(4)] == [0] * 4


def test_a_target_that_lost_a_topic_is_the_same_after_a_takeover() -> None:
    """Nothing has moved to anybody else, and what is left of the target is written all the same."""
    world = World(ConsumerConfig(assignor_offload_enable=False, assignment_interval_ms=0))
    world.topics(topic(1, "t", 4), topic(2, "u", 2))
    a = Client(world, "g", "a", ("t", "u"))
    a.heartbeat()
    a.heartbeat()
    assert set(world.group("g").target.of("a")) == {topic_id(1), topic_id(2)}
    world.topics(topic(1, "t", 4))
    for _ in range(4):
        a.heartbeat()
    live = world.group("g").target.of("a")
    assert live == {topic_id(1): (0, 1, 2, 3)} == world.rebuilt_group("g").target.of("a")


@pytest.mark.parametrize("strict", [True, False])
def test_nobody_commits_for_a_partition_that_another_member_owns(strict: bool) -> None:
    config = ConsumerConfig(assignor_offload_enable=False, assignment_interval_ms=0, refuse_commits_of_others=strict)
    world = World(config)
    world.topics(topic(1, "t", 4))
    a, b = Client(world, "g", "a", ("t",)), Client(world, "g", "b", ("t",))
    a.heartbeat()
    b.heartbeat()
    assert commit(world, "b", b.epoch, partition=3) == (Code.STALE_MEMBER_EPOCH if strict else 0), "not given up yet"
    assert commit(world, "a", a.epoch, partition=3) == 0
    for _ in range(2):
        a.heartbeat()
        b.heartbeat()
    assert commit(world, "b", b.epoch, partition=3) == 0
    assert commit(world, "a", a.epoch, partition=3) == (Code.STALE_MEMBER_EPOCH if strict else 0)
    assert commit(world, "a", a.epoch, transactional=True, partition=3) == (Code.ILLEGAL_GENERATION if strict else 0)
    assert commit(world, "a", a.epoch, partition=9) == 0, "nobody's, like those of other topics"


def test_offset_fetch_is_fenced_by_epoch() -> None:
    world = World()
    world.topics(topic(1, "t", 4))
    a = Client(world, "g", "a", ("t",))
    a.heartbeat()

    def fetch(member: str | None, epoch: int) -> Code:
        return world.ask(FetchCheck("g", member, epoch)).code

    assert fetch(None, -1) == Code.NONE
    assert fetch("a", a.epoch) == Code.NONE
    assert fetch("a", a.epoch - 1) == Code.STALE_MEMBER_EPOCH
    assert fetch("x", 2) == Code.UNKNOWN_MEMBER_ID


def test_a_group_is_deleted_only_when_it_is_empty() -> None:
    world = World()
    world.topics(topic(1, "t", 2))
    a = Client(world, "g", "a", ("t",))
    a.heartbeat()
    assert world.ask(DeleteGroup("g")).code == Code.NON_EMPTY_GROUP
    a.leave()
    code = world.ask(DeleteGroup("g")).code
    assert code == Code.NONE and "g" not in world.shard.groups
    assert world.compacted() == [], "nothing of the group is left in the log"
    assert world.ask(DeleteGroup("g")).code == Code.GROUP_ID_NOT_FOUND


def test_a_failing_assignor_leaves_the_last_target_and_is_tried_again() -> None:
    world = World(
        ConsumerConfig(assignor_offload_enable=False, assignment_interval_ms=0, assignors=("flaky", "uniform"))
    )
    world.topics(topic(1, "t", 2))
    calls = 0

    def flaky(spec: object) -> dict[str, dict[bytes, tuple[int, ...]]]:
        nonlocal calls
        calls += 1
        if calls < 3:
            raise ZeroDivisionError("a bug in a plug-in")
        return {"a": {topic_id(1): (0, 1)}}

    world.assignors["flaky"] = flaky
    a = Client(world, "g", "a", ("t",))
    assert a.heartbeat().code == Code.NONE
    assert a.owned == {}
    world.sleep(3200)
    a.heartbeat()
    assert a.owned == {topic_id(1): (0, 1)}


def test_a_second_owner_in_the_log_is_a_contradiction_and_no_group() -> None:
    group = ConsumerGroup("g")
    held = {topic_id(1): {0: 2, 1: 2}}
    group.replay(CurrentRecord("g", "a", 2, 1, MemberState.STABLE, held, {}))
    group.replay(CurrentRecord("g", "a", 3, 2, MemberState.UNREVOKED_PARTITIONS, {topic_id(1): {0: 2}}, held))
    for assigned, pending in (({topic_id(1): {1: 3}}, {}), ({}, {topic_id(1): {1: 3}}), ({topic_id(1): {0: 3}}, {})):
        with pytest.raises(InvariantError, match="assigned to b"):
            group.replay(CurrentRecord("g", "b", 3, 2, MemberState.STABLE, assigned, pending))
    group.replay(CurrentRecord("g", "a", 3, 3, MemberState.STABLE, {topic_id(1): {0: 2}}, {}))
    group.replay(CurrentRecord("g", "b", 3, 2, MemberState.STABLE, {topic_id(1): {1: 3}}, {}))
    assert group.owners == {topic_id(1): {0: "a", 1: "b"}}
    group.replay(Tombstone(Kind.MEMBER, "g", "a"))
    assert group.owners == {topic_id(1): {1: "b"}}


def test_only_the_run_that_is_under_way_makes_a_target() -> None:
    """The first one was too slow, and another was begun in its place."""
    world = World(ConsumerConfig(assignment_interval_ms=0, join_wait_ms=0))
    world.topics(topic(1, "t", 4))
    Client(world, "g", "a", ("t",)).heartbeat()
    (slow,) = world.running
    world.running.clear()
    world.sleep(world.config.assignor_timeout_ms + 2_000)
    Client(world, "g", "a", ("t",), epoch=1).heartbeat()
    (second,) = world.running
    assert second.input.run_id != slow.input.run_id
    world.running = [slow]
    world.finish()
    assert world.group("g").assignment_epoch < second.input.epoch and not world.group("g").target.of("a")
    world.running = [second]
    world.finish()
    assert world.group("g").target.of("a") == {topic_id(1): (0, 1, 2, 3)}


def test_whoever_missed_the_answer_with_its_new_epoch_may_say_the_former_one_once_more() -> None:
    """However it came to that epoch: with other partitions, or with the same."""
    world = World(ConsumerConfig(assignor_offload_enable=False, assignment_interval_ms=0))
    world.topics(topic(1, "t", 4), topic(2, "u", 1))
    a = Client(world, "g", "a", ("t",))
    a.heartbeat()
    for other in ("b", "c"):
        Client(world, "g", other, ("u",)).heartbeat()
        told, owned = a.epoch, dict(a.owned)
        a.heartbeat()
        assert a.epoch == told + 1 and a.owned == owned
        again = world.send(ConsumerHeartbeat("g", "a", told, owned=owned))
        assert (again.code, again.member_epoch) == (Code.NONE, told + 1)
        assert world.send(ConsumerHeartbeat("g", "a", told - 1, owned=owned)).code == Code.FENCED_MEMBER_EPOCH


def test_a_member_that_comes_under_another_instance_id_gives_the_former_one_up() -> None:
    world = World(ConsumerConfig(assignor_offload_enable=False, assignment_interval_ms=0))
    world.topics(topic(1, "t", 4))
    Client(world, "g", "a", ("t",), instance_id="i1").heartbeat()
    Client(world, "g", "a", ("t",), instance_id="i2").heartbeat()
    assert world.group("g").static_members == {"i2": "a"} == world.rebuilt_group("g").static_members
    assert Client(world, "g", "b", ("t",), instance_id="i1").heartbeat().code == Code.NONE, "nobody has it"


def test_a_static_member_that_left_for_a_while_keeps_its_partitions_since_ever() -> None:
    """Whoever comes in its place was never told an epoch in which it got them (Kafka's epoch 0)."""
    world = World(ConsumerConfig(assignor_offload_enable=False, assignment_interval_ms=0))
    world.topics(topic(1, "t", 2))
    a = Client(world, "g", "a", ("t",), instance_id="i1")
    a.heartbeat()
    a.heartbeat()
    assert world.group("g").members["a"].assigned == {topic_id(1): {0: 2, 1: 2}}
    a.leave(-2)
    for group in (world.group("g"), world.rebuilt_group("g")):
        assert group.members["a"].assigned == {topic_id(1): {0: 0, 1: 0}} and group.members["a"].member_epoch == -2


def test_what_is_kept_of_subscriptions_does_not_grow_with_their_changes() -> None:
    world = World(ConsumerConfig(assignor_offload_enable=False, assignment_interval_ms=0))
    world.topics(*(topic(n, f"t{n}", 1) for n in range(1, 101)))
    a = Client(world, "g", "a", ("t1",))
    a.heartbeat()
    for n in range(2, 101):
        hb = ConsumerHeartbeat("g", "a", a.epoch, topic_names=(f"t{n}",), owned={})
        reply = world.send(hb)
        a.epoch = reply.member_epoch
    assert world.group("g").subscribed_topics() == {"t100"}
    assert len(world.group("g")._ids) < 40


@pytest.mark.parametrize(
    ("version", "epoch", "code"),
    [
        (0, 0, Code.NONE),
        (0, 1, Code.INVALID_REQUEST),
        (0, -1, Code.INVALID_REQUEST),
        (1, 0, Code.INVALID_REQUEST),
        (1, 1, Code.INVALID_REQUEST),
    ],
)
def test_only_a_first_heartbeat_of_the_first_version_names_no_member(version: int, epoch: int, code: Code) -> None:
    world = World()
    world.topics(topic(1, "t", 1))
    hb = ConsumerHeartbeat(
        "g", "", epoch, rebalance_timeout_ms=1_000, topic_names=("t",), owned={}, version=version, new_member_id="made"
    )
    assert world.send(hb).code == code


def test_how_long_a_group_took_to_settle_is_told_once_when_its_last_member_is_there() -> None:
    world = World(ConsumerConfig(assignor_offload_enable=False, assignment_interval_ms=0, join_wait_ms=0))
    world.topics(topic(1, "t", 4))

    def told() -> list[int]:
        found = [n.ms for n in world.notes if isinstance(n, Observe) and n.metric == "settle_seconds"]
        world.notes.clear()
        return found

    a, b = Client(world, "g", "a", ("t",)), Client(world, "g", "b", ("t",))
    a.heartbeat()
    told()
    world.sleep(1_000)
    b.heartbeat()
    world.sleep(2_000)
    for client in (a, a):
        client.heartbeat()
        assert told() == []
    world.sleep(3_000)
    b.heartbeat()
    assert told() == [5_000]
    for client in (a, b):
        client.heartbeat()
    assert told() == []


def test_a_group_has_only_so_many_regular_expressions() -> None:
    world = World(ConsumerConfig(assignor_offload_enable=False, join_wait_ms=0, regexes_max=2))

    def joins(member: str, regex: str) -> Code:
        event = ConsumerHeartbeat("g", member, 0, None, None, 60_000, (), regex, None, {}, "c", "/h", 1)
        return world.ask(event).code

    assert [joins("a", "x"), joins("b", "y"), joins("c", "y")] == [Code.NONE] * 3
    assert joins("d", "z") == Code.GROUP_MAX_SIZE_REACHED
    assert joins("a", "z") == Code.NONE, "it gives the other one up"
    assert joins("b", "w") == Code.GROUP_MAX_SIZE_REACHED, "another member has that one, too"
