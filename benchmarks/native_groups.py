"""Kafka's own group coordinator loads groups of a given size: its records are written by Kafka's own classes."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.beats import Beats, rss_mb
from benchmarks.common import median
from sidecar.drill.artifacts import java
from sidecar.drill.local import JVM_FAST, LocalKafka
from sidecar.kafka.cluster import Cluster

SOURCE = Path(__file__).parent / "java" / "NativeGroups.java"
PROBED = 12


def native(
    groups: int,
    members: int,
    partitions: int,
    properties: Mapping[str, str],
    member_id: Callable[[int], str],
    epoch: int,
) -> dict[str, object]:
    suffix = member_id(0).removeprefix("consumer-000000")
    with tempfile.TemporaryDirectory(prefix="sidecar-bench-") as tmp:
        kafka = LocalKafka(Path(tmp) / "run", brokers=1, front="none", properties=properties, jvm=JVM_FAST)
        with kafka:
            asyncio.run(_make_offsets(kafka))
            command = [java(), "-cp", f"{kafka.libs}/*", str(SOURCE), kafka.internal]
            command += [str(groups), str(members), str(partitions), str(epoch), suffix, "bench-large"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
            if done.returncode != 0:
                raise RuntimeError(done.stderr[-2_000:])
            node = kafka.nodes[0]
            assert node.process is not None
            node.process.stop()
            began = time.monotonic()
            kafka.start_broker(node)
            names = [f"large-{i:05d}" for i in range(groups)][:: max(1, groups // PROBED)][:PROBED]
            firsts = asyncio.run(Beats(kafka.internal, epoch).first(names, began, 120))
            figures: dict[str, object] = {
                "kafka_cold_first_heartbeat_s": [round(firsts[0], 2), round(median(firsts), 2), round(firsts[-1], 2)],
                "kafka_rss_mb": rss_mb(node.process),
            }
    print(f"native: {figures}", flush=True)
    return figures


async def _make_offsets(kafka: LocalKafka) -> None:
    """Asking for a coordinator makes the topic."""
    host, _, port = kafka.internal.rpartition(":")
    cluster = Cluster([(host, int(port))], "bench", {})
    end = time.monotonic() + 60
    while True:
        try:
            await cluster.coordinator_node("large-00000", 0)
            break
        except ConnectionError:
            assert time.monotonic() < end
            await asyncio.sleep(0.2)
    cluster.close()
    await asyncio.sleep(3)
