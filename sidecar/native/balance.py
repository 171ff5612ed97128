"""Uniform assignment for members with different subscriptions (Kafka's UniformHeterogeneousAssignmentBuilder)."""

from __future__ import annotations

from collections.abc import Sequence

MAX_ROUNDS = 16


class Heterogeneous:
    """Topics and members are given by their indices, and `owner` by global partition number."""

    def __init__(
        self,
        off: Sequence[int],
        id_rank: Sequence[int],
        classes: Sequence[Sequence[int]],
        class_of: Sequence[int],
        owner: list[int],
    ) -> None:
        self.off = off
        self.id_rank = id_rank
        self.owner = owner
        self.size = [0] * len(class_of)
        self.wanted = [set(classes[c]) for c in class_of]
        self.subscribers: list[list[int]] = [[] for _ in range(len(off) - 1)]
        for m, c in enumerate(class_of):
            for t in classes[c]:
                self.subscribers[t].append(m)

    def build(self) -> list[int]:
        self._keep_owned()
        self._assign_rest()
        self._balance()
        return self.owner

    def _keep_owned(self) -> None:
        for t in range(len(self.off) - 1):
            for q in range(self.off[t], self.off[t + 1]):
                m = self.owner[q]
                if m >= 0 and t in self.wanted[m]:
                    self.size[m] += 1
                else:
                    self.owner[q] = -1

    def _order(self, t: int) -> tuple[float, int, int]:
        """Sort key: most partitions per subscriber first, then fewest subscribers, then the topic's id."""
        n = len(self.subscribers[t])
        return (-((self.off[t + 1] - self.off[t]) / n), n, self.id_rank[t])

    def _assign_rest(self) -> None:
        for t in sorted((t for t, s in enumerate(self.subscribers) if s), key=self._order):
            free = [q for q in range(self.off[t], self.off[t + 1]) if self.owner[q] == -1]
            if free:
                balancer = _Balancer(self.size, self.subscribers[t])
                for q in free:
                    self.owner[q] = m = balancer.next_least()
                    self.size[m] += 1

    def _balance(self) -> None:
        topics = sorted((t for t, s in enumerate(self.subscribers) if len(s) >= 2), key=self._order)
        last = -1
        for _ in range(MAX_ROUNDS):
            for index, t in enumerate(topics):
                if index == last:
                    return  # a whole round passed without a move
                if self._balance_topic(t) > 0 or last == -1:
                    last = index

    def _balance_topic(self, t: int) -> int:
        balancer = _Balancer(self.size, self.subscribers[t])
        if balancer.imbalance <= 1:
            return 0
        held: dict[int, list[int]] = {}
        for q in range(self.off[t], self.off[t + 1]):
            held.setdefault(self.owner[q], []).append(q)
        moved = 0
        while not balancer.balanced():
            giver = balancer.next_most()
            while giver != -1 and not held.get(giver):
                balancer.exclude_most()
                giver = balancer.next_most()
            if giver == -1:
                break
            q = held[giver].pop()
            taker = balancer.next_least()
            if balancer.balanced():
                break
            self.owner[q] = taker
            self.size[giver] -= 1
            self.size[taker] += 1
            moved += 1
        return moved


class _Balancer:
    """Two ranges over the members sorted by load: that of the least loaded grows to the right, that of the most
    loaded to the left."""

    def __init__(self, size: list[int], members: list[int]) -> None:
        self.size = size
        self.sorted = sorted(members, key=lambda i: (size[i], i))
        n = len(self.sorted)
        low, high = size[self.sorted[0]], size[self.sorted[-1]]
        self.imbalance = high - low
        self.least_end, self.least_count, self.next_l = 0, low - 1, 0
        self.most_start, self.most_end, self.most_count, self.next_m = n, n, high + 1, n - 1

    def next_least(self) -> int:
        if self.next_l >= self.least_end:
            self.least_count += 1
            while self.least_end < len(self.sorted) and self.size[self.sorted[self.least_end]] == self.least_count:
                self.least_end += 1
            self.next_l = 0
        i = self.sorted[self.next_l]
        self.next_l += 1
        return i

    def next_most(self) -> int:
        if self.next_m < self.most_start:
            if self.most_end <= self.most_start and self.most_start > 0:
                self.most_count = self.size[self.sorted[self.most_start - 1]]
            else:
                self.most_count -= 1
            while self.most_start > 0 and self.size[self.sorted[self.most_start - 1]] == self.most_count:
                self.most_start -= 1
            self.next_m = self.most_end - 1
        if self.next_m < 0:
            return -1
        i = self.sorted[self.next_m]
        self.next_m -= 1
        return i

    def exclude_most(self) -> None:
        at, end = self.next_m + 1, self.most_end - 1
        self.sorted[at], self.sorted[end] = self.sorted[end], self.sorted[at]
        self.most_end -= 1

    def balanced(self) -> bool:
        return self.most_count - self.least_count <= 1
