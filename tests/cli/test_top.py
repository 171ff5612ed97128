"""`sidecar top` in a terminal: what it shows, its keys, and that the terminal is as before when it ends."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from sidecar.drill.processes import wait_until

PROGRAM = """
import sys
from sidecar.audit.history.topic import Reader, RecordsRead
from sidecar.cli import top

ROWS = [
    {"group": "young", "state": "Reconciling", "members": 2, "epoch": 9, "age_s": 1, "rebalances": 7},
    {"group": "large", "state": "Stable", "members": 50, "epoch": 2, "age_s": 900, "rebalances": 0},
]
Reader.partitions = lambda self: 1
Reader.read = lambda self, p, after=None: RecordsRead(p)
top.Tail.rows = lambda self, sort, window_min: sorted(ROWS, key=top.ORDERS[sort])
from sidecar.cli.main import app
app(["top", "--bootstrap", "127.0.0.1:1", "--interval", "0.2", *sys.argv[1:]])
"""
"""The command, over a topic that has these groups; everything from there to the terminal is its own."""
LIMIT_S = 120
LEAVES = "\x1b[?1049l"
"""The sequence that gives the earlier screen back."""


@dataclass
class Terminal:
    master: int
    slave: int
    process: subprocess.Popen[bytes]
    before: list[Any]
    text: str = ""
    codes: list[int] = field(default_factory=list)

    def read(self) -> str:
        while select.select([self.master], [], [], 0.05)[0]:
            self.text += os.read(self.master, 65536).decode(errors="replace")
        return self.text

    def shows(self, *wanted: str) -> bool:
        """Whether these stand on the screen of the last frame, in this order."""
        frame = self.read().rpartition("groups, ")[2]
        at = [frame.find(w) for w in wanted]
        return -1 not in at and at == sorted(at)

    def press(self, key: str) -> None:
        os.write(self.master, key.encode())

    def ended(self) -> bool:
        self.read()
        return self.process.poll() is not None


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, 120))
    before = termios.tcgetattr(slave)
    env = {**os.environ, "TERM": "xterm-256color"}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=slave, stdout=slave, stderr=slave, env=env, start_new_session=True
    )
    made = Terminal(master, slave, process, before)
    yield made
    process.kill()
    process.wait()
    os.close(master)
    os.close(slave)


def restored(t: Terminal) -> None:
    wait_until("the command to end", t.ended, LIMIT_S)
    assert LEAVES in t.text and t.text.rindex(LEAVES) > t.text.rindex("groups, ")
    assert termios.tcgetattr(t.slave) == t.before


@pytest.mark.tier("test")
def test_keys_choose_the_order_and_q_ends_it(terminal: Terminal) -> None:
    wait_until("the first frame", lambda: terminal.shows("1 not stable, by rebalances", "young", "large"), LIMIT_S)
    assert not termios.tcgetattr(terminal.slave)[3] & termios.ICANON, "keys come at once"
    for key, order in (
        ("m", ("by members", "large", "young")),
        ("a", ("by age", "young", "large")),
        ("g", ("by group", "large", "young")),
        ("s", ("by state", "young", "large")),
        ("x", ("by state", "young", "large")),
        ("r", ("by rebalances", "young", "large")),
    ):
        terminal.press(key)
        wait_until(f"the order of key {key}", lambda order=order: terminal.shows(*order), LIMIT_S)  # type: ignore[misc]
    terminal.press("mq")  # both at once, as over a slow line: a key that is lost would not end it
    restored(terminal)
    assert terminal.process.returncode == 0


@pytest.mark.tier("test")
def test_ctrl_c_ends_it_with_130(terminal: Terminal) -> None:
    wait_until("the first frame", lambda: terminal.shows("young"), LIMIT_S)
    terminal.process.send_signal(signal.SIGINT)
    restored(terminal)
    assert terminal.process.returncode == 130
