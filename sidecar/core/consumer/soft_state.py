"""What a coordinator knows of a consumer group beside its records. All of it is lost at a takeover, and none of it
may be needed to be right: a new owner starts with a fresh one."""

from __future__ import annotations

from dataclasses import dataclass, field

from sidecar.core.consumer.assignor_run import KnownLayout
from sidecar.core.consumer.events import ConsumerHeartbeat, HeartbeatReply
from sidecar.core.runtime.turn import Soft


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
    asked: ConsumerHeartbeat
    reply: HeartbeatReply
    until_ms: int
    epoch: int = 0
    shown: bool = False
    """Topics that a regular expression matches are shown to the authorizer on its connection."""


@dataclass(frozen=True, slots=True)
class Told:
    """An assignment that a member has not acknowledged: when to tell it again (monotonic), and how often."""

    again_ms: int
    left: int


@dataclass(slots=True)
class ConsumerSoft(Soft):
    metadata_due: bool = True
    """Topics of this group may have changed since its hash was computed."""
    layout: KnownLayout | None = None
    """The arrays of the last assignor run."""
    flight: Flight | None = None
    """The assignor run under way; at most one."""
    failures: int = 0
    """Assignor runs that failed in a row."""
    retry_at_ms: int = 0
    """Monotonic: no run before then."""
    resolving: bool = False
    """The group's regular expressions are being resolved."""
    matched_ms: list[int] = field(default_factory=list)
    """Monotonic: when they were last, `regex_matches` times at most."""
    draining: bool = False
    """The group goes back to the broker: its target is that nobody owns anything."""
    unsettled: tuple[int, list[str]] = (-1, [])
    """An epoch, and the members that may not have reached it yet."""
    told: dict[str, Told] = field(default_factory=dict)
    """By member id."""
    waiting: dict[str, Waiting] = field(default_factory=dict)
    """By member id: a member has one request that counts."""
