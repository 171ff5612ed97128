"""Plays a drill: N rounds on running clients, then the judge."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any

from confluent_kafka import KafkaException

from sidecar.audit.errors import AuditError
from sidecar.drill.artifacts import ArtifactError
from sidecar.drill.drills.ground import Ground
from sidecar.drill.drills.judge import Verdict, audit, commits_now, judge_audit, judge_group, judge_journals
from sidecar.drill.drills.measure import Times, beside, line_of, summary, times_of
from sidecar.drill.drills.spec import Drill, Finding, Mark
from sidecar.drill.processes import DrillError
from sidecar.state.schema import StateError

BEGIN_S = 90.0
AFTER_S = 120.0
STOPPED_S = 1.0
"""Longest pause that the fault of a broker may cause in the heartbeats of groups that it does not lead."""
CALM_S = 2.0
"""Pause between two rounds, so that one does not overlap the end of the other."""


@dataclass
class Result:
    drill: str
    kafka: str
    rounds: list[dict[str, Times]] = field(default_factory=list)
    """For each round: title of the group -> its figures."""
    verdict: Verdict = field(default_factory=Verdict)
    findings: list[Finding] = field(default_factory=list)
    problem: str = ""
    """The reason why the drill ended early; "" if it did not."""
    took_s: float = 0.0

    @property
    def ok(self) -> bool:
        return self.verdict.ok and not self.problem and all(f.ok for f in self.findings)

    def by_group(self) -> dict[str, dict[str, dict[str, float]]]:
        titles = list(self.rounds[0]) if self.rounds else []
        return {t: summary([r[t] for r in self.rounds]) for t in titles}

    def json(self) -> dict[str, Any]:
        """Return the result as values for JSON; times in seconds, by group and figure."""
        return {
            "drill": self.drill,
            "kafka": self.kafka,
            "n": len(self.rounds),
            "ok": self.ok,
            **self.verdict.counts(),
            "findings": [{"what": f.what, "found": f.found, "ok": f.ok} for f in self.findings],
            "problem": self.problem,
            "seconds": self.by_group(),
            "took_s": round(self.took_s, 1),
        }


STOPS = (DrillError, KafkaException, AuditError, StateError, OSError, HTTPException, subprocess.SubprocessError)
"""Errors that end a drill, but not the drills that come after it."""
STOPS_OF_CLIENTS = (*STOPS, ArtifactError)
"""The same while clients run: those of a streams group need a JDK, and more jars than the cluster."""


def play(drill: Drill, ground: Ground, n: int, tag: str, say: Callable[[str], None]) -> Result:
    """Play `n` rounds. An error of STOPS_OF_CLIENTS ends the drill and is its `problem`; the judge runs in any case."""
    result = Result(drill.name, ground.kafka.version, findings=drill.findings)
    started = time.monotonic()
    if drill.kinds:
        ground.kinds = drill.kinds
    try:
        ground.cast(tag, drill.beside_kafka)
        ground.settled(BEGIN_S)
        for i in range(n):
            figures = play_round(drill, ground, i, result.verdict, say)
            result.rounds.append(figures)
            say(f"round {i + 1}: {line_of(figures)}")
            time.sleep(CALM_S)
            ground.require_running("the end of the round")
    except STOPS_OF_CLIENTS as exc:
        result.problem = str(exc) or repr(exc)
        ground.abandon()
        for c in ground.under_test:
            judge_journals(c, result.verdict)
    else:
        try:
            finish(ground, result.verdict)
        except STOPS as exc:
            result.problem = str(exc) or repr(exc)
            ground.abandon()
    result.took_s = time.monotonic() - started
    return result


def play_round(drill: Drill, ground: Ground, i: int, verdict: Verdict, say: Callable[[str], None]) -> dict[str, Times]:
    drill.prepare(ground, i)
    marks = drill.fault(ground, i)
    for mark in marks:
        say(f"round {i + 1}: {mark.what}")
    last = marks[-1]
    if drill.back_before_heal:
        ground.wait(
            "all groups to be served again",
            lambda: all(c.served_since(last.at_s, last.at_ms) for c in ground.under_test),
            drill.patience_s,
        )
    time.sleep(max(0.0, drill.holds_s - (time.monotonic() - last.at_s)))
    healed = Mark.now("healed")
    drill.heal(ground, i)
    ground.settled(drill.patience_s)
    end = Mark.now("all is well")
    for title, lines in commits_now(ground).items():
        verdict.add("lost_commits", lines, f"round {i + 1}, {title}")
    figures = {c.title: times_of(c, marks, healed, end, drill.back_before_heal) for c in ground.under_test}
    for side, members in ground.bystanders.items():
        figures[f"{side} elsewhere"] = beside(members, marks[0], end, ground.crew.stood_still if ground.crew else ())
    if "sidecar" in ground.bystanders and not drill.everything_stops:
        longest_s = round(figures["sidecar elsewhere"]["heartbeats"], 2)
        drill.find("heartbeats of groups led elsewhere stopped for", f"{longest_s} s", longest_s <= STOPPED_S)
    return figures


def finish(ground: Ground, verdict: Verdict) -> None:
    """Let the clients consume and commit everything, end them, and judge."""
    assert ground.producer is not None
    ground.producer.stop()
    producer, ground.producer = ground.producer, None
    try:
        if producer.failed or not producer.counts:
            raise DrillError(f"the producer sent {sum(producer.counts.values())} records, {producer.failed} failed")
        ground.wait(
            "everything consumed and committed",
            lambda: all(c.consumed_all(producer.ends) for c in ground.under_test),
            AFTER_S,
        )
    finally:
        try:
            for title, lines in commits_now(ground).items():
                verdict.add("lost_commits", lines, f"at the end, {title}")
        finally:
            verdict.add("hung_clients", ground.strike(), "at the end")
            for c in ground.under_test:
                judge_group(c, producer.ends, verdict)
        if any(n.sidecar is not None for n in ground.kafka.nodes):  # else the drill has audited before the topic went
            judge_audit(audit(ground.kafka, ground.unknown_kinds), verdict, ground.since_ms)
