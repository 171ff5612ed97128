"""The tables as the page reads them, and its limits."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sidecar.audit.page.pack import Rows, rows
from sidecar.audit.page.period import Period, within
from sidecar.audit.tables.columns import BYTES, TIME
from sidecar.audit.tables.gold import GOLD


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
