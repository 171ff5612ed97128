"""The records of streams groups. state/ turns them into Avro by their `body`; `of` is its inverse.

The names in `Kind` and the fields of `body` are published: they stand in the state topic and in state/schemas. Unlike
Kafka, a takeover keeps the initial rebalance delay, a requested shutdown and the endpoint epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sidecar.core.modern import records as modern
from sidecar.core.runtime.records import RecordKind, Role
from sidecar.core.streams.tasks import (
    NO_TASKS,
    AssignedTasks,
    Tasks,
    epochs_body,
    epochs_of,
    partitions_body,
    partitions_of,
)
from sidecar.core.streams.topology import Topology, body_of, topology_of


class Kind(StrEnum):
    GROUP = "streams_group"
    TOPOLOGY = "streams_topology"
    MEMBER = "streams_member"
    TARGET_METADATA = "streams_target_metadata"
    TARGET_MEMBER = "streams_target_member"
    CURRENT = "streams_current"


class MemberState(StrEnum):
    """KIP-1071, reconciliation of one member."""

    STABLE = "STABLE"
    UNREVOKED_TASKS = "UNREVOKED_TASKS"
    UNRELEASED_TASKS = "UNRELEASED_TASKS"


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """The group's own record. `assignment_configs`: the settings of the assignor at the last bump; `delay_until_ms`:
    Unix milliseconds before which there is no target, 0: no delay; `shutdown_member`: the member that requested a
    shutdown of the application."""

    group_id: str
    epoch: int
    metadata_hash: int
    validated_topology_epoch: int = -1
    assignment_configs: Mapping[str, str] = field(default_factory=dict)
    delay_until_ms: int = 0
    endpoint_epoch: int = 0
    shutdown_member: str | None = None
    why: str = ""

    kind = Kind.GROUP

    @property
    def sub_id(self) -> str:
        return ""

    def body(self) -> dict[str, Any]:
        return {**{n: getattr(self, n) for n in GROUP_FIELDS}, "assignment_configs": dict(self.assignment_configs)}

    @classmethod
    def of(cls, group_id: str, sub_id: str, b: modern.Body) -> GroupRecord:
        fields = {n: b[n] for n in GROUP_FIELDS}
        return cls(group_id, assignment_configs=b["assignment_configs"], why=b["why"], **fields)


@dataclass(frozen=True, slots=True)
class TopologyRecord:
    """The group's topology. `partial`: adopted from a broker, whose description has no copartition groups."""

    group_id: str
    topology: Topology
    partial: bool = False
    why: str = ""

    kind = Kind.TOPOLOGY

    @property
    def sub_id(self) -> str:
        return ""

    def body(self) -> dict[str, Any]:
        return {**body_of(self.topology), "partial": self.partial}

    @classmethod
    def of(cls, group_id: str, sub_id: str, b: modern.Body) -> TopologyRecord:
        return cls(group_id, topology_of(b), b["partial"], b["why"])


Endpoint = tuple[str, int]
"""Host and port, for Interactive Queries."""


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """Metadata of one member."""

    group_id: str
    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topology_epoch: int
    process_id: str
    endpoint: Endpoint | None = None
    client_tags: Mapping[str, str] = field(default_factory=dict)
    why: str = ""

    kind = Kind.MEMBER

    @property
    def sub_id(self) -> str:
        return self.member_id

    def body(self) -> dict[str, Any]:
        endpoint = None if self.endpoint is None else {"host": self.endpoint[0], "port": self.endpoint[1]}
        fields = {n: getattr(self, n) for n in MEMBER_FIELDS}
        return {**fields, "endpoint": endpoint, "client_tags": dict(self.client_tags)}

    @classmethod
    def of(cls, group_id: str, sub_id: str, b: modern.Body) -> MemberRecord:
        fields = {n: b[n] for n in MEMBER_FIELDS}
        e = b["endpoint"]
        endpoint = None if e is None else (e["host"], e["port"])
        return cls(group_id, sub_id, endpoint=endpoint, client_tags=b["client_tags"], why=b["why"], **fields)


class TargetMetadataRecord(modern.TargetMetadataRecord):
    __slots__ = ()
    kind = Kind.TARGET_METADATA


@dataclass(frozen=True, slots=True)
class TargetMemberRecord:
    """The target tasks of one member."""

    group_id: str
    member_id: str
    tasks: Tasks
    why: str = ""

    kind = Kind.TARGET_MEMBER

    @property
    def sub_id(self) -> str:
        return self.member_id

    def body(self) -> dict[str, Any]:
        return {role: partitions_body(getattr(self.tasks, role)) for role in ROLES}

    @classmethod
    def of(cls, group_id: str, sub_id: str, b: modern.Body) -> TargetMemberRecord:
        return cls(group_id, sub_id, Tasks(*(partitions_of(b[role]) for role in ROLES)), b["why"])


@dataclass(frozen=True, slots=True)
class TaskTargets:
    """The target assignment of one run. `index`: member id -> its tasks."""

    index: Mapping[str, Tasks]

    def renamed(self, to: Mapping[str, str | None]) -> TaskTargets:
        """Returns the targets with other member ids; None: the member is gone."""
        if not to:
            return self
        names = ((to.get(m, m), tasks) for m, tasks in self.index.items())
        return TaskTargets({m: tasks for m, tasks in names if m is not None})

    def member(self, group_id: str, member_id: str, why: str) -> TargetMemberRecord:
        return TargetMemberRecord(group_id, member_id, self.index.get(member_id, NO_TASKS), why)


@dataclass(frozen=True, slots=True)
class TargetRecord(modern.TargetRecord):
    """A whole new target assignment at once: one `TargetMemberRecord` for each of `changed`, and the metadata."""

    kind = Kind.TARGET_METADATA
    metadata_record = TargetMetadataRecord

    def member(self, member_id: str) -> TargetMemberRecord:
        record: TargetMemberRecord = self.table.member(self.group_id, member_id, self.why)
        return record


@dataclass(frozen=True, slots=True)
class CurrentRecord:
    """The current tasks of one member. `pending` tasks are still its own until its heartbeat leaves them out."""

    group_id: str
    member_id: str
    member_epoch: int
    previous_epoch: int
    state: MemberState
    assigned: AssignedTasks
    pending: AssignedTasks
    why: str = ""

    kind = Kind.CURRENT

    @property
    def sub_id(self) -> str:
        return self.member_id

    def body(self) -> dict[str, Any]:
        head = {
            "member_epoch": self.member_epoch,
            "previous_epoch": self.previous_epoch,
            "state": str(self.state),
        }
        return {**head, **_assigned_body("", self.assigned), **_assigned_body("pending_", self.pending)}

    @classmethod
    def of(cls, group_id: str, sub_id: str, b: modern.Body) -> CurrentRecord:
        return cls(
            group_id,
            sub_id,
            b["member_epoch"],
            b["previous_epoch"],
            MemberState(b["state"]),
            _assigned_of("", b),
            _assigned_of("pending_", b),
            b["why"],
        )


def _assigned_body(prefix: str, tasks: AssignedTasks) -> dict[str, Any]:
    return {
        f"{prefix}active": epochs_body(tasks.active),
        f"{prefix}standby": partitions_body(tasks.standby),
        f"{prefix}warmup": partitions_body(tasks.warmup),
    }


def _assigned_of(prefix: str, b: modern.Body) -> AssignedTasks:
    standby, warmup = partitions_of(b[f"{prefix}standby"]), partitions_of(b[f"{prefix}warmup"])
    return AssignedTasks(epochs_of(b[f"{prefix}active"]), standby, warmup)


ROLES = ("active", "standby", "warmup")
GROUP_FIELDS = (
    "epoch",
    "metadata_hash",
    "validated_topology_epoch",
    "delay_until_ms",
    "endpoint_epoch",
    "shutdown_member",
)
MEMBER_FIELDS = (
    "instance_id",
    "rack_id",
    "client_id",
    "client_host",
    "rebalance_timeout_ms",
    "topology_epoch",
    "process_id",
)
RECORDS = (
    RecordKind(Kind.GROUP, GroupRecord, "streams_group-v1", Role.GROUP),
    RecordKind(Kind.TOPOLOGY, TopologyRecord, "streams_topology-v1"),
    RecordKind(Kind.MEMBER, MemberRecord, "streams_member-v1", Role.MEMBER),
    RecordKind(Kind.TARGET_METADATA, TargetMetadataRecord, "streams_target_metadata-v1", Role.TARGET_EPOCH),
    RecordKind(Kind.TARGET_MEMBER, TargetMemberRecord, "streams_target_member-v1", Role.TARGET),
    RecordKind(Kind.CURRENT, CurrentRecord, "streams_current-v1", Role.CURRENT),
)
"""Kinds of records, in the order in which a rebuild replays them."""
