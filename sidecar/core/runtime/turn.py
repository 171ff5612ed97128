"""One turn: the fields and ports through which an event's handler works, without access to the shard itself."""

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
"""Number of a group's last rebalances that are kept: a metric names the groups that have too many."""


@dataclass(slots=True)
class Now:
    """One point in time: `mono_ms` drives timers, `wall_ms` goes into records. Must not be changed once made."""

    mono_ms: int
    wall_ms: int


@dataclass(slots=True)
class Soft:
    """Soft state of a group: not in its records, and lost with the coordinator. Kinds of groups add fields of their
    own."""

    revision: int = 0
    """Rises with each change of the group. A remembered answer of an older revision is void."""
    granted: bool = False
    """Whether a front may hold a grant of this revision."""
    held_bytes: int = 0
    """Bytes of it that count as memory of members; `Turn.hold` changes them."""
    unsettled_since_ms: int | None = None
    """Start of the first rebalance since the group was last stable, monotonic; None: it is stable, or this is
    unknown."""
    rebalanced_ms: list[int] = field(default_factory=list)
    """Starts of the last rebalances, monotonic."""

    def rebalances(self, now_ms: int) -> None:
        if self.unsettled_since_ms is None:
            self.unsettled_since_ms = now_ms
        if len(self.rebalanced_ms) == REBALANCES_KEPT:
            del self.rebalanced_ms[0]
        self.rebalanced_ms.append(now_ms)


class Computed(dict[tuple[str, str], Any]):
    """Settings that a function computes anew for each look-up: for a coordinator whose settings change at will, as in
    tests."""

    def __init__(self, of: Callable[[str, str], Any]) -> None:
        super().__init__()
        self._of = of

    def __missing__(self, key: tuple[str, str]) -> Any:
        return self._of(*key)


@dataclass(frozen=True, slots=True)
class Ports:
    """Functions and settings that the coordinator works with. `assignors[kind][name]` runs for groups of that kind;
    `config[(kind, group_id)]` holds the settings in force for any group; `asks_access()`: whether the broker's
    authorizer must check topics found by a regular expression."""

    assignors: Mapping[str, Mapping[str, Any]]
    config: Mapping[tuple[str, str], Any]
    asks_access: Callable[[], bool] = lambda: False
    record_bytes: int = RECORD_BYTES
    """Most bytes that one request may put into a single record: a batch takes no more."""
    lease_ms: int = 0
    """Longest time for which a former owner may still answer members after a takeover."""
    quarantine: Quarantine = Quarantine()
    """The time in which joins are refused because the log of the groups was lost."""
    limits: MemberLimits = MemberLimits()
    topics_moved: TopicsMoved = field(default_factory=TopicsMoved)
    turns: Callable[[int, Event | None, Effects, Now], None] | None = None
    """Called after each turn of a partition with its event, if it had one, and its effects (`log.turns`)."""


@dataclass(slots=True)
class Turn:
    """Everything that the handler of one event works with. A shard has one turn and begins it anew for each event."""

    ports: Ports
    timers: Timers
    groups: Mapping[str, Any]
    """Groups by id. Only replay changes this mapping."""
    replay: Callable[[Record], None]
    changed: Callable[[str], None]
    """Voids the grants of this group, though no record of it was written."""
    hold: Callable[[str, int], None]
    """Counts so many more bytes of this group's soft state, or fewer."""
    soft_of: Callable[[str], Any]
    image: TopicImage
    now: Now
    fx: Effects
    looked: bool = False
    """Whether the topics were looked up for this event (topic_lookup.py)."""
    runs: int = 0
    pending: Pending = field(default_factory=Pending)
    former_leases_end_ms: int = 0
    """End of the former owners' leases; see `arm_removal`."""

    def begin(self, now: Now) -> Effects:
        """Begins the turn of another event. Effects of the last event that were not taken out stay with their
        holder."""
        self.now = now
        fx = self.fx
        if fx.records or fx.proved or fx.replies or fx.notes or fx.background or fx.voided:
            fx = self.fx = Effects()
        return fx

    def write(self, record: Record) -> None:
        """Appends a record. It changes the state at once, so that later steps of the same event see it."""
        self.fx.records.append(record)
        self.replay(record)

    def prove(self, group_id: str) -> None:
        """Holds the answers to this group back until a fenced write is committed: what they say from memory may be out
        of date where another sidecar has taken over."""
        self.fx.proved.append(group_id)

    def reply(self, token: int, answer: Answer, grant: Grant | None = None) -> None:
        """Answers this request, now or after its own event has ended. The answer leaves when all records of its group
        written before it are committed."""
        if token != NO_TOKEN:
            self.fx.replies.append(Reply(token, answer, grant))

    def arm_removal(self, key: tuple[str, ...], timeout_ms: int, tag: int = 0) -> int:
        """Arms the timer that removes a member after `timeout_ms` of silence, and returns its deadline. The deadline is
        never before the end of the former owners' leases: they may answer the member until then, and its partitions
        would have two owners. If this owner learns of an earlier end, the member has `timeout_ms` from then on."""
        deadline_ms = self.now.mono_ms + timeout_ms
        if deadline_ms >= self.former_leases_end_ms:
            self.timers.set(key, deadline_ms, tag)
            return deadline_ms
        self.timers.hold(key, self.former_leases_end_ms, timeout_ms, tag)
        return self.former_leases_end_ms

    def next_run(self) -> int:
        self.runs += 1
        return self.runs
