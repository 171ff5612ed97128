"""A group's target assignment as a table in which each partition has one owner."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass

from sidecar.assign.layout import Layout
from sidecar.core.modern.target_table import MemberTable, MemberTargets
from sidecar.native import Ints, by_member, lookup, remap


@dataclass(frozen=True, slots=True)
class Table(MemberTable):
    """`owner`: partition -> member or -1."""

    owner: Ints

    @classmethod
    def of(cls, layout: Layout, index: Mapping[str, int], owner: Ints) -> Table:
        csr, parts = by_member(owner, len(index))
        return cls(layout, tuple(index), index, csr, parts, owner)


class TargetAssignment(MemberTargets[Table]):
    def owners_on(self, layout: Layout, index: Mapping[str, int]) -> bytearray:
        """Returns the owners by partition in another layout, with other member indices; partitions outside it are left
        out."""
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
