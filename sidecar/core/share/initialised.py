"""Effects of the placeholder member's reports and of the end of an assignor run: after either, partitions may be
assigned, and waiting joins are answered."""

from __future__ import annotations

from dataclasses import replace

from sidecar.core.modern.target_assignment import AssignorDone
from sidecar.core.runtime.records import Partitions
from sidecar.core.runtime.turn import Turn
from sidecar.core.share.events import PlaceholderRefused, ShareInitialised
from sidecar.core.share.group import ShareGroup
from sidecar.core.share.parked_joins import PARKED
from sidecar.core.share.placeholder import HoldPlaceholder, keep_placeholder
from sidecar.core.share.records import PlaceholderRecord
from sidecar.core.share.soft_state import ShareSoft
from sidecar.core.share.target_assignment import TARGETS, reassign_initialised
from sidecar.core.vocabulary.errors import Code, name_of


def initialised(turn: Turn, e: ShareInitialised, token: int) -> None:
    group = _group_of_current_command(turn, e)
    if group is not None:
        soft: ShareSoft = turn.soft_of(e.group_id)
        soft.refused = Code.NONE
        _note(turn, group, e)
        _assign_and_answer(turn, group)


def refused(turn: Turn, e: PlaceholderRefused, token: int) -> None:
    """Takes in that the broker refuses the placeholder member. Members keep their partitions. Joins do not wait any
    longer for partitions that may never come."""
    if _group_of_current_command(turn, e) is not None:
        soft: ShareSoft = turn.soft_of(e.group_id)
        if soft.refused != e.code:
            soft.refused = e.code
            turn.fx.log(
                "placeholder member refused",
                "warning",
                group_id=e.group_id,
                error=name_of(e.code),
                message=e.message,
            )
        PARKED.wake(turn, e.group_id)


def _group_of_current_command(turn: Turn, e: ShareInitialised | PlaceholderRefused) -> ShareGroup | None:
    """Returns the group, if this event answers the present command. Else the event was under way when the group became
    empty: the share state may have been deleted since."""
    group = turn.groups.get(e.group_id)
    if type(group) is not ShareGroup:
        return None
    soft: ShareSoft = turn.soft_of(e.group_id)
    wanted = soft.wanted
    return group if type(wanted) is HoldPlaceholder and wanted.hold_id == e.hold_id else None


def assignor_done(turn: Turn, e: AssignorDone, token: int) -> None:
    TARGETS.done(turn, e)
    group = turn.groups.get(e.group_id)
    if type(group) is ShareGroup:
        _assign_and_answer(turn, group)


def _assign_and_answer(turn: Turn, group: ShareGroup) -> None:
    if reassign_initialised(turn, group):
        TARGETS.update(turn, group)
    keep_placeholder(turn, group)
    PARKED.wake(turn, group.group_id)


def _note(turn: Turn, group: ShareGroup, e: ShareInitialised) -> None:
    """Writes the report to the record, if it has anything new."""
    old = group.placeholder
    known = {} if e.whole or old is None else old.initialised
    initialised = _merged(known, e.initialised)
    names = {**(old.names if old is not None else {}), **e.names}
    new = PlaceholderRecord(
        e.group_id,
        e.placeholder_id,
        e.keeper,
        e.topic_names,
        old.since_ms if old is not None and old.member_id == e.placeholder_id else turn.now.wall_ms,
        initialised,
        {t: names[t] for t in initialised if t in names},  # not of topics that were deleted since
        "the broker has told what is initialised",
    )
    if old is None or new != replace(old, names=new.names, why=new.why):
        turn.write(new)


def _merged(known: Partitions, more: Partitions) -> Partitions:
    merged = {t: tuple(sorted({*known.get(t, ()), *more.get(t, ())})) for t in sorted({*known, *more})}
    return {t: ps for t, ps in merged.items() if ps}
