"""The parent of a worker, with workers that are scripts of a few lines: who starts, who ends, and with which code."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sidecar.cli.exits import Code
from sidecar.process import parent

pytestmark = pytest.mark.tier("test")

WORKER = """
import os, signal, sys
folder, plan, told = sys.argv[1:]
at = len(os.listdir(folder))
open(f"{folder}/{at}", "x").close()
acts = plan.split(",")
act = acts[min(at, len(acts) - 1)]
_, hears, says, restarts = map(int, told.split(":"))
number = os.environ["LISTEN_PID"] == str(os.getpid()) and os.environ.get("LISTEN_FDS")
watched = os.environ.get("WATCHDOG_PID") == str(os.getpid())

def say(text):
    os.write(1, f"{at} {text}\\n".encode())

def ends(signum, frame):
    say("TERM")
    os.write(says, b"STOPPING=1\\n")
    os._exit(int(act.partition(":")[2] or 0))

signal.signal(signal.SIGTERM, ends)
signal.signal(signal.SIGHUP, lambda *_: say("HUP"))
say(f"began pid={os.getpid()} restarts={restarts} sockets={number} watched={watched}")
if act.startswith("exit"):
    os._exit(int(act[4:]))
if act == "begins":
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    say("has no handler yet")
    signal.pause()
if act == "dies":
    os.kill(os.getpid(), signal.SIGKILL)
os.write(says, b"LISTENING=1\\nREADY=1\\n")
if act.startswith("breaks"):
    os._exit(int(act[6:]))
while said := os.read(hears, 100):
    for line in said.decode().split():
        say(line)
        if line == "replaced":
            os.write(says, b"STOPPING=1\\n")
            os._exit(0)
"""
BECOMES = """
import os, socket, sys
sys.path.append(sys.argv[1])
from sidecar.process.sockets import hand_over
env = dict(os.environ)
hand_over([socket.socket(fileno=int(fd)) for fd in sys.argv[2].split(",")], env)
os.execve(sys.argv[3], sys.argv[3:], env)
"""
DIES = """
import os, signal
from sidecar.process.orphans import dies_with
dies_with(os.getppid())
print(1, flush=True)
signal.pause()
"""


class Family:
    """A parent and its workers. `said` gives what a worker says next: its number and its words."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process, self.port = process, port
        self.pids: dict[int, int] = {}
        self.first_words = ""

    def next_line(self) -> tuple[int, str]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        number, _, words = line.strip().partition(" ")
        assert words, f"the parent ended: {self._err.read_text()}"
        if words.startswith("began"):
            self.first_words = words
            self.pids[int(number)] = int(words.split()[1].partition("=")[2])
            words = "began"
        return int(number), words

    def ends(self) -> int:
        """The exit code of the parent; nothing of it is left."""
        out, _ = self.process.communicate(timeout=60)
        assert out == "" or out.endswith(("TERM\n", "HUP\n")), out  # a worker may hear one as it ends
        for pid in self.pids.values():
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)
        return self.process.returncode

    def log(self) -> list[dict[str, object]]:
        """After the end."""
        return [json.loads(line) for line in self._err.read_text().splitlines()]

    _err: Path


@contextmanager
def family(folder: Path, plan: str, log: str = "err", **env: str) -> Iterator[Family]:
    """`log`: where the parent's log goes."""
    script, counted = folder / "worker.py", folder / "counted"
    script.write_text(WORKER)
    counted.mkdir()
    root = str(Path(parent.__file__).parents[2])
    with socket.socket() as one, socket.socket() as other, (folder / log).open("w") as err:
        for sock in (one, other):
            sock.bind(("127.0.0.1", 0))
            sock.listen(8)
        given = f"{one.fileno()},{other.fileno()}"
        worker = (sys.executable, "-I", "-S", str(script), str(counted), plan)
        command = (sys.executable, "-I", "-S", parent.__file__, "info", "json", "7", *worker)
        process = subprocess.Popen(
            [sys.executable, "-c", BECOMES, root, given, *command],
            pass_fds=[one.fileno(), other.fileno()],
            env={**os.environ, **env},
            stdout=subprocess.PIPE,
            stderr=err,
            text=True,
        )
        made = Family(process, int(one.getsockname()[1]))
    made._err = folder / "err"
    try:
        yield made
    finally:
        process.kill()
        process.communicate()


def test_a_worker_that_is_killed_is_replaced_and_nobody_is_refused(tmp_path: Path) -> None:
    with family(tmp_path, "serves") as f:
        assert f.next_line() == (0, "began")
        assert f.first_words.endswith("restarts=0 sockets=2 watched=False")
        assert f.next_line() == (0, "go")
        os.kill(f.pids[0], signal.SIGKILL)
        socket.create_connection(("127.0.0.1", f.port)).close()
        assert f.next_line() == (1, "began")
        assert "restarts=1 sockets=2" in f.first_words
        assert f.next_line() == (1, "go")
        socket.create_connection(("127.0.0.1", f.port)).close()
        f.process.send_signal(signal.SIGTERM)
        assert f.next_line() == (1, "TERM")
        assert f.ends() == 0
    (line,) = f.log()
    assert line == {
        "timestamp": line["timestamp"],
        "level": "warning",
        "event": "the worker died; another one starts on the same sockets",
        "node_id": 7,
        "worker": f.pids[0],
        "cause": "signal 9",
        "restarts": 1,
        "again_ms": 0,
    }
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", str(line["timestamp"]))


def test_a_log_that_cannot_be_written_does_not_end_the_parent(tmp_path: Path) -> None:
    """Symptom: with the disk of the log full, the first line ended sidecar and clients' port with code 1."""
    with family(tmp_path, "dies,serves", "/dev/full") as f:
        assert [f.next_line(), f.next_line(), f.next_line()] == [(0, "began"), (1, "began"), (1, "go")]
        f.process.send_signal(signal.SIGTERM)
        assert [f.next_line(), f.ends()] == [(1, "TERM"), 0]


@pytest.mark.parametrize("code", [Code.FINDINGS, Code.USAGE, Code.BROKEN])
def test_what_a_start_ends_with_is_the_code_of_sidecar_run(tmp_path: Path, code: Code) -> None:
    with family(tmp_path, f"exit{int(code)}") as f:
        assert f.next_line() == (0, "began")
        assert f.ends() == code
    assert f.log() == []


def test_a_bug_in_a_worker_that_served_is_no_end_and_neither_is_an_end_that_nobody_wanted(tmp_path: Path) -> None:
    with family(tmp_path, f"breaks{int(Code.BROKEN)},breaks0,exit1") as f:
        heard = [f.next_line() for _ in range(3)]
        assert [words for words in heard if words[1] == "began"] == [(0, "began"), (1, "began"), (2, "began")]
        assert f.ends() == Code.FINDINGS
    assert [(line["cause"], line["restarts"]) for line in f.log()] == [("code 70", 1), ("code 0", 2)]


def test_workers_that_die_before_they_are_ready_are_replaced_later_and_later(tmp_path: Path) -> None:
    with family(tmp_path, "dies,dies,dies,breaks0,dies,exit2") as f:
        began = [number for number, words in iter(f.next_line, (5, "began")) if words == "began"]
        assert began == [0, 1, 2, 3, 4]
        assert f.ends() == Code.USAGE
    assert [line["again_ms"] for line in f.log()] == [0, 250, 500, 0, 250]


def test_signals_are_passed_on_and_the_workers_code_is_that_of_sidecar_run(tmp_path: Path) -> None:
    with family(tmp_path, "serves:5") as f:
        assert [f.next_line(), f.next_line()] == [(0, "began"), (0, "go")]
        f.process.send_signal(signal.SIGHUP)
        assert f.next_line() == (0, "HUP")
        f.process.send_signal(signal.SIGINT)
        assert f.next_line() == (0, "TERM")
        assert f.ends() == 5


def test_a_worker_that_is_stopped_before_it_has_a_handler_ends_in_order(tmp_path: Path) -> None:
    """Symptom: the sidecar ended with code 143, which is a failure to systemd."""
    with family(tmp_path, "begins") as f:
        assert [f.next_line(), f.next_line()] == [(0, "began"), (0, "has no handler yet")]
        f.process.send_signal(signal.SIGTERM)
        assert f.ends() == 0


def test_sighup_waits_until_a_worker_hears_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: a reload while a worker started ended it by signal 1, and an upgrade under way with it."""
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    made = parent.Parent(["/bin/true"], parent.Lines("info", "json", 1), {})
    reads, writes = os.pipe()
    made.current = parent.Worker(1_000_001, -1, -1)
    made.coming = parent.Worker(1_000_002, reads, writes)
    made.current.listened = True
    monkeypatch.setattr(made, "_replace", lambda worker: None)
    for _ in range(2):
        made._signal(signal.SIGHUP)
    assert sent == [(1_000_001, signal.SIGHUP)] * 2
    for _ in range(2):
        os.write(writes, b"LISTENING=1\n")
        made._read(made.coming)
    assert sent[2:] == [(1_000_002, signal.SIGHUP)], "once"
    made._signal(signal.SIGHUP)
    assert sent[3:] == [(1_000_001, signal.SIGHUP), (1_000_002, signal.SIGHUP)]
    made.coming.close()


def test_an_upgrade_starts_the_new_worker_before_the_old_one_ends_and_lets_it_coordinate_afterwards(
    tmp_path: Path,
) -> None:
    with family(tmp_path, "serves") as f:
        assert [f.next_line(), f.next_line()] == [(0, "began"), (0, "go")]
        f.process.send_signal(signal.SIGUSR2)
        assert [f.next_line(), f.next_line(), f.next_line()] == [(1, "began"), (0, "replaced"), (1, "go")]
        assert "restarts=0" in f.first_words
        f.process.send_signal(signal.SIGTERM)
        assert f.next_line() == (1, "TERM")
        assert f.ends() == 0
    assert [line["event"] for line in f.log()] == [
        "a new worker starts beside the old one",
        "the old worker has ended",
    ]


def test_an_upgrade_to_what_cannot_start_leaves_the_old_worker(tmp_path: Path) -> None:
    with family(tmp_path, "serves,exit1") as f:
        assert [f.next_line(), f.next_line()] == [(0, "began"), (0, "go")]
        f.process.send_signal(signal.SIGUSR2)
        assert f.next_line() == (1, "began")
        for number, words in ((signal.SIGHUP, "HUP"), (signal.SIGTERM, "TERM")):
            f.process.send_signal(number)
            assert next(said for who, said in iter(f.next_line, None) if who == 0) == words
        assert f.ends() == 0
    assert "the new worker could not start: the old one goes on" in [line["event"] for line in f.log()]


def test_a_worker_does_not_outlive_its_parent(tmp_path: Path) -> None:
    """parent.py closes its end of a pipe at the latest; what real workers do stands in orphans.py."""
    starts = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {DIES!r}])"
    with subprocess.Popen([sys.executable, "-c", starts], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        process.kill()
        assert process.stdout.read() == ""  # the end of the pipe: nobody is left who could write


def test_what_has_no_parent_any_more_ends_by_itself() -> None:
    orphan = f"from sidecar.process.orphans import dies_with; dies_with({os.getpid()} + 1); print('lives')"
    done = subprocess.run([sys.executable, "-c", orphan], capture_output=True, text=True, check=True)
    assert done.stdout == ""


def test_systemd_hears_of_the_worker_that_counts_and_no_end_of_one_that_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        env = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "1000000"}
        with family(tmp_path, "serves", **env) as f:
            assert [f.next_line(), f.next_line()] == [(0, "began"), (0, "go")]
            assert f.first_words.endswith("watched=True")
            assert manager.recv(100) == b"READY=1"
            f.process.send_signal(signal.SIGUSR2)
            assert [f.next_line(), f.next_line(), f.next_line()] == [(1, "began"), (0, "replaced"), (1, "go")]
            assert manager.recv(100) == b"READY=1"
            f.process.send_signal(signal.SIGTERM)
            assert manager.recv(100) == b"STOPPING=1"
            assert [f.next_line(), f.ends()] == [(1, "TERM"), 0]


@pytest.mark.parametrize("refused", ["fork", "pipe"])
def test_no_process_for_a_new_worker_ends_neither_the_old_one_nor_the_parent(
    refused: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Symptom: SIGUSR2 in a container with a limit of processes ended sidecar and clients' port. Cause: os.fork raised,
    and the worker does not outlive its parent."""
    allowed = iter([os.pipe()])

    def no(*_: object) -> tuple[int, int]:
        if refused == "pipe" and (pipe := next(allowed, None)):
            return pipe
        raise BlockingIOError(errno.EAGAIN, "")

    made = parent.Parent(["/bin/true"], parent.Lines("info", "json", 1), {})
    former = made.current = parent.Worker(os.getpid(), -1, -1)
    before = os.listdir("/proc/self/fd")
    monkeypatch.setattr(os, refused, no)
    made._upgrade()
    assert made.current is former and made.coming is None
    made.current = None
    for _ in range(len(parent.PAUSES_S) + 1):
        made._start_due()
        assert made.current is None and made._due_s is not None and not made._ended()
    monkeypatch.undo()
    assert len(os.listdir("/proc/self/fd")) <= len(before), "no descriptor stays open"
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert [line["cause"] for line in lines] == ["Resource temporarily unavailable"] * 8
    assert lines[-1]["again_ms"] == 5_000
