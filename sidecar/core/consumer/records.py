"""The records of consumer groups. state/ turns them into Avro by their `body`; `of` is its inverse.

The names in `Kind` and the fields of `body` are published: they stand in the state topic and in state/schemas.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sidecar.core.consumer.target_table import Table
from sidecar.core.modern import records as modern
from sidecar.core.runtime.records import Epochs, RecordKind, Role


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


class GroupRecord(modern.GroupRecord):
    __slots__ = ()
    kind = Kind.GROUP


@dataclass(frozen=True, slots=True)
class ClassicTraits:
    """Data of a member that speaks the classic protocol (KIP-848 'Online migration'): its own session timeout, and its
    metadata for each of its protocols."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """A member's subscription. `classic` None: it speaks the consumer protocol."""

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
    classic: ClassicTraits | None = None

    kind = Kind.MEMBER

    @property
    def sub_id(self) -> str:
        return self.member_id

    def body(self) -> dict[str, Any]:
        fields = {n: getattr(self, n) for n in MEMBER_FIELDS}
        return {**fields, "topic_names": list(self.topic_names), "classic": _traits_body(self.classic)}

    @classmethod
    def of(cls, group_id: str, sub_id: str, b: modern.Body) -> MemberRecord:
        fields = {n: b[n] for n in MEMBER_FIELDS}
        classic = _traits_of(b.get("classic"))
        return cls(group_id, sub_id, topic_names=tuple(b["topic_names"]), why=b["why"], classic=classic, **fields)


@dataclass(frozen=True, slots=True)
class StaticMemberRecord:
    """The member that holds an instance id (KIP-345)."""

    group_id: str
    instance_id: str
    member_id: str
    why: str = ""

    kind = Kind.STATIC_MEMBER

    @property
    def sub_id(self) -> str:
        return self.instance_id

    def body(self) -> dict[str, Any]:
        return {"member_id": self.member_id}

    @classmethod
    def of(cls, group_id: str, sub_id: str, b: modern.Body) -> StaticMemberRecord:
        return cls(group_id, sub_id, b["member_id"], b["why"])


class TargetMetadataRecord(modern.TargetMetadataRecord):
    __slots__ = ()
    kind = Kind.TARGET_METADATA


class TargetMemberRecord(modern.TargetMemberRecord):
    __slots__ = ()
    kind = Kind.TARGET_MEMBER


@dataclass(frozen=True, slots=True)
class TargetRecord(modern.TargetRecord):
    table: Table

    kind = Kind.TARGET_METADATA
    metadata_record = TargetMetadataRecord

    def member(self, member_id: str) -> TargetMemberRecord:
        parts = self.table.get(member_id) or {}
        return TargetMemberRecord(self.group_id, member_id, parts, self.names, self.why)


@dataclass(frozen=True, slots=True)
class CurrentRecord:
    """The current assignment of one member. It still owns `pending` until it reports that it gave them up."""

    group_id: str
    member_id: str
    member_epoch: int
    previous_epoch: int
    state: MemberState
    assigned: Epochs
    pending: Epochs
    names: Mapping[bytes, str] = field(default_factory=dict)
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
            "state": str(self.state),
            "assigned": _owned(self.assigned, self.names),
            "pending": _owned(self.pending, self.names),
        }

    @classmethod
    def of(cls, group_id: str, sub_id: str, b: modern.Body) -> CurrentRecord:
        return cls(
            group_id,
            sub_id,
            b["member_epoch"],
            b["previous_epoch"],
            MemberState(b["state"]),
            _epochs(b["assigned"]),
            _epochs(b["pending"]),
            modern.names_of(b["assigned"], b["pending"]),
            b["why"],
        )


@dataclass(frozen=True, slots=True)
class RegexRecord:
    """The topics that a regular expression matches."""

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

    def body(self) -> dict[str, Any]:
        return {"topics": list(self.topics), "names_version": self.names_version, "resolved_ms": self.resolved_ms}

    @classmethod
    def of(cls, group_id: str, sub_id: str, b: modern.Body) -> RegexRecord:
        return cls(group_id, sub_id, tuple(b["topics"]), b["names_version"], b["resolved_ms"], b["why"])


MEMBER_FIELDS = (
    "instance_id",
    "rack_id",
    "client_id",
    "client_host",
    "rebalance_timeout_ms",
    "topic_regex",
    "server_assignor",
)
RECORDS = (
    RecordKind(Kind.GROUP, GroupRecord, "group-v1", Role.GROUP),
    RecordKind(Kind.REGEX, RegexRecord, "regex-v1"),
    RecordKind(Kind.MEMBER, MemberRecord, "member-v2", Role.MEMBER),
    RecordKind(Kind.STATIC_MEMBER, StaticMemberRecord, "static_member-v1"),
    RecordKind(Kind.TARGET_METADATA, TargetMetadataRecord, "target_metadata-v1", Role.TARGET_EPOCH),
    RecordKind(Kind.TARGET_MEMBER, TargetMemberRecord, "target_member-v1", Role.TARGET),
    RecordKind(Kind.CURRENT, CurrentRecord, "current-v1", Role.CURRENT),
)
"""Kinds of records, in the order in which a rebuild replays them."""


def _traits_body(traits: ClassicTraits | None) -> dict[str, Any] | None:
    if traits is None:
        return None
    protocols = [{"name": n, "metadata": m} for n, m in traits.protocols]
    return {"session_timeout_ms": traits.session_timeout_ms, "protocols": protocols}


def _traits_of(body: modern.Body | None) -> ClassicTraits | None:
    if body is None:
        return None
    return ClassicTraits(body["session_timeout_ms"], tuple((p["name"], p["metadata"]) for p in body["protocols"]))


def _owned(parts: Epochs, names: Mapping[bytes, str]) -> list[dict[str, Any]]:
    return [
        {"topic_id": t, "topic_name": names.get(t, ""), "partitions": list(ps), "epochs": list(ps.values())}
        for t, ps in parts.items()
    ]


def _epochs(items: Iterable[modern.Body]) -> dict[bytes, dict[int, int]]:
    return {i["topic_id"]: dict(zip(i["partitions"], i["epochs"], strict=True)) for i in items}
