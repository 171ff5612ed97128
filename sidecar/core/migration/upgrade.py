"""Upgrade: a classic group becomes a consumer group when its first member of the consumer protocol joins (KIP-848
'Upgrade').

Source: Kafka's GroupMetadataManager.convertToConsumerGroup and ConsumerGroup.fromClassicGroup. The members stay, each
with its last assignment, at an epoch that is the group's generation. A member that has not received that assignment
still has its earlier partitions: it keeps those that it claims and no member is assigned, until it has given them up.
A cooperative member (KIP-429) joins again after it has given partitions up, so its claims count until then: its last
assignment may have been sent and still be under way.

Kafka refuses a group whose assignments carry user data, because a custom assignor's would be lost. The assignors that
clients bring (`BUILT_IN`) keep only hints of their own there. librdkafka's sticky ones hand each member's subscription
data back, so that Kafka does not upgrade their groups. Here such a group upgrades.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from sidecar.core.classic.embedded import assigned_with_data, subscription
from sidecar.core.classic.group import ClassicGroup, Member
from sidecar.core.classic.records import State
from sidecar.core.classic.registration import CLASSIC
from sidecar.core.classic.soft_state import ClassicSoft
from sidecar.core.consumer.config import config_of
from sidecar.core.consumer.events import ConsumerHeartbeat
from sidecar.core.consumer.group import ConsumerGroup
from sidecar.core.consumer.heartbeat import heartbeat
from sidecar.core.consumer.members import arm_session
from sidecar.core.consumer.records import (
    ClassicTraits,
    CurrentRecord,
    GroupRecord,
    MemberRecord,
    MemberState,
    StaticMemberRecord,
    TargetMemberRecord,
    TargetMetadataRecord,
)
from sidecar.core.consumer.step import check, more_bytes
from sidecar.core.consumer.validation import check_request
from sidecar.core.migration.validation import check_upgrade, no_upgrade
from sidecar.core.modern.group import INITIAL_EPOCH
from sidecar.core.modern.validation import unknown_member
from sidecar.core.runtime.member_limits import check_room
from sidecar.core.runtime.records import Partitions, Record
from sidecar.core.runtime.topic_lookup import look_first
from sidecar.core.runtime.turn import Turn
from sidecar.core.vocabulary.errors import InvariantError
from sidecar.core.vocabulary.topics import TopicImage

COOPERATIVE = "cooperative-sticky"
BUILT_IN = frozenset({"range", "roundrobin", "sticky", COOPERATIVE})
UNKNOWN_HASH = 0
WHY = "upgraded from the classic protocol"


def consumer_joins(turn: Turn, hb: ConsumerHeartbeat, token: int) -> None:
    """Handles ConsumerGroupHeartbeat in a classic group."""
    group: ClassicGroup = turn.groups[hb.group_id]
    config = config_of(turn, hb.group_id)
    check_request(hb, config)
    if hb.member_epoch != 0:
        raise unknown_member(hb.member_id, hb.group_id)
    names = (*(hb.topic_names or ()), *(group.subscribed_topics() or ()))
    if look_first(turn, hb, token, names, config.join_wait_ms):
        return
    turn.looked = True
    if not group.members:  # the last one may have left while its first rebalance was under way
        _check_joins(turn, group, ConsumerGroup(hb.group_id), hb)
        drop(turn, group, "an empty classic group becomes a consumer group")
    else:
        check_upgrade(turn, group)
        records = as_consumer_group(group, turn.image, _have_assignment(group, turn.soft_of(hb.group_id)))
        _check_joins(turn, group, _preview(hb.group_id, records), hb)
        drop(turn, group, WHY)
        for record in records:
            turn.write(record)
        made: ConsumerGroup = turn.groups[hb.group_id]
        for member in made.members.values():
            arm_session(turn, hb.group_id, member)
        turn.fx.log(WHY, group_id=hb.group_id, members=len(made.members), epoch=made.epoch)
    turn.fx.count("migrations", "consumer")
    heartbeat(turn, hb, token, has_room=True)


def _check_joins(turn: Turn, group: ClassicGroup, future: ConsumerGroup, hb: ConsumerHeartbeat) -> None:
    """Raises the error with which the future group, or its memory limits, would refuse the member."""
    checked = check(future, hb, config_of(turn, hb.group_id))
    more = future.held_bytes + more_bytes(future, checked) - group.held_bytes
    check_room(turn.ports.limits, group.held_bytes, more)


def drop(turn: Turn, group: ClassicGroup, why: str) -> None:
    CLASSIC.answer_waiting(turn, group)
    for tombstone in group.tombstones(why):
        turn.write(tombstone)


def _preview(group_id: str, records: Sequence[Record]) -> ConsumerGroup:
    """Returns the future group. Raises GROUP_ID_NOT_FOUND if it contradicts itself."""
    group = ConsumerGroup(group_id)
    try:
        for record in records:
            group.replay(record)
    except InvariantError as exc:
        raise no_upgrade(group_id, "two members are assigned the same partition") from exc
    return group


def _have_assignment(group: ClassicGroup, soft: ClassicSoft) -> Set[str]:
    """Returns the members that have received their last assignment, and have not joined again since."""
    if group.state is State.COMPLETING or group.adopted:
        return frozenset()
    return group.members.keys() - soft.unsynced - soft.joins.keys()


def as_consumer_group(group: ClassicGroup, image: TopicImage, have_assignment: Set[str]) -> list[Record]:
    """Returns the records of the consumer group that this group becomes. `have_assignment`: members that have received
    their last assignment. Raises GROUP_ID_NOT_FOUND."""
    count = len(group.members)
    known = group.protocol is not None and group.supported[group.protocol] == count
    protocol = group.protocol if known and group.protocol is not None else group.select_protocol()
    given = {m: _given(group, m, protocol, image) for m in group.members}
    _claim(group, protocol, image, have_assignment, given)
    records: list[Record] = []
    for member in group.members.values():
        records += _member(group, member, protocol, image, given[member.member_id])
    preview = _preview(group.group_id, records)
    epoch = epoch_of(group)
    records.append(TargetMetadataRecord(group.group_id, epoch, 0, "", WHY))
    metadata_hash = preview.hash_over(image) if _all_assigned(preview, image) else UNKNOWN_HASH
    records.append(GroupRecord(group.group_id, epoch, metadata_hash, WHY))
    return records


def _all_assigned(group: ConsumerGroup, image: TopicImage) -> bool:
    """Whether all partitions of the subscribed topics have owners. If not, topics have grown since the leader assigned,
    or it has not assigned in this generation. Then a new target is needed, even if the joining member requires none,
    like a static one that comes back. (In Kafka the partitions stay unassigned until something else changes.)"""
    topics = (image.by_name[name] for name in group.subscribed_topics() if name in image.by_name)
    return all(p in group.owners.get(t.id, ()) for t in topics for p in range(t.partitions))


def epoch_of(group: ClassicGroup) -> int:
    """Returns the group's generation as an epoch. Before the first generation it is the epoch of the empty assignment:
    no member may receive epoch 0."""
    return max(group.generation, INITIAL_EPOCH)


def _claim(
    group: ClassicGroup, protocol: str, image: TopicImage, have_assignment: Set[str], given: dict[str, Partitions]
) -> None:
    """Adds partitions that members claim and no member is assigned. Of two claims the one of the later generation
    counts (KIP-792)."""
    confirmed = frozenset[str]() if protocol == COOPERATIVE else have_assignment
    taken = {(t, p) for parts in given.values() for t, ps in parts.items() for p in ps}
    parsed = [(m.member_id, subscription(m.metadata(protocol))) for m in group.members.values()]
    claims = [(member_id, s) for member_id, s in parsed if s is not None and s.owned and member_id not in confirmed]
    for member_id, s in sorted(claims, key=lambda claim: -claim[1].generation):
        held = {t: set(ps) for t, ps in given[member_id].items()}
        for name, partitions in s.owned.items():
            topic = image.by_name.get(name)
            if topic is None:
                continue
            new = {p for p in partitions if 0 <= p < topic.partitions and (topic.id, p) not in taken}
            if new:
                held.setdefault(topic.id, set()).update(new)
                taken.update((topic.id, p) for p in new)
        given[member_id] = {t: tuple(sorted(ps)) for t, ps in held.items()}


def _member(group: ClassicGroup, m: Member, protocol: str, image: TopicImage, given: Partitions) -> list[Record]:
    parsed = subscription(m.metadata(protocol))
    if parsed is None:
        raise no_upgrade(group.group_id, "the embedded consumer protocol is malformed")
    group_id, epoch = group.group_id, epoch_of(group)
    traits = ClassicTraits(m.session_timeout_ms, m.protocols)
    names = tuple(sorted(set(parsed.topics)))
    records: list[Record] = [
        MemberRecord(
            group_id,
            m.member_id,
            m.instance_id,
            parsed.rack_id or None,
            m.client_id,
            m.client_host,
            m.rebalance_timeout_ms,
            names,
            "",
            None,
            WHY,
            traits,
        ),
        TargetMemberRecord(group_id, m.member_id, given, image.names, WHY),
        CurrentRecord(
            group_id,
            m.member_id,
            epoch,
            epoch,
            MemberState.STABLE,
            {t: dict.fromkeys(ps, epoch) for t, ps in given.items()},
            {},
            image.names,
            WHY,
        ),
    ]
    if m.instance_id is not None:
        records.append(StaticMemberRecord(group_id, m.instance_id, m.member_id, WHY))
    return records


def _given(group: ClassicGroup, member_id: str, protocol: str, image: TopicImage) -> Partitions:
    """Returns the member's last assignment, as far as its topics exist."""
    decoded = assigned_with_data(group.assignments.get(member_id, b""))
    if decoded is None:
        raise no_upgrade(group.group_id, "the embedded consumer protocol is malformed")
    owned, user_data = decoded
    if user_data and protocol not in BUILT_IN:
        why = "an unsupported custom assignor is in use. Please refer to the documentation or switch to a default"
        raise no_upgrade(group.group_id, f"{why} assignor before re-attempting the upgrade")
    topics = ((image.by_name.get(name), ps) for name, ps in owned.items() if ps)
    return {t.id: tuple(sorted(set(ps))) for t, ps in topics if t is not None}
