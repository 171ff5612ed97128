"""Parked joins of members of the classic protocol. The answer waits for the assignor run under way, as in the consumer
protocol (consumer/parked_joins.py): the member has its partitions at once, and not a heartbeat later."""

from __future__ import annotations

from dataclasses import dataclass, field

from sidecar.core.classic.embedded import CONSUMER_TYPE, Owned, subscription
from sidecar.core.classic.events import JoinGroup, JoinReply
from sidecar.core.consumer.config import config_of
from sidecar.core.consumer.group import ConsumerGroup, Member
from sidecar.core.consumer.registration import CONSUMER
from sidecar.core.consumer.soft_state import ConsumerSoft
from sidecar.core.consumer.step import reconcile_member
from sidecar.core.migration.timers import WAIT, arm_sync, joined
from sidecar.core.runtime.records import Partitions
from sidecar.core.runtime.turn import Turn
from sidecar.core.vocabulary.errors import Code
from sidecar.core.vocabulary.topics import TopicImage


@dataclass(frozen=True, slots=True)
class Parked:
    token: int
    request: JoinGroup


@dataclass(slots=True)
class MixedSoft(ConsumerSoft):
    joins: dict[str, Parked] = field(default_factory=dict)
    """Waiting JoinGroups, by member id."""


def answer_or_wait(turn: Turn, group: ConsumerGroup, e: JoinGroup, member: Member, token: int) -> None:
    soft: MixedSoft = turn.soft_of(group.group_id)
    older = soft.joins.pop(member.member_id, None)
    if older is not None:  # its client has given it up
        turn.reply(older.token, JoinReply(Code.REBALANCE_IN_PROGRESS, member_id=member.member_id))
    wait_ms = config_of(turn, group.group_id).join_wait_ms
    if wait_ms and soft.joins_wait():
        soft.joins[member.member_id] = Parked(token, e)
        turn.timers.set((WAIT, group.group_id, member.member_id), turn.now.mono_ms + wait_ms)
    else:
        answer(turn, group, e, member, token)


def answer(turn: Turn, group: ConsumerGroup, e: JoinGroup, member: Member, token: int) -> None:
    joined(turn, e.group_id, member.member_id)
    arm_sync(turn, e.group_id, member)
    turn.reply(token, reply_to(e, member))


def reply_to(e: JoinGroup, member: Member) -> JoinReply:
    """Returns the answer to a JoinGroup without a leader: the coordinator assigns."""
    return JoinReply(
        member_id=member.member_id,
        generation=member.member_epoch,
        protocol_type=CONSUMER_TYPE,
        protocol=e.protocols[0][0],
    )


def wake(turn: Turn, group_id: str) -> None:
    """Answers waiting joins at the end of a run, unless the next one is under way already."""
    group = turn.groups.get(group_id)
    if type(group) is not ConsumerGroup:
        return
    soft: MixedSoft = turn.soft_of(group_id)
    if not soft.joins_wait():
        for member_id in list(soft.joins):
            _finish(turn, group, soft, member_id)


def waited_enough(turn: Turn, group: ConsumerGroup, key: tuple[str, ...], tag: int) -> None:
    _finish(turn, group, turn.soft_of(group.group_id), key[2])


def _finish(turn: Turn, group: ConsumerGroup, soft: MixedSoft, member_id: str) -> None:
    parked = soft.joins.pop(member_id, None)
    if parked is None:
        return
    turn.timers.cancel((WAIT, group.group_id, member_id))
    member, e = group.members.get(member_id), parked.request
    if member is None or member.classic is None:
        fenced = e.instance_id is not None and e.instance_id in group.static_members
        turn.reply(parked.token, JoinReply(Code.FENCED_INSTANCE_ID if fenced else Code.UNKNOWN_MEMBER_ID))
        return
    final = reconcile_member(turn, group, member, False, claimed_partitions(e, turn.image))
    answer(turn, group, e, final, parked.token)


def answer_waiting(turn: Turn, group: ConsumerGroup) -> None:
    """Answers all waiting joins with REBALANCE_IN_PROGRESS, because the group ends or becomes a classic one."""
    soft: MixedSoft = turn.soft_of(group.group_id)
    for member_id, parked in soft.joins.items():
        turn.timers.cancel((WAIT, group.group_id, member_id))
        turn.reply(parked.token, JoinReply(Code.REBALANCE_IN_PROGRESS, member_id=member_id))
    soft.joins.clear()
    CONSUMER.answer_waiting(turn, group)


def claimed_partitions(e: JoinGroup, image: TopicImage) -> Partitions:
    parsed = subscription(e.protocols[0][1])
    return {} if parsed is None else by_id(parsed.owned, image)


def by_id(owned: Owned, image: TopicImage) -> Partitions:
    topics = ((image.by_name.get(name), ps) for name, ps in owned.items())
    return {t.id: tuple(sorted(ps)) for t, ps in topics if t is not None}
