"""Kafka's own assignors on a JVM, and problems to give them."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sidecar.assign.spec import GroupSpec, MemberSpec
from sidecar.drill.artifacts import java, kafka_libs

JAVA = Path(__file__).resolve().parent.parent / "java"
Owned = dict[int, tuple[int, ...]]


@dataclass
class Case:
    """Topics and subscriptions by number; `members`: id -> (instance id, class, topic -> partitions it had)."""

    counts: list[int]
    classes: list[list[int]]
    members: dict[str, tuple[str | None, int, Owned]]
    ids: list[bytes] = field(default_factory=list)
    racks: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rng = random.Random(len(self.counts))
        self.ids = self.ids or [rng.randbytes(16) for _ in self.counts]

    def question(self, assignor: str, **more: object) -> dict[str, object]:
        members = [
            {
                "id": m,
                "instance": instance,
                "rack": self.racks.get(m),
                "class": c,
                "owned": [[t, *ps] for t, ps in owned.items()],
            }
            for m, (instance, c, owned) in self.members.items()
        ]
        topics = [[i.hex(), n] for i, n in zip(self.ids, self.counts, strict=True)]
        return {"assignor": assignor, "topics": topics, "classes": self.classes, "members": members, **more}

    def spec(self, members: Sequence[str] | None = None, topics: Sequence[int] | None = None) -> GroupSpec:
        """With members and topics in the order given."""
        places = list(range(len(self.counts)))
        order = [*(topics or ()), *(t for t in places if t not in set(topics or ()))]
        rank = {t: i for i, t in enumerate(order)}
        specs = {}
        for m in members or self.members:
            instance, c, owned = self.members[m]
            topic_ids = tuple(self.ids[t] for t in sorted(self.classes[c], key=rank.__getitem__))
            had = {self.ids[t]: ps for t, ps in sorted(owned.items(), key=lambda o: rank[o[0]])}
            specs[m] = MemberSpec(self.racks.get(m), instance, topic_ids, had)
        used = {t for _, c, _ in self.members.values() for t in self.classes[c]}
        return GroupSpec(specs, {self.ids[t]: self.counts[t] for t in order if t in used}, len(self.classes) == 1)

    def with_owned(self, result: dict[str, dict[str, list[int]]]) -> Case:
        members = {
            m: (i, c, {int(t): tuple(ps) for t, ps in result.get(m, {}).items()})
            for m, (i, c, _) in self.members.items()
        }
        return Case(self.counts, self.classes, members, self.ids, self.racks)


class Oracle:
    def __init__(self, *jvm: str, source: str = "AssignorOracle.java") -> None:
        libs = kafka_libs()
        command = [java(), *jvm, "-cp", f"{libs}/*", str(JAVA / source)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, question: dict[str, object]) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def close(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(10)


def random_case(rng: random.Random) -> Case:
    counts = [rng.choice((1, 2, 3, 5, 8, 13, 40)) for _ in range(rng.randint(1, 12))]
    topics = range(len(counts))
    if rng.random() < 0.4:
        classes = [rng.sample(topics, rng.randint(1, len(counts)))]
    else:
        classes = [rng.sample(topics, rng.randint(0, len(counts))) for _ in range(rng.randint(2, 5))]
        unique = {tuple(sorted(c)) for c in classes}
        classes = [list(c) for c in unique]
    n = rng.choice((1, 2, 3, 7, 20, 60))
    members: dict[str, tuple[str | None, int, Owned]] = {}
    for i in range(n):
        instance = f"i{rng.randrange(1000):03d}-{i}" if rng.random() < 0.3 else None
        members[f"member-{rng.randrange(10**6)}-{i}"] = (instance, rng.randrange(len(classes)), {})
    # What each had: random, each partition once, also of topics that it no longer subscribes to.
    had: dict[str, dict[int, list[int]]] = {m: {} for m in members}
    if rng.random() < 0.8:
        for t in {t for _, c, _ in members.values() for t in classes[c]}:
            for p in range(counts[t]):
                if rng.random() < 0.7:
                    had[rng.choice(list(members))].setdefault(t, []).append(p)
    full = {m: (i, c, {t: tuple(ps) for t, ps in sorted(had[m].items())}) for m, (i, c, _) in members.items()}
    used = sorted({c for _, c, _ in full.values()})
    renumbered = {m: (i, used.index(c), owned) for m, (i, c, owned) in full.items()}
    return Case(counts, [classes[c] for c in used], renumbered)
