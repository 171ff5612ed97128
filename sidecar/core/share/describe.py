"""ShareGroupDescribe (api 77, KIP-932): a group as its members and operators see it, without the placeholder member."""

from __future__ import annotations

from sidecar.core.modern.config import config_of
from sidecar.core.modern.describe import named
from sidecar.core.runtime.turn import Turn
from sidecar.core.share.events import (
    DescribedShareMember,
    DescribeShareGroup,
    ShareDescribeReply,
)
from sidecar.core.share.group import Member, share_group
from sidecar.core.vocabulary.errors import Code, CoordinatorError
from sidecar.core.vocabulary.topics import TopicImage


def describe(turn: Turn, event: DescribeShareGroup, token: int) -> None:
    group = share_group(turn.groups, event.group_id)
    if group is None:
        raise CoordinatorError(Code.GROUP_ID_NOT_FOUND, f"Group {event.group_id} not found.")
    turn.reply(
        token,
        ShareDescribeReply(
            state=group.state_name(),
            epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            assignor=config_of(turn, group).assignors[0],
            members=tuple(_member(m, turn.image) for m in group.members.values()),
        ),
    )


def _member(m: Member, image: TopicImage) -> DescribedShareMember:
    identity = (m.member_id, m.rack_id, m.member_epoch, m.client_id, m.client_host)
    return DescribedShareMember(*identity, m.topic_names, named(m.assigned, image))
