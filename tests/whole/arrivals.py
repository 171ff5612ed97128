"""When commits come to a sidecar, as its front begins to handle them."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any, cast

from sidecar.api.call import Call, Handler
from sidecar.api.handlers import HANDLERS
from sidecar.wire.apis import Api
from sidecar.wire.generated import offset_commit as oc
from sidecar.wire.generated import txn_offset_commit as tc
from sidecar.wire.primitives import WireError

Told = Callable[[int, str, str, dict[tuple[str, int], int]], None]
"""Node id of the sidecar, group, member, offsets."""
_told: list[Told] = []


def listen(told: Told) -> None:
    """From now on this one hears of commits, and nobody else."""
    _told[:] = [told]


def _heard(handler: Callable[[Call], Handler], decode: Callable[[int, bytes, int], Any]) -> Callable[[Call], Handler]:
    def handle(call: Call) -> Handler:
        for told in _told:
            try:
                req = decode(call.version, call.frame, call.pos)
            except WireError:
                break
            offsets = {(t.name, p.partition_index): p.committed_offset for t in req.topics for p in t.partitions}
            told(call.scope.node_id, req.group_id, req.member_id, offsets)
        return handler(call)

    return handle


_handlers = cast(MutableMapping[int, Callable[[Call], Handler]], HANDLERS)
for _api, _decode in (
    (Api.OFFSET_COMMIT, oc.OffsetCommitRequest.decode),
    (Api.TXN_OFFSET_COMMIT, tc.TxnOffsetCommitRequest.decode),
):
    _handlers[_api] = _heard(HANDLERS[_api], _decode)
