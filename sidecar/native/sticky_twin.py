"""Sticky assignment of tasks (Kafka 4.4.0's StickyTaskAssignor) on indices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Heap(Generic[T]):
    """java.util.PriorityQueue: among equals, the order is that of its binary heap."""

    def __init__(self, key: Callable[[T], float], items: Iterable[T]) -> None:
        self.key = key
        self.items: list[T] = []
        for item in items:
            self.add(item)

    def add(self, item: T) -> None:
        items, key = self.items, self.key(item)
        items.append(item)
        at = len(items) - 1
        while at > 0 and key < self.key(items[parent := (at - 1) >> 1]):
            items[at] = items[parent]
            at = parent
        items[at] = item

    def poll(self) -> T:
        """The heap has an item."""
        items = self.items
        first, last = items[0], items.pop()
        if not items:
            return first
        at, key = 0, self.key(last)
        while (child := 2 * at + 1) < len(items):
            if child + 1 < len(items) and self.key(items[child]) > self.key(items[child + 1]):
                child += 1
            if key <= self.key(items[child]):
                break
            items[at] = items[child]
            at = child
        items[at] = last
        return first


class Quota:
    """Tasks per member. A member that reaches it is taken out, and the quota of the others is computed again."""

    def __init__(self, tasks: int, members: int) -> None:
        self.tasks, self.members = tasks, members
        self.each = -(-tasks // members) if members else 0

    def reached(self, count: int) -> None:
        if count == self.each:
            self.members -= 1
            self.tasks -= count
            self.each = -(-self.tasks // self.members) if self.members else 0


class Sticky:
    """One run. `had_active`: task -> the member that has it active; `near`: task -> members with some of its state."""

    def __init__(self, processes: list[list[int]], off: list[int], stateful: list[int], replicas: int) -> None:
        self.processes, self.replicas = processes, replicas
        members = sum(map(len, processes))
        self.process_of = {m: p for p, mine in enumerate(processes) for m in mine}
        self.active: list[list[int]] = [[] for _ in range(members)]
        self.standby: list[list[int]] = [[] for _ in range(members)]
        self.tasks = [0] * len(processes)
        self.count = [0] * members
        self.by_load: list[Heap[int] | None] = [None] * len(processes)
        """Members of each process by their number of tasks, if these did not change since."""
        self.holders: list[set[int]] = [set() for _ in range(off[-1])]
        """Processes that have the task in a role."""
        self.had_active: dict[int, int] = {}
        self.near: dict[int, list[int]] = {}
        self.partition = [t - off[s] for s in range(len(off) - 1) for t in range(off[s], off[s + 1])]
        self.stateful = [bool(stateful[s]) for s in range(len(off) - 1) for _ in range(off[s], off[s + 1])]
        self.of_active = Quota(off[-1], members)
        self.of_all = Quota(off[-1] + replicas * sum(self.stateful), members)

    def assign(self) -> None:
        by_partition = sorted(range(len(self.holders)), key=self.partition.__getitem__)
        rest = list(self._to_former(self._to_active(by_partition)))
        queue = self._queue()
        for task in sorted(rest):
            self._to_least(queue, task)
        if self.replicas:
            self._standbys([t for t in reversed(by_partition) if self.stateful[t]])

    def _to_active(self, tasks: Iterable[int]) -> list[int]:
        rest = []
        for task in tasks:
            m = self.had_active.get(task)
            if m is not None and self.count[m] < self.of_active.each:
                self._give(m, task, self.active)
            else:
                rest.append(task)
        return rest

    def _to_former(self, tasks: Iterable[int]) -> Iterator[int]:
        for task in tasks:
            m = self._least(self.near.get(task, ()), None)
            if m is not None and self.count[m] < self.of_active.each:
                self._give(m, task, self.active)
            else:
                yield task

    def _to_least(self, queue: Heap[int], task: int) -> None:
        p = queue.poll()
        self._give_least(p, task, self.active)
        queue.add(p)

    def _load(self, p: int) -> float:
        return self.tasks[p] / len(self.processes[p])

    def _queue(self) -> Heap[int]:
        return Heap(self._load, (p for p, mine in enumerate(self.processes) if mine))

    def _least(self, members: Iterable[int], standby: int | None) -> int | None:
        """The first of these members, or a later one if its process and itself have less to do. With a standby task
        for whom that is asked, processes that have the task do not count."""
        found, load, count = None, 0.0, 0
        for m in members:
            p = self.process_of[m]
            if standby is not None and p in self.holders[standby]:
                continue
            if found is None or (self._load(p) < load and self.count[m] < count):
                found, load, count = m, self._load(p), self.count[m]
        return found

    def _give(self, m: int, task: int, role: list[list[int]]) -> None:
        self._count(m, task, role)
        self.by_load[self.process_of[m]] = None

    def _count(self, m: int, task: int, role: list[list[int]]) -> None:
        p = self.process_of[m]
        self.tasks[p] += 1
        self.holders[task].add(p)
        role[m].append(task)
        self.count[m] += 1
        if role is self.active:
            self.of_active.reached(self.count[m])
        self.of_all.reached(self.count[m])

    def _give_least(self, p: int, task: int, role: list[list[int]]) -> None:
        heap = self.by_load[p]
        if heap is None:
            heap = self.by_load[p] = Heap(self.count.__getitem__, self.processes[p])
        m = heap.poll()
        self._count(m, task, role)
        heap.add(m)

    def _standbys(self, tasks: list[int]) -> None:
        left: dict[int, int] = {}
        for task in tasks:
            for i in range(self.replicas):
                m = self._restored(task)
                if m is None:
                    left[task] = self.replicas - i
                    break
                self._give(m, task, self.standby)
        queue = self._queue()
        for task in sorted(left, reverse=True):
            for _ in range(left[task]):
                if not self._standby_to_least(queue, task):
                    break  # as many as there are processes

    def _restored(self, task: int) -> int | None:
        """The member that has most of the task's state, in a process that has not got the task yet."""
        m = self.had_active.get(task)
        if m is not None and self.process_of[m] not in self.holders[task] and self.count[m] < self.of_all.each:
            return m
        m = self._least(self.near.get(task, ()), task)
        return m if m is not None and self.count[m] < self.of_all.each else None

    def _standby_to_least(self, queue: Heap[int], task: int) -> bool:
        passed = []
        placed = False
        while queue.items and not placed:
            p = queue.poll()
            passed.append(p)
            if p not in self.holders[task]:
                self._give_least(p, task, self.standby)
                placed = True
        for p in reversed(passed):
            queue.add(p)
        return placed
