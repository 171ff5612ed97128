"""The answers of ConsumerGroupHeartbeat and ShareGroupHeartbeat have the same bytes."""

from __future__ import annotations

from sidecar.api.call import packed
from sidecar.core.consumer.events import HeartbeatReply
from sidecar.core.share.events import ShareHeartbeatReply
from sidecar.core.vocabulary.errors import Code

REPLY, REPLY_ASSIGNED = "ihSSiibt", "ihSSiibptt"
"""Layouts of an answer without and with an assignment, as native/wire_twin.py spells them."""
CODE = slice(4, 6)
"""Position of the error code in the body."""
GROUP_ID_NOT_FOUND = Code.GROUP_ID_NOT_FOUND.to_bytes(2, "big")


def to_body(reply: HeartbeatReply | ShareHeartbeatReply) -> bytes:
    head = (0, reply.code, reply.message, reply.member_id, reply.member_epoch, reply.heartbeat_interval_ms)
    if reply.assignment is None:
        return packed(REPLY, *head, -1)
    return packed(REPLY_ASSIGNED, *head, 1, dict(reply.assignment))
