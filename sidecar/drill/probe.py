"""A small KIP-848 member on our own wire client. It heartbeats fast, and notes when a heartbeat was accepted.

The probe joins a group of its own, whose id hashes to the same state partition as the group under test. So it has the
same owner, and never touches the group under test.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from sidecar.core.vocabulary.errors import Code, name_of
from sidecar.core.vocabulary.placement import partition_for
from sidecar.kafka.cluster import Cluster
from sidecar.kafka.net import NO_ANSWER, BrokerConnection
from sidecar.wire.generated import consumer_group_describe as cd
from sidecar.wire.generated import consumer_group_heartbeat as ch

DESCRIBE_EVERY_S = 0.25


def sibling_group(group: str, prefix: str, partitions: int) -> str:
    """Return a group id with this prefix that belongs to the same state partition as `group`."""
    partition = partition_for(group, partitions)
    return next(name for n in range(100_000) if partition_for(name := f"{prefix}-{n}", partitions) == partition)


@dataclass
class View:
    """The last answer of ConsumerGroupDescribe about the group under test."""

    state: str = "?"
    group_epoch: int = 0
    assignment_epoch: int = 0
    members: list[dict[str, Any]] = field(default_factory=list)
    owner: int = -1
    time_ms: int = 0


class Probe:
    """A thread with its own event loop. `accepted` holds (sent, answered) of each accepted heartbeat, in monotonic
    seconds."""

    def __init__(self, bootstrap: str, group: str, partitions: int, interval_s: float = 0.05) -> None:
        self.bootstrap = [(h, int(p)) for h, p in (a.rsplit(":", 1) for a in bootstrap.split(","))]
        self.group = group
        self.probe_group = sibling_group(
            group, "demo-probe" if group.startswith("demo") else f"{group}-probe", partitions
        )
        self.interval_s = interval_s
        self.accepted: list[tuple[float, float]] = []
        self.errors: dict[str, int] = {}
        self.view = View()
        self._epoch = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), name="probe", daemon=True)

    def start(self) -> Probe:
        self._thread.start()
        return self

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=5)

    def first_after(self, at: float) -> float | None:
        """Return the seconds from `at` to the answer of the first accepted heartbeat that was sent after `at`."""
        return next((answered - at for sent, answered in list(self.accepted) if sent > at), None)

    async def _main(self) -> None:
        await asyncio.gather(
            self._converse(self._heartbeat, self.interval_s), self._converse(self._describe, DESCRIBE_EVERY_S)
        )

    def _fault(self, what: str) -> None:
        self.errors[what] = self.errors.get(what, 0) + 1

    async def _owner(self) -> tuple[BrokerConnection, int]:
        cluster = Cluster(self.bootstrap, "probe", {})
        try:
            node = await cluster.coordinator_node(self.probe_group, 0)
            return await cluster.open(node), node
        finally:
            cluster.close()

    async def _converse(self, turn: Callable[[BrokerConnection, int], Awaitable[int]], pause_s: float) -> None:
        """Ask the owner again and again. `turn` asks once and returns the error code. The connection is given up when
        its sidecar is no longer the owner."""
        conn: BrokerConnection | None = None
        node = -1
        while not self._stop.is_set():
            try:
                if conn is None or conn.closed:
                    conn, node = await self._owner()
                code = await turn(conn, node)
                if code in (Code.NOT_COORDINATOR, Code.COORDINATOR_NOT_AVAILABLE):
                    conn.close()
            except NO_ANSWER as exc:
                self._fault(type(exc).__name__)
                if conn is not None:
                    conn.close()
            await asyncio.sleep(pause_s)
        if conn is not None:
            conn.close()

    async def _heartbeat(self, conn: BrokerConnection, node: int) -> int:
        epoch = self._epoch
        req = ch.ConsumerGroupHeartbeatRequest(group_id=self.probe_group, member_id="probe-member", member_epoch=epoch)
        if epoch == 0:
            req.rebalance_timeout_ms, req.subscribed_topic_names, req.topic_partitions = 30_000, [], []
        sent = time.monotonic()
        res = await conn.request(ch, "ConsumerGroupHeartbeat", req, timeout_s=2.0)
        if res.error_code == Code.NONE:
            self._epoch = res.member_epoch
            self.accepted.append((sent, time.monotonic()))
        else:
            self._fault(name_of(res.error_code))
            if res.error_code in (Code.FENCED_MEMBER_EPOCH, Code.UNKNOWN_MEMBER_ID, Code.GROUP_ID_NOT_FOUND):
                self._epoch = 0
        return int(res.error_code)

    async def _describe(self, conn: BrokerConnection, node: int) -> int:
        req = cd.ConsumerGroupDescribeRequest(group_ids=[self.group])
        res = await conn.request(cd, "ConsumerGroupDescribe", req, timeout_s=2.0)
        g = res.groups[0]
        if g.error_code == Code.NONE:
            members = [
                {
                    "client": m.client_id,
                    "epoch": m.member_epoch,
                    "partitions": sorted(p for t in m.assignment.topic_partitions for p in t.partitions),
                }
                for m in g.members
            ]
            now_ms = int(time.time() * 1000)
            self.view = View(g.group_state, g.group_epoch, g.assignment_epoch, members, node, now_ms)
        return int(g.error_code)
