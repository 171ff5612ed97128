"""Writes the owner's verdicts about orders into the state topic (managed_groups.py)."""

from __future__ import annotations

import asyncio

from sidecar.coordinator.moves.core_client import CoreClient
from sidecar.coordinator.moves.managed_groups import Rules, Store
from sidecar.core.vocabulary import group_config as cf
from sidecar.kafka.cluster import ConnectionLost
from sidecar.link.ports import Logger

PAUSE_S = 0.5
"""Pause after a lost write, which has taken state.write_timeout_ms already."""


class Verdicts:
    def __init__(self, rules: Rules, core: CoreClient, store: Store, log: Logger) -> None:
        self._rules = rules
        self._core = core
        self._store = store
        self._log = log

    async def write(self, group_id: str, verdict: str, why: str) -> None:
        """Writes a verdict about the order that is known now; it will not count for an order that is under way. Tries
        again after a lost write while the same order stands: the caller has counted and logged this verdict."""
        value, wanted = self._rules.settings.as_verdict(group_id, verdict), self._rules.wanted(group_id)
        while (
            self._core.serves_group(group_id)
            and self._rules.settings.as_verdict(group_id, verdict) == value
            and self._rules.wanted(group_id) == wanted
        ):
            try:
                await self._store(group_id, {cf.VERDICT: value}, why)
            except ConnectionLost as exc:
                self._log.debug("a verdict is not written", group_id=group_id, verdict=verdict, problem=str(exc))
                await asyncio.sleep(PAUSE_S)
            else:
                return
