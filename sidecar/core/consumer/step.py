"""The steps of a member's heartbeat: subscribe, refresh, assign, reconcile. All checks come before the first write:
once a record is written the answer is a success."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sidecar.core.consumer.config import ConsumerConfig, config_of
from sidecar.core.consumer.events import ConsumerHeartbeat, HeartbeatReply
from sidecar.core.consumer.group import ConsumerGroup, Member, bytes_of, consumer_group
from sidecar.core.consumer.members import current_record, drop_regex, member_record, replace_static
from sidecar.core.consumer.reconcile import Target, reconcile, settled
from sidecar.core.consumer.records import Kind, StaticMemberRecord
from sidecar.core.consumer.regexes import refresh_regexes
from sidecar.core.consumer.soft_state import ConsumerSoft
from sidecar.core.consumer.target_assignment import TARGETS, preferred_assignor
from sidecar.core.consumer.validation import check_member_epoch, check_regex
from sidecar.core.modern.assignment_resend import must_send_assignment
from sidecar.core.modern.epochs import bump_epoch, note_if_settled, refresh_metadata_hash
from sidecar.core.modern.group import STATIC_LEAVE_EPOCH
from sidecar.core.modern.sessions import SESSION, arm_rebalance
from sidecar.core.modern.validation import check_size, held_by_instance, unknown_member
from sidecar.core.runtime.member_limits import check_room
from sidecar.core.runtime.records import Epochs, Partitions, Tombstone
from sidecar.core.runtime.topic_lookup import look_beside
from sidecar.core.runtime.turn import Turn
from sidecar.core.vocabulary.errors import Code, CoordinatorError
from sidecar.core.vocabulary.rebalance_reasons import Reason


@dataclass(frozen=True, slots=True)
class Checked:
    """A request that has passed all checks: the member before it, the static member that this one replaces, if any, and
    the member after it."""

    member: Member
    replaced: Member | None
    updated: Member


def check(group: ConsumerGroup, hb: ConsumerHeartbeat, config: ConsumerConfig) -> Checked:
    """Raises the error with which the request is refused."""
    member_id = hb.member_id or hb.new_member_id
    check_size(group, member_id, hb.instance_id, config.max_size)
    member, replaced = _find_or_make(group, hb, member_id)
    updated = _with_request(member, hb)
    check_regex(group, member, updated.topic_regex, config)
    return Checked(member, replaced, updated)


def step(
    turn: Turn,
    hb: ConsumerHeartbeat,
    token: int,
    config: ConsumerConfig,
    may_wait: bool = False,
    has_room: bool = False,
) -> HeartbeatReply:
    """Returns the immediate answer to the request. `token` is that of the request, or of the one that it stands for;
    `may_wait`: a member of a group with a run under way is brought to the target of that run (parked_joins.py);
    `has_room`: the memory limits were checked."""
    group = consumer_group(turn.groups, hb.group_id)
    if group is None:
        if hb.member_epoch != 0:
            raise unknown_member(hb.member_id, hb.group_id)
        group = ConsumerGroup(hb.group_id)  # to check against; the member's record makes the real one
    checked = check(group, hb, config)
    if not has_room and (checked.updated is not checked.member or checked.updated.member_id not in group.members):
        check_room(turn.ports.limits, group.held_bytes, more_bytes(group, checked))
    member = checked.member
    final = advance(turn, group, checked, hb.owned, token, may_wait)
    turn.timers.set((SESSION, group.group_id, final.member_id), turn.now.mono_ms + config.session_timeout_ms)
    full = (
        hb.rebalance_timeout_ms != -1
        and (hb.topic_names is not None or hb.topic_regex is not None)
        and hb.owned is not None
    )
    moved = final is not member and not _same_partitions(final.assigned, member.assigned)
    due = hb.member_epoch == 0 or full or moved
    soft: ConsumerSoft = turn.soft_of(hb.group_id)
    acknowledged = hb.owned is not None and not final.pending and _owns(hb.owned, final)
    must_send = must_send_assignment(soft, final, acknowledged, due, turn.now.mono_ms, config.heartbeat_interval_ms)
    if must_send and not acknowledged:
        turn.prove(group.group_id)  # the member may have given these partitions up at another owner
    return HeartbeatReply(
        member_id=final.member_id,
        member_epoch=final.member_epoch,
        heartbeat_interval_ms=config.heartbeat_interval_ms,
        assignment=final.assigned_partitions() if must_send else None,
    )


def _owns(owned: Partitions, member: Member) -> bool:
    assigned = {t: ps for t, ps in member.assigned_partitions().items() if ps}
    return {t: set(ps) for t, ps in owned.items() if ps} == {t: set(ps) for t, ps in assigned.items()}


def more_bytes(group: ConsumerGroup, checked: Checked) -> int:
    """Returns the bytes that the member adds to those that it, or the member that it replaces, takes already."""
    new, old = checked.updated, checked.replaced or group.members.get(checked.updated.member_id)
    holder = new.member_id if old is None else old.member_id
    more = group.subscriptions.more_bytes(new.topic_names, new.topic_regex, holder)
    return more + bytes_of(new) - (0 if old is None else bytes_of(old))


def advance(
    turn: Turn,
    group: ConsumerGroup,
    checked: Checked,
    owned: Partitions | None,
    token: int,
    may_wait: bool = False,
) -> Member:
    """Subscribes, refreshes, assigns, reconciles; must not refuse anything any more. Returns the member after it. A
    member that must revoke does not wait for a run: it may have revoked already, and it has a timeout for it."""
    present = group.members.get(checked.updated.member_id)
    if checked.replaced is not None:
        replace_static(turn, group, checked.replaced, checked.member)
    group, changed = update_subscription(turn, group, checked.member, checked.updated, token)
    if checked.replaced is not None and present is not None:  # it has the subscription of the other place now
        drop_regex(turn, group, present.topic_regex, "no member uses it")
    refresh_metadata_hash(turn, group)
    TARGETS.update(turn, group)
    known = group.members.get(checked.updated.member_id, checked.updated)
    if may_wait and turn.soft_of(group.group_id).flight is not None and not known.pending:
        return known
    return reconcile_member(turn, group, known, changed, owned)


def _find_or_make(group: ConsumerGroup, hb: ConsumerHeartbeat, member_id: str) -> tuple[Member, Member | None]:
    """Returns the member before this request, and the static member that it replaces, if any."""
    joining = hb.member_epoch == 0
    if hb.instance_id is not None:
        if not joining:
            held = held_by_instance(group, hb.instance_id, member_id)
            check_member_epoch(held, hb.member_epoch, hb.owned)
            return held, None
        holder = group.static_member(hb.instance_id)
        if holder is not None:
            if holder.member_epoch != STATIC_LEAVE_EPOCH and holder.classic is None:
                if holder.member_id == member_id:
                    return holder, None  # it joins once more, as the answer to its first request was lost
                raise CoordinatorError(
                    Code.UNRELEASED_INSTANCE_ID,
                    f"Static member {member_id} with instance id {hb.instance_id} cannot join the group because "
                    f"the instance id is owned by {holder.member_id} member.",
                )
            return replace(holder, member_id=member_id, member_epoch=0, previous_epoch=0), holder
    member = group.members.get(member_id)
    if member is None:
        if not joining:
            raise unknown_member(member_id, group.group_id)
        return Member(member_id), None
    check_member_epoch(member, hb.member_epoch, hb.owned)
    return member, None


def _with_request(member: Member, hb: ConsumerHeartbeat) -> Member:
    """Returns the member with the request's fields; fields that it leaves out stay. A steady heartbeat returns the same
    object."""
    if (
        hb.topic_names is None
        and hb.topic_regex is None
        and hb.rebalance_timeout_ms in (-1, member.rebalance_timeout_ms)
        and hb.client_id == member.client_id
        and hb.client_host == member.client_host
        and (hb.rack_id is None or hb.rack_id == member.rack_id)
        and (hb.instance_id is None or hb.instance_id == member.instance_id)
        and (hb.server_assignor is None or hb.server_assignor == member.server_assignor)
        and member.classic is None
    ):
        return member
    names = member.topic_names if hb.topic_names is None else tuple(sorted(set(hb.topic_names)))
    return replace(
        member,
        instance_id=member.instance_id if hb.instance_id is None else hb.instance_id,
        rack_id=member.rack_id if hb.rack_id is None else hb.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if hb.rebalance_timeout_ms == -1 else hb.rebalance_timeout_ms,
        server_assignor=member.server_assignor if hb.server_assignor is None else hb.server_assignor,
        topic_names=names,
        topic_regex=member.topic_regex if hb.topic_regex is None else hb.topic_regex,
        client_id=hb.client_id,
        client_host=hb.client_host,
        classic=None,
    )


def update_subscription(
    turn: Turn, group: ConsumerGroup, member: Member, updated: Member, token: int
) -> tuple[ConsumerGroup, bool]:
    """Writes the member, and bumps the epoch if its subscription requires it. Returns the group, which the record of
    its first member has made, and whether the subscription changed."""
    new = updated.member_id not in group.members
    if updated is member and not new:
        refresh_regexes(turn, group, token)
        return group, False
    names_changed = updated.topic_names != member.topic_names
    regex_changed = updated.topic_regex != member.topic_regex
    config = config_of(turn, group.group_id)
    preferred = preferred_assignor(group, config)
    if new or updated != member:
        why = "joined" if new else "subscription changed" if names_changed or regex_changed else "details changed"
        turn.write(member_record(group.group_id, updated, why))
        group = turn.groups[group.group_id]
        if updated.instance_id is not None and group.static_members.get(updated.instance_id) != updated.member_id:
            turn.write(StaticMemberRecord(group.group_id, updated.instance_id, updated.member_id, why))
        if not new and member.instance_id not in (None, updated.instance_id):
            turn.write(Tombstone(Kind.STATIC_MEMBER, group.group_id, member.instance_id or "", why))
        if new:
            turn.fx.log("member joined", group_id=group.group_id, member_id=updated.member_id, client=updated.client_id)
    if regex_changed:
        drop_regex(turn, group, member.topic_regex, "no member uses it")
    resolved = regex_changed and (not updated.topic_regex or updated.topic_regex in group.regexes)
    # An unresolved regex bumps the epoch when it is resolved, not now: the target would be computed twice.
    name = updated.client_id or updated.member_id
    if names_changed or (resolved and bool(updated.topic_regex or member.topic_regex)):
        reason = Reason.JOINED if new else Reason.SUBSCRIPTION
        bump_epoch(turn, group, f"{name} {'joined' if new else 'changed its subscription'}", reason)
    elif preferred != (now := preferred_assignor(group, config)):
        bump_epoch(turn, group, f"{name} asked for {now}, which most members now do", Reason.SUBSCRIPTION)
    if regex_changed and updated.topic_regex in group.regexes:
        look_beside(turn, group.group_id)  # it was matched for others; there may be new topics since
    refresh_regexes(turn, group, token)
    return group, names_changed or regex_changed


def reconcile_member(
    turn: Turn, group: ConsumerGroup, member: Member, changed: bool, owned: Partitions | None
) -> Member:
    epoch = group.assignment_epoch
    if not changed and member.reconciled_to(epoch):
        return member
    subscribed = group.subscribed_ids(member, turn.image)
    if (
        not member.pending
        and not member.reconciled_to(epoch)
        and group.target.held(member.member_id, member.assigned, subscribed)
    ):
        final = settled(member, epoch)
    else:
        target = Target(epoch, group.target.of(member.member_id))
        owners = group.owners
        final = reconcile(
            member, target, subscribed, changed, owned, lambda t, p: owners[t].get(p) if t in owners else None
        )
    if final != member:
        turn.write(current_record(turn, group.group_id, final, _why(member, final, epoch)))
        if final.classic is None:  # a member of the classic protocol has join and sync timers instead
            arm_rebalance(turn, group.group_id, final)
        note_if_settled(turn, group)
    return final


def _same_partitions(a: Epochs, b: Epochs) -> bool:
    return a is b or (a.keys() == b.keys() and all(ps.keys() == b[t].keys() for t, ps in a.items()))


def _why(old: Member, new: Member, epoch: int) -> str:
    if new.pending and new.pending != old.pending:
        return f"must revoke for epoch {epoch}"
    return f"reconciling to epoch {epoch}" if new.state != "STABLE" else f"reached epoch {epoch}"
