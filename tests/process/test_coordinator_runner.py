"""The runner keeps the coordinator: whatever ends it, ports stay open, and the runner reports why there is none."""

from __future__ import annotations

import asyncio
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
from tests.inprocess import clock
from tests.inprocess.embedded_sidecar import Counted, Lines, until

TWO = "broker b:1 is of cluster one, and bootstrap b:2 of cluster other. Both must lead to one cluster"


class CoordinatorLink:
    """To a coordinator that never comes."""

    def lose(self) -> None:
        """Does nothing: nothing was granted."""


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
        needed = {"listen": "127.0.0.1:1", "broker": "127.0.0.1:2", "bootstrap": "b:2", "node_id": 1}
        lines, metrics = Lines(), Counted()
        credentials = SimpleNamespace(own=PLAINTEXT, broker=PLAINTEXT)
        environment = SimpleNamespace(ended=lambda: collected.append(runners[0]._tasks))
        app = SimpleNamespace(
            log=lines, metrics=metrics, tasks=SimpleNamespace(), credentials=credentials, environment=environment
        )
        brokers = Cluster([], "c", {})
        settings = Settings.model_validate(needed)
        link = cast(Any, CoordinatorLink())
        runner = CoordinatorRunner(settings, cast(Shared, app), cast(Means, None), brokers, link)
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
