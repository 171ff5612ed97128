"""Parts of the registry's rows that all kinds of groups with epochs share (runtime/registry.py, GroupKind)."""

from __future__ import annotations

from typing import Any

from sidecar.core.modern.config import config_of
from sidecar.core.modern.epochs import assign_soon
from sidecar.core.modern.group import ModernGroup
from sidecar.core.modern.parked_joins import ParkedAnswers, answer_all
from sidecar.core.modern.sessions import REBALANCE, SESSION, arm_session
from sidecar.core.modern.soft_state import ModernSoft
from sidecar.core.modern.target_assignment import AssignorDone, Targets
from sidecar.core.runtime.effects import TOUCH_MS
from sidecar.core.runtime.registry import Handler
from sidecar.core.runtime.turn import Turn


def loaded(turn: Turn, group: ModernGroup[Any]) -> None:
    if group.epoch > group.assignment_epoch:
        assign_soon(turn, group)


def member_loaded(turn: Turn, group: ModernGroup[Any], member_id: str) -> None:
    """Arms the session of a member, in a kind without rebalance timeouts."""
    if member_id in group.members:
        arm_session(turn, group.group_id, member_id, config_of(turn, group).session_timeout_ms)


def touched(turn: Turn, group: ModernGroup[Any], member_id: str) -> None:
    if member_id in group.members:
        arm_session(turn, group.group_id, member_id, config_of(turn, group).session_timeout_ms + TOUCH_MS)


def topics_changed(turn: Turn, group: ModernGroup[Any], changed: frozenset[str]) -> None:
    """Has a group that subscribes to one of `changed` check its metadata hash on its next heartbeat."""
    soft: ModernSoft = turn.soft_of(group.group_id)
    if not soft.metadata_due and not changed.isdisjoint(group.subscribed_topics()):
        soft.metadata_due = True
    if soft.metadata_due:
        turn.changed(group.group_id)


def answer_waiting(turn: Turn, group: ModernGroup[Any]) -> None:
    answer_all(turn, group)
    for member_id in group.members:
        turn.timers.cancel((SESSION, group.group_id, member_id))
        turn.timers.cancel((REBALANCE, group.group_id, member_id))
    turn.timers.cancel(("assign", group.group_id))
    turn.timers.cancel(("run", group.group_id))


def assignor_done(targets: Targets, parked: ParkedAnswers) -> Handler:
    """Returns the handler of `AssignorDone` for a kind whose answers wait only for assignor runs."""

    def handler(turn: Turn, event: AssignorDone, token: int) -> None:
        targets.done(turn, event)
        parked.wake(turn, event.group_id)

    return handler
