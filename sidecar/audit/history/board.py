"""A table of all groups of the state topic for `sidecar top`, updated record by record. Pure.

A group's state is rebuilt from its records; offsets and silent members are not in the topic."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from sidecar.audit.history.topic import Raw, RecordsRead
from sidecar.core.runtime.inspect import Heading
from sidecar.core.runtime.records import Role
from sidecar.core.runtime.registry import GroupKind
from sidecar.core.vocabulary.placement import partition_for
from sidecar.state.codec import OWNER_CLAIM, StateCodec
from sidecar.state.fold import PartitionFold
from sidecar.state.keys import StateKey
from sidecar.state.rebuilt import NO_TARGETS, at_once, rebuilt
from sidecar.state.schema import StateError

KEPT_MS = 3_600_000
"""Longest window in which rebalances are counted."""
Row = dict[str, Any]


@dataclass
class Life:
    """A group on the board. `since_ms`: start of its present epoch or state; `rebalances`: start of each; `row`: its
    cached row, None once a record was written after it."""

    kind: str
    since_ms: int
    heading: Heading | None = None
    rebalances: deque[int] = field(default_factory=deque)
    row: Row | None = None


class Board:
    def __init__(self, partitions: int, codec: Callable[[], StateCodec] = StateCodec) -> None:
        """Starts an empty board. `partitions`: how many the state topic has."""
        self._folds = [(PartitionFold(), codec()) for _ in range(partitions)]
        self._groups: dict[str, Life] = {}
        self._owners: dict[int, int] = {}

    def read(self, taken: RecordsRead) -> None:
        """Applies the next records of a partition, in the order of its log."""
        fold, codec = self._folds[taken.partition]
        codec.schemas = taken.schemas
        for raw in taken.records:
            if raw.key is not None:
                self._add(taken.partition, fold, codec, raw, raw.key)

    def _add(self, partition: int, fold: PartitionFold, codec: StateCodec, raw: Raw, key: StateKey) -> None:
        void = fold.owners.void
        fold.apply(raw.offset, key, raw.value, raw.owner_epoch)
        if key.kind == OWNER_CLAIM and raw.value is not None:
            with suppress(StateError):  # an unreadable claim leaves the owner as it was
                self._owners[partition] = codec.claimed_by(raw.value)[0]
        row = codec.registry.records.get(key.kind)
        if row is None or fold.owners.void != void:
            return
        life, name, root = self._groups.get(key.group_id), row.kind.name, row.record.role is Role.GROUP
        if raw.value is None and (life is None or life.kind != name):
            return  # a record of the protocol that the group had before
        if raw.value is None and root:
            del self._groups[key.group_id]
            return
        if life is None or life.kind != name:
            life = self._groups[key.group_id] = Life(name, raw.time_ms)
        life.row = None
        if root and raw.value is not None:
            _head(life, row.kind, codec, raw.value, raw.time_ms)

    def rows(self, now_ms: int, window_ms: int) -> list[Row]:
        """Returns a row for each group. `rebalances`: how many began within the window, KEPT_MS at most; `age_s`: since
        the group's last change of epoch or state, or since its creation."""
        out = []
        for group_id, life in self._groups.items():
            while life.rebalances and life.rebalances[0] < now_ms - KEPT_MS:
                life.rebalances.popleft()
            partition = partition_for(group_id, len(self._folds))
            if life.row is None:
                life.row = self._row(group_id, partition)
            lately = {
                "age_s": max(0, now_ms - life.since_ms) // 1000,
                "rebalances": sum(at >= now_ms - window_ms for at in life.rebalances),
                "node": self._owners.get(partition, ""),
            }
            out.append({"group": group_id, **life.row, **lately})
        return out

    def _row(self, group_id: str, partition: int) -> Row:
        fold, codec = self._folds[partition]
        seen = at_once(rebuilt(codec, list(fold.groups.get(group_id, {}).items()), NO_TARGETS))
        epoch = seen.facts()["epoch"]
        return {
            "type": seen.kind,
            "state": seen.state,
            "members": seen.members,
            "epoch": "" if epoch is None else epoch,
        }


def _head(life: Life, kind: GroupKind, codec: StateCodec, value: bytes, at_ms: int) -> None:
    try:
        heading = kind.inspect.heading(codec.schemas.decode(value))
    except (StateError, KeyError):
        return
    if kind.inspect.begins(life.heading, heading):
        life.rebalances.append(at_ms)
    if heading != life.heading:
        life.since_ms = at_ms
    life.heading = heading
