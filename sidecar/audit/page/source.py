"""The tables as the page reads them, also of a period only, and its limits."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.compute as pc

from sidecar.audit.moments import shown
from sidecar.audit.page.pack import Rows, rows
from sidecar.audit.tables.columns import BYTES, TIME
from sidecar.audit.tables.gold import GOLD

SINGLE = ("ms", "log_ms")
"""Time columns of single moments. Spans have `from_ms`, and `to_ms` or `settled_ms`."""


@dataclass(frozen=True)
class Period:
    """A period in Unix ms, both ends included. `since_ms` 0: from the beginning on."""

    since_ms: int
    until_ms: int

    @property
    def words(self) -> str:
        return f"{f'from {stamp(self.since_ms)} ' if self.since_ms else ''}until {stamp(self.until_ms)}"


def stamp(ms: int) -> str:
    return f"{shown(ms).partition('.')[0]} UTC"


def within(tables: Mapping[str, Any], period: Period) -> dict[str, Any]:
    """Returns the tables with only the rows that touch the period. The table coverage stays as it is."""
    return {name: _touching(table, period) for name, table in tables.items()}


def _touching(table: Any, period: Period) -> Any:
    names = table.column_names
    single = next((n for n in SINGLE if n in names), None)
    if single is not None:
        moment = table[single]
        return table.filter(pc.and_(pc.greater_equal(moment, period.since_ms), pc.less_equal(moment, period.until_ms)))
    if "from_ms" not in names:
        return table
    ends = table["to_ms" if "to_ms" in names else "settled_ms"]
    goes_on = pc.is_null(ends)
    if "superseded" in names:
        goes_on = pc.and_(goes_on, pc.invert(table["superseded"]))
    lasts = pc.or_(goes_on, pc.fill_null(pc.greater_equal(ends, period.since_ms), False))
    began_in = pc.greater_equal(table["from_ms"], period.since_ms)
    return table.filter(pc.and_(pc.less_equal(table["from_ms"], period.until_ms), pc.or_(began_in, lasts)))


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
        self._tables = tables if period is None else within(tables, period)
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
        names = [c.name for c in GOLD[name].columns if c.type not in (TIME, BYTES)]
        if self.groups:
            if "group_id" in names:
                where["group_id"] = [*self.groups, "", None] if shared else self.groups
            if name != "setting_changes":
                where["state_partition"] = self._homes
        return rows(self._tables.get(name), names, where)

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
