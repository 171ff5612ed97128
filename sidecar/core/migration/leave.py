"""Removal of members from a consumer group, by either protocol and for any reason; the group may become a classic one.

LeaveGroup (api 13) takes members of both protocols, so that an administrator can remove them (KIP-345, KIP-800).
"""

from __future__ import annotations

from collections.abc import Sequence

from sidecar.core.classic.events import LeaveGroup, LeaveReply, Leaving, Left
from sidecar.core.consumer.config import config_of
from sidecar.core.consumer.events import ConsumerHeartbeat, HeartbeatReply
from sidecar.core.consumer.group import ConsumerGroup, Member
from sidecar.core.consumer.heartbeat import heartbeat
from sidecar.core.consumer.leave import leaving
from sidecar.core.consumer.members import remove_members
from sidecar.core.consumer.validation import check_request
from sidecar.core.migration.downgrade import downgrade
from sidecar.core.migration.timers import joined, synced
from sidecar.core.migration.validation import downgrades
from sidecar.core.modern.group import LEAVE_EPOCH
from sidecar.core.runtime.turn import Turn
from sidecar.core.vocabulary.errors import Code
from sidecar.core.vocabulary.rebalance_reasons import listed


def leave_group(turn: Turn, e: LeaveGroup, token: int) -> None:
    group: ConsumerGroup = turn.groups[e.group_id]
    gone: dict[str, tuple[Member, str]] = {}
    left = []
    for m in e.members:
        member, code = _find(group, m)
        left.append(Left(m.member_id, m.instance_id, code))
        if member is not None:
            gone[member.member_id] = (member, f"left: {m.reason or 'not provided'}")
    if gone:
        remove(turn, group, list(gone.values()))
    turn.reply(token, LeaveReply(members=tuple(left)))


def _find(group: ConsumerGroup, m: Leaving) -> tuple[Member | None, Code]:
    if m.instance_id is None:
        member = group.members.get(m.member_id)
    else:
        member = group.static_member(m.instance_id)
        if member is not None and m.member_id not in ("", member.member_id):
            return None, Code.FENCED_INSTANCE_ID
    return member, Code.UNKNOWN_MEMBER_ID if member is None else Code.NONE


def remove(turn: Turn, group: ConsumerGroup, gone: Sequence[tuple[Member, str]]) -> None:
    members = [m for m, _ in gone]
    for member in members:
        joined(turn, group.group_id, member.member_id)
        synced(turn, group.group_id, member.member_id)
    if downgrades(turn, group, members):
        downgrade(turn, group, members, True, listed((f"{m.member_id} {why}" for m, why in gone), "; "))
    else:
        remove_members(turn, group, gone)


def consumer_heartbeat(turn: Turn, hb: ConsumerHeartbeat, token: int) -> None:
    """Handles ConsumerGroupHeartbeat in a consumer group. The group may become a classic one if the member leaves for
    good."""
    if hb.member_epoch != LEAVE_EPOCH:
        heartbeat(turn, hb, token)
        return
    check_request(hb, config_of(turn, hb.group_id))
    group, member = leaving(turn, hb)
    remove(turn, group, [(member, "left")])
    turn.reply(token, HeartbeatReply(member_id=hb.member_id, member_epoch=hb.member_epoch))


# ---- timers -------------------------------------------------------------------------------------------------------
def join_over(turn: Turn, group: ConsumerGroup, key: tuple[str, ...], tag: int) -> None:
    _late(turn, group, key[2], "did not join again in time")


def sync_over(turn: Turn, group: ConsumerGroup, key: tuple[str, ...], tag: int) -> None:
    _late(turn, group, key[2], "did not sync in time")


def _late(turn: Turn, group: ConsumerGroup, member_id: str, why: str) -> None:
    member = group.members.get(member_id)
    if member is not None and member.classic is not None:
        remove(turn, group, [(member, why)])
