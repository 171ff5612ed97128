"""SyncGroup (api 14) and Heartbeat (api 12) of members of the classic protocol in a consumer group.

Source: Kafka's GroupMetadataManager (classicGroupSyncToConsumerGroup, classicGroupHeartbeatToConsumerGroup); KIP-1263:
REBALANCE_IN_PROGRESS looks at the epoch of the target, not at the group's.
"""

from __future__ import annotations

from sidecar.core.classic.embedded import CONSUMER_TYPE, assignment, subscription
from sidecar.core.classic.events import ClassicHeartbeat, SyncGroup, SyncReply
from sidecar.core.consumer.group import ConsumerGroup, Member
from sidecar.core.consumer.members import arm_session
from sidecar.core.consumer.records import MemberState
from sidecar.core.consumer.target_assignment import TARGETS
from sidecar.core.migration.timers import arm_join, synced
from sidecar.core.migration.validation import classic_member
from sidecar.core.modern.epochs import refresh_metadata_hash
from sidecar.core.runtime.effects import Grant
from sidecar.core.runtime.events import Answer
from sidecar.core.runtime.turn import Turn
from sidecar.core.vocabulary.errors import Code, CoordinatorError
from sidecar.core.vocabulary.topics import TopicImage


def sync(turn: Turn, e: SyncGroup, token: int) -> None:
    group: ConsumerGroup = turn.groups[e.group_id]
    member = _caller(group, e)
    assert member.classic is not None
    own = member.classic.protocols
    # Before an upgrade the member received the group's protocol. Kafka accepts only the first of its own, which
    # ends Java's clients (docs/reference/differences.md).
    protocol = own[0] if e.protocol is None else next((p for p in own if p[0] == e.protocol), None)
    if e.protocol_type not in (None, CONSUMER_TYPE) or protocol is None:
        raise CoordinatorError(
            Code.INCONSISTENT_GROUP_PROTOCOL, f"The member joined with {CONSUMER_TYPE}, {own[0][0]}."
        )
    if group.assignment_epoch > member.member_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        arm_join(turn, e.group_id, member)
        raise CoordinatorError(Code.REBALANCE_IN_PROGRESS, "There is a new target: the member must join again.")
    synced(turn, e.group_id, member.member_id)
    arm_session(turn, e.group_id, member)
    parsed = subscription(protocol[1])
    turn.prove(e.group_id)  # the member may have given these partitions up at another owner
    given = assignment(0 if parsed is None else parsed.version, _named(member, turn.image))
    turn.reply(token, SyncReply(protocol_type=e.protocol_type, protocol=e.protocol, assignment=given))


def heartbeat(turn: Turn, e: ClassicHeartbeat, token: int) -> None:
    group: ConsumerGroup = turn.groups[e.group_id]
    member = _caller(group, e)
    until_ms = arm_session(turn, e.group_id, member)
    if group.classic_members == len(group.members):
        # No ConsumerGroupHeartbeat checks the topics here. In Kafka nothing does: new partitions would be left out.
        refresh_metadata_hash(turn, group)
        TARGETS.update(turn, group)
    if (
        member.member_epoch < group.assignment_epoch
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or (member.state is MemberState.UNRELEASED_PARTITIONS and not _waits(group, member))
    ):
        arm_join(turn, e.group_id, member)
        turn.reply(token, Answer(Code.REBALANCE_IN_PROGRESS))
        return
    revision = turn.soft_of(e.group_id).revision
    turn.reply(token, Answer(), Grant(e.group_id, member.member_id, revision, until_ms))


def _caller(group: ConsumerGroup, e: SyncGroup | ClassicHeartbeat) -> Member:
    member = classic_member(group, e.member_id, e.instance_id)
    if e.generation != member.member_epoch:
        raise CoordinatorError(Code.ILLEGAL_GENERATION, f"The member is in epoch {member.member_epoch}.")
    return member


def _waits(group: ConsumerGroup, member: Member) -> bool:
    """Whether another member still has a partition of this member's target."""
    for topic, partitions in group.target.of(member.member_id).items():
        assigned, owners = member.assigned.get(topic, {}), group.owners.get(topic, {})
        if any(p not in assigned and p in owners for p in partitions):
            return True
    return False


def _named(member: Member, image: TopicImage) -> list[tuple[str, tuple[int, ...]]]:
    return [(image.by_id[t].name, tuple(sorted(ps))) for t, ps in member.assigned.items() if t in image.by_id]
