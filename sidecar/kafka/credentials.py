"""Credentials of the sidecar's own clients, from a file that is read again.

The file is read again when a broker refuses the old credentials, and on SIGHUP. Connections that are open go on. A
broker that has refused is left alone for PAUSE_S, so a wrong password locks no account by its sheer number.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from sidecar.kafka.denials import LASTS_S, Denials
from sidecar.kafka.errors import SecurityError
from sidecar.kafka.security import PLAINTEXT, Security
from sidecar.link.ports import Logger

PAUSE_S = 1.0
UNSURE_MAX = 3
"""Resets in a row after which a connection counts as refused; a single one may be a broker that ends."""


class Login(Protocol):
    """The credentials of a connection: a fixed Security, or Credentials."""

    @property
    def now(self) -> Security: ...

    def refusal(self, host: str, port: int) -> str:
        """Returns the reason why that address is not asked right now; empty if it may be."""

    def refused(self, host: str, port: int, why: str, sure: bool = True, used: Security | None = None) -> None:
        """Takes in a refusal of the credentials `used`; None: of those of now."""

    def accepted(self, host: str, port: int) -> None: ...

    def answered(self, api: str, req: object, res: object) -> None: ...

    def outcome(self, api: str, kind: str, name: str, code: int) -> None: ...


class Credentials:
    """Credentials that follow a file. `name`: of the setting that names it; without a file they never change."""

    def __init__(self, name: str, path: Path | None, now: Security, denials: Denials, log: Logger) -> None:
        self.now = now
        self.changed: Callable[[], None] = lambda: None
        """Callback after the file was read again. Its content may be the same, while that of its stores is not."""
        self._name, self._path = name, path
        self._denials, self._log = denials, log
        self._refused: dict[tuple[str, int], tuple[float, str]] = {}
        """Address -> monotonic time of its last refusal in seconds, and the reason."""
        self._unsure: dict[tuple[str, int], int] = {}

    def again(self) -> None:
        """Reads the file again."""
        if self._path is not None:
            from sidecar.kafka.properties import read

            try:
                security = read(self._path)
                security.ssl_context()
            except SecurityError as exc:
                self._denials.refused(self._name, str(exc), f"mend the file that {self._name} names")
                return
            if security != self.now:
                self.now = security
                self._refused.clear()
                self._log.info("credentials read again", setting=self._name, now=security.shown())
        self.changed()

    # ---- reports of connections --------------------------------------------------------------------------
    def refusal(self, host: str, port: int) -> str:
        at_s, why = self._refused.get((host, port), (float("-inf"), ""))
        return why if time.monotonic() - at_s < PAUSE_S else ""

    def refused(self, host: str, port: int, why: str, sure: bool = True, used: Security | None = None) -> None:
        if used is not None and used is not self.now:
            return  # of former credentials: nobody may connect to this address again soon, and so end the denial
        address = (host, port)
        self._unsure[address] = self._unsure.get(address, 0) + 1
        if not sure and self._unsure[address] < UNSURE_MAX:
            return
        self._refused[address] = (time.monotonic(), why)
        if self.now.tokens is not None:
            self.now.tokens.forget()
        self._denials.refused(self._name, f"{host}:{port}: {why}", self._remedy())
        self.again()

    def _remedy(self) -> str:
        if self._path is None:
            return f"the listener wants credentials: name a file of client properties in {self._name}"
        return f"mend {self._path} ({self._name}): it is read again by itself. Open connections go on"

    def accepted(self, host: str, port: int) -> None:
        self._refused.pop((host, port), None)
        self._unsure.pop((host, port), None)
        lasts_s = time.monotonic() - LASTS_S  # an address that nobody asks any more accepts nothing
        if all(at_s < lasts_s for at_s, _ in self._refused.values()):
            self._denials.accepted(self._name)

    def answered(self, api: str, req: object, res: object) -> None:
        self._denials.answered(api, req, res)

    def outcome(self, api: str, kind: str, name: str, code: int) -> None:
        self._denials.outcome(api, kind, name, code)


def opened(denials: Denials, log: Logger) -> Credentials:
    """Returns credentials without a file."""
    return Credentials("command_config", None, PLAINTEXT, denials, log)
