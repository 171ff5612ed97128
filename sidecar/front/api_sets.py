"""Requests that a front treats in a way of their own before it looks into them."""

from __future__ import annotations

from sidecar.wire.apis import Api

BEFORE_ALL = (Api.API_VERSIONS, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE)
"""Requests that a broker answers before it knows the client's principal."""
WAIT_FOR_OTHERS = (
    Api.JOIN_GROUP,
    Api.SYNC_GROUP,
    Api.CONSUMER_GROUP_HEARTBEAT,
    Api.SHARE_GROUP_HEARTBEAT,
    Api.STREAMS_GROUP_HEARTBEAT,
)
"""Requests whose answer waits for other members to join, for the leader's assignment, or for an assignor or the
broker."""
MEMBERS_ASK = frozenset(
    (
        Api.JOIN_GROUP,
        Api.SYNC_GROUP,
        Api.HEARTBEAT,
        Api.LEAVE_GROUP,
        Api.CONSUMER_GROUP_HEARTBEAT,
        Api.OFFSET_COMMIT,
        Api.TXN_OFFSET_COMMIT,
        Api.OFFSET_FETCH,
        Api.DELETE_GROUPS,
        Api.OFFSET_DELETE,
        Api.DESCRIBE_GROUPS,
        Api.CONSUMER_GROUP_DESCRIBE,
        Api.SHARE_GROUP_HEARTBEAT,
        Api.SHARE_GROUP_DESCRIBE,
        Api.ALTER_SHARE_GROUP_OFFSETS,
        Api.DELETE_SHARE_GROUP_OFFSETS,
        Api.STREAMS_GROUP_HEARTBEAT,
        Api.STREAMS_GROUP_DESCRIBE,
    )
)
"""Requests that must not reach the wrong coordinator. Until it is known which groups are managed, they wait; then they
are refused."""
