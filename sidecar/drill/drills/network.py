"""Faults of the network: a sidecar, or a broker with its sidecar, falls silent. No connection ends, no answer comes.

These drills need a cluster whose connections all go through lines that can be cut (`lined`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from sidecar.drill.drills.ground import PROPERTIES, SIDECAR_ENV, Ground
from sidecar.drill.drills.spec import Drill, Mark
from sidecar.drill.line import Lines, Route, Wire
from sidecar.drill.local import Broker, LocalKafka
from sidecar.drill.processes import free_ports

OF_A_HOST = re.compile(r"(?:sidecar-|broker-|raft-client-)?(\d+)(?:-.*)?")
"""The host's number in a client id: `sidecar-1-tail`, `broker-1-fetcher-0`, `raft-client-1`, or `1`, which asks the
controller."""


@dataclass
class LinedKafka(LocalKafka):
    """A cluster in which clients, peers, brokers and controllers connect through lines, as do sidecars to brokers."""

    lines: Lines | None = field(default=None)

    def start_brokers(self) -> None:
        inside = [(n.node_id, p) for n in self.nodes for p in _listening(n)]
        routes = [Route(host, port, p) for (host, p), port in zip(inside, free_ports(len(inside)), strict=True)]
        self.proxied = {r.target: r.port for r in routes}
        self.lines = Lines(routes).start()
        super().start_brokers()

    def stop(self) -> None:
        super().stop()
        if self.lines is not None:
            self.lines.stop()
            self.lines = None


def _listening(n: Broker) -> tuple[int, ...]:
    return n.clients_port, n.internal_port, n.controller_port, n.sidecar_port, n.peer_port


def lined(folder: Path, version: str) -> LinedKafka:
    return LinedKafka(folder, version=version, properties=PROPERTIES, sidecar_env=SIDECAR_ENV)


def lines_of(ground: Ground) -> Lines:
    assert isinstance(ground.kafka, LinedKafka) and ground.kafka.lines is not None
    return ground.kafka.lines


def host_of(client_id: str) -> int:
    """Return the host that a request comes from, by the client id of a sidecar, a broker or a controller; else 0."""
    match = OF_A_HOST.fullmatch(client_id)
    return int(match[1]) if match else 0


class CutSidecar(Drill):
    """All connections of the owner's process fall silent, to its own broker too."""

    name = "cut-sidecar"
    stage = "lined"
    holds_s = 15.0
    back_before_heal = False

    def fault(self, ground: Ground, i: int) -> list[Mark]:
        owner = ground.owner()
        mine, name = (owner.sidecar_port, owner.clients_port, owner.peer_port), f"sidecar-{owner.node_id}"

        def to_or_from(w: Wire) -> bool:
            return w.to_port in mine or w.client_id.startswith(name)

        mark = Mark.now(f"{name} is cut off")
        silent = lines_of(ground).cut(to_or_from)
        ground.report(
            f"{len(silent)} connections fell silent, {sum(w.client_id.startswith(name) for w in silent)} of its own"
        )
        self.find("its own connections fell silent, too", "yes", any(w.client_id.startswith(name) for w in silent))
        return [mark]

    def heal(self, ground: Ground, i: int) -> None:
        lines_of(ground).mend()
        ground.kafka.wait_ready(120)


class CutBroker(Drill):
    """A broker and its sidecar reach only each other: the host of the groups' owner is cut off."""

    name = "cut-broker"
    stage = "lined"
    holds_s = 25.0
    back_before_heal = False
    beside_kafka = True

    def fault(self, ground: Ground, i: int) -> list[Mark]:
        owner = ground.owner()
        host, beside = owner.node_id, owner.clients_port

        def between_hosts(w: Wire) -> bool:
            return w.to_port != beside and (host_of(w.client_id) == host) != (w.to_host == host)

        mark = Mark.now(f"broker {host} and its sidecar are cut off")
        silent = lines_of(ground).cut(between_hosts)
        own = {w.client_id for w in silent if host_of(w.client_id) == host}
        ground.report(f"{len(silent)} connections fell silent, of its own {sorted(own)}")
        kinds = {name.split("-")[0] for name in own}
        self.find("sidecar, fetchers and controller of the host are silent", sorted(own), len(kinds) >= 3)
        return [mark]

    def heal(self, ground: Ground, i: int) -> None:
        lines_of(ground).mend()
        ground.wait_as_before()
