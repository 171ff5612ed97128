"""One member of a group: a client's process, and what it says of itself by JSON lines on its standard output.

This file knows the lines and no language. It decides what a member holds: from "assigned" until "revoked" or "lost",
or until it says that it is "closing", or until its process is gone.
"""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sidecar.drill.processes import Process
from tests.matrix.build import Program

CLOSE_S = 25.0


@dataclass
class Span:
    """A partition that a member held, in milliseconds of the clock."""

    member: str
    partition: int
    from_ms: int
    to_ms: int | None = None


@dataclass
class Journal:
    name: str
    version: str = ""
    spans: list[Span] = field(default_factory=list)
    consumed: dict[int, list[int]] = field(default_factory=dict)
    """The offsets of each partition, in the order in which the member saw them."""
    rebalances: int = 0
    """The number of times that the member was told of an assignment or a revocation, an empty one too."""
    errors: list[str] = field(default_factory=list)
    closed: bool = False

    def held(self) -> set[int]:
        return {s.partition for s in self.spans if s.to_ms is None}

    def last(self, partition: int) -> int:
        return max(self.consumed.get(partition, ()), default=-1)

    def add(self, e: dict[str, Any]) -> None:
        kind, at = e.get("e"), int(e.get("t", 0))
        if kind == "consumed":
            self.consumed.setdefault(e["partition"], []).append(e["offset"])
        elif kind == "assigned":
            held = self.held()
            self.rebalances += 1
            self.spans += [Span(self.name, p, at) for p in e["partitions"] if p not in held]
        elif kind in ("revoked", "lost"):
            self.rebalances += 1
            self.release(at, set(e["partitions"]))
        elif kind == "error":
            self.errors.append(str(e.get("text")))
        elif kind == "closing":
            self.release(at)
        elif kind == "closed":
            self.closed = True
        elif kind == "started":
            self.version = str(e.get("version"))

    def release(self, at: int, partitions: set[int] | None = None) -> None:
        for s in self.spans:
            if s.to_ms is None and (partitions is None or s.partition in partitions):
                s.to_ms = at


class Member:
    def __init__(self, name: str, program: Program, options: Sequence[str], folder: Path) -> None:
        self.journal = Journal(name)
        command = [*program.command, *options]
        self.process = Process(name, command, folder / f"{name}.log", program.env, lines=True)
        self.asked = False
        """Whether it was asked to close, or killed; a member that ends before that has failed."""
        self._raw = folder / f"{name}.events"
        self._reader: threading.Thread | None = None

    def start(self) -> Member:
        self.process.start()
        self._reader = threading.Thread(target=self._read, name=f"read-{self.journal.name}", daemon=True)
        self._reader.start()
        return self

    def _read(self) -> None:
        with self._raw.open("a") as out:
            for line in self.process.stdout:
                out.write(line)
                if not line.startswith("{"):
                    continue
                try:
                    self.journal.add(json.loads(line))
                except (ValueError, KeyError, TypeError) as exc:
                    self.journal.errors.append(f"a line that is no event ({exc}): {line.strip()[:120]}")

    def close(self) -> None:
        """Ask the member to close, and wait until it has; what does not close in time is killed."""
        self.asked = True
        self.process.stop(timeout_s=CLOSE_S)
        self._ended()

    def kill(self) -> None:
        self.asked = True
        self.process.kill()
        self._ended()

    def _ended(self) -> None:
        if self._reader is not None:
            self._reader.join(timeout=5)
        self.journal.release(int(time.time() * 1000))


def held_twice(journals: Iterable[Journal]) -> list[str]:
    """List the partitions that two members held at the same time, by their own account."""
    by_partition: dict[int, list[Span]] = {}
    for j in journals:
        for s in j.spans:
            by_partition.setdefault(s.partition, []).append(s)
    found = []
    for p, spans in sorted(by_partition.items()):
        spans.sort(key=lambda s: s.from_ms)
        for a, b in itertools.pairwise(spans):
            if a.member != b.member and (a.to_ms is None or a.to_ms > b.from_ms):
                over = "still" if a.to_ms is None else f"for {a.to_ms - b.from_ms} ms more"
                found.append(f"partition {p}: {b.member} had it while {a.member} had it {over}")
    return found


def missing(ends: dict[int, int], journals: Iterable[Journal]) -> int:
    """Count the records below the produced ends that no member has consumed."""
    seen: dict[int, set[int]] = {}
    for j in journals:
        for p, offsets in j.consumed.items():
            seen.setdefault(p, set()).update(offsets)
    return sum(end - sum(o < end for o in seen.get(p, ())) for p, end in ends.items())


def repeated(journals: Iterable[Journal]) -> int:
    """Count the records that were consumed more than once."""
    counts: dict[int, list[int]] = {}
    for j in journals:
        for p, offsets in j.consumed.items():
            counts.setdefault(p, []).extend(offsets)
    return sum(len(offsets) - len(set(offsets)) for offsets in counts.values())
