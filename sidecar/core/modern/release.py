"""Moves a group back to the broker, or assigns it anew on an administrator's order.

A group moves by a target in which no member owns anything. Once all partitions are given up, each member's next
heartbeat removes it with UNKNOWN_MEMBER_ID, and it joins anew. The broker does not know these members. A heartbeat that
reached it before that answer would get GROUP_ID_NOT_FOUND, which ends some clients for good.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from sidecar.core.modern.epochs import assign_soon, bump_epoch
from sidecar.core.modern.events import MemberHeartbeat
from sidecar.core.modern.group import STATIC_LEAVE_EPOCH, ModernGroup, ModernMember
from sidecar.core.modern.parked_joins import answer_all
from sidecar.core.modern.sessions import Remove
from sidecar.core.modern.soft_state import ModernSoft
from sidecar.core.runtime.events import Answer, Event, Rebalance, ReleaseGroup, ReleaseReply
from sidecar.core.runtime.registry import Handler
from sidecar.core.runtime.turn import Turn
from sidecar.core.vocabulary.errors import Code, CoordinatorError
from sidecar.core.vocabulary.rebalance_reasons import Reason


def no_members(group: ModernGroup[Any]) -> Iterable[ModernMember]:
    return ()


def no_placeholder(turn: Turn, group: ModernGroup[Any]) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class GroupRelease:
    """Releases groups of one kind. `unasked`: members that may be removed without a heartbeat once no partition has an
    owner; `placeholder`: whether a placeholder of this group is, or may be, at the broker."""

    kind: str
    remove: Remove
    unasked: Callable[[Any], Iterable[Any]] = no_members
    placeholder: Callable[[Turn, Any], bool] = no_placeholder

    def events(self) -> dict[type[Event], Handler]:
        return {Rebalance: self.rebalance, ReleaseGroup: self.release}

    def rebalance(self, turn: Turn, e: Rebalance, token: int) -> None:
        group = self._there(turn, e)
        if group.members:
            bump_epoch(turn, group, e.why, Reason.OPERATOR)
            assign_soon(turn, group)
        turn.reply(token, Answer())

    def release(self, turn: Turn, e: ReleaseGroup, token: int) -> None:
        group = self._there(turn, e)
        soft: ModernSoft = turn.soft_of(group.group_id)
        if e.stop:
            if soft.releasing:
                soft.releasing = False
                bump_epoch(turn, group, e.why, Reason.MOVED)
                assign_soon(turn, group)
        else:
            if not soft.releasing:
                self._begin(turn, group, soft, e.why)
            # A static member that is away owns partitions on which no client works.
            away = [m for m in group.members.values() if m.member_epoch == STATIC_LEAVE_EPOCH]
            self._remove(turn, group, away, e.why)
            if not group.owners:
                self._remove(turn, group, list(self.unasked(group)), e.why)
        turn.reply(token, ReleaseReply(members=len(group.members), placeholder=self.placeholder(turn, group)))

    def sent_away(self, turn: Turn, hb: MemberHeartbeat, token: int) -> bool:
        """Sends this member away if its group moves to the broker and no partition has an owner. Returns whether it
        did."""
        group = turn.groups.get(hb.group_id)
        if group is None or group.kind != self.kind or group.owners:
            return False
        soft: ModernSoft = turn.soft_of(hb.group_id)
        member = group.members.get(hb.member_id)
        if not soft.releasing or member is None:
            return False
        self._remove(turn, group, [member], "the group goes back to the broker")
        turn.reply(token, hb.refused(Code.UNKNOWN_MEMBER_ID, f"Group {hb.group_id} goes back to the broker."))
        return True

    def _begin(self, turn: Turn, group: ModernGroup[Any], soft: ModernSoft, why: str) -> None:
        soft.releasing, soft.flight = True, None
        turn.timers.cancel(("run", group.group_id))
        turn.timers.cancel(("assign", group.group_id))
        if group.members:
            bump_epoch(turn, group, why, Reason.MOVED)
            _take_all(turn, group, why)
            # That the group goes is not in the log: an owner that takes over now is to assign anew.
            bump_epoch(turn, group, why, Reason.MOVED)

    def _remove(self, turn: Turn, group: ModernGroup[Any], members: Collection[ModernMember], why: str) -> None:
        if members:
            answer_all(turn, group)
            self.remove(turn, group, [(m, why) for m in members])

    def _there(self, turn: Turn, e: Event) -> ModernGroup[Any]:
        group = turn.groups.get(e.group_id)
        if group is None or group.kind != self.kind:
            raise CoordinatorError(Code.GROUP_ID_NOT_FOUND, f"Group {e.group_id} not found.")
        modern: ModernGroup[Any] = group
        return modern


def _take_all(turn: Turn, group: ModernGroup[Any], why: str) -> None:
    """Writes a target in which no member owns a partition."""
    for member_id in group.members:
        turn.write(group.empty_target_record(member_id, why))
    turn.write(group.target_epoch_record(group.epoch, turn.now.wall_ms, why))
