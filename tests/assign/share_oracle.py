"""Problems of share groups for Kafka's SimpleAssignor on a JVM and for our kernel, in the order that Kafka had."""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from sidecar.assign.share import ShareSpec
from sidecar.assign.spec import MemberSpec
from sidecar.native.groups_twin import Csr
from sidecar.native.twin import read
from tests.assign.java_order import JavaOrder, of_int, of_topic_partition, sized

Owned = dict[int, tuple[int, ...]]
Result = dict[str, dict[str, list[int]]]


@dataclass
class ShareCase:
    """Topics and subscriptions by number; `allowed`: topic -> its partitions that may be assigned; `members`: id ->
    (class, topic -> partitions it had)."""

    ids: list[bytes]
    counts: list[int]
    allowed: list[tuple[int, ...]]
    classes: list[tuple[int, ...]]
    members: dict[str, tuple[int, Owned]]

    @property
    def closed(self) -> bool:
        """Whether a member had a partition that may not be assigned."""
        return any(set(ps) - set(self.allowed[t]) for _, had in self.members.values() for t, ps in had.items())

    def question(self, **more: object) -> dict[str, object]:
        topics = [[i.hex(), n, may] for i, n, may in zip(self.ids, self.counts, self.allowed, strict=True)]
        members = [
            {"id": m, "class": c, "owned": [[t, *ps] for t, ps in had.items()]} for m, (c, had) in self.members.items()
        ]
        return {"topics": topics, "classes": self.classes, "members": members, **more}

    def spec(self) -> ShareSpec:
        """Returns the spec with the topics that members subscribe to."""
        used = sorted({t for c, _ in self.members.values() for t in self.classes[c]})
        members = {
            m: MemberSpec(
                None, None, tuple(self.ids[t] for t in self.classes[c]), {self.ids[t]: ps for t, ps in had.items()}
            )
            for m, (c, had) in sorted(self.members.items())
        }
        counts = {self.ids[t]: self.counts[t] for t in used}
        return ShareSpec(members, counts, {self.ids[t]: self.allowed[t] for t in used}, len(self.classes) == 1)

    def after(self, result: Result, rng: random.Random) -> ShareCase:
        """The group some time later: members went and came, and partitions are new."""
        had = {m: {int(t): tuple(ps) for t, ps in result.get(m, {}).items()} for m in self.members}
        members = {m: (c, had[m]) for m, (c, _) in self.members.items() if rng.random() < 0.75} or {"first": (0, {})}
        for _ in range(rng.choice((0, 0, 1, 3))):
            members[name(rng)] = (rng.randrange(len(self.classes)), {})
        counts = [n + rng.choice((0, 0, 0, 2)) for n in self.counts]
        return renumbered(ShareCase(self.ids, counts, [assignable(n, rng) for n in counts], self.classes, members))


def renumbered(case: ShareCase) -> ShareCase:
    """Renumbers the subscriptions, without those that no member has."""
    used = sorted({c for c, _ in case.members.values()})
    members = {m: (used.index(c), had) for m, (c, had) in case.members.items()}
    return ShareCase(case.ids, case.counts, case.allowed, [case.classes[c] for c in used], members)


def name(rng: random.Random) -> str:
    return f"{rng.getrandbits(128):032x}"


def assignable(count: int, rng: random.Random) -> tuple[int, ...]:
    share = rng.choice((1.0, 1.0, 0.9, 0.3))
    return tuple(p for p in range(count) if rng.random() < share)


def random_share_case(rng: random.Random) -> ShareCase:
    counts = [rng.choice((1, 2, 3, 5, 8, 13, 40)) for _ in range(rng.randint(1, 6))]
    topics = range(len(counts))
    pick = [tuple(sorted(rng.sample(topics, rng.randint(0, len(counts))))) for _ in range(rng.randint(1, 5))]
    classes = pick[:1] if rng.random() < 0.5 else list(dict.fromkeys(pick))
    members: dict[str, tuple[int, Owned]] = {
        name(rng): (rng.randrange(len(classes)), {}) for _ in range(rng.choice((1, 2, 3, 7, 20, 60)))
    }
    case = ShareCase(
        [rng.randbytes(16) for _ in counts], counts, [assignable(n, rng) for n in counts], classes, dict(members)
    )
    if rng.random() < 0.5:  # what each had: random, of any topic
        for m, (c, _) in members.items():
            had = {t: tuple(p for p in range(n) if rng.random() < 0.2) for t, n in enumerate(counts)}
            case.members[m] = (c, {t: ps for t, ps in had.items() if ps})
    return renumbered(case)


def kernel_arguments(case: ShareCase, answer: dict[str, Any]) -> tuple[array[int], ...]:
    """Returns the kernel's arguments, in the orders of the JVM's answer."""
    off = array("i", [0, *accumulate(case.counts)])
    members: list[str] = answer["members"]
    class_of = array("i", [case.members[m][0] for m in members])
    orders = Orders(case, answer, off)
    if len(case.classes) == 1:
        orders.all_topics(answer["subscribed"][members[0]])
    else:
        for t in {t for c in class_of for t in case.classes[c]}:
            orders.topic(t)
    held_off = array("i", [0, *accumulate(len(mine) for mine in orders.held)])
    place = {(m, q): e for e, (m, q) in enumerate((m, q) for m, mine in enumerate(orders.held) for q in mine)}
    turn = array("i", [place[m, q] for q, by in orders.holders.items() for m in by])
    held = array("i", [q for mine in orders.held for q in mine])
    allowed = array("i", [off[t] + p for t, ps in enumerate(case.allowed) for p in ps])
    class_off = array("i", [0, *accumulate(map(len, case.classes))])
    flat = array("i", [t for c in case.classes for t in c])
    return off, class_off, flat, class_of, allowed, held_off, held, array("i", orders.walk), turn


class Orders:
    """`held`: member -> its partitions; `holders`: partition -> its members; `walk`: partitions."""

    def __init__(self, case: ShareCase, answer: dict[str, Any], off: array[int]) -> None:
        self.case, self.off = case, off
        self.members: list[str] = answer["members"]
        self.owned: list[list[tuple[int, list[int]]]] = [
            [(t, ps) for t, *ps in answer["owned"][m]] for m in self.members
        ]
        self.held: list[list[int]] = [[] for _ in self.members]
        self.holders: dict[int, list[int]] = {}
        self.walk: list[int] = []

    def _hold(self, had: Iterable[tuple[int, int]]) -> None:
        by_partition: dict[int, JavaOrder[int]] = {}
        for m, q in had:
            by_partition.setdefault(q, JavaOrder(of_int)).put(m)
        self.holders |= {q: order.order() for q, order in by_partition.items()}

    def all_topics(self, topics: list[int]) -> None:
        """All members have these topics (SimpleHomogeneousAssignmentBuilder)."""
        ids, off = self.case.ids, self.off
        place = {i: t for t, i in enumerate(ids)}
        walk = JavaOrder(of_topic_partition, sized(sum(len(self.case.allowed[t]) for t in topics)))
        had: list[tuple[int, int]] = []
        for m, owned in enumerate(self.owned):
            mine = JavaOrder(of_topic_partition)
            for t, ps in owned:
                for p in ps if t in topics else ():
                    walk.compute_if_absent((ids[t], p))
                    mine.put((ids[t], p))
                    had.append((m, off[t] + p))
            self.held[m] = [off[place[i]] + p for i, p in mine.order()]
        self._hold(had)
        for t in topics:
            for p in self.case.allowed[t]:
                walk.compute_if_absent((ids[t], p))
        self.walk = [off[place[i]] + p for i, p in walk.order()]

    def topic(self, t: int) -> None:
        """A topic of members with different subscriptions (SimpleHeterogeneousAssignmentBuilder)."""
        low = self.off[t]
        walk = JavaOrder(of_int, sized(len(self.case.allowed[t])))
        had: list[tuple[int, int]] = []
        for m, owned in enumerate(self.owned):
            mine = JavaOrder(of_int)
            for p in dict(owned).get(t, ()):
                walk.compute_if_absent(p)
                mine.put(p)
                had.append((m, low + p))
            self.held[m] += [low + p for p in mine.order()]
        self._hold(had)
        for p in self.case.allowed[t]:
            walk.compute_if_absent(p)
        self.walk += [low + p for p in walk.order()]


def named(case: ShareCase, members: list[str], table: Csr) -> Result:
    """A kernel's result as Kafka's."""
    csr, parts = map(read, table)
    off = [0, *accumulate(case.counts)]
    topic = [(t, q - off[t]) for t in range(len(case.counts)) for q in range(off[t], off[t + 1])]
    result: Result = {}
    for i, m in enumerate(members):
        for q in parts[csr[i] : csr[i + 1]]:
            t, p = topic[q]
            result.setdefault(m, {}).setdefault(str(t), []).append(p)
    return result


def subscribed(case: ShareCase, result: Result) -> Result:
    """Kafka keeps what members had of a topic that nobody subscribes to any more; nobody is told of it."""
    used = {str(t) for c, _ in case.members.values() for t in case.classes[c]}
    kept = {m: {t: ps for t, ps in mine.items() if t in used} for m, mine in result.items()}
    return {m: mine for m, mine in kept.items() if mine}
