"""The result of a drill is told as it is, whatever commands, logs and errors say."""

from __future__ import annotations

import io
import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from rich.console import Console

from sidecar.drill import demo
from sidecar.drill.artifacts import ArtifactError
from sidecar.drill.drills import commands
from sidecar.drill.drills.report import show
from sidecar.drill.drills.run import Result
from sidecar.drill.drills.spec import Finding
from sidecar.drill.processes import DrillError

IN_BRACKETS = ("no broker at [/10.0.0.1:9092]", "[kafka-raft-io-thread] has ended", "[red]")


@pytest.mark.parametrize("text", IN_BRACKETS)
def test_a_finding_may_have_brackets(text: str) -> None:
    """Symptom: rich took them for markup: the report lost them, or ended the drills with a MarkupError."""
    shown = io.StringIO()
    result = Result("x", "4", findings=[Finding(text, text, ok=False)], problem=text)
    result.verdict.evidence.append(text)
    show(result, Console(file=shown, width=200))
    assert shown.getvalue().count(text) == 4


@pytest.mark.parametrize(
    "error",
    [*map(DrillError, IN_BRACKETS), ArtifactError("no Java"), KafkaException(KafkaError(-195)), TimeoutError("slow")],
    ids=repr,
)
def test_the_demo_says_why_it_failed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path, error: Exception
) -> None:
    """Symptom: as above; and a broker that gave no answer was a traceback."""

    def fails(*_: Any) -> None:
        raise error

    monkeypatch.setattr(demo, "kafka_libs", fails)
    monkeypatch.setattr(demo, "interrupt_on_sigterm", lambda: None)
    assert demo.run_demo(tmp_path, "4") == 1
    assert f"failed: {error}" in " ".join(capsys.readouterr().out.split())


GROUND: Any = SimpleNamespace(kafka=SimpleNamespace(nodes=[], bootstrap="b", command_config=()))
COMPLAINT = "%3|1795964671.269|FAIL|rdkafka#producer-1| [thrd:x]: Connect to ipv4#127.0.0.1:1 failed\n"


def prints(monkeypatch: pytest.MonkeyPatch, stdout: str, code: int = 0) -> None:
    done = subprocess.CompletedProcess([], code, stdout, COMPLAINT)
    monkeypatch.setattr("subprocess.run", lambda *_, **__: done)


def test_rows_of_a_command_are_those_of_its_stdout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: librdkafka's complaints on stderr were read as rows, and a ValueError ended all drills."""
    prints(monkeypatch, json.dumps({"group": "g", "where": "sidecar"}) + "\n")
    assert commands.whereabouts(GROUND, ["g"]) == {"g": "sidecar"}
    prints(monkeypatch, json.dumps({"name": "brokers", "status": "fail", "finding": "none"}) + "\n", code=1)
    assert commands.doctor(GROUND) == {"brokers": "fail: none"}


@pytest.mark.parametrize(("stdout", "code"), [("Traceback", 1), ("", 70)])
def test_a_command_without_rows_is_a_problem_of_the_drill(
    monkeypatch: pytest.MonkeyPatch, stdout: str, code: int
) -> None:
    prints(monkeypatch, stdout, code)
    assert commands.whereabouts(GROUND, ["g"]) == {}
    with pytest.raises(DrillError, match=rf"sidecar doctor .*exit code {code}: {stdout}"):
        commands.doctor(GROUND)
