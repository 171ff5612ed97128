"""Removes groups without members and without offsets, as Kafka does (docs/reference/behaviour.md, 1.34).

The offsets are the broker's, and so is their retention: they expire when the group has had no members for
`offsets.retention.minutes`. The group's records in the state topic are left then. Without this removal they would stay
for ever, and each console consumer leaves a group of its own.

Only records go, never an offset: one that is committed between the question and the removal stays at the broker.

A share group has no offsets, and the broker keeps its own group of that name for ever. The records go when the broker's
group is gone: an administrator has deleted it there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from sidecar.core.runtime.events import Answer, DeleteGroup, Event
from sidecar.core.runtime.service import Service
from sidecar.core.share.config import SHARE
from sidecar.core.vocabulary.errors import Code
from sidecar.kafka import native, share_group
from sidecar.kafka.cluster import Cluster, ConnectionLost
from sidecar.kafka.lanes import Lane
from sidecar.kafka.net import NO_ANSWER
from sidecar.kafka.offsets import group_batches
from sidecar.link.ports import Figures, Logger

ANSWER_S = 30.0
WHY = "it has no members, and no offsets any more"


@dataclass(frozen=True)
class EmptyGroupPorts:
    """The calls of EmptyGroups. `check_s()`: time between two rounds, 0: no rounds; `leader_of(partition)`: node id of
    the broker with the groups' offsets, -1 while unknown; `placeholder_gone(group)`: whether no placeholder is left at
    the broker; `ask(event)`: asks the core."""

    check_s: Callable[[], float]
    leader_of: Callable[[int], int]
    placeholder_gone: Callable[[str], bool]
    ask: Callable[[Event], Awaitable[Answer]]


class EmptyGroups:
    def __init__(
        self, service: Service, cluster: Cluster, ports: EmptyGroupPorts, figures: Figures, log: Logger
    ) -> None:
        self._service = service
        self._cluster = cluster
        self._ports = ports
        self._figures = figures
        self._log = log

    async def rounds(self) -> None:
        """Runs rounds for ever. A change of the interval counts from the next second on."""
        loop = asyncio.get_running_loop()
        last_s = loop.time()
        while True:
            await asyncio.sleep(1.0)
            check_s = self._ports.check_s()
            if check_s and loop.time() - last_s >= check_s:
                await self.look()
                last_s = loop.time()

    async def look(self) -> None:
        """Runs one round over the groups that this sidecar owns."""
        for partition, groups in list(self._empty()):
            for batch in group_batches(groups):
                try:
                    await self._forget(partition, batch)
                except NO_ANSWER as exc:
                    # The next round asks again.
                    problem = str(exc) or "timed out"
                    self._log.info("empty groups are not looked at", partition=partition, problem=problem)

    def _empty(self) -> Iterator[tuple[int, list[str]]]:
        for owner in self._service.owners:
            if owner.shard is not None:
                empty = [g.group_id for g in owner.shard.groups.values() if not g.member_count()]
                if empty:
                    yield owner.partition, empty

    def _share(self, group_id: str) -> bool:
        shard = self._service.owner_of(group_id).shard
        group = None if shard is None else shard.groups.get(group_id)
        return group is not None and group.kind == SHARE

    async def _forget(self, partition: int, groups: list[str]) -> None:
        node_id = self._ports.leader_of(partition)
        if node_id < 0:
            raise ConnectionLost("no leader of the offsets is known")
        free = [g for g in groups if self._ports.placeholder_gone(g)]
        if not free:
            return
        conn = await self._cluster.lane(node_id, Lane.LEFT_OVER)
        share = [g for g in free if self._share(g)]
        others = [g for g in free if g not in set(share)]
        unknown = await share_group.unknown(conn, share, ANSWER_S) if share else []
        if others:
            unknown += await native.without_offsets(conn, others, ANSWER_S)
        for group_id in unknown:
            # A group that has a member again, or has moved to another owner, is refused.
            if (await self._ports.ask(DeleteGroup(group_id, WHY))).code == Code.NONE:
                self._figures("groups_forgotten").inc()
