"""FindCoordinator (api 10): which broker a client must talk to about a group.

v1: the request adds the key type, the answer the throttle time and a message.
v3: it is flexible.
v4: it takes several keys (KIP-699).
v5: TRANSACTION_ABORTABLE may be answered (KIP-890).
v6: key type 2 is a share partition, with the key `group:topicId:partition` (KIP-932).

A managed group's coordinator is the broker beside the sidecar that owns the group. What the broker's authorizer
refused stays refused.
"""

from __future__ import annotations

from sidecar.api import slices
from sidecar.api.call import FORWARD, Call, Handler, Settle, upstream
from sidecar.core.errors import Code
from sidecar.wire.generated import find_coordinator as fc

GROUP = 0
"""The key type of a group."""
BATCHED = 4
"""The first version that takes several keys."""


def find_coordinator(call: Call) -> Handler:
    req = yield from slices.request(call, fc.FindCoordinatorRequest)
    names = [req.key] if call.version < BATCHED else req.coordinator_keys
    managed = tuple((yield from slices.chosen(names, call.scope.managed)))
    if req.key_type != GROUP or not managed:
        return FORWARD
    body = yield from upstream(call)
    if call.view.suspects:
        yield Settle(managed)
    res = yield from slices.response(fc.FindCoordinatorResponse, call.version, body)
    if call.version < BATCHED:
        _point(call, req.key, res)
    for found in res.coordinators:
        if call.scope.managed(found.key):
            _point(call, found.key, found)
    return (yield from slices.encoded(res, call.version))


def _point(call: Call, group_id: str, found: fc.FindCoordinatorResponse | fc.Coordinator) -> None:
    """Put the owner's broker in the place of the one that the broker named."""
    if found.error_code == Code.GROUP_AUTHORIZATION_FAILED:
        return
    if found.error_code != Code.NONE:
        found.error_message = None
    node_id = call.owner_of(group_id)
    address = call.view.brokers.get(node_id)
    if address is None:
        found.error_code, found.error_message = Code.COORDINATOR_NOT_AVAILABLE, "The group's owner is not known yet."
        found.node_id, found.host, found.port = -1, "", -1
    else:
        found.error_code = Code.NONE
        found.node_id, (found.host, found.port) = node_id, address
