"""Groups that are wanted here and are not stable at their broker: it keeps them until they are, or for too long. So it
does, for as long as it takes, with those of a kind that not all sidecars coordinate yet.

What the owner of such a group finds stands in the state topic as a verdict about the order that is known now
(managed_groups.py): `later` while the group is waited for, `false` when it is given up.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from sidecar.coordinator.moves.core_client import CoreClient
from sidecar.coordinator.moves.managed_groups import Rules, Store
from sidecar.coordinator.moves.native_groups import NativeGroups
from sidecar.core.vocabulary import group_config as cf
from sidecar.kafka import native
from sidecar.kafka.native import Native
from sidecar.kafka.net import NO_ANSWER
from sidecar.link.ports import Figures, Logger, Tasks


@dataclass(frozen=True)
class Patience:
    """`limit_s`: how long a group is waited for that is not stable; every `look_s` its broker is asked."""

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
        self._figures = figures
        self._log = log
        self._tasks = tasks
        self.watched: set[str] = set()
        self._first_try_s: dict[str, float] = {}

    def tick(self) -> None:
        """Every 50 ms or so: also a new owner watches what is to be taken in later."""
        for group_id in self._rules.later:
            if group_id not in self.watched and self._core.serves_group(group_id):
                self.watched.add(group_id)
                self._tasks.spawn(self._watch(group_id), "group not stable")

    async def postpone(self, group_id: str, why: str) -> None:
        self._first_try_s.setdefault(group_id, time.monotonic())
        await self._judge(group_id, cf.LATER, why)

    async def give_up(self, group_id: str, problem: str) -> None:
        """The broker keeps it for good."""
        self.forget(group_id)
        self._log.error("group not taken in", group_id=group_id, problem=problem)
        self._figures("moves", "sidecar", "given up").inc()
        await self._judge(group_id, "false", f"not taken in: {problem}")

    def forget(self, group_id: str) -> None:
        """It is here, or there is none: another time it is waited for as long again."""
        self._first_try_s.pop(group_id, None)

    async def _watch(self, group_id: str) -> None:
        """Until the broker's group is stable, or it has been waited for long enough."""
        self._first_try_s.setdefault(group_id, time.monotonic())
        try:
            while self._waits(group_id):
                await asyncio.sleep(self._patience.look_s)
                try:
                    found = await self._natives.describe(group_id)
                    if not self._waits(group_id):
                        break  # what was said while the broker was asked counts
                    await self._look_at(group_id, found)
                except NO_ANSWER as exc:
                    self._log.debug("a group is waited for", group_id=group_id, problem=str(exc) or "timed out")
        finally:
            self.watched.discard(group_id)
            if not self._waits(group_id):
                self.forget(group_id)

    async def _look_at(self, group_id: str, found: Native) -> None:
        if found.members and self._natives.fleet.unserved(found.kind):
            self._first_try_s[group_id] = time.monotonic()
        elif time.monotonic() - self._first_try_s[group_id] > self._patience.limit_s:
            await self.give_up(group_id, f"it does not become stable at the broker: {found.state}")
        elif found.kind in (native.NOBODY, native.OTHER) or not found.members or found.stable:
            await self._comes(group_id)

    def _waits(self, group_id: str) -> bool:
        return self._core.serves_group(group_id) and self._rules.overrides.get(group_id) == cf.LATER

    async def _judge(self, group_id: str, word: str, why: str) -> None:
        """About the order that is known now; of one that is under way, this will say nothing."""
        await self._store(group_id, {cf.VERDICT: self._rules.settings.as_verdict(group_id, word)}, why)

    async def _comes(self, group_id: str) -> None:
        """It need not be waited for any more. An older sidecar has written in the place of the order."""
        name, value = cf.VERDICT, None
        if self._rules.settings.value(group_id, cf.MANAGED) == cf.LATER:
            name, value = cf.MANAGED, None if self._rules.matches(group_id) else "true"
        await self._store(group_id, {name: value}, "it is stable at the broker now")
