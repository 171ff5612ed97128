"""The records that groups with epochs have in common. Each kind has subclasses of its own, with the `kind` that stands
in the state topic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from sidecar.core.runtime.records import Partitions, Record

Body = Mapping[str, Any]
Names = Mapping[bytes, str]
"""Topic id -> topic name."""


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """The group's epoch, and the hash of the topics it subscribes to."""

    kind: ClassVar[str]

    group_id: str
    epoch: int
    metadata_hash: int
    why: str = ""

    @property
    def sub_id(self) -> str:
        return ""

    def body(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "metadata_hash": self.metadata_hash}

    @classmethod
    def of(cls, group_id: str, sub_id: str, b: Body) -> Self:
        return cls(group_id, b["epoch"], b["metadata_hash"], b["why"])


@dataclass(frozen=True, slots=True)
class TargetMetadataRecord:
    """Epoch of the target assignment and when its calculation finished (KIP-1263, Records)."""

    kind: ClassVar[str]

    group_id: str
    assignment_epoch: int
    assignment_timestamp_ms: int
    assignor: str
    why: str = ""

    @property
    def sub_id(self) -> str:
        return ""

    def body(self) -> dict[str, Any]:
        return {
            "assignment_epoch": self.assignment_epoch,
            "assignment_timestamp_ms": self.assignment_timestamp_ms,
            "assignor": self.assignor,
        }

    @classmethod
    def of(cls, group_id: str, sub_id: str, b: Body) -> Self:
        return cls(group_id, b["assignment_epoch"], b["assignment_timestamp_ms"], b["assignor"], b["why"])


@dataclass(frozen=True, slots=True)
class TargetMemberRecord:
    """The target assignment of one member, where that is partitions of topics."""

    kind: ClassVar[str]

    group_id: str
    member_id: str
    partitions: Partitions
    names: Names = field(default_factory=dict)
    """Names of this record's topics at least."""
    why: str = ""

    @property
    def sub_id(self) -> str:
        return self.member_id

    def body(self) -> dict[str, Any]:
        return {"partitions": listed(self.partitions, self.names)}

    @classmethod
    def of(cls, group_id: str, sub_id: str, b: Body) -> Self:
        return cls(group_id, sub_id, partitions_of(b["partitions"]), names_of(b["partitions"]), b["why"])


@dataclass(frozen=True, slots=True)
class TargetRecord:
    """A target assignment, written as one record for each of `changed` and one for the target's epoch; `parts` yields
    them. The thread of the assignor run may have made the members' values beforehand: `run_id` names that run."""

    kind: ClassVar[str]
    """Kind of the record that `metadata` makes."""
    metadata_record: ClassVar[type[TargetMetadataRecord]]

    group_id: str
    table: Any
    """A MemberTable, or the kind's own class in its place."""
    changed: tuple[str, ...]
    assignment_epoch: int
    assignment_timestamp_ms: int
    assignor: str
    names: Mapping[bytes, str]
    why: str = ""
    run_id: int = 0

    @property
    def sub_id(self) -> str:
        return ""

    def metadata(self) -> TargetMetadataRecord:
        return self.metadata_record(
            self.group_id, self.assignment_epoch, self.assignment_timestamp_ms, self.assignor, self.why
        )

    def member(self, member_id: str) -> Record:
        raise NotImplementedError

    def parts(self) -> Iterator[Record]:
        for member_id in self.changed:
            yield self.member(member_id)
        yield self.metadata()


def listed(parts: Partitions, names: Names) -> list[dict[str, Any]]:
    """Returns partitions as records have them."""
    return [{"topic_id": t, "topic_name": names.get(t, ""), "partitions": list(ps)} for t, ps in parts.items()]


def partitions_of(items: Iterable[Body]) -> dict[bytes, tuple[int, ...]]:
    return {i["topic_id"]: tuple(i["partitions"]) for i in items}


def names_of(*lists: Iterable[Body]) -> dict[bytes, str]:
    return {i["topic_id"]: i["topic_name"] for items in lists for i in items}
