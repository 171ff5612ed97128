"""The hard state of one classic group, its replay, and its questions: which protocol its members have in common, and
whether a member and a generation are the group's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from sidecar.core.classic.config import CLASSIC
from sidecar.core.classic.embedded import CONSUMER_TYPE, topics_of
from sidecar.core.classic.events import Protocols
from sidecar.core.classic.records import TRANSITIONS, AssignmentRecord, GroupRecord, Kind, MemberRecord, State
from sidecar.core.runtime.events import DeletionCheckReply
from sidecar.core.runtime.member_limits import bytes_of_assignment, bytes_of_member, bytes_of_protocols
from sidecar.core.runtime.records import Record, Tombstone
from sidecar.core.vocabulary.errors import Code, CoordinatorError, InvariantError

Member = MemberRecord


@dataclass(slots=True)
class ClassicGroup:
    """Hard state of a classic group. All of it comes from records, or is derived from them."""

    group_id: str
    state: State = State.EMPTY
    generation: int = 0
    type: str | None = None
    """The protocol type that the first member sent."""
    protocol: str | None = None
    leader: str | None = None
    """The leader; may have left while the group prepares a rebalance, whose end names a new one."""
    assigned_generation: int = -1
    since_ms: int = 0
    adopted: bool = False
    """Whether the members came from the broker's group, and their generation is unknown (adoption.py)."""
    members: dict[str, Member] = field(default_factory=dict)
    assignments: dict[str, bytes] = field(default_factory=dict)
    static: dict[str, str] = field(default_factory=dict)
    """Instance id -> member id (KIP-345)."""
    supported: Counter[str] = field(default_factory=Counter)
    """Number of members by protocol that they support."""
    held_bytes: int = 0

    kind = CLASSIC

    @property
    def protocol_type(self) -> str:
        return self.type or ""

    def state_name(self) -> str:
        return str(self.state)

    def member_count(self) -> int:
        return len(self.members)

    def member_ids(self) -> Collection[str]:
        return self.members.keys()

    def deletion_check(self) -> DeletionCheckReply:
        active = self.state is not State.EMPTY
        topics = self.subscribed_topics()
        return DeletionCheckReply(
            exists=True,
            kind=self.kind,
            members=max(len(self.members), int(active)),
            subscribed=topics or frozenset(),
            subscribed_all=topics is None,
            opaque=active and self.type != CONSUMER_TYPE,
        )

    def subscribed_topics(self) -> frozenset[str] | None:
        """Returns the topics of its consumers, by the protocol of the last generation; None: unknown."""
        subscribed: set[str] = set()
        for member in self.members.values() if self.type == CONSUMER_TYPE else ():
            try:
                topics = topics_of(member.metadata(self.protocol))
            except KeyError:
                return None
            if topics is None:
                return None
            subscribed.update(topics)
        return frozenset(subscribed)

    # ---- questions ----------------------------------------------------------------------------------------
    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols may be in the group."""
        if self.state is State.EMPTY:
            return bool(protocol_type) and bool(protocols)
        count = len(self.members)
        return self.type == protocol_type and any(self.supported.get(name, 0) == count for name, _ in protocols)

    def select_protocol(self) -> str:
        """Returns the protocol with the most votes. Each member votes for the first of its protocols that all members
        support; of equals the first in the alphabet wins."""
        count = len(self.members)
        votes: Counter[str] = Counter()
        for member in self.members.values():
            for name, _ in member.protocols:
                if self.supported[name] == count:
                    votes[name] += 1
                    break
        return min(votes, key=lambda name: (-votes[name], name))

    def in_generation(self, generation: int) -> bool:
        """Whether the group accepts this generation from a member."""
        return generation == self.generation or (self.adopted and generation >= max(0, self.generation))

    def knows_its_id(self, member: Member) -> bool:
        """Whether the client of this member has received its member id."""
        return member.id_told or member.generation < self.generation

    def rebalance_timeout_ms(self) -> int:
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    def validate(self, member_id: str, instance_id: str | None) -> Member:
        """Returns the member, if the caller is it. Raises FENCED_INSTANCE_ID or UNKNOWN_MEMBER_ID."""
        if instance_id is not None:
            holder = self.static.get(instance_id)
            if holder is None:
                raise CoordinatorError(Code.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
            if holder != member_id:
                raise CoordinatorError(
                    Code.FENCED_INSTANCE_ID, f"Instance id {instance_id} is held by {holder}, not by {member_id}."
                )
        member = self.members.get(member_id)
        if member is None:
            raise CoordinatorError(
                Code.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    # ---- replay -------------------------------------------------------------------------------------------
    def replay(self, r: Record) -> None:
        """Applies one record. Tolerates the leftovers of compaction: assignments of members that are gone."""
        apply = _APPLY.get(type(r))
        if apply is None:
            raise InvariantError(f"group {self.group_id}: a classic group has no record {type(r).__name__}")
        apply(self, r)

    def _replay_group(self, r: GroupRecord) -> None:
        self.state, self.generation, self.leader = r.state, r.generation, r.leader
        self.type, self.protocol = r.protocol_type, r.protocol
        self.assigned_generation, self.since_ms, self.adopted = r.assigned_generation, r.since_ms, r.adopted

    def _replay_member(self, r: MemberRecord) -> None:
        old = self.members.get(r.member_id)
        if old is None or old.instance_id != r.instance_id or _names(old) != _names(r):
            self._remove(r.member_id)
            for name in _names(r):  # Counter.update is slow
                self.supported[name] += 1
        self.held_bytes += bytes_of(r) - (0 if old is None else bytes_of(old))
        self.members[r.member_id] = r
        if r.instance_id is not None:
            self.static[r.instance_id] = r.member_id

    def _replay_assignment(self, r: AssignmentRecord) -> None:
        before = self.assignments.get(r.member_id, b"")
        self.held_bytes += bytes_of_assignment(r.assignment) - bytes_of_assignment(before)
        self.assignments[r.member_id] = r.assignment

    def _replay_tombstone(self, r: Tombstone) -> None:
        if r.kind == Kind.MEMBER:
            self._remove(r.sub_id)
            gone = self.members.pop(r.sub_id, None)
            self.held_bytes -= 0 if gone is None else bytes_of(gone)
        elif r.kind == Kind.ASSIGNMENT:
            self.held_bytes -= bytes_of_assignment(self.assignments.pop(r.sub_id, b""))

    def _remove(self, member_id: str) -> None:
        """Takes this member out of the counts; it keeps its place in the order of members."""
        old = self.members.get(member_id)
        if old is None:
            return
        for name in _names(old):
            self.supported[name] -= 1
            if not self.supported[name]:
                del self.supported[name]
        if old.instance_id is not None and self.static.get(old.instance_id) == member_id:
            del self.static[old.instance_id]

    def tombstones(self, why: str) -> list[Tombstone]:
        """Returns a tombstone for every key of the group, the root last."""
        keys: list[tuple[Kind, Collection[str]]] = [
            (Kind.ASSIGNMENT, self.assignments),
            (Kind.MEMBER, self.members),
            (Kind.GROUP, ("",)),
        ]
        return [Tombstone(kind, self.group_id, sub_id, why) for kind, sub_ids in keys for sub_id in sub_ids]


_APPLY: dict[type, Callable[[ClassicGroup, Any], None]] = {
    GroupRecord: ClassicGroup._replay_group,
    MemberRecord: ClassicGroup._replay_member,
    AssignmentRecord: ClassicGroup._replay_assignment,
    Tombstone: ClassicGroup._replay_tombstone,
}


def _names(member: Member) -> set[str]:
    """Returns each protocol once, even if the client lists it twice."""
    return {name for name, _ in member.protocols}


def bytes_of(m: Member) -> int:
    """Returns about how many bytes a member takes in memory."""
    return bytes_of_member(m.member_id, m.instance_id, m.client_id, m.client_host) + bytes_of_protocols(m.protocols)


def may_follow(old: State, new: State) -> bool:
    return new in TRANSITIONS[old]


def classic_group(groups: Mapping[str, Any], group_id: str) -> ClassicGroup | None:
    """Returns the group, if it exists and is classic."""
    group = groups.get(group_id)
    return group if type(group) is ClassicGroup else None
