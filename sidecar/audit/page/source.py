"""The tables as the page reads them, and how much of them it holds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sidecar.audit.columns import BYTES, TIME
from sidecar.audit.gold.tables import GOLD
from sidecar.audit.page.pack import Rows, rows
from sidecar.audit.page.period import Period, within


@dataclass(frozen=True)
class Budget:
    """How much the page holds. Short neighbouring bars become one above it; of the rest the newest or longest stay."""

    intervals: int = 250_000
    unowned: int = 100_000
    rebalances: int = 100_000
    members: int = 50_000
    claims: int = 20_000
    findings: int = 1000
    uncovered_ms: int = 6000
    """How long a partition of a share group may wait for a member: Kafka's assignment interval and a heartbeat."""
    lacking_ms: int = 11_000
    """How long a task may wait for a standby: the interval, a heartbeat to give it up in another role, and one more."""
    unowned_ms: int = 1000
    """Unowned time below this is how a partition changes hands, and no finding."""
    reasons: int = 3_000_000
    """Characters of distinct reasons."""


class Source:
    """The tables, all of them or what concerns some groups or some time, as columns."""

    def __init__(self, tables: Mapping[str, Any], groups: Collection[str], period: Period | None = None) -> None:
        self._tables = tables if period is None else within(tables, period)
        self.groups = list(groups)
        self.absent = [name for name in GOLD if name not in tables]
        self._homes = self._partitions()

    def _partitions(self) -> list[int]:
        """The state partitions of these groups."""
        if not self.groups:
            return []
        named = [t for n, t in self._tables.items() if "group_id" in t.column_names and n != "unreadable"]
        parts = [rows(t, ["state_partition"], {"group_id": self.groups})["state_partition"] for t in named]
        return sorted({p for part in parts for p in part})

    def rows(self, name: str, *, shared: bool = False, where: Mapping[str, Sequence[Any]] | None = None) -> Rows:
        """`where`: only rows with one of these values.

        `shared`: also what is of no group, if it lies in the groups' state partitions or is a setting of
        brokers."""
        where = dict(where or {})
        names = [c.name for c in GOLD[name].columns if c.type not in (TIME, BYTES)]
        if self.groups:
            if "group_id" in names:
                where["group_id"] = [*self.groups, "", None] if shared else self.groups
            if name != "setting_changes":
                where["state_partition"] = self._homes
        return rows(self._tables.get(name), names, where)

    def held(self) -> Rows:
        """Intervals, and what members of share groups and streams groups had as rows like them. A task that is not
        active has its role in the topic's name."""
        shares, tasks = self.rows("share_holdings"), self.rows("streams_tasks")
        roles = [s if role == "active" else f"{s} {role}" for s, role in tasks.each("subtopology", "role")]
        return self.rows("intervals").with_more(
            shares.having(kind=["share"] * shares.count, topic_key=shares["topic_id"]),
            tasks.having(kind=["streams"] * tasks.count, topic_key=tasks["subtopology"], topic=roles),
        )

    def free(self) -> Rows:
        """Unowned time, and of share groups the time in which nobody had what somebody should have had."""
        shares = self.rows("share_coverage")
        return self.rows("unowned").with_more(
            shares.having(kind=["share"] * shares.count, topic_key=shares["topic_id"])
        )
