"""The hard state of one streams group, and its replay. It decides nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sidecar.core.modern.group import LEAVE_EPOCH, ModernGroup, of_kind
from sidecar.core.runtime.member_limits import NAME_BYTES, bytes_of_member
from sidecar.core.runtime.records import Tombstone
from sidecar.core.streams.config import STREAMS
from sidecar.core.streams.records import (
    GROUP_FIELDS,
    CurrentRecord,
    Endpoint,
    GroupRecord,
    Kind,
    MemberRecord,
    MemberState,
    TargetMemberRecord,
    TargetMetadataRecord,
    TargetRecord,
    TopologyRecord,
)
from sidecar.core.streams.tasks import NO_TASKS, NOTHING_ASSIGNED, AssignedTasks, Holders, Tasks
from sidecar.core.streams.topology import Topology
from sidecar.core.vocabulary.cache import bytes_of
from sidecar.core.vocabulary.topics import TopicImage

INDEX_BYTES, TASK_BYTES = 40, 300
"""About how many bytes an index of a copartition group takes, and a task with its target and its holder."""
NOT_VALIDATED = -1
"""Stands in place of a topology epoch: no topology of the group was ready at the last bump."""


class GroupState(StrEnum):
    """KIP-1071, StreamsGroup.maybeUpdateGroupState."""

    EMPTY = "Empty"
    NOT_READY = "NotReady"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True)
class Member:
    """One member, replaced as a whole on any change."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    endpoint: Endpoint | None = None
    client_tags: Mapping[str, str] = field(default_factory=dict)
    member_epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: AssignedTasks = NOTHING_ASSIGNED
    pending: AssignedTasks = NOTHING_ASSIGNED

    @property
    def holds(self) -> bool:
        return bool(self.assigned or self.pending)

    @property
    def revokes(self) -> bool:
        return self.state is MemberState.UNREVOKED_TASKS

    def reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == epoch

    def active_epoch(self, subtopology: str, partition: int) -> int | None:
        """Returns the epoch at which an active task was assigned; None: it is not this member's. Commit checks use
        it."""
        for part in (self.assigned, self.pending):
            epoch = part.active.get(subtopology, {}).get(partition)
            if epoch is not None:
                return epoch
        return None


@dataclass(slots=True)
class StreamsGroup(ModernGroup[Member]):
    """Hard state of a streams group. All of it comes from records, or is derived from them."""

    validated_topology_epoch: int = NOT_VALIDATED
    assignment_configs: Mapping[str, str] = field(default_factory=dict)
    delay_until_ms: int = 0
    endpoint_epoch: int = 0
    shutdown_member: str | None = None
    topology: Topology | None = None
    topology_partial: bool = False
    """Whether the topology lacks its copartition groups."""
    subtopology_of_topic: Mapping[str, str] = field(default_factory=dict)
    """Source or repartition source topic -> id of its subtopology."""
    required_topics: frozenset[str] = frozenset()
    """The topics whose metadata the hash covers."""
    target: dict[str, Tasks] = field(default_factory=dict)
    holders: Holders = field(default_factory=Holders)
    topology_bytes: int = 0
    tasks_bytes: int = 0
    """Bytes of the targets' tasks."""
    _hash: tuple[int, Topology | None, int] = (0, None, 0)
    """Serial of an image, a topology, and the hash of its topics."""

    kind = STREAMS
    protocol_type = STREAMS
    metadata_record = TargetMetadataRecord

    # ---- queries ----------------------------------------------------------------------------------------
    @property
    def held_bytes(self) -> int:
        """About how many bytes the members, their tasks and the topology take in memory."""
        return self.limited_bytes + self.tasks_bytes

    @property
    def limited_bytes(self) -> int:
        """The part of it that counts for the limit of one group, whose tasks have a limit of their own
        (partitions.py)."""
        return self.members_bytes + self.topology_bytes

    def state(self) -> GroupState:
        if not self.members:
            return GroupState.EMPTY
        if self.topology is None or self.topology.epoch != self.validated_topology_epoch:
            return GroupState.NOT_READY
        if self.epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        if all(m.reconciled_to(self.assignment_epoch) for m in self.members.values()):
            return GroupState.STABLE
        return GroupState.RECONCILING

    def state_name(self) -> str:
        return str(self.state())

    @property
    def owners(self) -> Mapping[str, object]:
        """Holders of tasks in any role, assigned or not given up yet. Empty: no task has a holder."""
        return self.holders.active or self.holders.standby or self.holders.warmup

    def target_of(self, member_id: str) -> Tasks:
        return self.target.get(member_id, NO_TASKS)

    def subscribed_topics(self) -> frozenset[str]:
        """Returns the topics whose offsets its tasks need."""
        return frozenset(self.subtopology_of_topic)

    def hash_over(self, image: TopicImage, topology: Topology | None = None) -> int:
        """Returns the hash of the metadata of all topics that the topology requires. `topology`: the next one, if it is
        not written yet."""
        topology = topology or self.topology
        serial, known, value = self._hash
        if serial != image.serial or known is not topology:
            value = 0 if topology is None else image.hash_of(topology.required_topics())
            self._hash = (image.serial, topology, value)
        return value

    def tombstones(self, why: str) -> list[Tombstone]:
        """Returns a tombstone for every key of the group, the group itself last."""
        keys = [(kind, m) for m in self.members for kind in (Kind.CURRENT, Kind.MEMBER)]
        keys += [(Kind.TARGET_MEMBER, m) for m in dict.fromkeys((*self.members, *self.target))]
        keys += [(Kind.TARGET_METADATA, ""), (Kind.TOPOLOGY, ""), (Kind.GROUP, "")]
        return [Tombstone(kind, self.group_id, sub_id, why) for kind, sub_id in keys]

    # ---- records ----------------------------------------------------------------------------------------
    def record(self, why: str, **changes: Any) -> GroupRecord:
        """Returns the group's record with these changes. A requested shutdown ends with the last member."""
        kept = {name: getattr(self, name) for name in (*GROUP_FIELDS, "assignment_configs")}
        if not self.members:
            kept["shutdown_member"] = None
        return GroupRecord(self.group_id, **{**kept, **changes}, why=why)

    def epoch_record(self, epoch: int, metadata_hash: int, why: str) -> GroupRecord:
        """Returns a record without that hash. As at Kafka, only a heartbeat that is answered takes in changed topics: a
        removal during which the topology is invalid does not."""
        return self.record(why, epoch=epoch)

    def empty_target_record(self, member_id: str, why: str) -> TargetMemberRecord:
        return TargetMemberRecord(self.group_id, member_id, NO_TASKS, why)

    # ---- replay -----------------------------------------------------------------------------------------
    def _replay_group(self, r: GroupRecord) -> None:
        self.epoch, self.metadata_hash = r.epoch, r.metadata_hash
        self.validated_topology_epoch = r.validated_topology_epoch
        self.assignment_configs = r.assignment_configs
        self.delay_until_ms, self.endpoint_epoch = r.delay_until_ms, r.endpoint_epoch
        self.shutdown_member = r.shutdown_member

    def _replay_topology(self, r: TopologyRecord) -> None:
        self.topology, self.topology_partial = r.topology, r.partial
        self.subtopology_of_topic = r.topology.subtopology_of_topic()
        self.required_topics = frozenset(r.topology.required_topics())
        self.topology_bytes = bytes_of_topology(r.topology)

    def _replay_member(self, r: MemberRecord) -> None:
        old = self.members.get(r.member_id) or Member(r.member_id)
        if r.member_id in self.members:
            self.members_bytes -= bytes_of_streams_member(old)
            self._release_instance(old)
        self.members_bytes += bytes_of_streams_member(r)
        if r.instance_id is not None:
            self.static_members[r.instance_id] = r.member_id
        if r.process_id != old.process_id:
            self.holders.remove(old.member_id, old.assigned, old.pending)
            self.holders.add(old.member_id, r.process_id, old.assigned, old.pending)
        self.members[r.member_id] = Member(  # not `replace`, which takes three times as long: a takeover has many
            r.member_id,
            r.instance_id,
            r.rack_id,
            r.client_id,
            r.client_host,
            r.rebalance_timeout_ms,
            r.topology_epoch,
            r.process_id,
            r.endpoint,
            r.client_tags,
            old.member_epoch,
            old.previous_epoch,
            old.state,
            old.assigned,
            old.pending,
        )

    def _replay_current(self, r: CurrentRecord) -> None:
        old = self.members.get(r.member_id)
        if old is None:  # its member is gone, and compaction has not taken this one yet
            return
        if r.assigned is not old.assigned or r.pending is not old.pending:
            self.holders.remove(old.member_id, old.assigned, old.pending)
            self.holders.add(old.member_id, old.process_id, r.assigned, r.pending)
        self.members[r.member_id] = Member(
            old.member_id,
            old.instance_id,
            old.rack_id,
            old.client_id,
            old.client_host,
            old.rebalance_timeout_ms,
            old.topology_epoch,
            old.process_id,
            old.endpoint,
            old.client_tags,
            r.member_epoch,
            r.previous_epoch,
            r.state,
            r.assigned,
            r.pending,
        )

    def _replay_target_member(self, r: TargetMemberRecord) -> None:
        self._drop_target(r.member_id)
        self.target[r.member_id] = r.tasks
        self.tasks_bytes += bytes_of_tasks(r.tasks)

    def _drop_target(self, member_id: str) -> None:
        self.tasks_bytes -= bytes_of_tasks(self.target.pop(member_id, NO_TASKS))

    def _replay_target(self, r: TargetRecord) -> None:
        for part in r.parts():
            self.replay(part)

    def _replay_tombstone(self, r: Tombstone) -> None:
        if r.kind is Kind.MEMBER:
            gone = self.members.pop(r.sub_id, None)
            if gone is not None:
                self.holders.remove(gone.member_id, gone.assigned, gone.pending)
                self.members_bytes -= bytes_of_streams_member(gone)
                self._release_instance(gone)
        elif r.kind is Kind.CURRENT:
            nothing = NOTHING_ASSIGNED
            state = MemberState.STABLE
            self._replay_current(CurrentRecord(r.group_id, r.sub_id, LEAVE_EPOCH, LEAVE_EPOCH, state, nothing, nothing))
        elif r.kind is Kind.TARGET_MEMBER:
            self._drop_target(r.sub_id)
        elif r.kind is Kind.TARGET_METADATA:
            self.forget_target_metadata()
        elif r.kind is Kind.TOPOLOGY:
            self.topology, self.topology_partial, self.topology_bytes = None, False, 0
            self.subtopology_of_topic, self.required_topics = {}, frozenset()

    def _release_instance(self, member: Member) -> None:
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
            del self.static_members[member.instance_id]


def bytes_of_topology(topology: Topology) -> int:
    """Returns about how many bytes a topology takes in memory."""
    return sum(NAME_BYTES + bytes_of(text) for text in topology.texts()) + INDEX_BYTES * topology.indices()


def bytes_of_tasks(tasks: Tasks) -> int:
    return TASK_BYTES * sum(len(ps) for part in (tasks.active, tasks.standby, tasks.warmup) for ps in part.values())


def bytes_of_streams_member(m: Member | MemberRecord) -> int:
    """Returns about how many bytes a member takes in memory, without its tasks."""
    host = None if m.endpoint is None else m.endpoint[0]
    tags = [text for pair in m.client_tags.items() for text in pair]
    return bytes_of_member(m.member_id, m.instance_id, m.rack_id, m.client_id, m.client_host, m.process_id, host, *tags)


StreamsGroup.replays = {
    GroupRecord: StreamsGroup._replay_group,
    TopologyRecord: StreamsGroup._replay_topology,
    MemberRecord: StreamsGroup._replay_member,
    TargetMetadataRecord: StreamsGroup.replay_target_metadata,
    TargetMemberRecord: StreamsGroup._replay_target_member,
    TargetRecord: StreamsGroup._replay_target,
    CurrentRecord: StreamsGroup._replay_current,
    Tombstone: StreamsGroup._replay_tombstone,
}


def streams_group(groups: Mapping[str, Any], group_id: str) -> StreamsGroup | None:
    return of_kind(StreamsGroup, groups, group_id)
