"""The groups as a list, for people: one row for each, from this sidecar's copy of the state topic.

Rows are made on the first question, and then anew for groups with later records. All work is done in small steps
(generators that yield), as there may be 100,000 groups and the loop has clients to serve.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from sidecar.coordinator.inspect.rebalance_history import RebalanceHistory
from sidecar.coordinator.statelog.tail import StateLog
from sidecar.core.vocabulary.placement import partition_for
from sidecar.state.codec import StateCodec
from sidecar.state.keys import StateKey
from sidecar.state.rebuilt import NO_TARGETS, rebuilt

SLICE = 250
"""Rows of one step, before the loop turns."""
SORTS = ("group", "kind", "state", "members", "epoch", "changed", "owner")
OTHER = "other"
"""The kind of a group whose records cannot be read."""
UNKNOWN_EPOCH = UNKNOWN_MEMBERS = -1
Slices = Generator[None, None, Any]


@dataclass(slots=True)
class Row:
    """One group in the list. `epoch`: or generation; UNKNOWN_EPOCH if it cannot be read. `changed_ms`, `why`: time and
    reason of the last record of the group itself; where there is none yet, of its first record. `broker`: node id of
    the broker that coordinates the group, -1 for a group of the sidecars."""

    group: str
    partition: int
    kind: str
    state: str
    epoch: int
    members: int
    changed_ms: int
    why: str
    broker: int = -1


class Rows:
    def __init__(
        self,
        state: StateLog,
        codec: StateCodec,
        history: RebalanceHistory,
        owner: Callable[[int], int],
        listed: Callable[[], Iterable[Row]],
    ) -> None:
        """`owner(partition)`: node id of the owner, -1 if there is none; `listed()`: the groups that brokers list."""
        self._state = state
        self._codec = codec
        self._history = history
        self._owner = owner
        self._listed = listed
        self._rows: list[dict[str, Row]] = [{} for _ in state.partitions]
        self._todo: dict[str, int] = {}

    def version(self) -> int:
        """Returns a number that rises with each record of the topic."""
        return sum(p.position for p in self._state.partitions)

    def refresh(self) -> Slices:
        """Brings the rows up to date. A refresh that ends early loses nothing: the next one goes on."""
        touched = self._history.take_touched()
        if touched is None:
            for number, fold in enumerate(self._state.partitions):
                self._todo.update(dict.fromkeys((*fold.groups, *self._rows[number]), number))
                yield
        else:
            parts = len(self._state.partitions)
            for i, group_id in enumerate(touched):
                self._todo[group_id] = partition_for(group_id, parts)
                if i % SLICE == SLICE - 1:
                    yield
        while self._todo:
            group_id, number = self._todo.popitem()
            values = self._state.partitions[number].groups.get(group_id)
            if values is None:
                self._rows[number].pop(group_id, None)
            else:
                self._rows[number][group_id] = yield from self._row(group_id, number, list(values.items()))
            yield

    def _row(self, group_id: str, partition: int, values: list[tuple[StateKey, bytes]]) -> Slices:
        seen = yield from rebuilt(self._codec, values, NO_TARGETS)
        epoch = seen.facts()["epoch"]
        head = (seen.kind or OTHER, seen.state, UNKNOWN_EPOCH if epoch is None else epoch, seen.members)
        return Row(group_id, partition, *head, seen.changed_ms, seen.why)

    # ---- questions ----------------------------------------------------------------------------------------
    def _all(self) -> Iterator[list[Row]]:
        """Yields all rows in slices, without the placeholders that brokers list for groups of the sidecars."""
        rows = [*chain.from_iterable(of.values() for of in self._rows), *self._listed()]
        for at in range(0, len(rows), SLICE):
            yield [r for r in rows[at : at + SLICE] if r.broker < 0 or r.group not in self._rows[r.partition]]

    def owner(self, row: Row) -> int:
        """Returns the node id of the sidecar or broker that coordinates the group; -1 if there is none."""
        return self._owner(row.partition) if row.broker < 0 else row.broker

    def row(self, group_id: str) -> Row | None:
        """Returns the row of a group of the sidecars; None for any other group."""
        return self._rows[partition_for(group_id, len(self._rows))].get(group_id)

    def find(self, search: str, kind: str, state: str, sort: str, begin: int, limit: int) -> Slices:
        """Returns how many rows match, and one page of them. A `-` before `sort` reverses the order."""
        text, name = search.lower(), sort.removeprefix("-")
        down = sort.startswith("-")
        key = self._key(name)
        parts: list[list[Row]] = []
        for rows in self._all():
            yield
            fit = [r for r in rows if _fits(r, text, kind, state)]
            fit.sort(key=key, reverse=down)
            parts.append(fit)
        yield
        merged = heapq.merge(*parts, key=key, reverse=down)
        passed = 0
        while passed < begin:
            step = min(SLICE, begin - passed)
            for _ in islice(merged, step):
                pass
            passed += step
            yield
        return sum(map(len, parts)), list(islice(merged, limit))

    def _key(self, name: str) -> Callable[[Row], Any]:
        makers: dict[str, Callable[[Row], Any]] = {
            "kind": lambda r: (r.kind, r.group),
            "state": lambda r: (r.state, r.group),
            "members": lambda r: (r.members, r.group),
            "epoch": lambda r: (r.epoch, r.group),
            "changed": lambda r: (r.changed_ms, r.group),
            "owner": lambda r: (self.owner(r), r.group),
        }
        return makers.get(name, lambda r: r.group)

    def counts(self) -> Slices:
        """Returns the number of groups by kind, by state, by the owner's node and by the broker's node."""
        counters: dict[str, Counter[Any]] = {name: Counter() for name in ("kinds", "states", "owners", "brokers")}
        for rows in self._all():
            yield
            for r in rows:
                counters["kinds"][r.kind] += 1
                counters["states"][r.state] += 1
                counters["owners" if r.broker < 0 else "brokers"][self.owner(r)] += 1
        yield
        return counters


def _fits(row: Row, text: str, kind: str, state: str) -> bool:
    if (kind and row.kind != kind) or (state and row.state != state):
        return False
    return not text or text in row.group.lower()
