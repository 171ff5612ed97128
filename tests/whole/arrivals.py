"""The arrival of commits at a sidecar, when its front begins to handle them."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any, cast

from sidecar.api.call import Call, Handler
from sidecar.api.handlers import HANDLERS
from sidecar.api.offset_commit import offset_commit, txn_offset_commit
from sidecar.wire.apis import Api
from sidecar.wire.generated import offset_commit as oc
from sidecar.wire.generated import txn_offset_commit as tc
from sidecar.wire.primitives import WireError

Told = Callable[[int, str, str, dict[tuple[str, int], int]], None]
"""Node id of the sidecar, group, member, offsets."""
_told: list[Told] = []


_handlers = cast(MutableMapping[int, Callable[[Call], Handler]], HANDLERS)


def listen(told: Told) -> None:
    """From now on this one hears of commits, and nobody else."""
    if not _told:
        _handlers[Api.OFFSET_COMMIT] = _heard(offset_commit, oc.OffsetCommitRequest.decode)
        _handlers[Api.TXN_OFFSET_COMMIT] = _heard(txn_offset_commit, tc.TxnOffsetCommitRequest.decode)
    _told[:] = [told]


def forget() -> None:
    """Ends the listening: no listener hears of commits any more, and the handlers are as they were for the other tests
    of this process."""
    _handlers[Api.OFFSET_COMMIT], _handlers[Api.TXN_OFFSET_COMMIT] = offset_commit, txn_offset_commit
    _told.clear()


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
