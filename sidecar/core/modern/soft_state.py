"""What a coordinator knows of a group with epochs beside its records. All of it is lost at a takeover, and none of it
may be needed to be right: a new owner starts with a fresh one."""

from __future__ import annotations

from dataclasses import dataclass, field

from sidecar.core.modern.events import MemberHeartbeat, MemberReply
from sidecar.core.runtime.turn import Soft, Turn


@dataclass(slots=True)
class Flight:
    """The assignor run under way. `now` maps members of its snapshot to the id that they have since, or to None if
    they are gone."""

    run_id: int
    assignor: str = ""
    now: dict[str, str | None] = field(default_factory=dict)

    def gone(self, member_id: str, successor: str | None = None) -> None:
        """This member left, or handed its place to another id."""
        for old, current in self.now.items():
            if current == member_id:
                self.now[old] = successor
                return
        self.now.setdefault(member_id, successor)


@dataclass(frozen=True, slots=True)
class Waiting:
    """A request whose answer waits. `reply` is what it gets if nothing better comes until `until_ms` (monotonic).
    `epoch`: for which epoch of the group the heartbeat of a member wants the target, 0: for none, and for a join."""

    token: int
    asked: MemberHeartbeat
    reply: MemberReply
    until_ms: int
    epoch: int = 0
    shown: bool = False
    """What is under way may need the connection of this request (`ModernSoft.needs_connection`)."""


@dataclass(frozen=True, slots=True)
class Told:
    """An assignment that a member has not acknowledged: when to tell it again (monotonic), and how often."""

    again_ms: int
    left: int


@dataclass(slots=True)
class ModernSoft(Soft):
    metadata_due: bool = True
    """Topics of this group may have changed since its hash was computed."""
    flight: Flight | None = None
    """The assignor run under way; at most one."""
    failures: int = 0
    """Assignor runs that failed in a row."""
    retry_at_ms: int = 0
    """Monotonic: no run before then."""
    releasing: bool = False
    """The group goes back to the broker: its target is that nobody owns anything."""
    unsettled: tuple[int, list[str]] = (-1, [])
    """An epoch, and the members that may not have reached it yet."""
    told: dict[str, Told] = field(default_factory=dict)
    """By member id."""
    waiting: dict[str, Waiting] = field(default_factory=dict)
    """By member id: a member has one request that counts."""

    def joins_wait(self) -> bool:
        """Whether something is under way without which a member that joins gets nothing. A kind may know more."""
        return self.flight is not None

    def needs_connection(self, turn: Turn) -> bool:
        """Whether what is under way needs the connection of the request that asked for it, whose answer waits for its
        end in any case."""
        return False
