"""A sidecar, or a broker with its sidecar, falls silent on the network: no connection ends, and nobody answers.

These drills need a cluster whose connections all go through lines that can be cut (`lined`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from sidecar.drill.drills.ground import PROPERTIES, SIDECAR_ENV, Ground
from sidecar.drill.drills.spec import Drill, Mark
from sidecar.drill.line import Lines, Route, Wire
from sidecar.drill.local import Broker, LocalKafka
from sidecar.drill.processes import free_ports


@dataclass
class LinedKafka(LocalKafka):
    """Clients, peers, brokers and controllers reach each other through lines; a sidecar its broker, too."""

    lines: Lines | None = field(default=None)

    def start_brokers(self) -> None:
        inside = [(n.node_id, p) for n in self.nodes for p in _listening(n)]
        routes = [Route(host, port, p) for (host, p), port in zip(inside, free_ports(len(inside)), strict=True)]
        self.proxied = {r.target: r.port for r in routes}
        self.lines = Lines(routes, self.pids).start()
        super().start_brokers()

    def pids(self) -> dict[int, str]:
        return {p.pid: p.name for p in self.processes() if p.alive}

    def stop(self) -> None:
        super().stop()
        if self.lines is not None:
            self.lines.stop()
            self.lines = None


def _listening(n: Broker) -> tuple[int, ...]:
    return n.clients_port, n.internal_port, n.controller_port, n.sidecar_port


def lined(folder: Path, version: str) -> LinedKafka:
    return LinedKafka(folder, version=version, properties=PROPERTIES, sidecar_env=SIDECAR_ENV)


def lines_of(ground: Ground) -> Lines:
    assert isinstance(ground.kafka, LinedKafka) and ground.kafka.lines is not None
    return ground.kafka.lines


class CutSidecar(Drill):
    """All connections of the owner's process fall silent, to its own broker too."""

    name = "cut-sidecar"
    stage = "lined"
    holds_s = 15.0
    back_before_heal = False

    def fault(self, ground: Ground, i: int) -> list[Mark]:
        owner, lines = ground.owner(), lines_of(ground)
        name, port = f"sidecar-{owner.node_id}", owner.sidecar_port
        assert owner.sidecar is not None
        mark = Mark.now(f"{name} is cut off")
        silent = lines.cut(lambda w: w.opened_by == name or w.to_port == port)
        self.find("connections that fell silent", silent, silent > 0)
        return [mark]

    def heal(self, ground: Ground, i: int) -> None:
        lines_of(ground).mend()
        ground.kafka.wait_ready(120)


class CutBroker(Drill):
    """A broker and its sidecar reach each other and nobody else: the host of the groups' owner is cut off."""

    name = "cut-broker"
    stage = "lined"
    holds_s = 25.0
    back_before_heal = False
    beside_kafka = True

    def fault(self, ground: Ground, i: int) -> list[Mark]:
        host = ground.owner().node_id
        here = {f"sidecar-{host}", f"broker-{host}"}

        def between_hosts(w: Wire) -> bool:
            return (w.opened_by in here) != (w.to_host == host)

        mark = Mark.now(f"broker {host} and its sidecar are cut off")
        silent = lines_of(ground).cut(between_hosts)
        self.find("connections that fell silent", silent, silent > 0)
        return [mark]

    def heal(self, ground: Ground, i: int) -> None:
        lines_of(ground).mend()
        ground.wait_in_sync()
        ground.kafka.wait_ready(120)
