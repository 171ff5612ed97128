"""Limits on the memory that members take in a sidecar: those of one group, and those of all groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sidecar.core.vocabulary.cache import bytes_of
from sidecar.core.vocabulary.errors import TEXT, Code, CoordinatorError

GROUP_BYTES, MEMBER_BYTES, PROTOCOL_BYTES, NAME_BYTES = 1_500, 1_000, 200, 120
"""About how many bytes each takes beside its text: an empty protocol has 24 times the bytes that it had on the wire."""
COPIES = 2
"""A member's text is kept twice: as in the state topic, by each sidecar, and as used by its owner."""
CLIENT_ID_MAX = 100
"""Characters of a client id that go into a member id. Kafka takes all of them."""
Protocols = Sequence[tuple[str, bytes]]


@dataclass(frozen=True, slots=True)
class MemberLimits:
    """`pending`, `pending_of_one`: member ids that were given out and have not come back (KIP-394), of one partition
    and over one connection; `protocols`: of one member; `group_bytes`, `members_bytes`: of the members of one group and
    of all groups; `held()`: bytes of all members now."""

    pending: int = 2_500
    pending_of_one: int = 100
    protocols: int = 100
    group_bytes: int = 32 << 20
    members_bytes: int = 256 << 20
    held: Callable[[], int] = lambda: 0


@dataclass(slots=True)
class Pending:
    """Member ids that were given out: (group, member id), by the number of the connection, the oldest first. Some are
    no longer pending."""

    _all: dict[tuple[str, str], int] = field(default_factory=dict)
    _of: dict[int, dict[tuple[str, str], None]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._all)

    def add(self, key: tuple[str, str], connection: int, limits: MemberLimits) -> list[tuple[str, str]]:
        """Adds a member id. Returns the ids that this pushes out: the oldest of this connection, and the oldest of
        all."""
        self._all[key] = connection
        own = self._of.setdefault(connection, {})
        own[key] = None
        evicted = [next(iter(own))] if len(own) > limits.pending_of_one else []
        for each in evicted:
            self.drop(each)
        while len(self._all) > limits.pending:
            evicted.append(next(iter(self._all)))
            self.drop(evicted[-1])
        return evicted

    def drop(self, key: tuple[str, str]) -> None:
        connection = self._all.pop(key, None)
        if connection is not None:
            own = self._of[connection]
            del own[key]
            if not own:
                del self._of[connection]


def check_room(limits: MemberLimits, has: int, more: int) -> None:
    """Raises CoordinatorError if `more` bytes do not fit into the group, which has `has` bytes, or into all groups. A
    member that needs no more than before is never refused. Without room for all groups, the client may retry: its group
    is not the cause."""
    if more <= 0:
        return
    if has + more > limits.group_bytes:
        raise CoordinatorError(
            Code.GROUP_MAX_SIZE_REACHED, f"The group has reached its maximum of {limits.group_bytes} bytes.", "bytes"
        )
    if limits.held() + more > limits.members_bytes:
        raise CoordinatorError(Code.COORDINATOR_LOAD_IN_PROGRESS, TEXT[Code.COORDINATOR_LOAD_IN_PROGRESS], "bytes")


def bytes_of_assignment(assignment: bytes) -> int:
    return COPIES * len(assignment)


def check_assignments(limits: MemberLimits, has: int, now: Mapping[str, bytes], given: Mapping[str, bytes]) -> None:
    """Raises CoordinatorError if the new assignments `given` do not fit; `now`: the members' present ones. A leader
    whose group becomes too large gets UNKNOWN_SERVER_ERROR, as for a record that is too large in Kafka."""
    more = sum(map(bytes_of_assignment, given.values()))
    more -= sum(bytes_of_assignment(now.get(member_id, b"")) for member_id in given)
    try:
        check_room(limits, has, more)
    except CoordinatorError as full:
        code = Code.UNKNOWN_SERVER_ERROR if full.code == Code.GROUP_MAX_SIZE_REACHED else full.code
        raise CoordinatorError(code, full.message, full.limit) from None


def check_protocols(limits: MemberLimits, protocols: Protocols) -> None:
    if len(protocols) > limits.protocols:
        raise CoordinatorError(
            Code.INCONSISTENT_GROUP_PROTOCOL, f"A member names at most {limits.protocols} protocols.", "protocols"
        )


def bytes_of_member(member_id: str, *texts: str | None) -> int:
    """About how many bytes a member takes. Its id is also in the key of each of its records."""
    return MEMBER_BYTES + COPIES * (2 * bytes_of(member_id) + sum(bytes_of(t) for t in texts if t))


def bytes_of_protocols(protocols: Protocols) -> int:
    return sum(PROTOCOL_BYTES + COPIES * (bytes_of(name) + len(metadata)) for name, metadata in protocols)


def bytes_of_record(names: Iterable[str], regex: str | None) -> int:
    """Bytes of this subscription in the record of each member that has it."""
    return sum(map(bytes_of, names)) + (bytes_of(regex) if regex else 0)


def bytes_of_names(names: Sequence[str], record_bytes: int) -> int:
    """Bytes of a subscription in the group's memory, counted once for all members that share it."""
    return NAME_BYTES * len(names) + record_bytes


def new_member_id(client_id: str, new_id: str) -> str:
    return f"{client_id[:CLIENT_ID_MAX]}-{new_id}"
