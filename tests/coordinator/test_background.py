"""Background threads: results come back on the loop, figures, runs that hang; assignors by entry point."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from importlib.metadata import EntryPoint

import pytest

from sidecar.coordinator.background import Background, BackgroundCollector, Stuck
from sidecar.process import assignors

Outcome = tuple[object, BaseException | None]


async def ran(b: Background, work: Callable[[], object], key: str = "k", limit_s: float = 60) -> Outcome:
    future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    b.submit(key, work, lambda result, error: future.set_result((result, error)), limit_s)
    return await asyncio.wait_for(future, 5)


def test_results_and_errors_come_back_and_are_measured() -> None:
    async def run() -> None:
        b = Background(2)
        assert await ran(b, lambda: threading.current_thread().name) == ("background", None)
        result, error = await ran(b, lambda: 1 // 0)
        assert result is None and isinstance(error, ZeroDivisionError)
        names = {m.name: m.samples[0].value for m in BackgroundCollector(b).collect()}
        prefix = "kafka_server_group_coordinator_metrics_background_"
        assert names[prefix + "thread_idle_ratio_avg"] > 0.5
        assert names[prefix + "queue_time_ms_max"] >= names[prefix + "queue_time_ms_p50"] > 0
        assert {prefix + f"processing_time_ms_{q}" for q in ("p50", "p95", "p99", "p999", "max")} <= names.keys()
        b.stop()

    asyncio.run(run())


def test_runs_that_hang_leave_the_threads_to_others_and_are_not_started_without_end() -> None:
    async def run() -> None:
        b = Background(1)
        free = threading.Event()
        late: list[Outcome] = []
        for _ in range(2):
            b.submit("slow", lambda: free.wait(10), lambda r, e: late.append((r, e)), 0.01)
            while not b.write_off():
                await asyncio.sleep(0.005)
        assert await ran(b, lambda: "others go on") == ("others go on", None)
        _, error = await ran(b, lambda: None, "slow")
        assert isinstance(error, Stuck)
        free.set()
        while len(late) < 2:
            await asyncio.sleep(0.005)
        assert await ran(b, lambda: "again", "slow") == ("again", None)
        b.stop()

    asyncio.run(run())


def test_a_busy_thread_is_not_idle() -> None:
    async def run() -> None:
        b = Background(1)
        await ran(b, lambda: threading.Event().wait(0.2))
        assert b.idle_ratio() < 0.5
        b.stop()

    asyncio.run(run())


def test_assignors_come_by_entry_point() -> None:
    found = assignors.load(["uniform", "rack-aware"])
    assert list(found) == ["uniform", "rack-aware"] and callable(found["rack-aware"])


@pytest.mark.parametrize(
    "value, said", [("no.such.module:x", "cannot be loaded"), ("sidecar.assign:__doc__", "not callable")]
)
def test_a_plug_in_that_is_none_is_refused_at_start(monkeypatch: pytest.MonkeyPatch, value: str, said: str) -> None:
    there = [EntryPoint("odd", value, assignors.GROUP)]
    monkeypatch.setattr(assignors, "entry_points", lambda group: there)
    with pytest.raises(assignors.UnknownAssignor, match=said):
        assignors.load(["odd"])
    with pytest.raises(assignors.UnknownAssignor, match="there are odd, range, uniform"):
        assignors.load(["magic"])
