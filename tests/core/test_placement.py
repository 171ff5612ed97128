"""The sidecar that owns a partition, and the partition of a group."""

from __future__ import annotations

from sidecar.core.vocabulary.placement import partition_for, place


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
