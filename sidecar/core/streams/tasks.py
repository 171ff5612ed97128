"""Tasks of a streams group: a subtopology and a partition, in one of three roles, and their holders.

An active task has at most one holder in the group, and one process never runs the same task twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from sidecar.core.vocabulary.errors import InvariantError

Partitions = Mapping[str, tuple[int, ...]]
"""Subtopology id -> sorted partitions; without empty entries."""
Epochs = Mapping[str, Mapping[int, int]]
"""Subtopology id -> partition -> epoch at which the task was assigned (KIP-1251); without empty entries."""
Task = tuple[str, int]
TaskIds = tuple[str, tuple[int, ...]]
"""A subtopology id and partitions, as requests have them: in any order, with repetitions."""
Body = Mapping[str, Any]


class Tasks(Struct, frozen=True, gc=False):
    """A member's target, or the tasks that it reports to own."""

    active: Partitions = {}
    standby: Partitions = {}
    warmup: Partitions = {}

    def __bool__(self) -> bool:
        return bool(self.active or self.standby or self.warmup)


class AssignedTasks(Struct, frozen=True, gc=False):
    """The tasks that a member has, or must still give up."""

    active: Epochs = {}
    standby: Partitions = {}
    warmup: Partitions = {}

    def __bool__(self) -> bool:
        return bool(self.active or self.standby or self.warmup)

    def replicas(self) -> Iterator[tuple[str, int]]:
        """Standby and warm-up tasks."""
        for part in (self.standby, self.warmup):
            for subtopology, partitions in part.items():
                for p in partitions:
                    yield subtopology, p

    def without_epochs(self) -> Tasks:
        return Tasks({s: tuple(sorted(ps)) for s, ps in self.active.items()}, self.standby, self.warmup)

    def at_epoch(self, epoch: int) -> AssignedTasks:
        """Returns the same tasks, the active ones assigned at this epoch."""
        return AssignedTasks({s: dict.fromkeys(ps, epoch) for s, ps in self.active.items()}, self.standby, self.warmup)


NO_TASKS = Tasks()
NOTHING_ASSIGNED = AssignedTasks()


def merged(lists: Iterable[TaskIds]) -> dict[str, tuple[int, ...]]:
    """Returns the lists of a request as a table. Kafka fails where a subtopology is given twice."""
    sets: dict[str, set[int]] = {}
    for subtopology, partitions in lists:
        sets.setdefault(subtopology, set()).update(partitions)
    return table_of(sets)


def table_of(sets: Mapping[str, Collection[int]]) -> dict[str, tuple[int, ...]]:
    return {s: tuple(sorted(ps)) for s, ps in sorted(sets.items()) if ps}


def task_set(table: Partitions | Epochs) -> set[Task]:
    return {(s, p) for s, partitions in table.items() for p in partitions}


def overlap(owned: Tasks, pending: AssignedTasks) -> bool:
    """Whether the member owns a task that it must give up, in the same role."""
    roles = ((owned.active, pending.active), (owned.standby, pending.standby), (owned.warmup, pending.warmup))
    return any(
        not frozenset(lost.get(s, ())).isdisjoint(partitions) for own, lost in roles for s, partitions in own.items()
    )


def contained(lists: Iterable[Iterable[TaskIds]], assigned: AssignedTasks) -> bool:
    """Whether every task that the member reports (a list for each role) is assigned to it in this role. A subtopology
    of which it has no task is none of its own, even if the list names no partition of it."""
    for owned, table in zip(lists, (assigned.active, assigned.standby, assigned.warmup), strict=True):
        given = {s: frozenset(partitions) for s, partitions in table.items()}
        if not all(s in given and given[s].issuperset(partitions) for s, partitions in owned):
            return False
    return True


Holding = dict[str, dict[int, dict[str, str]]]
"""Subtopology id -> partition -> member id -> process id."""


@dataclass(slots=True)
class Holders:
    """The holders of tasks, assigned or not yet given up."""

    active: dict[str, dict[int, tuple[str, str]]] = field(default_factory=dict)
    """Subtopology id -> partition -> member id and process id."""
    standby: Holding = field(default_factory=dict)
    warmup: Holding = field(default_factory=dict)

    def active_member(self, subtopology: str, partition: int) -> str | None:
        holder = self.active.get(subtopology, {}).get(partition)
        return None if holder is None else holder[0]

    def active_process(self, subtopology: str, partition: int) -> str | None:
        holder = self.active.get(subtopology, {}).get(partition)
        return None if holder is None else holder[1]

    def standby_processes(self, subtopology: str, partition: int) -> Collection[str]:
        return self.standby.get(subtopology, {}).get(partition, {}).values()

    def warmup_processes(self, subtopology: str, partition: int) -> Collection[str]:
        return self.warmup.get(subtopology, {}).get(partition, {}).values()

    def add(self, member_id: str, process_id: str, *tasks: AssignedTasks) -> None:
        """Adds the tasks of a member. Raises InvariantError for an active task that another member has."""
        for part in tasks:
            for subtopology, epochs in part.active.items():
                active = self.active.setdefault(subtopology, {})
                for p in epochs:
                    other, _ = active.setdefault(p, (member_id, process_id))
                    if other != member_id:
                        raise InvariantError(f"active task {subtopology}-{p} of {other} assigned to {member_id}")
            for holding, partitions in ((self.standby, part.standby), (self.warmup, part.warmup)):
                for subtopology, ps in partitions.items():
                    by_partition = holding.setdefault(subtopology, {})
                    for p in ps:
                        by_partition.setdefault(p, {})[member_id] = process_id

    def remove(self, member_id: str, *tasks: AssignedTasks) -> None:
        for part in tasks:
            for subtopology, epochs in part.active.items():
                active = self.active.get(subtopology, {})
                for p in epochs:
                    if active.get(p, ("", ""))[0] == member_id:
                        del active[p]
                if not active:
                    self.active.pop(subtopology, None)
            for holding, partitions in ((self.standby, part.standby), (self.warmup, part.warmup)):
                for subtopology, ps in partitions.items():
                    by_partition = holding.get(subtopology, {})
                    for p in ps:
                        members = by_partition.get(p, {})
                        members.pop(member_id, None)
                        if not members:
                            by_partition.pop(p, None)
                    if not by_partition:
                        holding.pop(subtopology, None)


@dataclass(frozen=True, slots=True)
class HoldersBefore:
    """The holders before a request changed a member's process. Kafka decides on a request by the state before it."""

    holders: Holders
    member_id: str
    process_id: str

    def active_process(self, subtopology: str, partition: int) -> str | None:
        own = self.holders.active_member(subtopology, partition) == self.member_id
        return self.process_id if own else self.holders.active_process(subtopology, partition)

    def standby_processes(self, subtopology: str, partition: int) -> Collection[str]:
        return self._before(self.holders.standby, subtopology, partition)

    def warmup_processes(self, subtopology: str, partition: int) -> Collection[str]:
        return self._before(self.holders.warmup, subtopology, partition)

    def _before(self, holding: Holding, subtopology: str, partition: int) -> list[str]:
        members = holding.get(subtopology, {}).get(partition, {})
        return [self.process_id if m == self.member_id else process for m, process in members.items()]


def partitions_body(tasks: Partitions) -> list[dict[str, Any]]:
    return [{"subtopology_id": s, "partitions": list(ps)} for s, ps in tasks.items()]


def partitions_of(items: Iterable[Body]) -> dict[str, tuple[int, ...]]:
    return {i["subtopology_id"]: tuple(i["partitions"]) for i in items}


def epochs_body(tasks: Epochs) -> list[dict[str, Any]]:
    return [{"subtopology_id": s, "partitions": list(ps), "epochs": list(ps.values())} for s, ps in tasks.items()]


def epochs_of(items: Iterable[Body]) -> dict[str, dict[int, int]]:
    return {i["subtopology_id"]: dict(zip(i["partitions"], i["epochs"], strict=True)) for i in items}
