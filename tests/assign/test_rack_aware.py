"""The example plug-in: balanced as `uniform` is, and in the rack wherever that is possible."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from sidecar.assign.layout import owners_of, problem_of
from sidecar.assign.rack_aware import assign
from sidecar.assign.spec import GroupSpec, MemberSpec
from tests.core.world import topic_id
from tests.harness.properties import given, settings, st

T = topic_id(1)


def spec(
    racks: Sequence[tuple[str, ...]], members: dict[str, str | None], had: dict[str, tuple[int, ...]]
) -> GroupSpec:
    specs = {m: MemberSpec(r, None, (T,), {T: had[m]} if m in had else {}) for m, r in members.items()}
    return GroupSpec(specs, {T: len(racks)}, True, {T: tuple(racks)})


def test_each_member_gets_the_partitions_of_its_rack() -> None:
    racks = [("a",), ("b",), ("c",)] * 4
    members: dict[str, str | None] = {f"m{i}": "abc"[i % 3] for i in range(6)}
    got = assign(spec(racks, members, {}))
    for m, parts in got.items():
        assert len(parts[T]) == 2
        assert all(members[m] in racks[p] for p in parts[T]), m


def test_it_keeps_what_is_near_and_moves_what_is_far() -> None:
    racks = [("a",), ("a",), ("b",), ("b",)]
    members: dict[str, str | None] = {"m0": "a", "m1": "b"}
    assert assign(spec(racks, members, {"m0": (0, 2), "m1": (1, 3)})) == {"m0": {T: [0, 1]}, "m1": {T: [2, 3]}}
    assert assign(spec(racks, members, {"m0": (0, 1), "m1": (2, 3)})) == {"m0": {T: [0, 1]}, "m1": {T: [2, 3]}}


RACK = st.sampled_from(["a", "b", "c"])


@pytest.mark.tier("test")
@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sets(RACK, min_size=1).map(lambda s: tuple(sorted(s))), min_size=1, max_size=20),
    st.lists(st.one_of(st.none(), RACK), min_size=1, max_size=7),
)
def test_complete_and_balanced_whatever_the_racks(racks: list[tuple[str, ...]], members: list[str | None]) -> None:
    s = spec(racks, {f"m{i}": r for i, r in enumerate(members)}, {})
    result = assign(s)
    owners_of(problem_of(s), result)  # raises for what no group may get
    sizes = [len(parts.get(T, ())) for parts in result.values()]
    assert sum(sizes) == len(racks) and max(sizes) - min(sizes) <= 1


def test_its_work_is_linear_in_the_partitions() -> None:
    """Symptom: 8,000 partitions took 13 s, and the interpreter meanwhile. Cause: each turn of a member walked through
    all partitions that were left."""
    seen = 0

    class Racks(tuple[str, ...]):
        def __contains__(self, rack: object) -> bool:
            nonlocal seen
            seen += 1
            return super().__contains__(rack)

        def __iter__(self) -> Iterator[str]:
            nonlocal seen
            seen += 1
            return super().__iter__()

    count = 600
    racks = [Racks("abc"[p % 3]) for p in range(count)]
    members: dict[str, str | None] = {f"m{i:02}": "abc"[i % 3] for i in range(30)}
    got = assign(spec(racks, members, {m: tuple(range(i, count, 60)) for i, m in enumerate(members)}))
    assert {len(parts[T]) for parts in got.values()} == {count // 30}
    assert seen <= 4 * count
