"""Gives groups that are not wanted here any more back to their brokers.

The members give up their partitions (core, `ReleaseGroup`). When the group has no members and its placeholder has left
the broker's group, its records are removed; with the last of them the group is the broker's.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from sidecar.coordinator.moves.core_client import CoreClient
from sidecar.coordinator.moves.managed_groups import Rules
from sidecar.coordinator.moves.unserved_groups import UnservedGroups
from sidecar.core.runtime.events import DeleteGroup, ReleaseGroup, ReleaseReply
from sidecar.core.vocabulary.errors import Code
from sidecar.link.ports import Figures, Logger, Tasks

PAUSE_S = 0.05


class Releases:
    """Releases of this sidecar's groups. `at_once`: groups that are given back at the same time;
    `placeholder_gone(group)`: whether no placeholder is left at the broker."""

    def __init__(
        self,
        at_once: int,
        rules: Rules,
        core: CoreClient,
        unserved: UnservedGroups,
        placeholder_gone: Callable[[str], bool],
        figures: Figures,
        log: Logger,
        tasks: Tasks,
    ) -> None:
        self._at_once = at_once
        self._rules = rules
        self._core = core
        self._unserved = unserved
        self._placeholder_gone = placeholder_gone
        self._figures = figures
        self._log = log
        self._tasks = tasks
        self.under_way: set[str] = set()
        figures("groups_leaving").set_function(lambda: sum(map(len, rules.kept)))

    def tick(self) -> None:
        """Begins to release groups that are here but not wanted; called about every 50 ms."""
        for group_id in [g for kept in self._rules.kept for g in kept]:
            if len(self.under_way) >= self._at_once:
                break
            if group_id not in self.under_way and self._core.serves_group(group_id):
                self.under_way.add(group_id)
                self._tasks.spawn(self._release(group_id), "group leaves")

    async def _release(self, group_id: str) -> None:
        try:
            await self._give_back(group_id)
        finally:
            self.under_way.discard(group_id)

    async def _give_back(self, group_id: str) -> None:
        began_s = time.monotonic()
        why = self._rules.settings.why(group_id) or "the patterns leave it to the broker"
        await self._unserved.look(group_id)
        while not self._rules.wanted(group_id):
            reply = await self._core.ask(ReleaseGroup(group_id, f"goes back to the broker: {why}"))
            if not isinstance(reply, ReleaseReply) or reply.code != Code.NONE:
                return  # it is gone, or another sidecar goes on
            if reply.members == 0 and not reply.placeholder and self._placeholder_gone(group_id):
                deleted = await self._core.ask(DeleteGroup(group_id))
                if deleted.code == Code.NONE:
                    seconds = round(time.monotonic() - began_s, 3)
                    self._log.info("group given back to the broker", group_id=group_id, seconds=seconds, why=why)
                    self._figures("moves", "broker", "done").inc()
                    return
            await asyncio.sleep(PAUSE_S)
        await self._core.ask(ReleaseGroup(group_id, "stays with the sidecars", stop=True))
