"""What systemd and the sidecar tell each other: a listening socket that is handed over (sd_listen_fds), and when the
sidecar is ready, stops, or still lives (sd_notify). Without systemd nothing of this does anything."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Mapping

from sidecar.coordinator.start_errors import StartError
from sidecar.link.ports import Logger
from sidecar.process.sections import split

FIRST_FD = 3
"""Where handed over sockets begin: SD_LISTEN_FDS_START."""
EXTEND_S = 10.0
CLIENTS = "clients"
"""The name of the clients' socket: FileDescriptorName= of the socket unit."""


def inherited_socket(listen: str, env: Mapping[str, str] = os.environ) -> socket.socket | None:
    """The clients' listening socket, if this process was started with one; None: there is none. Raises StartError if
    what was handed over is not what `listen` says.

    The socket is a duplicate. The one that was handed over stays open, so that connections wait in it while the sidecar
    starts anew in the same process."""
    if env.get("LISTEN_PID") != str(os.getpid()):
        return None
    count = int(env.get("LISTEN_FDS", "0"))
    names = env.get("LISTEN_FDNAMES", "").split(":")
    fds = [FIRST_FD + i for i in range(count) if names[i : i + 1] == [CLIENTS]]
    if len(fds) != 1:
        told = f"{count} sockets were handed over, {len(fds)} of them named {CLIENTS!r}"
        raise StartError(f"{told}: the socket unit needs one ListenStream= and FileDescriptorName={CLIENTS}")
    sock = socket.socket(fileno=os.dup(fds[0]))
    _check(sock, listen)
    sock.setblocking(False)
    return sock


def _check(sock: socket.socket, listen: str) -> None:
    inet = sock.family in (socket.AF_INET, socket.AF_INET6) and sock.type == socket.SOCK_STREAM
    if not inet or not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        raise StartError(f"the socket that was handed over as {CLIENTS!r} is no listening TCP socket")
    port = sock.getsockname()[1]
    if port != split(listen)[1]:
        raise StartError(f"the socket that was handed over has port {port}, but listen is {listen}: make both the same")


class Notifier:
    """`ready`, `stopping` and `alive` send a datagram to the service manager, if there is one."""

    def __init__(self, log: Logger, env: Mapping[str, str] = os.environ) -> None:
        self._log = log
        path = env.get("NOTIFY_SOCKET", "")
        self._address = "\0" + path[1:] if path.startswith("@") else path
        pid, usec = env.get("WATCHDOG_PID", str(os.getpid())), int(env.get("WATCHDOG_USEC", "0"))
        self.watchdog_s = usec / 1e6 if self._address and pid == str(os.getpid()) else 0.0
        """The manager ends this process if it was silent for so long; 0: never."""

    def ready(self) -> None:
        self._send("READY=1\nSTATUS=ready")

    def starting(self, problem: str) -> None:
        """More time for the start: ports are open, and what is missing may take long to come."""
        self._send(f"EXTEND_TIMEOUT_USEC={int(3e6 * EXTEND_S)}\nSTATUS={problem}")

    def stopping(self) -> None:
        self._send("STOPPING=1\nSTATUS=stopping")

    def alive(self) -> None:
        self._send("WATCHDOG=1")

    def _send(self, text: str) -> None:
        """Never waits: a manager that takes nothing must not hold up the loop. It does what it does with silence."""
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            try:
                sock.sendto(text.encode(), self._address)
            except OSError as exc:
                told = text.partition("\n")[0]
                self._log.warning("service manager not reached", told=told, problem=exc.strerror or str(exc))


async def keep_starting(notifier: Notifier, problem: Callable[[], str]) -> None:
    """For as long as the start takes: a manager that ended the process would close the ports, too."""
    while True:
        await asyncio.sleep(EXTEND_S)
        notifier.starting(problem())


async def keep_alive(notifier: Notifier) -> None:
    """Say that the loop turns, three times in the watchdog's time; a loop that is held up is silent."""
    while True:
        notifier.alive()
        await asyncio.sleep(notifier.watchdog_s / 3)
