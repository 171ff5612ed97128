"""Requests of clients that another broker answers, on the sidecar's own connections."""

from __future__ import annotations

from sidecar.api.call import Store
from sidecar.kafka.cluster import Cluster
from sidecar.kafka.lanes import Lane

ANSWER_S, SLOW_S = 10.0, 90.0
"""Time limits for an answer: normally, and if that broker has to ask others first."""


async def ask(cluster: Cluster, want: Store, which: int) -> bytes:
    """Returns the response frame. `which`: one connection of several, always the same for a client, so that its
    requests stay in order; a slow request has one to itself. Raises ConnectionLost, TimeoutError, WireError."""
    if not want.slow:
        conn = await cluster.lane(want.node_id, Lane.COMMITS, which)
        return await conn.raw(want.api_key, want.version, want.body, want.flexible, ANSWER_S)
    conn = await cluster.open(want.node_id)
    try:
        return await conn.raw(want.api_key, want.version, want.body, want.flexible, SLOW_S)
    finally:
        conn.close()
