"""Commits in the owners' group that prove the lease: its coordinator can answer them only with the other brokers.

The coordinator answers heartbeats without writing anything. So a broker that is cut off goes on answering after another
has taken over, and a broker that is still loading the group answers without an error, too. A member's commit is checked
as its heartbeat is, and then written to all in-sync replicas.

The commits have a connection and an interval of their own: while a broker that died is still in the in-sync set, no
commit is answered, and heartbeats must go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from sidecar.coordinator.clock import now
from sidecar.core.runtime.turn import Now
from sidecar.core.vocabulary.errors import Code, name_of
from sidecar.kafka.cluster import Cluster
from sidecar.kafka.net import NO_ANSWER, BrokerConnection
from sidecar.link.ports import Logger
from sidecar.wire.generated import offset_commit as oc

TRIES = 15
"""Commits that are tried at most within `proof_ms`, the time that one proof lasts."""
COMMIT_V = 9
"""The last version of OffsetCommit that names topics."""


class LeaseCommits:
    """The loop that commits. `member()`: the member id and generation, or None while there is no member;
    `committed(sent)`: called when a commit that was sent at `sent` is written; `topic`: any topic that exists."""

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        topic: str,
        proof_ms: int,
        member: Callable[[], tuple[str, int] | None],
        committed: Callable[[Now], None],
        log: Logger,
    ) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._topic = topic
        self._pause_s = proof_ms / TRIES / 1000
        self._timeout_s = proof_ms / 3 / 1000
        self._member = member
        self._committed = committed
        self._log = log
        self._due = asyncio.Event()
        self._asked: BrokerConnection | None = None
        """The connection on which a commit waits for its answer."""

    def at_once(self) -> None:
        """Commits at once, for a new generation. Ends an open commit of the one before: it may wait at a broker that is
        gone, and its answer proves nothing about the new generation."""
        self._due.set()
        if self._asked is not None:
            self._asked.close()

    async def rounds(self) -> None:
        conn: BrokerConnection | None = None
        try:
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._pause_s):
                        await self._due.wait()
                self._due.clear()
                if (member := self._member()) is None:
                    continue
                try:
                    if conn is None or conn.closed:
                        node = await self._cluster.coordinator_node(self._group_id, 0)
                        conn = await self._cluster.open(node)
                    self._asked = conn
                    await self._commit(conn, *member)
                except NO_ANSWER as exc:
                    self._log.debug("the lease is not confirmed", error=str(exc) or "timed out")
                    if conn is not None:
                        conn.close()
                finally:
                    self._asked = None
        finally:
            if conn is not None:
                conn.close()

    async def _commit(self, conn: BrokerConnection, member_id: str, generation: int) -> None:
        sent = now()
        part = oc.OffsetCommitRequestPartition(partition_index=0, committed_offset=sent.mono_ms // 1000)
        topic = oc.OffsetCommitRequestTopic(name=self._topic, partitions=[part])
        req = oc.OffsetCommitRequest(self._group_id, generation, member_id, topics=[topic])
        res = await conn.request(oc, "OffsetCommit", req, high=COMMIT_V, timeout_s=self._timeout_s)
        code = res.topics[0].partitions[0].error_code
        if code != Code.NONE:
            self._log.debug("the lease is not confirmed", error=name_of(code))
            if code in (Code.NOT_COORDINATOR, Code.COORDINATOR_NOT_AVAILABLE):
                conn.close()
        elif self._member() == (member_id, generation):
            self._committed(sent)
