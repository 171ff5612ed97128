"""A member leaves a share group."""

from __future__ import annotations

from sidecar.core.modern.validation import unknown_member
from sidecar.core.runtime.turn import Turn
from sidecar.core.share.events import ShareHeartbeat, ShareHeartbeatReply
from sidecar.core.share.group import share_group
from sidecar.core.share.members import remove_members
from sidecar.core.vocabulary.errors import Code, CoordinatorError


def leave(turn: Turn, hb: ShareHeartbeat, token: int) -> None:
    group = share_group(turn.groups, hb.group_id)
    if group is None:
        raise CoordinatorError(Code.GROUP_ID_NOT_FOUND, f"Group {hb.group_id} not found.")
    member = group.members.get(hb.member_id)
    if member is None:
        raise unknown_member(hb.member_id, hb.group_id)
    remove_members(turn, group, [(member, "left")])
    turn.reply(token, ShareHeartbeatReply(member_id=hb.member_id, member_epoch=hb.member_epoch))
