"""A small KIP-848 member on our own wire client: it heartbeats fast, and tells when one was accepted.

It joins a group of its own whose id hashes to the same state partition as the group under test, so it meets the
same owner and never touches the group.
"""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from sidecar.core.errors import Code
from sidecar.core.placement import partition_for
from sidecar.runtime.cluster import Cluster
from sidecar.runtime.net import BrokerConnection, ConnectionLost
from sidecar.wire.generated import consumer_group_describe as cd
from sidecar.wire.generated import consumer_group_heartbeat as ch
from sidecar.wire.primitives import WireError


def sibling_group(group: str, prefix: str, partitions: int) -> str:
    """A group id with this prefix in the same state partition as `group`."""
    want = partition_for(group, partitions)
    return next(name for n in range(100_000) if partition_for(name := f"{prefix}-{n}", partitions) == want)


@dataclass
class View:
    """What ConsumerGroupDescribe says of the group under test."""

    state: str = "?"
    group_epoch: int = 0
    assignment_epoch: int = 0
    members: list[dict[str, Any]] = field(default_factory=list)
    owner: int = -1
    time_ms: int = 0


class Probe:
    """Thread with a loop of its own. `accepted`: (sent, answered), monotonic s, of each accepted heartbeat."""

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
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()), name="probe", daemon=True)

    def start(self) -> Probe:
        self._thread.start()
        return self

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=5)

    def first_after(self, at: float) -> float | None:
        """Seconds from `at` to the answer of the first heartbeat that was sent after it and accepted."""
        return next((answered - at for sent, answered in list(self.accepted) if sent > at), None)

    async def _main(self) -> None:
        await asyncio.gather(self._heartbeats(), self._describes())

    def _fault(self, what: str) -> None:
        self.errors[what] = self.errors.get(what, 0) + 1

    async def _owner(self) -> tuple[BrokerConnection, int]:
        cluster = Cluster(self.bootstrap, "probe", {})
        try:
            node = await cluster.coordinator_node(self.probe_group, 0)
            return await cluster.open(node), node
        finally:
            if cluster._any is not None:
                cluster._any.close()

    async def _heartbeats(self) -> None:
        conn: BrokerConnection | None = None
        member, epoch = "probe-member", 0
        while not self._stop.is_set():
            try:
                if conn is None or conn.closed:
                    conn, _ = await self._owner()
                req = ch.ConsumerGroupHeartbeatRequest(group_id=self.probe_group, member_id=member, member_epoch=epoch)
                if epoch == 0:
                    req.rebalance_timeout_ms, req.subscribed_topic_names, req.topic_partitions = 30_000, [], []
                sent = time.monotonic()
                res = await conn.request(ch, "ConsumerGroupHeartbeat", req, timeout_s=2.0)
                if res.error_code == Code.NONE:
                    epoch = res.member_epoch
                    self.accepted.append((sent, time.monotonic()))
                else:
                    self._fault(Code(res.error_code).name)
                    if res.error_code in (Code.FENCED_MEMBER_EPOCH, Code.UNKNOWN_MEMBER_ID, Code.GROUP_ID_NOT_FOUND):
                        epoch = 0
                    if res.error_code in (Code.NOT_COORDINATOR, Code.COORDINATOR_NOT_AVAILABLE):
                        conn.close()
            except (ConnectionLost, TimeoutError, WireError) as exc:
                self._fault(type(exc).__name__)
                if conn is not None:
                    conn.close()
                conn = None
            await asyncio.sleep(self.interval_s)
        if conn is not None:
            conn.close()

    async def _describes(self) -> None:
        conn: BrokerConnection | None = None
        node = -1
        while not self._stop.is_set():
            try:
                if conn is None or conn.closed:
                    conn, node = await self._owner()
                req = cd.ConsumerGroupDescribeRequest(group_ids=[self.group])
                res = await conn.request(cd, "ConsumerGroupDescribe", req, timeout_s=2.0)
                g = res.groups[0]
                if g.error_code == Code.NONE:
                    self.view = View(
                        g.group_state,
                        g.group_epoch,
                        g.assignment_epoch,
                        [
                            {
                                "client": m.client_id,
                                "epoch": m.member_epoch,
                                "partitions": sorted(p for t in m.assignment.topic_partitions for p in t.partitions),
                            }
                            for m in g.members
                        ],
                        node,
                        int(time.time() * 1000),
                    )
                elif g.error_code in (Code.NOT_COORDINATOR, Code.COORDINATOR_NOT_AVAILABLE):
                    conn.close()
            except (ConnectionLost, TimeoutError, WireError) as exc:
                self._fault(type(exc).__name__)
                if conn is not None:
                    conn.close()
                conn = None
            await asyncio.sleep(0.25)
        if conn is not None:
            conn.close()
