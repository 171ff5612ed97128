"""Runs a command, and measures how long it took, when it printed what, and the memory and time of its processes."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import psutil

EVERY_S = 0.2


@dataclass
class Watched:
    """`peak_mb`: resident memory, and `cpu_s`: processor time, by part: the Python driver (the command itself), the
    driver's JVM, and the Python workers together. Pages that forked workers share count for each of them."""

    seconds: float = 0.0
    code: int = 0
    out: str = ""
    stderr: list[tuple[float, str]] = field(default_factory=list)
    """The lines of stderr, each with the second at which it came."""
    peak_mb: dict[str, int] = field(default_factory=dict)
    cpu_s: dict[str, float] = field(default_factory=dict)

    def when(self, text: str) -> float:
        """Returns when a line with this text came. Raises LookupError if none did."""
        for at, line in self.stderr:
            if text in line:
                return at
        raise LookupError(f"the command did not say {text!r}")


def _part(process: psutil.Process, root: int) -> str:
    if process.pid == root:
        return "driver_python"
    return "driver_jvm" if "java" in process.name() else "workers"


class _Sampler:
    def __init__(self, root: int) -> None:
        self.root = psutil.Process(root)
        self.peak: dict[str, int] = {}
        self.cpu: dict[int, tuple[str, float]] = {}

    def look(self) -> None:
        now: dict[str, int] = {}
        largest = 0
        try:
            processes = [self.root, *self.root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        for process in processes:
            try:
                part = _part(process, self.root.pid)
                rss = process.memory_info().rss
                times = process.cpu_times()
            except (psutil.NoSuchProcess, psutil.ZombieProcess):
                continue
            now[part] = now.get(part, 0) + rss
            largest = max(largest, rss if part == "workers" else 0)
            self.cpu[process.pid] = (part, times.user + times.system)
        for part, rss in {**now, "largest_worker": largest, "all": sum(now.values())}.items():
            self.peak[part] = max(self.peak.get(part, 0), rss)

    def cpu_s(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for part, seconds in self.cpu.values():
            found[part] = round(found.get(part, 0.0) + seconds, 1)
        return found


def watched(
    command: Sequence[str],
    env: Mapping[str, str] | None = None,
    echo: str = "",
) -> Watched:
    """`echo`: shown before each line of the command's stderr, if not empty."""
    import sys

    run = Watched()
    begin = time.monotonic()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})}
    )

    def listen(lines: Iterable[str]) -> None:
        for line in lines:
            run.stderr.append((time.monotonic() - begin, line.rstrip("\n")))
            if echo:
                print(f"{echo}: {line}", end="", file=sys.stderr, flush=True)

    assert process.stdout is not None and process.stderr is not None
    parts: list[str] = []
    listeners = [
        threading.Thread(target=listen, args=(process.stderr,)),
        threading.Thread(target=parts.extend, args=(process.stdout,)),
    ]
    for thread in listeners:
        thread.start()
    sampler = _Sampler(process.pid)
    while process.poll() is None:
        sampler.look()
        try:
            process.wait(EVERY_S)
        except subprocess.TimeoutExpired:
            continue
    run.seconds, run.code = time.monotonic() - begin, process.returncode
    for thread in listeners:
        thread.join(10)
    run.out = "".join(parts)
    run.peak_mb = {part: rss >> 20 for part, rss in sampler.peak.items()}
    run.cpu_s = sampler.cpu_s()
    return run
