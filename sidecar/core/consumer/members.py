"""Members come and go: removal, static replacement, timers, the bump of the group epoch."""

from __future__ import annotations

from collections.abc import Sequence

from sidecar.core.consumer.config import config_of
from sidecar.core.consumer.group import ConsumerGroup, Member
from sidecar.core.consumer.records import (
    CurrentRecord,
    GroupRecord,
    Kind,
    MemberRecord,
    MemberState,
    StaticMemberRecord,
    TargetMemberRecord,
    TargetMetadataRecord,
)
from sidecar.core.consumer.soft_state import ConsumerSoft
from sidecar.core.runtime.records import Tombstone
from sidecar.core.runtime.turn import Turn
from sidecar.core.vocabulary.rebalance_reasons import Reason, listed, of_removal


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


def bump_epoch(turn: Turn, group: ConsumerGroup, why: str, reason: Reason) -> None:
    soft: ConsumerSoft = turn.soft_of(group.group_id)
    soft.metadata_due = False
    soft.rebalances(turn.now.mono_ms)
    metadata_hash = group.hash_over(turn.image)
    turn.write(GroupRecord(group.group_id, group.epoch + 1, metadata_hash, why))
    turn.fx.count("rebalances", group.kind, reason)
    turn.fx.log("group epoch", group_id=group.group_id, epoch=group.epoch, why=why)


def refresh_metadata_hash(turn: Turn, group: ConsumerGroup) -> None:
    """A topic of the group changed: new hash, new epoch (KIP-848 'Group epoch')."""
    soft: ConsumerSoft = turn.soft_of(group.group_id)
    if not soft.metadata_due:
        return
    if group.hash_over(turn.image) != group.metadata_hash:
        bump_epoch(turn, group, "topic metadata changed", Reason.TOPICS)
    soft.metadata_due = False


def _forget(turn: Turn, group: ConsumerGroup, member_id: str, why: str) -> None:
    for kind in (Kind.CURRENT, Kind.TARGET_MEMBER, Kind.MEMBER):
        turn.write(Tombstone(kind, group.group_id, member_id, why))
    turn.timers.cancel(("session", group.group_id, member_id))
    turn.timers.cancel(("rebalance", group.group_id, member_id))


def remove_member(turn: Turn, group: ConsumerGroup, member: Member, why: str) -> None:
    """It left, or was fenced: what it owned is free, the epoch rises, the others get a new target."""
    remove_members(turn, group, [(member, why)])


def remove_members(turn: Turn, group: ConsumerGroup, gone: Sequence[tuple[Member, str]]) -> None:
    """Several at once, each with the reason: the epoch rises once."""
    soft: ConsumerSoft = turn.soft_of(group.group_id)
    for member, why in gone:
        _forget(turn, group, member.member_id, why)
        soft.told.pop(member.member_id, None)
        if soft.flight is not None:
            soft.flight.gone(member.member_id)
        if member.instance_id is not None and group.static_members.get(member.instance_id) == member.member_id:
            turn.write(Tombstone(Kind.STATIC_MEMBER, group.group_id, member.instance_id, why))
        drop_regex(turn, group, member.topic_regex, why)
        turn.fx.log("member removed", group_id=group.group_id, member_id=member.member_id, why=why)
    reason = of_removal(gone[0][1])
    bump_epoch(turn, group, listed(f"{m.client_id or m.member_id}: {why}" for m, why in gone), reason)
    if not group.members:
        _emptied(turn, group)
        return
    # The next heartbeat of any member computes the target, as in Kafka; the timer does if none comes.
    turn.timers.set(
        ("assign", group.group_id), turn.now.mono_ms + config_of(turn, group.group_id).assignment_interval_ms
    )


def _emptied(turn: Turn, group: ConsumerGroup) -> None:
    """Nobody is left to own anything, and that is the target of the new epoch. It has no time, so the first member that
    joins is assigned at once, whenever the last run was (Kafka 4.4; KAFKA-20442)."""
    soft: ConsumerSoft = turn.soft_of(group.group_id)
    soft.unsettled_since_ms = None
    soft.flight = None
    turn.timers.cancel(("run", group.group_id))
    turn.timers.cancel(("assign", group.group_id))
    turn.write(TargetMetadataRecord(group.group_id, group.epoch, 0, group.assignor, "the group has no members"))


def drop_regex(turn: Turn, group: ConsumerGroup, regex: str | None, why: str) -> None:
    if regex and regex in group.regexes and group.regex_users(regex) == 0:
        turn.write(Tombstone(Kind.REGEX, group.group_id, regex, why))


def replace_static(turn: Turn, group: ConsumerGroup, old: Member, new: Member) -> None:
    """KIP-345 and KIP-848 'Static membership': the new member id takes over target and current assignment."""
    why = f"instance {old.instance_id}: {new.member_id} replaces {old.member_id}"
    target = group.target.of(old.member_id)
    _forget(turn, group, old.member_id, why)
    soft: ConsumerSoft = turn.soft_of(group.group_id)
    soft.told.pop(old.member_id, None)
    if soft.flight is not None:
        soft.flight.gone(old.member_id, new.member_id)
    turn.write(member_record(group.group_id, new, why))
    turn.write(TargetMemberRecord(group.group_id, new.member_id, target, turn.image.names, why))
    turn.write(current_record(turn, group.group_id, new, why))
    turn.write(StaticMemberRecord(group.group_id, new.instance_id or "", new.member_id, why))


def arm_session(turn: Turn, group_id: str, member: Member, more_ms: int = 0) -> int:
    """Returns the deadline. Members of the classic protocol bring their own session timeout."""
    if member.classic is not None:
        timeout_ms = member.classic.session_timeout_ms
    else:
        timeout_ms = config_of(turn, group_id).session_timeout_ms
    return turn.arm_removal(("session", group_id, member.member_id), timeout_ms + more_ms)


def arm_rebalance(turn: Turn, group_id: str, member: Member) -> None:
    """A member that must revoke has its rebalance timeout for it; any other state disarms."""
    key = ("rebalance", group_id, member.member_id)
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        turn.arm_removal(key, member.rebalance_timeout_ms, member.member_epoch)
    else:
        turn.timers.cancel(key)


def session_timeout(turn: Turn, group: ConsumerGroup, key: tuple[str, ...], tag: int) -> None:
    member = group.members.get(key[2])
    if member is not None:
        remove_member(turn, group, member, "session timeout")


def rebalance_timeout(turn: Turn, group: ConsumerGroup, key: tuple[str, ...], epoch: int) -> None:
    member = due_to_rebalance(group, key[2], epoch)
    if member is not None:
        remove_member(turn, group, member, f"rebalance timeout in epoch {epoch}")


def due_to_rebalance(group: ConsumerGroup, member_id: str, epoch: int) -> Member | None:
    """The member, if it did not give up what it must within its rebalance timeout. `epoch`: in which it was told to."""
    member = group.members.get(member_id)
    late = member is not None and member.member_epoch == epoch and member.state is MemberState.UNREVOKED_PARTITIONS
    return member if late else None
