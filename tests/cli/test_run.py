"""`sidecar run`."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

import sidecar.process.build as build
from sidecar.cli.exits import Code
from sidecar.cli.main import app

NEEDED = {"SIDECAR_LISTEN": "127.0.0.1:1", "SIDECAR_BROKER": "127.0.0.1:2", "SIDECAR_NODE_ID": "3"}


def test_a_start_without_a_broker_ends_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refuses:
        def __init__(self, settings: Any, started: float) -> None: ...

        async def run(self) -> None:
            raise build.StartError("no use of broker h:1 for 60 s: refused. Check --broker")

    monkeypatch.setattr(build, "App", Refuses)
    done = CliRunner().invoke(app, ["run"], env=NEEDED)
    assert done.exit_code == Code.FINDINGS and "Check --broker" in done.output
