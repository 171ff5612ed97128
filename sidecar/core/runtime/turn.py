"""What one event may see and do: fields and ports, never the shard itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sidecar.core.runtime.effects import Effects, Grant, Reply
from sidecar.core.runtime.events import NO_TOKEN, Answer, Event
from sidecar.core.runtime.member_limits import MemberLimits, Pending
from sidecar.core.runtime.quarantine import Quarantine
from sidecar.core.runtime.records import Record
from sidecar.core.runtime.timers import Timers
from sidecar.core.vocabulary.topics import TopicImage, TopicsMoved

RECORD_BYTES = 8 << 20
REBALANCES_KEPT = 64
"""Of a group, the last ones: a metric names the groups that have too many."""


@dataclass(slots=True)
class Now:
    """`mono_ms` drives timers, `wall_ms` is written down. Nobody changes one."""

    mono_ms: int
    wall_ms: int


@dataclass(slots=True)
class Soft:
    """What a coordinator knows of a group beside its records; it is lost with the coordinator. Kinds of groups add
    fields of their own."""

    revision: int = 0
    """Rises with each change of the group; a remembered answer of an older revision is void."""
    granted: bool = False
    """Some front may hold a grant of this revision."""
    unsettled_since_ms: int | None = None
    """Monotonic: when the first rebalance began since the group was last stable; None: it is, or nobody knows."""
    rebalanced_ms: list[int] = field(default_factory=list)
    """Monotonic: when the last rebalances began."""

    def rebalances(self, now_ms: int) -> None:
        if self.unsettled_since_ms is None:
            self.unsettled_since_ms = now_ms
        if len(self.rebalanced_ms) == REBALANCES_KEPT:
            del self.rebalanced_ms[0]
        self.rebalanced_ms.append(now_ms)


class Computed(dict[tuple[str, str], Any]):
    """Settings that a function gives, anew each time: for a coordinator whose settings change at will, as in tests."""

    def __init__(self, of: Callable[[str, str], Any]) -> None:
        super().__init__()
        self._of = of

    def __missing__(self, key: tuple[str, str]) -> Any:
        return self._of(*key)


@dataclass(frozen=True, slots=True)
class Ports:
    """What the coordinator is given. `assignors[kind][name]` runs for groups of that kind; `config[(kind, group_id)]`
    holds the settings in force for that group, whichever it is; `asks_access()` says whether topics found by a regular
    expression must be shown to the broker's authorizer."""

    assignors: Mapping[str, Mapping[str, Any]]
    config: Mapping[tuple[str, str], Any]
    asks_access: Callable[[], bool] = lambda: False
    record_bytes: int = RECORD_BYTES
    """What one request may make a single record hold: a batch takes no more."""
    lease_ms: int = 0
    """How long the former owner of a partition may go on answering members after the takeover."""
    quarantine: Quarantine = Quarantine()
    """How long joins are refused because the log of the groups was lost."""
    limits: MemberLimits = MemberLimits()
    topics_moved: TopicsMoved = field(default_factory=TopicsMoved)
    turns: Callable[[int, Event | None, Effects, Now], None] | None = None
    """Called after each turn of a partition with its event, if it had one, and its effects (`log.turns`)."""


@dataclass(slots=True)
class Turn:
    """One shard has one turn and begins it anew for each event."""

    ports: Ports
    timers: Timers
    groups: Mapping[str, Any]
    """Only replay changes it."""
    replay: Callable[[Record], None]
    changed: Callable[[str], None]
    """Voids what was granted to members of this group, though no record of it was written."""
    soft_of: Callable[[str], Any]
    image: TopicImage
    now: Now
    fx: Effects
    looked: bool = False
    """Topics were looked at for this event (topic_lookup.py)."""
    runs: int = 0
    pending: Pending = field(default_factory=Pending)
    doubt_until_ms: int = 0
    """See `arm_removal`."""

    def begin(self, now: Now) -> Effects:
        """The effects of the last event are used up, or belong to whoever took them."""
        self.now = now
        fx = self.fx
        if fx.records or fx.replies or fx.notes or fx.background or fx.voided:
            fx = self.fx = Effects()
        return fx

    def write(self, record: Record) -> None:
        """Append a record; it changes the state at once, so that later steps of the same event see it."""
        self.fx.records.append(record)
        self.replay(record)

    def reply(self, token: int, answer: Answer, grant: Grant | None = None) -> None:
        """Answer this request, now or after its own event has ended. The answer leaves when all is committed that
        was written before it."""
        if token != NO_TOKEN:
            self.fx.replies.append(Reply(token, answer, grant))

    def arm_removal(self, key: tuple[str, ...], timeout_ms: int, tag: int = 0) -> int:
        """Arm the timer that removes a member which is silent for so long from now on, and return its deadline: never
        before the leases of former owners end, which may answer the member until then. Else its partitions would have
        two owners. If this owner hears that they end earlier, the member has this time from then on: it may have been
        answered until then."""
        deadline_ms = self.now.mono_ms + timeout_ms
        if deadline_ms >= self.doubt_until_ms:
            self.timers.set(key, deadline_ms, tag)
            return deadline_ms
        self.timers.hold(key, self.doubt_until_ms, timeout_ms, tag)
        return self.doubt_until_ms

    def next_run(self) -> int:
        self.runs += 1
        return self.runs
