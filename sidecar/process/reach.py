"""How this process reaches brokers: over `bootstrap` for its own purposes, and over `broker`, the listener for clients,
to see what clients see. The files of properties are read once, at the start."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sidecar.coordinator.start import StartError
from sidecar.kafka.errors import SecurityError
from sidecar.kafka.security import OPEN, Security
from sidecar.link.ports import Logger
from sidecar.process.settings import Settings


@dataclass(frozen=True)
class Reach:
    """`own`: of `bootstrap`; `broker`: of `broker`. With one listener for everything they are the same."""

    own: Security = OPEN
    broker: Security = OPEN

    @classmethod
    def of(cls, s: Settings) -> Reach:
        """Raises StartError."""
        own = _read("command_config", s.command_config)
        if s.broker_command_config is None:
            return cls(own, own)
        broker = _read("broker_command_config", s.broker_command_config)
        return cls(own if s.bootstrap else broker, broker)

    def librdkafka(self) -> dict[str, Any]:
        """Raises StartError."""
        try:
            return self.own.librdkafka()
        except SecurityError as exc:
            raise StartError(f"command_config: {exc}") from None


class ClientsTls:
    """TLS of the clients' connections to the broker: never with the sidecar's own certificate, as every client would
    have its principal. A truststore that has changed counts for new connections."""

    def __init__(self, broker: Security, log: Logger) -> None:
        self._broker = broker
        self._log = log
        self._last = broker.ssl_context(own=False)
        self._failed = ""

    def __call__(self) -> ssl.SSLContext | None:
        """The former one while the files cannot be read."""
        try:
            self._last, self._failed = self._broker.ssl_context(own=False), ""
        except SecurityError as exc:
            if str(exc) != self._failed:
                self._failed = str(exc)
                self._log.error("truststore for the broker not read: the former one counts", problem=self._failed)
        return self._last


def _read(name: str, path: Path | None) -> Security:
    if path is None:
        return OPEN
    from sidecar.kafka.properties import read  # takes a while, and few need it

    try:
        found = read(path)
        found.ssl_context()
    except SecurityError as exc:
        raise StartError(f"{name}: {exc}") from None
    return found
