"""Removal of members, replacement of static members, and sessions."""

from __future__ import annotations

from collections.abc import Sequence

from sidecar.core.consumer.config import config_of
from sidecar.core.consumer.group import ConsumerGroup, Member
from sidecar.core.consumer.records import (
    CurrentRecord,
    Kind,
    MemberRecord,
    StaticMemberRecord,
    TargetMemberRecord,
)
from sidecar.core.modern import sessions
from sidecar.core.modern.epochs import after_removal, bump_epoch
from sidecar.core.modern.sessions import forget
from sidecar.core.runtime.records import Tombstone
from sidecar.core.runtime.turn import Turn
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
        m.topic_names,
        m.topic_regex,
        m.server_assignor,
        why,
        m.classic,
    )


def current_record(turn: Turn, group_id: str, m: Member, why: str) -> CurrentRecord:
    return CurrentRecord(
        group_id,
        m.member_id,
        m.member_epoch,
        m.previous_epoch,
        m.state,
        m.assigned,
        m.pending,
        turn.image.names,
        why,
    )


def _forget(turn: Turn, group: ConsumerGroup, member_id: str, why: str, successor: str | None = None) -> None:
    for kind in (Kind.CURRENT, Kind.TARGET_MEMBER, Kind.MEMBER):
        turn.write(Tombstone(kind, group.group_id, member_id, why))
    forget(turn, group.group_id, member_id, successor)


def remove_member(turn: Turn, group: ConsumerGroup, member: Member, why: str) -> None:
    """Removes a member that left or was fenced: its partitions are free, the epoch rises, the others get a new
    target."""
    remove_members(turn, group, [(member, why)])


def remove_members(turn: Turn, group: ConsumerGroup, gone: Sequence[tuple[Member, str]]) -> None:
    """Removes several members, each with its reason: the epoch rises once."""
    for member, why in gone:
        _forget(turn, group, member.member_id, why)
        if member.instance_id is not None and group.static_members.get(member.instance_id) == member.member_id:
            turn.write(Tombstone(Kind.STATIC_MEMBER, group.group_id, member.instance_id, why))
        drop_regex(turn, group, member.topic_regex, why)
        turn.fx.log("member removed", group_id=group.group_id, member_id=member.member_id, why=why)
    after_removal(turn, group, gone)


def drop_regex(turn: Turn, group: ConsumerGroup, regex: str | None, why: str) -> None:
    if regex and regex in group.regexes and group.regex_users(regex) == 0:
        turn.write(Tombstone(Kind.REGEX, group.group_id, regex, why))


def replace_static(turn: Turn, group: ConsumerGroup, old: Member, new: Member) -> None:
    """Hands target and current assignment over to the new member id (KIP-345 and KIP-848 'Static membership').
    `_find_or_make` of step.py, or of migration/join.py for a member of the classic protocol, decides whether it may."""
    why = f"instance {old.instance_id}: {new.member_id} replaces {old.member_id}"
    target = group.target.of(old.member_id)
    present = group.members.get(new.member_id)
    if present is not None and present.instance_id not in (None, new.instance_id):
        turn.write(Tombstone(Kind.STATIC_MEMBER, group.group_id, present.instance_id or "", why))
    _forget(turn, group, old.member_id, why, new.member_id)
    turn.write(member_record(group.group_id, new, why))
    turn.write(TargetMemberRecord(group.group_id, new.member_id, target, turn.image.names, why))
    turn.write(current_record(turn, group.group_id, new, why))
    turn.write(StaticMemberRecord(group.group_id, new.instance_id or "", new.member_id, why))
    if present is not None and new.member_id != old.member_id:
        bump_epoch(turn, group, why, Reason.JOINED)  # nobody has its own target any more


def arm_session(turn: Turn, group_id: str, member: Member, more_ms: int = 0) -> int:
    """Arms the member's session timer, and returns its deadline. Members of the classic protocol bring their own
    session timeout."""
    if member.classic is not None:
        timeout_ms = member.classic.session_timeout_ms
    else:
        timeout_ms = config_of(turn, group_id).session_timeout_ms
    return sessions.arm_session(turn, group_id, member.member_id, timeout_ms + more_ms)
