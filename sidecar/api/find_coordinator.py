"""FindCoordinator (api 10): the broker that coordinates a group.

v1: the request adds the key type, the answer the throttle time and a message.
v3: it is flexible.
v4: it takes several keys (KIP-699).
v5: TRANSACTION_ABORTABLE may be answered (KIP-890).
v6: key type 2 is a share partition, with the key `group:topicId:partition` (KIP-932).

A managed group's coordinator is the broker beside the sidecar that owns the group. What the broker's authorizer
refused stays refused. While the broker is silent, a client that may see the group is answered without it, and no other.
The sidecars' own group and transactional ids have no coordinator for a client.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from sidecar.api import access, slices
from sidecar.api.call import FORWARD, BrokerSilent, Call, Handler, Settle, Want, upstream
from sidecar.core.vocabulary.errors import Code
from sidecar.core.vocabulary.placement import partition_for
from sidecar.wire.generated import find_coordinator as fc

GROUP, TRANSACTION, SHARE = 0, 1, 2
"""Key types."""
REFUSED_TEXT = {
    Code.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
}
BATCHED = 4
"""The first version that takes several keys."""


def find_coordinator(call: Call) -> Handler:
    req = yield from slices.request(call, fc.FindCoordinatorRequest)
    names = [req.key] if call.version < BATCHED else req.coordinator_keys
    refused = yield from slices.made(names, lambda name: _refused(call, req.key_type, name))
    own = {name: code for name, code in zip(names, refused, strict=True) if code != Code.NONE}
    groups = names if req.key_type == GROUP else []
    managed = tuple((yield from slices.chosen(groups, lambda g: g not in own and call.scope.managed(g))))
    if not own and not managed:
        return FORWARD
    try:
        body = yield from upstream(call)
        res = yield from slices.decoded(fc.FindCoordinatorResponse, call.version, body)
    except BrokerSilent:
        res = yield from _without_the_broker(call, req, names, {*own, *managed})
    if managed and call.view.suspects:
        yield Settle((yield from _one_of_each_partition(call, managed)))
    entries: list[tuple[str, fc.FindCoordinatorResponse | fc.Coordinator]]
    entries = [(req.key, res)] if call.version < BATCHED else [(answer.key, answer) for answer in res.coordinators]
    ours = set(managed)

    def put(entry: tuple[str, fc.FindCoordinatorResponse | fc.Coordinator]) -> None:
        key, answer = entry
        if key in own:
            _place(answer, own[key], REFUSED_TEXT[own[key]], -1, ("", -1))
        elif key in ours:
            _point(call, key, answer)

    yield from slices.each(entries, put)
    return (yield from slices.encoded(res, call.version))


def _one_of_each_partition(call: Call, groups: tuple[str, ...]) -> Generator[Want, Any, tuple[str, ...]]:
    """Returns one group of each partition. All groups of a partition have the same owner, and a request with thousands
    would be looked at again with each change of the owners."""
    partitions = max(len(call.view.owners), 1)
    return tuple(dict((yield from slices.made(groups, lambda g: (partition_for(g, partitions), g)))).values())


def _without_the_broker(
    call: Call, req: fc.FindCoordinatorRequest, names: list[str], known: set[str]
) -> Generator[Want, Any, fc.FindCoordinatorResponse]:
    """Returns an answer to be filled in. Raises BrokerSilent if that takes what only the broker knows, of a group of
    its own or of the rights of this principal."""
    allowed = yield from slices.chosen(names, lambda n: n in known and _may_see_coordinator(call, req.key_type, n))
    if len(allowed) < len(names):
        raise BrokerSilent
    if call.version < BATCHED:
        return fc.FindCoordinatorResponse()
    return fc.FindCoordinatorResponse(coordinators=(yield from slices.made(names, lambda n: fc.Coordinator(key=n))))


def _may_see_coordinator(call: Call, key_type: int, name: str) -> bool:
    return _refused(call, key_type, name) != Code.NONE or access.may_see_meanwhile(call, name)


def _refused(call: Call, key_type: int, key: str) -> Code:
    """Returns the error with which this coordinator is refused to a client, or NONE."""
    own = call.scope.own
    if key_type == TRANSACTION:
        return Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if own.is_transactional(key) else Code.NONE
    group_id = key.rsplit(":", 2)[0] if key_type == SHARE else key
    return Code.GROUP_AUTHORIZATION_FAILED if own.is_group(group_id) else Code.NONE


def _place(
    answer: fc.FindCoordinatorResponse | fc.Coordinator, code: Code, text: str | None, node_id: int, at: tuple[str, int]
) -> None:
    answer.error_code, answer.error_message, answer.node_id = code, text, node_id
    answer.host, answer.port = at


def _point(call: Call, group_id: str, answer: fc.FindCoordinatorResponse | fc.Coordinator) -> None:
    """Puts the owner's broker in the place of the one that the broker named."""
    if answer.error_code == Code.GROUP_AUTHORIZATION_FAILED:
        return
    if answer.error_code != Code.NONE:
        answer.error_message = None
    node_id = call.owner_of(group_id)
    address = call.view.brokers.get(node_id)
    if address is None:
        _place(answer, Code.COORDINATOR_NOT_AVAILABLE, "The group's owner is not known yet.", -1, ("", -1))
    else:
        _place(answer, Code.NONE, answer.error_message, node_id, address)
