"""Members of a share group: their records, and their removal."""

from __future__ import annotations

from collections.abc import Sequence

from sidecar.core.modern.epochs import after_removal
from sidecar.core.modern.sessions import forget
from sidecar.core.runtime.records import Tombstone
from sidecar.core.runtime.turn import Turn
from sidecar.core.share.group import Member, ShareGroup
from sidecar.core.share.placeholder import keep_placeholder
from sidecar.core.share.records import CurrentRecord, Kind, MemberRecord


def member_record(group_id: str, m: Member, why: str) -> MemberRecord:
    return MemberRecord(group_id, m.member_id, m.rack_id, m.client_id, m.client_host, m.topic_names, why)


def current_record(turn: Turn, group_id: str, m: Member, why: str) -> CurrentRecord:
    return CurrentRecord(group_id, m.member_id, m.member_epoch, m.previous_epoch, m.assigned, turn.image.names, why)


def remove_members(turn: Turn, group: ShareGroup, gone: Sequence[tuple[Member, str]]) -> None:
    """Removes members that left or were fenced, each with its reason: the epoch rises once, the others get a new
    target."""
    for member, why in gone:
        for kind in (Kind.CURRENT, Kind.TARGET_MEMBER, Kind.MEMBER):
            turn.write(Tombstone(kind, group.group_id, member.member_id, why))
        forget(turn, group.group_id, member.member_id)
        turn.fx.log("member removed", group_id=group.group_id, member_id=member.member_id, why=why)
    after_removal(turn, group, gone)
    keep_placeholder(turn, group)
