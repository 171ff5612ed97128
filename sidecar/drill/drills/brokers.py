"""Faults of brokers. Groups that Kafka coordinates take part, for a comparison with Kafka's own times."""

from __future__ import annotations

import signal
from collections.abc import Callable

from sidecar.drill.drills.ground import OWNERS_GROUP, Ground
from sidecar.drill.drills.spec import Drill, Mark
from sidecar.drill.local import Broker
from sidecar.drill.processes import Process, port_open

SUSPENDED_S = 40.0


def broker_of(node: Broker) -> Process:
    assert node.process is not None, f"no broker {node.node_id}"
    return node.process


def start_again(ground: Ground, nodes: list[Broker], then: Callable[[], None] = lambda: None) -> None:
    """Start these brokers, and wait until they lead and follow as before and all sidecars are ready. `then` is called
    when they listen."""
    for node in nodes:
        ground.kafka.start_broker(node)
    ground.wait("the brokers to listen", lambda: all(port_open(n.clients_port) for n in nodes), 90)
    then()
    ground.wait_as_before()


class _OneBroker(Drill):
    """A fault of one broker. The victims in turn: the broker beside the groups' owner, which also leads their offsets
    and coordinates the groups of Kafka; then the one that coordinates the sidecars' own group."""

    victim: Broker | None = None
    beside_kafka = True

    def choose(self, ground: Ground, i: int) -> tuple[Broker, str]:
        owner, arbiter = ground.owner(), ground.coordinator(OWNERS_GROUP)
        what = "which the groups' owner stands beside"
        if i % 2:
            owner, what = arbiter, "which coordinates the sidecars' own group"
        return owner, what + (" (both)" if owner is arbiter and not i % 2 else "")


class KillBroker(_OneBroker):
    """SIGKILL to a broker; its sidecar stays."""

    name = "kill-broker"

    def fault(self, ground: Ground, i: int) -> list[Mark]:
        self.victim, what = self.choose(ground, i)
        process = broker_of(self.victim)
        mark = Mark.now(f"SIGKILL to broker {self.victim.node_id}, {what}")
        process.kill()
        self.victim.process = None
        return [mark]

    def heal(self, ground: Ground, i: int) -> None:
        assert self.victim is not None
        start_again(ground, [self.victim])


class SuspendBroker(_OneBroker):
    """SIGSTOP to a broker for 40 s. Its connections stay open, without answers. The first victim is the first of every
    client's bootstrap; then as in `kill-broker`."""

    name = "suspend-broker"
    holds_s = SUSPENDED_S
    back_before_heal = False

    def choose(self, ground: Ground, i: int) -> tuple[Broker, str]:
        if i % 3:
            return super().choose(ground, i % 3 - 1)
        return ground.kafka.nodes[0], "the first bootstrap"

    def fault(self, ground: Ground, i: int) -> list[Mark]:
        self.victim, what = self.choose(ground, i)
        mark = Mark.now(f"SIGSTOP to broker {self.victim.node_id}, {what}")
        broker_of(self.victim).signal(signal.SIGSTOP)
        return [mark]

    def heal(self, ground: Ground, i: int) -> None:
        assert self.victim is not None
        broker_of(self.victim).signal(signal.SIGCONT)
        ground.wait_as_before()


class FullRestart(Drill):
    """SIGKILL to all sidecars and all brokers at once; then all are started."""

    name = "full-restart"
    beside_kafka = True
    everything_stops = True
    patience_s = 150.0

    def fault(self, ground: Ground, i: int) -> list[Mark]:
        nodes = ground.kafka.nodes
        mark = Mark.now("SIGKILL to all sidecars and brokers, and all are started again")
        for node in nodes:
            for process in (node.sidecar, node.process):
                if process is not None:
                    process.kill()
            node.sidecar = node.process = None
        for node in nodes:
            ground.kafka.start_broker(node)
            ground.kafka.start_sidecar(node)
        return [mark]

    def heal(self, ground: Ground, i: int) -> None:
        ground.wait_as_before()
