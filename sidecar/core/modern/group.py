"""The hard state that all kinds of groups with epochs have in common: Kafka's ModernGroup and ModernGroupMember. A kind
has a subclass, with its own members and records."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from sidecar.core.modern.records import GroupRecord, TargetMemberRecord, TargetMetadataRecord
from sidecar.core.modern.subscriptions import Subscriptions
from sidecar.core.runtime.events import DeletionCheckReply
from sidecar.core.runtime.records import Record, Tombstone
from sidecar.core.vocabulary.errors import Code, CoordinatorError, InvariantError
from sidecar.core.vocabulary.topics import TopicImage

LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2
INITIAL_EPOCH = 1
"""KIP-1263: epoch 1 is the empty assignment, the first computed one is 2."""


class ModernMember(Protocol):
    @property
    def member_id(self) -> str: ...

    @property
    def client_id(self) -> str: ...

    @property
    def member_epoch(self) -> int: ...

    @property
    def previous_epoch(self) -> int: ...

    @property
    def holds(self) -> bool:
        """Whether the member owns partitions, or has not given them up yet."""

    def reconciled_to(self, epoch: int) -> bool: ...


class RevokingMember(ModernMember, Protocol):
    """A member of a kind in which partitions are revoked from one member before another gets them."""

    @property
    def rebalance_timeout_ms(self) -> int: ...

    @property
    def revokes(self) -> bool:
        """Whether the member must give partitions up, and has not confirmed it yet."""


M = TypeVar("M", bound=ModernMember)


@dataclass(slots=True)
class ModernGroup(Generic[M]):
    """Hard state of a group. All of it comes from records, or is derived from them."""

    kind: ClassVar[str]
    protocol_type: ClassVar[str]
    metadata_record: ClassVar[type[TargetMetadataRecord]]
    replays: ClassVar[Mapping[type, Callable[[Any, Any], None]]]
    """The method that replays each class of record."""

    group_id: str
    epoch: int = INITIAL_EPOCH
    metadata_hash: int = 0
    members: dict[str, M] = field(default_factory=dict)
    static_members: dict[str, str] = field(default_factory=dict)
    """Instance id -> member id; empty in a kind without static members."""
    assignment_epoch: int = INITIAL_EPOCH
    assignment_timestamp_ms: int = 0
    assignor: str = ""
    """The assignor that made the last target assignment; "" before the first."""
    members_bytes: int = 0
    """Bytes of the members without their subscriptions; see `held_bytes`."""

    @property
    @abstractmethod
    def owners(self) -> Mapping[Any, Any]:
        """The owners of all partitions that are assigned, or not given up yet. Empty: no member owns any."""

    @property
    @abstractmethod
    def held_bytes(self) -> int:
        """About how many bytes the group takes in memory."""

    @abstractmethod
    def state_name(self) -> str: ...

    @abstractmethod
    def subscribed_topics(self) -> frozenset[str]: ...

    @abstractmethod
    def hash_over(self, image: TopicImage) -> int:
        """Returns the hash of the metadata of all subscribed topics as `image` has them."""

    @abstractmethod
    def tombstones(self, why: str) -> list[Tombstone]:
        """Returns a tombstone for every key of the group, the group itself last."""

    def member_count(self) -> int:
        return len(self.members)

    def member_ids(self) -> Collection[str]:
        return self.members.keys()

    def static_member(self, instance_id: str | None) -> M | None:
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members.get(member_id)

    @property
    def nobody_here(self) -> bool:
        """Whether all members are static ones that have left for a while, or there is none."""
        return all(m.member_epoch == STATIC_LEAVE_EPOCH for m in self.members.values())

    def deletion_check(self) -> DeletionCheckReply:
        subscribed = self.subscribed_topics() if self.members else frozenset[str]()
        return DeletionCheckReply(exists=True, kind=self.kind, members=len(self.members), subscribed=subscribed)

    # ---- its records ------------------------------------------------------------------------------------------
    @abstractmethod
    def epoch_record(self, epoch: int, metadata_hash: int, why: str) -> Record: ...

    @abstractmethod
    def empty_target_record(self, member_id: str, why: str) -> Record:
        """Returns the record of an empty target assignment for this member."""

    def target_epoch_record(self, epoch: int, timestamp_ms: int, why: str) -> TargetMetadataRecord:
        """Returns the record of the target's epoch, with the assignor that made the last one."""
        return self.metadata_record(self.group_id, epoch, timestamp_ms, self.assignor, why)

    # ---- replay -----------------------------------------------------------------------------------------------
    def replay(self, r: Record) -> None:
        """Applies one record. Tolerates what compaction leaves: parts of members, tombstones of the unknown."""
        apply = self.replays.get(type(r))
        if apply is None:
            raise InvariantError(f"group {self.group_id}: a {self.kind} group has no record {type(r).__name__}")
        apply(self, r)

    def replay_target_metadata(self, r: TargetMetadataRecord) -> None:
        self.assignment_epoch, self.assignment_timestamp_ms = r.assignment_epoch, r.assignment_timestamp_ms
        self.assignor = r.assignor

    def forget_target_metadata(self) -> None:
        """Applies the tombstone of the target's epoch."""
        self.assignment_epoch, self.assignment_timestamp_ms = INITIAL_EPOCH, 0


@dataclass(slots=True)
class SubscribedGroup(ModernGroup[M]):
    """Hard state of a group whose members subscribe to topics: a consumer or share group."""

    group_record: ClassVar[type[GroupRecord]]
    target_member_record: ClassVar[type[TargetMemberRecord]]

    subscriptions: Subscriptions = field(default_factory=Subscriptions)

    @property
    def held_bytes(self) -> int:
        """About how many bytes the members take in memory."""
        return self.members_bytes + self.subscriptions.held_bytes

    def subscribed_topics(self) -> frozenset[str]:
        return self.subscriptions.topics()

    def hash_over(self, image: TopicImage) -> int:
        return self.subscriptions.hash_over(image)

    def epoch_record(self, epoch: int, metadata_hash: int, why: str) -> GroupRecord:
        return self.group_record(self.group_id, epoch, metadata_hash, why)

    def empty_target_record(self, member_id: str, why: str) -> TargetMemberRecord:
        return self.target_member_record(self.group_id, member_id, {}, {}, why)

    def replay_group(self, r: GroupRecord) -> None:
        self.epoch, self.metadata_hash = r.epoch, r.metadata_hash


G = TypeVar("G", bound=ModernGroup[Any])


def of_kind(wanted: type[G], groups: Mapping[str, Any], group_id: str) -> G | None:
    """Returns the group, if it is there. Raises GROUP_ID_NOT_FOUND for a group of another kind, as Kafka does."""
    group = groups.get(group_id)
    if group is None or type(group) is wanted:
        return group
    raise CoordinatorError(Code.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a {wanted.kind} group.")
