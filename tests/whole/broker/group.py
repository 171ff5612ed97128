"""A classic group as the broker's coordinator keeps it. Source: ClassicGroup, ClassicGroupMember."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from sidecar.wire.generated import consumer_protocol_subscription as cs
from sidecar.wire.primitives import WireError
from tests.whole.broker.codes import Err, Refused

CONSUMER = "consumer"
Protocols = tuple[tuple[str, bytes], ...]


class State(StrEnum):
    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True)
class Joined:
    """An answer to JoinGroup, before its version is looked at."""

    code: Err = Err.NONE
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = ""
    skip: bool = False
    members: tuple[tuple[str, str | None, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class Synced:
    code: Err = Err.NONE
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class StoredMember:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_ms: int
    session_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """GroupMetadataValue."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_ms: int
    members: tuple[StoredMember, ...] = ()


@dataclass(slots=True, eq=False)
class Member:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_ms: int
    session_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = False
    joining: Callable[[Joined], None] | None = None
    syncing: Callable[[Synced], None] | None = None

    def metadata(self, protocol: str | None) -> bytes:
        for name, said in self.protocols:
            if name == protocol:
                return said
        raise Refused(Err.UNKNOWN_SERVER_ERROR)

    def vote(self, candidates: set[str]) -> str:
        return next(name for name, _ in self.protocols if name in candidates)


def java_hash(text: str) -> int:
    h = 0
    for unit in struct.unpack(f">{len(raw) // 2}H", raw) if (raw := text.encode("utf-16-be")) else ():
        h = (31 * h + unit) & 0xFFFFFFFF
    return h


def hash_order(names: Iterable[str]) -> list[str]:
    """The order of a small java.util.HashMap, which decides between protocols with as many votes."""
    listed = list(dict.fromkeys(names))
    size = 16
    while len(listed) > size * 3 // 4:
        size *= 2

    def bucket(name: str) -> int:
        h = java_hash(name)
        return (h ^ (h >> 16)) & (size - 1)

    return sorted(listed, key=bucket)


@dataclass(slots=True, eq=False)
class Group:
    group_id: str
    state_ms: int | None
    state: State = State.EMPTY
    previous: State | None = None
    generation: int = 0
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, Member] = field(default_factory=dict)
    static: dict[str, str] = field(default_factory=dict)
    pending: dict[str, None] = field(default_factory=dict)
    """Members that were given an id and have not come with it yet, in their order."""
    pending_sync: dict[str, None] = field(default_factory=dict)
    new_member_added: bool = False
    subscribed: frozenset[str] | None = None

    # ---- members --------------------------------------------------------------------------------------------
    def add(self, m: Member, protocol_type: str) -> None:
        if m.instance_id is not None:
            self.static[m.instance_id] = m.member_id
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = m.member_id
        self.members[m.member_id] = m
        self.pending.pop(m.member_id, None)

    def remove(self, member_id: str) -> None:
        m = self.members.pop(member_id, None)
        if m is not None and m.instance_id is not None:
            self.static.pop(m.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self.pending.pop(member_id, None)
        self.pending_sync.pop(member_id, None)

    def replace_static(self, instance_id: str, old_id: str, new_id: str) -> Member:
        old = self.members.pop(old_id)
        joining, syncing, old.joining, old.syncing = old.joining, old.syncing, None, None
        if joining is not None:
            joining(Joined(Err.FENCED_INSTANCE_ID, old_id))
        if syncing is not None:
            syncing(Synced(Err.FENCED_INSTANCE_ID))
        new = Member(
            new_id, old.instance_id, old.client_id, old.client_host, old.rebalance_ms, old.session_ms, old.protocols,
            old.assignment,
        )  # fmt: skip
        self.members[new_id] = new
        if self.leader == old_id:
            self.leader = new_id
        self.static[instance_id] = new_id
        return new

    def validate(self, member_id: str, instance_id: str | None) -> None:
        if instance_id is not None:
            existing = self.static.get(instance_id)
            if existing is None:
                raise Refused(Err.UNKNOWN_MEMBER_ID)
            if existing != member_id:
                raise Refused(Err.FENCED_INSTANCE_ID)
        if member_id not in self.members:
            raise Refused(Err.UNKNOWN_MEMBER_ID)

    @property
    def all_joined(self) -> bool:
        return not self.pending and all(m.joining is not None for m in self.members.values())

    @property
    def waiting_to_join(self) -> int:
        return sum(m.joining is not None for m in self.members.values())

    @property
    def rebalance_ms(self) -> int:
        return max((m.rebalance_ms for m in self.members.values()), default=0)

    # ---- protocols ------------------------------------------------------------------------------------------
    def supports(self, protocol_type: str, protocols: Sequence[str]) -> bool:
        if self.state is State.EMPTY:
            return bool(protocol_type) and bool(protocols)
        if protocol_type != self.protocol_type:
            return False
        return bool(protocols) if not self.members else any(p in self.candidates() for p in protocols)

    def candidates(self) -> set[str]:
        """Protocols that all members know."""
        sets = [{name for name, _ in m.protocols} for m in self.members.values()]
        return set.intersection(*sets) if sets else set()

    def select(self) -> str:
        candidates = self.candidates()
        votes: dict[str, int] = {}
        for m in self.members.values():
            choice = m.vote(candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return max(hash_order(votes), key=lambda p: votes[p])

    def next_generation(self, now_ms: int) -> None:
        self.generation += 1
        self.protocol = self.select() if self.members else None
        self.subscribed = self.read_subscriptions()
        self.to(State.COMPLETING if self.members else State.EMPTY, now_ms)
        self.pending_sync.clear()

    def read_subscriptions(self) -> frozenset[str] | None:
        """The topics of all members, or None if they cannot be read (computeSubscribedTopics)."""
        if self.protocol_type != CONSUMER:
            return None
        if not self.members:
            return frozenset()
        if self.protocol is None:
            return None
        found: set[str] = set()
        for m in self.members.values():
            said = m.metadata(self.protocol)
            if len(said) < 2:
                return None
            try:
                found.update(cs.ConsumerProtocolSubscription.decode(0, said, 2).topics)
            except WireError:
                return None
        return frozenset(found)

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscribed if self.subscribed is not None else self.protocol_type == CONSUMER

    def to(self, state: State, now_ms: int) -> None:
        self.previous, self.state, self.state_ms = self.state, state, now_ms

    # ---- what is told and stored ----------------------------------------------------------------------------
    def listed(self) -> tuple[tuple[str, str | None, bytes], ...]:
        """For the leader, who assigns."""
        return tuple((m.member_id, m.instance_id, m.metadata(self.protocol)) for m in self.members.values())

    def joined(self, member_id: str, **changed: object) -> Joined:
        members = self.listed() if self.leader == member_id else ()
        said = {"members": members, "leader": self.leader, **changed}
        return Joined(
            Err.NONE,
            member_id,
            self.generation,
            self.protocol_type,
            self.protocol,
            **said,  # type: ignore[arg-type]
        )

    def stored(self, assignment: dict[str, bytes]) -> StoredGroup:
        members = tuple(
            StoredMember(
                m.member_id, m.instance_id, m.client_id, m.client_host, m.rebalance_ms, m.session_ms,
                m.metadata(self.protocol), assignment.get(m.member_id, b""),
            )
            for m in self.members.values()
        )  # fmt: skip
        state_ms = -1 if self.state_ms is None else self.state_ms
        return StoredGroup(self.protocol_type or "", self.generation, self.protocol, self.leader, state_ms, members)


def restored(group_id: str, value: StoredGroup) -> Group:
    """Returns the group that a new leader of the partition makes of the record: each member knows one protocol only."""
    state_ms = None if value.state_ms < 0 else value.state_ms
    state = State.STABLE if value.members else State.EMPTY
    group = Group(group_id, state_ms, state, None, value.generation, value.protocol_type or None, value.protocol)
    group.leader = value.leader
    for m in value.members:
        protocols = ((value.protocol or "", m.subscription),)
        member = Member(
            m.member_id,
            m.instance_id,
            m.client_id,
            m.client_host,
            m.rebalance_ms,
            m.session_ms,
            protocols,
            m.assignment,
        )
        group.add(member, value.protocol_type)
    group.subscribed = group.read_subscriptions()
    return group
