"""The kernels of `_groups.c` in plain Python: the assignors of share groups and of streams groups.

Arrays are as in twin.py. The algorithms are those of Kafka 4.4.0's SimpleAssignor and StickyTaskAssignor. Where Kafka
takes the iteration order of a hash map, the kernel takes an order as an argument: members and processes count in the
order of their indices, everything else in the order of its array.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import ceil
from typing import Any, TypeVar

from sidecar.native.sticky_twin import Sticky
from sidecar.native.twin import Id, Ints, pack, read

T = TypeVar("T")
Csr = tuple[bytearray, bytearray]
"""(offsets, values): member `m` has `values[offsets[m]:offsets[m + 1]]`, in ascending order."""


def gather(rows: list[dict[Id, Any]], index: dict[Id, int], off: Ints) -> Csr:
    """Turn one mapping for each member, key -> numbers, into (offsets, values): `off[index[key]] + number`, ascending.
    Keys that `index` lacks are left out, and numbers that are not below `off[index[key] + 1] - off[index[key]]`."""
    offs = read(off)
    return _csr([_row(row, index, offs) for row in rows])


def gather_sums(rows: list[dict[Id, Any]], index: dict[Id, int], off: Ints) -> tuple[bytearray, bytearray, bytearray]:
    """Gathers as `gather` does, from key -> number -> sum, in the order of the mappings, with the sums as 64-bit
    integers."""
    offs = read(off)
    ends, values, sums = array("i", [0]), array("i"), array("q")
    for row in rows:
        for key, numbers in row.items():
            for number, total in numbers.items():
                found = _row({key: (number,)}, index, offs)
                values.extend(found)
                sums.extend(total for _ in found)
        ends.append(len(values))
    return bytearray(ends.tobytes()), bytearray(values.tobytes()), bytearray(sums.tobytes())


def _row(row: Mapping[Id, Any], index: Mapping[Id, int], off: Sequence[int]) -> list[int]:
    found: list[int] = []
    for key, numbers in row.items():
        i = index.get(key, -1)
        if i >= 0:
            first, end = off[i], off[i + 1]
            found += [first + n for n in numbers if 0 <= n < end - first]
    return found


def simple(
    off: Ints,
    class_off: Ints,
    class_topics: Ints,
    class_of: Ints,
    allowed: Ints,
    held_off: Ints,
    held: Ints,
    walk: Ints,
    turn: Ints,
) -> Csr:
    """Return the partitions of each member; a partition can have several.

    `allowed` has the partitions that may be assigned. Member `m` had `held[held_off[m]:held_off[m + 1]]`, and gives
    up partitions in this order. `walk` is the order in which partitions are dealt out; those that it lacks are taken
    from their holders. `turn` orders the entries of `held`: where a partition has too many holders, the first ones
    lose it. Without a `walk`, `allowed` is walked; without a `turn`, the entries are taken as they come."""
    offs, bounds, flat, of = read(off), read(class_off), read(class_topics), read(class_of)
    classes = [flat[bounds[c] : bounds[c + 1]] for c in range(len(bounds) - 1)]
    subscribers: list[list[int]] = [[] for _ in range(len(offs) - 1)]
    for m, c in enumerate(of):
        for t in classes[c]:
            subscribers[t].append(m)
    # Members with one subscription share all partitions. Otherwise each topic is a problem of its own.
    wanted = [t for t, s in enumerate(subscribers) if s]
    problems = [wanted] if len(classes) == 1 else [[t] for t in wanted]
    problem_of = {q: i for i, ts in enumerate(problems) for t in ts for q in range(offs[t], offs[t + 1])}
    order = read(walk) if len(walk) else read(allowed)

    starts, parts = read(held_off), read(held)
    entries = [(m, parts[e]) for m in range(len(of)) for e in range(starts[m], starts[m + 1])]
    there = set(order)
    by_turn = [entries[e] for e in read(turn)] if len(turn) else entries
    may = _split(problem_of, [(q, q) for q in read(allowed)])
    had = _split(problem_of, [(e[1], e) for e in entries if e[1] in there])
    turns = _split(problem_of, [(e[1], e) for e in by_turn if e[1] in there])
    walks = _split(problem_of, [(q, q) for q in order])
    result: list[list[int]] = [[] for _ in of]
    for i, topics in enumerate(problems if of else ()):
        here = Shared(subscribers[topics[0]] if topics else (), may.get(i, ()))
        here.keep(had.get(i, ()), turns.get(i, ()))
        here.deal(walks.get(i, ()))
        for m, mine in here.held.items():
            result[m] += mine
    return _csr(result)


def _split(problem_of: Mapping[int, int], items: Iterable[tuple[int, T]]) -> dict[int, list[T]]:
    """Items by the problem of their partition; those of topics without subscribers are left out."""
    split: dict[int, list[T]] = {}
    for q, item in items:
        if (i := problem_of.get(q)) is not None:
            split.setdefault(i, []).append(item)
    return split


class Shared:
    """Partitions and the members that share them. `sharing`: members per partition; `wanted`: partitions per member,
    which differ by one at most."""

    def __init__(self, members: Sequence[int], allowed: Sequence[int]) -> None:
        n, count = len(members), len(allowed)
        self.sharing = -(-n // count) if count else 0
        each = self.sharing * count / max(n, 1)
        self.wanted = {m: ceil(each * (i + 1)) - ceil(each * i) for i, m in enumerate(members)}
        self.held: dict[int, dict[int, None]] = {m: {} for m in members}
        self.holders: dict[int, set[int]] = {q: set() for q in allowed}

    def keep(self, entries: Sequence[tuple[int, int]], by_turn: Sequence[tuple[int, int]]) -> None:
        """Take over what members had, without what is too much for a member or for a partition."""
        for m, q in entries:
            self.held.setdefault(m, {})[q] = None
            self.holders.setdefault(q, set()).add(m)
        for m, mine in self.held.items():
            for q in list(mine)[: max(0, len(mine) - self.wanted.get(m, 0))]:
                self.holders[q].discard(m)
                del mine[q]
        for m, q in by_turn:
            if len(self.holders[q]) > self.sharing and m in self.holders[q]:
                self.holders[q].discard(m)
                del self.held[m][q]

    def deal(self, order: Sequence[int]) -> None:
        """Give partitions that lack holders to the members that lack partitions, in turns. A partition that every
        such member has already is left with fewer holders. As in Kafka, a member that is asked twice for a partition
        counts twice as its holder."""
        lacking = [m for m, wanted in self.wanted.items() if len(self.held[m]) < wanted]
        left: list[int] = []
        at, gave = 0, False
        for q in order:
            holders = self.holders.get(q, set())
            missing = self.sharing - len(holders) if q in self.holders else 0
            while missing > 0:
                if at == len(lacking):
                    if not gave:
                        break
                    lacking, left, at, gave = left, [], 0, False
                    continue
                m = lacking[at]
                at += 1
                if m not in holders:
                    self.held[m][q] = None
                    missing -= 1
                    gave = True
                if len(self.held[m]) < self.wanted[m]:
                    left.append(m)


def sticky(
    proc_off: Ints,
    proc_members: Ints,
    task_off: Ints,
    stateful: Ints,
    active_off: Ints,
    active: Ints,
    standby_off: Ints,
    standby: Ints,
    hint_off: Ints,
    hint: Ints,
    hint_sums: bytes | bytearray | array[int],
    replicas: int,
) -> tuple[bytearray, bytearray, bytearray, bytearray]:
    """Return the active tasks of each member, and its standby tasks, as (offsets, tasks, offsets, tasks).

    Process `p` has the members `proc_members[proc_off[p]:proc_off[p + 1]]`. A task's number is `task_off[subtopology]
    + partition`; `stateful` has a flag for each subtopology. The next three pairs say what each member has now: its
    active tasks, its standby tasks, and the tasks of whose state it has reported an offset. `hint_sums` has these
    offsets, as 64-bit integers. `replicas`: standby tasks wanted for each task of a stateful subtopology."""
    bounds, flat, offs = read(proc_off), read(proc_members), read(task_off)
    processes = [list(flat[bounds[p] : bounds[p + 1]]) for p in range(len(bounds) - 1)]
    members = len(flat)
    sums = memoryview(hint_sums).cast("B").cast("q")
    run = Sticky(processes, list(offs), list(read(stateful)), replicas)
    starts, tasks = read(active_off), read(active)
    for m in range(members):
        for t in tasks[starts[m] : starts[m + 1]]:
            run.had_active[t] = m
    _candidates(run, members, (read(standby_off), read(standby)), (read(hint_off), read(hint), sums))
    if members:
        run.assign()
    return (*_csr(run.active), *_csr(run.standby))


def _candidates(
    run: Sticky,
    members: int,
    standby: tuple[Sequence[int], Sequence[int]],
    hints: tuple[Sequence[int], Sequence[int], Sequence[int]],
) -> None:
    """Notes in `run` the members that can restore each task soon: those with a standby task first, then by higher
    offset."""
    found: dict[int, list[tuple[int, int, int]]] = {}
    for m in range(members):
        sums = {hints[1][e]: hints[2][e] for e in range(hints[0][m], hints[0][m + 1])}
        mine = standby[1][standby[0][m] : standby[0][m + 1]]
        for t in mine:
            found.setdefault(t, []).append((0, -sums.pop(t, 0), m))
        for t, total in sums.items():
            found.setdefault(t, []).append((1, -total, m))
    run.near = {t: [m for _, _, m in sorted(c, key=lambda x: x[:2])] for t, c in found.items()}


def _csr(by_member: Sequence[Collection[int]]) -> Csr:
    off = array("i", [0])
    for mine in by_member:
        off.append(off[-1] + len(mine))
    return bytearray(off.tobytes()), pack([t for mine in by_member for t in sorted(mine)])
