"""Heartbeats of placeholders, and what the broker answers."""

from __future__ import annotations

import asyncio

import pytest

from sidecar.wire.apis import Api
from tests.coordinator.seated import (
    hasten,
    joined,
    seat,
)
from tests.inprocess.house import House, run, until


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    hasten(monkeypatch)


@pytest.mark.parametrize("end", ["expel", "take"])
def test_heartbeats_find_out_too(end: str) -> None:
    async def test(house: House) -> None:
        await joined(house)
        await house.seated()
        getattr(seat(house), end)()
        await until(lambda: house.metrics.value("placeholders_lost") == 1)
        await house.seated()
        assert seat(house).state == "Stable"

    run(test, placeholders={"session_timeout_ms": 60})


def test_without_a_lease_no_seat_is_defended() -> None:
    async def test(house: House) -> None:
        await joined(house)
        await house.seated()
        house.service._lease_until_ms = 0
        seat(house).take()
        before = house.brokers.count(Api.JOIN_GROUP)
        await asyncio.sleep(0.1)
        assert house.brokers.count(Api.JOIN_GROUP) == before

    run(test, placeholders={"session_timeout_ms": 60})
