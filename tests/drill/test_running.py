"""A drill or demo is over when a process of it has ended by itself, also if all that it waits for is there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sidecar.drill.clients import Client
from sidecar.drill.drills.ground import Ground
from sidecar.drill.drills.group_under_test import GroupUnderTest
from sidecar.drill.drills.judge import Verdict
from sidecar.drill.drills.run import finish, play
from sidecar.drill.drills.sidecars import KillOwner
from sidecar.drill.processes import DrillError, Process, wait_until
from sidecar.drill.scenario import Scenario

ENDS, RUNS = "raise SystemExit(3)", "import time; time.sleep(600)"


class Started:
    """Starts processes of one test, and ends them all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made: list[Process] = []

    def __call__(self, name: str, code: str = RUNS) -> Process:
        process = Process(name, [sys.executable, "-c", code], self.folder / f"{name}.log").start()
        self.made.append(process)
        if code == ENDS:
            wait_until("its end", lambda: not process.alive, 60)
        return process


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    made = Started(tmp_path)
    yield made
    for process in made.made:
        process.kill()


def cluster(*processes: Process) -> Any:
    return SimpleNamespace(processes=lambda: list(processes), version="4", nodes=[], folder=Path())


def client(process: Process) -> Client:
    return Client(process.name, process, process.log.with_suffix(".events"))


def ground_of(kafka: Any, *clients: Client) -> Ground:
    ground = Ground(kafka, print)
    ground.under_test = [GroupUnderTest("sidecar", "consumer", "g", "", clients=list(clients))]
    return ground


def scenario_of(kafka: Any, *clients: Client, producer: Process) -> Scenario:
    scenario = Scenario.__new__(Scenario)
    scenario.kafka, scenario.clients, scenario.beside, scenario.probe = kafka, list(clients), [], None
    scenario.producer = SimpleNamespace(process=producer, ends={})  # type: ignore[assignment]
    return scenario


@pytest.mark.parametrize("which", ["sidecar", "client", "producer"])
@pytest.mark.parametrize("kind", ["drill", "demo"])
def test_a_process_that_has_ended_is_noticed(started: Started, kind: str, which: str) -> None:
    """Symptom: the demo never looked at its clients and its producer, and found "nothing lost" without them. A drill
    did not look if all that it waited for was there."""
    sidecar, one, producer = (
        started(name, ENDS if name == which else RUNS) for name in ("sidecar", "client", "producer")
    )
    waits: Callable[..., float]
    if kind == "demo":
        waits = scenario_of(cluster(sidecar), client(one), producer=producer).wait
    else:
        ground = ground_of(cluster(sidecar), client(one))
        ground.producer = SimpleNamespace(process=producer)  # type: ignore[assignment]
        waits = ground.wait
    with pytest.raises(DrillError, match=rf"{which} ended \(3\)"):
        waits("everything", lambda: True, 60)


def test_a_client_of_the_demo_that_was_stopped_may_be_gone(started: Started) -> None:
    leaves, killed, ended, producer = started("leaves"), started("killed"), started("ended", ENDS), started("producer")
    leaves.stop()
    killed.kill()
    producer.stop()
    scenario_of(cluster(), client(leaves), client(killed), producer=producer).wait("everything", lambda: True, 60)
    ended.stop()
    assert ended.died and not killed.died, "it had ended before"
    assert not killed.start().died
    killed.kill()


def test_a_client_that_ends_after_the_last_round_fails_the_drill(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: between the last round and the judge nobody looked, and one that had consumed everything was not
    missed."""
    one = started("client")
    ground = ground_of(cluster(), client(one))
    for name in ("cast", "settled", "abandon"):
        monkeypatch.setattr(ground, name, lambda *_: None)
    monkeypatch.setattr("sidecar.drill.drills.run.play_round", lambda *_: {})
    monkeypatch.setattr("sidecar.drill.drills.run.time.sleep", lambda _: one.kill())
    monkeypatch.setattr("sidecar.drill.drills.run.finish", lambda *_: None)
    result = play(KillOwner({}), ground, 1, "tag", print)
    assert not result.ok and "client ended (-9)" in result.problem


def test_the_journals_are_judged_though_nobody_tells_the_offsets(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: where the last look at the committed offsets failed, nothing else was judged."""
    ground = ground_of(cluster(), client(started("client")))
    ground.under_test[0].clients[0].journal.commit_log = [(1, 0, 9), (2, 0, 5)]
    ground.producer = SimpleNamespace(stop=lambda: None, failed=0, counts={0: 1}, ends={0: 1})  # type: ignore[assignment]

    def no_answer(_: Ground) -> dict[str, list[str]]:
        raise TimeoutError

    monkeypatch.setattr("sidecar.drill.drills.run.commits_now", no_answer)
    verdict = Verdict()
    with pytest.raises(TimeoutError):
        finish(ground, verdict)
    assert (verdict.lost_records, verdict.backward_commits) == (1, 1)


@pytest.mark.parametrize(("on_term", "patience_s", "in_time"), [("SIG_DFL", 60.0, True), ("SIG_IGN", 0.0, False)])
def test_a_client_that_does_not_end_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_term: str, patience_s: float, in_time: bool
) -> None:
    """Symptom: it was killed, and the drill was green."""
    waits = f"import signal; signal.signal(15, signal.{on_term}); print('{{', flush=True)\nwhile True: signal.pause()"
    process = Process("a", [sys.executable, "-c", waits], tmp_path / "a.log", lines=True)
    client = Client("a", process, tmp_path / "a.events").start()
    wait_until("its first line", lambda: client.journal.errors != [], 60)
    monkeypatch.setattr("sidecar.drill.clients.STOPS_WITHIN_S", patience_s)
    client.stop()
    assert client.hung is not in_time and not process.alive
    client.stop()  # as at the end of a drill that has replaced it
    assert client.hung is not in_time
