"""What is said of a group. Times are Unix milliseconds; partitions are written TOPIC-N."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sidecar.core.runtime.inspect import Wait, member_name


@dataclass(frozen=True, slots=True)
class Sidecar:
    """Who coordinates the group by the last claim, and since when it has done so without a break."""

    node_id: int
    address: str
    since_ms: int


@dataclass(frozen=True, slots=True)
class Removed:
    """Somebody who was a member. `why`: as the record says it."""

    member: str
    client: str
    at_ms: int
    why: str


@dataclass(frozen=True, slots=True)
class Seen:
    """One member. `epoch`: of the member, or its generation, None if nobody knows it; `state`: a word for where it is;
    `since_ms`: of the record that says so; `next`: what its next heartbeat will bring, in words; `more`: what only this
    kind of group has, by its name in JSON."""

    member: str
    client: str
    host: str
    instance: str
    protocol: str
    epoch: int | None
    state: str
    since_ms: int
    owns: tuple[str, ...] = ()
    gives_up: tuple[str, ...] = ()
    target: tuple[str, ...] = ()
    next: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return member_name(self.member, self.client)


@dataclass(frozen=True, slots=True)
class Explanation:
    """`meaning`: of the state, in words; `epoch` and `assignment_epoch` of a classic group are its generation, None if
    nobody knows it, and the last one that was assigned; `because`: why the last rebalance began, as the record says it;
    `notes`: what else matters, in words; `more`: what only this kind of group has, by its name in JSON; `phases`,
    `epoch_name`, `assignor_name`: those of its kind (core/runtime/inspect.py)."""

    group: str
    kind: str
    state: str
    meaning: str
    stable: bool
    since_ms: int
    epoch: int | None
    assignment_epoch: int
    assignor: str
    because: str
    coordinator: Sidecar | None
    members: tuple[Seen, ...] = ()
    waits: tuple[Wait, ...] = ()
    removed: tuple[Removed, ...] = ()
    notes: tuple[str, ...] = ()
    more: Mapping[str, Any] = field(default_factory=dict)
    phases: bool = False
    epoch_name: str = "epoch"
    assignor_name: str = "assignor"


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
