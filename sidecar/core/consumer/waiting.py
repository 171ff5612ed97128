"""The answer to a joining member waits for the assignor run, or the resolution of regular expressions, under way.

KIP-1263 has such a member come again after one heartbeat interval; here it gets its first partitions with its first
answer, if they are there within `join_wait_ms`. Where the broker has an authorizer, the answer to a request that asked
for a resolution waits for it in any case: what it matched is shown to the authorizer on that request's connection.
"""

from __future__ import annotations

from dataclasses import replace

from sidecar.core.consumer.config import config_of
from sidecar.core.consumer.events import ConsumerHeartbeat, HeartbeatReply
from sidecar.core.consumer.group import ConsumerGroup
from sidecar.core.consumer.soft import ConsumerSoft, Waiting
from sidecar.core.consumer.step import step
from sidecar.core.errors import CoordinatorError
from sidecar.core.turn import Turn


def under_way(soft: ConsumerSoft) -> bool:
    return soft.flight is not None or soft.resolving


def wait(turn: Turn, asked: ConsumerHeartbeat, token: int, reply: HeartbeatReply) -> None:
    """Hold the answer back until `wake`, or until the wait has been long enough. A member that asks again has given up
    its first request: that one must not be told of partitions, for nobody may read its answer."""
    soft: ConsumerSoft = turn.soft_of(asked.group_id)
    member_id = reply.member_id or ""
    older = soft.waiting.get(member_id)
    if older is not None:
        _finish(turn, soft, older, older.reply)
    until_ms = turn.now.mono_ms + config_of(turn, asked.group_id).join_wait_ms
    soft.waiting[member_id] = Waiting(token, asked, reply, until_ms)
    turn.timers.set(("join", asked.group_id, member_id), until_ms)


def waited_enough(turn: Turn, group: ConsumerGroup, key: tuple[str, ...], tag: int) -> None:
    _answer_some(turn, turn.soft_of(group.group_id))


def wake(turn: Turn, group_id: str) -> None:
    """A run or a resolution has ended: answer those who waited for it, unless the next one is under way already."""
    if type(turn.groups.get(group_id)) is ConsumerGroup:
        _answer_some(turn, turn.soft_of(group_id))


def _answer_some(turn: Turn, soft: ConsumerSoft) -> None:
    for w in list(soft.waiting.values()):
        if soft.resolving and turn.ports.asks_access():
            return  # the request that asked is needed: its connection is shown what the expression matched
        if not under_way(soft) or turn.now.mono_ms >= w.until_ms:
            _answer(turn, soft, w)


def give_up(turn: Turn, group_id: str, token: int) -> None:
    """The client behind this request is gone: it must not ask for a resolution once more."""
    if type(turn.groups.get(group_id)) is ConsumerGroup:
        soft: ConsumerSoft = turn.soft_of(group_id)
        for found in [w for w in soft.waiting.values() if w.token == token]:
            _finish(turn, soft, found, found.reply)


def answer_all(turn: Turn, group: ConsumerGroup) -> None:
    """The group goes: its waiting members get the answers that they would have had at once."""
    soft: ConsumerSoft = turn.soft_of(group.group_id)
    for found in list(soft.waiting.values()):
        _finish(turn, soft, found, found.reply)


def _answer(turn: Turn, soft: ConsumerSoft, w: Waiting) -> None:
    """What a second heartbeat of the member would bring, in the place of the first one's answer."""
    first = w.reply
    if w.asked.member_epoch != 0:
        _finish(turn, soft, w, first)
        return
    again = ConsumerHeartbeat(
        w.asked.group_id,
        first.member_id or "",
        first.member_epoch,
        instance_id=w.asked.instance_id,
        rack_id=w.asked.rack_id,
        owned=first.assignment or {},
        client_id=w.asked.client_id,
        client_host=w.asked.client_host,
        version=w.asked.version,
    )
    try:
        second = step(turn, again, w.token, config_of(turn, again.group_id))
    except CoordinatorError:
        second = first  # the member is gone, or somebody else speaks for it: its next heartbeat is told so
    if second.assignment is None:
        second.assignment = first.assignment
    if soft.resolving and turn.ports.asks_access() and second is not first:
        soft.waiting[first.member_id or ""] = replace(w, reply=second)
        return  # the second heartbeat asked for a resolution itself
    _finish(turn, soft, w, second)


def _finish(turn: Turn, soft: ConsumerSoft, w: Waiting, reply: HeartbeatReply) -> None:
    member_id = w.reply.member_id or ""
    soft.waiting.pop(member_id, None)
    turn.timers.cancel(("join", w.asked.group_id, member_id))
    turn.reply(w.token, reply)
