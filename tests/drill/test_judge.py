"""The judge of drills finds each fault that is planted in journals or in the audit, and nothing where there is none."""

from __future__ import annotations

import itertools
import json
import subprocess
from collections.abc import Callable
from functools import partial
from http.client import IncompleteRead
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from confluent_kafka import TopicPartition

from sidecar.drill.artifacts import ArtifactError
from sidecar.drill.clients import Client, Owned
from sidecar.drill.drills import judge, playing, restore, rollout, topic
from sidecar.drill.drills.ground import Ground
from sidecar.drill.drills.group_under_test import GroupUnderTest, StreamsGroupUnderTest, group_under_test
from sidecar.drill.drills.judge import Verdict, judge_audit, judge_group, lost_commits
from sidecar.drill.drills.restore import Restore
from sidecar.drill.drills.rollout import RollOut, TakeOut
from sidecar.drill.drills.run import Result
from sidecar.drill.drills.sidecars import KillOwner, Stop
from sidecar.drill.drills.spec import Drill, Finding
from sidecar.drill.drills.topic import StateTopic
from sidecar.drill.kinds import SinkReader
from sidecar.drill.processes import DrillError, Process
from sidecar.drill.worker import commit, note

PRODUCED = {0: 10, 1: 10}


def under_test(tmp_path: Any) -> GroupUnderTest:
    """Two clients: a had both partitions until 1000, b has had partition 1 since."""
    clients = [Client(n, Process(n, ["true"], tmp_path / n), tmp_path / f"{n}.events") for n in ("a", "b")]
    a, b = (c.journal for c in clients)
    a.owned = [Owned("a", 0, 0), Owned("a", 1, 0, 1000)]
    a.consumed = {0: [(0, 9)], 1: [(0, 4)]}
    a.commit_log = [(900, 0, 5), (950, 1, 5), (2000, 0, 10)]
    b.owned = [Owned("b", 1, 1000)]
    b.consumed = {1: [(5, 9)]}
    b.commit_log = [(1500, 1, 10)]
    return GroupUnderTest("sidecar", "consumer", "g", "", clients)


def verdict_of(c: GroupUnderTest) -> Verdict:
    verdict = Verdict()
    judge_group(c, PRODUCED, verdict)
    return verdict


def test_nothing_is_found_where_nothing_is_wrong(tmp_path: Any) -> None:
    c = under_test(tmp_path)
    assert verdict_of(c).ok
    assert lost_commits(c.best(), {0: 10, 1: 10}) == []


def test_a_record_that_nobody_consumed(tmp_path: Any) -> None:
    c = under_test(tmp_path)
    c.clients[1].journal.consumed = {1: [(5, 6), (8, 9)]}
    assert verdict_of(c).counts()["lost_records"] == 1


def test_a_record_that_a_report_leaps_over(tmp_path: Any) -> None:
    """Symptom: only the first and last offset of a poll counted, so that nobody missed what lay between them."""
    c = under_test(tmp_path)
    c.clients[1].journal.consumed = {}
    report = {"partition": 1, "minOffset": 5, "maxOffset": 9, "count": 4}
    c.clients[1].journal.add({"name": "records_consumed", "timestamp": 1600, "partitions": [report]})
    assert verdict_of(c).counts()["lost_records"] == 1


def test_a_report_leaps_over_nothing_that_its_client_did_not_consume() -> None:
    runs: dict[int, list[list[int]]] = {}
    for offset in (0, 1, 2, 5, 6, 1, 2):
        note(runs, 3, offset)
    assert runs == {3: [[0, 2], [5, 6], [1, 2]]}


def test_a_lost_record_beside_one_that_is_counted_twice(tmp_path: Any) -> None:
    """Symptom: the sums of all counts were compared, so that the two faults made up for each other."""
    streams = group_under_test("sidecar", "streams", "g", "")
    assert isinstance(streams, StreamsGroupUnderTest)
    streams.reader = SinkReader("127.0.0.1:1", "t", "t-counts", 1)
    streams.reader.buckets = {0: ["a", "a", "b"]}
    for count in (1, 2, 3):
        streams.reader._note("a", f"{count} x", 0, count)
    judge_group(streams, {0: 3}, verdict := Verdict())
    assert verdict.lost_records == 2, "one of b, and one of a"


def test_a_commit_that_was_acknowledged_and_is_gone(tmp_path: Any) -> None:
    c = under_test(tmp_path)
    assert lost_commits(c.best(), {0: 10, 1: 9}) == ["partition 1: 10 acknowledged, 9 found"]
    assert lost_commits(c.best(), {0: 10}) == ["partition 1: 10 acknowledged, -1 found"]


def test_a_partition_with_two_owners(tmp_path: Any) -> None:
    c = under_test(tmp_path)
    c.clients[1].journal.owned[0].from_ms = 999
    found = verdict_of(c)
    assert found.double_owned == 1 and "partition 1: a until 1000, b from 999" in found.evidence[0]


def test_a_commit_that_goes_back(tmp_path: Any) -> None:
    c = under_test(tmp_path)
    c.clients[1].journal.commit_log.append((1600, 1, 7))
    assert verdict_of(c).backward_commits == 1


def test_a_commit_of_which_a_part_was_refused(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Symptom: the offsets that were acknowledged in it did not count, and nobody would have missed them."""
    done = [TopicPartition("t", 0, 20), TopicPartition("t", 1, 20)]
    refused = SimpleNamespace(topic="t", partition=2, offset=20, error="fenced")
    commit(SimpleNamespace(commit=lambda **_: [*done, refused]), done)  # type: ignore[arg-type]
    client = under_test(tmp_path).clients[1]
    for line in capsys.readouterr().out.splitlines():
        client.journal.add(json.loads(line))
    assert [(p, offset) for _, p, offset in client.journal.commit_log[1:]] == [(0, 20), (1, 20)]
    assert client.journal.errors == ["partition 2: fenced"]


def test_a_commit_that_goes_back_within_a_millisecond(tmp_path: Any) -> None:
    """Symptom: commits of one millisecond were sorted by their offsets, so that none of them went back."""
    c = under_test(tmp_path)
    c.clients[1].journal.commit_log = [(1500, 1, 7), (1500, 1, 10)]
    assert verdict_of(c).backward_commits == 0
    c.clients[1].journal.commit_log = [(1500, 1, 10), (1500, 1, 7)]
    assert verdict_of(c).backward_commits == 1


def test_what_the_audit_says_counts_from_the_begin_of_the_drill_on() -> None:
    verdict = Verdict()
    judge_audit(audited(5, 15, 15, 16), verdict, since_ms=10)
    assert (verdict.double_owned, verdict.stale_writes, verdict.backward_epochs, verdict.lost_history) == (3, 3, 3, 2)


def audited(*at_ms: int) -> dict[str, list[dict[str, Any]]]:
    """Returns tables of an audit with a fault of each kind at these moments, one second owner that is only possible at
    the last, and three state partitions, of which two lack records."""
    owners = [{"ms": ms, "grade": "proven"} for ms in at_ms[:-1]] + [{"ms": at_ms[-1], "grade": "possible"}]
    epochs = [{"from_ms": ms, "went_back": back} for ms in at_ms for back in (True, False)]
    counts = [("partition", 0, 0), ("partition", 1, 0), ("partition", 0, 1), ("group", 1, 1)]
    coverage = [{"scope": scope, "lost": lost, "missing": missing} for scope, lost, missing in counts]
    writes = [{"ms": ms} for ms in at_ms]
    return {"second_owners": owners, "stale_writes": writes, "rebalances": epochs, "coverage": coverage}


def deletes(drill: Drill, i: int) -> Callable[[Ground], object]:
    """Returns the part of a round in which a drill deletes the state topic."""
    return drill.take_out if isinstance(drill, TakeOut) else partial(drill.fault, i=i)


@pytest.mark.parametrize(
    ("drill", "i"),
    [(StateTopic({}), 0), (StateTopic({}), 1), (Restore({}), 0), (Restore({}), 1), (TakeOut({}), 0)],
    ids=["state-topic", "state-topic anew", "restore", "restore older", "take-out"],
)
def test_a_topic_is_judged_before_it_is_deleted(monkeypatch: pytest.MonkeyPatch, drill: Drill, i: int) -> None:
    """Symptom: the audit at the end saw the last topic only, and that of `take-out` nothing of the rollout before: a
    second owner in any earlier one was never found."""
    done = MagicMock()
    done.audited.return_value, done.deleted.return_value = audited(11, 12), {}
    group = MagicMock(clients=[MagicMock()], members=[MagicMock(group="g", epoch=1)])
    ground = MagicMock(since_ms=10, under_test=[group])
    ground.kafka.nodes, ground.kafka.command_config, ground.kafka.folder = [], (), Path()
    ground.admin().delete_topics = done.deleted
    commands = {"command": (1, "refused"), "must": "done", "find_well": None, "set_patterns": None, "wait_where": None}
    for module, (name, answer) in itertools.product((restore, rollout), commands.items()):
        monkeypatch.setattr(module, name, lambda *_, answer=answer, **__: answer, raising=False)
    monkeypatch.setattr(topic, "REPORT_S", 0.0)
    monkeypatch.setattr(topic, "_created", MagicMock())
    monkeypatch.setattr("asyncio.run", lambda _: 0)
    monkeypatch.setattr(judge, "audit", done.audited)
    deletes(drill, i)(ground)
    assert [call[0] for call in done.mock_calls] == ["audited", "deleted"]
    (found,) = (f for f in drill.findings if f.what == "the audit before the topic is deleted")
    assert not found.ok and len(found.found) == 8  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "result",
    [
        Result("x", "4", verdict=Verdict(lost_commits=1)),
        Result("x", "4", problem="not within 90 s"),
        Result("x", "4", findings=[Finding("it says so", "no", ok=False)]),
    ],
)
def test_a_drill_is_not_ok_with_a_fault_a_problem_or_a_finding(result: Result) -> None:
    assert not result.ok and result.json()["ok"] is False


class Stage:
    """A cluster and a ground for drills that do nothing on it."""

    version, folder, under_test, kinds, stopped = "4", None, (), (), 0

    def cast(self, *args: Any) -> None:
        pass

    settled = abandon = start_cluster = cast

    def stop(self) -> None:
        self.stopped += 1

    @property
    def kafka(self) -> Stage:
        return self


STUCK: dict[str, Exception] = {
    "a command that hangs": subprocess.TimeoutExpired("kafka-topics.sh", 30),
    "a command that fails": subprocess.CalledProcessError(1, "kafka-topics.sh"),
    "a program that is not there": FileNotFoundError(2, "No such file or directory"),
    "a wait": TimeoutError(),
    "an answer that breaks off": IncompleteRead(b""),
    "a drill's own error": DrillError("not within 90 s"),
}
WHERE = ("start", "prepare")


@pytest.mark.parametrize(
    ("error", "where"),
    [
        *(pytest.param(error, where, id=f"{what}-{where}") for what, error in STUCK.items() for where in WHERE),
        pytest.param(ArtifactError("it needs a JDK"), "prepare", id="a program that cannot be compiled"),
    ],
)
def test_a_drill_that_is_stuck_is_a_result_and_the_next_one_is_played(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception, where: str
) -> None:
    """Symptom: a command that hung ended the whole run, and no drill had a result."""

    def stuck(*args: Any) -> None:
        raise error

    first, second = KillOwner({}), Stop({})
    for drill in (first, second):
        monkeypatch.setattr(drill, "start", Stage().cast)
        monkeypatch.setattr(drill, where, stuck)
    stage = Stage()
    monkeypatch.setattr(playing, "Ground", lambda kafka, say: stage)
    told: list[Result] = []
    stages = {first.stage: lambda folder, version: stage}
    playing.play_all([first, second], 1, tmp_path, "4", print, told.append, stages)  # type: ignore[arg-type]
    assert [r.drill for r in told] == [first.name, second.name]
    assert all(r.problem and not r.ok for r in told) and stage.stopped == 2


def test_a_rollout_says_how_many_groups_the_sidecars_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: a rollout that had failed said that the sidecars had all groups."""
    ground = MagicMock(under_test=[MagicMock(group="g", members=[MagicMock(group="m")])])
    for places, found in (({"g": "sidecar", "m": "broker"}, "1 of 2"), ({}, "0 of 2")):
        monkeypatch.setattr(rollout, "whereabouts", lambda _, places=places: places)
        drill = RollOut({})
        drill.heal(ground, 0)
        assert [(f.found, f.ok) for f in drill.findings] == [(found, False)]
