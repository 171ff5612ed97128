"""Explanations of a group, as data. Times are Unix milliseconds; partitions are written TOPIC-N."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sidecar.core.runtime.inspect import Wait, member_name


@dataclass(frozen=True, slots=True)
class Sidecar:
    """The group's coordinator by the last claim. `since_ms`: start of its uninterrupted ownership; `exact` False: or
    earlier, because the claim before is missing."""

    node_id: int
    address: str
    since_ms: int
    exact: bool = True

    @property
    def since(self) -> str:
        """Words before the time."""
        return "since" if self.exact else "at least since"


@dataclass(frozen=True, slots=True)
class Removed:
    """A former member. `why`: the reason in its last record."""

    member: str
    client: str
    at_ms: int
    why: str


@dataclass(frozen=True, slots=True)
class Seen:
    """A member. `epoch`: its member epoch or generation, None if unknown; `state`: its progress towards the target, in
    a word or two; `since_ms`: time of the record that shows this; `next`: effect of its next heartbeat, in words;
    `more`: facts that only this kind of group has, by their names in JSON."""

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
    """An explanation. `meaning`: the state in words; `epoch` and `assignment_epoch` of a classic group: its generation,
    None if unknown, and the last one with assignments; `because`: why the last rebalance began, from the record;
    `notes`: further facts, in words; `more`: facts that only this kind of group has, by their names in JSON; `phases`,
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
    """A partition's move from member `holder` to member `to`; either may be empty, for no member. `anyway`: it would
    also come without the change in question."""

    partition: str
    holder: str
    to: str
    anyway: bool


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The outcome of a dry run. `kept`: partitions that stay with their members. `note`: why moves are unknown; then
    there are none here."""

    group: str
    leaves: tuple[str, ...]
    joins: int
    assignor: str = ""
    moves: tuple[Move, ...] = ()
    kept: int = 0
    note: str = ""


class ExplainError(Exception):
    """The group cannot be explained. The text says why, `then` what to do next."""

    def __init__(self, what: str, then: str) -> None:
        super().__init__(what)
        self.then = then
