"""The ways of this process to brokers: `bootstrap` for its own purposes, and `broker`, the listener for clients, to see
what clients see. The properties files are read again when a broker refuses their credentials, and on SIGHUP."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sidecar.coordinator.statelog.startup_errors import StartError
from sidecar.core.vocabulary.errors import Code
from sidecar.kafka.credentials import Credentials, Login
from sidecar.kafka.denials import TOPIC, Denials
from sidecar.kafka.errors import SecurityError
from sidecar.kafka.security import PLAINTEXT, Security
from sidecar.link.ports import Logger
from sidecar.process.settings import Settings

if TYPE_CHECKING:
    from sidecar.coordinator.statelog.tail import Listener

NOT_AUTHENTICATED = (-169, -181)
"""Error codes _AUTHENTICATION and _SSL of librdkafka, whose import takes longer than the clients' port should wait."""
TAIL = ("tail", 0)
"""The address of all refusals to librdkafka, which does not tell the broker."""


class BrokerCredentials:
    """The credentials of both ways. `own`: for `bootstrap`; `broker`: for `broker`. With one listener for everything
    they are the same."""

    def __init__(self, own: Credentials, broker: Credentials, denials: Denials) -> None:
        self.own, self.broker = own, broker
        self.changed: Callable[[], None] = lambda: None
        """Callback after the file of `own` was read again."""
        self._denials = denials
        self._tail_denied = False
        own.changed = lambda: self.changed()

    @classmethod
    def of(cls, s: Settings, denials: Denials, log: Logger) -> BrokerCredentials:
        """Reads the files of properties. Raises StartError."""
        own = _credentials("command_config", s.command_config, denials, log)
        if s.broker_command_config is None:
            return cls(own, own, denials)
        broker = _credentials("broker_command_config", s.broker_command_config, denials, log)
        return cls(own if s.bootstrap else broker, broker, denials)

    def again(self) -> None:
        """Reads the files again."""
        for credentials in dict.fromkeys((self.own, self.broker)):
            credentials.again()

    def librdkafka(self) -> dict[str, Any]:
        """Returns the security settings in librdkafka's names. Raises StartError."""
        try:
            return self.own.now.librdkafka()
        except SecurityError as exc:
            raise StartError(f"command_config: {exc}") from None

    def tail_denied(self, topic: str, code: int, text: str) -> None:
        """Notes a refusal to librdkafka, which reads the state topic."""
        self._tail_denied = True
        if code in NOT_AUTHENTICATED:
            self.own.refused(*TAIL, text, sure=False)
        else:
            self._denials.outcome("Fetch", TOPIC, topic, code)

    def tail_read(self, topic: str) -> None:
        """Notes that librdkafka has read the state topic, and so ends what `tail_denied` noted."""
        if self._tail_denied:
            self._tail_denied = False
            self.own.accepted(*TAIL)
            self._denials.outcome("Fetch", TOPIC, topic, Code.NONE)


class ReadListener:
    """A listener of the tail with a callback `read` after each end of the topic that the tail reaches."""

    def __init__(self, listener: Listener, read: Callable[[], None]) -> None:
        self._listener = listener
        self._read = read

    def tail_read(self, partition: int) -> None:
        self._read()
        self._listener.tail_read(partition)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._listener, name)


class ClientsTls:
    """The TLS of the clients' connections to the broker: never with the sidecar's own certificate, as every client
    would have its principal. A truststore that has changed counts for new connections."""

    def __init__(self, broker: Login, log: Logger) -> None:
        self._broker = broker
        self._log = log
        self._last = broker.now.ssl_context(own=False)
        self._failed = ""

    def __call__(self) -> ssl.SSLContext | None:
        """Returns the context for a new connection; the former one while the files cannot be read."""
        try:
            self._last, self._failed = self._broker.now.ssl_context(own=False), ""
        except SecurityError as exc:
            if str(exc) != self._failed:
                self._failed = str(exc)
                self._log.error("truststore for the broker not read: the former one counts", problem=self._failed)
        return self._last


def _credentials(name: str, path: Path | None, denials: Denials, log: Logger) -> Credentials:
    return Credentials(name, path, read_properties(name, path), denials, log)


def read_properties(name: str, path: Path | None) -> Security:
    """Reads a file of properties. `name`: of the setting that names the file. Raises StartError."""
    if path is None:
        return PLAINTEXT
    from sidecar.kafka.properties import read  # takes a while, and few need it

    try:
        security = read(path)
        security.ssl_context()
    except SecurityError as exc:
        raise StartError(f"{name}: {exc}") from None
    return security
