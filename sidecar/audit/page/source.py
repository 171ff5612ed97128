"""The tables as the page reads them, also of a period only, and its limits."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sidecar.audit.moments import FOR_EVER_MS, shown
from sidecar.audit.page.pack import Rows, rows
from sidecar.audit.tables.columns import BYTES, TIME
from sidecar.audit.tables.gold import GOLD

BEGINS, ENDS = ("from_ms", "ms", "log_ms"), ("to_ms", "settled_ms")
"""Columns of times. What has none of `ENDS` is a single moment."""
OWNED = ("state_partition", "group_id", "topic_key", "partition", "member_id", "from_offset")
"""Columns that identify an interval."""


@dataclass(frozen=True)
class Period:
    """A period in Unix ms, both ends included."""

    since_ms: int = 0
    until_ms: int = FOR_EVER_MS

    @property
    def words(self) -> str:
        since = [f"from {stamp(self.since_ms)}"] if self.since_ms > 0 else []
        return " ".join(since + ([f"until {stamp(self.until_ms)}"] if self.until_ms < FOR_EVER_MS else []))


def stamp(ms: int) -> str:
    return f"{shown(ms).partition('.')[0]} UTC"


def within(tables: Mapping[str, Any], period: Period) -> dict[str, Any]:
    """Returns the tables with only the rows that touch the period. The table coverage stays as it is."""
    return {name: _touching(table, period) for name, table in tables.items()}


def _touching(table: Any, period: Period) -> Any:
    names = table.column_names
    if (begin := next((n for n in BEGINS if n in names), None)) is None:
        return table
    begins = table[begin]
    ends = next((table[n] for n in ENDS if n in names), begins)
    goes_on = pc.is_null(ends)
    if "superseded" in names:
        goes_on = pc.and_(goes_on, pc.invert(table["superseded"]))
    lasts = pc.or_(goes_on, pc.fill_null(pc.greater_equal(ends, period.since_ms), False))
    began_in = pc.greater_equal(begins, period.since_ms)
    return table.filter(pc.and_(pc.less_equal(begins, period.until_ms), pc.or_(began_in, lasts)))


def with_ends(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Adds to second owners `to_ms`, when the first of both ended. Null: neither has. It is the beginning where no
    table tells it, as of tasks that are twice in one process."""
    overlaps = tables.get("second_owners")
    if not overlaps:
        return dict(tables)
    intervals, tasks = (tables.get(n, GOLD[n].arrow.empty_table()) for n in ("intervals", "streams_tasks"))
    active = tasks.filter(pc.equal(tasks["role"], "active")).rename_columns({"subtopology": "topic_key"})
    held = pa.concat_tables([table.select([*OWNED, "to_ms"]) for table in (intervals, active)])
    for prefix in ("", "other_"):
        theirs = held.rename_columns([*OWNED[:4], *(f"{prefix}{name}" for name in (*OWNED[4:], "to_ms"))])
        overlaps = overlaps.join(theirs, theirs.column_names[:-1], join_type="left outer", use_threads=False)
    ends = pc.min_element_wise(overlaps["to_ms"], overlaps["other_to_ms"])
    known = pc.if_else(pc.or_(pc.is_valid(ends), overlaps["open"]), ends, overlaps["ms"])
    return {**tables, "second_owners": overlaps.drop_columns(["to_ms", "other_to_ms"]).append_column("to_ms", known)}


@dataclass(frozen=True)
class Budget:
    """Limits of the page. Above them, short neighbouring bars become one; of other rows the newest or longest stay."""

    intervals: int = 250_000
    unowned: int = 100_000
    rebalances: int = 100_000
    members: int = 50_000
    claims: int = 20_000
    findings: int = 1000
    uncovered_ms: int = 6000
    """Time for which a share group's partition may lack a member: Kafka's assignment interval and a heartbeat."""
    lacking_ms: int = 11_000
    """Time for which a task may lack a standby: the interval, a heartbeat to release another role, and one more."""
    unowned_ms: int = 1000
    """Shorter unowned time is a normal change of owner, and no finding."""
    reasons: int = 3_000_000
    """Characters of distinct optional reasons."""


class Source:
    """The tables as columns: all rows, or only those of some groups or some period."""

    def __init__(self, tables: Mapping[str, Any], groups: Collection[str], period: Period | None = None) -> None:
        ended = with_ends(tables)
        self._tables = ended if period is None else within(ended, period)
        self.groups = list(groups)
        self.absent = [name for name in GOLD if name not in tables]
        self._homes = self._partitions()

    def _partitions(self) -> list[int]:
        """Returns the state partitions of the selected groups."""
        if not self.groups:
            return []
        named = [t for n, t in self._tables.items() if "group_id" in t.column_names and n != "unreadable"]
        parts = [rows(t, ["state_partition"], {"group_id": self.groups})["state_partition"] for t in named]
        return sorted({p for part in parts for p in part})

    def rows(self, name: str, *, shared: bool = False, where: Mapping[str, Sequence[Any]] | None = None) -> Rows:
        """Returns rows of a table. `where`: only those with one of these values.

        `shared`: also rows of no group, if they lie in the groups' state partitions or are settings of
        brokers."""
        where = dict(where or {})
        table = self._tables.get(name)
        schema = GOLD[name].arrow if table is None else table.schema
        names = [f.name for f in schema if f.type not in (TIME, BYTES)]
        if self.groups:
            if "group_id" in names:
                where["group_id"] = [*self.groups, "", None] if shared else self.groups
            if name != "setting_changes":
                where["state_partition"] = self._homes
        return rows(table, names, where)

    def holdings(self) -> Rows:
        """Returns intervals, and holdings of share and streams groups as rows like them. A task that is not active has
        its role in the topic's name."""
        shares, tasks = self.rows("share_holdings"), self.rows("streams_tasks")
        roles = [s if role == "active" else f"{s} {role}" for s, role in tasks.each("subtopology", "role")]
        return self.rows("intervals").with_more(
            shares.having(kind=["share"] * shares.count, topic_key=shares["topic_id"]),
            tasks.having(kind=["streams"] * tasks.count, topic_key=tasks["subtopology"], topic=roles),
        )

    def unowned(self) -> Rows:
        """Returns unowned time, and the time in which no member had a share group's partition although one should."""
        shares = self.rows("share_coverage")
        return self.rows("unowned").with_more(
            shares.having(kind=["share"] * shares.count, topic_key=shares["topic_id"])
        )
