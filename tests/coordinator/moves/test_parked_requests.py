"""Requests wait before the core for a limited time, over brokers in memory."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from sidecar.core.runtime.events import DeletionCheck
from sidecar.core.runtime.offset_checks import CommitCheck
from sidecar.core.vocabulary.errors import Code
from sidecar.link.loopback import IN_A_ROW
from tests.coordinator.moves.moving import QUICK, Broker, beats, being_taken_over, classic, run
from tests.inprocess.embedded_sidecar import EmbeddedSidecar, turns, until
from tests.inprocess.messages import join


def test_requests_wait_until_the_broker_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(monkeypatch, classic("n1"))
    broker.silent = True

    async def test(sidecar: EmbeddedSidecar) -> None:
        client, patient = await sidecar.client(), await sidecar.client()
        patient.post(join("g", "m1"), 1)
        assert (await patient.answer(join("g", "m1"), 1)).error_code == Code.COORDINATOR_LOAD_IN_PROGRESS
        client.post(beats("n1", 7), 4)
        await until(lambda: broker.asked > 2)
        broker.silent = False
        assert (await client.answer(beats("n1", 7), 4)).error_code == Code.REBALANCE_IN_PROGRESS

    run(test)


def test_a_takeover_that_does_not_come_is_no_reason_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    Broker(monkeypatch, classic("n1"))

    async def test(sidecar: EmbeddedSidecar) -> None:
        client = await sidecar.client()
        await being_taken_over(sidecar)
        client.post(beats("n1", 7), 4)
        await asyncio.sleep(0.01)
        sidecar.assign(2)
        assert (await client.answer(beats("n1", 7), 4)).error_code == Code.NOT_COORDINATOR

    run(test, service={"hold_ms": 60_000})


def test_who_has_no_lease_does_not_say_that_a_group_is_being_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: a member heard from a cut-off sidecar for ever that all was well, and the next owner removed it. Cause:
    heartbeats that had waited were told COORDINATOR_LOAD_IN_PROGRESS, which for a heartbeat of a classic member is no
    error (scene owner_is_alone_with_its_members)."""
    Broker(monkeypatch, classic("n1"))

    async def test(sidecar: EmbeddedSidecar) -> None:
        client = await sidecar.client()
        await being_taken_over(sidecar)
        client.post(beats("n1", 7), 4)
        assert (await client.answer(beats("n1", 7), 4)).error_code == Code.NONE, "it is being loaded here"
        sidecar.coordinator.service.lease.lost()
        client.post(beats("n1", 7), 4)
        assert (await client.answer(beats("n1", 7), 4)).error_code == Code.NOT_COORDINATOR

    run(test, service={"hold_ms": 200})


def test_more_requests_than_may_wait_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them together, whatever each waits for."""
    Broker(monkeypatch, classic("n1")).silent = True

    async def test(sidecar: EmbeddedSidecar) -> None:
        first, second = await sidecar.client(), await sidecar.client()
        first.post(beats("n1", 7), 4)
        await until(lambda: sidecar.metrics.value("parked") == 1)
        assert (await second.ask(join("other", "m1"), 1)).error_code == Code.COORDINATOR_NOT_AVAILABLE
        assert (await first.answer(beats("n1", 7), 4)).error_code == Code.NONE, "it is being loaded here"
        assert sidecar.metrics.value("parked") == 0

    run(test, moves=replace(QUICK, parked_max=1))


def test_parked_requests_go_on_in_slices_and_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: at a takeover 10,000 parked requests went on in one iteration of the loop, for 3.5 s, and the peers took
    the sidecar for dead. A newer request of a group, or one that is parked anew, overtakes no older one."""
    Broker(monkeypatch, classic("n1"))

    async def test(sidecar: EmbeddedSidecar) -> None:
        moves, count = sidecar.coordinator.moves, 3 * IN_A_ROW
        asked: list[int] = []
        sidecar.service.request = lambda token, event, now: asked.append(token)  # type: ignore[method-assign]
        for i in range(count):
            moves.parked.park(0, i, DeletionCheck(f"g{i % 2}"), 1_000)
        moves._settled["g0"] = moves._settled["g1"] = True
        moves.took_over(0)
        assert not asked
        for slices in range(1, 3):
            await asyncio.sleep(0)
            assert len(asked) == slices * IN_A_ROW
        moves.request(count, DeletionCheck("g0"))
        await being_taken_over(sidecar)
        await turns()
        assert asked == list(range(2 * IN_A_ROW)) and len(moves.parked) == IN_A_ROW + 1
        moves._settled["g0"] = moves._settled["g1"] = True
        moves.took_over(0)
        await turns()
        assert [[t for t in asked if t % 2 == i] for i in (0, 1)] == [
            list(range(0, count + 1, 2)),
            list(range(1, count, 2)),
        ]

    run(test)


def test_commits_that_waited_for_a_placeholder_go_on_in_slices() -> None:
    """Symptom: once a placeholder was there, all commits of its group were checked again in one call."""

    async def test(sidecar: EmbeddedSidecar) -> None:
        checked: list[int] = []
        sidecar.service.request = lambda token, event, now: checked.append(token)  # type: ignore[method-assign]
        for token in range(2 * IN_A_ROW):
            sidecar.coordinator._check_again(token, CommitCheck("g", "m1", 1, None, 9, False, ()))
        sidecar.coordinator.moves._settled["g"] = True
        for slices in range(3):
            assert checked == list(range(slices * IN_A_ROW))
            await asyncio.sleep(0)

    run(test)
