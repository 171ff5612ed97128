"""Soft state of a group with epochs. A takeover loses all of it, and correctness must not depend on it: a new owner
starts with a fresh one."""

from __future__ import annotations

from dataclasses import dataclass, field

from sidecar.core.modern.events import MemberHeartbeat, MemberReply
from sidecar.core.runtime.turn import Soft, Turn


@dataclass(slots=True)
class Flight:
    """The assignor run under way. `now` maps members of its snapshot to their present id, or to None if they are
    gone."""

    run_id: int
    assignor: str = ""
    now: dict[str, str | None] = field(default_factory=dict)
    _origins: dict[str, str] = field(default_factory=dict)
    """Present id -> id in the snapshot, of places that were handed over."""

    def gone(self, member_id: str, successor: str | None = None) -> None:
        """Notes that this member left, or handed its place to another id. A successor that was a member itself has no
        other place any more."""
        if successor is not None and successor != member_id:
            self.gone(successor)
        origin = self._origins.pop(member_id, None)
        if origin is None:
            if member_id in self.now:
                return
            origin = member_id
        self.now[origin] = successor
        if successor is not None:
            self._origins[successor] = origin


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request whose answer waits. `reply` is sent if no better answer comes until `until_ms` (monotonic). `epoch`:
    the group epoch whose target a member's heartbeat waits for; 0 for none, and for a join."""

    token: int
    request: MemberHeartbeat
    reply: MemberReply
    until_ms: int
    epoch: int = 0
    shown: bool = False
    """Whether work under way may need the connection of this request (`ModernSoft.needs_connection`)."""


@dataclass(frozen=True, slots=True)
class Resend:
    """An unacknowledged assignment: the time of its next resend (monotonic), and the resends left."""

    next_ms: int
    resends_left: int


@dataclass(slots=True)
class ModernSoft(Soft):
    metadata_due: bool = True
    """Whether topics of this group may have changed since its hash was computed."""
    flight: Flight | None = None
    """The assignor run under way; at most one."""
    failures: int = 0
    """Number of assignor runs that failed in a row."""
    retry_at_ms: int = 0
    """Monotonic time before which no run starts."""
    releasing: bool = False
    """Whether the group moves back to the broker: its target is empty."""
    unsettled: tuple[int, list[str]] = (-1, [])
    """An epoch, and the members that may not have reached it yet."""
    unacknowledged: dict[str, Resend] = field(default_factory=dict)
    """Unacknowledged assignments by member id."""
    waiting: dict[str, Waiting] = field(default_factory=dict)
    """Waiting requests by member id: only a member's last request counts."""

    def joins_wait(self) -> bool:
        """Whether work is under way without which a joining member gets no partitions. A kind may add conditions."""
        return self.flight is not None

    def needs_connection(self, turn: Turn) -> bool:
        """Whether work under way needs the connection of the request that started it. That request's answer then waits
        for the end of the work in any case."""
        return False
