"""Moves one member from its current tasks towards its target, revoking before assigning.

Source: Kafka 4.4's streams CurrentAssignmentBuilder. A task changes its role within one member without being given up.
An active task becomes a standby at once, and standby and warm-up tasks turn into each other. A replica that will become
active is kept until it can be granted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol

from sidecar.core.streams.group import Member
from sidecar.core.streams.records import MemberState
from sidecar.core.streams.tasks import (
    NOTHING_ASSIGNED,
    AssignedTasks,
    Epochs,
    Task,
    Tasks,
    overlap,
    table_of,
    task_set,
)


class Processes(Protocol):
    """The processes that run a task now, or have not given it up yet."""

    def active_process(self, subtopology: str, partition: int) -> str | None: ...
    def standby_processes(self, subtopology: str, partition: int) -> Collection[str]: ...
    def warmup_processes(self, subtopology: str, partition: int) -> Collection[str]: ...


@dataclass(slots=True)
class _Role:
    """Tasks of one member in one role: kept, to be revoked, and free to be granted. `unreleased`: other members still
    have tasks of its target."""

    had: set[Task]
    keep: set[Task] = field(default_factory=set)
    revoke: set[Task] = field(default_factory=set)
    grant: set[Task] = field(default_factory=set)
    unreleased: bool = False

    @classmethod
    def of(cls, had: set[Task], wanted: set[Task], is_taken: Callable[[Task], bool]) -> _Role:
        new = wanted - had
        grant = {task for task in new if not is_taken(task)}
        return cls(had, had & wanted, had - wanted, grant, grant != new)


def reconcile(member: Member, epoch: int, target: Tasks, owned: Tasks | None, processes: Processes) -> Member:
    """Returns the member's next state. `epoch`: of the target; `owned`: all tasks that the member reports to have, None
    if it reports none of the lists."""
    if member.state is MemberState.STABLE:
        return member if member.member_epoch == epoch else _towards(member, epoch, target, owned, processes, 0)
    if member.state is MemberState.UNREVOKED_TASKS:
        if _still_has(owned, member.pending):
            return member
        return _towards(member, epoch, target, owned, processes, 1)
    return _towards(member, epoch, target, owned, processes, 0)


def _still_has(owned: Tasks | None, pending: AssignedTasks) -> bool:
    """Whether the member still has pending tasks. True without a report: silence is no revocation."""
    return owned is None or overlap(owned, pending)


def _towards(
    member: Member, epoch: int, target: Tasks, owned: Tasks | None, processes: Processes, revoked: int
) -> Member:
    """Returns the member's next state on the way to its target. `revoked`: 1 if the member has just revoked its pending
    tasks, which counts as an epoch."""
    had = member.assigned
    active, standby, warmup = _roles(member, target, processes)
    for task in active.had & standby.grant:
        _move(task, standby)
    for outgoing, incoming in ((standby, warmup), (warmup, standby)):
        for task in outgoing.had & incoming.grant:
            _move(task, incoming)
            outgoing.revoke.discard(task)
    promoted = task_set(target.active)
    for replica in (standby, warmup):
        replica.revoke -= replica.had & promoted
    revoke = AssignedTasks(_epochs(active.revoke, had.active), _table(standby.revoke), _table(warmup.revoke))
    waits = bool(revoke) and _still_has(owned, revoke)
    for replica in (standby, warmup):
        replica.keep |= {t for t in replica.had & promoted if waits or t not in active.grant}
    if waits:
        return _next(
            member,
            MemberState.UNREVOKED_TASKS,
            member.member_epoch + revoked,
            AssignedTasks(_epochs(active.keep, had.active), _table(standby.keep), _table(warmup.keep)),
            revoke,
        )
    unreleased = active.unreleased or standby.unreleased or warmup.unreleased
    now: dict[str, dict[int, int]] = _epochs(active.keep, had.active)
    for s, p in sorted(active.grant):
        now.setdefault(s, {})[p] = epoch
    assigned = AssignedTasks(
        {s: dict(sorted(ps.items())) for s, ps in sorted(now.items())},
        _table(standby.keep | standby.grant),
        _table(warmup.keep | warmup.grant),
    )
    state = MemberState.UNRELEASED_TASKS if unreleased else MemberState.STABLE
    return _next(member, state, epoch, assigned, NOTHING_ASSIGNED)


def _roles(member: Member, target: Tasks, processes: Processes) -> tuple[_Role, _Role, _Role]:
    """Returns the roles of the member's tasks. Two kinds of tasks are not granted: an active task that any process
    runs, and a task that the member's own process has, unless the member itself has it in another role."""
    process_id = member.process_id
    active = task_set(member.assigned.active)
    standby, warmup = task_set(member.assigned.standby), task_set(member.assigned.warmup)

    def standby_elsewhere(task: Task) -> bool:
        return process_id in processes.standby_processes(*task) and task not in standby

    def warmup_elsewhere(task: Task) -> bool:
        return process_id in processes.warmup_processes(*task) and task not in warmup

    def no_active(task: Task) -> bool:
        return processes.active_process(*task) is not None or standby_elsewhere(task) or warmup_elsewhere(task)

    def no_standby(task: Task) -> bool:
        return (
            (processes.active_process(*task) == process_id and task not in active)
            or process_id in processes.standby_processes(*task)
            or warmup_elsewhere(task)
        )

    def no_warmup(task: Task) -> bool:
        return (
            processes.active_process(*task) == process_id
            or standby_elsewhere(task)
            or process_id in processes.warmup_processes(*task)
        )

    return (
        _Role.of(active, task_set(target.active), no_active),
        _Role.of(standby, task_set(target.standby), no_standby),
        _Role.of(warmup, task_set(target.warmup), no_warmup),
    )


def _move(task: Task, to: _Role) -> None:
    to.grant.discard(task)
    to.keep.add(task)


def _next(member: Member, state: MemberState, epoch: int, assigned: AssignedTasks, pending: AssignedTasks) -> Member:
    return replace(
        member,
        state=state,
        member_epoch=epoch,
        previous_epoch=member.member_epoch,
        assigned=assigned,
        pending=pending,
    )


def _table(tasks: Iterable[Task]) -> dict[str, tuple[int, ...]]:
    sets: dict[str, list[int]] = {}
    for s, p in tasks:
        sets.setdefault(s, []).append(p)
    return table_of(sets)


def _epochs(tasks: Iterable[Task], of: Epochs) -> dict[str, dict[int, int]]:
    epochs: dict[str, dict[int, int]] = {}
    for s, p in sorted(tasks):
        epochs.setdefault(s, {})[p] = of[s][p]
    return epochs
