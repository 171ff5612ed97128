"""Parked joins of share groups. The answer waits until the first partitions are initialised, and for the assignor run
under way. In Kafka a member gets its first partitions with its second heartbeat at the earliest."""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from sidecar.core.modern.parked_joins import ParkedAnswers
from sidecar.core.modern.soft_state import Waiting
from sidecar.core.runtime.turn import Turn
from sidecar.core.share.config import SHARE, config_of
from sidecar.core.share.events import ShareHeartbeat, ShareHeartbeatReply
from sidecar.core.share.step import step


def _second(turn: Turn, w: Waiting) -> Waiting:
    request, first = w.request, w.reply
    assert isinstance(request, ShareHeartbeat)
    assert isinstance(first, ShareHeartbeatReply)
    again = structs.replace(request, member_epoch=first.member_epoch, topic_names=None)
    reply = step(turn, again, config_of(turn, request.group_id))
    if reply.assignment is None:
        reply.assignment = first.assignment
    return replace(w, reply=reply)


PARKED = ParkedAnswers(SHARE, _second)
