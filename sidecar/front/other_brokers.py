"""Requests of clients that another broker answers, on the sidecar's own connections."""

from __future__ import annotations

from sidecar.api.call import NotServed, Store
from sidecar.kafka.cluster import Cluster
from sidecar.kafka.lanes import Lane
from sidecar.kafka.net import BrokerConnection

ANSWER_S, SLOW_S = 10.0, 90.0
"""Time limits for an answer: normally, and if that broker has to ask others first."""


async def ask(cluster: Cluster, want: Store, which: int) -> bytes | NotServed:
    """Returns the response frame. `which`: one connection of several, always the same for a client, so that its
    requests stay in order; a slow request has one to itself. Raises ConnectionLost, TimeoutError, WireError."""
    if not want.slow:
        return await _asked(await cluster.lane(want.node_id, Lane.COMMITS, which), want, ANSWER_S)
    conn = await cluster.open(want.node_id)
    try:
        return await _asked(conn, want, SLOW_S)
    finally:
        conn.close()


async def _asked(conn: BrokerConnection, want: Store, timeout_s: float) -> bytes | NotServed:
    if not conn.offers(want.api_key, want.version):
        return NotServed(*conn.versions_of(want.api_key))
    return await conn.raw(want.api_key, want.version, want.body, want.flexible, timeout_s)
