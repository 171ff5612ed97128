"""Testcontainers backend: Kafka's official image, one broker, the sidecar as a local process before it."""

from __future__ import annotations

from typing import Any

from sidecar.drill.local import Broker, LocalKafka
from sidecar.drill.processes import port_open, wait_until

IMAGE = "apache/kafka:{version}"


def engine_answers() -> bool:
    import docker
    from docker.errors import DockerException

    try:
        client = docker.from_env(timeout=3)
        client.ping()
        client.close()
    except (DockerException, OSError):
        return False
    return True


class DockerKafka(LocalKafka):
    """Listener CLIENTS advertises the sidecar on the host, INTERNAL the mapped port, BROKER is inside the container."""

    def start_brokers(self) -> None:
        from testcontainers.core.container import DockerContainer

        assert self.brokers == 1, "one broker: several would need a network of their own"
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "log4j2.xml").write_text("")
        node = self.nodes[0]
        container: Any = DockerContainer(IMAGE.format(version=self.version))
        for key, value in self._environment(node).items():
            container = container.with_env("KAFKA_" + key.upper().replace(".", "_"), value)
        container = container.with_bind_ports(9092, node.clients_port).with_bind_ports(9094, node.internal_port)
        self._container = container
        container.start()
        wait_until("the broker in its container", lambda: port_open(node.clients_port), 120)

    def _environment(self, n: Broker) -> dict[str, str]:
        outside = n.clients_port if self.front == "none" else n.sidecar_port
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": "1@localhost:9093",
            "controller.listener.names": "CONTROLLER",
            "listeners": "CLIENTS://:9092,INTERNAL://:9094,BROKER://:9095,CONTROLLER://:9093",
            "advertised.listeners": f"CLIENTS://127.0.0.1:{outside},INTERNAL://127.0.0.1:{n.internal_port}"
            ",BROKER://localhost:9095",
            "listener.security.protocol.map": ",".join(
                f"{name}:PLAINTEXT" for name in ("CLIENTS", "INTERNAL", "BROKER", "CONTROLLER")
            ),
            "inter.broker.listener.name": "BROKER",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            "auto.create.topics.enable": "false",
        }

    def stop(self) -> None:
        super().stop()
        container = getattr(self, "_container", None)
        if container is not None:
            container.stop()
