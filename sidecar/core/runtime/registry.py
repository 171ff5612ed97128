"""The interface between the shard and a group of any kind, and the registry of kinds.

A kind of group is one folder beside this file and one row in kinds.py: its class (hard state, changed by replay alone),
its soft state, the events it answers, its timers, its records. Neither shard, state nor audit names a kind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sidecar.core.runtime.events import DeletionCheckReply, Event
from sidecar.core.runtime.inspect import Inspect
from sidecar.core.runtime.records import Record, RecordKind, Role, Tombstone
from sidecar.core.runtime.turn import Soft, Turn
from sidecar.core.vocabulary.errors import InvariantError


class Group(Protocol):
    """The hard state of one group."""

    @property
    def group_id(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def protocol_type(self) -> str:
        """The protocol type that ListGroups shows."""

    @property
    def held_bytes(self) -> int:
        """About how many bytes its members take in memory (member_limits.py)."""

    def state_name(self) -> str:
        """Name of the state in the Kafka protocol."""

    def member_count(self) -> int: ...

    def member_ids(self) -> Collection[str]: ...

    def deletion_check(self) -> DeletionCheckReply:
        """Members and subscriptions that forbid a deletion of the group or its offsets."""

    def replay(self, record: Record) -> None:
        """Applies one record. Must accept the leftovers of compaction: parts of members, tombstones of unknown keys."""

    def tombstones(self, why: str) -> Sequence[Tombstone]:
        """A tombstone for every key of an empty group, the root last."""


Handler = Callable[[Turn, Any, int], None]
"""(turn, event, token)."""
TimerHandler = Callable[[Turn, Any, tuple[str, ...], int], None]
"""(turn, group, timer key, tag). The key is (timer name, group id, ...)."""


@dataclass(frozen=True)
class GroupKind:
    name: str
    make: Callable[[str], Group]
    soft: Callable[[], Soft]
    config: Callable[[], Any]
    """Makes the default settings of a group of this kind."""
    records: tuple[RecordKind, ...]
    """Kinds of records, in the order in which a rebuild replays them."""
    events: Mapping[type[Event], Handler]
    """The events that this kind answers for its own groups. Several kinds may answer the same event; the first of them
    also answers for a group that does not exist."""
    timers: Mapping[str, TimerHandler]
    loaded: Callable[[Turn, Any], None]
    """Arms the timers of a rebuilt group, except those of its members."""
    touched: Callable[[Turn, Any, str], None]
    """Called when a front reports that it answered this member's heartbeat under a grant: (turn, group, member id)."""
    topics_changed: Callable[[Turn, Any, frozenset[str]], None]
    inspect: Inspect
    """The views of this kind's groups for people."""
    member_loaded: Callable[[Turn, Any, str], None] = field(default=lambda turn, group, member_id: None)
    """Arms the timers of one member of a group that was rebuilt: (turn, group, member id)."""
    removing: frozenset[str] = frozenset()
    """Names of the timers that remove a silent member."""
    in_barrier: Callable[[Any], bool] = field(default=lambda group: False)
    """Whether members of this group wait for one another; another owner would have to start that anew."""
    answer_waiting: Callable[[Turn, Any], None] = field(default=lambda turn, group: None)
    """Answers every waiting request, because the group is about to be deleted or to become one of another kind."""
    commits: bool = True
    """Whether members commit offsets at the broker. If so, their group has a placeholder of the classic protocol there,
    for which the broker keeps the offsets (`Occupied`)."""
    run: Callable[[Any, Any], Any] | None = None
    """Runs an assignor in any thread: (input, assignor) -> output. Pure. None: members assign, as in classic groups."""


@dataclass(frozen=True)
class RecordRow:
    kind: GroupKind
    record: RecordKind
    order: int


class Registry:
    """The kinds of groups, and the records and events derived from them. Each kind names its timers for itself.

    `crossings`: handlers of events that meet a group of a kind which does not know them. An event without one is
    handled as if the group did not exist."""

    def __init__(
        self, kinds: Sequence[GroupKind], crossings: Mapping[str, Mapping[type[Event], Handler]] | None = None
    ) -> None:
        self.kinds = {k.name: k for k in kinds}
        self.records: dict[str, RecordRow] = {}
        self.events: dict[type[Event], dict[str, Handler]] = {}
        """Event -> name of a kind -> handler; under NO_GROUP, the handler for a group that does not exist."""
        self.removing = frozenset(name for kind in kinds for name in kind.removing)
        for kind in kinds:
            rows = {r.name: RecordRow(kind, r, i) for i, r in enumerate(kind.records)}
            if duplicates := self.records.keys() & rows.keys():
                raise ValueError(f"{duplicates} of kind {kind.name} is taken already")
            self.records.update(rows)
            for event, handler in kind.events.items():
                self.events.setdefault(event, {NO_GROUP: handler})[kind.name] = handler
        for name, events in (crossings or {}).items():
            for event, handler in events.items():
                if name in self.events[event]:
                    raise ValueError(f"kind {name} answers {event.__name__} itself")
                self.events[event][name] = handler

    def order(self, kind: str) -> int:
        """Returns the place of these records in a rebuild. Unknown kinds come first, and fail."""
        row = self.records.get(kind)
        return -1 if row is None else row.order

    def role(self, kind: str) -> Role:
        row = self.records.get(kind)
        return Role.OTHER if row is None else row.record.role

    def replayed(self, record: Record, group: Group | None) -> Group:
        """Applies this last value of a key to a group under construction, and returns the group. `group` None: makes a
        new one. Raises InvariantError."""
        row = self.records.get(record.kind)
        if row is None:
            raise InvariantError(f"group {record.group_id}: no kind of record is called {record.kind}")
        if group is None:
            group = row.kind.make(record.group_id)
        if group.kind != row.kind.name:
            raise InvariantError(f"group {record.group_id} is a {group.kind} group and has a record {record.kind}")
        group.replay(record)
        return group

    def runner(self, kind: str) -> Callable[[Any, Any], Any]:
        """Returns the function that runs the background work of groups of this kind. Raises TypeError if the kind has
        none."""
        run = self.kinds[kind].run
        if run is None:
            raise TypeError(f"kind {kind} has no background work")
        return run

    def in_order(self, records: Iterable[Record]) -> list[Record]:
        return sorted(records, key=lambda r: self.order(r.kind))


NO_GROUP = ""
"""Stands in place of a kind's name: the group does not exist."""
