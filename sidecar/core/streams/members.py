"""Members of a streams group: their records, their replacement by another of the same instance id, and their
removal."""

from __future__ import annotations

from collections.abc import Sequence

from sidecar.core.modern.epochs import after_removal, bump_epoch
from sidecar.core.modern.sessions import forget
from sidecar.core.runtime.records import Tombstone
from sidecar.core.runtime.turn import Turn
from sidecar.core.streams.group import Member, StreamsGroup
from sidecar.core.streams.records import CurrentRecord, Kind, MemberRecord, TargetMemberRecord
from sidecar.core.streams.soft_state import StreamsSoft
from sidecar.core.streams.task_offsets import drop_offsets
from sidecar.core.vocabulary.rebalance_reasons import Reason


def member_record(group_id: str, m: Member, why: str) -> MemberRecord:
    return MemberRecord(
        group_id,
        m.member_id,
        m.instance_id,
        m.rack_id,
        m.client_id,
        m.client_host,
        m.rebalance_timeout_ms,
        m.topology_epoch,
        m.process_id,
        m.endpoint,
        m.client_tags,
        why,
    )


def current_record(group_id: str, m: Member, why: str) -> CurrentRecord:
    return CurrentRecord(group_id, m.member_id, m.member_epoch, m.previous_epoch, m.state, m.assigned, m.pending, why)


def remove_members(turn: Turn, group: StreamsGroup, gone: Sequence[tuple[Member, str]]) -> None:
    """Removes members that left or were fenced, each with its reason: the epoch rises once, the others get a new
    target."""
    for member, why in gone:
        _forget(turn, group, member.member_id, why)
        turn.fx.log("member removed", group_id=group.group_id, member_id=member.member_id, why=why)
    after_removal(turn, group, gone)


def replace_static(turn: Turn, group: StreamsGroup, old: Member, new: Member) -> None:
    """Hands target and tasks over to the new member id (KIP-1071 'Static membership'). As at Kafka, its offsets of
    tasks are unknown until it reports them."""
    why = f"instance {old.instance_id}: {new.member_id} replaces {old.member_id}"
    target, present = group.target_of(old.member_id), group.members.get(new.member_id)
    _forget(turn, group, old.member_id, why, new.member_id)
    turn.write(member_record(group.group_id, new, why))
    turn.write(TargetMemberRecord(group.group_id, new.member_id, target, why))
    turn.write(current_record(group.group_id, new, why))
    if present is not None and new.member_id != old.member_id:
        bump_epoch(turn, group, why, Reason.JOINED)  # nobody has its own target any more


def _forget(turn: Turn, group: StreamsGroup, member_id: str, why: str, successor: str | None = None) -> None:
    for kind in (Kind.CURRENT, Kind.TARGET_MEMBER, Kind.MEMBER):
        turn.write(Tombstone(kind, group.group_id, member_id, why))
    forget(turn, group.group_id, member_id, successor)
    soft: StreamsSoft = turn.soft_of(group.group_id)
    drop_offsets(turn, group, member_id)
    soft.endpoints.pop(member_id, None)
    soft.tasks_received_by.discard(member_id)
    soft.creations.drop_member(member_id)
