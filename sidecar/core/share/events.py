"""Events of share groups and their answers. Times are milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar

from msgspec import Struct

from sidecar.assign.spec import Partitions
from sidecar.core.modern.events import MemberHeartbeat, MemberReply, TopicPartitions
from sidecar.core.runtime.events import Answer, Event


class ShareHeartbeatReply(MemberReply):
    assignment: Partitions | None = None


class ShareHeartbeat(MemberHeartbeat):
    """ShareGroupHeartbeat (api 76, KIP-932). `None` means: not changed since the last one."""

    answer: ClassVar[type[Answer]] = ShareHeartbeatReply

    rack_id: str | None = None
    topic_names: tuple[str, ...] | None = None
    client_id: str = ""
    client_host: str = ""

    def largest_bytes(self) -> int:
        return sum(map(len, self.topic_names)) if self.topic_names else 0


class DescribedShareMember(Struct, gc=False):
    member_id: str
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    assignment: tuple[TopicPartitions, ...]


class ShareDescribeReply(Answer):
    state: str = ""
    epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: tuple[DescribedShareMember, ...] = ()


class DescribeShareGroup(Event):
    """ShareGroupDescribe (api 77, KIP-932)."""

    answer: ClassVar[type[Answer]] = ShareDescribeReply


class ShareInitialised(Event):
    """Reports that the placeholder member is in the broker's group, and that these partitions have share state there.
    `whole`: no other partition of the member's topics has any. Else there may be more, because a new member gets a part
    of them beside other members."""

    inner: ClassVar[bool] = True

    hold_id: int
    """Id of the `HoldPlaceholder` that this answers (placeholder.py)."""
    placeholder_id: str
    keeper: int
    """Node id of the broker that coordinates the broker's group."""
    topic_names: tuple[str, ...]
    """Topics that the placeholder member subscribes to."""
    initialised: Partitions
    names: Mapping[bytes, str]
    """Names of these topics."""
    whole: bool = False


class PlaceholderRefused(Event):
    """Reports that the broker refuses the placeholder member, or its topics. The driver goes on trying."""

    inner: ClassVar[bool] = True

    hold_id: int
    code: int
    message: str | None = None


class PlaceholderLeft(Event):
    """The end of `LeavePlaceholder`: the broker has no such member of its group any more."""

    inner: ClassVar[bool] = True

    placeholder_id: str


class Operation(StrEnum):
    """An administrator's operation on a share group at the broker, by the name of the API."""

    ALTER = "AlterShareGroupOffsets"
    DELETE = "DeleteShareGroupOffsets"
    DELETE_GROUP = "DeleteGroups"


class ShareAdminReply(Answer):
    """`placeholder`: a placeholder member must leave the broker's group before the request is sent to it, or may be on
    its way there or out. `exists`: the group is here."""

    exists: bool = False
    placeholder: bool = False


class ShareAdmin(Event):
    """Asks whether an operation may go to the broker (AlterShareGroupOffsets, DeleteShareGroupOffsets, DeleteGroups).
    Whether the broker has such a group, the broker answers."""

    answer: ClassVar[type[Answer]] = ShareAdminReply

    operation: Operation


class ShareAdministered(Event):
    """Reports that the broker has completed the operation. A group that was made by an alteration of its offsets is
    empty."""

    operation: Operation
    why: str
