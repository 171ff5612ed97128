"""Heartbeats of placeholders, and what the broker answers."""

from __future__ import annotations

import asyncio

import pytest

from sidecar.wire.apis import Api
from tests.coordinator.joined import (
    identity,
    joined,
    shorten_pauses,
)
from tests.inprocess.embedded_sidecar import EmbeddedSidecar, run, until


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_pauses(monkeypatch)


@pytest.mark.parametrize("end", ["expel", "take"])
def test_heartbeats_find_out_too(end: str) -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        await joined(sidecar)
        await sidecar.all_joined()
        getattr(identity(sidecar), end)()
        await until(lambda: sidecar.metrics.value("placeholders_lost") == 1)
        await sidecar.all_joined()
        assert identity(sidecar).state == "Stable"

    run(test, placeholders={"session_timeout_ms": 60})


def test_without_a_lease_no_placeholder_is_defended() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        await joined(sidecar)
        await sidecar.all_joined()
        sidecar.service.lease.lost()
        identity(sidecar).take()
        before = sidecar.brokers.count(Api.JOIN_GROUP)
        await asyncio.sleep(0.1)
        assert sidecar.brokers.count(Api.JOIN_GROUP) == before

    run(test, placeholders={"session_timeout_ms": 60})
