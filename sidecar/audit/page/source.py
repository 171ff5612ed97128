"""The tables as the page reads them, also of a period only, and its limits."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sidecar.audit.moments import FOR_EVER_MS, shown
from sidecar.audit.page.pack import Row
from sidecar.audit.tables.columns import TIME
from sidecar.audit.tables.gold import GOLD

BEGINS, ENDS = ("from_ms", "ms"), ("to_ms", "settled_ms")
"""Columns of times. What has none of `ENDS` is a single moment."""
OWNED = ["state_partition", "group_id", "topic_key", "partition", "member_id", "from_offset"]
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


def _with(table: Any, **columns: Any) -> Any:
    return pa.table(dict(zip(table.column_names, table.columns, strict=True)) | columns)


def _like_gold(table: Any, kind: str, topic_key: str) -> Any:
    """Returns rows of a table that belongs to one kind of group, with the columns of those that belong to all."""
    return _with(table, kind=pa.repeat(kind, len(table)), topic_key=table[topic_key])


def _shaped(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the tables in the form in which the page reads them. Intervals also have the holdings of share and
    streams groups; a task that is not active has its role in the topic's name. Unowned time also has the time in which
    no member had a share group's partition although one should.

    Second owners get `to_ms`, when the first of both ended. Null: neither has. It is the beginning where no table tells
    it, as of tasks that are twice in one process."""
    shares, unheld = (_like_gold(tables[n], "share", "topic_id") for n in ("share_holdings", "share_coverage"))
    tasks = _like_gold(tables["streams_tasks"], "streams", "subtopology")
    active = pc.equal(tasks["role"], "active")
    roles = pc.binary_join_element_wise(tasks["topic_key"], tasks["role"], " ")
    named = _with(tasks, topic=pc.if_else(active, tasks["topic_key"], roles))
    alone = (t.select([*OWNED, "to_ms"]) for t in (tables["intervals"], tasks.filter(active)))
    overlaps, held = tables["second_owners"], pa.concat_tables(alone, promote_options="default")
    for prefix in ("", "other_"):
        theirs = held.rename_columns([*OWNED[:4], *(f"{prefix}{name}" for name in (*OWNED[4:], "to_ms"))])
        overlaps = overlaps.join(theirs, theirs.column_names[:-1], join_type="left outer", use_threads=False)
    ends = pc.min_element_wise(overlaps["to_ms"], overlaps["other_to_ms"])
    known = pc.if_else(pc.or_(pc.is_valid(ends), overlaps["open"]), ends, overlaps["ms"])
    return {
        **tables,
        "intervals": pa.concat_tables([tables["intervals"], shares, named], promote_options="default"),
        "unowned": pa.concat_tables([tables["unowned"], unheld], promote_options="default"),
        "second_owners": _with(overlaps, to_ms=known),
        "unreadable": _with(tables["unreadable"], ms=tables["unreadable"]["log_ms"]),
    }


def _touching(table: Any, period: Period) -> Any:
    """Returns the rows that touch the period; of the table coverage all."""
    names = table.column_names
    if (begin := next((n for n in BEGINS if n in names), None)) is None:
        return table
    begins, ends = table[begin], table[next((n for n in ENDS if n in names), begin)]
    goes_on = pc.invert(table["superseded"]) if "superseded" in names else True
    lasts = pc.coalesce(pc.greater_equal(ends, period.since_ms), goes_on)
    reaches_in = pc.or_(pc.greater_equal(begins, period.since_ms), lasts)
    return table.filter(pc.and_(pc.less_equal(begins, period.until_ms), reaches_in))


@cache
def _row(*names: str) -> Any:
    """Returns the constructor of rows with these columns."""
    row: Any = namedtuple("Row", names)  # type: ignore[misc]
    return row._make


def _having(table: Any, column: str, values: Collection[Any]) -> Any:
    kind = table.schema.field(column).type
    return table.filter(pc.is_in(table[column], value_set=pa.array(values, kind)))


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
    """The tables as rows: all, or only those of some groups or some period."""

    def __init__(self, tables: Mapping[str, Any], groups: Collection[str], period: Period | None = None) -> None:
        self.absent = [name for name in GOLD if name not in tables]
        self._groups = list(groups)
        every = {name: tables.get(name, gold.arrow.empty_table()) for name, gold in GOLD.items()}
        shaped = _shaped({n: t.select([c.name for c in GOLD[n].columns if c.type != TIME]) for n, t in every.items()})
        self._tables = shaped if period is None else {name: _touching(t, period) for name, t in shaped.items()}
        named = [t for n, t in self._tables.items() if "group_id" in t.column_names and n != "unreadable"]
        theirs = [_having(t, "group_id", self._groups)["state_partition"] for t in named] if groups else []
        self._homes = {p for partitions in theirs for p in partitions.to_pylist()}

    def rows(self, name: str, *, shared: bool = False) -> list[Row]:
        """Returns rows of a table. `shared`: also rows of no group, if they lie in the groups' state partitions or are
        settings of brokers."""
        table = self._tables[name]
        if self._groups and "group_id" in table.column_names:
            table = _having(table, "group_id", [*self._groups, *(("", None) if shared else ())])
        if self._groups and name != "setting_changes":
            table = _having(table, "state_partition", self._homes)
        columns = (column.to_pylist() for column in table.columns)
        return list(map(_row(*table.column_names), zip(*columns, strict=True)))
