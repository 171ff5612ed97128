"""The steps of a member's heartbeat: its details and topology, the epoch, the target, its own tasks. All checks come
before the first write: once a record is written the answer is a success. The order is that of Kafka's
GroupMetadataManager."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sidecar.core.modern.assignment_resend import must_send_assignment
from sidecar.core.modern.epochs import note_if_settled
from sidecar.core.modern.group import STATIC_LEAVE_EPOCH
from sidecar.core.modern.sessions import arm_rebalance, arm_session
from sidecar.core.modern.validation import check_size, unknown_member
from sidecar.core.runtime.member_limits import check_room
from sidecar.core.runtime.turn import Turn
from sidecar.core.streams.config import StreamsConfig
from sidecar.core.streams.configure import bump, changed, configured_with
from sidecar.core.streams.delay import delayed, end_of_delay
from sidecar.core.streams.endpoints import partitions_by_endpoint
from sidecar.core.streams.events import JOIN_EPOCH, StreamsHeartbeat, StreamsHeartbeatReply
from sidecar.core.streams.group import (
    Member,
    StreamsGroup,
    bytes_of_streams_member,
    bytes_of_topology,
    streams_group,
)
from sidecar.core.streams.members import current_record, member_record, replace_static
from sidecar.core.streams.partitions import ConfiguredTopology
from sidecar.core.streams.reconcile import reconcile
from sidecar.core.streams.records import TopologyRecord
from sidecar.core.streams.soft_state import StreamsSoft
from sidecar.core.streams.status import create, statuses
from sidecar.core.streams.target_assignment import TARGETS
from sidecar.core.streams.task_offsets import note_offsets
from sidecar.core.streams.tasks import NO_TASKS, HoldersBefore, Tasks
from sidecar.core.streams.topology import Comparison, Topology, compare
from sidecar.core.streams.validation import (
    check_epoch,
    check_offsets,
    check_released,
    check_tasks,
    existing_member,
    must_rejoin,
)
from sidecar.core.vocabulary.rebalance_reasons import Reason

WRITTEN = (Comparison.FIRST, Comparison.COMPLETES)


@dataclass(frozen=True, slots=True)
class Checked:
    """A request that has passed all checks: the member before it, the static member that this one replaces, if any, and
    the member after it; the group's next topology, and whether it must be written (`brought`)."""

    member: Member
    replaced: Member | None
    updated: Member
    topology: Topology
    brought: bool
    configured: ConfiguredTopology


def step(turn: Turn, hb: StreamsHeartbeat, config: StreamsConfig, may_wait: bool = False) -> StreamsHeartbeatReply:
    """Returns the immediate answer to the request. `may_wait`: a member of a group with a run under way is brought to
    the target of that run."""
    group = streams_group(turn.groups, hb.group_id)
    made = group is None
    if group is None:
        if hb.member_epoch != JOIN_EPOCH:
            # Kafka answers GROUP_ID_NOT_FOUND, which ends a client for good; after this error it joins anew.
            raise unknown_member(hb.member_id, hb.group_id)
        group = StreamsGroup(hb.group_id)  # to check against; the member's record makes the real one
    checked = check(group, hb, config, turn)
    check_room(turn.ports.limits, group.limited_bytes, more_bytes(group, checked))
    group = _update(turn, group, hb, checked)
    soft: StreamsSoft = turn.soft_of(hb.group_id)
    note_offsets(turn, group, hb)
    TARGETS.update(turn, group)
    final = group.members[hb.member_id]
    if not (may_wait and soft.flight is not None and not final.pending):
        final = _reconcile(turn, group, final, hb.owned(), checked.member.process_id)
    arm_session(turn, group.group_id, hb.member_id, config.session_timeout_ms)
    _note_group(turn, group, hb, checked, final, made)
    answer = _answer(turn, group, hb, checked, final, config)
    if checked.replaced is not None:
        _end_shutdown(turn, group)
    return answer


def check(group: StreamsGroup, hb: StreamsHeartbeat, config: StreamsConfig, turn: Turn) -> Checked:
    """Raises the error with which the request is refused."""
    if hb.member_epoch == JOIN_EPOCH:
        check_size(group, hb.member_id, hb.instance_id, config.max_size)
    member, replaced = _find_or_make(group, hb)
    updated = _with_request(member, hb)
    topology, brought = group.topology, False
    if hb.topology is not None:
        change = compare(group.topology, hb.topology, group.topology_partial)
        if change in WRITTEN:
            topology, brought = hb.topology, True
    if topology is None:
        raise must_rejoin(member, "the group has no topology")
    soft: StreamsSoft = turn.soft_of(hb.group_id) if turn.groups.get(hb.group_id) is group else StreamsSoft()
    configured = configured_with(group, topology, turn.image, soft, config.max_tasks)
    if configured.ready:
        check_tasks(configured, hb)
    elif group.topology_partial and not brought and turn.now.mono_ms >= soft.whole_asked_until_ms:
        soft.whole_asked_until_ms = turn.now.mono_ms + 2 * config.heartbeat_interval_ms
        raise must_rejoin(member, "the group needs the whole topology")
    check_offsets(hb)
    return Checked(member, replaced, updated, topology, brought, configured)


def more_bytes(group: StreamsGroup, checked: Checked) -> int:
    """Returns the bytes that member and topology add to the present ones, those of a replaced member among them."""
    old = checked.replaced or group.members.get(checked.updated.member_id)
    more = bytes_of_streams_member(checked.updated) - (0 if old is None else bytes_of_streams_member(old))
    return more + (bytes_of_topology(checked.topology) - group.topology_bytes if checked.brought else 0)


# ---- the member ---------------------------------------------------------------------------------------------
def _find_or_make(group: StreamsGroup, hb: StreamsHeartbeat) -> tuple[Member, Member | None]:
    """Returns the member before this request, and the static member that it replaces, if any."""
    if hb.member_epoch != JOIN_EPOCH:
        member = existing_member(group, hb)
        check_epoch(member, hb)
        return member, None
    holder = group.static_member(hb.instance_id)
    if holder is not None and hb.instance_id is not None:
        if holder.member_epoch != STATIC_LEAVE_EPOCH and holder.member_id == hb.member_id:
            return holder, None  # it joins once more, as the answer to its first request was lost
        check_released(holder, hb.member_id, hb.instance_id)
        return replace(holder, member_id=hb.member_id, member_epoch=0, previous_epoch=0), holder
    return group.members.get(hb.member_id) or Member(hb.member_id), None


def _with_request(member: Member, hb: StreamsHeartbeat) -> Member:
    """Returns the member with the request's fields; fields that it leaves out stay, but a join without an endpoint
    removes it. A steady heartbeat returns the same object."""
    joins = hb.member_epoch == JOIN_EPOCH
    updated = replace(
        member,
        instance_id=member.instance_id if hb.instance_id is None else hb.instance_id,
        rack_id=member.rack_id if hb.rack_id is None else hb.rack_id,
        client_id=hb.client_id,
        client_host=hb.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms if hb.rebalance_timeout_ms == -1 else hb.rebalance_timeout_ms,
        topology_epoch=member.topology_epoch if hb.topology is None else hb.topology.epoch,
        process_id=member.process_id if hb.process_id is None else hb.process_id,
        endpoint=hb.endpoint if joins or hb.endpoint is not None else member.endpoint,
        client_tags=member.client_tags if hb.client_tags is None else dict(hb.client_tags),
    )
    return member if updated == member else updated


def _update(turn: Turn, group: StreamsGroup, hb: StreamsHeartbeat, checked: Checked) -> StreamsGroup:
    """Writes member and topology, and bumps the epoch if one of them, topics or settings require it. Returns the group,
    which the record of its first member has made."""
    member, updated, first = checked.member, checked.updated, not group.members
    new = checked.replaced is None and updated.member_id not in group.members
    name = updated.client_id or updated.member_id
    if checked.replaced is not None:
        replace_static(turn, group, checked.replaced, member)
    if new or updated is not member:
        turn.write(member_record(group.group_id, updated, "joined" if new else "details changed"))
        group = turn.groups[group.group_id]
    if new:
        turn.fx.log("member joined", group_id=group.group_id, member_id=updated.member_id, client=updated.client_id)
    if checked.brought:
        turn.write(TopologyRecord(group.group_id, checked.topology, why=f"{name} brought it"))
    configured = checked.configured
    if new:
        until_ms = end_of_delay(turn, group) if first else group.delay_until_ms
        bump(turn, group, configured, f"{name} joined", Reason.JOINED, delay_until_ms=until_ms)
    elif not _same_but_for_its_address(member, updated) and (hb.instance_id is None or _matters(member, updated)):
        bump(turn, group, configured, f"{name} changed its details", Reason.SUBSCRIPTION)
    elif (why := changed(turn, group, configured)) is not None:
        bump(turn, group, configured, *why)
    soft: StreamsSoft = turn.soft_of(group.group_id)
    soft.metadata_due = False
    return group


def _same_but_for_its_address(old: Member, new: Member) -> bool:
    """Whether only the member's address differs. After an adoption the broker's description has sidecars' addresses in
    place of the members'. Kafka would bump the epoch."""
    return old is new or replace(old, client_host=new.client_host) == new


def _matters(old: Member, new: Member) -> bool:
    """Whether this change of a static member may lead to another target."""
    return (old.topology_epoch, old.rack_id, old.client_tags, old.process_id) != (
        new.topology_epoch,
        new.rack_id,
        new.client_tags,
        new.process_id,
    )


# ---- tasks --------------------------------------------------------------------------------------------------
def _reconcile(turn: Turn, group: StreamsGroup, member: Member, owned: Tasks | None, process_before: str) -> Member:
    epoch = group.assignment_epoch
    target = NO_TASKS if delayed(turn, group) else group.target_of(member.member_id)
    moved = member.process_id != process_before
    holders = HoldersBefore(group.holders, member.member_id, process_before) if moved else group.holders
    final = reconcile(member, epoch, target, owned, holders)
    if final != member:
        turn.write(current_record(group.group_id, final, _why(final, epoch)))
        arm_rebalance(turn, group.group_id, final)
        note_if_settled(turn, group)
    return final


def _why(new: Member, epoch: int) -> str:
    if new.revokes:
        return f"must revoke for epoch {epoch}"
    return f"reached epoch {epoch}" if new.reconciled_to(epoch) else f"reconciling to epoch {epoch}"


def _note_group(
    turn: Turn, group: StreamsGroup, hb: StreamsHeartbeat, checked: Checked, final: Member, made: bool
) -> None:
    """Raises the endpoint epoch with a changed endpoint, and with the tasks of a member that has one. The member that
    makes the group is alone, and its answer has its own endpoint."""
    before = checked.member
    new_tasks = final.endpoint is not None and final.assigned != before.assigned
    if not made and (final.endpoint != before.endpoint or new_tasks):
        turn.write(group.record(f"partitions of {final.member_id}", endpoint_epoch=group.endpoint_epoch + 1))
    if hb.shutdown_application:
        request_shutdown(turn, group, hb.member_id)


def request_shutdown(turn: Turn, group: StreamsGroup, member_id: str) -> None:
    """Records the first member that requests a shutdown of the application."""
    if group.shutdown_member is None:
        why = f"{member_id} asked for the end of the application"
        turn.write(group.record(why, shutdown_member=member_id))
        turn.fx.log("shutdown of the application", group_id=group.group_id, member_id=member_id)


def _end_shutdown(turn: Turn, group: StreamsGroup) -> None:
    """Ends a requested shutdown when the only member, a static one, was replaced. Kafka removes the old one first, so
    that the group is empty for a moment. The new one receives the shutdown once, and later members do not."""
    if len(group.members) == 1 and group.shutdown_member is not None:
        turn.write(group.record("the only member was replaced", shutdown_member=None))


# ---- the answer ---------------------------------------------------------------------------------------------
def _answer(
    turn: Turn,
    group: StreamsGroup,
    hb: StreamsHeartbeat,
    checked: Checked,
    final: Member,
    config: StreamsConfig,
) -> StreamsHeartbeatReply:
    soft: StreamsSoft = turn.soft_of(hb.group_id)
    owned = hb.owned()
    acknowledged = owned is not None and not final.pending and owned == final.assigned.without_epochs()
    due = final.assigned != checked.member.assigned or _missed(soft, hb, checked.member, acknowledged)
    must_send = must_send_assignment(soft, final, acknowledged, due, turn.now.mono_ms, config.heartbeat_interval_ms)
    if must_send and not acknowledged:
        turn.prove(group.group_id)  # the member may have given these tasks up at another owner
    if must_send or acknowledged:
        soft.tasks_received_by.add(hb.member_id)
    tasks = final.assigned.without_epochs() if must_send else None
    behind = group.endpoint_epoch != hb.endpoint_epoch
    return StreamsHeartbeatReply(
        member_id=hb.member_id,
        member_epoch=final.member_epoch,
        heartbeat_interval_ms=config.heartbeat_interval_ms,
        acceptable_recovery_lag=config.acceptable_recovery_lag,
        task_offset_interval_ms=config.task_offset_interval_ms,
        status=statuses(turn, group, final, config, hb.version),
        active_tasks=None if tasks is None else tasks.active,
        standby_tasks=None if tasks is None else tasks.standby,
        warmup_tasks=None if tasks is None else tasks.warmup,
        endpoint_epoch=group.endpoint_epoch,
        partitions_by_endpoint=partitions_by_endpoint(turn, group, final) if behind else None,
        create=create(turn, group, final),
    )


def _missed(soft: StreamsSoft, hb: StreamsHeartbeat, before: Member, acknowledged: bool) -> bool:
    """Whether the member may have missed its tasks. It joins, the answer with its present epoch was lost, or it reports
    other tasks than its own and has had no tasks from this owner. Java's client then names its tasks, and Kafka answers
    without any."""
    if hb.member_epoch == JOIN_EPOCH or hb.member_epoch != before.member_epoch:
        return True
    return hb.active_tasks is not None and not acknowledged and hb.member_id not in soft.tasks_received_by
