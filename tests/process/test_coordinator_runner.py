"""The runner keeps the coordinator: whatever ends it, ports stay open, and the runner reports why there is none."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sidecar.coordinator.statelog.startup_errors import StartError
from sidecar.kafka.cluster import Cluster
from sidecar.kafka.security import PLAINTEXT
from sidecar.process import coordination as module
from sidecar.process.coordination import CoordinatorRunner, Means
from sidecar.process.settings import Settings
from sidecar.process.shared import Shared
from sidecar.process.unix_link import _bind
from tests.inprocess import clock
from tests.inprocess.embedded_sidecar import Counted, Lines, until

TWO = "broker b:1 is of cluster one, and bootstrap b:2 of cluster other. Both must lead to one cluster"


class CoordinatorLink:
    """To a coordinator that never comes."""

    def lose(self) -> None:
        """Does nothing: nothing was granted."""


def runner_with(environment: SimpleNamespace) -> tuple[CoordinatorRunner, Lines, Counted]:
    needed = {"listen": "127.0.0.1:1", "broker": "127.0.0.1:2", "bootstrap": "b:2", "node_id": 1}
    lines, metrics = Lines(), Counted()
    credentials = SimpleNamespace(own=PLAINTEXT, broker=PLAINTEXT)
    app = SimpleNamespace(
        log=lines, metrics=metrics, tasks=SimpleNamespace(), credentials=credentials, environment=environment
    )
    link = cast(Any, CoordinatorLink())
    settings = Settings.model_validate(needed)
    runner = CoordinatorRunner(settings, cast(Shared, app), cast(Means, None), Cluster([], "c", {}), link)
    return runner, lines, metrics


def test_why_there_is_no_coordinator_is_told_until_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with `broker` and `bootstrap` of two clusters, which no time heals."""
    asked = asyncio.Event()
    goes_on = asyncio.Event()
    collected: list[object] = []
    runners: list[CoordinatorRunner] = []

    async def broker_answers(*given: Any) -> None:
        """The broker is there."""

    async def two_clusters(*given: Any) -> None:
        asked.set()
        await goes_on.wait()
        raise StartError(TWO)

    async def test() -> None:
        environment = SimpleNamespace(ended=lambda: collected.append(runners[0]._tasks))
        runner, lines, metrics = runner_with(environment)
        runners.append(runner)
        work = asyncio.get_running_loop().create_task(runner.rounds())
        await asked.wait()
        goes_on.set()
        await until(lambda: metrics.value("coordinator_ends", "start") == 1)
        assert collected == [None], "its supervisor holds the exception that has ended it, and with it the coordinator"
        assert runner.half.problems() == [f"no coordinator runs; the next one starts in 1 s: {TWO}"]
        assert lines.fields("the coordinator has ended and is started again; ports stay open")["problem"] == TWO
        goes_on.clear()
        asked.clear()
        await asked.wait()
        assert runner.half.problems() == [f"a coordinator starts; the one before: {TWO}"]
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)

    monkeypatch.setattr(module, "find_broker", broker_answers)
    monkeypatch.setattr(module, "one_cluster", two_clusters)
    clock.run(test())


def test_a_coordinator_whose_link_is_taken_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: a coordinator that was started before the one in its place had ended was never started again. The error
    for a taken `link` was of a kind without a cause in the table of metrics, and that ended the runner."""
    tries: list[Path] = []

    async def test() -> None:
        runner, _, metrics = runner_with(SimpleNamespace(ended=lambda: None))
        work = asyncio.get_running_loop().create_task(runner.rounds())
        await until(lambda: len(tries) == 2 or work.done())
        assert not work.done(), work.exception()
        assert metrics.value("coordinator_ends", "start") >= 1
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)

    async def link_taken(*given: Any) -> None:
        tries.append(tmp_path)
        _bind(tmp_path / "link")

    monkeypatch.setattr(module, "find_broker", link_taken)
    with socket.socket(socket.AF_UNIX) as former:
        former.bind(str(tmp_path / "link"))
        former.listen()
        clock.run(test())
