"""The hard state of a share group: what may be assigned, what it holds in memory, its states."""

from __future__ import annotations

from sidecar.core.runtime.records import Tombstone
from sidecar.core.share.group import GroupState, Member, ShareGroup, assignable
from sidecar.core.share.records import CurrentRecord, Kind, MemberRecord, PlaceholderRecord, TargetMemberRecord
from sidecar.core.vocabulary.topics import TopicImage
from tests.core.share.world import topic, topic_id

A, B = topic_id(1), topic_id(2)


def image(*topics: tuple[int, str, int]) -> TopicImage:
    return TopicImage().next([topic(*t) for t in topics])[0]


def member(name: str, *topics: str) -> MemberRecord:
    return MemberRecord("g", name, None, "c", "/h", topics, "joined")


def seen(**parts: tuple[int, ...]) -> PlaceholderRecord:
    return PlaceholderRecord("g", "p", 1, (), 0, {{"a": A, "b": B}[n]: ps for n, ps in parts.items()})


def test_only_what_exists_is_subscribed_and_initialised_may_be_assigned() -> None:
    now = image((1, "a", 2), (2, "b", 2))
    assert assignable({A: (0, 1, 2), B: (0,)}, {"a"}, now) == {A: (0, 1)}
    assert assignable({A: (5,)}, {"a"}, now) == {}
    assert assignable({topic_id(9): (0,)}, {"a"}, now) == {}, "a topic of that id is gone"


def test_what_may_be_assigned_follows_the_record_the_topics_and_the_subscriptions() -> None:
    group, now = ShareGroup("g"), image((1, "a", 2), (2, "b", 1))
    group.replay(member("m", "a"))
    assert group.assignable(now) == {} and not group.differs(now)
    group.replay(seen(a=(0, 1), b=(0,)))
    assert group.assignable(now) == {A: (0, 1)} and group.differs(now)
    assert group.assignable(now) is group.assignable(now)
    group.replay(TargetMemberRecord("g", "m", {A: (0, 1)}))
    assert not group.differs(now)
    group.replay(member("n", "b"))
    assert group.assignable(now) == {A: (0, 1), B: (0,)} and group.differs(now)
    smaller = image((1, "a", 2))
    assert group.assignable(smaller) == {A: (0, 1)} and not group.differs(smaller)
    group.replay(Tombstone(Kind.TARGET_MEMBER, "g", "m"))
    assert group.differs(smaller)
    group.replay(Tombstone(Kind.PLACEHOLDER, "g", ""))
    assert group.assignable(smaller) == {} and not group.differs(smaller)


def test_a_target_is_not_followed_where_the_state_is_gone() -> None:
    group, now = ShareGroup("g"), image((1, "a", 3))
    group.replay(member("m", "a"))
    group.replay(seen(a=(0, 1, 2)))
    group.replay(TargetMemberRecord("g", "m", {A: (0, 1, 2)}))
    assert group.target_of("m", now) == {A: (0, 1, 2)}
    group.replay(seen(a=(1,)))
    assert group.target_of("m", now) == {A: (1,)}


def test_it_knows_two_states() -> None:
    group = ShareGroup("g")
    assert group.state() is GroupState.EMPTY
    group.replay(member("m", "a"))
    assert (group.state(), group.state_name(), group.member_count()) == (GroupState.STABLE, "Stable", 1)
    assert list(group.member_ids()) == ["m"]
    group.replay(Tombstone(Kind.MEMBER, "g", "m"))
    assert group.state() is GroupState.EMPTY and group.held_bytes == 0


def test_what_it_holds_is_counted_once_for_each_member() -> None:
    group = ShareGroup("g")
    group.replay(member("m", "a", "b"))
    one = group.held_bytes
    group.replay(member("m", "a", "b"))
    assert group.held_bytes == one > 1_000
    group.replay(CurrentRecord("g", "m", 3, 2, {A: (0,)}))
    assert group.held_bytes == one, "the assignment is bounded by the topics"
    group.replay(member("n", "a", "b"))
    assert one < group.held_bytes < 2 * one
    for name in ("m", "n"):
        group.replay(Tombstone(Kind.MEMBER, "g", name))
    assert group.held_bytes == 0


def test_a_current_assignment_without_a_member_is_one_that_knows_no_topics() -> None:
    group = ShareGroup("g")
    group.replay(CurrentRecord("g", "m", 3, 2, {A: (0,)}))
    assert group.members["m"].topic_names == () and group.members["m"].member_epoch == 3
    group.replay(Tombstone(Kind.CURRENT, "g", "m"))
    assert group.members["m"].assigned == {} and group.members["m"].member_epoch == -1


def test_a_member_gets_nothing_of_what_it_does_not_subscribe_to_any_more() -> None:
    """The member's target may be older than its subscription."""
    now = image((1, "a", 2), (2, "b", 1))
    assert Member("m", topic_names=("b",)).subscribed({A: (0, 1), B: (0,), topic_id(9): (0,)}, now) == {B: (0,)}
