"""Views of groups of any kind, for people. The commands that list, describe, count or explain groups, or print their
history, use these views and name no kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Protocol

Body = Mapping[str, Any]
"""Fields of a value of the state topic; ids of topics as bytes."""
Names = Mapping[bytes, str]
"""Topic id -> name."""
Owned = Mapping[str, Sequence[int]] | str
"""Topic, or role and subtopology -> partitions. A str: a sentence, where only the group's clients can read the
assignment."""


@dataclass(frozen=True, slots=True)
class MemberView:
    """One member. `epoch`: its own, or the generation of its assignment; `state`: of its reconciliation, "" in a kind
    without one; `topics` None: unknown; `gives_up`: partitions that it must still give up; `more`: fields that only
    this kind has, by their names in JSON."""

    member: str
    client: str = ""
    host: str = ""
    instance: str | None = None
    rack: str | None = None
    protocol: str = ""
    epoch: int | None = None
    state: str = ""
    topics: Sequence[str] | None = ()
    regex: str | None = None
    owns: Owned = field(default_factory=dict)
    gives_up: Owned = field(default_factory=dict)
    target: Owned = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)

    def json(self) -> dict[str, Any]:
        """Returns the fields by name, with the fields of `more` beside them."""
        fields = {name: getattr(self, name) for name in FIELDS}
        return {**fields, **self.more}


FIELDS = tuple(name for name in MemberView.__dataclass_fields__ if name != "more")


@dataclass(frozen=True, slots=True)
class Heading:
    """Epoch and state in a value of the group's own record. `state`: only where the record has one."""

    epoch: int
    state: str = ""


@dataclass(frozen=True, slots=True)
class Note:
    """An event in a group's history. `who`: a member or an instance, "" for the group itself."""

    what: str
    who: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class HeldPartitions:
    """Partitions that a member has, or must still give up, by a value of its current assignment: of one topic, or of
    one subtopology in one role. `key`: the topic's id in hex, or the role and the subtopology; `name`: as in `Owned`,
    "" if the value lacks it; `alone`: at most one member may have each; `listed`: shown to people."""

    key: str
    name: str
    partitions: Sequence[int]
    alone: bool = True
    listed: bool = True


HistoryNotes = Callable[[str, Body | None, Body | None], Iterable[Note]]
"""(sub id, value, value before) -> notes for the history. A value of None: the record does not exist, any more or
yet."""


# ---- explaining -----------------------------------------------------------------------------------------------------
class GroupRecords(Protocol):
    """The records of one group, as far as an explanation needs more than the state that they produce."""

    @property
    def names(self) -> Names: ...

    @property
    def taken_over_ms(self) -> int:
        """Unix milliseconds at which the group's owner took it over; 0: unknown."""

    def since(self, kind: str, sub_id: str = "") -> int:
        """Unix milliseconds of the last record with this key; 0: none exists."""

    def offset(self, kind: str, sub_id: str = "") -> int:
        """Offset of the last record with this key; -1: none exists."""


@dataclass(frozen=True, slots=True)
class Live:
    """State that only the group's owner has, from its admin address. `joined`, `not_synced`: members of a classic group
    in the rebalance under way; `to_come`: member ids that were given out and have not come back; `assignor_runs`: the
    assignor that runs, "" if none does; `failures`: of the assignor, in a row; `goes_back`: a release to the broker is
    under way; `silence_left_ms`: by member."""

    joined: frozenset[str] = frozenset()
    to_come: frozenset[str] = frozenset()
    not_synced: frozenset[str] = frozenset()
    assignor_runs: str = ""
    failures: int = 0
    goes_back: bool = False
    silence_left_ms: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Live:
        """Reads the output of `json`."""
        known = {f.name: values[f.name] for f in fields(cls) if f.name in values}
        args: dict[str, Any] = {name: frozenset(v) if isinstance(v, list) else v for name, v in known.items()}
        return cls(**args)

    def json(self) -> dict[str, Any]:
        return {n: sorted(v) if isinstance(v, frozenset) else v for n, v in asdict(self).items()}


@dataclass(frozen=True, slots=True)
class Wait:
    """`member` waits for `partitions` that `holder` still has; without partitions, it waits for the holder's action
    `to_do`. `since_ms`: time of the holder's last record; `told`: the holder has the request to give them up;
    `until_ms`: when the holder is removed, None if unknown."""

    member: str
    partitions: tuple[str, ...]
    holder: str
    since_ms: int
    told: bool
    until_ms: int | None
    to_do: str = ""


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a member's reconciliation. `state`: a word, SETTLED if nothing remains; `next`: the effect of its
    next heartbeat, as a sentence."""

    state: str
    since_ms: int
    next: str


SETTLED = "settled"


@dataclass(frozen=True, slots=True)
class Explained:
    """`since_ms`: when the group came into its state; `members`: by id; `notes`: further explanations, as sentences."""

    since_ms: int
    members: Mapping[str, Progress]
    waits: Sequence[Wait] = ()
    notes: Sequence[str] = ()


def listed(names: Sequence[str], most: int = 8) -> str:
    """`a-0, a-1 and 7 more`."""
    if len(names) <= most:
        return ", ".join(names) or "nothing"
    return f"{', '.join(names[:most])} and {len(names) - most} more"


def client_of(body: Body) -> str:
    """Returns `app at 10.0.0.1, instance i`, from a member's value."""
    instance = f", instance {body['instance_id']}" if body.get("instance_id") else ""
    return f"{body['client_id']} at {body['client_host'].lstrip('/')}{instance}"


def member_name(member_id: str, client_id: str) -> str:
    """Returns a unique name for people: the member id, with the client id if the member id lacks it."""
    return f"{member_id} ({client_id})" if client_id and client_id not in member_id else member_id


def topic_place(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def owned_places(owned: Owned, place: Callable[[str, int], str] = topic_place) -> tuple[str, ...]:
    """Returns the owned partitions as people write them, in order; empty where only the clients can read the
    assignment."""
    parts = {} if isinstance(owned, str) else owned
    return tuple(place(name, p) for name, p in sorted((name, p) for name, ps in parts.items() for p in ps))


# ---- one kind -------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Inspect:
    """A kind of group, as people see it. `group` is of the kind's own class everywhere."""

    states: Mapping[str, str]
    """Every state -> its meaning, for people."""
    at_rest: frozenset[str]
    """The states in which nothing is under way."""
    facts: Callable[[Any], dict[str, Any]]
    """(group) -> `epoch`, `assignment_epoch`, `assignor`, and the fields that only this kind has, by their names in
    JSON."""
    member: Callable[[Any, str, Names], MemberView | None]
    """(group, member id, names) -> the member. None: it has left."""
    heading: Callable[[Body], Heading]
    """(value of the group's own record) -> its heading."""
    begins: Callable[[Heading | None, Heading], bool]
    """(heading before, heading): whether a rebalance begins with the second one."""
    places: Callable[[Body], set[tuple[Any, ...]]]
    """(value of a member's target) -> each partition or task of the target once."""
    history: Mapping[str, HistoryNotes]
    """Kind of record -> the notes that a value of it adds to a history."""
    explain: Callable[[GroupRecords, Any, Any, Live | None], Explained]
    """(records, group, TopicImage or None, live) -> the explanation."""
    holds: Callable[[Body, Body | None], Iterable[HeldPartitions]] | None = None
    """(value of a current assignment, value of its member's own record) -> the partitions held. None: the kind has no
    current assignments."""
    session: str = ""
    """Name of the timer that removes a silent member."""
    live: Callable[[Any], Mapping[str, Any]] = field(default=lambda soft: {})
    """(soft state) -> fields of `Live`."""
    members_by_protocol: Callable[[Any], Mapping[str, int]] = field(
        default=lambda group: {group.kind: group.member_count()}
    )
    """(group) -> protocol -> how many members speak it; every protocol, also for an empty group."""
    place: Callable[[str, int], str] = topic_place
    """(key of `Owned`, partition) -> the name that people use."""
    phases: bool = False
    """Whether the group's own record has each step of a rebalance, as where a leader assigns; else it has one value for
    each epoch."""
    epoch_name: str = "epoch"
    assignor_name: str = "assignor"
