"""A member of a classic group as its client is: what it says, and what it keeps of the answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sidecar.core.classic.embedded import CONSUMER_TYPE
from sidecar.core.classic.events import (
    ClassicHeartbeat,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    Leaving,
    SyncGroup,
    SyncReply,
)
from sidecar.core.runtime.offset_checks import CommitCheck
from sidecar.core.vocabulary.errors import Code
from sidecar.wire.generated import consumer_protocol_subscription as cs

Places = Mapping[str, Sequence[int]]
"""Topic name -> partitions."""
PROTOCOL_SINCE = 8
"""JoinGroup's version of clients that name the protocol when they sync; near enough."""


def subscription(topics: Sequence[str], owned: Places | None = None, generation: int = -1, version: int = 3) -> bytes:
    """Returns the metadata that a consumer sends for each of its protocols."""
    parts = [cs.TopicPartition(t, list(ps)) for t, ps in (owned or {}).items()]
    said = cs.ConsumerProtocolSubscription(list(topics), None, parts, generation)
    return version.to_bytes(2, "big") + said.encode(version)


@dataclass
class ClassicClient:
    name: str
    """The client's name, also its client id."""
    group_id: str = "g"
    version: int = 9
    """Version of JoinGroup; those of the other requests follow from it."""
    instance_id: str | None = None
    type: str = CONSUMER_TYPE
    protocols: tuple[tuple[str, bytes], ...] = ()
    session_ms: int = 10_000
    rebalance_ms: int = 60_000
    member_id: str = ""
    generation: int = -1
    protocol: str | None = None
    leads: bool = False
    assignment: bytes | None = None
    host: str = "/10.0.0.1"
    made: Counter[str] = field(default_factory=Counter, repr=False)
    """Member ids that were asked for, by what they begin with; clients of one group share it."""

    # ---- what it says --------------------------------------------------------------------------------------
    def join(self, member_id: str | None = None, reason: str | None = None) -> JoinGroup:
        member_id = self.member_id if member_id is None else member_id
        begin = self.begin()
        if not member_id:
            self.made[begin] += 1
        return JoinGroup(
            self.group_id,
            member_id,
            self.instance_id if self.version >= 5 else None,
            self.type,
            self.protocols,
            self.session_ms,
            self.rebalance_ms if self.version else self.session_ms,
            reason,
            self.name,
            self.host,
            self.version,
            str(self.made[begin]),
        )

    def begin(self) -> str:
        """Returns the prefix of the client's new member ids."""
        return (self.version >= 5 and self.instance_id) or self.name

    def sync(self, given: Mapping[str, bytes]) -> SyncGroup:
        names = self.version >= PROTOCOL_SINCE
        return SyncGroup(
            self.group_id,
            self.member_id,
            self.instance_id,
            self.generation,
            self.type if names else None,
            self.protocol if names else None,
            tuple(given.items()),
        )

    def beat(self) -> ClassicHeartbeat:
        return ClassicHeartbeat(self.group_id, self.member_id, self.instance_id, self.generation)

    def leave(self, reason: str | None = None) -> LeaveGroup:
        return LeaveGroup(self.group_id, (Leaving(self.member_id, self.instance_id, reason),))

    def commit(self, version: int | None = None, transactional: bool = False) -> CommitCheck:
        version = version or (5 if transactional else 9)
        return CommitCheck(self.group_id, self.member_id, self.generation, self.instance_id, version, transactional, ())

    # ---- what it hears -------------------------------------------------------------------------------------
    def joined(self, reply: JoinReply) -> None:
        if reply.code == Code.MEMBER_ID_REQUIRED:
            self.member_id = reply.member_id
        if reply.code != Code.NONE:
            self.refused(reply.code)
            return
        self.member_id, self.generation, self.protocol = reply.member_id, reply.generation, reply.protocol
        self.leads = reply.leader == reply.member_id

    def synced(self, reply: SyncReply) -> None:
        if reply.code == Code.NONE:
            self.assignment = reply.assignment
        self.refused(reply.code)

    def refused(self, code: Code) -> None:
        """A client that is not known forgets who it was."""
        if code == Code.UNKNOWN_MEMBER_ID:
            self.member_id, self.generation, self.leads = "", -1, False
