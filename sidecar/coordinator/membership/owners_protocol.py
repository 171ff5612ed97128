"""The payloads of the owners' group: the metadata of each member (SidecarInfo), and the owner map that its leader makes
(Assignment). Kafka's classes of this kind are ConsumerProtocolSubscription and ConsumerProtocolAssignment."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from sidecar.coordinator.membership.peer_links import Peer

OwnPatterns = dict[str, list[str]]
"""`include` and `exclude` patterns of a sidecar's own settings."""


METADATA_BYTES_MAX = 262_144
"""Size limit of a member's metadata; longer ones are not decoded."""
DECODE_ERRORS = (KeyError, TypeError, AttributeError, ValueError, OverflowError, RecursionError, IndexError)
"""The errors that decoding raises on bytes that are no JSON, or JSON of another shape."""
NODE_MAX = 0x7FFFFFFF
NO_GENERATION = -1
"""The generation of a sidecar that has no owner map, or is out of the owners' group."""
EVERY_GENERATION = 1 << 31
"""Greater than any generation of the owners' group."""
FORMER_MAX = 8
KINDS_MAX = 16
VERSION_MAX = 64
KINDS_BEFORE = ("classic", "consumer")
"""The kinds of a sidecar whose info has no `kinds`: the versions before share groups coordinate these."""


def own_patterns(patterns: Any) -> OwnPatterns:
    """Returns the patterns that a peer wrote, perhaps in another version, with both names and sorted."""
    return {name: sorted(map(str, patterns.get(name, ()))) for name in ("include", "exclude")}


@dataclass(frozen=True)
class SidecarInfo:
    """A sidecar's description of itself. `host`, `port`: its broker's address; `started_ms`: start, Unix time;
    `peer_port`: the port for pings, 0: none; `left_ms`: Unix time at which it left in order, 0: it has not;
    `gave_up`: it answers for no partition that the map of this generation gives to others; `former`: the last member
    ids of the same process before this one, under which it answers for nothing any more; `kinds`: the kinds of groups
    that it coordinates; `version`: its package's version."""

    node_id: int
    host: str
    port: int
    started_ms: int = 0
    peer_port: int = 0
    patterns: OwnPatterns = field(default_factory=dict)
    left_ms: int = 0
    gave_up: int = -1
    former: tuple[str, ...] = ()
    kinds: tuple[str, ...] = KINDS_BEFORE
    version: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def encode(self) -> bytes:
        return json.dumps(self.as_dict()).encode()

    @staticmethod
    def decode(raw: bytes) -> SidecarInfo:
        """Returns the decoded info. Raises ValueError, and nothing else, on any bytes that a stranger wrote."""
        if len(raw) > METADATA_BYTES_MAX:
            raise ValueError(f"{len(raw)} bytes")
        try:
            j = json.loads(raw)
            where = (int(j["node_id"]), str(j["host"]), int(j["port"]))
            if not 0 <= where[0] <= NODE_MAX:
                raise ValueError(f"no node has id {where[0]}")
            patterns = own_patterns(j["patterns"]) if j.get("patterns") else {}
            since = (int(j.get("started_ms", 0)), int(j.get("peer_port", 0)))
            former = tuple(map(str, j.get("former", ())[:FORMER_MAX]))
            kinds = tuple(map(str, j.get("kinds", KINDS_BEFORE)[:KINDS_MAX]))
            left = (int(j.get("left_ms", 0)), int(j.get("gave_up", -1)))
            version = str(j.get("version", ""))[:VERSION_MAX]
            return SidecarInfo(*where, *since, patterns, *left, former, kinds, version)
        except DECODE_ERRORS as exc:
            raise ValueError(repr(exc)) from None


def joining(info: SidecarInfo, barriers: Collection[int]) -> bytes:
    """The metadata of a sidecar's JoinGroup. `barriers`: its partitions with groups in the middle of a rebalance."""
    return json.dumps({**info.as_dict(), "barriers": sorted(barriers)}).encode()


def barriers_of(raw: bytes) -> frozenset[int]:
    """Returns the barriers in a member's JoinGroup metadata; none if the bytes are not a sidecar's."""
    if len(raw) > METADATA_BYTES_MAX:
        return frozenset()
    try:
        return frozenset(int(p) for p in json.loads(raw).get("barriers", ()))
    except DECODE_ERRORS:
        return frozenset()


@dataclass(frozen=True)
class Assignment:
    """The whole owner map, the same for every member. `owners`: node id by partition; `members`: node id -> (member id,
    host, port); `patterns`: node id -> patterns of this sidecar's own settings, if it has sent them; `peer_ports`: node
    id -> port for pings, 0: none; `kinds`: node id -> kinds of groups that it coordinates."""

    generation: int = NO_GENERATION
    owners: tuple[int, ...] = ()
    members: Mapping[int, tuple[str, str, int]] = field(default_factory=dict)
    patterns: Mapping[int, OwnPatterns] = field(default_factory=dict)
    peer_ports: Mapping[int, int] = field(default_factory=dict)
    kinds: Mapping[int, Sequence[str]] = field(default_factory=dict)

    def encode(self) -> bytes:
        members = {str(n): list(m) for n, m in self.members.items()}
        patterns = {str(n): p for n, p in self.patterns.items()}
        ports = {str(n): p for n, p in self.peer_ports.items()}
        kinds = {str(n): list(k) for n, k in self.kinds.items()}
        fields = {"owners": list(self.owners), "members": members, "patterns": patterns, "peer_ports": ports}
        return json.dumps({**fields, "kinds": kinds}).encode()

    @staticmethod
    def decode(generation: int, raw: bytes) -> Assignment:
        """Returns the decoded map. Raises ValueError, and nothing else, on any bytes of a stranger that leads."""
        try:
            j = json.loads(raw)
            members = {int(n): (str(m[0]), str(m[1]), int(m[2])) for n, m in j["members"].items()}
            patterns = {int(n): own_patterns(p) for n, p in j.get("patterns", {}).items()}
            ports = {int(n): int(p) for n, p in j.get("peer_ports", {}).items()}
            kinds = {int(n): tuple(map(str, k)) for n, k in j.get("kinds", {}).items()}
            return Assignment(generation, tuple(int(n) for n in j["owners"]), members, patterns, ports, kinds)
        except DECODE_ERRORS as exc:
            raise ValueError(repr(exc)) from None

    def owner_of(self, partition: int) -> int:
        return self.owners[partition] if partition < len(self.owners) else -1

    def lacking(self, kind: str) -> list[int]:
        """Returns the nodes whose sidecars do not coordinate this kind of groups, or do not send their kinds because
        they or the group's leader are of an older version."""
        return sorted(n for n in self.members if kind not in self.kinds.get(n, KINDS_BEFORE))

    def peers(self) -> dict[int, Peer]:
        return {n: Peer(*member, self.peer_ports.get(n, 0)) for n, member in self.members.items()}
