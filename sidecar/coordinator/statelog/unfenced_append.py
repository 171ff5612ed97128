"""Appends records that are not the state of a group: any sidecar may write them.

docs/design/decisions.md, Settings in the state topic, explains why they need no fence.
"""

from __future__ import annotations

import asyncio
import time

from sidecar.coordinator.clock import now
from sidecar.coordinator.statelog.tail import StateLog
from sidecar.coordinator.statelog.write_errors import WriteLost
from sidecar.core.vocabulary.errors import Code, name_of
from sidecar.kafka.cluster import Cluster, ConnectionLost
from sidecar.kafka.produce import Appender
from sidecar.state.batch import encode_batch
from sidecar.state.codec import Encoded
from sidecar.wire.primitives import WireError

RETRY_S = 0.05


async def append_unfenced(
    cluster: Cluster,
    appender: Appender,
    state: StateLog,
    topic: str,
    partition: int,
    records: list[Encoded],
    timeout_s: float,
) -> None:
    """Appends records; returns when this sidecar's tail has read them. Raises WriteLost."""
    batch = encode_batch(records, now().wall_ms, -1, -1, -1)
    until = time.monotonic() + timeout_s
    problem = "no leader"
    while time.monotonic() < until:
        try:
            view = await cluster.refresh([topic])
            leader = view.leaders.get(topic, ())[partition]
            if leader >= 0:
                code, offset = await appender.append(leader, topic, partition, batch)
                if code == Code.NONE:
                    async with asyncio.timeout(timeout_s):
                        await state.wait_applied(partition, offset + len(records) - 1)
                    return
                problem = name_of(code)
        except (ConnectionLost, TimeoutError, WireError, IndexError) as exc:
            problem = str(exc) or "timed out"
        await asyncio.sleep(RETRY_S)
    raise WriteLost(f"{topic}-{partition}: {problem}")
