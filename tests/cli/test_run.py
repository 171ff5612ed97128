"""`sidecar run`, and the worker that it becomes the parent of."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from typing import Any

import pytest
from typer.testing import CliRunner

import sidecar.process.app as process_app
from sidecar.cli import run, worker
from sidecar.cli.exits import Code
from sidecar.cli.main import app
from sidecar.coordinator.statelog.startup_errors import StartError
from sidecar.drill.processes import free_ports
from sidecar.process import orphans

NEEDED = {"SIDECAR_LISTEN": "127.0.0.1:1", "SIDECAR_BROKER": "127.0.0.1:2", "SIDECAR_NODE_ID": "3"}
NOTHING = json.dumps({"config": None})


class FailingApp:
    """An App that ends by `what`."""

    what: Exception

    def __init__(self, settings: Any, started: float, parent: Any) -> None: ...

    async def run(self) -> None:
        raise self.what


def ends(monkeypatch: pytest.MonkeyPatch, what: Exception | None, given: str = NOTHING) -> int:
    """The exit code of a worker that ends by `what`."""
    for name, value in NEEDED.items():
        monkeypatch.setenv(name, value)
    if what is not None:
        monkeypatch.setattr(process_app, "App", type("Ends", (FailingApp,), {"what": what}))
    monkeypatch.setattr(orphans, "dies_with", lambda parent: None)
    hears, says = os.pipe()
    with pytest.raises(SystemExit) as end:
        worker.entry(given, f"{os.getppid()}:{hears}:{says}:0")
    os.close(hears)
    os.close(says)
    return int(str(end.value.code))


def test_a_start_without_a_broker_ends_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    what = StartError("no use of broker h:1 for 60 s: refused. Check --broker")
    assert ends(monkeypatch, what) == Code.FINDINGS
    assert capsys.readouterr().err.splitlines() == [f"sidecar: {what}", run.THEN]


def test_a_bug_has_its_trace_and_its_code(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert ends(monkeypatch, ZeroDivisionError("injected")) == Code.BROKEN
    assert "This is a bug of this program: ZeroDivisionError." in capsys.readouterr().err


def test_settings_that_have_gone_bad_since_are_told_as_at_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ends(monkeypatch, None, json.dumps({"config": None, "listen": "nowhere"})) == Code.USAGE
    assert "The settings are not valid:" in capsys.readouterr().err


def test_a_port_that_is_taken_is_told_before_there_is_a_worker() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        done = CliRunner().invoke(app, ["run", "--listen", listen], env=NEEDED)
    assert done.exit_code == Code.FINDINGS
    assert f"sidecar: cannot listen on {listen}: Address already in use" in done.output and run.THEN in done.output


@pytest.mark.tier("test")  # a sidecar of its own
def test_a_real_one_says_that_there_is_no_broker_and_ends_with_its_code() -> None:
    """From the command line over parent and worker to the code."""
    env = {**os.environ, **NEEDED, "SIDECAR_BROKER_WAIT_MS": "1"}
    listen = f"127.0.0.1:{free_ports(1)[0]}"
    command = [sys.executable, "-m", "sidecar.cli.main", "run", "--listen", listen]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False, timeout=120)
    assert done.returncode == Code.FINDINGS, done.stderr
    assert "inherited" in done.stderr and "127.0.0.1:2" in done.stderr and run.THEN in done.stderr
