"""Base classes of all records. The kinds of records stand beside the kind of group that writes them
(consumer/records.py); registry.py has the registry.

A record is identified by (kind, group_id, sub_id); `why` gives the reason for the write in a few words. Only `replay`
of a record changes hard state, live and on a rebuild alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, Self

from sidecar.assign.spec import Partitions as Partitions

Epochs = Mapping[bytes, Mapping[int, int]]
"""Topic id -> partition -> epoch at which it was assigned (KIP-1251)."""
Key = tuple[str, str, str]
"""Kind, group id, sub id."""


class Record(Protocol):
    @property
    def kind(self) -> str: ...
    @property
    def group_id(self) -> str: ...
    @property
    def sub_id(self) -> str: ...
    @property
    def why(self) -> str: ...


class Value(Record, Protocol):
    """A record that stands in the topic as one value. `body` returns the fields of its Avro schema, without the head
    that all values share; `of` is its inverse."""

    def body(self) -> dict[str, Any]: ...
    @classmethod
    def of(cls, group_id: str, sub_id: str, body: Mapping[str, Any]) -> Self: ...


@dataclass(frozen=True, slots=True)
class Tombstone:
    """Removes the record of that key."""

    kind: str
    group_id: str
    sub_id: str
    why: str = ""


class Role(StrEnum):
    """The role of a record in any kind of group, for readers of many records that replay none."""

    GROUP = "group"
    """The group itself: its epoch or generation, and the reason for it. A tombstone removes the whole group."""
    MEMBER = "member"
    """A record that exists as long as its member does."""
    CURRENT = "current"
    """The partitions that a member owns."""
    TARGET = "target"
    """A member's target assignment."""
    TARGET_EPOCH = "target epoch"
    """A record with a field `assignment_epoch`."""
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class RecordKind:
    """A row of the registry. `name` stands in the key of the record, for ever; `schema` is the newest file in
    state/schemas, without its ending."""

    name: str
    cls: type[Value]
    schema: str
    role: Role = Role.OTHER

    @property
    def root(self) -> bool:
        """Whether a tombstone of this kind removes the whole group."""
        return self.role is Role.GROUP


def key_of(r: Record) -> Key:
    return (str(r.kind), r.group_id, r.sub_id)


def single(records: Iterable[Record]) -> Iterator[Record]:
    """Yields the records as they stand in the topic. A record with `parts` is one change of the state that stands there
    as several values; readers see all of them or none."""
    for r in records:
        parts = getattr(r, "parts", None)
        if parts is None:
            yield r
        else:
            yield from parts()
