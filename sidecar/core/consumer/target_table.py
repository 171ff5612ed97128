"""A group's target assignment: one table of int arrays from the last run, and what was written for single members
since (a static member replaced, or everything, after a takeover)."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sidecar.assign.layout import Layout
from sidecar.core.runtime.records import Epochs, Partitions
from sidecar.native import Ints, by_member, held, lookup, partitions, partitions_all, remap

NOTHING: Partitions = {}


@dataclass(frozen=True, slots=True)
class Table:
    """`members[i]` may be "": gone since. `owner`: partition -> member or -1; `csr`, `parts`: member -> partitions."""

    layout: Layout
    members: tuple[str, ...]
    index: Mapping[str, int]
    """Of `members` that are still there."""
    owner: Ints
    csr: Ints
    parts: Ints

    @classmethod
    def of(cls, layout: Layout, index: Mapping[str, int], owner: Ints) -> Table:
        csr, parts = by_member(owner, len(index))
        return cls(layout, tuple(index), index, owner, csr, parts)

    def get(self, member_id: str) -> Partitions | None:
        i = self.index.get(member_id)
        return None if i is None else partitions(self.csr, self.parts, self.layout.off, self.layout.ids, i)

    def all(self, member_ids: Sequence[str]) -> list[dict[bytes, tuple[int, ...]]]:
        """Of each of these."""
        members = array("i", map(self.index.__getitem__, member_ids))
        return partitions_all(self.csr, self.parts, self.layout.off, self.layout.ids, members)

    def renamed(self, to: Mapping[str, str | None]) -> Table:
        """With other member ids; None: it is gone."""
        if not to:
            return self
        members = tuple((to[m] or "") if m in to else m for m in self.members)
        index = {m: i for i, m in enumerate(members) if m}
        return Table(self.layout, members, index, self.owner, self.csr, self.parts)


class TargetAssignment:
    """Looks like a mapping from member id to topic id -> sorted partitions."""

    def __init__(self, table: Table | None = None, own: dict[str, Partitions | None] | None = None) -> None:
        self.table = table
        self.own: dict[str, Partitions | None] = own if own is not None else {}

    def get(self, member_id: str) -> Partitions | None:
        """None: no target was ever written for it."""
        if member_id in self.own:
            return self.own[member_id]
        return self.table.get(member_id) if self.table is not None else None

    def of(self, member_id: str) -> Partitions:
        return self.get(member_id) or NOTHING

    def held(self, member_id: str, assigned: Epochs, subscribed: frozenset[bytes]) -> bool:
        """Is what a member has just its target, and does it subscribe to all of that?"""
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

    def adopt(self, table: Table) -> None:
        self.table = table
        self.own = {}

    def frozen(self) -> TargetAssignment:
        """A copy that later changes do not reach; for another thread."""
        return TargetAssignment(self.table, dict(self.own))

    def owners_on(self, layout: Layout, index: Mapping[str, int]) -> bytearray:
        """Owner by partition in another layout, with other member indices; what is not in it is left out."""
        owner = bytearray(b"\xff") * (4 * layout.off[-1])
        if self.table is not None:
            old = self.table.layout
            to = array("i", bytes(lookup(self.table.members, index)))
            for m in self.own:
                if m in self.table.index:
                    to[self.table.index[m]] = -1
            moved = remap(self.table.owner, to)
            if old.same_places(layout):
                owner = bytearray(moved)
            else:
                _copy_topics(old, moved, layout, owner)
        flat = memoryview(owner).cast("i")
        for member_id, parts in self.own.items():
            i = index.get(member_id)
            if i is None or not parts:
                continue
            for topic_id, ps in parts.items():
                t = layout.index.get(topic_id)
                if t is not None:
                    low, high = layout.off[t], layout.off[t + 1]
                    for p in ps:
                        if low + p < high:
                            flat[low + p] = i
        return owner


def _copy_topics(old: Layout, source: Ints, new: Layout, into: bytearray) -> None:
    for t, topic_id in enumerate(new.ids):
        was = old.index.get(topic_id)
        if was is not None:
            count = min(old.off[was + 1] - old.off[was], new.off[t + 1] - new.off[t])
            low, start = new.off[t], old.off[was]
            into[4 * low : 4 * (low + count)] = source[4 * start : 4 * (start + count)]
