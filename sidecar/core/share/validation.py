"""Checks of a ShareGroupHeartbeat before the group is looked up, and of its member epoch.

Source: Kafka's KafkaApis, GroupCoordinatorService and GroupMetadataManager, in their order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sidecar.core.modern import validation as modern
from sidecar.core.modern.group import LEAVE_EPOCH
from sidecar.core.modern.validation import blank, invalid
from sidecar.core.share.config import SHARE
from sidecar.core.share.events import ShareHeartbeat

if TYPE_CHECKING:
    from sidecar.core.share.group import Member

MEMBER_ID_CHARS = 36
"""As Java counts them: a character outside of Unicode's first plane is two."""


def check_member_id(member_id: str) -> None:
    """Checks the member id: after the right to read the group, and before the rights on its topics."""
    if not member_id or len(member_id.encode("utf-16-le")) > 2 * MEMBER_ID_CHARS:
        raise invalid("Invalid member id in the request.")


def check_request(hb: ShareHeartbeat) -> None:
    check_member_id(hb.member_id)
    if blank(hb.member_id):
        raise invalid("MemberId can't be empty.")
    if blank(hb.group_id):
        raise invalid("GroupId can't be empty.")
    if hb.rack_id is not None and blank(hb.rack_id):
        raise invalid("RackId can't be empty.")
    if hb.member_epoch == 0:
        if not hb.topic_names:
            raise invalid("SubscribedTopicNames must be set in first request.")
    elif hb.member_epoch < LEAVE_EPOCH:
        raise invalid("MemberEpoch is invalid.")


def check_epoch(member: Member, received: int) -> None:
    """Accepts the previous epoch, too, without any proof: the request has none."""
    note = f", and it does not match the previous member epoch ({member.previous_epoch})"
    modern.check_epoch(SHARE, member, received, reply_lost=True, note=note)
