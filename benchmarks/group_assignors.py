"""`simple` and `sticky` against Kafka's SimpleAssignor and StickyTaskAssignor: a part of `make bench NAME=assignors`.

`first` is the first run in a fresh JVM, which is what a group that has just moved there waits for; `warm` comes after
WARM runs. `arrays` is the kernel on the arrays of a problem. `maps` is the whole way from a spec to a mapping for each
member, which is what Kafka's `assign` does.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.common import median, timed
from sidecar.assign import SIMPLE, STICKY
from sidecar.assign.share import ShareSpec, share_problem_of
from sidecar.assign.task_spec import AssignmentConfigs, Subtopology, TaskMemberSpec, TaskSpec, task_problem_of
from tests.assign.oracle import Oracle
from tests.assign.share_oracle import ShareCase
from tests.assign.task_oracle import question

WARM = 60
HEAP = ("-Xmx512m", "-XX:+UseParallelGC")


@dataclass(frozen=True)
class Row:
    """`question`: for the program of Kafka's class; `arrays` and `maps`: our ways."""

    title: str
    program: str
    question: Callable[..., dict[str, object]]
    arrays: Callable[[], object]
    maps: Callable[[], object]


def _share(members: int, topics: int, partitions: int, subscriptions: int) -> ShareCase:
    rng = random.Random(1)
    each = partitions // topics
    size = topics // subscriptions
    classes = [tuple(range(c * size, (c + 1) * size)) for c in range(subscriptions)]
    names = [f"{rng.getrandbits(128):032x}" for _ in range(members)]
    of: dict[str, tuple[int, dict[int, tuple[int, ...]]]] = {m: (i % subscriptions, {}) for i, m in enumerate(names)}
    ids = [rng.randbytes(16) for _ in range(topics)]
    return ShareCase(ids, [each] * topics, [tuple(range(each))] * topics, classes, of)


def _changed_share(case: ShareCase, how: str) -> ShareCase:
    if how == "full":
        return case
    number = {i: t for t, i in enumerate(case.ids)}
    targets = {m: {number[t]: ps for t, ps in topics.items()} for m, topics in SIMPLE(case.spec()).items()}
    members = {m: (c, targets[m]) for m, (c, _) in case.members.items()}
    if how == "joins":
        members["f" * 32] = (0, {})
    else:
        del members[next(iter(members))]
    return replace(case, members=members)


def _tasks(members: int, subtopologies: int, tasks: int, threads: int) -> TaskSpec:
    rng = random.Random(1)
    processes = [f"{rng.getrandbits(128):032x}" for _ in range(members // threads)]
    names = sorted(f"{rng.getrandbits(128):032x}" for _ in range(members))
    of = {m: TaskMemberSpec(processes[i % len(processes)]) for i, m in enumerate(names)}
    each = Subtopology(tasks // subtopologies, True)
    return TaskSpec(of, {str(s): each for s in range(subtopologies)}, AssignmentConfigs(1))


def _changed_tasks(spec: TaskSpec, how: str) -> TaskSpec:
    if how == "full":
        return spec
    members = {}
    for m, mine in STICKY(spec).items():
        held = {s: dict.fromkeys(ps, 1_000) for s, ps in mine.standby.items()}
        members[m] = replace(spec.members[m], active=mine.active, standby=mine.standby, offsets=held)
    if how == "joins":
        members["f" * 32] = TaskMemberSpec("a new process")
    else:
        del members[next(iter(members))]
    return replace(spec, members=members)


def _share_row(title: str, case: ShareCase) -> Row:
    spec: ShareSpec = case.spec()
    problem = share_problem_of(spec)
    return Row(title, "ShareOracle", case.question, lambda: SIMPLE.holders(problem), lambda: SIMPLE(spec))


def _task_row(title: str, spec: TaskSpec) -> Row:
    problem = task_problem_of(spec)

    def asked(**more: object) -> dict[str, object]:
        return question(spec, **more)

    return Row(title, "TaskOracle", asked, lambda: STICKY.tasks(problem), lambda: STICKY(spec))


def rows() -> Iterator[Row]:
    for how in ("full", "joins", "leaves"):
        yield _share_row(f"simple 1,000 x 10,000, {how}", _changed_share(_share(1_000, 10, 10_000, 1), how))
    for how in ("full", "joins"):
        title = f"simple 1,000 x 10,000, 5 subscriptions, {how}"
        yield _share_row(title, _changed_share(_share(1_000, 10, 10_000, 5), how))
    yield _share_row("simple 10,000 x 1,000, full", _share(10_000, 10, 1_000, 1))
    for how in ("full", "joins", "leaves"):
        yield _task_row(f"sticky 1,000 x 3,000, {how}", _changed_tasks(_tasks(1_000, 3, 3_000, 4), how))


def measured(row: Row, repeat: int) -> dict[str, float]:
    oracle = Oracle(*HEAP, program=row.program)

    def kafka(times: int) -> list[float]:
        answer: dict[str, Any] = oracle.ask(row.question(repeat=times, silent=True))
        return [u / 1000 for u in answer["cpu_us"]]

    first = kafka(1)[0]
    kafka(WARM)
    warm = kafka(repeat)
    ours = {"arrays": timed(row.arrays, repeat * 3), "maps": timed(row.maps, repeat)}
    warm_ms = median([*warm, *kafka(repeat)])
    oracle.close()
    return {"first": first, "warm": warm_ms, **ours}


def compare(repeat: int) -> dict[str, dict[str, float]]:
    print("members x partitions or tasks; thread CPU, ms, medians; x = Kafka's warm run / ours")
    print(f"{'':48} {'first':>9} {'warm':>9} {'arrays':>9} {'x':>6} {'maps':>9} {'x':>6}")
    figures = {}
    for row in rows():
        f = measured(row, repeat)
        x = {k: f["warm"] / f[k] for k in ("arrays", "maps")}
        print(
            f"{row.title:48} {f['first']:9.2f} {f['warm']:9.2f} {f['arrays']:9.3f} {x['arrays']:6.1f} "
            f"{f['maps']:9.3f} {x['maps']:6.1f}",
            flush=True,
        )
        figures[row.title] = {
            "kafka_first_ms": round(f["first"], 3),
            "kafka_warm_ms": round(f["warm"], 3),
            **{f"{k}_ms": round(f[k], 3) for k in x},
            **{f"x_{k}": round(v, 1) for k, v in x.items()},
        }
    return figures
