"""Parked joins of consumer groups: a waiting answer becomes that of a second heartbeat (modern/parked_joins.py). A join
also waits for the resolution of regular expressions: where the broker has an authorizer, it checks the matched topics
on that request's connection."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from msgspec import structs

from sidecar.core.consumer.config import CONSUMER, config_of
from sidecar.core.consumer.events import ConsumerHeartbeat
from sidecar.core.consumer.soft_state import ConsumerSoft
from sidecar.core.consumer.step import step
from sidecar.core.modern.parked_joins import ParkedAnswers
from sidecar.core.modern.soft_state import Waiting
from sidecar.core.runtime.turn import Turn


def _second(turn: Turn, w: Waiting) -> Waiting:
    first: Any = w.reply
    soft: ConsumerSoft = turn.soft_of(w.request.group_id)
    resolving = soft.resolving
    reply = step(turn, _again(w), w.token, config_of(turn, w.request.group_id))
    if reply.assignment is None:
        reply.assignment = first.assignment
    return replace(w, reply=reply, shown=w.shown or (soft.resolving and not resolving))


def _again(w: Waiting) -> ConsumerHeartbeat:
    """Returns the second heartbeat. A joining member has the assignment of its first answer; other members' state is
    unchanged since they asked."""
    first: Any = w.reply
    request: Any = w.request
    if request.member_epoch != 0:
        again: ConsumerHeartbeat = structs.replace(request, member_epoch=first.member_epoch)
        return again
    return ConsumerHeartbeat(
        request.group_id,
        first.member_id or "",
        first.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        owned=first.assignment or {},
        client_id=request.client_id,
        client_host=request.client_host,
        version=request.version,
    )


PARKED = ParkedAnswers(CONSUMER, _second)
