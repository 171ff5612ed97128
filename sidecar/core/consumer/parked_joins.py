"""The answer to a heartbeat waits for the assignor run under way, and the answer to a join for the resolution of
regular expressions, too.

KIP-1263 has a joining member come again after one heartbeat interval, and a member hear of a change with its next
heartbeat. Kafka, which assigns in the heartbeat itself, has both in the first answer; here they are in it if they are
there within `join_wait_ms`. Where the broker has an authorizer, the answer to a request that asked for a resolution
waits for it in any case: what it matched is shown to the authorizer on that request's connection.
"""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from sidecar.core.consumer.config import ConsumerConfig, config_of
from sidecar.core.consumer.events import ConsumerHeartbeat, HeartbeatReply
from sidecar.core.consumer.group import ConsumerGroup, consumer_group
from sidecar.core.consumer.soft_state import ConsumerSoft, Waiting
from sidecar.core.consumer.step import step
from sidecar.core.runtime.turn import Turn
from sidecar.core.vocabulary.errors import CoordinatorError


def under_way(soft: ConsumerSoft) -> bool:
    return soft.flight is not None or soft.resolving


def waits(turn: Turn, hb: ConsumerHeartbeat, soft: ConsumerSoft, config: ConsumerConfig, asks: bool) -> bool:
    """Whether the answer had better wait for what is under way in the group. `asks`: for a resolution."""
    if config.join_wait_ms and (under_way(soft) if hb.member_epoch == 0 else soft.flight is not None):
        return True
    return asks and soft.resolving and turn.ports.asks_access()


def wait(turn: Turn, asked: ConsumerHeartbeat, token: int, reply: HeartbeatReply, asks: bool) -> None:
    """Hold the answer back until `wake`, or until the wait has been long enough. A member that asks again has given up
    its first request: that one must not be told of partitions, for nobody may read its answer."""
    soft: ConsumerSoft = turn.soft_of(asked.group_id)
    group = consumer_group(turn.groups, asked.group_id)
    member_id = reply.member_id or ""
    older = soft.waiting.get(member_id)
    if older is not None:
        _finish(turn, soft, older, older.reply)
    until_ms = turn.now.mono_ms + config_of(turn, asked.group_id).join_wait_ms
    epoch = group.epoch if group is not None and soft.flight is not None and asked.member_epoch != 0 else 0
    soft.waiting[member_id] = Waiting(token, asked, reply, until_ms, epoch, asks or asked.member_epoch == 0)
    turn.timers.set(("join", asked.group_id, member_id), until_ms)


def waited_enough(turn: Turn, group: ConsumerGroup, key: tuple[str, ...], tag: int) -> None:
    soft: ConsumerSoft = turn.soft_of(group.group_id)
    w = soft.waiting.get(key[2])
    if w is not None and _over(turn, group, soft, w):
        _answer(turn, soft, w)


def wake(turn: Turn, group_id: str) -> None:
    """A run or a resolution has ended: answer those who waited for it. A join waits for the next one, too, if that is
    under way already; a member, only for the target of the epoch that its group had."""
    group = turn.groups.get(group_id)
    if type(group) is ConsumerGroup:
        soft: ConsumerSoft = turn.soft_of(group_id)
        for w in list(soft.waiting.values()):
            if _over(turn, group, soft, w):
                _answer(turn, soft, w)


def _over(turn: Turn, group: ConsumerGroup, soft: ConsumerSoft, w: Waiting) -> bool:
    if w.shown and soft.resolving and turn.ports.asks_access():
        return False  # the request that asked is needed: its connection is shown what the expression matched
    if soft.flight is None and not (w.asked.member_epoch == 0 and soft.resolving):
        return True
    met = w.asked.member_epoch != 0 and group.assignment_epoch >= w.epoch
    return met or turn.now.mono_ms >= w.until_ms


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
    first, resolving = w.reply, soft.resolving
    if w.asked.member_epoch != 0 and not w.epoch:
        _finish(turn, soft, w, first)
        return
    try:
        second = step(turn, _again(w), w.token, config_of(turn, w.asked.group_id))
    except CoordinatorError:
        second = first  # the member is gone, or somebody else speaks for it: its next heartbeat is told so
    if second.assignment is None:
        second.assignment = first.assignment
    if soft.resolving and not resolving and turn.ports.asks_access():
        soft.waiting[first.member_id or ""] = replace(w, reply=second, shown=True)
        return  # the second heartbeat asked for a resolution itself
    _finish(turn, soft, w, second)


def _again(w: Waiting) -> ConsumerHeartbeat:
    """A joining member has what its first answer would have named. Any other has done nothing since it asked."""
    first = w.reply
    if w.asked.member_epoch != 0:
        return structs.replace(w.asked, member_epoch=first.member_epoch)
    return ConsumerHeartbeat(
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


def _finish(turn: Turn, soft: ConsumerSoft, w: Waiting, reply: HeartbeatReply) -> None:
    member_id = w.reply.member_id or ""
    soft.waiting.pop(member_id, None)
    turn.timers.cancel(("join", w.asked.group_id, member_id))
    turn.reply(w.token, reply)
