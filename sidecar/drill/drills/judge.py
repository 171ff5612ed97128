"""Finds losses and double owners: from the journals of the clients, the committed offsets, and the audit of the state
topic.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from sidecar.audit.errors import AuditError
from sidecar.drill.clients import double_owned
from sidecar.drill.drills.ground import Ground
from sidecar.drill.drills.group_under_test import GroupUnderTest
from sidecar.drill.drills.spec import Drill
from sidecar.drill.lake import audited, rows
from sidecar.drill.local import LocalKafka

SHOWN = 8
TABLES = ("second_owners", "stale_writes", "rebalances", "coverage", "unreadable")


@dataclass
class Verdict:
    """Counts of faults, and the first lines of evidence for each."""

    lost_records: int = 0
    lost_commits: int = 0
    backward_commits: int = 0
    double_owned: int = 0
    stale_writes: int = 0
    backward_epochs: int = 0
    lost_history: int = 0
    hung_clients: int = 0
    evidence: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not any(self.counts().values())

    def counts(self) -> dict[str, int]:
        return {
            "lost_records": self.lost_records,
            "lost_commits": self.lost_commits,
            "backward_commits": self.backward_commits,
            "double_owned": self.double_owned,
            "stale_writes": self.stale_writes,
            "backward_epochs": self.backward_epochs,
            "lost_history": self.lost_history,
            "hung_clients": self.hung_clients,
        }

    def add(self, name: str, lines: list[str], source: str) -> None:
        setattr(self, name, getattr(self, name) + len(lines))
        self.evidence += [f"{source}: {name}: {line}" for line in lines[:SHOWN]]


def lost_commits(best: dict[int, int], committed: dict[int, int]) -> list[str]:
    """List the partitions whose committed offset is lower than one that was acknowledged to a client before. `best`
    must be taken before `committed` is asked for."""
    return [
        f"partition {p}: {o} acknowledged, {committed.get(p, -1)} found"
        for p, o in best.items()
        if committed.get(p, -1) < o
    ]


def commits_now(ground: Ground) -> dict[str, list[str]]:
    """Return, by the title of the group, the `lost_commits` of this moment."""
    best = {c.title: c.best() for c in ground.under_test}
    return {c.title: lost_commits(best[c.title], ground.committed(c)) for c in ground.under_test if best[c.title]}


def judge_group(c: GroupUnderTest, produced: dict[int, int], verdict: Verdict) -> None:
    """Add the faults in the journals of one group's clients. `produced`: by partition, the producer's last end."""
    lost = c.lost(produced)
    verdict.lost_records += lost
    if lost:
        verdict.evidence.append(f"{c.title}: {lost} records were consumed by nobody, or twice")
    judge_journals(c, verdict)


def judge_journals(c: GroupUnderTest, verdict: Verdict) -> None:
    """Add the faults that show even before everything is consumed."""
    verdict.add("double_owned", double_owned(c.journals), c.title)
    verdict.add("backward_commits", c.went_back(), c.title)


def judge_audit(tables: Mapping[str, list[dict[str, Any]]], verdict: Verdict, since_ms: int) -> None:
    """Add the audit's findings; those before `since_ms` belong to another drill."""
    verdict.add("double_owned", [_line(o) for o in tables["second_owners"] if o["ms"] >= since_ms], "audit")
    verdict.add("stale_writes", [_line(w) for w in tables["stale_writes"] if w["ms"] >= since_ms], "audit")
    back = [r for r in tables["rebalances"] if r["went_back"] and r["from_ms"] >= since_ms]
    verdict.add("backward_epochs", [_line(r) for r in back], "audit")
    lacking = [r for r in tables["coverage"] if r["scope"] == "partition" and (r["lost"] or r["missing"])]
    verdict.add("lost_history", [_line(r) for r in lacking], "audit")  # nothing compacts the topic during a drill


def find_before_deletion(drill: Drill, ground: Ground) -> None:
    """Note the audit's findings of this drill about a state topic that is deleted next. The audit at the end sees only
    the topic that is there then."""
    verdict = Verdict()
    judge_audit(audit(ground.kafka, ground.unknown_kinds), verdict, ground.since_ms)
    drill.find("the audit before the topic is deleted", verdict.evidence or "no fault", verdict.ok)


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row, default=str)


def audit(kafka: LocalKafka, unknown: Collection[str] = ()) -> dict[str, list[dict[str, Any]]]:
    """Bring the lake of this cluster up to date; return the tables that are judged, by name. Raises AuditError if the
    topic or a record in it cannot be read, except for records of the kinds `unknown`."""
    lake = audited(kafka.internal, kafka.folder / "lake", kafka.command_config)
    tables = {name: rows(lake, name) for name in TABLES}
    if lost := [r for r in tables["unreadable"] if r["kind"] not in unknown]:
        raise AuditError(f"{len(lost)} records cannot be read: {_line(lost[0])}")
    return tables
