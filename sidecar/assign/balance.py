"""Uniform assignment for members with different subscriptions (Kafka's UniformHeterogeneousAssignmentBuilder)."""

from __future__ import annotations

from sidecar.core.assignor import GroupSpec

MAX_ROUNDS = 16


class Heterogeneous:
    """Members are indices in the group's order; `owner[topic][partition]` is one of them or -1."""

    def __init__(self, spec: GroupSpec) -> None:
        self.spec = spec
        self.member_ids = list(spec.members)
        self.size = [0] * len(self.member_ids)
        self.subscribers: dict[bytes, list[int]] = {}
        for i, m in enumerate(spec.members.values()):
            for topic in m.topic_ids:
                self.subscribers.setdefault(topic, []).append(i)
        self.owner = {t: [-1] * spec.partitions[t] for t in self.subscribers}

    def build(self) -> dict[str, dict[bytes, tuple[int, ...]]]:
        if not self.subscribers:
            return {}
        self._keep_owned()
        self._assign_rest()
        self._balance()
        result: dict[str, dict[bytes, list[int]]] = {m: {} for m in self.member_ids}
        for topic, owners in self.owner.items():
            for p, i in enumerate(owners):
                result[self.member_ids[i]].setdefault(topic, []).append(p)
        return {m: {t: tuple(ps) for t, ps in mine.items()} for m, mine in result.items()}

    def _keep_owned(self) -> None:
        for i, m in enumerate(self.spec.members.values()):
            wanted = set(m.topic_ids)
            for topic, partitions in m.owned.items():
                if topic in wanted:
                    self.size[i] += len(partitions)
                    for p in partitions:
                        self.owner[topic][p] = i

    def _order(self, topic: bytes) -> tuple[float, int, tuple[int, int]]:
        """Most partitions a subscriber first, then fewest subscribers, then by id as Kafka's signed longs compare."""
        n = len(self.subscribers[topic])
        high = int.from_bytes(topic[:8], "big", signed=True)
        low = int.from_bytes(topic[8:], "big", signed=True)
        return (-(self.spec.partitions[topic] / n), n, (high, low))

    def _assign_rest(self) -> None:
        for topic in sorted(self.subscribers, key=self._order):
            owners = self.owner[topic]
            free = [p for p, i in enumerate(owners) if i == -1]
            if free:
                balancer = _Balancer(self.size, self.subscribers[topic])
                for p in free:
                    owners[p] = i = balancer.next_least()
                    self.size[i] += 1

    def _balance(self) -> None:
        topics = sorted((t for t, s in self.subscribers.items() if len(s) >= 2), key=self._order)
        last = -1
        for _ in range(MAX_ROUNDS):
            for index, topic in enumerate(topics):
                if index == last:
                    return  # one whole round without a move
                if self._balance_topic(topic) > 0 or last == -1:
                    last = index

    def _balance_topic(self, topic: bytes) -> int:
        balancer = _Balancer(self.size, self.subscribers[topic])
        if balancer.imbalance <= 1:
            return 0
        owners = self.owner[topic]
        held: dict[int, list[int]] = {}
        for p, i in enumerate(owners):
            held.setdefault(i, []).append(p)
        moved = 0
        while not balancer.balanced():
            giver = balancer.next_most()
            while giver != -1 and not held.get(giver):
                balancer.exclude_most()
                giver = balancer.next_most()
            if giver == -1:
                break
            p = held[giver].pop()
            taker = balancer.next_least()
            if balancer.balanced():
                break
            owners[p] = taker
            self.size[giver] -= 1
            self.size[taker] += 1
            moved += 1
        return moved


class _Balancer:
    """Two ranges over members sorted by load: the least loaded grows rightwards, the most loaded leftwards."""

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
