"""A batch of gold: its new records, what the last batch left, and the tables that are made of both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from sidecar.audit.gold.carried import CARRIED
from sidecar.audit.gold.frames import Database, Frame, shape
from sidecar.audit.gold.kinds import HEAD, MODERN, Modern
from sidecar.audit.gold.steps import GROUP, bounded, chain, valid
from sidecar.audit.tables.gold import GOLD
from sidecar.audit.tables.layers import SILVER_TABLES

Frames = Mapping[str, Frame]
GRADED = {
    "holders": ("from_rec.offset", "to_rec.offset"),
    "rebalances": ("since_offset", "until_offset"),
    "share_coverage": ("from_rec.offset", "to_rec.offset"),
    "share_initialised": ("since_offset", "rec.offset"),
    "streams_standby_coverage": ("from_rec.offset", "to_rec.offset"),
    "unowned": ("from_rec.offset", "to_rec.offset"),
}
"""Tables that tell of everybody in a group, and the offsets from which and up to which they do (null: until now)."""
OF_NEW_GROUPS = ("rebalances", "unowned")
"""Tables whose rows may be proven behind offsets that were never read: of a group that began there (epochs.births)."""


class _Tables(dict[str, Frame]):
    """Tables by name. One that is not there is an empty one."""

    def __init__(self, frames: Frames, empty: Callable[[str], Frame]) -> None:
        super().__init__(frames)
        self.empty = empty

    def __missing__(self, name: str) -> Frame:
        return self.empty(name)


class Batch:
    """`silver`: new records, by table; `was`: what the last batch left."""

    whole: Frame
    """Stretches in which state partitions are whole (steps.stretches)."""
    cuts: Frame
    """Offsets that were never read (steps.cuts)."""
    unreadable: Frame
    """Keys with records that cannot be read (steps.unreadable)."""
    born: Frame
    """Groups that began behind offsets that were never read (epochs.births)."""

    def __init__(self, db: Database, silver: Frames, carried: Frames) -> None:
        self.db = db
        new = {name: bounded(frame, name) for name, frame in silver.items()}
        self.silver: dict[str, Frame] = _Tables(new, lambda name: bounded(db.empty(SILVER_TABLES[name]), name))
        self.was = _Tables(carried, lambda name: db.empty(CARRIED[name]))
        self.gold: dict[str, Frame] = {}
        """Rows that will never change, and the `open` ones, which those of the next batch replace."""
        self.carried: dict[str, Frame] = {}
        """Tables for the next batch (carried.py)."""

    def idle(self, silver: Iterable[str], carried: Iterable[str]) -> bool:
        """None of these tables is there, so nothing comes of them."""
        return self.silver.keys().isdisjoint(silver) and self.was.keys().isdisjoint(carried)

    # ---- records ----------------------------------------------------------------------------------------------------
    def valid(self, name: str) -> Frame:
        """Returns the valid records of this table."""
        return valid(self.silver[name])

    def every(self, name: str, columns: Callable[[Modern], Mapping[str, str]]) -> Frame:
        """Returns the valid records of all kinds of groups with epochs. `columns`: kind of each row that a record
        makes, and its columns. Tables that are not there take no time."""
        known = [m for m in MODERN if m.tables + name in self.silver] or MODERN[:1]
        selects = [
            f"select {GROUP}, '{kind}' as kind, {HEAD}, {more} from {self.valid(m.tables + name)}"
            for m in known
            for kind, more in columns(m).items()
        ]
        return self.db.query(" union all ".join(selects))

    def whole_of(self, records: Frame) -> Frame:
        """Returns the records with the begin of the stretch without gaps that they are in."""
        rows = records.query(f"""select r.*, whole_from from {records} r
                left join (select state_partition as sp, whole_from, until from {self.whole}) w
                    on sp = r.state_partition and offset >= whole_from and (until is null or offset < until)""")
        if self.idle(("corrupt",), ("unreadable",)):
            return rows
        return rows.query(f"""
            select r.* replace (case when first_offset < offset then null else whole_from end as whole_from)
                from {rows} r left join (select {GROUP}, min(first_offset) as first_offset
                    from {self.unreadable} group by all) u using ({GROUP})""")

    def changes(self, name: str, records: Frame, value: str, who: str = "member_id") -> Frame:
        """Returns the chain of a value of records. The carried table `name` has its last values. `who`: the member id,
        and other columns to keep."""
        column = CARRIED[name].names[-1]
        values = chain(f"{who}, {value} as value", f"member_id, {column} as value", records, self.was[name])
        self.carry(name, values.where("latest and value is not null").select(f"*, value as {column}"))
        return values

    # ---- tables -----------------------------------------------------------------------------------------------------
    def carry(self, name: str, frame: Frame) -> None:
        self.carried[name] = shape(frame, CARRIED[name])

    def add(self, name: str, frame: Frame) -> None:
        self.gold[name] = shape(self._graded(name, frame) if name in GRADED else frame, GOLD[name])

    def _graded(self, name: str, rows: Frame) -> Frame:
        """Returns the rows with their `grade`: `proven` where everything is known from begin to end. Behind offsets
        that were never read there may be unseen members, or some that left; and an unreadable record may say
        otherwise."""
        begin, end = GRADED[name]
        seen, born = f"(c.begin is null or r.{end} < c.begin)", ""
        if name in OF_NEW_GROUPS:
            seen = "(c.begin is null or r.from_rec.offset < c.begin or coalesce(r.from_rec.offset >= b.offset, false))"
            born = f"left join {self.born} b using ({GROUP}, kind)"
        return rows.query(f"""
            select r.*, case when w.state_partition is not null and {seen}
                    and (u.begin is null or r.{end} < u.begin) then 'proven' else 'possible' end as grade
                from {rows} r {born} left join {self.whole} w on r.state_partition = w.state_partition
                    and r.{begin} >= w.whole_from and (r.{end} < w.until or w.until is null)
                left join (select state_partition, min(until_offset) as begin from {self.cuts} group by all) c
                    on r.state_partition = c.state_partition
                left join (select {GROUP}, min(first_offset) as begin from {self.unreadable} group by all) u
                    on r.state_partition = u.state_partition and r.group_id = u.group_id""")
