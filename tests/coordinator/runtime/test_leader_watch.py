"""Leaders, and which of them are not followed yet."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from tests.coordinator.runtime.watched import Bench, run, shorten_pauses
from tests.inprocess.broker import OFFSETS
from tests.inprocess.embedded_sidecar import until


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_pauses(monkeypatch)


def test_leaders_come_from_whichever_broker_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a listener of their own the sidecar's clients ask other brokers too, when their own is gone."""

    async def test(b: Bench) -> None:
        await until(lambda: b.sidecar.service.serving() == [0, 1])
        b.brokers.stop(1)
        b.brokers.topics[OFFSETS].leaders[0] = 2
        await until(lambda: b.views()[-1].leaders == (2, 2))

    run(test, monkeypatch, same_listener=False, broker_gone_s=60.0)


def test_a_leader_is_new_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: when a broker came back, groups stood still for up to 9 s behind coordinators that were loading."""

    async def test(b: Bench) -> None:
        await until(lambda: b.sidecar.service.serving() == [0, 1])
        await until(lambda: b.watch.new_leaders() == {1})  # nobody is there; leaders of the start are not new
        b.brokers.topics[OFFSETS].leaders[1] = 1
        await until(lambda: b.watch.offsets_leaders() == (1, 1))
        assert b.watch.new_leaders() == {1}
        await until(lambda: b.watch.new_leaders() == set())

    run(test, monkeypatch, follow_leader_s=0.1)


def test_a_sidecar_that_comes_back_is_new_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: an owner stood still for 13 s. When it woke, it was given its partitions back at once, in the middle of
    the rebalance that its absence had brought about."""

    async def test(b: Bench) -> None:
        await until(lambda: b.sidecar.service.serving() == [0, 1])
        await until(lambda: b.watch.new_leaders() == {1})
        mine = b.watch.ownership.assignment
        for member_id in ("first", "again"):
            b.watch.owners_assigned(replace(mine, members={**mine.members, 2: (member_id, "h", 1)}))
            assert b.watch.new_leaders() == {1}
            joined_s = time.monotonic()
            await until(lambda: b.watch.new_leaders() == set())
            assert time.monotonic() - joined_s >= 0.1
            b.watch.owners_assigned(replace(mine, members={**mine.members, 2: (member_id, "h", 1)}))
            assert b.watch.new_leaders() == set(), "the same member in another generation"

    run(test, monkeypatch, follow_leader_s=0.1)
