"""What is said of a group. Times are Unix milliseconds; partitions are written TOPIC-N."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Sidecar:
    """Who coordinates the group by the last claim, and since when it has done so without a break."""

    node_id: int
    address: str
    since_ms: int


@dataclass(frozen=True, slots=True)
class Wait:
    """`member` is to get `partitions`, which `holder` has still. `since_ms`: of the last record of the holder's, which
    says what it owns; `told`: it was told to give them up; `until_ms`: then it is removed, None if nobody knows."""

    member: str
    partitions: tuple[str, ...]
    holder: str
    since_ms: int
    told: bool
    until_ms: int | None


@dataclass(frozen=True, slots=True)
class Removed:
    """Somebody who was a member. `why`: as the record says it."""

    member: str
    client: str
    at_ms: int
    why: str


@dataclass(frozen=True, slots=True)
class Seen:
    """One member. `epoch`: of the member, or its generation; `state`: a word for where it is; `since_ms`: of the record
    that says so; `next`: what its next heartbeat will bring, in words."""

    member: str
    client: str
    host: str
    instance: str
    protocol: str
    epoch: int
    state: str
    since_ms: int
    owns: tuple[str, ...] = ()
    gives_up: tuple[str, ...] = ()
    target: tuple[str, ...] = ()
    next: str = ""

    @property
    def name(self) -> str:
        """As people know it, and no other member is called."""
        return f"{self.member} ({self.client})" if self.client and self.client not in self.member else self.member


@dataclass(frozen=True, slots=True)
class Explanation:
    """`epoch` and `assignment_epoch` of a classic group are its generation, and the last one that was assigned;
    `because`: why the last rebalance began, as the record says it; `notes`: what else matters, in words."""

    group: str
    kind: str
    state: str
    stable: bool
    since_ms: int
    epoch: int
    assignment_epoch: int
    assignor: str
    because: str
    coordinator: Sidecar | None
    members: tuple[Seen, ...] = ()
    waits: tuple[Wait, ...] = ()
    removed: tuple[Removed, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Move:
    """`anyway`: it would come without the change that was asked about, too. `holder` and `to` may be empty: nobody."""

    partition: str
    holder: str
    to: str
    anyway: bool


@dataclass(frozen=True, slots=True)
class WhatIf:
    """`kept`: partitions that stay with their members. `note`: why there are no moves to tell; then there are none."""

    group: str
    leaves: tuple[str, ...]
    joins: int
    assignor: str
    moves: tuple[Move, ...] = ()
    kept: int = 0
    note: str = ""


@dataclass(frozen=True, slots=True)
class Live:
    """What only the owner of the group knows, as its admin address tells it. `joined`, `not_synced`: members of a
    classic group in the rebalance under way; `to_come`: ids that were given out and have not come back;
    `assignor_runs`: which one, if any does; `failures`: of the assignor, in a row; `silence_left_ms`: by member."""

    joined: frozenset[str] = frozenset()
    to_come: frozenset[str] = frozenset()
    not_synced: frozenset[str] = frozenset()
    assignor_runs: str = ""
    failures: int = 0
    silence_left_ms: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Live:
        sets = {name: frozenset(told.get(name, ())) for name in ("joined", "to_come", "not_synced")}
        runs, failures = told.get("assignor_runs", ""), told.get("failures", 0)
        return cls(**sets, assignor_runs=runs, failures=failures, silence_left_ms=told.get("silence_left_ms", {}))


class ExplainError(Exception):
    """The question cannot be answered. The text says why, `then` what to do next."""

    def __init__(self, what: str, then: str) -> None:
        super().__init__(what)
        self.then = then


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is told. `removed`: of those who left, the last so many."""

    removed: int = 10
    names: int = field(default=8)
    """Partitions and members by name; more are counted."""
