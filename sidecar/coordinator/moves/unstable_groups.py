"""Wanted groups that are not stable at their broker. They come when they are stable, or are given up after a time.
Groups of a kind that not all sidecars coordinate yet are waited for without a limit.

The owner writes its verdict about the present order into the state topic (managed_groups.py): `later` while it waits
for the group, `false` when it gives the group up.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from sidecar.coordinator.moves.core_client import CoreClient
from sidecar.coordinator.moves.managed_groups import Rules, Store
from sidecar.coordinator.moves.native_groups import NativeGroups
from sidecar.coordinator.moves.verdicts import Verdicts
from sidecar.core.vocabulary import group_config as cf
from sidecar.kafka import native
from sidecar.kafka.native import Native
from sidecar.kafka.net import NO_ANSWER
from sidecar.link.ports import Figures, Logger, Tasks

UNSERVED_S = 30.0
"""Time between two questions about a group of a kind that not all sidecars coordinate: it may get another kind."""


@dataclass(frozen=True)
class Patience:
    """Limits of the wait. `limit_s`: how long the owner waits for a group to be stable; `look_s`: time between two
    questions to its broker."""

    limit_s: float = 300.0
    look_s: float = 0.5


class UnstableGroups:
    def __init__(
        self,
        patience: Patience,
        rules: Rules,
        core: CoreClient,
        natives: NativeGroups,
        store: Store,
        figures: Figures,
        log: Logger,
        tasks: Tasks,
    ) -> None:
        self._patience = patience
        self._rules = rules
        self._core = core
        self._natives = natives
        self._store = store
        self._verdicts = Verdicts(rules, core, store, log)
        self._figures = figures
        self._log = log
        self._tasks = tasks
        self.watched: set[str] = set()

    def tick(self) -> None:
        """Begins to watch groups with the verdict `later`; called about every 50 ms, also at a new owner."""
        for group_id in self._rules.later:
            if group_id not in self.watched and self._core.serves_group(group_id):
                self.watched.add(group_id)
                self._tasks.spawn(self._watch(group_id), "group not stable")

    async def postpone(self, group_id: str, why: str) -> None:
        await self._verdicts.write(group_id, cf.LATER, why)

    async def give_up(self, group_id: str, problem: str) -> None:
        """Writes the verdict that the broker keeps the group."""
        self._log.error("group not taken in", group_id=group_id, problem=problem)
        self._figures("moves", "sidecar", "given up").inc()
        await self._verdicts.write(group_id, "false", f"not taken in: {problem}")

    async def _watch(self, group_id: str) -> None:
        """Watches the broker's group until it is stable, or until the limit. Each wait has the whole time."""
        kind, again_s, since_s = "", 0.0, time.monotonic()
        try:
            while self._waits(group_id):
                await asyncio.sleep(self._patience.look_s)
                if kind and self._natives.fleet.unserved(kind):
                    since_s = time.monotonic()
                    if since_s < again_s:
                        continue
                try:
                    group = await self._natives.describe(group_id)
                    if not self._waits(group_id):
                        break  # an order that came while the broker was asked counts
                    kind, again_s = group.kind if group.members else "", time.monotonic() + UNSERVED_S
                    await self._look_at(group_id, group, time.monotonic() - since_s)
                except NO_ANSWER as exc:
                    self._log.debug("a group is waited for", group_id=group_id, problem=str(exc) or "timed out")
        finally:
            self.watched.discard(group_id)

    async def _look_at(self, group_id: str, group: Native, waited_s: float) -> None:
        if group.members and self._natives.fleet.unserved(group.kind):
            return
        if group.kind in (native.NO_MEMBERS, native.OTHER) or not group.members or group.stable:
            await self._comes(group_id)
        elif waited_s > self._patience.limit_s:
            await self.give_up(group_id, f"it does not become stable at the broker: {group.state}")

    def _waits(self, group_id: str) -> bool:
        return self._core.serves_group(group_id) and self._rules.overrides.get(group_id) == cf.LATER

    async def _comes(self, group_id: str) -> None:
        """Removes the verdict `later`, so that the group comes. An older sidecar wrote it in place of the order."""
        name, value = cf.VERDICT, None
        if self._rules.settings.value(group_id, cf.MANAGED) == cf.LATER:
            name, value = cf.MANAGED, None if self._rules.matches(group_id) else "true"
        await self._store(group_id, {name: value}, "it is stable at the broker now")
