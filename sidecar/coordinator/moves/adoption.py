"""Takes groups in from their brokers.

A group that has members at its broker is taken in if it is stable: it is recorded as the broker describes it, and then
its members are removed from the broker's group. A group that is not stable stays with the broker until it is
(unstable_groups.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum, auto

from sidecar.coordinator.clock import now
from sidecar.coordinator.moves.adoption_event import adoption_event, obstacle, topic_names
from sidecar.coordinator.moves.core_client import CoreClient
from sidecar.coordinator.moves.managed_groups import Rules
from sidecar.coordinator.moves.native_groups import NativeGroups
from sidecar.coordinator.moves.unstable_groups import UnstableGroups
from sidecar.core.streams.config import STREAMS
from sidecar.core.vocabulary.errors import Code, name_of
from sidecar.kafka.cluster import ConnectionLost
from sidecar.kafka.native import Native
from sidecar.kafka.net import NO_ANSWER
from sidecar.link.ports import Logger, Tasks

PAUSE_S, PAUSE_MAX_S = 0.05, 2.0
LOG_AGAIN_MS = 5_000


class Outcome(Enum):
    NOT_TAKEN = auto()
    """The broker keeps the group, or this sidecar does not own it any more, or it is not wanted any more."""
    NO_MEMBERS = auto()
    """The broker's group has no members that would have to be taken in."""
    TAKEN_IN = auto()


class Adoptions:
    """Adoptions of this sidecar's groups. `settle_s`: time after which every sidecar has read a new order or pattern;
    `ended(group, outcome)` is called once for each `begin`."""

    def __init__(
        self,
        settle_s: float,
        rules: Rules,
        core: CoreClient,
        natives: NativeGroups,
        unstable: UnstableGroups,
        ended: Callable[[str, Outcome], None],
        log: Logger,
        tasks: Tasks,
    ) -> None:
        self._settle_s = settle_s
        self._rules = rules
        self._core = core
        self._natives = natives
        self._unstable = unstable
        self._ended = ended
        self._log = log
        self._tasks = tasks
        self.under_way: set[str] = set()
        self.sent_away: set[str] = set()
        """Groups whose adopted members are being removed from the broker's group."""
        self._logged_ms = -LOG_AGAIN_MS

    def begin(self, group_id: str) -> None:
        """Begins to take the group in, unless its broker is being asked already."""
        if group_id not in self.under_way:
            self.under_way.add(group_id)
            self._tasks.spawn(self._take_in(group_id), "group comes")

    async def _take_in(self, group_id: str) -> None:
        outcome, pause_s = Outcome.NOT_TAKEN, PAUSE_S
        try:
            while self._core.serves_group(group_id) and self._rules.wanted(group_id):
                wait_s = self._settle_s - self._rules.in_force_s(group_id)
                if wait_s > 0:
                    await asyncio.sleep(wait_s)
                    continue
                try:
                    outcome = await self._decide(group_id, await self._natives.describe(group_id))
                    break
                except NO_ANSWER as exc:
                    self._not_described(group_id, str(exc) or "timed out", again=pause_s == PAUSE_MAX_S)
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, PAUSE_MAX_S)
        finally:
            self.under_way.discard(group_id)
        self._ended(group_id, outcome)

    def _not_described(self, group_id: str, problem: str, again: bool) -> None:
        """Logs that the broker did not describe a group whose members wait. `again`: it has failed for some seconds, so
        this is a warning."""
        if not again or now().mono_ms - self._logged_ms < LOG_AGAIN_MS:
            self._log.debug("the broker does not tell of a group", group_id=group_id, problem=problem)
            return
        self._logged_ms, waiting = now().mono_ms, len(self.under_way)
        self._log.warning("the broker does not tell of a group", group_id=group_id, groups=waiting, problem=problem)

    async def _decide(self, group_id: str, group: Native) -> Outcome:
        if not self._core.serves_group(group_id) or not self._rules.wanted(group_id):
            return Outcome.NOT_TAKEN
        if self._core.has(group_id):  # recorded by an earlier try, which judged the group before it removed members
            await self._natives.remove_adopted(group_id, group)
            return Outcome.TAKEN_IN
        unserved, patterns = self._natives.fleet.unserved(group.kind), self._rules.matches(group_id)
        if not group.members and not (unserved and not patterns):
            # If no sidecar coordinates the kind of the broker's group, api/one_name.py refuses joins here by its name.
            return Outcome.NO_MEMBERS
        if patterns and unserved:
            if self._natives.fleet.none_coordinates(group.kind):
                return Outcome.NO_MEMBERS
            await self._unstable.postpone(group_id, f"taken in when all do: {unserved}")
        elif problem := unserved or obstacle(group, self._core.settings(STREAMS, group_id).max_tasks):
            await self._unstable.give_up(group_id, problem)
        elif not group.stable:
            await self._unstable.postpone(group_id, f"it is {group.state} at the broker: taken in when it is stable")
        elif not self._core.knows_topics(group_id, group.topics, topic_names(group)):
            raise ConnectionLost("topics that it owns are not known here yet")
        else:
            await self._adopt(group_id, group)
            return Outcome.TAKEN_IN
        return Outcome.NOT_TAKEN

    async def _adopt(self, group_id: str, group: Native) -> None:
        why = self._rules.settings.why(group_id) or "the patterns name it"
        reply = await self._core.ask(adoption_event(group_id, group, f"taken over from the broker: {why}"))
        if reply.code not in (Code.NONE, Code.NON_EMPTY_GROUP):
            raise ConnectionLost(f"not taken in: {name_of(reply.code)}")
        await self._natives.remove_adopted(group_id, group)

    # ---- members that a former owner adopted -----------------------------------------------------------------------
    def remove_adopted(self, group_id: str) -> None:
        """Removes members that were taken in from the broker's group, where the placeholder has found other members."""
        if group_id not in self.sent_away | self.under_way and self._core.serves_group(group_id):
            self.sent_away.add(group_id)
            self._tasks.spawn(self._remove(group_id), "adopted members")

    async def _remove(self, group_id: str) -> None:
        try:
            await self._natives.remove_adopted(group_id, await self._natives.describe(group_id))
        except NO_ANSWER as exc:
            self._log.debug("members stay at the broker", group_id=group_id, problem=str(exc) or "timed out")
        finally:
            self.sent_away.discard(group_id)
