"""Raises the epoch of a group, and measures how long its members take to reach it (KIP-848 'Group epoch')."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sidecar.core.modern.config import config_of
from sidecar.core.modern.group import ModernGroup, ModernMember
from sidecar.core.modern.soft_state import ModernSoft
from sidecar.core.runtime.records import Record
from sidecar.core.runtime.turn import Turn
from sidecar.core.vocabulary.rebalance_reasons import Reason, listed, of_removal


def bump_epoch(turn: Turn, group: ModernGroup[Any], why: str, reason: Reason) -> None:
    write_epoch(turn, group, group.epoch_record(group.epoch + 1, group.hash_over(turn.image), why), why, reason)


def write_epoch(turn: Turn, group: ModernGroup[Any], record: Record, why: str, reason: Reason) -> None:
    """Writes `record`, which has the group's next epoch and the kind's other fields."""
    soft: ModernSoft = turn.soft_of(group.group_id)
    soft.metadata_due = False
    soft.rebalances(turn.now.mono_ms)
    turn.write(record)
    turn.fx.count("rebalances", group.kind, reason)
    turn.fx.log("group epoch", group_id=group.group_id, epoch=group.epoch, why=why)


def refresh_metadata_hash(turn: Turn, group: ModernGroup[Any]) -> None:
    """Raises the group epoch if the metadata hash of the subscribed topics has changed."""
    soft: ModernSoft = turn.soft_of(group.group_id)
    if not soft.metadata_due:
        return
    if group.hash_over(turn.image) != group.metadata_hash:
        bump_epoch(turn, group, "topic metadata changed", Reason.TOPICS)
    soft.metadata_due = False


def after_removal(turn: Turn, group: ModernGroup[Any], gone: Sequence[tuple[ModernMember, str]]) -> None:
    """Raises the epoch once for these removed members, each with its reason."""
    bump_epoch(turn, group, listed(f"{m.client_id or m.member_id}: {why}" for m, why in gone), of_removal(gone[0][1]))
    if group.members:
        assign_soon(turn, group)
    else:
        _emptied(turn, group)


def assign_soon(turn: Turn, group: ModernGroup[Any]) -> None:
    """Sets the timer that computes the target. The next heartbeat of any member does so earlier, as in Kafka."""
    wait_ms = config_of(turn, group).assignment_interval_ms
    turn.timers.set(("assign", group.group_id), turn.now.mono_ms + wait_ms)


def _emptied(turn: Turn, group: ModernGroup[Any]) -> None:
    """Writes an empty target for the new epoch, because no member is left. The target has no time, so the first member
    that joins is assigned at once, whenever the last run was (Kafka 4.4; KAFKA-20442)."""
    soft: ModernSoft = turn.soft_of(group.group_id)
    soft.unsettled_since_ms = None
    soft.flight = None
    turn.timers.cancel(("run", group.group_id))
    turn.timers.cancel(("assign", group.group_id))
    turn.write(group.target_epoch_record(group.epoch, 0, "the group has no members"))


def note_if_settled(turn: Turn, group: ModernGroup[Any]) -> None:
    """Reports how long the group took to settle, once its last member has reached the epoch. Each member is checked
    once for an epoch, and only the first that is not there yet again, so that this costs little in large groups,
    too."""
    soft: ModernSoft = turn.soft_of(group.group_id)
    epoch = group.epoch
    if soft.unsettled_since_ms is None or epoch != group.assignment_epoch:
        return
    if soft.unsettled[0] != epoch:
        soft.unsettled = (epoch, list(group.members))
    left = soft.unsettled[1]
    while left:
        member = group.members.get(left[-1])
        if member is not None and not member.reconciled_to(epoch):
            return
        left.pop()
    turn.fx.observe("settle_seconds", turn.now.mono_ms - soft.unsettled_since_ms, group.kind)
    soft.unsettled_since_ms = None
