"""The hard state of one share group, and its replay. It decides nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, ClassVar

from sidecar.core.modern.group import LEAVE_EPOCH, SubscribedGroup, of_kind
from sidecar.core.modern.target_table import MemberTable, MemberTargets
from sidecar.core.runtime.member_limits import bytes_of_member
from sidecar.core.runtime.records import Partitions, Tombstone
from sidecar.core.share.config import SHARE
from sidecar.core.share.records import (
    CurrentRecord,
    GroupRecord,
    Kind,
    MemberRecord,
    PlaceholderRecord,
    TargetMemberRecord,
    TargetMetadataRecord,
    TargetRecord,
)
from sidecar.core.vocabulary.topics import TopicImage


class GroupState(StrEnum):
    """States of ShareGroup.ShareGroupState. Dead, the third, is a group that is not here."""

    EMPTY = "Empty"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True)
class Member:
    """Subscription and current assignment of one member; replaced as a whole on any change."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] = ()
    member_epoch: int = 0
    previous_epoch: int = -1
    assigned: Partitions = field(default_factory=dict)

    instance_id: ClassVar[None] = None
    """Always None: share groups have no static members (KIP-932)."""

    @property
    def holds(self) -> bool:
        return bool(self.assigned)

    def reconciled_to(self, epoch: int) -> bool:
        return self.member_epoch == epoch

    def subscribed(self, partitions: Partitions, image: TopicImage) -> Partitions:
        """Returns the partitions whose topics exist and are in the member's subscription."""
        by_id, names = image.by_id, frozenset(self.topic_names)
        return {t: ps for t, ps in partitions.items() if ps and t in by_id and by_id[t].name in names}


@dataclass(slots=True)
class ShareGroup(SubscribedGroup[Member]):
    """Hard state of a share group. All of it comes from records, or is derived from them."""

    target: MemberTargets[MemberTable] = field(default_factory=MemberTargets)
    placeholder: PlaceholderRecord | None = None
    _assignable: tuple[int, frozenset[str], Partitions] | None = None
    """Serial of an image, subscribed topics, and their assignable partitions."""
    _differs: tuple[Partitions, bool] | None = None

    kind = SHARE
    protocol_type = "share"
    group_record, target_member_record, metadata_record = GroupRecord, TargetMemberRecord, TargetMetadataRecord
    owners: ClassVar[Mapping[bytes, object]] = {}
    """Always empty: no member waits for a partition that another member has."""

    # ---- queries ----------------------------------------------------------------------------------------
    def state(self) -> GroupState:
        return GroupState.STABLE if self.members else GroupState.EMPTY

    def state_name(self) -> str:
        return str(self.state())

    def tombstones(self, why: str) -> list[Tombstone]:
        """Returns a tombstone for every key of the group, the group itself last."""
        keys = [(kind, m) for m in self.members for kind in (Kind.CURRENT, Kind.MEMBER)]
        keys += [(Kind.TARGET_MEMBER, m) for m in dict.fromkeys((*self.members, *self.target))]
        if self.placeholder is not None:
            keys.append((Kind.PLACEHOLDER, ""))
        keys += [(Kind.TARGET_METADATA, ""), (Kind.GROUP, "")]
        return [Tombstone(kind, self.group_id, sub_id, why) for kind, sub_id in keys]

    @property
    def initialised(self) -> Partitions:
        """Partitions whose share state the broker has initialised, by the placeholder member's reports."""
        return {} if self.placeholder is None else self.placeholder.initialised

    def assignable(self, image: TopicImage) -> Partitions:
        """Returns the initialised partitions of existing subscribed topics, the only ones that a target may have. The
        same object as long as nothing changed."""
        topics, known = self.subscribed_topics(), self._assignable
        if known is None or known[0] != image.serial or known[1] is not topics:
            known = image.serial, topics, assignable(self.initialised, topics, image)
            self._assignable = known
        return known[2]

    def differs(self, image: TopicImage) -> bool:
        """Whether the union of all targets differs from the assignable partitions."""
        now, known = self.assignable(image), self._differs
        if known is None or known[0] is not now:
            known = now, union(map(self.target.of, self.target)) != {t: set(ps) for t, ps in now.items()}
            self._differs = known
        return known[1]

    def target_of(self, member_id: str, image: TopicImage) -> Partitions:
        """Returns the assignable part of a member's target. Partitions may have lost their share state since."""
        target = self.target.of(member_id)
        return both(target, self.assignable(image)) if self.differs(image) else target

    # ---- replay -----------------------------------------------------------------------------------------
    def _replay_target_member(self, r: TargetMemberRecord) -> None:
        self.target.put(r.member_id, r.partitions)
        self._differs = None

    def _replay_target(self, r: TargetRecord) -> None:
        self.target.adopt(r.table)
        self._differs = None if r.covers is None else (r.covers, False)
        self.replay_target_metadata(r.metadata())

    def _replay_placeholder(self, r: PlaceholderRecord) -> None:
        self.placeholder = r
        self._assignable = None

    def _replay_member(self, r: MemberRecord) -> None:
        old = self.members.get(r.member_id) or Member(r.member_id)
        subscription = self.subscriptions.put(r.member_id, r.topic_names, None)
        self.members_bytes += bytes_of(r) - (bytes_of(old) if r.member_id in self.members else 0)
        self.members[r.member_id] = replace(
            old,
            rack_id=r.rack_id,
            client_id=r.client_id,
            client_host=r.client_host,
            topic_names=subscription.names,
        )

    def _replay_current(self, r: CurrentRecord) -> None:
        old = self.members.get(r.member_id)
        if old is None:  # compaction has removed its other records
            old = Member(r.member_id)
            self.members_bytes += bytes_of(old)
            self.subscriptions.put(r.member_id, (), None)
        self.members[r.member_id] = replace(
            old, member_epoch=r.member_epoch, previous_epoch=r.previous_epoch, assigned=r.assigned
        )

    def _replay_tombstone(self, r: Tombstone) -> None:
        if r.kind is Kind.MEMBER:
            gone = self.members.pop(r.sub_id, None)
            if gone is not None:
                self.subscriptions.drop(r.sub_id)
                self.members_bytes -= bytes_of(gone)
        elif r.kind is Kind.CURRENT:
            old = self.members.get(r.sub_id)
            if old is not None:
                self.members[r.sub_id] = replace(old, member_epoch=LEAVE_EPOCH, previous_epoch=-1, assigned={})
        elif r.kind is Kind.TARGET_MEMBER:
            self.target.drop(r.sub_id)
            self._differs = None
        elif r.kind is Kind.TARGET_METADATA:
            self.forget_target_metadata()
        elif r.kind is Kind.PLACEHOLDER:
            self.placeholder = self._assignable = None


def assignable(initialised: Partitions, topics: Collection[str], image: TopicImage) -> Partitions:
    """Returns the partitions of `initialised` that exist, of these topics."""
    kept = {}
    for topic_id in sorted(initialised):
        topic = image.by_id.get(topic_id)
        if topic is not None and topic.name in topics:
            ps = tuple(p for p in initialised[topic_id] if p < topic.partitions)
            if ps:
                kept[topic_id] = ps
    return kept


def both(a: Partitions, b: Partitions) -> Partitions:
    kept = {t: tuple(filter(frozenset(b[t]).__contains__, ps)) for t, ps in a.items() if t in b}
    return {t: ps for t, ps in kept.items() if ps}


def union(parts: Iterable[Partitions]) -> dict[bytes, set[int]]:
    """Returns topic id -> the partitions that any of these has."""
    partitions: dict[bytes, set[int]] = {}
    for each in parts:
        for topic_id, ps in each.items():
            if ps:
                partitions.setdefault(topic_id, set()).update(ps)
    return partitions


def bytes_of(m: Member | MemberRecord) -> int:
    """Returns about how many bytes a member takes in memory beside its subscription, which others may share."""
    return bytes_of_member(m.member_id, m.rack_id, m.client_id, m.client_host)


ShareGroup.replays = {
    GroupRecord: ShareGroup.replay_group,
    MemberRecord: ShareGroup._replay_member,
    TargetMetadataRecord: ShareGroup.replay_target_metadata,
    TargetMemberRecord: ShareGroup._replay_target_member,
    TargetRecord: ShareGroup._replay_target,
    CurrentRecord: ShareGroup._replay_current,
    PlaceholderRecord: ShareGroup._replay_placeholder,
    Tombstone: ShareGroup._replay_tombstone,
}


def share_group(groups: Mapping[str, Any], group_id: str) -> ShareGroup | None:
    return of_kind(ShareGroup, groups, group_id)
