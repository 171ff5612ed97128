"""Settled members of groups that were written into a log: they heartbeat until they are accepted."""

from __future__ import annotations

import asyncio
import time

import psutil

from sidecar.core.vocabulary.errors import Code
from sidecar.drill.processes import Process
from sidecar.kafka.cluster import Cluster, ConnectionLost
from sidecar.kafka.net import BrokerConnection
from sidecar.wire.generated import consumer_group_heartbeat as ch
from sidecar.wire.primitives import WireError

EPOCH = 7


def member_id(index: int) -> str:
    return f"consumer-{index:06d}-2f1c7c9e-8d4b-4b5e-9c55-0d9f6a1b2c3d"


def rss_mb(process: Process | None) -> int:
    assert process is not None
    return int(psutil.Process(process.worker_pid).memory_info().rss >> 20)


class Beats:
    """One settled member of each of these groups heartbeats until it is accepted."""

    def __init__(self, bootstrap: str, epoch: int = EPOCH) -> None:
        self.bootstrap = [(h, int(p)) for h, p in (a.rsplit(":", 1) for a in bootstrap.split(","))]
        self.epoch = epoch
        self.errors: dict[str, int] = {}

    async def first(self, groups: list[str], since: float, timeout_s: float) -> list[float]:
        """Seconds from `since` (monotonic) to the first accepted heartbeat of each."""
        try:
            async with asyncio.timeout(timeout_s):
                return sorted(await asyncio.gather(*(self._one(g, since) for g in groups)))
        except TimeoutError:
            raise RuntimeError(f"not all heartbeats are accepted within {timeout_s} s: {self.errors}") from None

    async def _one(self, group: str, since: float) -> float:
        cluster = Cluster(self.bootstrap, "bench", {})
        conn: BrokerConnection | None = None
        req = ch.ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id(0), member_epoch=self.epoch)
        try:
            while True:
                try:
                    if conn is None or conn.closed:
                        conn = await cluster.open(await cluster.coordinator_node(group, 0))
                    res = await conn.request(ch, "ConsumerGroupHeartbeat", req, timeout_s=5.0)
                    if res.error_code == Code.NONE:
                        return time.monotonic() - since
                    why = f"error {res.error_code}"
                    if res.error_code == Code.NOT_COORDINATOR:
                        conn.close()
                except (ConnectionLost, TimeoutError, WireError, OSError) as exc:
                    why = type(exc).__name__
                    if conn is not None:
                        conn.close()
                self.errors[why] = self.errors.get(why, 0) + 1
                await asyncio.sleep(0.02)
        finally:
            if conn is not None:
                conn.close()
            cluster.close()
