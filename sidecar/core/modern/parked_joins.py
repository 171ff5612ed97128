"""Parked joins: answers to heartbeats that wait for the assignor run under way, and answers to joins that wait for
further preparations of their kind of group.

KIP-1263 has a joining member come again after one heartbeat interval, and a member learn of a change with its next
heartbeat. Kafka, which assigns in the heartbeat itself, has both in the first answer; here they are in it if they are
there within `join_wait_ms`. Where such a preparation needs the request's connection, the answer waits for its end in
any case.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sidecar.core.modern.config import ModernConfig, config_of
from sidecar.core.modern.events import MemberHeartbeat, MemberReply
from sidecar.core.modern.group import ModernGroup
from sidecar.core.modern.soft_state import ModernSoft, Waiting
from sidecar.core.runtime.registry import TimerHandler
from sidecar.core.runtime.turn import Turn
from sidecar.core.vocabulary.errors import CoordinatorError


def waits(turn: Turn, hb: MemberHeartbeat, soft: ModernSoft, config: ModernConfig, asks: bool) -> bool:
    """Whether the answer should wait for work under way in the group. `asks`: the request started work that needs its
    connection."""
    if config.join_wait_ms and (soft.joins_wait() if hb.member_epoch == 0 else soft.flight is not None):
        return True
    return asks and soft.needs_connection(turn)


@dataclass(frozen=True, slots=True)
class ParkedAnswers:
    """Parks the answers of one kind. `second`: (turn, the request that waits) -> the same with the answer that a second
    heartbeat of the member would bring. Raises CoordinatorError where that would be refused."""

    kind: str
    second: Callable[[Turn, Waiting], Waiting]

    def timers(self) -> dict[str, TimerHandler]:
        return {"join": self.waited_enough}

    def wait(self, turn: Turn, request: MemberHeartbeat, token: int, reply: MemberReply, asks: bool) -> None:
        """Holds the answer back until `wake`, or until the end of the wait. A new request of a member replaces its
        first one. The first one's answer must not have partitions: the client may not read it."""
        soft: ModernSoft = turn.soft_of(request.group_id)
        group = turn.groups[request.group_id]
        member_id = reply.member_id or ""
        older = soft.waiting.get(member_id)
        if older is not None:
            _finish(turn, soft, older)
        until_ms = turn.now.mono_ms + config_of(turn, group).join_wait_ms
        epoch = group.epoch if soft.flight is not None and request.member_epoch != 0 else 0
        soft.waiting[member_id] = Waiting(token, request, reply, until_ms, epoch, asks or request.member_epoch == 0)
        turn.timers.set(("join", request.group_id, member_id), until_ms)

    def waited_enough(self, turn: Turn, group: ModernGroup[Any], key: tuple[str, ...], tag: int) -> None:
        soft: ModernSoft = turn.soft_of(group.group_id)
        w = soft.waiting.get(key[2])
        if w is not None and _over(turn, group, soft, w):
            self._answer(turn, soft, w)

    def wake(self, turn: Turn, group_id: str) -> None:
        """Answers the requests whose wait is over. A join also waits for a run that is already under way again; a
        member only for the target of the epoch that its group had."""
        group = turn.groups.get(group_id)
        if group is not None and group.kind == self.kind:
            soft: ModernSoft = turn.soft_of(group_id)
            for w in list(soft.waiting.values()):
                if _over(turn, group, soft, w):
                    self._answer(turn, soft, w)

    def give_up(self, turn: Turn, group_id: str, token: int) -> None:
        """Answers the request of a client that has disconnected, so that its work does not start once more."""
        group = turn.groups.get(group_id)
        if group is not None and group.kind == self.kind:
            soft: ModernSoft = turn.soft_of(group_id)
            for waiting in [w for w in soft.waiting.values() if w.token == token]:
                _finish(turn, soft, waiting)

    def _answer(self, turn: Turn, soft: ModernSoft, w: Waiting) -> None:
        """Sends the answer that a second heartbeat of the member would bring, in place of the first one's answer."""
        if w.request.member_epoch != 0 and not w.epoch:
            _finish(turn, soft, w)
            return
        try:
            second = self.second(turn, w)
        except CoordinatorError:
            second = w  # the member is gone or fenced: its next heartbeat is answered so
        if second.shown and soft.needs_connection(turn):
            soft.waiting[w.reply.member_id or ""] = second
            return  # the second heartbeat itself started work that needs the connection
        _finish(turn, soft, second)


def answer_all(turn: Turn, group: ModernGroup[Any]) -> None:
    """Answers all waiting requests of a group that ends, with the answers that they would have had at once."""
    soft: ModernSoft = turn.soft_of(group.group_id)
    for waiting in list(soft.waiting.values()):
        _finish(turn, soft, waiting)


def _over(turn: Turn, group: ModernGroup[Any], soft: ModernSoft, w: Waiting) -> bool:
    if w.shown and soft.needs_connection(turn):
        return False
    if soft.flight is None and not (w.request.member_epoch == 0 and soft.joins_wait()):
        return True
    met = w.request.member_epoch != 0 and group.assignment_epoch >= w.epoch
    return met or turn.now.mono_ms >= w.until_ms


def _finish(turn: Turn, soft: ModernSoft, w: Waiting) -> None:
    member_id = w.reply.member_id or ""
    soft.waiting.pop(member_id, None)
    turn.timers.cancel(("join", w.request.group_id, member_id))
    turn.reply(w.token, w.reply)
