"""Two owners are found, however the second one came to a partition: by each protocol, assigned or not yet given up, in
one batch or in the next one, and across the end of the first owner's epoch."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.audit.gold.harness import Tables, gold
from tests.audit.gold.rows import Log


def both_assigned(log: Log) -> None:
    log.current("g", "m1", 1, [0])
    log.current("g", "m2", 1, [0])


def first_still_revokes(log: Log) -> None:
    log.current("g", "m1", 1, [], [0])
    log.current("g", "m2", 2, [0])


def second_revokes(log: Log) -> None:
    log.current("g", "m1", 1, [0])
    log.current("g", "m2", 1, [], [0])


def in_later_epochs(log: Log) -> None:
    log.current("g", "m1", 1, [0, 1])
    log.current("g", "m2", 2, [2])
    log.current("g", "m1", 2, [0, 1])
    log.current("g", "m2", 3, [0, 2])


def one_of_many_partitions(log: Log) -> None:
    log.current("g", "m1", 1, range(50))
    log.current("g", "m2", 1, [0, *range(50, 99)])


def a_classic_leader_that_assigns_twice(log: Log) -> None:
    log.classic("g", "CompletingRebalance", 1, -1)
    log.assign("g", "m1", 1, [0])
    log.assign("g", "m2", 1, [0])
    log.classic("g", "Stable", 1, 1)


Wrong = Callable[[Log], None]
WAYS: tuple[Wrong, ...] = (
    both_assigned,
    first_still_revokes,
    second_revokes,
    in_later_epochs,
    one_of_many_partitions,
    a_classic_leader_that_assigns_twice,
)


@pytest.fixture(scope="module")
def logs() -> list[Log]:
    """Each way in a state partition of its own."""
    made = []
    for partition, way in enumerate(WAYS):
        log = Log(partition)
        log.claim(1)
        way(log)
        made.append(log)
    return made


def named(found: Tables) -> set[tuple[object, ...]]:
    columns = ("state_partition", "partition", "member_id", "other_member_id", "grade")
    return {tuple(r[c] for c in columns) for r in found["second_owners"]}


@pytest.mark.parametrize("cut", [False, True])
def test_a_second_owner_is_found_however_it_comes(logs: list[Log], cut: bool) -> None:
    """`cut`: the record that makes the second owner comes in the next batch."""
    ends = [{log.partition: len(log.rows) - 1 for log in logs}]
    found = named(gold([row for log in logs for row in log.rows], ends if cut else None))
    assert found == {(partition, 0, "m2", "m1", "proven") for partition in range(len(WAYS))}


def test_whoever_gives_a_partition_up_first_makes_no_second_owner() -> None:
    log = Log()
    log.claim(1)
    log.current("g", "m1", 1, [0], [1])
    log.current("g", "m1", 2, [0])
    log.current("g", "m2", 2, [1])
    log.current("g", "m1", 3, [])
    log.current("g", "m2", 3, [0, 1])
    assert named(gold(log.rows)) == set()
