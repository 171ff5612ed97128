"""Events of the classic protocol and their answers. Times are milliseconds; members' metadata and assignments are
opaque bytes."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from sidecar.core.runtime.events import Answer, Event
from sidecar.core.vocabulary.errors import Code

Protocols = tuple[tuple[str, bytes], ...]
"""Protocol name and the member's metadata for it, in the member's order of preference."""


class JoinedMember(Struct, gc=False):
    """A member as the leader sees it."""

    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinReply(Answer):
    """Answer to JoinGroup. `members` is for the leader only."""

    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


class JoinGroup(Event):
    """JoinGroup (api 11). Answered when the group's join phase ends."""

    answer: ClassVar[type[Answer]] = JoinReply

    member_id: str
    instance_id: str | None
    protocol_type: str
    protocols: Protocols
    session_timeout_ms: int
    rebalance_timeout_ms: int
    reason: str | None
    client_id: str
    client_host: str
    version: int
    new_id: str
    """A UUID that becomes part of a new member's id: the caller brings the randomness. Empty for a member that has its
    id."""
    connection: int = 0
    """Number of the client's connection."""

    def refused(self, code: Code, message: str | None) -> Answer:
        return JoinReply(code, message, member_id=self.member_id)

    def joins(self) -> bool:
        """Whether the sender is new. With a member id it is a member, which may own partitions while it joins again."""
        return not self.member_id

    def largest_bytes(self) -> int:
        return sum(len(name) + len(metadata) for name, metadata in self.protocols)


class SyncReply(Answer):
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class SyncGroup(Event):
    """SyncGroup (api 14). Answered when the leader's assignments are in the log."""

    answer: ClassVar[type[Answer]] = SyncReply

    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: tuple[tuple[str, bytes], ...]
    """Member id and assignment; only the leader sends them."""

    def largest_bytes(self) -> int:
        return max((len(given) for _, given in self.assignments), default=0)


class ClassicHeartbeat(Event):
    """Heartbeat (api 12)."""

    member_id: str
    instance_id: str | None
    generation: int


class Leaving(Struct, gc=False):
    """One member that leaves. Member id "" with an instance id: an administrator removes that static member."""

    member_id: str
    instance_id: str | None
    reason: str | None


class Left(Struct, gc=False):
    member_id: str
    instance_id: str | None
    code: Code


class LeaveReply(Answer):
    members: tuple[Left, ...] = ()


class LeaveGroup(Event):
    """LeaveGroup (api 13)."""

    answer: ClassVar[type[Answer]] = LeaveReply

    members: tuple[Leaving, ...]

    def unknown(self) -> LeaveReply:
        """Returns the answer for a group that does not exist: all these members are unknown."""
        return LeaveReply(members=tuple(Left(m.member_id, m.instance_id, Code.UNKNOWN_MEMBER_ID) for m in self.members))


class DescribedClassicMember(Struct, gc=False):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribeClassicReply(Answer):
    state: str = ""
    protocol_type: str = ""
    protocol: str = ""
    members: tuple[DescribedClassicMember, ...] = ()


class DescribeClassic(Event):
    """DescribeGroups (api 15), for one group."""

    answer: ClassVar[type[Answer]] = DescribeClassicReply

    version: int
