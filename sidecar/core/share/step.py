"""The steps of a member's heartbeat: subscribe, refresh, assign, reconcile. All checks come before the first write:
once a record is written the answer is a success. The order is that of Kafka's GroupMetadataManager."""

from __future__ import annotations

from dataclasses import replace

from sidecar.core.modern.epochs import bump_epoch, note_if_settled, refresh_metadata_hash
from sidecar.core.modern.sessions import arm_session
from sidecar.core.modern.validation import check_size, unknown_member
from sidecar.core.runtime.member_limits import check_room
from sidecar.core.runtime.turn import Turn
from sidecar.core.share.config import ShareConfig
from sidecar.core.share.events import ShareHeartbeat, ShareHeartbeatReply
from sidecar.core.share.group import Member, ShareGroup, bytes_of, share_group
from sidecar.core.share.members import current_record, member_record
from sidecar.core.share.placeholder import keep_placeholder
from sidecar.core.share.reconcile import reconcile
from sidecar.core.share.soft_state import ShareSoft
from sidecar.core.share.target_assignment import TARGETS, reassign_initialised
from sidecar.core.share.validation import check_epoch
from sidecar.core.vocabulary.rebalance_reasons import Reason


def step(turn: Turn, hb: ShareHeartbeat, config: ShareConfig, may_wait: bool = False) -> ShareHeartbeatReply:
    """Returns the immediate answer to the request. `may_wait`: a member of a group with a run under way is brought to
    the target of that run."""
    group = share_group(turn.groups, hb.group_id)
    if group is None:
        if hb.member_epoch != 0:
            # Kafka answers GROUP_ID_NOT_FOUND, which ends a client for good; after this error it joins anew.
            raise unknown_member(hb.member_id, hb.group_id)
        group = ShareGroup(hb.group_id)  # to check against; the member's record makes the real one
    member = _checked(group, hb, config)
    updated = _with_request(member, hb)
    if updated is not member or member.member_id not in group.members:
        check_room(turn.ports.limits, group.held_bytes, _more_bytes(group, updated))
    group, bumped = _subscribe(turn, group, member, updated)
    TARGETS.update(turn, group)
    final = group.members[hb.member_id]
    soft: ShareSoft = turn.soft_of(hb.group_id)
    if not (may_wait and soft.flight is not None):
        final = reconcile_member(turn, group, final, bumped)
    arm_session(turn, group.group_id, hb.member_id, config.session_timeout_ms)
    full = hb.member_epoch == 0 or hb.topic_names is not None
    return ShareHeartbeatReply(
        member_id=hb.member_id,
        member_epoch=final.member_epoch,
        heartbeat_interval_ms=config.heartbeat_interval_ms,
        assignment=final.assigned if full or final.assigned != member.assigned else None,
    )


def _checked(group: ShareGroup, hb: ShareHeartbeat, config: ShareConfig) -> Member:
    """Returns the member before this request, after all checks."""
    check_size(group, hb.member_id, None, config.max_size)
    member = group.members.get(hb.member_id)
    if member is None:
        if hb.member_epoch != 0:
            raise unknown_member(hb.member_id, group.group_id)
        return Member(hb.member_id)
    check_epoch(member, hb.member_epoch)
    return member


def _with_request(member: Member, hb: ShareHeartbeat) -> Member:
    """Returns the member with the request's fields; fields that it leaves out stay. A steady heartbeat returns the same
    object."""
    names = member.topic_names if hb.topic_names is None else tuple(sorted(set(hb.topic_names)))
    rack_id = member.rack_id if hb.rack_id is None else hb.rack_id
    now = (names, rack_id, hb.client_id, hb.client_host)
    if now == (member.topic_names, member.rack_id, member.client_id, member.client_host):
        return member
    return replace(member, topic_names=names, rack_id=rack_id, client_id=hb.client_id, client_host=hb.client_host)


def _more_bytes(group: ShareGroup, updated: Member) -> int:
    old = group.members.get(updated.member_id)
    more = group.subscriptions.more_bytes(updated.topic_names, None, updated.member_id)
    return more + bytes_of(updated) - (0 if old is None else bytes_of(old))


def _subscribe(turn: Turn, group: ShareGroup, member: Member, updated: Member) -> tuple[ShareGroup, bool]:
    """Writes the member, and bumps the epoch if its subscription, its topics or the initialised partitions require it.
    Returns the group, which the record of its first member has made, and whether the epoch rose."""
    before, new = group.epoch, updated.member_id not in group.members
    names_changed = updated.topic_names != member.topic_names
    name = updated.client_id or updated.member_id
    if new or updated is not member:
        why = "joined" if new else "subscription changed" if names_changed else "details changed"
        turn.write(member_record(group.group_id, updated, why))
        group = turn.groups[group.group_id]
    if new:
        turn.fx.log("member joined", group_id=group.group_id, member_id=updated.member_id, client=updated.client_id)
        bump_epoch(turn, group, f"{name} joined", Reason.JOINED)
    elif names_changed:
        bump_epoch(turn, group, f"{name} changed its subscription", Reason.SUBSCRIPTION)
    else:
        refresh_metadata_hash(turn, group)
        reassign_initialised(turn, group)
    if new or names_changed:
        keep_placeholder(turn, group)
    return group, group.epoch != before


def reconcile_member(turn: Turn, group: ShareGroup, member: Member, changed: bool) -> Member:
    target = group.target_of(member.member_id, turn.image)
    final = reconcile(member, group.assignment_epoch, target, changed, turn.image)
    if final != member:
        turn.write(current_record(turn, group.group_id, final, f"reached epoch {final.member_epoch}"))
        note_if_settled(turn, group)
    return final
