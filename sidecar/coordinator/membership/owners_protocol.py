"""What goes through the owners' group: the metadata of each member (SidecarInfo), and the map of owners that its leader
makes (Assignment). Kafka's classes of this kind are ConsumerProtocolSubscription and ConsumerProtocolAssignment."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from sidecar.coordinator.membership.peer_links import Peer

OwnPatterns = dict[str, list[str]]
"""`include` and `exclude` of a sidecar's own settings."""


SAID_BYTES = 262_144
"""What a member says is not looked at if it is longer."""
NOT_SO = (KeyError, TypeError, AttributeError, ValueError, OverflowError, RecursionError, IndexError)
"""What comes of JSON that is none, or that says something else than it should."""
NODE_MAX = 0x7FFFFFFF
EVERY_GENERATION = 1 << 31
"""Greater than any generation of the owners' group."""
FORMER_MAX = 8
KINDS_MAX = 16
VERSION_MAX = 64
KINDS_BEFORE = ("classic", "consumer")
"""Kinds of groups that a sidecar coordinates which does not tell it: those of the versions before share groups."""


def own_patterns(told: Any) -> OwnPatterns:
    """As a peer wrote it, which may be of another version."""
    return {name: sorted(map(str, told.get(name, ()))) for name in ("include", "exclude")}


@dataclass(frozen=True)
class SidecarInfo:
    """What a sidecar says of itself when it joins. `host`, `port`: of its broker; `started_ms`: Unix time;
    `peer_port`: where it answers pings, 0: nowhere; `left_ms`: when it left in order, Unix time, 0: it has not;
    `gave_up`: it answers for nothing that the map of this generation gives to others; `former`: member ids under which
    the same process was a member before, the last ones, and under which it answers for nothing any more; `kinds`: of
    groups that it coordinates; `version`: of its package."""

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

    def told(self) -> dict[str, Any]:
        return asdict(self)

    def encode(self) -> bytes:
        return json.dumps(self.told()).encode()

    @staticmethod
    def decode(raw: bytes) -> SidecarInfo:
        """Raises ValueError, and nothing else, whatever a stranger wrote."""
        if len(raw) > SAID_BYTES:
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
        except NOT_SO as exc:
            raise ValueError(repr(exc)) from None


def joining(said: SidecarInfo, barriers: Collection[int]) -> bytes:
    """The metadata of a sidecar's JoinGroup. `barriers`: its partitions with groups in the middle of a rebalance."""
    return json.dumps({**said.told(), "barriers": sorted(barriers)}).encode()


def barriers_of(raw: bytes) -> frozenset[int]:
    """Nothing, if these bytes are a stranger's."""
    if len(raw) > SAID_BYTES:
        return frozenset()
    try:
        return frozenset(int(p) for p in json.loads(raw).get("barriers", ()))
    except NOT_SO:
        return frozenset()


@dataclass(frozen=True)
class Assignment:
    """The whole map, known to every member. `members`: node id -> (member id, host, port); `patterns`: node id -> which
    groups this sidecar's own settings name, of those that tell it; `peer_ports`: node id -> where it answers pings, of
    those that do; `kinds`: node id -> kinds of groups that it coordinates."""

    generation: int = -1
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
        told = {"owners": list(self.owners), "members": members, "patterns": patterns, "peer_ports": ports}
        return json.dumps({**told, "kinds": kinds}).encode()

    @staticmethod
    def decode(generation: int, raw: bytes) -> Assignment:
        """Raises ValueError, and nothing else, whatever a stranger wrote who leads the group."""
        try:
            j = json.loads(raw)
            members = {int(n): (str(m[0]), str(m[1]), int(m[2])) for n, m in j["members"].items()}
            patterns = {int(n): own_patterns(p) for n, p in j.get("patterns", {}).items()}
            ports = {int(n): int(p) for n, p in j.get("peer_ports", {}).items()}
            kinds = {int(n): tuple(map(str, k)) for n, k in j.get("kinds", {}).items()}
            return Assignment(generation, tuple(int(n) for n in j["owners"]), members, patterns, ports, kinds)
        except NOT_SO as exc:
            raise ValueError(repr(exc)) from None

    def owner_of(self, partition: int) -> int:
        return self.owners[partition] if partition < len(self.owners) else -1

    def lacking(self, kind: str) -> list[int]:
        """Sidecars that do not coordinate this kind of groups, or whose leader is of a version that does not tell."""
        return sorted(n for n in self.members if kind not in self.kinds.get(n, KINDS_BEFORE))

    def peers(self) -> dict[int, Peer]:
        return {n: Peer(*member, self.peer_ports.get(n, 0)) for n, member in self.members.items()}
