"""Balanced, sticky, complete, deterministic; every partition once, only to subscribers."""

from __future__ import annotations

from collections import Counter

from sidecar.assign import BUILT_IN
from sidecar.assign.spec import GroupSpec, MemberSpec
from tests.core.world import topic_id
from tests.harness.properties import given, settings, st

Result = dict[str, dict[bytes, tuple[int, ...]]]


def spec(counts: dict[int, int], subscriptions: dict[str, tuple[int, ...]], last: Result | None = None) -> GroupSpec:
    members = {
        m: MemberSpec(None, None, tuple(topic_id(t) for t in topics), (last or {}).get(m, {}))
        for m, topics in subscriptions.items()
    }
    used = {t for topics in subscriptions.values() for t in topics}
    partitions = {topic_id(t): n for t, n in counts.items() if t in used}
    return GroupSpec(members, partitions, len(set(subscriptions.values())) <= 1)


def check(s: GroupSpec, result: Result) -> None:
    given_to = Counter((t, p) for parts in result.values() for t, ps in parts.items() for p in ps)
    assert set(given_to.values()) <= {1}, "a partition is given once"
    for m, parts in result.items():
        assert set(parts) <= set(s.members[m].topic_ids), "only what a member subscribes to"
        assert all(list(ps) == sorted(ps) for ps in parts.values())
    wanted = {(t, p) for m in s.members.values() for t in m.topic_ids for p in range(s.partitions[t])}
    assert set(given_to) == wanted, "nothing is left over"


def moved(before: Result, after: Result) -> int:
    was = {(t, p): m for m, parts in before.items() for t, ps in parts.items() for p in ps}
    return sum(was.get((t, p), m) != m for m, parts in after.items() for t, ps in parts.items() for p in ps)


COUNTS = st.dictionaries(st.integers(1, 6), st.integers(1, 12), min_size=1, max_size=6)


@st.composite
def groups(draw: st.DrawFn, same: bool) -> tuple[dict[int, int], dict[str, tuple[int, ...]]]:
    counts = draw(COUNTS)
    pick = st.lists(st.sampled_from(sorted(counts)), min_size=1, unique=True).map(lambda ts: tuple(sorted(ts)))
    n = draw(st.integers(1, 9))
    one = draw(pick)
    return counts, {f"m{i}": one if same else draw(pick) for i in range(n)}


@settings(max_examples=200, deadline=None)
@given(groups(same=True), st.sampled_from(["uniform", "range"]))
def test_one_subscription(group: tuple[dict[int, int], dict[str, tuple[int, ...]]], name: str) -> None:
    counts, subscriptions = group
    assign = BUILT_IN[name]
    s = spec(counts, subscriptions)
    first = assign(s)
    check(s, first)
    assert first == assign(s), "deterministic"
    if name == "uniform":
        sizes = [sum(map(len, first[m].values())) if m in first else 0 for m in subscriptions]
        assert max(sizes) - min(sizes) <= 1
        again = assign(spec(counts, subscriptions, first))
        assert moved(first, again) == 0, "nothing changed, nothing moves"
        joined = {**subscriptions, "new": next(iter(subscriptions.values()))}
        after = assign(spec(counts, joined, first))
        check(spec(counts, joined), after)
        share = -(-sum(counts[t] for t in joined["new"]) // len(joined))
        assert moved(first, after) <= share, "a member that joins takes its share and no more moves"


@settings(max_examples=200, deadline=None)
@given(groups(same=False), st.sampled_from(["uniform", "range"]))
def test_different_subscriptions(group: tuple[dict[int, int], dict[str, tuple[int, ...]]], name: str) -> None:
    counts, subscriptions = group
    assign = BUILT_IN[name]
    s = spec(counts, subscriptions)
    first = assign(s)
    check(s, first)
    if name == "uniform":
        again = assign(spec(counts, subscriptions, first))
        check(s, again)
        if len(subscriptions) > 1:
            fewer = dict(list(subscriptions.items())[1:])
            check(spec(counts, fewer), assign(spec(counts, fewer, first)))


def test_range_is_contiguous_and_in_the_order_of_member_ids() -> None:
    s = spec({1: 7}, {"b": (1,), "a": (1,), "c": (1,)})
    assert BUILT_IN["range"](s) == {
        "a": {topic_id(1): (0, 1, 2)},
        "b": {topic_id(1): (3, 4)},
        "c": {topic_id(1): (5, 6)},
    }


def test_range_has_static_members_first_and_sorts_as_java_does() -> None:
    """By instance ids, then by member ids, both by UTF-16 units: there a character beyond the first plane comes before
    one of its end, where Python has it behind."""
    wide, end = "\U0001f600", "\ufffd"
    assert wide > end
    topics = (topic_id(1),)
    members = {
        "a": MemberSpec(None, None, topics, {}),
        wide: MemberSpec(None, None, topics, {}),
        end: MemberSpec(None, None, topics, {}),
        "y": MemberSpec(None, end, topics, {}),
        "z": MemberSpec(None, wide, topics, {}),
    }
    given = BUILT_IN["range"](GroupSpec(members, {topic_id(1): 5}, True))
    assert [m for m, _ in sorted(given.items(), key=lambda item: item[1][topic_id(1)])] == ["z", "y", "a", wide, end]
