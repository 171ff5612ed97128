"""Pauses are short: on virtual time they cost nothing, but many turns of the loop."""

from __future__ import annotations

import pytest

from sidecar.coordinator.moves import adoption, release
from sidecar.coordinator.placeholder import broker_membership as membership
from sidecar.coordinator.placeholder import placeholders


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adoption, "PAUSE_S", 0.005)
    monkeypatch.setattr(release, "PAUSE_S", 0.005)
    monkeypatch.setattr(membership, "EARLY_S", 0.005)
    monkeypatch.setattr(placeholders, "PAUSE_MS", 5)
    monkeypatch.setattr(placeholders, "PAUSE_MAX_MS", 20)
