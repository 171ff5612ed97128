"""Child processes that never outlive this process: each dies with it, however it ends, and logs to its own file."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import IO

PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True) if os.uname().sysname == "Linux" else None


def _die_with_parent() -> None:
    if _LIBC is not None:
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


# As systemd starts a service that has a socket unit (sd_listen_fds): `os.execv` keeps the pid that LISTEN_PID names.
_WITH_SOCKET = """
import os, sys
given, name, *command = sys.argv[1:]
os.dup2(int(given), 3)
os.set_inheritable(3, True)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS="1", LISTEN_FDNAMES=name)
os.execv(sys.executable, [sys.executable, *command])
"""


def with_socket(sock: socket.socket, *python: str, name: str = "clients") -> list[str]:
    """Return the command that runs `python` with the listening socket handed over. `sock` must be in `pass_fds`."""
    return [sys.executable, "-c", _WITH_SOCKET, str(sock.fileno()), name, *python]


class SocketUnits:
    """Listening sockets that outlive the processes that serve them, as those of systemd's socket units do."""

    def __init__(self) -> None:
        self._sockets: dict[int, socket.socket] = {}

    def at(self, port: int) -> socket.socket:
        if port not in self._sockets:
            self._sockets[port] = socket.create_server(("127.0.0.1", port), backlog=1024)
        return self._sockets[port]

    def close(self) -> None:
        while self._sockets:
            self._sockets.popitem()[1].close()


class DrillError(Exception):
    """Raised when a drill cannot go on; the text has the problem and the log's place."""


def interrupt_on_sigterm() -> None:
    """Make SIGTERM end a run as Ctrl-C does, so that everything it started is stopped."""

    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


class Process:
    """A named child process. With `lines=True` its stdout is a pipe for a reader; everything else goes to `log`."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        env: Mapping[str, str] | None = None,
        lines: bool = False,
        cwd: Path | None = None,
        sock: socket.socket | None = None,
    ) -> None:
        """`sock`: a listening socket that a sidecar is handed over, and that stays open here."""
        self.name = name
        self.command = list(command) if sock is None else with_socket(sock, *command[1:])
        self.pass_fds = () if sock is None else (sock.fileno(),)
        self.log = log
        self.env = {**os.environ, **(env or {})}
        self.lines = lines
        self.cwd = cwd
        self._popen: subprocess.Popen[str] | None = None
        self._stopped = False
        """Whether it was stopped or killed from here."""

    def start(self) -> Process:
        self._stopped = False
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("a") as out:
            self._popen = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if self.lines else out,
                stderr=out,
                env=self.env,
                cwd=self.cwd,
                pass_fds=self.pass_fds,
                text=True,
                start_new_session=True,  # Ctrl-C is ours to handle, not the children's
                preexec_fn=_die_with_parent,
            )
        return self

    @property
    def pid(self) -> int:
        assert self._popen is not None
        return self._popen.pid

    @property
    def stdout(self) -> IO[str]:
        assert self._popen is not None and self._popen.stdout is not None
        return self._popen.stdout

    @property
    def alive(self) -> bool:
        return self._popen is not None and self._popen.poll() is None

    @property
    def returncode(self) -> int | None:
        return None if self._popen is None else self._popen.poll()

    @property
    def died(self) -> bool:
        """Whether it has ended, and was neither stopped nor killed from here."""
        return self.returncode is not None and not self._stopped

    def require_running(self, what: str) -> None:
        """Raises DrillError if it does not run. `what`: what is waited for."""
        if not self.alive:
            ended = f"{self.name} ended ({self.returncode}) while waiting for {what}"
            raise DrillError(f"{ended}; log: {self.log}\n{self.tail()}")

    @property
    def worker_pid(self) -> int:
        """Process id of the worker, a sidecar's only child (process/parent.py); of this process if it has none."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return int(children[0]) if children else self.pid

    def signal(self, sig: signal.Signals) -> None:
        """Send a signal to this process; SIGSTOP and SIGCONT go to its children, too."""
        if not self.alive:
            return
        if sig in (signal.SIGSTOP, signal.SIGCONT):
            os.killpg(self.pid, sig)
        else:
            os.kill(self.pid, sig)

    def kill_worker(self) -> None:
        """Send SIGKILL to a sidecar's worker alone: its parent starts another one."""
        os.kill(self.worker_pid, signal.SIGKILL)

    def stop(self, timeout_s: float = 8.0) -> int | None:
        """Send SIGTERM, and SIGKILL if the process still runs after `timeout_s`."""
        if self._popen is None:
            return None
        self._stopped |= self.alive
        self.signal(signal.SIGTERM)
        try:
            self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
        return self._popen.returncode

    def kill(self) -> None:
        """Send SIGKILL to this process and its children: a sidecar's parent and worker die, as with their container."""
        if self._popen is not None and self._popen.poll() is None:
            self._stopped = True
            os.killpg(self.pid, signal.SIGKILL)
            self._popen.wait()

    def tail(self, lines: int = 12) -> str:
        try:
            return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])
        except OSError:
            return ""


def free_ports(n: int) -> list[int]:
    """Return ports without a listener.

    They lie below those that the system gives to outgoing connections (32768 and up on Linux), so none is taken
    while its process is down. Each process begins the search at another port.
    """
    ports: list[int] = []
    while len(ports) < n:
        port = next(_PORTS)
        with closing(socket.socket()) as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
            ports.append(port)
    return ports


def _ports() -> Iterator[int]:
    low, high = 10_000, 32_768
    at = os.getpid() * 499
    while True:
        yield low + at % (high - low)
        at += 1


_PORTS = _ports()


def wait_until(
    what: str, check: Callable[[], bool], timeout_s: float, procs: Sequence[Process] = (), step_s: float = 0.05
) -> None:
    """Poll until `check()` is true. Raises DrillError if that takes too long or one of `procs` has ended."""
    until = time.monotonic() + timeout_s
    while not check():
        for p in procs:
            p.require_running(what)
        if time.monotonic() > until:
            logs = "".join(f"\n{p.name}: {p.log}\n{p.tail(4)}" for p in procs)
            raise DrillError(f"{what}: not within {timeout_s:g} s{logs}")
        time.sleep(step_s)


def port_open(port: int) -> bool:
    with closing(socket.socket()) as s:
        s.settimeout(0.2)
        return s.connect_ex(("127.0.0.1", port)) == 0
