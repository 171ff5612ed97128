"""Numbers are shared evenly among tasks."""

from __future__ import annotations

import heapq
import random

from sidecar.audit.lake.spark_tasks import even, falling


def test_each_number_is_in_one_share() -> None:
    rng = random.Random(7)
    for _ in range(500):
        weights = [rng.choice((0, 1, 5, 1_000)) for _ in range(rng.randrange(60))]
        for shares in (falling(weights, rng.randint(1, 9)), even(len(weights), rng.randint(1, 9))):
            assert [i for share in shares for i in share] == list(range(len(weights)))
            assert all(shares) or not weights


def test_shares_are_even() -> None:
    assert [len(share) for share in even(7, 3)] == [2, 2, 3]
    assert [len(share) for share in even(2, 8)] == [1, 1]


def test_processors_end_within_one_weight_of_each_other() -> None:
    for processors in (1, 2, 3, 8):
        for n in (1, 5, 20, 200):
            shares = falling([500] * n, processors)
            busy = [0] * processors  # until when; the next share goes to whoever is free first
            for share in shares:
                heapq.heapreplace(busy, busy[0] + 500 * len(share))
            assert max(busy) - min(busy) <= 500, (processors, n)
            assert len(shares) <= min(n, 2 * processors * (3 + n.bit_length()))


def test_what_weighs_much_is_alone() -> None:
    assert falling([3_000, 500, 500, 500, 500], 2)[0] == range(1)
