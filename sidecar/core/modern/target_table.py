"""The target assignment of a group by member: one table of int arrays from the last run, and changes for single members
since (a static member replaced, or everything, after a takeover).

A partition may belong to several members. A kind in which it has one owner keeps the owners beside the table
(consumer/target_table.py).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Generic, Self, TypeVar

from sidecar.assign.layout import Layout
from sidecar.core.runtime.records import Epochs, Partitions
from sidecar.native import Ints, held, partitions, partitions_all

NOTHING: Partitions = {}


@dataclass(frozen=True, slots=True)
class MemberTable:
    """Target of each member. `members[i]` may be "": gone since. `csr`, `parts`: member -> partitions, in ascending
    order."""

    layout: Layout
    members: tuple[str, ...]
    index: Mapping[str, int]
    """Member id -> position in `members`, of those that are still there."""
    csr: Ints
    parts: Ints

    @classmethod
    def of_parts(cls, layout: Layout, parts: Mapping[str, Iterable[int]]) -> MemberTable:
        """Makes a table from member -> indices of its partitions in the layout."""
        ordered = [array("i", sorted(ps)) for ps in parts.values()]
        csr = array("i", [0, *accumulate(map(len, ordered))])
        flat = array("i")
        for ps in ordered:
            flat.extend(ps)
        return MemberTable(layout, tuple(parts), {m: i for i, m in enumerate(parts)}, csr, flat)

    def get(self, member_id: str) -> Partitions | None:
        i = self.index.get(member_id)
        return None if i is None else partitions(self.csr, self.parts, self.layout.off, self.layout.ids, i)

    def all(self, member_ids: Sequence[str]) -> list[dict[bytes, tuple[int, ...]]]:
        """Returns the partitions of each of these members."""
        members = array("i", map(self.index.__getitem__, member_ids))
        return partitions_all(self.csr, self.parts, self.layout.off, self.layout.ids, members)

    def renamed(self, to: Mapping[str, str | None]) -> Self:
        """Returns the table with other member ids; None: the member is gone."""
        if not to:
            return self
        members = tuple((to[m] or "") if m in to else m for m in self.members)
        return replace(self, members=members, index={m: i for i, m in enumerate(members) if m})


T = TypeVar("T", bound=MemberTable)


class MemberTargets(Generic[T]):
    """Targets by member id, like a mapping to topic id -> sorted partitions."""

    def __init__(self, table: T | None = None, own: dict[str, Partitions | None] | None = None) -> None:
        self.table = table
        self.own: dict[str, Partitions | None] = own if own is not None else {}

    def get(self, member_id: str) -> Partitions | None:
        """Returns the member's target; None: it was never written."""
        if member_id in self.own:
            return self.own[member_id]
        return self.table.get(member_id) if self.table is not None else None

    def of(self, member_id: str) -> Partitions:
        return self.get(member_id) or NOTHING

    def held(self, member_id: str, assigned: Epochs, subscribed: frozenset[bytes]) -> bool:
        """Whether the member has exactly its target, and subscribes to all of its topics."""
        table = self.table
        i = None if table is None or member_id in self.own else table.index.get(member_id)
        if table is None or i is None:
            target = self.of(member_id)
            return target.keys() == assigned.keys() <= subscribed and all(
                len(ps) == len(assigned[t]) and all(p in assigned[t] for p in ps) for t, ps in target.items()
            )
        return held(table.csr, table.parts, table.layout.off, table.layout.ids, i, assigned, subscribed)

    def __contains__(self, member_id: str) -> bool:
        if member_id in self.own:
            return self.own[member_id] is not None
        return self.table is not None and member_id in self.table.index

    def __iter__(self) -> Iterator[str]:
        if self.table is not None:
            yield from (m for m in self.table.index if m not in self.own)
        yield from (m for m, parts in self.own.items() if parts is not None)

    def put(self, member_id: str, parts: Partitions) -> None:
        self.own[member_id] = parts

    def drop(self, member_id: str) -> None:
        if self.table is not None and member_id in self.table.index:
            self.own[member_id] = None
        else:
            self.own.pop(member_id, None)

    def adopt(self, table: T) -> None:
        self.table = table
        self.own = {}

    def frozen(self) -> Self:
        """Returns a copy for another thread, which later changes do not reach."""
        return type(self)(self.table, dict(self.own))
