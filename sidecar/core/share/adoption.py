"""Adoption and release of a share group, and its new assignment on an administrator's order.

**Adoption**: the group comes whole, as the broker described it: its members go on with their epochs, and none stops
fetching.

**Release**: immediate; the members join anew at the broker, under the same share state. The broker knows the group,
which had the placeholder member, so an early heartbeat there is answered UNKNOWN_MEMBER_ID; GROUP_ID_NOT_FOUND would
end the client for good. Therefore no member is removed without a heartbeat before the placeholder member has been
there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from msgspec import Struct

from sidecar.assign.spec import Partitions
from sidecar.core.modern.group import INITIAL_EPOCH
from sidecar.core.modern.release import GroupRelease
from sidecar.core.modern.sessions import arm_session
from sidecar.core.runtime.events import Answer, Event
from sidecar.core.runtime.turn import Turn
from sidecar.core.share.config import SHARE, config_of
from sidecar.core.share.group import Member, ShareGroup, union
from sidecar.core.share.members import remove_members
from sidecar.core.share.placeholder import keep_placeholder, placeholder_there
from sidecar.core.share.records import (
    CurrentRecord,
    GroupRecord,
    MemberRecord,
    PlaceholderRecord,
    TargetMemberRecord,
    TargetMetadataRecord,
)
from sidecar.core.vocabulary.errors import Code, CoordinatorError

NO_BROKER = -1


class NativeShareMember(Struct, gc=False):
    """A member in the broker's ShareGroupDescribe response, which has no targets: its current assignment counts as its
    target."""

    member_id: str
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    assigned: Partitions


class AdoptShare(Event):
    """Takes in this group of the broker. `topics`: the names of the topics that its members have."""

    inner: ClassVar[bool] = True

    epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[NativeShareMember, ...]
    topics: Mapping[bytes, str]
    why: str


def _unasked(group: ShareGroup) -> Iterable[Member]:
    known = group.placeholder is not None and group.placeholder.member_id
    return tuple(group.members.values()) if known else ()


RELEASE = GroupRelease(SHARE, remove_members, _unasked, placeholder_there)


def adopt(turn: Turn, e: AdoptShare, token: int) -> None:
    if e.group_id in turn.groups:
        raise CoordinatorError(Code.NON_EMPTY_GROUP, f"Group {e.group_id} is here already.")
    g, names, why = e.group_id, e.topics, e.why
    for m in e.members:
        turn.write(MemberRecord(g, m.member_id, m.rack_id, m.client_id, m.client_host, m.topic_names, why))
        turn.write(TargetMemberRecord(g, m.member_id, m.assigned, names, why))
        turn.write(CurrentRecord(g, m.member_id, m.member_epoch, m.member_epoch, m.assigned, names, why))
    if e.members:
        # Partitions that the broker has assigned are initialised.
        held = {t: tuple(sorted(ps)) for t, ps in union(m.assigned for m in e.members).items()}
        turn.write(PlaceholderRecord(g, "", NO_BROKER, (), 0, held, names, why))
    # No member may reach epoch 0, in which it would have to join with every heartbeat.
    turn.write(TargetMetadataRecord(g, max(e.assignment_epoch, INITIAL_EPOCH), 0, e.assignor, why))
    turn.write(GroupRecord(g, e.epoch, 0, why))
    group: ShareGroup = turn.groups[g]
    turn.write(GroupRecord(g, e.epoch, group.hash_over(turn.image), why))
    for member_id in group.members:
        arm_session(turn, g, member_id, config_of(turn, g).session_timeout_ms)
    keep_placeholder(turn, group)
    turn.fx.log("group taken over from the broker", group_id=g, kind=group.kind, members=len(e.members), epoch=e.epoch)
    turn.reply(token, Answer())
