"""Our assignors against Kafka's own classes on a warm JVM: the same problems in one run, medians of thread CPU.

    make bench NAME=assignors [ARGS="--repeat 15"]

`arrays` is the way from the arrays that a group keeps to the new owners; Kafka's `assign` goes from its maps to its
maps. `run` is all that one run costs the background thread, from the snapshot of a group to its new table. `dicts` is
`arrays` plus a mapping member -> topic -> partitions for the members whose partitions changed; Kafka shares the maps
of the others, too. The KIP's load has five disjoint subscriptions, like Kafka's own ServerSideAssignorBenchmark. In
`mixed` each member has a subscription of its own. group_assignors.py has the rows of share and streams groups.
"""

from __future__ import annotations

import argparse
import random
from dataclasses import replace

from benchmarks import group_assignors
from benchmarks.common import finish, median, timed
from sidecar import native as kernel
from sidecar.assign import BUILT_IN
from sidecar.assign.layout import problem_of
from sidecar.core.consumer.assignor_run import ConsumerRun, run
from sidecar.core.consumer.group import Member
from sidecar.core.consumer.target_table import Table, TargetAssignment
from sidecar.core.modern.subscriptions import Subscription
from sidecar.core.vocabulary.topics import Topic, TopicImage
from sidecar.drill.artifacts import KAFKA
from tests.assign.oracle import Case, Oracle

WARM = 60


def case(members: int, topics: int, partitions: int, kind: str) -> Case:
    rng = random.Random(1)
    counts = [partitions // topics] * topics
    if kind == "same":
        classes = [list(range(topics))]
    elif kind == "buckets":
        size = topics // 5
        classes = [list(range(b * size, (b + 1) * size)) for b in range(5)]
    else:
        classes = [sorted(rng.sample(range(topics), topics // 5)) for _ in range(members)]
    names = [f"member-{rng.randrange(10**9):09d}-{i}" for i in range(members)]
    return Case(counts, classes, {m: (None, i % len(classes), {}) for i, m in enumerate(names)})


def with_target(c: Case, name: str) -> Case:
    """Return the same group, with the target of a full run as its last target."""
    spec = c.spec()
    number = {i: n for n, i in enumerate(c.ids)}
    result = BUILT_IN[name](spec)
    targets = {m: {number[t]: tuple(ps) for t, ps in parts.items()} for m, parts in result.items()}
    return Case(c.counts, c.classes, {m: (i, k, targets[m]) for m, (i, k, _) in c.members.items()}, c.ids)


def changed(c: Case, how: str, name: str) -> Case:
    if how == "full":
        return c
    c = with_target(c, name)
    members = dict(c.members)
    if how == "joins":
        _, k, _ = next(iter(members.values()))
        members["member-new"] = (None, k, {})
    else:
        del members[next(iter(members))]
    return Case(c.counts, c.classes, members, c.ids)


def ours(c: Case, name: str, repeat: int) -> dict[str, float]:
    assignor = BUILT_IN[name]
    problem = problem_of(c.spec())
    lay = problem.layout

    def dicts() -> object:
        owner = assignor.owners(problem)
        table = Table.of(lay, problem.members, owner)
        flags, _ = kernel.changed(problem.owner, owner, len(problem.members))
        some = [m for m, flag in zip(problem.members, flags, strict=True) if flag]
        return dict(zip(some, table.all(some), strict=True))

    members = {m: Member(m, instance_id=i) for m, (i, _, _) in c.members.items()}
    width = len(str(len(c.counts)))
    subs = [Subscription(tuple(f"t{t:0{width}}" for t in k), None, 0) for k in c.classes]
    named = {f"t{i:0{width}}": Topic(t.id, f"t{i:0{width}}", t.racks) for i, t in enumerate(lay.topics)}
    image = TopicImage(named, {t.id: t for t in named.values()})
    target = TargetAssignment(Table.of(lay, problem.members, problem.owner))
    of = {m: subs[k] for m, (_, k, _) in c.members.items()}
    first = ConsumerRun("g", 1, 2, name, image, members, of, frozenset(named), {}, target, None)
    inp = replace(first, run_id=2, cached=run(first, assignor).cached)
    return {
        "arrays": timed(lambda: assignor.owners(problem), repeat * 3),
        "run": timed(lambda: run(inp, assignor), repeat),
        "dicts": timed(dicts, repeat),
    }


ROWS = [
    ("KIP-1263 load", "uniform", 1_000, 1_000, 50_000, "buckets", ("full", "joins", "leaves")),
    ("mixed", "uniform", 1_000, 1_000, 50_000, "mixed", ("full", "joins", "leaves")),
    ("homogeneous", "uniform", 1_000, 1_000, 50_000, "same", ("full", "joins", "leaves")),
    ("range", "range", 1_000, 1_000, 50_000, "buckets", ("full",)),
    ("range, homogeneous", "range", 1_000, 1_000, 50_000, "same", ("full",)),
    ("large", "uniform", 10_000, 100, 100_000, "same", ("full", "joins", "leaves")),
    ("large, buckets", "uniform", 10_000, 100, 100_000, "buckets", ("full", "joins", "leaves")),
]


def compare(repeat: int) -> dict[str, object]:
    oracle = Oracle("-Xmx2g", "-XX:+UseParallelGC")
    figures: dict[str, object] = {}
    print("members x topics x partitions; thread CPU, ms, medians; x = Kafka's / ours")
    print(f"{'':36} {'Kafka':>9} {'arrays':>9} {'x':>6} {'run':>9} {'x':>6} {'dicts':>9} {'x':>6}")
    slowest = 1e9
    for title, name, members, topics, partitions, kind, hows in ROWS:
        base = case(members, topics, partitions, kind)
        for how in hows:
            c = changed(base, how, name)
            oracle.ask(c.question(name, repeat=WARM, silent=True))
            theirs = median(oracle.ask(c.question(name, repeat=repeat, silent=True))["cpu_us"]) / 1000
            mine = ours(c, name, repeat)
            theirs = median(
                [theirs, *[u / 1000 for u in oracle.ask(c.question(name, repeat=repeat, silent=True))["cpu_us"]]]
            )
            x = {k: theirs / v for k, v in mine.items()}
            slowest = min(slowest, *x.values())
            print(
                f"{title + ', ' + how:36} {theirs:9.2f} {mine['arrays']:9.3f} {x['arrays']:6.1f} "
                f"{mine['run']:9.3f} {x['run']:6.1f} {mine['dicts']:9.3f} {x['dicts']:6.1f}",
                flush=True,
            )
            key = f"{title}, {how}"
            figures[key] = {
                "kafka_ms": round(theirs, 3),
                **{f"{k}_ms": round(v, 3) for k, v in mine.items()},
                **{f"x_{k}": round(v, 1) for k, v in x.items()},
            }
    oracle.close()
    return {**figures, "slowest_x": round(slowest, 2)}


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--repeat", type=int, default=15)
    ap.add_argument("--only", choices=("consumer", "groups"), help="uniform and range, or simple and sticky")
    a = ap.parse_args()
    peers = f"Kafka {KAFKA} UniformAssignor, RangeAssignor, SimpleAssignor, StickyTaskAssignor"
    figures: dict[str, object] = {"bench": "assignors", "peer": peers, "compiled": kernel.COMPILED}
    if a.only != "groups":
        figures |= compare(a.repeat)
    if a.only != "consumer":
        figures |= group_assignors.compare(a.repeat)
    finish(figures)


if __name__ == "__main__":
    main()
