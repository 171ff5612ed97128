"""Records of the state topic that are no state of a group: any sidecar may write them (docs/decisions.md 22)."""

from __future__ import annotations

import asyncio
import time

from sidecar.core.errors import Code, name_of
from sidecar.kafka.cluster import ConnectionLost
from sidecar.runtime.host import Host, now
from sidecar.runtime.writer import WriteLost
from sidecar.state.batch import encode_batch
from sidecar.state.codec import Encoded
from sidecar.wire.primitives import WireError

RETRY_S = 0.05


async def append_unfenced(host: Host, p: int, records: list[Encoded]) -> None:
    """Done when our own tail has passed them. Raises WriteLost."""
    batch = encode_batch(records, now().wall_ms, -1, -1, -1)
    until = time.monotonic() + host.write_timeout_s
    problem = "no leader"
    while time.monotonic() < until:
        try:
            view = await host.cluster.refresh([host.topic])
            leader = view.leaders.get(host.topic, ())[p]
            if leader >= 0:
                code, offset = await host.appender.append(leader, host.topic, p, batch)
                if code == Code.NONE:
                    async with asyncio.timeout(host.write_timeout_s):
                        await host.tail.wait_past(p, offset + len(records) - 1)
                    return
                problem = name_of(code)
        except (ConnectionLost, TimeoutError, WireError, IndexError) as exc:
            problem = str(exc) or "timed out"
        await asyncio.sleep(RETRY_S)
    raise WriteLost(f"{host.topic}-{p}: {problem}")
