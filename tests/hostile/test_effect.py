"""The verdict on an attack: each limit is found broken, and a busy machine is nobody's fault."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from math import inf
from typing import Any

import pytest

from tests.hostile import planted
from tests.hostile.effect import GROWS_MIB, PAGING, STAYS_MIB, Effect, event_of
from tests.hostile.side import Bystander, Waits, waits_of_client
from tests.hostile.waits import Wait

CALM: dict[str, Any] = {
    "beat": Waits(3, 1, 1),
    "passed": Waits(5, 1, 3),
    "direct": Waits(4, 0, 4),
    "rss_mib": [90, 100, 95],
    "members_mib": [1, 1, 1],
}
BESIDE_S = 1.5


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ({}, ""),
        ({"beat": Waits(900, 20, 1), "passed": Waits(900, 20, 1)}, ""),
        ({"beat": Waits(75, 60, 1)}, "heartbeat: waited while the loop worked for 60 ms"),
        ({"passed": Waits(75, 60, 1)}, "passed: waited while the loop worked for 60 ms"),
        ({"beat": Waits(600, 1, 590)}, "heartbeat: waited 590 ms in which nobody worked"),
        ({"passed": Waits(600, 1, 590), "direct": Waits(600, 1, 580)}, ""),
        ({"passed": Waits(inf, inf, inf)}, "passed: not served any more"),
        (
            {"rss_mib": [90, 91 + GROWS_MIB, 95]},
            f"RSS grew by {1 + GROWS_MIB:.0f} MiB beside the members",
        ),
        ({"rss_mib": [90, 290, 290], "members_mib": [1, 201, 201]}, ""),
        (
            {"rss_mib": [90, 120, 91 + STAYS_MIB]},
            f"RSS stays {1 + STAYS_MIB:.0f} MiB above, beside the members",
        ),
        ({"rss_mib": [90, 290, 190], "members_mib": [1, 201, 1]}, ""),
        ({"rss_mib": [90, 290, 250], "members_mib": [1, 201, 1]}, "RSS stays 60 MiB above, beside the members"),
        ({"newcomer_s": inf}, "a newcomer waited inf s"),
        ({"probe_s": 2.5}, "a probe of /livez waited 2.5 s"),
        ({"others": ["the sidecar ended"]}, "the sidecar ended"),
    ],
)
def test_each_limit(more: dict[str, Any], fault: str) -> None:
    faults = Effect("a", "alice", **{**CALM, **more}).faults()
    assert fault in faults if fault else not faults


def test_one_long_wait_is_felt_at_every_moment_of_it() -> None:
    assert waits_of_client([1.0, 9.0, 1.5]) == [1.0, 9.0, 7.0, 5.0, 3.0, 1.0, 1.5]


@pytest.mark.parametrize(
    ("wait", "work", "idle"),
    [
        (Wait(wall=100, worked=3, queued=95), 3, 2),
        (Wait(wall=100, worked=80, queued=0), 80, 20),
        (Wait(wall=100, worked=60, queued=95), 5, 0),
        (Wait(wall=100, worked=0, queued=0), 0, 100),
    ],
)
def test_a_wait_in_its_parts(wait: Wait, work: float, idle: float) -> None:
    """The third: the answer was there after 5 ms. The loop worked on for others while its reader had no processor."""
    assert (wait.work, wait.idle) == (work, idle)


# ---- planted faults, beside as many busy processes as there are processors --------------------------------------
@contextmanager
def busy() -> Iterator[None]:
    with ExitStack() as stack:
        for _ in range(os.cpu_count() or 1):
            loop = subprocess.Popen([sys.executable, "-I", "-S", "-c", "while True: pass"])
            stack.callback(loop.wait)
            stack.callback(loop.kill)
        yield


@contextmanager
def server(fault: str) -> Iterator[tuple[int, int]]:
    """Yields the port and the process of a server with a planted fault."""
    command = [sys.executable, "-m", "tests.hostile.planted", fault]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline()), process.pid
        finally:
            process.kill()


def attack(port: int, over: threading.Event) -> None:
    """A thousand requests at a time, all answers read."""
    frame = b"\0\0\0\1A"
    with socket.create_connection(("127.0.0.1", port)) as sock:
        while not over.is_set():
            sock.sendall(frame * 1_000)
            left = 1_000 * len(frame)
            while left and not over.is_set():
                left -= len(sock.recv(min(left, 65_536)))


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        ("none", ""),
        ("holds", "heartbeat: waited while the loop worked"),
        ("queue", "heartbeat: waited while the loop worked"),
        ("parks", "in which nobody worked"),
    ],
)
def test_planted_faults_are_found_on_a_busy_machine(fault: str, found: str) -> None:
    assert fault in planted.FAULTS
    over = threading.Event()
    with busy(), server(fault) as (port, pid):
        attacker = threading.Thread(target=attack, args=(port, over))
        attacker.start()
        beside = Bystander(socket.create_connection(("127.0.0.1", port)), b"\0\0\0\1B", pid)
        time.sleep(BESIDE_S)
        beat = beside.end()
        over.set()
        attacker.join()
    faults = Effect("planted", "", **{**CALM, "beat": beat}).faults()
    assert any(found in f for f in faults) if found else not faults, (beat, faults)


def test_what_pages_is_read_from_the_alerts() -> None:
    assert {"sidecar_handler_faults_total", "sidecar_partition_owned", "sidecar_void_records"} <= PAGING
    assert "sidecar_loop_lag_seconds" not in PAGING


def test_events_are_the_same_whatever_their_fields() -> None:
    line = "timestamp='2026' level='error' event='handler broke' node_id=1 api='X' error=\"E('y')\""
    assert event_of(line) == "event='handler broke' api='X'"
