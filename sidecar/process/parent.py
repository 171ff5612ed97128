"""The parent of a sidecar's worker. It keeps the clients' listening sockets, so that clients wait in them while there
is no worker, and starts another worker when one dies. It knows nothing of Kafka and imports next to nothing: it must
stay small and must not break.

`sidecar run` (cli/run.py) opens the sockets and becomes this. A worker gets them as systemd would give them: from
descriptor 3 on, with LISTEN_PID, LISTEN_FDS and LISTEN_FDNAMES. Two pipes lead to each worker: by one it sends its
messages to systemd, a line each; by the other one it learns when it may coordinate, and that it is replaced.

    a signal, or a bug in a worker that had listened    another worker: at once if this one was ready, and
                                                        else later and later
    any other exit code                                 the same code: it says what the operator has to do
    SIGTERM, SIGINT                                     the worker ends in order, and its code is this one
    SIGHUP                                              passed on, to a worker that starts once it listens
    SIGUSR2                                             a new worker listens, then the old one ends, then the new one
                                                        coordinates
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

TYPE_CHECKING = False
"""A copy of typing.TYPE_CHECKING, as that module is larger than this file. Type checkers know the name."""
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

PAUSES_S = (0.0, 0.25, 0.5, 1.0, 2.0, 5.0)
"""Pauses before the next worker, by the number of workers that died one after the other before they were ready."""
BROKEN = 70
"""Exit code of a bug, as in cli/exits.py."""
NO_EXEC = 127
SIGNALLED = 128
"""Offset of a shell's exit code for a killed process: this and the signal."""
SIGNALS = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2)
LISTENING, READY, ENDED = b"LISTENING=1", b"READY=1", b"STOPPING=1"
GO, REPLACED = b"go\n", b"replaced\n"
"""Messages to a worker: it may coordinate; another one listens in its place."""
CHUNK = 4096
LEVELS = ("debug", "info", "warning", "error")


class Lines:
    """Writes log lines as process/log.py does, which is too large to be imported here."""

    def __init__(self, level: str, form: str, node_id: int) -> None:
        self._least = LEVELS.index(level)
        self._form, self._node_id = form, node_id

    def info(self, event: str, **fields: Any) -> None:
        self._write("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._write("warning", event, fields)

    def _write(self, level: str, event: str, fields: dict[str, Any]) -> None:
        if LEVELS.index(level) < self._least:
            return
        now = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1e6):06d}Z"
        line = {"timestamp": stamp, "level": level, "event": event, "node_id": self._node_id, **fields}
        if self._form == "json":
            text = "{" + ", ".join(f'"{name}": {_json(value)}' for name, value in line.items()) + "}"
        else:
            text = " ".join(f"{name}={value!r}" for name, value in line.items())
        try:
            os.write(2, text.encode() + b"\n")
        except OSError:
            return  # the disk of the log is full, or its reader has gone: the workers go on


def _json(value: Any) -> str:
    """Encodes numbers and texts of this file; the json module would be half of this process's memory."""
    return f'"{value}"' if isinstance(value, str) else str(value)


class Worker:
    """One child. `unfinished_line`: the bytes of its last line, without an end yet."""

    def __init__(self, pid: int, reads: int, writes: int) -> None:
        self.pid, self.reads, self.writes = pid, reads, writes
        self.listened = self.was_ready = False
        self.reload_due = False
        """Whether SIGHUP came before the worker listened: until then the signal would end it."""
        self.unfinished_line = b""

    def send(self, what: bytes) -> None:
        try:
            os.write(self.writes, what)
        except BrokenPipeError:
            """Ignored: the worker has just ended, and SIGCHLD follows."""

    def close(self) -> None:
        os.close(self.reads)
        os.close(self.writes)


class Manager:
    """The service manager, systemd, if it started this process. It gets the messages of the current worker."""

    def __init__(self, path: str) -> None:
        self._address = "\0" + path[1:] if path.startswith("@") else path
        self._sock: Any = None
        if path:
            import socket

            self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._sock.setblocking(False)

    def notify(self, text: bytes) -> None:
        if self._sock is None:
            return
        try:
            self._sock.sendto(text, self._address)
        except OSError:
            """Ignored: systemd applies its unit's timeouts."""


class Parent:
    """Keeps a worker running. `current` serves clients; in an upgrade `coming` takes its place, and `leaving` ends."""

    def __init__(self, command: Sequence[str], log: Lines, environ: dict[str, str]) -> None:
        self._command, self._log = list(command), log
        self._environ = dict(environ)
        self._manager = Manager(self._environ.pop("NOTIFY_SOCKET", ""))
        self._watched = self._environ.pop("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self._has_sockets = self._environ.pop("LISTEN_PID", "") == str(os.getpid())
        self.current: Worker | None = None
        self.coming: Worker | None = None
        self.leaving: Worker | None = None
        self.restarts = 0
        self._young = 0
        self._due_s: float | None = 0.0
        """Monotonic time at which the next worker starts; None: one runs, or none is due."""
        self._stopping = False
        self._code: int | None = None

    # ---- the loop -------------------------------------------------------------------------------------------
    def run(self) -> int:
        """Runs workers until the end. Returns the exit code."""
        signals_fd, write_fd = os.pipe()
        os.set_blocking(signals_fd, False)
        os.set_blocking(write_fd, False)
        for number in SIGNALS:
            signal.signal(number, _nothing)
        signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
        while True:
            if self._due_s is not None and time.monotonic() >= self._due_s:
                self._start_due()
            if self._ended():
                return self._code or 0
            self._wait(signals_fd)

    def _start_due(self) -> None:
        self._due_s = None
        try:
            self.current = self._start()
        except OSError as exc:
            cause, again_ms = os.strerror(exc.errno or 0), self._start_later()
            self._log.warning("no process for a worker", cause=cause, again_ms=again_ms)
        else:
            self._go()

    def _go(self) -> None:
        """Lets the current worker coordinate, once the one before it has ended."""
        if self.current is not None and self.leaving is None:
            self.current.send(GO)

    def _ended(self) -> bool:
        return self._due_s is None and not self._workers()

    def _workers(self) -> list[Worker]:
        return [w for w in (self.current, self.coming, self.leaving) if w is not None]

    def _wait(self, signals_fd: int) -> None:
        poll = select.poll()
        poll.register(signals_fd, select.POLLIN)
        readers = {w.reads: w for w in self._workers()}
        for reads in readers:
            poll.register(reads, select.POLLIN)
        left_ms = None if self._due_s is None else max(0.0, self._due_s - time.monotonic()) * 1000 + 1
        ready = {fd for fd, _ in poll.poll(left_ms)}
        for reads in ready & set(readers):
            self._read(readers[reads])
        if signals_fd in ready:
            for number in dict.fromkeys(os.read(signals_fd, CHUNK)):
                self._signal(number)
        self._reap()

    def _signal(self, number: int) -> None:
        if number in (signal.SIGTERM, signal.SIGINT):
            self._stop()
        elif number == signal.SIGHUP:
            for worker in self._workers():
                self._reload(worker)
        elif number == signal.SIGUSR2:
            self._upgrade()

    def _reload(self, worker: Worker) -> None:
        worker.reload_due = not worker.listened
        if worker.listened:
            os.kill(worker.pid, signal.SIGHUP)

    def _stop(self) -> None:
        self._stopping, self._due_s = True, None
        for worker in self._workers():
            os.kill(worker.pid, signal.SIGTERM)

    # ---- workers --------------------------------------------------------------------------------------------
    def _start(self) -> Worker:
        """Starts a worker. Raises OSError where no more processes or files are allowed, perhaps only just now."""
        fds: list[int] = []
        parent = os.getpid()
        try:
            fds += os.pipe()
            fds += os.pipe()
            pid = os.fork()
        except OSError:
            for fd in fds:
                os.close(fd)
            raise
        reads, child_writes, child_reads, writes = fds
        if pid == 0:
            self._become(parent, child_reads, child_writes)
        os.close(child_writes)
        os.close(child_reads)
        os.set_blocking(reads, False)
        os.set_blocking(writes, False)
        return Worker(pid, reads, writes)

    def _become(self, parent: int, read_fd: int, write_fd: int) -> None:
        """Becomes a worker, in the child, or ends it."""
        try:
            for fd in (read_fd, write_fd):
                os.set_inheritable(fd, True)
            own = {"LISTEN_PID": str(os.getpid())} if self._has_sockets else {}
            if "WATCHDOG_USEC" in self._environ and self._watched:
                own["WATCHDOG_PID"] = str(os.getpid())
            arguments = [f"{parent}:{read_fd}:{write_fd}:{self.restarts}"]
            os.execve(self._command[0], [*self._command, *arguments], {**self._environ, **own})
        finally:
            os._exit(NO_EXEC)

    def _read(self, worker: Worker) -> None:
        try:
            chunk = os.read(worker.reads, CHUNK)
        except BlockingIOError:
            return
        whole, end, worker.unfinished_line = (worker.unfinished_line + chunk).rpartition(b"\n")
        lines = whole.split(b"\n") if end else []
        worker.was_ready |= READY in lines
        if LISTENING in lines:
            lines.remove(LISTENING)
            worker.listened = True
            if worker.reload_due:
                self._reload(worker)
            if worker is self.coming:
                self._replace(worker)
        if worker is self.current and lines and (self._stopping or ENDED not in lines):
            self._manager.notify(b"\n".join(lines))

    def _upgrade(self) -> None:
        if self.current is None or self._stopping or len(self._workers()) > 1:
            self._log.warning("no upgrade now: no worker runs, or one is being replaced")
            return
        try:
            self.coming = self._start()
        except OSError as exc:
            self._log.warning("no upgrade now: no process for a new worker", cause=os.strerror(exc.errno or 0))
            return
        self._log.info("a new worker starts beside the old one", old=self.current.pid, new=self.coming.pid)

    def _replace(self, coming: Worker) -> None:
        """Makes the new worker, which listens now, the current one. The old one ends."""
        old = self.current
        assert old is not None
        self.current, self.coming, self.leaving = coming, None, old
        old.send(REPLACED)

    def _reap(self) -> None:
        """Reaps workers that have ended, and orphans: in a container this may be the first process."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for worker in self._workers():
                if worker.pid == pid:
                    self._read(worker)
                    self._gone(worker, status)
                    worker.close()

    def _gone(self, worker: Worker, status: int) -> None:
        if worker is self.leaving:
            self.leaving = None
            self._log.info("the old worker has ended", worker=worker.pid, cause=_cause(status))
            self._go()
        elif worker is self.coming:
            self.coming = None
            self._log.warning("the new worker could not start: the old one goes on", cause=_cause(status))
        elif self._stopping or self._decided(worker, status):
            self.current = None
            unheard = self._stopping and not worker.listened and _code(status) == SIGNALLED + signal.SIGTERM
            self._code = 0 if unheard else _code(status)  # it was still starting: there was nothing to end in order
            self._stop()
        else:
            self.current, self.coming = self.coming, None
            self.restarts += 1
            if self.current is not None:
                self._go()
                return
            if worker.was_ready:
                self._young = 0
            self._log.warning(
                "the worker died; another one starts on the same sockets",
                worker=worker.pid,
                cause=_cause(status),
                restarts=self.restarts,
                again_ms=self._start_later(),
            )

    def _start_later(self) -> int:
        """Sets the start of the next worker: later and later, as long as none gets ready. Returns the pause in ms."""
        pause_s = PAUSES_S[min(self._young, len(PAUSES_S) - 1)]
        self._young += 1
        self._due_s = time.monotonic() + pause_s
        return round(pause_s * 1000)

    def _decided(self, worker: Worker, status: int) -> bool:
        """Returns whether the worker's exit code shows that another one would end like it. This includes a bug before
        it listened, but not an end in order without a signal to this process."""
        if not os.WIFEXITED(status):
            return False
        code = os.WEXITSTATUS(status)
        return code != 0 and not (code == BROKEN and worker.listened)


def _cause(status: int) -> str:
    return f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else f"code {os.WEXITSTATUS(status)}"


def _code(status: int) -> int:
    return SIGNALLED + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


def _nothing(number: int, frame: Any) -> None:
    """Does nothing: the signal's number comes by the wakeup descriptor."""


def main() -> None:
    level, form, node_id, *command = sys.argv[1:]
    sys.exit(Parent(command, Lines(level, form, int(node_id)), dict(os.environ)).run())


if __name__ == "__main__":
    main()
