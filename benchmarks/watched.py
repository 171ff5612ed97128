"""A sidecar whose event loop is watched: a thread posts a time stamp every millisecond, and the loop notes how late it
got to it. SIGUSR1 writes the figures since the last signal to $WATCH_FILE. $FAKE_TOPICS, as `NxP`, adds N topics of P
partitions that no broker has, to measure the coordinator at sizes that one test broker cannot hold."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
from hashlib import md5
from typing import ClassVar

from sidecar.cli import main as cli
from sidecar.cli import run, worker
from sidecar.coordinator.statelog import startup as start
from sidecar.core.vocabulary.topics import Topic
from sidecar.drill.percentiles import percentile
from sidecar.kafka import cluster
from sidecar.kafka.net import BrokerConnection
from sidecar.process import app
from sidecar.process.app import App

EVERY_S = 0.001


def fake_topics() -> tuple[Topic, ...]:
    n, _, partitions = os.environ.get("FAKE_TOPICS", "0x0").partition("x")
    names = [f"load-{i:04d}" for i in range(int(n))]
    return tuple(Topic(md5(name.encode()).digest(), name, ((),) * int(partitions)) for name in names)


class Reader(cluster.MetadataReader):
    fakes = fake_topics()
    kept: ClassVar[dict[int, cluster.ClusterView]] = {}

    async def read(
        self, conn: BrokerConnection, known: cluster.Cluster | None, timeout_s: float = 10.0
    ) -> cluster.ClusterView:
        view = await super().read(conn, known, timeout_s)
        if not self.fakes:
            return view
        if id(view) not in self.kept:
            more = cluster.ClusterView(view.cluster_id, view.brokers, view.leaders, (*view.topics, *self.fakes))
            self.kept[id(view)] = more
            more.__dict__["keeps"] = view
        return self.kept[id(view)]


class Watched(App):
    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        late: list[float] = []
        cpu = [time.process_time()]

        def mark(posted: float) -> None:
            late.append(time.monotonic() - posted)

        def watch() -> None:
            while True:
                time.sleep(EVERY_S)
                try:
                    loop.call_soon_threadsafe(mark, time.monotonic())
                except RuntimeError:
                    return

        def tell() -> None:
            values = sorted(late)
            late.clear()
            used, cpu[0] = time.process_time() - cpu[0], time.process_time()
            at = {q: percentile(values, q) * 1000 for q in (0.5, 0.99, 0.999, 1.0)}
            figures = {"p50": at[0.5], "p99": at[0.99], "p999": at[0.999], "max": at[1.0], "cpu_s": used}
            with open(os.environ["WATCH_FILE"] + ".new", "w") as f:
                json.dump(figures, f)
            os.replace(os.environ["WATCH_FILE"] + ".new", os.environ["WATCH_FILE"])

        loop.add_signal_handler(signal.SIGUSR1, tell)
        threading.Thread(target=watch, daemon=True).start()
        await super().run()


if __name__ == "__main__":
    setattr(app, "App", Watched)  # noqa: B010
    setattr(start, "MetadataReader", Reader)  # noqa: B010
    run.WORKER = ("-m", "benchmarks.watched")
    if sys.argv[1:2] == ["run"]:
        cli.app()
    else:
        worker.entry(*sys.argv[1:])
