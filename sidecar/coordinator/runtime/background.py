"""The background threads (group.coordinator.background.threads): offloaded assignors and regular expressions.

Each run has a queue time and a processing time, the threads have an idle ratio: KIP-1263's metrics. A run beyond its
limit is written off: another thread takes the place of its thread, and the caller drops its late result. A run that has
waited too long for a thread is not started.
"""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

WINDOW_S = 30.0
SAMPLES = 8192
REGEX = "regex"
OWN_THREAD = (REGEX,)
"""Keys of runs with a thread of their own: clients can make these long, and assignors must not wait for them."""
WAIT_PART = 0.5
"""Longest wait for a thread, as a part of the limit: the caller, who counts the wait too, drops what comes later. If
such runs were started, none would end in time once there is more work than threads."""
STUCK_PER_KEY = 2
"""Hanging runs of one key after which no further run is started, until one comes back."""
SWITCH_S = 0.0002
"""Seconds for which a background thread may keep the interpreter while the event loop wants it. Python's default, 5 ms,
would delay every heartbeat during an assignor run."""
QUANTILES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999), ("max", 1.0))


class Stuck(Exception):
    """The error of a run that was not started, because earlier runs of the same key have not come back."""


T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Job:
    key: str
    work: Callable[[], Any]
    done: Callable[[Any, BaseException | None], None]
    limit_s: float
    queued: float = field(default_factory=lambda: time.monotonic())
    started: float = 0.0
    written_off: bool = False


class Background:
    """The threads. The event loop calls `submit`, and then `done(result, None)` or `done(None, exception)`."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.queue_ms: deque[tuple[float, float]] = deque(maxlen=SAMPLES)
        self.processing_ms: deque[tuple[float, float]] = deque(maxlen=SAMPLES)
        self._loop = asyncio.get_running_loop()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._own: dict[str, queue.SimpleQueue[_Job | None]] = {key: queue.SimpleQueue() for key in OWN_THREAD}
        self._running: set[_Job] = set()
        self._busy: deque[tuple[float, float]] = deque(maxlen=SAMPLES)
        self._stuck: Counter[str] = Counter()
        self._started = time.monotonic()
        self._lock = threading.Lock()
        sys.setswitchinterval(min(SWITCH_S, sys.getswitchinterval()))
        for jobs in (*[self._jobs] * threads, *self._own.values()):
            self._thread(jobs)

    def _thread(self, jobs: queue.SimpleQueue[_Job | None]) -> None:
        threading.Thread(target=self._run, args=(jobs,), name="background", daemon=True).start()

    def submit(
        self,
        key: str,
        work: Callable[[], T],
        done: Callable[[T | None, BaseException | None], None],
        limit_s: float = float("inf"),
    ) -> None:
        """Runs `work` on a thread. `key`: the assignor, or REGEX; hanging runs are counted by it. After `limit_s` the
        run is written off."""
        if self._stuck[key] >= STUCK_PER_KEY:
            self._loop.call_soon(done, None, Stuck(f"{self._stuck[key]} earlier runs of {key} have not come back"))
            return
        self._own.get(key, self._jobs).put(_Job(key, work, done, limit_s))

    def write_off(self) -> list[str]:
        """Writes off the runs beyond their limit, each of whose threads gets a substitute. Returns their keys."""
        now = time.monotonic()
        with self._lock:
            late = [j for j in self._running if not j.written_off and now - j.started > j.limit_s]
            for job in late:
                job.written_off = True
                self._stuck[job.key] += 1
        for job in late:
            self._thread(self._own.get(job.key, self._jobs))
        return [j.key for j in late]

    def stop(self) -> None:
        for jobs in (*[self._jobs] * self.threads, *self._own.values()):
            jobs.put(None)

    # ---- a thread -----------------------------------------------------------------------------------------
    def _run(self, jobs: queue.SimpleQueue[_Job | None]) -> None:
        while (job := jobs.get()) is not None:
            job.started = time.monotonic()
            with self._lock:
                self._running.add(job)
            result: object = None
            error: BaseException | None = None
            try:
                if (waited_s := job.started - job.queued) > WAIT_PART * job.limit_s:
                    raise TimeoutError(f"no background thread was free for {waited_s:.1f} s")
                result = job.work()
            except BaseException as exc:  # noqa: BLE001 - it travels to the caller
                error = exc
            ended = time.monotonic()
            with self._lock:
                self._running.discard(job)
                if jobs is self._jobs:
                    self._busy.append((job.started, ended))
                self.queue_ms.append((ended, (job.started - job.queued) * 1000))
                self.processing_ms.append((ended, (ended - job.started) * 1000))
                if job.written_off:
                    self._stuck[job.key] -= 1
            try:
                self._loop.call_soon_threadsafe(job.done, result, error)
            except RuntimeError:
                return  # the loop is closed: the process is ending
            if job.written_off:
                return
            del job, result, error  # an idle thread would keep them, and the coordinator that `done` belongs to

    # ---- figures ------------------------------------------------------------------------------------------
    def idle_ratio(self) -> float:
        """Returns the idle ratio of the shared threads over the last 30 seconds; 1: always idle."""
        now = time.monotonic()
        begin = max(self._started, now - WINDOW_S)
        if now - begin <= 0:
            return 1.0
        with self._lock:
            running = [j for j in self._running if not j.written_off and j.key not in OWN_THREAD]
            spans = [*self._busy, *((j.started, now) for j in running)]
        busy = sum(max(0.0, end - max(start, begin)) for start, end in spans)
        return max(0.0, 1.0 - busy / ((now - begin) * self.threads))

    def recent(self, samples: Iterable[tuple[float, float]]) -> list[float]:
        begin = time.monotonic() - WINDOW_S
        with self._lock:
            return sorted(value for at, value in samples if at >= begin)


PREFIX = "kafka_server_group_coordinator_metrics_background_"
IDLE = PREFIX + "thread_idle_ratio_avg"
TIMES = ("queue_time_ms", "processing_time_ms")
BACKGROUND: dict[str, tuple[str, str]] = {
    IDLE: (
        "Idle share of the background threads. Near 0, either background_threads is too low or an assignor is slow.",
        "background-thread-idle-ratio-avg",
    ),
    **{
        f"{PREFIX}{name}_{suffix}": (
            f"{name.replace('_', ' ').capitalize()} of background tasks, {suffix}.",
            f"background-{name.replace('_', '-')}-{suffix}",
        )
        for name in TIMES
        for suffix, _ in QUANTILES
    },
}
"""Name of a metric -> its description, and KIP-1263's name."""


class BackgroundCollector(Collector):
    """KIP-1263's metrics, named as Kafka's are by the usual JMX exporter."""

    def __init__(self, background: Background) -> None:
        self.background = background

    def collect(self) -> Iterable[GaugeMetricFamily]:
        b = self.background
        yield GaugeMetricFamily(IDLE, BACKGROUND[IDLE][0], value=b.idle_ratio())
        for name, samples in zip(TIMES, (b.queue_ms, b.processing_ms), strict=True):
            values = b.recent(samples)
            for suffix, q in QUANTILES:
                at = min(len(values) - 1, int(len(values) * q)) if values else -1
                called = f"{PREFIX}{name}_{suffix}"
                yield GaugeMetricFamily(called, BACKGROUND[called][0], value=values[at] if values else 0.0)
