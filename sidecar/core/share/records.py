"""The records of share groups. state/ turns them into Avro by their `body`; `of` is its inverse.

The names in `Kind` and the fields of `body` are published: they stand in the state topic and in state/schemas. Unlike
in Kafka, no record has partitions whose initialisation is under way: the broker's own coordinator does that
(placeholder.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sidecar.core.modern import records as modern
from sidecar.core.runtime.records import Partitions, RecordKind, Role


class Kind(StrEnum):
    GROUP = "share_group"
    MEMBER = "share_member"
    TARGET_METADATA = "share_target_metadata"
    TARGET_MEMBER = "share_target_member"
    CURRENT = "share_current"
    PLACEHOLDER = "share_placeholder"


class GroupRecord(modern.GroupRecord):
    __slots__ = ()
    kind = Kind.GROUP


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """A member's subscription."""

    group_id: str
    member_id: str
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    why: str = ""

    kind = Kind.MEMBER

    @property
    def sub_id(self) -> str:
        return self.member_id

    def body(self) -> dict[str, Any]:
        return {
            "rack_id": self.rack_id,
            "client_id": self.client_id,
            "client_host": self.client_host,
            "topic_names": list(self.topic_names),
        }

    @classmethod
    def of(cls, group_id: str, sub_id: str, b: modern.Body) -> MemberRecord:
        names = tuple(b["topic_names"])
        return cls(group_id, sub_id, b["rack_id"], b["client_id"], b["client_host"], names, b["why"])


class TargetMetadataRecord(modern.TargetMetadataRecord):
    __slots__ = ()
    kind = Kind.TARGET_METADATA


class TargetMemberRecord(modern.TargetMemberRecord):
    __slots__ = ()
    kind = Kind.TARGET_MEMBER


@dataclass(frozen=True, slots=True)
class TargetRecord(modern.TargetRecord):
    """A target assignment. `covers`: the union of all members' partitions, which is not written; None: unknown."""

    kind = Kind.TARGET_METADATA
    metadata_record = TargetMetadataRecord

    covers: Partitions | None = field(default=None, compare=False)

    def member(self, member_id: str) -> TargetMemberRecord:
        parts = self.table.get(member_id) or {}
        return TargetMemberRecord(self.group_id, member_id, parts, self.names, self.why)


@dataclass(frozen=True, slots=True)
class CurrentRecord:
    """The current assignment of one member. It has no state: a member goes straight to its target (KIP-932)."""

    group_id: str
    member_id: str
    member_epoch: int
    previous_epoch: int
    assigned: Partitions
    names: modern.Names = field(default_factory=dict)
    """Names of this record's topics at least."""
    why: str = ""

    kind = Kind.CURRENT

    @property
    def sub_id(self) -> str:
        return self.member_id

    def body(self) -> dict[str, Any]:
        return {
            "member_epoch": self.member_epoch,
            "previous_epoch": self.previous_epoch,
            "assigned": modern.listed(self.assigned, self.names),
        }

    @classmethod
    def of(cls, group_id: str, sub_id: str, b: modern.Body) -> CurrentRecord:
        assigned, names = modern.partitions_of(b["assigned"]), modern.names_of(b["assigned"])
        return cls(group_id, sub_id, b["member_epoch"], b["previous_epoch"], assigned, names, b["why"])


@dataclass(frozen=True, slots=True)
class PlaceholderRecord:
    """The placeholder member in the broker's share group of the same name, the topics that it subscribes to there, and
    the partitions whose share state the broker has initialised. `keeper`: node id of the broker that coordinates that
    group; `since_ms`: when the broker took this member."""

    group_id: str
    member_id: str
    keeper: int
    topic_names: tuple[str, ...]
    since_ms: int
    initialised: Partitions
    names: modern.Names = field(default_factory=dict)
    """Names of the initialised topics at least."""
    why: str = ""

    kind = Kind.PLACEHOLDER

    @property
    def sub_id(self) -> str:
        return ""

    def body(self) -> dict[str, Any]:
        return {
            "member_id": self.member_id,
            "keeper": self.keeper,
            "topic_names": list(self.topic_names),
            "since_ms": self.since_ms,
            "initialised": modern.listed(self.initialised, self.names),
        }

    @classmethod
    def of(cls, group_id: str, sub_id: str, b: modern.Body) -> PlaceholderRecord:
        initialised, topics = b["initialised"], tuple(b["topic_names"])
        parts, names = modern.partitions_of(initialised), modern.names_of(initialised)
        return cls(group_id, b["member_id"], b["keeper"], topics, b["since_ms"], parts, names, b["why"])


RECORDS = (
    RecordKind(Kind.GROUP, GroupRecord, "share_group-v1", Role.GROUP),
    RecordKind(Kind.MEMBER, MemberRecord, "share_member-v1", Role.MEMBER),
    RecordKind(Kind.TARGET_METADATA, TargetMetadataRecord, "share_target_metadata-v1", Role.TARGET_EPOCH),
    RecordKind(Kind.TARGET_MEMBER, TargetMemberRecord, "share_target_member-v1", Role.TARGET),
    RecordKind(Kind.CURRENT, CurrentRecord, "share_current-v1", Role.CURRENT),
    RecordKind(Kind.PLACEHOLDER, PlaceholderRecord, "share_placeholder-v1"),
)
"""Kinds of records, in the order in which a rebuild replays them."""
