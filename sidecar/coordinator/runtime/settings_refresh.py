"""Reads the broker's settings of groups at intervals, and at once when a change passed through this sidecar."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sidecar.coordinator.settings.settings_in_force import SettingsInForce
from sidecar.kafka.cluster import Cluster
from sidecar.kafka.net import NO_ANSWER
from sidecar.link.ports import Logger

CONTROLLER_LAG_S = 0.1
"""Seconds until a second read: a change reaches the broker a little after the controller has answered it."""


class SettingsRefresh:
    """Refreshes the settings. `changed()` is called when they differ from the last read."""

    def __init__(
        self, configs: SettingsInForce, cluster: Cluster, refresh_s: float, changed: Callable[[], None], log: Logger
    ) -> None:
        self._configs = configs
        self._cluster = cluster
        self._refresh_s = refresh_s
        self._changed = changed
        self._log = log

    async def rounds(self) -> None:
        """Reads for ever, every `refresh_s` and on demand."""
        wanted = self._configs.broker.wanted
        while True:
            await self._read()
            try:
                async with asyncio.timeout(self._refresh_s):
                    await wanted.wait()
            except TimeoutError:
                continue
            wanted.clear()
            await self._read()
            await asyncio.sleep(CONTROLLER_LAG_S)

    async def _read(self) -> None:
        try:
            if await self._configs.refresh(self._cluster):
                self._changed()
        except NO_ANSWER as exc:
            self._log.debug("settings not read", problem=str(exc) or "timed out")
