"""Every event of the log stands in docs/reference/logs.md, with what to do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tools import logs
from tools.logs_meaning import MEANING

pytestmark = pytest.mark.tier("quick")


def test_the_page_about_the_log_has_every_event_and_no_other(root: Path) -> None:
    events = logs.found(root)
    assert set(MEANING) == set(events), "tools/logs_meaning.py says what each event means"
    assert (root / logs.PAGE).read_text() == logs.page(root), "run python -m tools.logs"


def test_the_levels_and_fields_are_those_of_the_calls(root: Path) -> None:
    events = logs.found(root)
    assert events["took over"].levels == {"info", "debug"}
    assert events["shard dropped"].levels == {"error"} and events["shard dropped"].fields == {"partition", "why"}
    assert events["group epoch"].fields == {"group_id", "epoch", "why"}
    assert events["waiting for __consumer_offsets"].levels == {"warning"}


def test_an_event_that_nobody_could_look_up_is_found(tmp_path: Path) -> None:
    for room in logs.ROOMS:
        (tmp_path / "sidecar" / room).mkdir(parents=True)
    (tmp_path / "sidecar" / "core" / "x.py").write_text("log.info(what)\n")
    with pytest.raises(ValueError, match=r"x\.py:1"):
        logs.found(tmp_path)


def logged(form: str, tty: bool) -> str:
    """A line, by a process whose stderr is a terminal or a pipe."""
    program = f"from sidecar.process.log import make_logger; make_logger('info', {form!r}).info('ready', ms=5)"
    if not tty:
        return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stderr
    import os
    import pty

    parent, child = pty.openpty()
    subprocess.run([sys.executable, "-c", program], stderr=child, check=True)
    os.close(child)
    return os.read(parent, 4096).decode()


@pytest.mark.parametrize(
    ("form", "tty", "is_json"),
    [("auto", True, False), ("auto", False, True), ("text", False, False), ("json", True, True)],
)
def test_a_terminal_gets_text_and_everything_else_json(form: str, tty: bool, is_json: bool) -> None:
    line = logged(form, tty)
    if is_json:
        told = json.loads(line)
        assert (told["event"], told["ms"], told["level"]) == ("ready", 5, "info")
    else:
        assert "event='ready'" in line and "ms=5" in line
