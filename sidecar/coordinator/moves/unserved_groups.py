"""Groups that should go back to a broker that does not serve their kind. Their members would end there with
UNSUPPORTED_VERSION, so they stay here, and a verdict gives the reason (managed_groups.py).

An example are consumer groups at a broker of Kafka 3, which only the sidecars coordinate.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sidecar.coordinator.moves.core_client import CoreClient
from sidecar.coordinator.moves.managed_groups import Rules, Store
from sidecar.coordinator.moves.native_groups import NativeGroups
from sidecar.coordinator.moves.verdicts import Verdicts
from sidecar.core.vocabulary import group_config as cf
from sidecar.kafka.net import NO_ANSWER
from sidecar.link.ports import Figures, Logger


class UnservedGroups:
    """Holds back releases that the broker could not serve. `store`: writes the verdict."""

    def __init__(
        self, rules: Rules, core: CoreClient, natives: NativeGroups, store: Store, figures: Figures, log: Logger
    ) -> None:
        self._rules = rules
        self._core = core
        self._natives = natives
        self._verdicts = Verdicts(rules, core, store, log)
        self._figures = figures
        self._log = log

    async def look(self, group_id: str, pause_s: Callable[[], float]) -> None:
        """Returns when the broker can serve this unwanted group's members, or when the group is wanted after all.
        `pause_s`: seconds between two questions."""
        written = ""
        while self._core.serves_group(group_id) and not self._rules.wanted(group_id):
            verdict = self._rules.settings.as_verdict(group_id, "true")
            if verdict != written:  # else the verdict on this order is written, and not read back yet
                try:
                    problem = await self._natives.refusal(group_id)
                except NO_ANSWER as exc:
                    self._log.debug(
                        "the broker does not tell of a group", group_id=group_id, problem=str(exc) or "timed out"
                    )
                else:
                    if not problem:
                        return
                    written = verdict
                    await self._refuse(group_id, problem)
            await asyncio.sleep(pause_s())

    async def _refuse(self, group_id: str, problem: str) -> None:
        self._log.error("group not given back", group_id=group_id, problem=problem)
        self._figures("moves", "broker", "given up").inc()
        await self._verdicts.write(group_id, "true", cf.NOT_GIVEN_BACK + problem)
