"""A partition stays with its owner for a while, where a group of it is in the middle of a rebalance."""

from __future__ import annotations

import time
from functools import partial

import pytest

from sidecar.coordinator.membership.owners_protocol import barriers_of
from tests.coordinator.membership.test_owners_group import BOTH, Make, agree, run
from tests.inprocess.broker import OFFSETS, FakeBrokers
from tests.inprocess.embedded_sidecar import until

pytestmark = pytest.mark.tier("test")


def is_past(moment_s: float) -> bool:
    return time.monotonic() >= moment_s


def test_a_partition_with_a_group_in_a_rebalance_moves_when_that_is_over_or_has_taken_too_long() -> None:
    """Symptom: an owner came back, and its partitions were moved in the middle of a rebalance, which began anew."""

    async def test(brokers: FakeBrokers, make: Make) -> None:
        one, two = make(1), make(2)
        await agree(one, two)
        brokers.topics[OFFSETS].leaders[:] = [2, 2, 2, 2]
        one.waiting = {0, 2}

        async def placed(for_s: float) -> None:
            """As the leaders are looked at again and again."""
            begun_s = time.monotonic()
            for step in range(int(2 * for_s)):
                for sidecar in (one, two):
                    sidecar.ownership.placement_changed()
                await until(partial(is_past, begun_s + step / 2))
                await until(lambda: one.group.stable and one.owners == two.owners)

        generation = one.assigned[-1].generation
        await placed(6.0)
        assert one.owners == BOTH
        assert one.assigned[-1].generation - generation <= 4, "they are not asked all the time"
        one.waiting = {2}
        await placed(5.0)
        assert one.owners == (2, 2, 1, 2)
        await placed(30.0)
        assert one.owners == (2, 2, 2, 2)
        said = [s.lines.fields("a partition moves during a rebalance") for s in (one, two) if s.ownership.is_leader]
        assert said == [{"partition": 2, "waited_s": 30.0}]

    run(test)


def test_a_partition_whose_owner_is_gone_waits_for_no_rebalance() -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        one, two = make(1), make(2)
        await agree(one, two)
        one.waiting = two.waiting = {0, 1, 2, 3}
        await two.ownership.stop()
        await until(lambda: one.owners == (1, 1, 1, 1))

    run(test)


@pytest.mark.parametrize(
    "raw", [b"", b"[]", b"{", b'{"barriers": 7}', b'{"barriers": ["x"]}', b'{"barriers": [1e999]}']
)
def test_what_a_stranger_says_of_rebalances_holds_nothing_up(raw: bytes) -> None:
    assert barriers_of(raw) == frozenset()
    assert barriers_of(b'{"barriers": [1, 2]}') == {1, 2}
    assert barriers_of(b'{"barriers": [1]' + b" " * (1 << 20) + b"}") == frozenset(), "and it is short"
