"""Connections of commands to brokers and sidecars, with the properties of `--command-config` as in Kafka's own
tools."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from sidecar.cli.exits import Code, Failed

if TYPE_CHECKING:
    from sidecar.audit.history.topic import Reader
    from sidecar.core.vocabulary.topics import TopicImage
    from sidecar.kafka.cluster import Cluster

T = TypeVar("T")
_CONNECT = re.compile(r"\[Errno (\d+)\] Connect call failed \([^)]*\)")
_NUMBER = re.compile(r"\[Errno -?\d+\] |Multiple exceptions: ")


def address(text: str) -> tuple[str, int]:
    """Returns host and port. Raises Failed."""
    host, _, port = text.strip().rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise Failed(Code.USAGE, f"{text!r} is not HOST:PORT.", "Write a name or an address, a colon and a port.")
    return host.strip("[]"), int(port)


def addresses(bootstrap: str) -> str:
    """Returns the option as it is. Raises Failed for what librdkafka would take for another port, or wait for."""
    for part in bootstrap.split(",") if bootstrap else ():
        address(part)
    return bootstrap


Bootstrap = Annotated[
    str, typer.Option(metavar="HOST:PORT", callback=addresses, help="Brokers or sidecars; several with commas.")
]
SidecarBootstrap = Annotated[
    str, typer.Option(metavar="HOST:PORT", callback=addresses, help="A sidecar, as clients reach it.")
]
StateTopic = Annotated[str, typer.Option("--topic", help="The state topic.")]
CommandConfig = Annotated[
    Path | None, typer.Option(metavar="FILE", help="A file of client properties, key=value: security and so on.")
]
ROUTE = "`sidecar groups list --bootstrap HOST:PORT` shows all groups and where they are."
CHECK = "Check --bootstrap, and --command-config if the cluster asks for security."


@dataclass(frozen=True)
class Client:
    """Makes all clients of brokers for commands. `properties`: those of `--command-config`."""

    properties: Mapping[str, str] = field(default_factory=dict)

    def librdkafka(self) -> dict[str, Any]:
        """Returns the properties for clients of confluent-kafka. Raises Failed."""
        from sidecar.kafka.properties import librdkafka_of

        with _property_errors():
            return librdkafka_of(self.properties)

    def admin(self, bootstrap: str, client_id: str) -> Any:
        from confluent_kafka.admin import AdminClient

        fixed: dict[str, Any] = {"bootstrap.servers": bootstrap, "client.id": client_id, "log_level": 2}
        return AdminClient({**self.librdkafka(), **fixed})

    def reader(self, bootstrap: str, topic: str) -> Reader:
        """Returns a reader of the state topic."""
        from sidecar.audit.history.topic import Reader

        return Reader(bootstrap, topic, self.librdkafka())

    def cluster(self, bootstrap: str, client_id: str) -> Cluster:
        """Returns the sidecars' own wire client. Raises Failed."""
        from sidecar.kafka.cluster import Cluster
        from sidecar.kafka.properties import of

        with _property_errors():
            security = of(self.properties)
            security.ssl_context()
        return Cluster([address(a) for a in bootstrap.split(",")], client_id, {}, security=security)

    def ask(self, bootstrap: str, client_id: str, question: Callable[[Cluster], Coroutine[Any, Any, T]]) -> T:
        """Runs the question with the wire client, and returns its result. Raises Failed."""
        import asyncio

        from sidecar.kafka.net import NO_ANSWER

        async def ask() -> T:
            cluster = self.cluster(bootstrap, client_id)
            try:
                return await question(cluster)
            finally:
                cluster.close()

        try:
            return asyncio.run(ask())
        except NO_ANSWER as exc:
            raise Failed(Code.UNREACHED, f"{bootstrap}: {no_answer(str(exc))}", CHECK) from None


def no_answer(problem: str) -> str:
    """Returns the reason why a broker or sidecar did not answer, without Python's words for a refused connection."""
    return _NUMBER.sub("", _CONNECT.sub(lambda call: os.strerror(int(call[1])), problem)) or "no answer in time"


def client_of(command_config: Path | None) -> Client:
    """Returns a client with the properties of this file. Raises Failed."""
    return Client() if command_config is None else Client(properties(command_config))


def properties(path: Path) -> dict[str, str]:
    """Returns the properties of a file for Kafka's tools that are used here: security. Raises Failed."""
    import javaproperties

    from sidecar.kafka.errors import plain
    from sidecar.kafka.properties import secure

    try:
        return secure(javaproperties.loads(path.read_text()))
    except (OSError, UnicodeDecodeError, javaproperties.InvalidUEscapeError) as exc:
        raise Failed(Code.USAGE, f"{path}: {plain(exc)}", "Name a file of lines key=value.") from None


@contextmanager
def _property_errors() -> Iterator[None]:
    """Turns faults of the properties into Failed."""
    from sidecar.kafka.errors import SecurityError

    try:
        yield
    except SecurityError as exc:
        then = "The file has the properties of Kafka's own clients: security.protocol, sasl.*, ssl.*."
        raise Failed(Code.USAGE, f"--command-config: {exc}.", then) from None


@contextmanager
def readable() -> Iterator[None]:
    """Turns errors of reading the state topic into Failed."""
    from sidecar.audit.errors import AuditError

    try:
        yield
    except AuditError as exc:
        raise Failed(Code.UNREACHED, str(exc), "Check --bootstrap, --topic and --command-config.") from None


def named(group: str) -> str:
    """Raises BadParameter for a group without a name."""
    if not group.strip():
        raise typer.BadParameter("The group's id is empty.")
    return group


def finite(seconds: float) -> float:
    """Raises BadParameter for inf and nan, which Python takes for numbers."""
    if not isfinite(seconds):
        raise typer.BadParameter(f"{seconds} is no number of seconds or minutes.")
    return seconds


GroupId = Annotated[str, typer.Argument(help="The group's id.", callback=named)]


async def topics(cluster: Cluster) -> TopicImage:
    """Returns all topics as sidecars see them, with the racks of brokers that are down."""
    from sidecar.core.vocabulary.topics import TopicImage
    from sidecar.kafka.cluster import MetadataReader

    view = await MetadataReader({}).read(await cluster.anyone(), cluster)
    return TopicImage().next(view.topics)[0]
