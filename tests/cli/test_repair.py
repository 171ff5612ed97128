"""`sidecar state repair` removes what cannot be read, says first what that would be, and spares healthy groups."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from sidecar.audit.explain.model import ExplainError
from sidecar.cli import repair as module
from sidecar.cli.main import app
from sidecar.state.keys import StateKey

BAD = SimpleNamespace(key=StateKey("member", "g", "m1"), offset=7, why="cut off")


class Found:
    """A group as it was replayed: how many records can be read, and how these contradict each other."""

    def __init__(self, records: int, contradicts: str = "") -> None:
        self.records = [SimpleNamespace(kind="current", group_id="g", sub_id=f"m{i}") for i in range(records)]
        self.coordinator = None
        self._contradicts = contradicts

    def offset(self, kind: str, sub_id: str) -> int:
        return int(sub_id.removeprefix("m"))

    def shard(self, image: object) -> None:
        if self._contradicts:
            raise ExplainError(self._contradicts, "")


@contextmanager
def reader(*args: object) -> Iterator[None]:
    yield None


def repair(monkeypatch: pytest.MonkeyPatch, found: Found, faults: list[Any], *options: str) -> tuple[int, list[str]]:
    """The exit code, and what was removed."""
    removed: list[str] = []
    monkeypatch.setattr(module, "client_of", lambda config: SimpleNamespace(reader=reader))
    monkeypatch.setattr(module, "_looked", lambda *args: (0, found, faults))
    monkeypatch.setattr(module, "_bury", lambda *args: removed.extend(f"{k.kind} {k.sub_id}" for k in args[-1]))
    done = CliRunner().invoke(app, ["state", "repair", "g", "--bootstrap", "here:1", *options])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, removed


@pytest.mark.parametrize("options", [[], ["--yes"], ["--whole"], ["--whole", "--yes"]])
def test_a_group_that_can_be_read_is_left_alone(monkeypatch: pytest.MonkeyPatch, options: list[str]) -> None:
    assert repair(monkeypatch, Found(2), [], *options) == (1, [])


@pytest.mark.parametrize("options", [[], ["--whole"]])
def test_without_yes_nothing_is_written(monkeypatch: pytest.MonkeyPatch, options: list[str]) -> None:
    assert repair(monkeypatch, Found(2), [BAD], *options) == (1, [])


def test_only_what_cannot_be_read_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert repair(monkeypatch, Found(2), [BAD], "--yes") == (0, ["member m1"])
    assert repair(monkeypatch, Found(2), [BAD], "--yes", "--whole") == (0, ["member m1", "current m0", "current m1"])


def test_records_that_contradict_each_other_go_only_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    two = Found(2, "two members own one partition")
    assert repair(monkeypatch, two, [], "--yes") == (1, [])
    assert repair(monkeypatch, two, [BAD], "--yes") == (1, [])
    assert repair(monkeypatch, two, [], "--yes", "--whole") == (0, ["current m0", "current m1"])


def test_a_group_that_is_not_there_is_no_group_to_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    assert repair(monkeypatch, Found(0), [], "--yes", "--whole") == (1, [])
