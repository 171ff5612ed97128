"""Downgrade: a consumer group becomes a classic one when its last member of the consumer protocol goes (KIP-848
'Downgrade').

Source: Kafka's GroupMetadataManager.convertToClassicGroup and ClassicGroup.fromConsumerGroup. The group's generation is
its epoch. Either it is stable, and its members keep their target; or it rebalances, and they keep their current
assignment.

validation.py (`downgrades`) decides. leave.py (`remove`) calls `downgrade` when the last consumer leaves or is removed,
join.py when it comes back as a static member of the classic protocol.
"""

from __future__ import annotations

from collections.abc import Collection

from sidecar.core.classic.embedded import CONSUMER_TYPE, assignment, subscription
from sidecar.core.classic.group import ClassicGroup
from sidecar.core.classic.rebalance import arm_session as arm_classic_session
from sidecar.core.classic.rebalance import prepare
from sidecar.core.classic.records import AssignmentRecord, GroupRecord, MemberRecord, State
from sidecar.core.consumer.group import ConsumerGroup, Member
from sidecar.core.migration.parked_joins import answer_waiting
from sidecar.core.migration.timers import JOIN, SYNC
from sidecar.core.runtime.records import Partitions, Record
from sidecar.core.runtime.turn import Turn
from sidecar.core.vocabulary.rebalance_reasons import Reason
from sidecar.core.vocabulary.topics import TopicImage

WHY = "downgraded to the classic protocol"


def downgrade(turn: Turn, group: ConsumerGroup, leaving: Collection[Member], rebalance: bool, why: str) -> None:
    """Turns the group into a classic one without `leaving`. All members that stay speak the classic protocol."""
    left = {m.member_id for m in leaving}
    staying = [m for m in group.members.values() if m.member_id not in left]
    records = as_classic_group(group, staying, turn, rebalance)
    drop(turn, group, f"{WHY}: {why}")
    for record in records:
        turn.write(record)
    made: ClassicGroup = turn.groups[group.group_id]
    for member_id in made.members:
        arm_classic_session(turn, made, member_id)
    turn.fx.count("migrations", "classic")
    turn.fx.log(WHY, group_id=group.group_id, members=len(made.members), generation=made.generation, why=why)
    if rebalance:
        prepare(turn, made, f"{WHY}: {why}", Reason.PROTOCOL)


def drop(turn: Turn, group: ConsumerGroup, why: str) -> None:
    answer_waiting(turn, group)
    for member_id in group.members:
        for name in (JOIN, SYNC):
            turn.timers.cancel((name, group.group_id, member_id))
    for tombstone in group.tombstones(why):
        turn.write(tombstone)


def as_classic_group(group: ConsumerGroup, staying: Collection[Member], turn: Turn, rebalance: bool) -> list[Record]:
    """Returns the records of the classic group. With a rebalance its assignments are the current ones, not the targets,
    because a target may still be owned by another member. They count until the next generation, for another upgrade or
    for stale claims. (Kafka writes the target, and so gives a partition to two members if the group is upgraded before
    it has rebalanced.)"""
    preview = ClassicGroup(group.group_id)
    records: list[Record] = []
    for m in staying:
        assert m.classic is not None
        records.append(
            MemberRecord(
                group.group_id,
                m.member_id,
                m.instance_id,
                m.client_id,
                m.client_host,
                m.classic.session_timeout_ms,
                m.rebalance_timeout_ms,
                m.classic.protocols,
                generation=group.epoch,
                why=WHY,
            )
        )
    for record in records:
        preview.replay(record)
    protocol = preview.select_protocol()
    for m in staying:
        parsed = subscription(preview.members[m.member_id].metadata(protocol))
        given = _named(m.held_partitions() if rebalance else group.target.of(m.member_id), turn.image)
        data = assignment(0 if parsed is None else parsed.version, given)
        records.append(AssignmentRecord(group.group_id, m.member_id, group.epoch, data, WHY))
    leader = next(iter(preview.members))
    generation, since_ms = group.epoch, turn.now.wall_ms
    stable = (State.STABLE, generation, CONSUMER_TYPE, protocol, leader, generation, since_ms, WHY)
    records.append(GroupRecord(group.group_id, *stable))
    return records


def _named(parts: Partitions, image: TopicImage) -> list[tuple[str, tuple[int, ...]]]:
    return [(image.by_id[t].name, tuple(ps)) for t, ps in parts.items() if t in image.by_id]
