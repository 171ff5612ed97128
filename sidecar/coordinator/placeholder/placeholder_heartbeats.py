"""Heartbeats of the placeholders: a few in each session timeout. A broker's refusal shows a lost placeholder."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from zlib import crc32

from sidecar.coordinator.clock import now
from sidecar.coordinator.placeholder.broker_membership import BrokerMembership, Placeholder
from sidecar.core.vocabulary.errors import Code, name_of
from sidecar.kafka.net import NO_ANSWER
from sidecar.link.ports import Logger

HEARTBEATS = 3
"""Heartbeats within one session timeout."""
BEATS_AT_ONCE = 100
NOT_A_MEMBER = (
    Code.UNKNOWN_MEMBER_ID,
    Code.FENCED_INSTANCE_ID,
    Code.ILLEGAL_GENERATION,
    Code.REBALANCE_IN_PROGRESS,
)
"""Errors by which the broker does not know the placeholder, or not in this generation."""


class PlaceholderHeartbeats:
    """Sends the heartbeats. `leased(partition)`: whether this sidecar owns the partition under a lease;
    `lost(placeholder, why)`: called when the broker does not know the placeholder any more."""

    def __init__(
        self,
        membership: BrokerMembership,
        leased: Callable[[int], bool],
        lost: Callable[[Placeholder, str], None],
        log: Logger,
    ) -> None:
        self._membership = membership
        self._leased = leased
        self._lost = lost
        self._log = log

    def begin(self, placeholder: Placeholder) -> None:
        """Sets the first heartbeat of a placeholder that has joined. Groups that joined together are spread out."""
        interval_ms = self._interval_ms()
        spread_ms = interval_ms // 2 + crc32(placeholder.group_id.encode()) % (interval_ms // 2)
        placeholder.beat_ms = now().mono_ms + spread_ms

    async def round(self, placeholders: Iterable[Placeholder]) -> None:
        """Sends all heartbeats that are due."""
        at_ms = now().mono_ms
        due = [c for c in placeholders if c.final and c.beat_ms <= at_ms]
        for start in range(0, len(due), BEATS_AT_ONCE):
            await asyncio.gather(*[self._beat(c) for c in due[start : start + BEATS_AT_ONCE]])

    def _interval_ms(self) -> int:
        return self._membership.session_ms // HEARTBEATS

    async def _beat(self, placeholder: Placeholder) -> None:
        identity = placeholder.identity
        if identity is None or placeholder.busy or not self._leased(placeholder.partition):
            return
        try:
            code = await self._membership.heartbeat(placeholder, identity)
        except NO_ANSWER as exc:
            self._log.debug("placeholder not heard", group_id=placeholder.group_id, problem=str(exc) or "timed out")
            return
        if code == Code.NONE:
            placeholder.beat_ms = now().mono_ms + self._interval_ms()
        elif (
            code in NOT_A_MEMBER and placeholder.identity is identity and not placeholder.busy and not placeholder.gone
        ):
            self._lost(placeholder, f"Heartbeat: {name_of(code)}")
