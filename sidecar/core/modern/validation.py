"""Checks of a group's size and of members' epochs, with Kafka's messages.

Source: GroupMetadataManager's throwIf...GroupIsFull and throwIf...MemberEpochIsInvalid, alike but for the kind's name.
"""

from __future__ import annotations

from typing import Any, TypeVar

from sidecar.core.modern.group import ModernGroup, ModernMember
from sidecar.core.vocabulary.errors import Code, CoordinatorError

M = TypeVar("M", bound=ModernMember)


def invalid(message: str) -> CoordinatorError:
    return CoordinatorError(Code.INVALID_REQUEST, message)


def blank(text: str) -> bool:
    """Whether the text is empty after Java's String.trim, which takes away other characters than Python's strip."""
    return all(c <= " " for c in text)


def check_size(group: ModernGroup[Any], member_id: str, instance_id: str | None, max_size: int) -> None:
    """Refuses a new member of a full group. A static member that comes back takes the place that it has already."""
    if instance_id in group.static_members or member_id in group.members:
        return
    if len(group.members) >= max_size:
        raise CoordinatorError(
            Code.GROUP_MAX_SIZE_REACHED,
            f"The {group.kind} group has reached its maximum capacity of {max_size} members.",
            "size",
        )


def check_epoch(kind: str, member: ModernMember, received: int, reply_lost: bool, note: str = "") -> None:
    """Refuses a wrong member epoch. The previous epoch is accepted if the answer with the present one may be lost.
    `note`: Kafka's addition about a smaller epoch."""
    if received in (0, member.member_epoch):
        return
    if received > member.member_epoch:
        size, note = "greater", ""
    elif received != member.previous_epoch or not reply_lost:
        size = "smaller"
    else:
        return
    raise CoordinatorError(
        Code.FENCED_MEMBER_EPOCH,
        f"The {kind} group member has a {size} member epoch ({received}) than the one known by the group "
        f"coordinator ({member.member_epoch}){note}. The member must abandon all its partitions and rejoin.",
    )


def unknown_member(member_id: str, group_id: str) -> CoordinatorError:
    return CoordinatorError(Code.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}.")


def held_by_instance(group: ModernGroup[M], instance_id: str, member_id: str) -> M:
    """Returns the static member of that instance id, if this member id holds it."""
    holder = group.members.get(group.static_members.get(instance_id, ""))
    if holder is None:
        raise CoordinatorError(Code.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if holder.member_id != member_id:
        raise CoordinatorError(
            Code.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {holder.member_id}.",
        )
    return holder
