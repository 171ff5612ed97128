"""The interface of task assignors (streams groups): what the author of a plug-in imports, and a group as int arrays.

A task assignor is a callable `TaskSpec -> member id -> MemberTasks`, found by the entry point group
`kafka_group_sidecar.task_assignors`. Source: KIP-1071, Kafka 4.4.0's TaskAssignor.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Protocol

from sidecar.assign.order import sorted_as_java
from sidecar.assign.spec import AssignorError, plain
from sidecar.native import Ints, gather, gather_sums, partitions_all

Tasks = Mapping[str, tuple[int, ...]]
"""Subtopology -> sorted partitions."""
Offsets = Mapping[str, Mapping[int, int]]
"""Subtopology -> partition -> sum of the offsets of its changelogs."""


@dataclass(frozen=True, slots=True)
class TaskMemberSpec:
    """One member as an assignor sees it. `active`, `standby` and `warmup`: the tasks that it has now; `offsets` and
    `end_offsets`: of the tasks on whose state it has reported."""

    process_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    active: Tasks = field(default_factory=dict)
    standby: Tasks = field(default_factory=dict)
    warmup: Tasks = field(default_factory=dict)
    offsets: Offsets = field(default_factory=dict)
    end_offsets: Offsets = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Subtopology:
    """A subtopology, which has a task for each of `partitions`; only a `stateful` one has standby tasks."""

    partitions: int
    stateful: bool


@dataclass(frozen=True, slots=True)
class AssignmentConfigs:
    """Kafka's settings for the assignor. `standby_replicas`: num.standby.replicas; `rack_tags`:
    rack.aware.assignment.tags, for plug-ins: Kafka 4.4.0 gives them to its assignor, which does not look at them."""

    standby_replicas: int = 0
    rack_tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """The input of an assignor. `members` are in the order of their ids, `subtopologies` in the order of theirs (as
    Java compares strings)."""

    members: Mapping[str, TaskMemberSpec]
    subtopologies: Mapping[str, Subtopology]
    configs: AssignmentConfigs = AssignmentConfigs()


@dataclass(frozen=True, slots=True)
class MemberTasks:
    """The target of one member. Kafka 4.4.0 assigns no warm-up tasks."""

    active: Tasks = field(default_factory=dict)
    standby: Tasks = field(default_factory=dict)
    warmup: Tasks = field(default_factory=dict)


TaskResult = Mapping[str, MemberTasks]


class TaskAssignor(Protocol):
    """Returns member id -> tasks. Each active task occurs once, and a process has a task in one role and one member
    only. It runs in a background thread: it must keep no state between calls and must give the same result for the same
    spec."""

    def __call__(self, spec: TaskSpec) -> TaskResult: ...


class TaskLayout:
    """Subtopologies as arrays. A task's index is `off[subtopology] + partition`."""

    def __init__(self, subtopologies: Mapping[str, Subtopology]) -> None:
        self.ids = tuple(sorted_as_java(subtopologies))
        self.index = {s: i for i, s in enumerate(self.ids)}
        self.off = array("i", [0, *accumulate(subtopologies[s].partitions for s in self.ids)])
        self.stateful = array("i", [subtopologies[s].stateful for s in self.ids])


@dataclass(frozen=True, slots=True)
class TaskTable:
    """The active and standby tasks of each member: member `m` has `active[active_off[m]:active_off[m + 1]]`."""

    active_off: Ints
    active: Ints
    standby_off: Ints
    standby: Ints

    def all(self, layout: TaskLayout, members: Ints) -> list[MemberTasks]:
        """The target of each of these members."""
        active = partitions_all(self.active_off, self.active, layout.off, layout.ids, members)
        standby = partitions_all(self.standby_off, self.standby, layout.off, layout.ids, members)
        return list(map(MemberTasks, active, standby))


@dataclass(frozen=True, slots=True)
class TaskProblem:
    """The input of one run. `members`: id -> index, in the order of ids; process `p` has the members
    `proc_members[proc_off[p]:proc_off[p + 1]]`; `had`: what members have now; `hint_off`, `hint`, `hint_sums`: the
    tasks of which each member has reported an offset, and these offsets as 64-bit integers."""

    members: Mapping[str, int]
    layout: TaskLayout
    proc_off: Ints
    proc_members: Ints
    had: TaskTable
    hint_off: Ints
    hint: Ints
    hint_sums: bytes | bytearray | array[int]
    standby_replicas: int


class TaskArrayAssignor(ABC):
    """A task assignor that works on arrays. It can be called with a `TaskSpec` like any other, too."""

    @abstractmethod
    def tasks(self, problem: TaskProblem) -> TaskTable:
        """The new target."""

    def __call__(self, spec: TaskSpec) -> dict[str, MemberTasks]:
        problem = task_problem_of(spec)
        targets = self.tasks(problem).all(problem.layout, array("i", problem.members.values()))
        return dict(zip(problem.members, targets, strict=True))


def task_problem_of(spec: TaskSpec, layout: TaskLayout | None = None) -> TaskProblem:
    """A spec as arrays. `layout`: that of the spec's subtopologies, if there is one."""
    layout = layout or TaskLayout(spec.subtopologies)
    processes: dict[str, list[int]] = {}
    for i, m in enumerate(spec.members.values()):
        processes.setdefault(m.process_id, []).append(i)
    grouped = [processes[p] for p in sorted(processes)]
    members = spec.members.values()
    active = gather([plain(m.active) for m in members], layout.index, layout.off)
    standby = gather([plain(m.standby) for m in members], layout.index, layout.off)
    hints = gather_sums([{s: plain(o) for s, o in m.offsets.items()} for m in members], layout.index, layout.off)
    return TaskProblem(
        {m: i for i, m in enumerate(spec.members)},
        layout,
        array("i", [0, *accumulate(map(len, grouped))]),
        array("i", [m for part in grouped for m in part]),
        TaskTable(*active, *standby),
        *hints,
        spec.configs.standby_replicas,
    )


def checked(spec: TaskSpec, result: TaskResult) -> TaskResult:
    """A plug-in's result. Raises AssignorError for what no group may get."""
    active: set[tuple[str, int]] = set()
    in_process: set[tuple[str, str, int]] = set()
    for member_id, given in result.items():
        member = spec.members.get(member_id)
        if member is None:
            raise AssignorError(f"{member_id} is no member")
        for role, tasks in (("active", given.active), ("standby", given.standby), ("warmup", given.warmup)):
            for s, ps in tasks.items():
                subtopology = spec.subtopologies.get(s)
                for p in ps:
                    if subtopology is None or not 0 <= p < subtopology.partitions:
                        raise AssignorError(f"there is no task {s}_{p}")
                    if role == "active" and (s, p) in active:
                        raise AssignorError(f"the active task {s}_{p} is given to two members")
                    if role != "active" and not subtopology.stateful:
                        raise AssignorError(f"task {s}_{p} has no state, and cannot be a {role} task")
                    if (member.process_id, s, p) in in_process:
                        raise AssignorError(f"task {s}_{p} is given twice to process {member.process_id}")
                    in_process.add((member.process_id, s, p))
                    if role == "active":
                        active.add((s, p))
    missing = [(s, p) for s, t in spec.subtopologies.items() for p in range(t.partitions) if (s, p) not in active]
    if missing and spec.members:
        raise AssignorError(f"task {missing[0][0]}_{missing[0][1]} is given to nobody")
    return result
