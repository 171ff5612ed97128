"""Random topologies of streams groups: most can be served, some lack topics, and some are wrong.

A name that begins with @ is one of the group's own, so that each side creates its internal topics for itself. Kafka
walks through names by their hashes: `same_hash` gives the other side's group a name by which all hashes are equal.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from sidecar.wire.generated import streams_group_heartbeat as st
from tests.assign.java_order import of_string

SOURCES = ("diff-a", "diff-b", "diff-c", "more-d")
NOT_THERE = ("diff-none-1", "diff-none-2", "diff-none-3", "diff-none-4")
DIGITS = 8
"""Characters that a name needs behind it to have any hash of 32 bits."""
Internal = tuple[str, int]
"""A name and the number of partitions, 0 where it is to be computed."""


def same_hash(name: str, prefix: str) -> str:
    """A name with this prefix whose hash in Java is that of `name`."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    base = of_string(prefix + letters[0] * DIGITS)
    rest = (of_string(name) - base) % 2**32
    while True:  # not every number has digits below 26 to the base of 31
        left, digits = rest, []
        for _ in range(DIGITS):
            left, digit = divmod(left, 31)
            digits.append(digit)
        if left == 0 and max(digits) < len(letters):
            return prefix + "".join(letters[d] for d in reversed(digits))
        if left:
            raise ValueError(f"no name with the hash of {name} begins with {prefix}")
        rest += 2**32


@dataclass(frozen=True)
class Sub:
    key: str
    sources: tuple[str, ...] = ()
    sinks: tuple[str, ...] = ()
    repartitions: tuple[Internal, ...] = ()
    changelogs: tuple[Internal, ...] = ()
    copartitioned: bool = False
    pattern: str = ""

    def __repr__(self) -> str:
        parts = [f"{self.key}: {','.join(self.sources)}"]
        parts += [f"< {n}{f'*{p}' if p else ''}" for n, p in self.repartitions] + [f"> {n}" for n in self.sinks]
        parts += [f"log {n}{f'*{p}' if p else ''}" for n, p in self.changelogs]
        return " ".join([*parts, *(["copartitioned"] if self.copartitioned else []), *filter(None, [self.pattern])])


@dataclass(frozen=True)
class Topo:
    subs: tuple[Sub, ...]
    epoch: int = 3
    replicas: int = 0
    """Replicas of the first changelog topic."""
    good: bool = True
    """The topology has no deliberate fault."""

    def __repr__(self) -> str:
        return f"[{'; '.join(map(repr, self.subs))} | epoch {self.epoch}{' rf' if self.replicas else ''}]"

    def names(self) -> list[str]:
        return [n for s in self.subs for n in (*s.sources, *s.sinks, *(n for n, _ in (*s.repartitions, *s.changelogs)))]

    def topology_of(self, group: str) -> st.Topology:
        """Returns the topology as a client of this group sends it: topic names with the group's id."""

        def own(name: str) -> str:
            return name.replace("@", group)

        def internal(topics: tuple[Internal, ...], replicas: int) -> list[st.TopicInfo]:
            return [st.TopicInfo(own(n), p, replicas if i == 0 else 0) for i, (n, p) in enumerate(topics)]

        return st.Topology(
            self.epoch,
            [
                st.Subtopology(
                    s.key,
                    [own(n) for n in s.sources],
                    [s.pattern] if s.pattern else [],
                    internal(s.changelogs, self.replicas),
                    [own(n) for n in s.sinks],
                    internal(s.repartitions, 0),
                    [st.CopartitionGroup([*range(len(s.sources))], [], [*range(len(s.repartitions))])]
                    if s.copartitioned
                    else [],
                )
                for s in self.subs
            ],
        )


def random_topology(rng: random.Random, sources: tuple[str, ...] = SOURCES) -> Topo:
    left = list(sources)
    rng.shuffle(left)
    plain = rng.random() < 0.5  # without internal topics, which a broker takes long to make
    n = rng.choice((1, 1, 2, 2, 3))
    subs = [Sub(str(i), (left.pop(),)) for i in range(min(n, len(left)) if plain else 1)]
    for i in range(1, 1 if plain else n):
        upstream = rng.randrange(i)
        topic = f"@-r{i}"
        subs[upstream] = replace(subs[upstream], sinks=(*subs[upstream].sinks, topic))
        mine = (left.pop(),) if left and rng.random() < 0.4 else ()
        subs.append(Sub(str(i), mine, (), ((topic, rng.choice((0, 0, 0, 0, 3, 5))),)))
    for i, s in enumerate(subs):
        more = (left.pop(),) if left and rng.random() < 0.25 else ()
        logs = () if plain else tuple((f"@-c{i}{k}", 0) for k in ("", "x")[: rng.choice((0, 1, 1, 1, 2))])
        joined = rng.random() < 0.35
        subs[i] = replace(s, sources=s.sources + more, changelogs=logs, copartitioned=joined)
    topo = Topo(tuple(subs), replicas=3 if rng.random() < 0.05 else 0)
    return wrong(rng, topo) if rng.random() < 0.15 else topo


def wrong(rng: random.Random, topo: Topo) -> Topo:
    """Returns the topology with a fault: most give an error, some a status."""
    first, *rest = topo.subs
    how = rng.choice(FAULTS)
    if how == "source is missing":
        first = replace(first, sources=first.sources + NOT_THERE[: rng.randint(1, 4)])
    elif how == "no source":
        first = replace(first, sources=())
    elif how == "never a sink":
        first = replace(first, repartitions=(("@-never", 0),))
    elif how == "loop":
        rest = [*rest, Sub("8", (), ("@-l1",), (("@-l2", 0),)), Sub("9", (), ("@-l2",), (("@-l1", 0),))]
    elif how == "changelog with a count":
        first = replace(first, changelogs=(("@-c0", 4),))
    elif how == "pattern":
        first = replace(first, pattern="diff-.*")
    elif how == "internal":
        first = replace(first, sources=("__consumer_offsets", *first.sources))
    elif how == "name":
        first = replace(first, sources=("no name", *first.sources))
    else:
        first = replace(first, sources=("diff-a", "diff-b"), copartitioned=True)
    return replace(topo, subs=(first, *rest), good=False)


FAULTS = (
    "source is missing",
    "source is missing",
    "no source",
    "never a sink",
    "loop",
    "changelog with a count",
    "pattern",
    "internal",
    "name",
    "unequal",
    "unequal",
)


def changed_topology(rng: random.Random, topo: Topo) -> Topo:
    """Returns the topology of another version of the application."""
    first, *rest = topo.subs
    how = rng.choice(("newer", "older", "older", "sources", "changelogs"))
    if how == "newer":
        return replace(topo, epoch=topo.epoch + 1)
    if how == "older":
        return replace(topo, epoch=rng.randrange(topo.epoch))
    if how == "sources":
        return replace(topo, subs=(replace(first, sources=first.sources + NOT_THERE[:1]), *rest))
    return replace(topo, subs=(replace(first, changelogs=(*first.changelogs, ("@-c9", 0))), *rest))
