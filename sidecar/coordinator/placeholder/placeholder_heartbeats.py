"""Heartbeats of the placeholders: a few in each session, and what the broker's refusal means."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from zlib import crc32

from sidecar.coordinator.clock import now
from sidecar.coordinator.placeholder.broker_membership import Chair, Seating
from sidecar.core.vocabulary.errors import Code, name_of
from sidecar.kafka.net import NO_ANSWER
from sidecar.link.ports import Logger

HEARTBEATS = 3
"""In the time of one session."""
BEATS_AT_ONCE = 100
UNSEATED = (
    Code.UNKNOWN_MEMBER_ID,
    Code.FENCED_INSTANCE_ID,
    Code.ILLEGAL_GENERATION,
    Code.REBALANCE_IN_PROGRESS,
)
"""The broker knows no such member, or not so."""


class PlaceholderHeartbeats:
    """`leased(partition)`: this sidecar owns it; `lost(chair, why)`: the broker does not know the seat any more."""

    def __init__(
        self,
        seating: Seating,
        leased: Callable[[int], bool],
        lost: Callable[[Chair, str], None],
        log: Logger,
    ) -> None:
        self._seating = seating
        self._leased = leased
        self._lost = lost
        self._log = log

    def begin(self, chair: Chair) -> None:
        """It has a seat now. Groups that were seated together do not beat together."""
        interval_ms = self._interval_ms()
        spread_ms = interval_ms // 2 + crc32(chair.group_id.encode()) % (interval_ms // 2)
        chair.beat_ms = now().mono_ms + spread_ms

    async def round(self, chairs: Iterable[Chair]) -> None:
        """Of those that are due."""
        at_ms = now().mono_ms
        due = [c for c in chairs if c.final and c.beat_ms <= at_ms]
        for start in range(0, len(due), BEATS_AT_ONCE):
            await asyncio.gather(*[self._beat(c) for c in due[start : start + BEATS_AT_ONCE]])

    def _interval_ms(self) -> int:
        return self._seating.session_ms // HEARTBEATS

    async def _beat(self, chair: Chair) -> None:
        seat = chair.seat
        if seat is None or chair.busy or not self._leased(chair.partition):
            return
        try:
            code = await self._seating.heartbeat(chair, seat)
        except NO_ANSWER as exc:
            self._log.debug("placeholder not heard", group_id=chair.group_id, problem=str(exc) or "timed out")
            return
        if code == Code.NONE:
            chair.beat_ms = now().mono_ms + self._interval_ms()
        elif code in UNSEATED and chair.seat is seat and not chair.busy and not chair.gone:
            self._lost(chair, f"Heartbeat: {name_of(code)}")
