"""Gives groups that are not wanted here any more back to their brokers.

The members give up their partitions (core, `ReleaseGroup`). When the group has no members and its placeholder has left
the broker's group, its records are removed; with the last of them the group is the broker's.

Only so many releases begin at the same time, as their members join anew together. One that waits for a member or broker
does not hold up the others: after a while it gives up its place. Until its own release begins, a group goes on here and
takes new members.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from itertools import zip_longest

from sidecar.coordinator.moves.core_client import CoreClient
from sidecar.coordinator.moves.managed_groups import Rules
from sidecar.coordinator.moves.unserved_groups import UnservedGroups
from sidecar.core.runtime.events import DeleteGroup, ReleaseGroup, ReleaseReply
from sidecar.core.vocabulary.errors import Code
from sidecar.link.ports import Figures, Logger, Tasks

PAUSE_S, WAITING_S = 0.05, 0.5
"""Pause between two looks at a group, and that once it has given up its place."""
LOOKS_PER_S = 1_000
"""Most looks per second at all groups that have given up their places."""
REFUSED_MAX_S = 10.0
"""Longest pause after the core has refused a release, as it does for an unreadable group."""
PLACE_S = 5.0
"""Time after which a release gives up its place: members mostly need no longer."""
LOOKED_AT = 200
"""Most groups that one tick looks at, however many wait."""


class Releases:
    """Releases of this sidecar's groups. `at_once`: places for groups that are given back at the same time;
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
        self._places: dict[str, float] = {}
        """Group -> monotonic time at which its release gives up its place."""
        self._round: Iterator[str] = iter(())
        """The groups that are still to be looked at, before all are looked at again."""
        figures("groups_leaving").set_function(lambda: sum(map(len, rules.kept)))

    def tick(self) -> None:
        """Begins to release groups that are here but not wanted; called about every 50 ms, and at each order."""
        at_s = time.monotonic()
        self._places = {g: until_s for g, until_s in self._places.items() if until_s > at_s}
        renewed = False
        for _ in range(LOOKED_AT):
            if len(self._places) >= self._at_once:
                return
            group_id = next(self._round, None)
            if group_id is None:
                if renewed:
                    return
                self._round, renewed = self._groups(), True
                continue
            if group_id not in self.under_way and self._core.serves_group(group_id) and self._rules.leaves(group_id):
                self.under_way.add(group_id)
                self._places[group_id] = at_s + PLACE_S
                self._tasks.spawn(self._release(group_id), "group leaves")

    def _groups(self) -> Iterator[str]:
        """Yields the groups that should leave, from all partitions by turns, the oldest first."""
        kept = [groups for partition, groups in enumerate(self._rules.kept) if self._core.serves(partition)]
        for turn in list(zip_longest(*kept)):
            yield from (group_id for group_id in turn if group_id is not None)

    async def _release(self, group_id: str) -> None:
        try:
            await self._give_back(group_id)
        finally:
            self.under_way.discard(group_id)
            self._places.pop(group_id, None)

    def _pause_s(self, group_id: str) -> float:
        return PAUSE_S if group_id in self._places else max(WAITING_S, len(self.under_way) / LOOKS_PER_S)

    async def _give_back(self, group_id: str) -> None:
        """Releases the group, or stops its release if it is wanted again. The core goes on with a release until it is
        told to stop, so this ends before only where the core has nothing of the group."""
        began_s = time.monotonic()
        why = self._rules.settings.why(group_id) or "the patterns leave it to the broker"
        await self._unserved.look(group_id, lambda: self._pause_s(group_id))
        refused_s = PAUSE_S
        while self._core.has(group_id):
            stays = self._rules.wanted(group_id)
            reason = "stays with the sidecars" if stays else f"goes back to the broker: {why}"
            reply = await self._core.ask(ReleaseGroup(group_id, reason, stop=stays))
            if not isinstance(reply, ReleaseReply) or reply.code != Code.NONE:
                self._places.pop(group_id, None)
                await asyncio.sleep(max(refused_s, self._pause_s(group_id)))
                refused_s = min(2 * refused_s, REFUSED_MAX_S)
                continue
            if stays:
                return
            if reply.members == 0 and not reply.placeholder and self._placeholder_gone(group_id):
                deleted = await self._core.ask(DeleteGroup(group_id))
                if deleted.code == Code.NONE:
                    seconds = round(time.monotonic() - began_s, 3)
                    self._log.info("group given back to the broker", group_id=group_id, seconds=seconds, why=why)
                    self._figures("moves", "broker", "done").inc()
                    return
            await asyncio.sleep(self._pause_s(group_id))
