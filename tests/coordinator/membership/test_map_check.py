"""Two sidecars with one node id (test_roster.py has maps of others)."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from tests.coordinator.membership.test_owners_group import Make, Sidecar, run
from tests.inprocess.broker import FakeBrokers
from tests.inprocess.embedded_sidecar import until


def starts_later(sidecar: Sidecar) -> None:
    info = sidecar.ownership._info
    sidecar.ownership._info = replace(info, started_ms=info.started_ms + 5_000)


@pytest.mark.tier("test")
def test_of_two_sidecars_with_one_node_id_the_one_that_was_started_last_owns() -> None:
    """Symptom: each of the two took the partitions from the other, every second, for ever. Cause: what was assigned to
    a node id was everybody's who had it (S8 of the safety review)."""

    async def test(brokers: FakeBrokers, make: Make) -> None:
        first = make(1)
        await until(lambda: first.owners == (1, 1, 1, 1))
        second = make(1)
        starts_later(second)
        await until(lambda: second.owners == (1, 1, 1, 1))
        await until(lambda: first.owners == (-1, -1, -1, -1))
        assert "another sidecar has this node id; this one owns nothing" in first.lines.events("error")
        assert first.ownership.map_check.double == "127.0.0.1:9092" and second.ownership.map_check.double == ""
        long_after_s = time.monotonic() + 40
        await until(lambda: time.monotonic() > long_after_s)
        assert not first.tasks.failed.done(), "the ports of both stay open"

    run(test)


def test_who_waited_for_a_double_to_go_owns_again() -> None:
    """A sidecar that takes another one's place, and ends before it has."""

    async def test(brokers: FakeBrokers, make: Make) -> None:
        first = make(1)
        await until(lambda: first.owners == (1, 1, 1, 1))
        second = make(1)
        starts_later(second)
        await until(lambda: first.owners == (-1, -1, -1, -1))
        await second.ownership.stop()
        await until(lambda: first.owners == (1, 1, 1, 1))
        assert first.ownership.map_check.double == ""

    run(test)
