"""A drill leaves no process and no file system behind, wherever it ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sidecar.drill import local
from sidecar.drill.drills.disk import SmallDisks
from sidecar.drill.drills.group_under_test import GroupUnderTest
from sidecar.drill.local import LocalKafka
from sidecar.drill.processes import DrillError, Process

RUNS = [sys.executable, "-c", "import time; time.sleep(600)"]


def made(cls: type[LocalKafka], folder: Path, monkeypatch: pytest.MonkeyPatch) -> LocalKafka:
    """Returns a cluster whose brokers and sidecars are processes that sleep."""
    monkeypatch.setattr(local, "kafka_libs", lambda _: folder)
    monkeypatch.setattr(LocalKafka, "_java", lambda *_: RUNS)
    monkeypatch.setattr(local, "Process", lambda name, command, log, *_, **__: Process(name, RUNS, log))
    return cls(folder, brokers=1)


def test_a_cluster_stops_what_a_drill_has_taken_from_its_nodes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Symptom: a broker that went on with a full disk lived on beside the next drills, if its drill failed then."""
    kafka = made(LocalKafka, tmp_path, monkeypatch)
    (node,) = kafka.nodes
    kafka.start_broker(node)
    kafka.start_sidecar(node)
    both = [node.process, node.sidecar]
    node.process = node.sidecar = None
    kafka.stop()
    assert [process is not None and process.alive for process in both] == [False, False]


def test_every_small_disk_is_unmounted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Symptom: the first that could not be unmounted left the others mounted."""
    kafka = made(SmallDisks, tmp_path, monkeypatch)
    assert isinstance(kafka, SmallDisks)
    kafka.mounted = [tmp_path / name for name in ("one", "two", "three")]
    tried: list[str] = []

    def umount(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        tried.append(Path(command[-1]).name)
        return subprocess.CompletedProcess(command, int(tried[-1] == "one"))

    monkeypatch.setattr("subprocess.run", umount)
    with pytest.raises(DrillError, match=r"still mounted: .*/one$"):
        kafka.stop()
    assert tried == ["one", "two", "three"] and kafka.mounted == []


def test_a_client_is_known_though_the_next_one_does_not_start(tmp_path: Path) -> None:
    """Symptom: nobody ended the first client of a group whose second one could not be started."""

    def fails(_: str) -> Any:
        raise DrillError("no such program")

    group = GroupUnderTest("sidecar", "consumer", "g", "")
    first: Any = SimpleNamespace(start=lambda: first)
    with pytest.raises(DrillError):
        group._start("x", java=lambda _: first, py=fails)
    assert group.clients == [first]
