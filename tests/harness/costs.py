"""Measures a run of the tests: wall time and processor time by folder, the most expensive tests, starts of brokers.

Processor time is that of the process which runs the test and of everything that it has started: brokers, sidecars,
clients. Brokers that a command under test starts itself (`sidecar drill`) are in the processor time, but not in the
starts.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.harness.tiers import without_group

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SHOWN = 15
OUT = Path("out/costs.tsv")
"""CPU s, wall s and name of each test of the last run."""
starts: Counter[str] = Counter()


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children") as f:
                found += map(int, f.read().split())
    except OSError:  # it has ended
        pass
    return found


def cpu_s() -> float:
    """Returns the processor time of this process and its descendants, in seconds."""
    ticks, todo = 0, [os.getpid()]
    while todo:
        pid = todo.pop()
        try:
            with open(f"/proc/{pid}/stat") as f:
                ticks += sum(map(int, f.read().rpartition(")")[2].split()[11:15]))
        except OSError:  # it has ended, and its parent counts it
            continue
        todo += _children(pid)
    return ticks / TICKS_PER_S


def _count_starts() -> None:
    from sidecar.drill.processes import Process

    start = Process.start

    def counted(self: Process) -> Process:
        command = " ".join(self.command)
        kind = "brokers" if "kafka.Kafka " in command else "sidecars" if command.endswith(" run") else ""
        kind = kind or ("other JVMs" if "java" in self.command[0] else "other processes")
        starts[kind] += 1
        return start(self)

    Process.start = counted  # type: ignore[method-assign]


class Costs:
    """A plugin that collects the reports of all tests, also those that come from workers of xdist."""

    def __init__(self) -> None:
        self.wall_s: dict[str, float] = defaultdict(float)
        self.cpu_s: dict[str, float] = defaultdict(float)
        self.starts: Counter[str] = Counter()
        self.brokers: Counter[str] = Counter()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = without_group(report.nodeid)
        self.wall_s[test] += report.duration
        self.cpu_s[test] += getattr(report, "cpu_s", 0.0)
        for what, n in getattr(report, "starts", {}).items():
            self.starts[what] += n
            if what == "brokers":
                self.brokers[test] += n

    def lines(self) -> Iterable[str]:
        folders: dict[str, list[float]] = defaultdict(lambda: [0, 0.0, 0.0])
        for test, wall_s in self.wall_s.items():
            row = folders["/".join(test.split("/")[:2])]
            row[0] += 1
            row[1] += wall_s
            row[2] += self.cpu_s[test]
        yield f"{'folder':24}{'tests':>7}{'wall s':>9}{'CPU s':>9}"
        for name, (n, wall_s, used_s) in sorted(folders.items(), key=lambda f: -f[1][2]):
            yield f"{name:24}{n:7.0f}{wall_s:9.1f}{used_s:9.1f}"
        yield f"{'all':24}{len(self.wall_s):7}{sum(self.wall_s.values()):9.1f}{sum(self.cpu_s.values()):9.1f}"
        yield "started: " + (", ".join(f"{n} {what}" for what, n in sorted(self.starts.items())) or "nothing")
        for test, n in self.brokers.items():
            yield f"{n:8} brokers: {test}"
        yield f"the {SHOWN} most expensive tests:"
        for test in sorted(self.cpu_s, key=lambda t: -self.cpu_s[t])[:SHOWN]:
            yield f"{self.wall_s[test]:8.1f} s{self.cpu_s[test]:8.1f} CPU s  {test}"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if len(self.wall_s) > SHOWN:
            terminalreporter.section("costs")
            for line in self.lines():
                terminalreporter.line(line)
            OUT.parent.mkdir(exist_ok=True)
            rows = (f"{self.cpu_s[t]:.2f}\t{wall_s:.2f}\t{t}\n" for t, wall_s in self.wall_s.items())
            OUT.write_text("".join(sorted(rows, key=lambda row: -float(row.split("\t")[0]))))
            terminalreporter.line(f"every test: {OUT}")


class Meter:
    """A plugin that gives the last report of each test what the test has used and started. To look takes a while where
    brokers run, as each thread of theirs is asked for its children."""

    def __init__(self) -> None:
        self._cpu_s = cpu_s()
        self._starts: Counter[str] = Counter()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Any:
        report = yield
        if report.when != "teardown":
            return report
        now_s = cpu_s()
        report.cpu_s = max(0.0, now_s - self._cpu_s)
        report.starts = dict(starts - self._starts)
        self._cpu_s, self._starts = now_s, Counter(starts)
        return report


def pytest_configure(config: pytest.Config) -> None:
    _count_starts()
    config.pluginmanager.register(Costs())
    config.pluginmanager.register(Meter())
