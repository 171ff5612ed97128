"""What the coordinator writes down. Only `replay` of these changes hard state; `state/` turns them into Avro.

A record is identified by (kind, group_id, sub_id); `why` says in a few words what made it be written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from sidecar.assign.spec import Partitions as Partitions
from sidecar.core.consumer.table import Epochs as Epochs
from sidecar.core.consumer.table import Table


class Kind(StrEnum):
    GROUP = "group"
    MEMBER = "member"
    STATIC_MEMBER = "static_member"
    TARGET_METADATA = "target_metadata"
    TARGET_MEMBER = "target_member"
    CURRENT = "current"
    REGEX = "regex"


class MemberState(StrEnum):
    """KIP-848, reconciliation of one member."""

    STABLE = "STABLE"
    UNREVOKED_PARTITIONS = "UNREVOKED_PARTITIONS"
    UNRELEASED_PARTITIONS = "UNRELEASED_PARTITIONS"


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """The group's epoch and the hash of the topics it subscribes to."""

    group_id: str
    epoch: int
    metadata_hash: int
    why: str = ""

    kind = Kind.GROUP

    @property
    def sub_id(self) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """A member's subscription."""

    group_id: str
    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topic_names: tuple[str, ...]
    topic_regex: str | None
    server_assignor: str | None
    why: str = ""

    kind = Kind.MEMBER

    @property
    def sub_id(self) -> str:
        return self.member_id


@dataclass(frozen=True, slots=True)
class StaticMemberRecord:
    """KIP-345: which member holds an instance id."""

    group_id: str
    instance_id: str
    member_id: str
    why: str = ""

    kind = Kind.STATIC_MEMBER

    @property
    def sub_id(self) -> str:
        return self.instance_id


@dataclass(frozen=True, slots=True)
class TargetMetadataRecord:
    """Epoch of the target assignment and when its calculation finished (KIP-1263, Records)."""

    group_id: str
    assignment_epoch: int
    assignment_timestamp_ms: int
    assignor: str
    why: str = ""

    kind = Kind.TARGET_METADATA

    @property
    def sub_id(self) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class TargetMemberRecord:
    """What one member shall own."""

    group_id: str
    member_id: str
    partitions: Partitions
    names: Mapping[bytes, str] = field(default_factory=dict)
    why: str = ""

    kind = Kind.TARGET_MEMBER

    @property
    def sub_id(self) -> str:
        return self.member_id


@dataclass(frozen=True, slots=True)
class TargetRecord:
    """A whole new target assignment at once. Written as one `TargetMemberRecord` for each of `changed` and the
    metadata record; `parts` gives those. `encoded`: the members' values made beforehand,
    off the event loop (state/codec.py)."""

    group_id: str
    table: Table
    changed: tuple[str, ...]
    assignment_epoch: int
    assignment_timestamp_ms: int
    assignor: str
    names: Mapping[bytes, str]
    why: str = ""
    encoded: object = None

    kind = Kind.TARGET_METADATA

    @property
    def sub_id(self) -> str:
        return ""

    def metadata(self) -> TargetMetadataRecord:
        return TargetMetadataRecord(
            self.group_id, self.assignment_epoch, self.assignment_timestamp_ms, self.assignor, self.why
        )

    def member(self, member_id: str) -> TargetMemberRecord:
        parts = self.table.get(member_id) or {}
        return TargetMemberRecord(self.group_id, member_id, parts, self.names, self.why)

    def parts(self) -> Iterator[Record]:
        for member_id in self.changed:
            yield self.member(member_id)
        yield self.metadata()


@dataclass(frozen=True, slots=True)
class CurrentRecord:
    """What one member owns now; `pending` is still its own until it says it gave it up."""

    group_id: str
    member_id: str
    member_epoch: int
    previous_epoch: int
    state: MemberState
    assigned: Epochs
    pending: Epochs
    names: Mapping[bytes, str] = field(default_factory=dict)
    """Of these topics at least."""
    why: str = ""

    kind = Kind.CURRENT

    @property
    def sub_id(self) -> str:
        return self.member_id


@dataclass(frozen=True, slots=True)
class RegexRecord:
    """The topics a regular expression stands for."""

    group_id: str
    regex: str
    topics: tuple[str, ...]
    names_version: int
    resolved_ms: int
    why: str = ""

    kind = Kind.REGEX

    @property
    def sub_id(self) -> str:
        return self.regex


@dataclass(frozen=True, slots=True)
class Tombstone:
    """Removes the record of that key."""

    kind: Kind
    group_id: str
    sub_id: str
    why: str = ""


Record = (
    GroupRecord
    | MemberRecord
    | StaticMemberRecord
    | TargetMetadataRecord
    | TargetMemberRecord
    | TargetRecord
    | CurrentRecord
    | RegexRecord
    | Tombstone
)


def single(records: Iterable[Record]) -> Iterator[Record]:
    """As they are written: a whole target in its parts."""
    for r in records:
        if isinstance(r, TargetRecord):
            yield from r.parts()
        else:
            yield r
