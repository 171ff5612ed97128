"""Counts of this sidecar's groups for a scrape: by kind and state, and the groups that rebalance most. They are counted
on demand and not kept up to date, so they cost nothing between scrapes.

All groups are counted, in slices, as a large coordinator has many and heartbeats must not wait for them.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from heapq import nlargest
from typing import Protocol

from sidecar.coordinator.clock import now
from sidecar.core.runtime.inspect import Inspect
from sidecar.core.runtime.phases import Phase
from sidecar.core.runtime.registry import Group
from sidecar.core.runtime.service import Service
from sidecar.core.runtime.turn import Soft
from sidecar.link.ports import Figures

SLICE_S = 0.001
LOOKED_AT = 16
"""Groups between two looks at the clock."""
NAMED = 5
"""Groups that a metric names: those with the highest values."""
RECENT_MS = 600_000


class Gauges(Figures, Protocol):
    def only(self, name: str, values: Iterable[tuple[tuple[str, ...], float]]) -> None:
        """Sets a gauge to these values, by labels, and removes all its other values."""


@dataclass
class Counted:
    """Counts of one round. `groups`: by kind and state; `members`: by the kind of the group and the protocol that the
    members speak; `rebalances`: rebalances within RECENT_MS and group id; `unsettled`: seconds and group id."""

    groups: Counter[tuple[str, str]] = field(default_factory=Counter)
    members: Counter[tuple[str, str]] = field(default_factory=Counter)
    rebalances: list[tuple[int, str]] = field(default_factory=list)
    unsettled: list[tuple[float, str]] = field(default_factory=list)


class Census:
    def __init__(
        self, service: Service, figures: Gauges, changed_ms: Callable[[int, str], int | None] = lambda p, g: None
    ) -> None:
        """`changed_ms(partition, group)`: Unix time of the last record of the group itself (StateLog)."""
        self._service = service
        self._changed_ms = changed_ms
        self._figures = figures
        self._asked = asyncio.Lock()

    async def take(self) -> None:
        """Brings the figures of groups up to date. Two scrapes at once wait for each other."""
        async with self._asked:
            self._publish(await self._count())

    async def _count(self) -> Counted:
        counted, at_ms, until = Counted(), now().mono_ms, time.perf_counter() + SLICE_S
        for owner in self._service.owners:
            shard = owner.shard
            if shard is None or owner.phase is not Phase.SERVING:
                continue
            for i, group_id in enumerate(list(shard.groups)):
                if i % LOOKED_AT == 0 and time.perf_counter() > until:
                    await asyncio.sleep(0)
                    until = time.perf_counter() + SLICE_S
                group, soft = shard.groups.get(group_id), shard.soft.get(group_id)
                if group is None or soft is None:
                    continue
                inspect = shard.registry.kinds[group.kind].inspect
                counted.groups[(group.kind, group.state_name())] += 1
                for protocol, members in inspect.members_by_protocol(group).items():
                    counted.members[(group.kind, protocol)] += members
                if soft.rebalanced_ms and (recent := sum(ms > at_ms - RECENT_MS for ms in soft.rebalanced_ms)):
                    counted.rebalances.append((recent, group_id))
                unsettled_ms = self._unsettled_ms(owner.partition, group, soft, inspect)
                if group.member_count() and unsettled_ms is not None:
                    counted.unsettled.append((unsettled_ms / 1000, group_id))
        return counted

    def _unsettled_ms(self, partition: int, group: Group, soft: Soft, inspect: Inspect) -> int | None:
        """Returns for how many ms the group has not been stable; None if it is. A new owner takes the age of the
        group's record, at most that of the rebalance under way; else a takeover would hide a stuck group."""
        at = now()
        known = None if soft.unsettled_since_ms is None else at.mono_ms - soft.unsettled_since_ms
        if group.state_name() in inspect.at_rest:
            return known
        changed_ms = self._changed_ms(partition, group.group_id)
        since_change = None if changed_ms is None else max(at.wall_ms - changed_ms, 0)
        return max((ms for ms in (known, since_change) if ms is not None), default=None)

    def _publish(self, counted: Counted) -> None:
        kinds = self._service.registry.kinds
        states = {(name, state): 0 for name, kind in kinds.items() for state in kind.inspect.states}
        self._figures.only("groups", {**states, **counted.groups}.items())
        protocols = {
            (name, p): 0 for name, kind in kinds.items() for p in kind.inspect.members_by_protocol(kind.make(""))
        }
        self._figures.only("members", {**protocols, **counted.members}.items())
        most: tuple[tuple[str, Iterable[tuple[float, str]]], ...] = (
            ("group_rebalances", counted.rebalances),
            ("group_unsettled", counted.unsettled),
        )
        for name, values in most:
            self._figures.only(name, (((group_id,), value) for value, group_id in nlargest(NAMED, values)))
