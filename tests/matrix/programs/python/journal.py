"""The options that every member takes, and the JSON lines that every member prints."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
import time
from collections.abc import Iterable
from types import FrameType
from typing import Any

stop = threading.Event()
"""Set when the runner asks the member to close, by SIGTERM."""
_lock = threading.Lock()


def options() -> argparse.Namespace:
    def on_term(signum: int, frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, on_term)
    ap = argparse.ArgumentParser()
    for name in ("bootstrap", "group", "topic", "name"):
        ap.add_argument(f"--{name}", required=True)
    ap.add_argument("--protocol", default="classic")
    ap.add_argument("--assignor", default="range")
    ap.add_argument("--instance", default=None)
    ap.add_argument("--session-ms", type=int, default=10_000)
    ap.add_argument("--heartbeat-ms", type=int, default=1_000)
    return ap.parse_args()


def emit(event: str, **fields: Any) -> None:
    line = json.dumps({"t": int(time.time() * 1000), "e": event, **fields})
    with _lock:
        print(line, flush=True)


def partitions(event: str, found: Iterable[Any]) -> None:
    emit(event, partitions=sorted(p.partition for p in found))


def consumed(partition: int | None, offset: int | None) -> None:
    emit("consumed", partition=partition, offset=offset)


def error(exc: object) -> None:
    emit("error", text=f"{type(exc).__name__}: {exc}" if isinstance(exc, BaseException) else str(exc))
    print(exc, file=sys.stderr, flush=True)
