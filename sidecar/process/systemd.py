"""Messages to systemd (sd_notify): ready, stopping, alive. A worker sends them to its parent, which passes them on.
Without systemd they go nowhere."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Mapping

from sidecar.link.ports import Logger

EXTEND_S = 10.0


class Notifier:
    """Sends datagrams to the service manager, if there is one: `ready`, `stopping`, `alive`."""

    def __init__(
        self, log: Logger, env: Mapping[str, str] = os.environ, parent: Callable[[str], None] | None = None
    ) -> None:
        """Takes in the environment. `parent`: gets all messages in the manager's place."""
        self._log, self._parent = log, parent
        path = env.get("NOTIFY_SOCKET", "")
        self._address = "\0" + path[1:] if path.startswith("@") else path
        pid, usec = env.get("WATCHDOG_PID", str(os.getpid())), int(env.get("WATCHDOG_USEC", "0"))
        self.watchdog_s = usec / 1e6 if (self._address or parent) and pid == str(os.getpid()) else 0.0
        """Silence after which the manager ends this process; 0: never."""

    def ready(self) -> None:
        self._send("READY=1\nSTATUS=ready")

    def starting(self, problem: str) -> None:
        """Asks for more time to start: ports are open, and the missing part may take long to come."""
        self._send(f"EXTEND_TIMEOUT_USEC={int(3e6 * EXTEND_S)}\nSTATUS={problem}")

    def stopping(self) -> None:
        self._send("STOPPING=1\nSTATUS=stopping")

    def alive(self) -> None:
        self._send("WATCHDOG=1")

    def _send(self, text: str) -> None:
        """Sends without waiting: a manager that takes nothing must not block the loop. A lost message is silence."""
        if self._parent is not None:
            self._parent(text)
            return
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            try:
                sock.sendto(text.encode(), self._address)
            except OSError as exc:
                line = text.partition("\n")[0]
                self._log.warning("service manager not reached", told=line, problem=exc.strerror or str(exc))


async def keep_starting(notifier: Notifier, problem: Callable[[], str]) -> None:
    """Asks for more time as long as the start takes: a manager that ended the process would close the ports, too."""
    while True:
        await asyncio.sleep(EXTEND_S)
        notifier.starting(problem())


async def keep_alive(notifier: Notifier) -> None:
    """Reports that the loop turns, three times in the watchdog's time; a blocked loop is silent."""
    while True:
        notifier.alive()
        await asyncio.sleep(notifier.watchdog_s / 3)
