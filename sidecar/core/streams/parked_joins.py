"""Parked joins of streams groups: after the assignor run under way, a waiting answer becomes that of a second heartbeat
(modern/parked_joins.py)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from msgspec import structs

from sidecar.core.modern.parked_joins import ParkedAnswers
from sidecar.core.modern.soft_state import Waiting
from sidecar.core.runtime.turn import Turn
from sidecar.core.streams.config import STREAMS, config_of
from sidecar.core.streams.events import JOIN_EPOCH, StreamsHeartbeat, StreamsHeartbeatReply
from sidecar.core.streams.soft_state import StreamsSoft
from sidecar.core.streams.step import step
from sidecar.core.vocabulary.errors import CoordinatorError


def _second(turn: Turn, w: Waiting) -> Waiting:
    first: Any = w.reply
    assert isinstance(first, StreamsHeartbeatReply)
    soft: StreamsSoft = turn.soft_of(w.request.group_id)
    asked_until_ms = soft.whole_asked_until_ms
    try:
        reply = step(turn, _again(w, first), config_of(turn, w.request.group_id))
    except CoordinatorError:
        soft.whole_asked_until_ms = asked_until_ms  # the member gets its first answer, and so is not asked
        raise
    if reply.active_tasks is None:
        reply.active_tasks, reply.standby_tasks = first.active_tasks, first.standby_tasks
        reply.warmup_tasks = first.warmup_tasks
    if reply.partitions_by_endpoint is None:
        reply.partitions_by_endpoint = first.partitions_by_endpoint
    reply.create = (*first.create, *reply.create)
    return replace(w, reply=reply)


def _again(w: Waiting, first: StreamsHeartbeatReply) -> StreamsHeartbeat:
    """Returns the second heartbeat. A joining member has the tasks of its first answer; other members' state is
    unchanged since they asked."""
    request: Any = w.request
    assert isinstance(request, StreamsHeartbeat)
    if request.member_epoch != JOIN_EPOCH:
        return structs.replace(request, member_epoch=first.member_epoch)
    return StreamsHeartbeat(
        request.group_id,
        request.member_id,
        first.member_epoch,
        endpoint_epoch=request.endpoint_epoch,
        instance_id=request.instance_id,
        active_tasks=tuple((first.active_tasks or {}).items()),
        standby_tasks=tuple((first.standby_tasks or {}).items()),
        warmup_tasks=tuple((first.warmup_tasks or {}).items()),
        client_id=request.client_id,
        client_host=request.client_host,
        version=request.version,
    )


PARKED = ParkedAnswers(STREAMS, _second)
