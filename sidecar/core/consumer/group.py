"""The hard state of one consumer group, and its replay. It decides nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from sidecar.core.consumer.config import CONSUMER
from sidecar.core.consumer.records import (
    ClassicTraits,
    CurrentRecord,
    GroupRecord,
    Kind,
    MemberRecord,
    MemberState,
    RegexRecord,
    StaticMemberRecord,
    TargetMemberRecord,
    TargetMetadataRecord,
    TargetRecord,
)
from sidecar.core.consumer.target_table import TargetAssignment
from sidecar.core.modern.group import LEAVE_EPOCH, SubscribedGroup, of_kind
from sidecar.core.modern.subscriptions import Subscription
from sidecar.core.runtime.member_limits import bytes_of_member, bytes_of_protocols
from sidecar.core.runtime.records import Epochs, Partitions, Tombstone
from sidecar.core.vocabulary.errors import InvariantError
from sidecar.core.vocabulary.topics import TopicImage


class GroupState(StrEnum):
    """KIP-848, ConsumerGroup.maybeUpdateGroupState."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True)
class Member:
    """Subscription and current assignment of one member; replaced as a whole on any change."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topic_names: tuple[str, ...] = ()
    topic_regex: str | None = None
    server_assignor: str | None = None
    member_epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Epochs = field(default_factory=dict)
    pending: Epochs = field(default_factory=dict)
    classic: ClassicTraits | None = None
    """Session timeout and protocols of a member of the classic protocol; None: it speaks the consumer protocol."""

    @property
    def holds(self) -> bool:
        return bool(self.assigned or self.pending)

    @property
    def revokes(self) -> bool:
        return self.state is MemberState.UNREVOKED_PARTITIONS

    def reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == epoch

    def held_partitions(self) -> Partitions:
        """Returns the partitions that are assigned, or not yet given up."""
        held: dict[bytes, set[int]] = {}
        for part in (self.assigned, self.pending):
            for topic, partitions in part.items():
                held.setdefault(topic, set()).update(partitions)
        return {t: tuple(sorted(ps)) for t, ps in held.items()}

    def assigned_partitions(self) -> Partitions:
        return {t: tuple(sorted(ps)) for t, ps in self.assigned.items()}


@dataclass(slots=True)
class ConsumerGroup(SubscribedGroup[Member]):
    """Hard state of a consumer group. All of it comes from records, or is derived from them."""

    target: TargetAssignment = field(default_factory=TargetAssignment)
    regexes: dict[str, RegexRecord] = field(default_factory=dict)
    owners: dict[bytes, dict[int, str]] = field(default_factory=dict)
    """Topic id -> partition -> the one member that owns it, assigned or not yet given up."""
    votes: Counter[str] = field(default_factory=Counter)
    """Number of members by the assignor that they ask for."""
    classic_members: int = 0
    """Number of members that speak the classic protocol."""
    classic_protocols: Counter[str] = field(default_factory=Counter)
    """Number of these members by protocol that they support."""
    _ids: dict[Subscription, tuple[int, RegexRecord | None, frozenset[bytes]]] = field(default_factory=dict)
    """Subscription -> serial of an image, resolved regex, and ids of the topics."""

    kind = CONSUMER
    protocol_type = "consumer"
    group_record, target_member_record, metadata_record = GroupRecord, TargetMemberRecord, TargetMetadataRecord

    # ---- queries ----------------------------------------------------------------------------------------
    def state(self) -> GroupState:
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        if all(m.reconciled_to(self.assignment_epoch) for m in self.members.values()):
            return GroupState.STABLE
        return GroupState.RECONCILING

    def state_name(self) -> str:
        return str(self.state())

    def tombstones(self, why: str) -> list[Tombstone]:
        """Returns a tombstone for every key of the group, the group itself last. A group that becomes a classic one has
        members."""
        keys = [(Kind.STATIC_MEMBER, i) for i in self.static_members] + [(Kind.REGEX, r) for r in self.regexes]
        keys += [(kind, m) for m in self.members for kind in (Kind.CURRENT, Kind.MEMBER)]
        keys += [(Kind.TARGET_MEMBER, m) for m in dict.fromkeys((*self.members, *self.target))]
        keys += [(Kind.TARGET_METADATA, ""), (Kind.GROUP, "")]
        return [Tombstone(kind, self.group_id, sub_id, why) for kind, sub_id in keys]

    def regex_users(self, regex: str) -> int:
        return self.subscriptions.regex_users(regex)

    def topics_of(self, member: Member) -> Iterable[str]:
        """Returns the topics of names and resolved regex together; an unresolved regex matches none (KIP-1263)."""
        regex = self.regexes.get(member.topic_regex) if member.topic_regex else None
        return member.topic_names if regex is None else {*member.topic_names, *regex.topics}

    def subscribed_ids(self, member: Member, image: TopicImage) -> frozenset[bytes]:
        """Returns the ids of the existing topics of a member's subscription; cached for all members with the same
        subscription."""
        sub = self.subscriptions.of.get(member.member_id)
        regex = self.regexes.get(member.topic_regex) if member.topic_regex else None
        known = self._ids.get(sub) if sub is not None else None
        if known is not None and known[0] == image.serial and known[1] is regex:
            return known[2]
        ids = frozenset(image.by_name[n].id for n in self.topics_of(member) if n in image.by_name)
        if sub is not None:
            if len(self._ids) > 2 * len(self.members) + 16:
                self._ids.clear()
            self._ids[sub] = (image.serial, regex, ids)
        return ids

    # ---- replay -----------------------------------------------------------------------------------------
    def _replay_static(self, r: StaticMemberRecord) -> None:
        self.static_members[r.instance_id] = r.member_id

    def _replay_target_member(self, r: TargetMemberRecord) -> None:
        self.target.put(r.member_id, r.partitions)

    def _replay_target(self, r: TargetRecord) -> None:
        self.target.adopt(r.table)
        self.replay_target_metadata(r.metadata())

    def _replay_regex(self, r: RegexRecord) -> None:
        self.regexes[r.regex] = r
        self.subscriptions.resolved(r.regex, r.topics)

    def _replay_member(self, r: MemberRecord) -> None:
        old = self.members.get(r.member_id) or Member(r.member_id)
        subscription = self.subscriptions.put(r.member_id, r.topic_names, r.topic_regex)
        self._vote(old.server_assignor, -1)
        self._vote(r.server_assignor, 1)
        self._count_classic(old.classic, -1)
        self._count_classic(r.classic, 1)
        self.members_bytes += bytes_of(r) - (bytes_of(old) if r.member_id in self.members else 0)
        self.members[r.member_id] = Member(  # not `replace`, which takes three times as long: a takeover has many
            r.member_id,
            r.instance_id,
            r.rack_id,
            r.client_id,
            r.client_host,
            r.rebalance_timeout_ms,
            subscription.names,
            subscription.regex,
            r.server_assignor,
            old.member_epoch,
            old.previous_epoch,
            old.state,
            old.assigned,
            old.pending,
            r.classic,
        )

    def _replay_current(self, r: CurrentRecord) -> None:
        old = self.members.get(r.member_id)
        if old is None:  # compaction has removed its other records
            old = Member(r.member_id)
            self.members_bytes += bytes_of(old)
            self.subscriptions.put(r.member_id, (), None)
        kept = r.assigned is old.assigned and not r.pending and not old.pending
        if not kept:
            self._release(old)
        new = Member(
            old.member_id,
            old.instance_id,
            old.rack_id,
            old.client_id,
            old.client_host,
            old.rebalance_timeout_ms,
            old.topic_names,
            old.topic_regex,
            old.server_assignor,
            r.member_epoch,
            r.previous_epoch,
            r.state,
            r.assigned,
            r.pending,
            old.classic,
        )
        for part in () if kept else (new.assigned, new.pending):
            for topic, partitions in part.items():
                owners = self.owners.setdefault(topic, {})
                for p in partitions:
                    other = owners.setdefault(p, new.member_id)
                    if other != new.member_id:
                        raise InvariantError(
                            f"group {self.group_id}: {topic.hex()}-{p} of {other} assigned to {new.member_id}"
                        )
        self.members[r.member_id] = new

    def _vote(self, assignor: str | None, by: int) -> None:
        if assignor is not None:
            self.votes[assignor] += by

    def _count_classic(self, traits: ClassicTraits | None, by: int) -> None:
        if traits is not None:
            self.classic_members += by
            for name in {name for name, _ in traits.protocols}:
                self.classic_protocols[name] += by
                if not self.classic_protocols[name]:
                    del self.classic_protocols[name]

    def _release(self, member: Member) -> None:
        for part in (member.assigned, member.pending):
            for topic, partitions in part.items():
                owners = self.owners.get(topic)
                if owners is None:
                    continue
                for p in partitions:
                    if owners.get(p) == member.member_id:
                        del owners[p]
                if not owners:
                    del self.owners[topic]

    def _replay_tombstone(self, r: Tombstone) -> None:
        if r.kind is Kind.MEMBER:
            gone = self.members.pop(r.sub_id, None)
            if gone is not None:
                self._release(gone)
                self.subscriptions.drop(r.sub_id)
                self._vote(gone.server_assignor, -1)
                self._count_classic(gone.classic, -1)
                self.members_bytes -= bytes_of(gone)
        elif r.kind is Kind.CURRENT:
            old = self.members.get(r.sub_id)
            if old is not None:
                self._release(old)
                self.members[r.sub_id] = replace(
                    old, member_epoch=LEAVE_EPOCH, previous_epoch=-1, assigned={}, pending={}
                )
        elif r.kind is Kind.STATIC_MEMBER:
            self.static_members.pop(r.sub_id, None)
        elif r.kind is Kind.TARGET_MEMBER:
            self.target.drop(r.sub_id)
        elif r.kind is Kind.TARGET_METADATA:
            self.forget_target_metadata()
        elif r.kind is Kind.REGEX:
            self.regexes.pop(r.sub_id, None)
            self.subscriptions.resolved(r.sub_id, ())


def bytes_of(m: Member | MemberRecord) -> int:
    """Returns about how many bytes a member takes in memory beside its subscription, which others may share."""
    texts = (m.instance_id, m.rack_id, m.client_id, m.client_host)
    return bytes_of_member(m.member_id, *texts) + (0 if m.classic is None else bytes_of_protocols(m.classic.protocols))


ConsumerGroup.replays = {
    GroupRecord: ConsumerGroup.replay_group,
    MemberRecord: ConsumerGroup._replay_member,
    StaticMemberRecord: ConsumerGroup._replay_static,
    TargetMetadataRecord: ConsumerGroup.replay_target_metadata,
    TargetMemberRecord: ConsumerGroup._replay_target_member,
    TargetRecord: ConsumerGroup._replay_target,
    CurrentRecord: ConsumerGroup._replay_current,
    RegexRecord: ConsumerGroup._replay_regex,
    Tombstone: ConsumerGroup._replay_tombstone,
}


def consumer_group(groups: Mapping[str, Any], group_id: str) -> ConsumerGroup | None:
    return of_kind(ConsumerGroup, groups, group_id)
