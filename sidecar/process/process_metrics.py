"""Metrics about the process itself, and writing metrics out in slices."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

from sidecar.link.ports import Figures
from sidecar.native import COMPILED
from sidecar.process.settings import Settings
from sidecar.process.version import package_version

KERNEL = "compiled" if COMPILED else "python"
SLICE_S = 0.001


def set_process_metrics(figures: Figures, s: Settings, ready: Callable[[], bool]) -> None:
    figures("build", package_version(), KERNEL).set(1)
    figures("ready").set_function(lambda: float(ready()))
    of_kinds = {"consumer": s.consumer.assignors, "share": s.share.assignors, "streams": s.streams.assignors}
    assignors = (a for kind, names in of_kinds.items() if kind in s.groups.kinds for a in names)
    for assignor in dict.fromkeys(assignors):
        for name in ("assignments", "assignor_failures", "partitions_moved"):
            figures(name, assignor)
    figures("commits", "accepted")
    figures("limit", "connections").set(s.limits.connections)
    figures("limit", "parked_replies").set(s.limits.parked_replies)


async def in_slices(parts: Iterable[bytes]) -> bytes:
    """Joins the parts, with pauses for other work."""
    text, until = bytearray(), time.perf_counter() + SLICE_S
    for part in parts:
        text += part
        if time.perf_counter() > until:
            await asyncio.sleep(0)
            until = time.perf_counter() + SLICE_S
    return bytes(text)
