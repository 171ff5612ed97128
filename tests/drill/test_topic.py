"""The drill of the state topic goes on when every sidecar has started anew, and clients may end meanwhile."""

from __future__ import annotations

import sys
from pathlib import Path

from sidecar.drill.drills.ground import Ground
from sidecar.drill.drills.group_under_test import GroupUnderTest
from sidecar.drill.drills.topic import came_back
from sidecar.drill.processes import Process

READY = "level='info' event='ready' node_id=1\n"
ANEW = "level='error' event='the state topic is another one; starting anew, members will join again' node_id=1\n"


def test_a_sidecar_that_has_not_noticed_yet_is_ready_and_has_not_come_back() -> None:
    assert not came_back("")
    assert not came_back(READY)
    assert not came_back(READY + ANEW)
    assert came_back(READY + ANEW + READY)


class NoBrokers:
    def processes(self) -> list[Process]:
        return []


class Ends:
    """A client that ends when somebody looks."""

    def __init__(self, folder: Path) -> None:
        self.process = Process("client", [sys.executable, "-c", ""], folder / "client.log").start()


def test_a_client_that_may_end_is_not_among_the_processes_that_must_run(tmp_path: Path) -> None:
    """Symptom: it ended between `replace_ended` and the look at all processes, and so did the drill."""
    ground = Ground(NoBrokers(), print)  # type: ignore[arg-type]
    client = Ends(tmp_path)
    ground.under_test = [GroupUnderTest("sidecar", "consumer", "g", "", clients=[client])]  # type: ignore[list-item]
    assert ground.processes() == [client.process]
    ground.clients_may_end = True
    assert ground.processes() == []
    client.process.stop()
