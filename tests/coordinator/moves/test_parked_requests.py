"""Requests wait before the core for a limited time, over brokers in memory."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from sidecar.core.vocabulary.errors import Code
from tests.coordinator.moves.moving import QUICK, Broker, beats, being_taken_over, classic, run
from tests.inprocess.embedded_sidecar import EmbeddedSidecar, until
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
