"""The groups as a list, for people: one row for each, from this sidecar's copy of the state topic.

Rows are made when somebody asks, and then anew for groups of which something was written since. All of it is done
in small steps (generators that yield), as there may be 100,000 groups and the loop has clients to serve.
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
"""Rows that are looked at before others have their turn."""
SORTS = ("group", "kind", "state", "members", "epoch", "changed", "owner")
OTHER = "other"
"""The kind of a group of which nothing can be read."""
UNKNOWN_EPOCH = UNKNOWN_MEMBERS = -1
Slices = Generator[None, None, Any]


@dataclass(slots=True)
class Row:
    """`epoch`: or generation, UNKNOWN_EPOCH if nobody knows it. `changed_ms`: when the group's own record was written
    last, and `why`; where there is none yet, its first record. `broker`: node id of the broker that coordinates the
    group, -1 for one of the sidecars'."""

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
        past: RebalanceHistory,
        owner: Callable[[int], int],
        listed: Callable[[], Iterable[Row]],
    ) -> None:
        """`owner(partition)`: node id, -1 if nobody; `listed()`: the groups that brokers list."""
        self._state = state
        self._codec = codec
        self._past = past
        self._owner = owner
        self._listed = listed
        self._rows: list[dict[str, Row]] = [{} for _ in state.partitions]
        self._todo: dict[str, int] = {}

    def version(self) -> int:
        """Rises with each record of the topic."""
        return sum(p.position for p in self._state.partitions)

    def refresh(self) -> Slices:
        """Bring the rows up to date. Who gives up in between loses nothing."""
        touched = self._past.take_touched()
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
        """In slices. Of a group of the sidecars a broker lists the placeholder."""
        rows = [*chain.from_iterable(of.values() for of in self._rows), *self._listed()]
        for at in range(0, len(rows), SLICE):
            yield [r for r in rows[at : at + SLICE] if r.broker < 0 or r.group not in self._rows[r.partition]]

    def owner(self, row: Row) -> int:
        """Node id of the sidecar or broker that coordinates it, -1 if nobody."""
        return self._owner(row.partition) if row.broker < 0 else row.broker

    def row(self, group_id: str) -> Row | None:
        """Of a group of the sidecars."""
        return self._rows[partition_for(group_id, len(self._rows))].get(group_id)

    def find(self, search: str, kind: str, state: str, sort: str, begin: int, limit: int) -> Slices:
        """A page of the rows that fit: how many fit, and these. A `sort` with `-` before it is the other way round."""
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
        """How many groups there are: by kind, by state, by the node of the owner or of the broker."""
        found: dict[str, Counter[Any]] = {name: Counter() for name in ("kinds", "states", "owners", "brokers")}
        for rows in self._all():
            yield
            for r in rows:
                found["kinds"][r.kind] += 1
                found["states"][r.state] += 1
                found["owners" if r.broker < 0 else "brokers"][self.owner(r)] += 1
        yield
        return found


def _fits(row: Row, text: str, kind: str, state: str) -> bool:
    if (kind and row.kind != kind) or (state and row.state != state):
        return False
    return not text or text in row.group.lower()
