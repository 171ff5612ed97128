"""The memory that clients can make a sidecar take, by its default limits, is less than its surroundings allow it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from sidecar.front.reads import LITTLE_BYTES
from sidecar.process.limits import LimitsSection

ALONE_MB, SILENT_KB, LARGE_MIB = 84, 7.5, 17
"""Memory of a sidecar without clients, and of a silent connection (benchmarks/capacity.py); of a large request while
its handler works or waits (front/large.py)."""
UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def parts() -> dict[str, float]:
    """Bytes."""
    s = LimitsSection.model_validate({})
    return {
        "without clients": ALONE_MB * 1e6,
        "`connections`, 7.5 kB each": s.connections * SILENT_KB * 1e3,
        "a short read from each client and each broker's connection, 8 KiB": s.connections * 2 * LITTLE_BYTES,
        "`queued_bytes`": s.queued_bytes,
        "`all_unread_bytes`": s.all_unread_bytes,
        "`members_bytes`": s.members_bytes,
        "`remembered_bytes`": s.remembered_bytes,
        "`large_requests`, 17 MiB each": s.large_requests * LARGE_MIB << 20,
        "`parked_large_requests`, 17 MiB each": s.parked_large_requests * LARGE_MIB << 20,
    }


def size(text: str) -> int:
    found = re.fullmatch(r"(\d+)([kmg]?)i?", text.lower())
    assert found is not None, text
    return int(found[1]) * UNITS[found[2]]


def allowed(root: Path) -> dict[str, int]:
    unit = (root / "deploy/systemd/kafka-group-sidecar.service").read_text()
    values = yaml.safe_load((root / "deploy/helm/kafka-group-sidecar/values.yaml").read_text())
    compose = yaml.safe_load((root / "docker-compose.yml").read_text())
    return {
        "MemoryHigh": size(re.findall(r"^MemoryHigh=(\S+)", unit, re.MULTILINE)[0]),
        "MemoryMax": size(re.findall(r"^MemoryMax=(\S+)", unit, re.MULTILINE)[0]),
        "chart": size(values["sidecar"]["resources"]["limits"]["memory"]),
        "compose": size(compose["x-sidecar"]["mem_limit"]),
    }


@pytest.mark.parametrize("where", ["MemoryHigh", "MemoryMax", "chart", "compose"])
def test_the_defaults_leave_a_sidecar_below_what_it_may_take(root: Path, where: str) -> None:
    """Symptom: 10,000 connections could take 3.3 GiB, and the kernel ended the sidecar at 1 GiB."""
    assert sum(parts().values()) <= allowed(root)[where]


def test_the_page_has_the_same_sum(root: Path) -> None:
    page = (root / "docs/operate/operations.md").read_text().partition("### The most memory")[2]
    rows = dict(re.findall(r"^\| (.+?) \| \**(\d+)\** \|$", page.partition("\n### ")[0], re.MULTILINE))
    total = rows.pop("**all**")
    assert rows == {what: f"{n / 1e6:.0f}" for what, n in parts().items()}
    assert total == f"{sum(parts().values()) / 1e6:.0f}"
