"""Administrators' changes to a share group's state. The broker carries them out, and its rule that the group must be
empty is the fence: the placeholder member has left before. Here is the same rule for the sidecars' members, and the
effects of a change."""

from __future__ import annotations

from sidecar.core.modern.group import INITIAL_EPOCH
from sidecar.core.runtime.events import Answer
from sidecar.core.runtime.turn import Turn
from sidecar.core.share.events import Operation, ShareAdmin, ShareAdministered, ShareAdminReply
from sidecar.core.share.group import share_group
from sidecar.core.share.placeholder import placeholder_there
from sidecar.core.share.records import GroupRecord
from sidecar.core.vocabulary.errors import Code, CoordinatorError


def may_administer(turn: Turn, e: ShareAdmin, token: int) -> None:
    group = share_group(turn.groups, e.group_id)
    if group is None:
        turn.reply(token, ShareAdminReply())
        return
    if group.members:
        raise CoordinatorError(Code.NON_EMPTY_GROUP, "The group is not empty.")
    turn.reply(token, ShareAdminReply(exists=True, placeholder=placeholder_there(turn, group)))


def administered(turn: Turn, e: ShareAdministered, token: int) -> None:
    """Takes in a completed operation. A member may have joined meanwhile. Its placeholder member came to the broker
    after this operation, so its reports hold. A deleted group is removed by DeleteGroup."""
    group = share_group(turn.groups, e.group_id)
    if e.operation is Operation.ALTER and group is None:
        turn.write(GroupRecord(e.group_id, INITIAL_EPOCH, 0, e.why))
    turn.reply(token, Answer())
