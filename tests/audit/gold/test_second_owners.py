"""Two owners are found, however the second one came to a partition: by each protocol, assigned or not yet given up, in
one batch or in the next one, and across the end of the first owner's epoch."""

from __future__ import annotations

from collections.abc import Callable

from tests.audit.gold.harness import gold
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


def given_up_first(log: Log) -> None:
    log.current("g", "m1", 1, [0], [1])
    log.current("g", "m1", 2, [0])
    log.current("g", "m2", 2, [1])
    log.current("g", "m1", 3, [])
    log.current("g", "m2", 3, [0, 1])


Wrong = Callable[[Log], None]
WAYS: tuple[Wrong, ...] = (
    both_assigned,
    first_still_revokes,
    second_revokes,
    in_later_epochs,
    one_of_many_partitions,
    a_classic_leader_that_assigns_twice,
)


def written(way: Wrong, partition: int) -> Log:
    log = Log(partition)
    log.claim(1)
    way(log)
    return log


def test_a_second_owner_is_found_however_it_comes() -> None:
    """Each way in a state partition of its own, and in another one whose last record, which makes the second owner,
    comes in the next batch. A member that gives the partition up first makes none."""
    whole = [written(way, partition) for partition, way in enumerate(WAYS)]
    cut = [written(way, partition) for partition, way in enumerate(WAYS, len(WAYS))]
    right = written(given_up_first, 2 * len(WAYS))
    rows = [row for log in (*whole, *cut, right) for row in log.rows]
    found = gold(rows, [{log.partition: len(log.rows) - 1 for log in cut}])
    columns = ("state_partition", "partition", "member_id", "other_member_id", "grade")
    named = {tuple(r[c] for c in columns) for r in found["second_owners"]}
    assert named == {(log.partition, 0, "m2", "m1", "proven") for log in (*whole, *cut)}
