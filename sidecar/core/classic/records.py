"""The records of classic groups. state/ turns them into Avro by their `body`; `of` is its inverse.

Kafka writes one record for a whole generation. Here the group, each member and each assignment have a record of their
own, written when they change. So a group of any size fits, a change costs only its own records, and the log has a
rebalance that was under way when its coordinator died.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from msgspec import Struct

from sidecar.core.classic.events import Protocols
from sidecar.core.runtime.records import RecordKind, Role

Body = Mapping[str, Any]


class Kind(StrEnum):
    GROUP = "classic_group"
    MEMBER = "classic_member"
    ASSIGNMENT = "classic_assignment"


class State(StrEnum):
    """States by their names in the protocol (Kafka's ClassicGroupState). A deleted group is Dead."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


TRANSITIONS: Mapping[State, frozenset[State]] = {
    State.EMPTY: frozenset({State.PREPARING}),
    State.PREPARING: frozenset({State.COMPLETING, State.EMPTY}),
    State.COMPLETING: frozenset({State.STABLE, State.PREPARING}),
    State.STABLE: frozenset({State.PREPARING}),
}


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """The group's own record. `assigned_generation`: the last one whose assignments are known; -1: none."""

    group_id: str
    state: State
    generation: int
    protocol_type: str | None
    protocol: str | None
    leader: str | None
    assigned_generation: int
    since_ms: int
    """Unix milliseconds at which the group came into this state."""
    why: str = ""
    adopted: bool = False
    """Whether the group was adopted from the broker, and its generation is unknown because members have not joined here
    yet."""

    kind = Kind.GROUP

    @property
    def sub_id(self) -> str:
        return ""

    def body(self) -> dict[str, Any]:
        return {n: getattr(self, n) for n in GROUP_FIELDS} | {"state": str(self.state), "adopted": self.adopted}

    @classmethod
    def of(cls, group_id: str, sub_id: str, b: Body) -> GroupRecord:
        fields = {n: b[n] for n in GROUP_FIELDS if n != "state"}
        return cls(group_id, State(b["state"]), **fields, why=b["why"], adopted=b.get("adopted", False))


GROUP_FIELDS = ("state", "generation", "protocol_type", "protocol", "leader", "assigned_generation", "since_ms")


@dataclass(frozen=True, slots=True)
class StaleClaim:
    """A member's claim to partitions of a topic that the group has given to another member since (KIP-792).
    `generation`: the one in which the claiming member got them; `holder`: their present owner, "" if none."""

    topic: str
    partitions: tuple[int, ...]
    generation: int
    holder: str


class MemberRecord(Struct, frozen=True, gc=False):  # thousands at a time: a frozen dataclass is made ten times slower
    """A member, with the data of its JoinGroup."""

    group_id: str
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    id_told: bool = True
    """Whether the client had received its member id at the time. If not, it receives it with the next generation."""
    generation: int = 0
    """The group's generation when the record was written."""
    stale_claims: tuple[StaleClaim, ...] = ()
    """Stale claims found in the rebalance in which the record was written."""
    why: str = ""

    kind = Kind.MEMBER

    @property
    def sub_id(self) -> str:
        return self.member_id

    def metadata(self, protocol: str | None) -> bytes:
        """Returns the member's metadata for this protocol. Raises KeyError if the member does not support it."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise KeyError(protocol)

    def body(self) -> dict[str, Any]:
        return {
            **{n: getattr(self, n) for n in MEMBER_FIELDS},
            "protocols": [{"name": n, "metadata": m} for n, m in self.protocols],
            "stale_claims": [
                {"topic": c.topic, "partitions": list(c.partitions), "generation": c.generation, "holder": c.holder}
                for c in self.stale_claims
            ],
        }

    @classmethod
    def of(cls, group_id: str, sub_id: str, b: Body) -> MemberRecord:
        return cls(
            group_id,
            sub_id,
            **{n: b[n] for n in MEMBER_FIELDS},
            protocols=tuple((p["name"], p["metadata"]) for p in b["protocols"]),
            stale_claims=tuple(
                StaleClaim(c["topic"], tuple(c["partitions"]), c["generation"], c["holder"]) for c in b["stale_claims"]
            ),
            why=b["why"],
        )


MEMBER_FIELDS = (
    "instance_id",
    "client_id",
    "client_host",
    "session_timeout_ms",
    "rebalance_timeout_ms",
    "id_told",
    "generation",
)


class AssignmentRecord(Struct, frozen=True, gc=False):
    """The leader's assignment for one member. `generation`: the first one with this assignment; for a static
    member's next process, the last one that was assigned."""

    group_id: str
    member_id: str
    generation: int
    assignment: bytes
    why: str = ""

    kind = Kind.ASSIGNMENT

    @property
    def sub_id(self) -> str:
        return self.member_id

    def body(self) -> dict[str, Any]:
        return {"generation": self.generation, "assignment": self.assignment}

    @classmethod
    def of(cls, group_id: str, sub_id: str, b: Body) -> AssignmentRecord:
        return cls(group_id, sub_id, b["generation"], b["assignment"], b["why"])


RECORDS = (
    RecordKind(Kind.MEMBER, MemberRecord, "classic_member-v1", Role.MEMBER),
    RecordKind(Kind.ASSIGNMENT, AssignmentRecord, "classic_assignment-v1", Role.TARGET),
    RecordKind(Kind.GROUP, GroupRecord, "classic_group-v2", Role.GROUP),
)
