"""`sidecar run`, and what it does when nothing that it knows counts any more."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest
from typer.testing import CliRunner

import sidecar.process.build as build
from sidecar.cli.main import ANEW, again, app

NEEDED = {"SIDECAR_LISTEN": "127.0.0.1:1", "SIDECAR_BROKER": "127.0.0.1:2", "SIDECAR_NODE_ID": "3"}


class Execed(BaseException):
    """In the place of another process."""


def test_the_successor_has_the_same_options_and_is_told_once_that_it_starts_anew() -> None:
    argv = ["python3", "-X", "dev", "-m", "sidecar.cli.main", "run", "--node-id", "3"]
    first = again("/venv/bin/python", argv)
    assert first == ["/venv/bin/python", *argv[1:], ANEW]
    assert again("/venv/bin/python", first) == first


@pytest.mark.parametrize("options", [[], [ANEW]])
def test_a_sidecar_whose_topic_is_another_one_tells_its_successor(
    options: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[bool] = []
    command: list[str] = []

    class Anew:
        def __init__(self, settings: Any, started: float, anew: bool) -> None:
            told.append(anew)

        async def run(self) -> None:
            raise build.StartAnew("the state topic is another one")

    def execv(path: str, argv: list[str]) -> None:
        assert path == sys.executable
        command.extend(argv)
        raise Execed

    monkeypatch.setattr(build, "App", Anew)
    monkeypatch.setattr(os, "execv", execv)
    monkeypatch.setattr(sys, "orig_argv", ["sidecar", "run", *options])
    with pytest.raises(Execed):
        CliRunner().invoke(app, ["run", *options], env=NEEDED)
    assert told == [bool(options)]
    assert command == [sys.executable, "run", ANEW]


def test_users_are_not_shown_that_option() -> None:
    assert ANEW not in CliRunner().invoke(app, ["run", "--help"]).output
