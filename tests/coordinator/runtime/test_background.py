"""Background threads: results come back on the loop, figures, runs that hang; assignors by entry point."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable
from importlib.metadata import EntryPoint

import pytest

from sidecar.coordinator.runtime import background as module
from sidecar.coordinator.runtime.background import REGEX, Background, BackgroundCollector, Stuck
from sidecar.process import assignors
from tests.inprocess.embedded_sidecar import until

Outcome = tuple[object, BaseException | None]


async def ran(b: Background, work: Callable[[], object], key: str = "k", limit_s: float = 60) -> Outcome:
    future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
    b.submit(key, work, lambda result, error: future.set_result((result, error)), limit_s)
    return await asyncio.wait_for(future, 60)


class Ticks:
    """A clock that says a millisecond more each time it is asked."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def add(self, seconds: float) -> None:
        self.now_s += seconds

    def monotonic(self) -> float:
        self.add(0.001)
        return self.now_s


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> Ticks:
    made = Ticks()
    monkeypatch.setattr(module, "time", made)
    return made


def test_results_and_errors_come_back_and_are_measured(ticks: Ticks) -> None:
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


def test_runs_that_hang_leave_the_threads_to_others_and_are_not_started_without_end(ticks: Ticks) -> None:
    async def run() -> None:
        b = Background(1)
        free, came_back = threading.Event(), [asyncio.Event(), asyncio.Event()]
        for ended in came_back:
            running = threading.Event()

            def hangs(running: threading.Event = running) -> None:
                running.set()
                free.wait(60)

            b.submit("slow", hangs, lambda r, e, ended=ended: ended.set(), 10.0)  # type: ignore[misc]
            await asyncio.to_thread(running.wait, 60)
            ticks.add(11)
            assert b.write_off() == ["slow"]
        assert await ran(b, lambda: "others go on") == ("others go on", None)
        _, error = await ran(b, lambda: None, "slow")
        assert isinstance(error, Stuck)
        free.set()
        for ended in came_back:
            await asyncio.wait_for(ended.wait(), 60)
        assert await ran(b, lambda: "again", "slow") == ("again", None)
        b.stop()

    asyncio.run(run())


def test_a_run_that_has_waited_too_long_for_a_thread_is_not_started(ticks: Ticks) -> None:
    """Symptom: groups whose assignors were slow never got a target when there were more of them than threads. Cause:
    each run began so late that its result was dropped, and the next one came behind all of these."""

    async def run() -> None:
        b, free = Background(1), threading.Event()
        first = asyncio.ensure_future(ran(b, lambda: free.wait(60)))
        late, in_time = (asyncio.ensure_future(ran(b, lambda: "ran", limit_s=limit_s)) for limit_s in (10, 20))
        await asyncio.sleep(0)
        ticks.add(6)
        free.set()
        assert await first == (True, None)
        result, error = await late
        assert result is None and isinstance(error, TimeoutError)
        assert await in_time == ("ran", None)
        b.stop()

    asyncio.run(run())


def test_a_busy_thread_is_not_idle(ticks: Ticks) -> None:
    async def run() -> None:
        b = Background(1)
        await ran(b, lambda: ticks.add(0.2))
        assert b.idle_ratio() < 0.5
        b.stop()

    asyncio.run(run())


def test_assignors_come_by_entry_point() -> None:
    found = assignors.load(["uniform", "rack-aware"], assignors.CONSUMER)
    assert list(found) == ["uniform", "rack-aware"] and callable(found["rack-aware"])


@pytest.mark.parametrize(
    "value, said", [("no.such.module:x", "cannot be loaded"), ("sidecar.assign:__doc__", "not callable")]
)
def test_a_plug_in_that_is_none_is_refused_at_start(monkeypatch: pytest.MonkeyPatch, value: str, said: str) -> None:
    there = [EntryPoint("odd", value, assignors.CONSUMER.group)]
    monkeypatch.setattr(assignors, "entry_points", lambda group: there)
    with pytest.raises(assignors.UnknownAssignor, match=said):
        assignors.load(["odd"], assignors.CONSUMER)
    with pytest.raises(assignors.UnknownAssignor, match="there are odd, range, uniform"):
        assignors.load(["magic"], assignors.CONSUMER)


@pytest.mark.parametrize("fails", [False, True])
def test_an_idle_thread_keeps_nothing_of_its_last_run(fails: bool) -> None:
    """Symptom: after a new start of the coordinator, the state of the former one stayed in memory. Cause: the thread of
    the regular expressions kept its last run, with the callback, until the next one came."""

    class Coordinator:
        def __init__(self, ended: asyncio.Event) -> None:
            self.ended = ended

        def work(self) -> None:
            if fails:
                raise ValueError

        def done(self, result: object, error: BaseException | None) -> None:
            self.ended.set()

    async def run() -> None:
        b, ended = Background(1), asyncio.Event()
        coordinator = Coordinator(ended)
        kept = weakref.ref(coordinator)
        b.submit(REGEX, coordinator.work, coordinator.done)
        del coordinator
        await ended.wait()
        await until(lambda: kept() is None)
        b.stop()

    asyncio.run(run())


def test_what_clients_can_make_long_holds_up_nothing_else() -> None:
    """Symptom: after 40 regular expressions a bystander's group had its first partitions after 76 s."""

    async def run() -> None:
        b = Background(1)
        running, free, ended = threading.Event(), threading.Event(), asyncio.Event()

        def long() -> None:
            running.set()
            free.wait(60)

        b.submit(REGEX, long, lambda result, error: ended.set())
        await asyncio.to_thread(running.wait, 60)
        assert await ran(b, lambda: "others go on") == ("others go on", None) and b.idle_ratio() > 0.5
        free.set()
        await asyncio.wait_for(ended.wait(), 60)
        b.stop()

    asyncio.run(run())
