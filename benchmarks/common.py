"""Helpers of the benchmarks: one warm broker with a sidecar in front of it, CPU time of a process, medians."""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from sidecar.drill.local import JVM_FAST, LocalKafka
from sidecar.drill.processes import Process

PROPERTIES = {
    "group.consumer.max.heartbeat.interval.ms": "15000",
    "log.segment.bytes": "1073741824",
    "log.retention.bytes": "-1",
}


@contextmanager
def one_broker(
    include: str, more: Mapping[str, str] | None = None, properties: Mapping[str, str] | None = None
) -> Iterator[LocalKafka]:
    """Run one broker on a full JVM (C2, G1), with a sidecar in front of its listener CLIENTS. INTERNAL is direct.
    `more`: environment of the sidecar; `properties`: of the broker."""
    with tempfile.TemporaryDirectory(prefix="sidecar-bench-") as tmp:
        env = {"SIDECAR_GROUPS__INCLUDE": json.dumps([include]), "SIDECAR_LOG__LEVEL": "warning", **(more or {})}
        kafka = LocalKafka(
            Path(tmp) / "run", brokers=1, properties={**PROPERTIES, **(properties or {})}, sidecar_env=env, jvm=JVM_FAST
        )
        with kafka:
            kafka.wait_ready()
            yield kafka


def create_topic(kafka: LocalKafka, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.internal, "log_level": 3})
    for future in admin.create_topics([NewTopic(name, partitions, 1)]).values():
        future.result(timeout=30)


def cpu_s(process: Process | None) -> float:
    """Return the user and system seconds that a process has used so far."""
    assert process is not None
    t = psutil.Process(process.worker_pid).cpu_times()
    return float(t.user + t.system)


def timed(work: Callable[[], object], repeat: int) -> float:
    """Return the median of this thread's CPU time, in milliseconds."""
    took = []
    for _ in range(repeat):
        start = time.thread_time_ns()
        work()
        took.append((time.thread_time_ns() - start) / 1e6)
    return median(took)


def median(values: Sequence[float]) -> float:
    return float(statistics.median(values))


def finish(figures: dict[str, object]) -> None:
    print(json.dumps(figures), flush=True)
