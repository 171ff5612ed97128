"""What the coordinator writes down. Only `replay` of these changes hard state; `state/` turns them into Avro.

A record is identified by (kind, group_id, sub_id); `why` says in a few words what made it be written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

Partitions = Mapping[bytes, tuple[int, ...]]
"""Topic id (16 bytes) -> sorted partitions."""
Epochs = Mapping[bytes, Mapping[int, int]]
"""Topic id -> partition -> epoch at which it was assigned (KIP-1251)."""


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
    | CurrentRecord
    | RegexRecord
    | Tombstone
)
