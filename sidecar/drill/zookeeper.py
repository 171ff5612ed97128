"""ZooKeeper for brokers of Kafka before 3.3, in which KRaft was early access: one process for the whole cluster.

Kafka's own artifacts bring its jar along, so the brokers' class path is its class path, too.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from sidecar.drill.processes import DrillError, Process, free_ports, wait_until

KRAFT_SINCE = (3, 3)
MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
TICK_MS = 500
"""ZooKeeper's tick. The shortest session is two ticks; a killed broker can come back when its session is over."""
SESSION_MS = 4_000
UP_S = 60


def numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version: (2, 8, 2). Raises DrillError."""
    parts = re.findall(r"\d+", version)
    if not parts:
        raise DrillError(f"{version!r} is no version of Kafka: 4.3.1 is one")
    return tuple(map(int, parts))


class ZooKeeper:
    """Start with `start()`. It keeps its data below `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (self.port,) = free_ports(1)
        self.process: Process | None = None

    def start(self, java: Sequence[str]) -> None:
        """Start. `java`: the command of a JVM with Kafka's class path, up to the main class. Raises DrillError."""
        config = self._folder / "zookeeper.properties"
        settings = {
            "dataDir": str(self._folder / "zookeeper"),
            "clientPort": str(self.port),
            "clientPortAddress": "127.0.0.1",
            "tickTime": str(TICK_MS),
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "dump",
        }
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self.process = Process("zookeeper", [*java, MAIN, str(config)], self._folder / "zookeeper.log").start()
        wait_until("ZooKeeper", self._answers, UP_S, [self.process])

    def broker_properties(self, node_id: int) -> dict[str, str]:
        return {
            "broker.id": str(node_id),
            "zookeeper.connect": f"127.0.0.1:{self.port}",
            "zookeeper.session.timeout.ms": str(SESSION_MS),
        }

    def wait_without(self, node_id: int) -> None:
        """Wait until the session of a killed broker is over: until then one with its id ends at its start. Raises
        DrillError."""
        node = f"/brokers/ids/{node_id}\n"
        wait_until(f"ZooKeeper to forget broker {node_id}", lambda: node not in self._dump(), UP_S)

    def _answers(self) -> bool:
        """Whether it serves. An open port does not say so: ZooKeeper opens it first, and a connection that comes in
        between may never be answered."""
        try:
            return bool(self._dump(1.0))
        except OSError:
            return False

    def _dump(self, timeout_s: float = 5.0) -> str:
        """Return ZooKeeper's sessions, and the nodes that end with each."""
        address = ("127.0.0.1", self.port)
        with closing(socket.create_connection(address, timeout_s)) as conn, conn.makefile("rb") as answer:
            conn.sendall(b"dump")
            return answer.read().decode()

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
