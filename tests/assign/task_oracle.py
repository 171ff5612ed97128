"""Problems of streams groups for Kafka's StickyTaskAssignor on a JVM and for our kernel, in the orders of the JVM."""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterable
from dataclasses import replace
from itertools import accumulate

from sidecar.assign.task_spec import (
    AssignmentConfigs,
    MemberTasks,
    Subtopology,
    TaskMemberSpec,
    TaskProblem,
    TaskSpec,
    TaskTable,
    task_problem_of,
)
from tests.assign.java_order import JavaOrder, of_string

Result = dict[str, dict[str, dict[str, list[int]]]]


def question(spec: TaskSpec, **more: object) -> dict[str, object]:
    members = [
        {
            "id": m,
            "process": s.process_id,
            "rack": s.rack_id,
            "tags": s.tags,
            "active": s.active,
            "standby": s.standby,
            "warmup": s.warmup,
            "offsets": s.offsets,
        }
        for m, s in spec.members.items()
    ]
    subtopologies = [[s, t.partitions, t.stateful] for s, t in spec.subtopologies.items()]
    configs = {"standbys": spec.configs.standby_replicas, "rack_tags": spec.configs.rack_tags}
    return {"subtopologies": subtopologies, "members": members, **configs, **more}


def in_java_order(spec: TaskSpec, members: Iterable[str]) -> TaskProblem:
    """The problem with members in this order, that of a JVM, and processes in the order that follows from it."""
    ordered = replace(spec, members={m: spec.members[m] for m in members})
    problem = task_problem_of(ordered)
    processes = JavaOrder(of_string, len(ordered.members))
    in_process: dict[str, JavaOrder[str]] = {}
    for m, s in ordered.members.items():
        processes.compute_if_absent(s.process_id)
        in_process.setdefault(s.process_id, JavaOrder(of_string)).put(m)
    grouped = [[problem.members[m] for m in in_process[p].order()] for p in processes.order()]
    proc_off = array("i", [0, *accumulate(map(len, grouped))])
    return replace(problem, proc_off=proc_off, proc_members=array("i", [m for mine in grouped for m in mine]))


def plain(problem: TaskProblem, table: TaskTable) -> Result:
    """A kernel's result as Kafka's."""
    targets = table.all(problem.layout, array("i", problem.members.values()))
    return {
        m: {
            role: {s: list(ps) for s, ps in tasks.items()}
            for role, tasks in (("active", t.active), ("standby", t.standby))
        }
        for m, t in zip(problem.members, targets, strict=True)
    }


def name(rng: random.Random) -> str:
    return f"{rng.getrandbits(128):032x}"


def random_task_spec(rng: random.Random) -> TaskSpec:
    subtopologies = {}
    for i in range(rng.randint(1, 6)):
        key = str(i) if rng.random() < 0.7 else f"s{rng.choice(('a', 'ä', chr(0xFFEE), chr(0x1F600)))}{i}"
        subtopologies[key] = Subtopology(rng.choice((1, 2, 3, 6, 12, 30)), rng.random() < 0.6)
    processes = [name(rng) for _ in range(rng.choice((1, 2, 4, 12)))]
    members = {name(rng): TaskMemberSpec(rng.choice(processes)) for _ in range(rng.choice((1, 2, 3, 6, 20, 40)))}
    configs = AssignmentConfigs(rng.choice((0, 1, 1, 2, 3)), rng.choice(((), ("zone",))))
    return TaskSpec(members, subtopologies, configs)


def changed_group(spec: TaskSpec, result: Result, rng: random.Random) -> TaskSpec:
    """Returns the group some time later: members have left and joined, and some report offsets or are short of their
    target."""
    processes = [*sorted({s.process_id for s in spec.members.values()}), name(rng)]
    members = {}
    for m in spec.members:
        if rng.random() < 0.25:
            continue
        mine = result[m] if rng.random() < 0.9 else {"active": {}, "standby": {}}
        members[m] = replace(
            spec.members[m],
            active={s: tuple(p for p in ps if rng.random() < 0.95) for s, ps in mine["active"].items()},
            standby={s: tuple(ps) for s, ps in mine["standby"].items()},
        )
    for _ in range(rng.choice((0, 0, 1, 4))):
        members[name(rng)] = TaskMemberSpec(rng.choice(processes))
    members = members or {name(rng): TaskMemberSpec(processes[0])}
    # A former holder of an active task that does not know yet: the last one in the order of members counts.
    for m in members:
        if rng.random() < 0.1:
            s = rng.choice(sorted(spec.subtopologies))
            members[m] = replace(members[m], active={s: (0,)})
        sums = {
            s: {p: rng.choice((0, 1, 5, 2**40, rng.randrange(50))) for p in range(t.partitions) if rng.random() < 0.15}
            for s, t in spec.subtopologies.items()
        }
        members[m] = replace(members[m], offsets={s: o for s, o in sums.items() if o})
    return replace(spec, members=members)


def tasks_of(result: dict[str, MemberTasks]) -> list[tuple[str, str, str, int]]:
    """All (member, role, subtopology, partition) of a target."""
    return [
        (m, role, s, p)
        for m, mine in result.items()
        for role, tasks in (("active", mine.active), ("standby", mine.standby), ("warmup", mine.warmup))
        for s, ps in tasks.items()
        for p in ps
    ]
