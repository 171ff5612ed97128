"""The facts about a cluster, and the result of a check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sidecar.core.vocabulary import group_config as cf
from sidecar.core.vocabulary.group_patterns import split
from sidecar.process.rights import ALL, Scope

Configs = Mapping[str, str]


class Status(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Check:
    """Result of a check. `remedy`: what to do, empty if all is well."""

    name: str
    status: Status
    finding: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Stands in the place of a fact that could not be learned. `why` names the missing right or option."""

    why: str


@dataclass(frozen=True, slots=True)
class Node:
    """A node of the clients' listener. `sidecar`: whether a sidecar answers at its address; None: nobody does."""

    node_id: int
    address: str
    sidecar: bool | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic. `leaderless`, `behind`: partitions without a leader, or with a replica that is not in sync; `replicas`:
    of the partition that has fewest; `has_id`: brokers before 2.8 give no ids; `nodes`: brokers that have replicas."""

    partitions: int
    replicas: int
    leaderless: tuple[int, ...] = ()
    behind: tuple[int, ...] = ()
    has_id: bool = True
    nodes: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class About:
    """A sidecar by its admin address. `skew_ms`: its clock minus this machine's; `problems`: of /readyz; `owners`: node
    ids by partition of the state topic; `denials`: the brokers' present refusals to it, `last_denial`: the last one;
    `certificate_ends_ms`: 0 without TLS."""

    admin: str
    version: str
    node_id: int
    settings: Mapping[str, Any]
    skew_ms: int
    problems: tuple[str, ...] = ()
    owners: tuple[int, ...] = ()
    kernel: str = ""
    denials: tuple[Mapping[str, Any], ...] = ()
    last_denial: Mapping[str, Any] | None = None
    certificate_ends_ms: int = 0


@dataclass(frozen=True, slots=True)
class Grant:
    """One ACL. `kind`: topic, group, transactional-id or cluster; `allow` False: it denies; `host`: the client's."""

    principal: str
    kind: str
    name: str
    prefixed: bool
    operation: str
    allow: bool
    host: str = "*"


@dataclass(frozen=True, slots=True)
class Rights:
    """The ACLs and their rules. `enforced` False: the brokers have no authorizer. `principal` empty: the sidecars'
    principal was not given. `open`: every principal may use a resource without ACLs."""

    enforced: bool
    principal: str = ""
    super_users: tuple[str, ...] = ()
    grants: tuple[Grant, ...] = ()
    open: bool = False


@dataclass
class Facts:
    """The facts. `brokers`: settings of each broker by node id; `sidecars`: those whose admin address was given;
    `stored`: the patterns of groups in the state topic, which replace the sidecars' own; `bootstrap`: for the commands
    in remedies; `readers`: groups with a member that is assigned partitions of the state topic."""

    state_topic: str
    nodes: list[Node] | Unknown = field(default_factory=list)
    topics: Mapping[str, Topic] | Unknown = field(default_factory=dict)
    state_configs: Configs | Unknown = field(default_factory=dict)
    brokers: Mapping[int, Configs | Unknown] | Unknown = field(default_factory=dict)
    sidecars: list[About | Unknown] = field(default_factory=list)
    stored: Configs | Unknown = field(default_factory=dict)
    rights: Rights | Unknown = field(default_factory=lambda: Rights(enforced=False))
    bootstrap: str = "HOST:PORT"
    scope: Scope = ALL
    readers: tuple[str, ...] | Unknown = ()

    def setting(self, name: str, otherwise: Any) -> Any:
        """Returns a setting of the first sidecar that has answered it; else the default."""
        for s in self.sidecars:
            if isinstance(s, About) and name in s.settings:
                return s.settings[name]
        return otherwise

    def patterns(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Returns the patterns in force, to include and to exclude: the stored ones, or else the sidecars' own."""
        patterns = []
        for name in cf.BROKER_MOVES:
            stored = None if isinstance(self.stored, Unknown) else self.stored.get(name)
            patterns.append(tuple(self.setting(name.removeprefix("sidecar."), ())) if stored is None else split(stored))
        return patterns[0], patterns[1]

    def answered(self) -> list[About]:
        return [s for s in self.sidecars if isinstance(s, About)]
