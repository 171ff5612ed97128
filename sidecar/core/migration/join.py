"""JoinGroup (api 11) to a consumer group: a member of the classic protocol beside those of the consumer protocol.

Source: Kafka's GroupMetadataManager.classicGroupJoinToConsumerGroup; KIP-848 'Online Migration'. There is no leader:
the coordinator assigns, and the member's generation is its epoch. Under KIP-1263 the target may be computed later. The
answer waits a while for it (parked_joins.py); after that the member's heartbeat is answered REBALANCE_IN_PROGRESS as
soon as there is one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sidecar.core.classic.config import config_of as classic_config
from sidecar.core.classic.embedded import Subscription, subscription
from sidecar.core.classic.events import JoinGroup, JoinReply
from sidecar.core.classic.group import ClassicGroup
from sidecar.core.classic.join import MEMBER_ID_REQUIRED_SINCE, fits
from sidecar.core.classic.join import join as classic_join
from sidecar.core.consumer.config import config_of
from sidecar.core.consumer.group import ConsumerGroup, Member
from sidecar.core.consumer.members import arm_session, replace_static
from sidecar.core.consumer.records import ClassicTraits, MemberState
from sidecar.core.consumer.step import Checked, advance, more_bytes, reconcile_member, update_subscription
from sidecar.core.migration.downgrade import downgrade, drop
from sidecar.core.migration.parked_joins import answer_or_wait, by_id, reply_to
from sidecar.core.migration.validation import check_admission, downgrades
from sidecar.core.modern.epochs import refresh_metadata_hash
from sidecar.core.runtime.events import NO_TOKEN
from sidecar.core.runtime.member_limits import check_protocols, check_room
from sidecar.core.runtime.records import Partitions
from sidecar.core.runtime.topic_lookup import look_first
from sidecar.core.runtime.turn import Turn
from sidecar.core.vocabulary.errors import Code, CoordinatorError


def classic_joins(turn: Turn, e: JoinGroup, token: int) -> None:
    group: ConsumerGroup = turn.groups[e.group_id]
    limits = classic_config(turn, e.group_id)
    if not limits.min_session_timeout_ms <= e.session_timeout_ms <= limits.max_session_timeout_ms:
        raise CoordinatorError(Code.INVALID_SESSION_TIMEOUT, "The session timeout is out of range.")
    check_protocols(turn.ports.limits, e.protocols)
    if not group.members:
        _to_empty(turn, group, e, token)
        return
    if look_first(turn, e, token, _topics(e), config_of(turn, e.group_id).join_wait_ms):
        return
    member_id = e.member_id or e.new_id
    try:
        check_admission(turn, group, member_id, e)
        if not e.member_id and e.instance_id is None and e.version >= MEMBER_ID_REQUIRED_SINCE:
            turn.reply(token, JoinReply(Code.MEMBER_ID_REQUIRED, member_id=member_id))
            return
        checked, owned = _check(turn, group, e, member_id)
        check_room(turn.ports.limits, group.held_bytes, more_bytes(group, checked))
    except CoordinatorError as refused:
        turn.reply(token, JoinReply(refused.code))  # without a member id, as Kafka does here
        return
    before = group.static_member(e.instance_id)
    if before is not None and before.classic is None and downgrades(turn, group, [before], joining=1):
        final = _replaces_the_last(turn, group, checked, owned)
        reply = reply_to(e, final)
        made = turn.groups[e.group_id]
        if type(made) is ClassicGroup:
            reply.protocol = made.protocol  # the group refuses a SyncGroup with another protocol
        turn.reply(token, reply)
    else:
        final = advance(turn, group, checked, owned, NO_TOKEN)
        arm_session(turn, e.group_id, final)
        answer_or_wait(turn, group, e, final, token)


def _topics(e: JoinGroup) -> Iterable[str]:
    """Returns the topics that the member subscribes to, and those that it claims to own."""
    parsed = subscription(e.protocols[0][1]) if e.protocols else None
    return () if parsed is None else (*parsed.topics, *parsed.owned)


def _check(turn: Turn, group: ConsumerGroup, e: JoinGroup, member_id: str) -> tuple[Checked, Partitions]:
    """Returns the member and the partitions that it claims to own. Raises the error with which the request is refused:
    as at Kafka, errors of identity come before those of metadata."""
    member, replaced = _find_or_make(group, e, member_id)
    parsed = subscription(e.protocols[0][1])
    if parsed is None:
        raise CoordinatorError(Code.INCONSISTENT_GROUP_PROTOCOL, "The embedded consumer protocol is malformed.")
    return Checked(member, replaced, _with_request(member, e, parsed)), by_id(parsed.owned, turn.image)


def _to_empty(turn: Turn, group: ConsumerGroup, e: JoinGroup, token: int) -> None:
    """Turns an empty consumer group into a classic one, under any policy."""
    if e.member_id:
        raise CoordinatorError(Code.UNKNOWN_MEMBER_ID, f"Group {e.group_id} has no members.")
    if not e.protocol_type or not e.protocols:
        raise CoordinatorError(Code.INCONSISTENT_GROUP_PROTOCOL, "The member names no protocol.")
    if not fits(turn, ClassicGroup(e.group_id), e, token):
        return
    drop(turn, group, "an empty consumer group becomes a classic group")
    turn.fx.count("migrations", "classic")
    classic_join(turn, e, token)


def _find_or_make(group: ConsumerGroup, e: JoinGroup, member_id: str) -> tuple[Member, Member | None]:
    """Returns the member before this request, and the static member that it replaces, if any."""
    if e.instance_id is None:
        return group.members.get(member_id) or Member(member_id), None
    holder = group.static_member(e.instance_id)
    if not e.member_id:
        if holder is None:
            return Member(member_id), None
        return replace(holder, member_id=member_id, member_epoch=0, previous_epoch=0), holder
    if holder is None:
        raise CoordinatorError(Code.UNKNOWN_MEMBER_ID, f"Instance id {e.instance_id} is unknown.")
    if holder.member_id != e.member_id:
        raise CoordinatorError(Code.FENCED_INSTANCE_ID, f"Instance id {e.instance_id} is held by {holder.member_id}.")
    return holder, None


def _with_request(member: Member, e: JoinGroup, parsed: Subscription) -> Member:
    return replace(
        member,
        instance_id=member.instance_id if e.instance_id is None else e.instance_id,
        rack_id=parsed.rack_id or member.rack_id,
        rebalance_timeout_ms=e.rebalance_timeout_ms,
        topic_names=tuple(sorted(set(parsed.topics))),
        topic_regex="" if member.topic_regex else member.topic_regex,
        client_id=e.client_id,
        client_host=e.client_host,
        classic=ClassicTraits(e.session_timeout_ms, e.protocols),
    )


def _replaces_the_last(turn: Turn, group: ConsumerGroup, checked: Checked, owned: Partitions) -> Member:
    """Downgrades the group: a static member comes back with the classic protocol, and was the last one of the consumer
    protocol. There is a rebalance if the target is behind the group, if a member still has partitions of another's
    target, or if one waits for partitions of its own: nothing else would tell it that it may have them now. (Kafka
    leaves it without them.)"""
    if checked.replaced is not None:
        replace_static(turn, group, checked.replaced, checked.member)
    group, changed = update_subscription(turn, group, checked.member, checked.updated, NO_TOKEN)
    refresh_metadata_hash(turn, group)
    member = group.members[checked.updated.member_id]
    behind = group.assignment_epoch < group.epoch
    if not behind:
        member = reconcile_member(turn, group, member, changed, owned)
    members = group.members.values()
    waiting = any(_lacks_some(group, m) for m in members if m.member_id != member.member_id)
    rebalance = behind or waiting or not all(_is_to_have(group, m) for m in members)
    downgrade(turn, group, (), rebalance, f"{member.member_id} replaces the last member of the consumer protocol")
    return member


def _lacks_some(group: ConsumerGroup, member: Member) -> bool:
    """Whether the member has reached the epoch, and is to have more than it was told."""
    return member.state is MemberState.UNRELEASED_PARTITIONS and member.member_epoch == group.epoch


def _is_to_have(group: ConsumerGroup, member: Member) -> bool:
    """Whether all partitions that the member has, or has not given up yet, are in its target."""
    target = group.target.of(member.member_id)
    return all(set(ps) <= set(target.get(t, ())) for t, ps in member.held_partitions().items())
