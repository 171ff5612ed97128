"""A consumer group comes from the broker, goes back to it, or is assigned anew because the administrator wants it.

**It comes** whole, as the broker described it while it was stable: its members go on with their epochs, and nothing
moves. **It goes** by a target in which nobody owns anything. When nobody does, each member's next heartbeat removes it
and tells it so, and it joins anew. The broker knows no such members: a heartbeat that reached it before its member has
been told would be answered GROUP_ID_NOT_FOUND, which ends some clients for good.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import ClassVar

from msgspec import Struct

from sidecar.assign.spec import Partitions
from sidecar.core.consumer.config import config_of
from sidecar.core.consumer.events import ConsumerHeartbeat, HeartbeatReply
from sidecar.core.consumer.group import STATIC_LEAVE_EPOCH, ConsumerGroup, Member
from sidecar.core.consumer.members import arm_session, bump_epoch, remove_members
from sidecar.core.consumer.parked_joins import answer_all
from sidecar.core.consumer.records import (
    CurrentRecord,
    GroupRecord,
    MemberRecord,
    MemberState,
    RegexRecord,
    StaticMemberRecord,
    TargetMemberRecord,
    TargetMetadataRecord,
)
from sidecar.core.consumer.soft_state import ConsumerSoft
from sidecar.core.consumer.target_assignment import update_target
from sidecar.core.runtime.events import Answer, Drain, DrainReply, Event, Rebalance
from sidecar.core.runtime.turn import Turn
from sidecar.core.vocabulary.errors import Code, CoordinatorError
from sidecar.core.vocabulary.rebalance_reasons import Reason
from sidecar.core.vocabulary.topic_regex import resolve


class NativeConsumer(Struct, gc=False):
    """A member as ConsumerGroupDescribe tells it. It owns what it should."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    topic_regex: str | None
    owned: Partitions


class AdoptConsumer(Event):
    """Take in this stable group of the broker, all of whose members are in this epoch. `topics`: the names of those
    that they own."""

    inner: ClassVar[bool] = True

    epoch: int
    assignor: str
    members: tuple[NativeConsumer, ...]
    topics: Mapping[bytes, str]
    rebalance_timeout_ms: int
    why: str


def adopt(turn: Turn, e: AdoptConsumer, token: int) -> None:
    if e.group_id in turn.groups:
        raise CoordinatorError(Code.NON_EMPTY_GROUP, f"Group {e.group_id} is here already.")
    g, names = e.group_id, e.topics
    for m in e.members:
        who = (m.member_id, m.instance_id, m.rack_id, m.client_id, m.client_host)
        turn.write(MemberRecord(g, *who, e.rebalance_timeout_ms, m.topic_names, m.topic_regex, None, e.why))
        if m.instance_id is not None:
            turn.write(StaticMemberRecord(g, m.instance_id, m.member_id, e.why))
        turn.write(TargetMemberRecord(g, m.member_id, m.owned, names, e.why))
        owned = {t: dict.fromkeys(ps, e.epoch) for t, ps in m.owned.items()}
        turn.write(CurrentRecord(g, m.member_id, e.epoch, e.epoch, MemberState.STABLE, owned, {}, names, e.why))
    group: ConsumerGroup = turn.groups[g]
    # What the broker has assigned of an expression's topics its authorizer has let pass; the next heartbeat asks anew.
    for regex, topics in resolve(group.subscriptions.regexes(), sorted(names.values())).items():
        turn.write(RegexRecord(g, regex, topics, turn.image.names_version, turn.now.wall_ms, e.why))
    turn.write(TargetMetadataRecord(g, e.epoch, 0, e.assignor, e.why))
    turn.write(GroupRecord(g, e.epoch, group.hash_over(turn.image), e.why))
    for member in group.members.values():
        arm_session(turn, g, member)
    turn.fx.log("group taken over from the broker", group_id=g, kind=group.kind, members=len(e.members), epoch=e.epoch)
    turn.reply(token, Answer())


def rebalance(turn: Turn, e: Rebalance, token: int) -> None:
    group = _there(turn, e)
    if group.members:
        bump_epoch(turn, group, e.why, Reason.OPERATOR)
        _soon(turn, group)
    turn.reply(token, Answer())


def drain(turn: Turn, e: Drain, token: int) -> None:
    group = _there(turn, e)
    soft: ConsumerSoft = turn.soft_of(group.group_id)
    if e.stop:
        if soft.draining:
            soft.draining = False
            bump_epoch(turn, group, e.why, Reason.MOVED)
            _soon(turn, group)
    else:
        if not soft.draining:
            _begin(turn, group, soft, e.why)
        # Who left for a while as a static member owns nothing that somebody works on.
        _remove(turn, group, [m for m in group.members.values() if m.member_epoch == STATIC_LEAVE_EPOCH], e.why)
        if not group.owners:
            # A classic group's members take UNKNOWN_MEMBER_ID from the broker as well.
            _remove(turn, group, [m for m in group.members.values() if m.classic is not None], e.why)
    turn.reply(token, DrainReply(members=len(group.members)))


def sent_away(turn: Turn, hb: ConsumerHeartbeat, token: int) -> bool:
    """Whether the group goes back to the broker and this member has nothing more to wait for here."""
    group = turn.groups.get(hb.group_id)
    if type(group) is not ConsumerGroup or group.owners:
        return False
    soft: ConsumerSoft = turn.soft_of(hb.group_id)
    member = group.members.get(hb.member_id)
    if not soft.draining or member is None:
        return False
    _remove(turn, group, [member], "the group goes back to the broker")
    turn.reply(token, HeartbeatReply(Code.UNKNOWN_MEMBER_ID, f"Group {hb.group_id} goes back to the broker."))
    return True


def _begin(turn: Turn, group: ConsumerGroup, soft: ConsumerSoft, why: str) -> None:
    soft.draining, soft.flight = True, None
    turn.timers.cancel(("run", group.group_id))
    if group.members:
        bump_epoch(turn, group, why, Reason.MOVED)
        update_target(turn, group)


def _remove(turn: Turn, group: ConsumerGroup, members: Collection[Member], why: str) -> None:
    if members:
        answer_all(turn, group)
        remove_members(turn, group, [(m, why) for m in members])


def _soon(turn: Turn, group: ConsumerGroup) -> None:
    """The next heartbeat of any member computes the target; the timer does if none comes."""
    wait_ms = config_of(turn, group.group_id).assignment_interval_ms
    turn.timers.set(("assign", group.group_id), turn.now.mono_ms + wait_ms)


def _there(turn: Turn, e: Event) -> ConsumerGroup:
    group = turn.groups.get(e.group_id)
    if type(group) is not ConsumerGroup:
        raise CoordinatorError(Code.GROUP_ID_NOT_FOUND, f"Group {e.group_id} not found.")
    return group
