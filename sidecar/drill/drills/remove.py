"""A broker and its sidecar are taken out for good, and another broker comes with the same node id."""

from __future__ import annotations

import json
from collections.abc import Mapping

from confluent_kafka import KafkaException

from sidecar.drill.drills.brokers import broker_of, start_again
from sidecar.drill.drills.commands import find_well
from sidecar.drill.drills.ground import Ground
from sidecar.drill.drills.sidecars import end_one
from sidecar.drill.drills.spec import Drill, Mark
from sidecar.drill.local import Broker
from sidecar.drill.processes import DrillError

REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
"""The main class of kafka-reassign-partitions.sh."""
CLUSTER = "org.apache.kafka.tools.ClusterTool"
"""The main class of kafka-cluster.sh."""
TOOL_S = 120.0
MOVED_S = 120.0
BROKER_S = 30.0
STUCK = "Offset fetch error for 0 partition(s): Broker: Not coordinator"
"""The log line of a client that is stuck: librdkafka never asks again for the offsets of its partitions (its issue
5586), with any coordinator, and the application has to be restarted."""

Replicas = Mapping[tuple[str, int], list[int]]
"""Node ids of each partition's replicas, its preferred leader first."""


class RemoveBroker(Drill):
    """The replicas of the broker beside the groups' owner are moved away, its sidecar and it are stopped, and it is
    unregistered. Then a broker with the same node id and an empty disk comes, with a sidecar, and takes its place."""

    name = "remove-broker"
    patience_s = 150.0

    def fault(self, ground: Ground, i: int) -> list[Mark]:
        k = ground.kafka
        self.victim = victim = ground.owner()
        self.before = replicas_of(ground)
        marks = [Mark.now(f"the replicas of broker {victim.node_id} are moved away")]
        reassign(ground, {at: [n for n in ids if n != victim.node_id] for at, ids in self.before.items()})
        ground.wait("the broker to have no replica", lambda: not _holds(ground, victim), MOVED_S, step_s=0.5)
        ground.wait("its sidecar to own nothing", lambda: not _owns(ground, victim), MOVED_S, step_s=0.25)
        start_stuck_anew(ground)
        ground.settled(self.patience_s)
        marks.append(Mark.now(f"broker {victim.node_id} and its sidecar are stopped"))
        end_one(self, victim)
        process, victim.process = broker_of(victim), None
        process.stop(BROKER_S)
        others = ",".join(f"127.0.0.1:{n.internal_port}" for n in k.nodes if n is not victim)
        tool(ground, CLUSTER, "unregister", "--bootstrap-server", others, "--id", str(victim.node_id))
        left = {n.node_id for n in k.nodes} - {victim.node_id}
        ground.wait("the cluster to forget the broker", lambda: brokers_of(ground) == left, MOVED_S)
        k.wait_ready()
        start_stuck_anew(ground)
        return marks

    def heal(self, ground: Ground, i: int) -> None:
        k, victim = ground.kafka, self.victim
        left = sorted(n.node_id for n in k.nodes if n is not victim)
        owners = set((k.owners(next(n for n in k.nodes if n is not victim)) or {}).get("owners", []))
        self.find("owners without the broker", sorted(owners), sorted(owners) == left)
        k.format(victim)
        k.start_sidecar(victim)
        reassigned = {at: ids for at, ids in self.before.items() if victim.node_id in ids}

        def as_it_was() -> None:
            ground.wait("the broker to be there", lambda: victim.node_id in brokers_of(ground), MOVED_S)
            reassign(ground, reassigned)

        start_again(ground, [victim], as_it_was)
        start_stuck_anew(ground)
        holds, owns = _holds(ground, victim), _owns(ground, victim)
        self.find(f"replicas and owned partitions of the second {victim.node_id}", (holds, owns), holds > 0 < owns)
        find_well(self, ground, "when another broker has the id")


def start_stuck_anew(ground: Ground) -> None:
    for c in ground.under_test:
        for client in [one for one in c.clients if STUCK in one.process.log.read_text(errors="replace")]:
            ground.report(f"{client.name} is stuck (librdkafka, issue 5586), and is started again")
            c.restart(client)
            client.hung = False  # this fault is known, and not the sidecars'


def replicas_of(ground: Ground) -> dict[tuple[str, int], list[int]]:
    topics = ground.admin().list_topics(timeout=30).topics
    return {(name, p): list(partition.replicas) for name, t in topics.items() for p, partition in t.partitions.items()}


def brokers_of(ground: Ground) -> set[int]:
    """Return the node ids of the brokers; none while no broker answers."""
    try:
        return set(ground.admin().list_topics(timeout=5).brokers)
    except KafkaException:
        return set()


def reassign(ground: Ground, wanted: Replicas) -> None:
    """Begin to move the replicas. Raises DrillError."""
    rows = [{"topic": topic, "partition": p, "replicas": ids} for (topic, p), ids in wanted.items()]
    file = ground.kafka.folder / "reassignment.json"
    file.write_text(json.dumps({"version": 1, "partitions": rows}))
    where = ("--bootstrap-server", ground.kafka.internal, "--reassignment-json-file", str(file))
    tool(ground, REASSIGN, *where, "--execute")


def tool(ground: Ground, main: str, *args: str) -> None:
    """Run a program of Kafka's. Raises DrillError."""
    code, output = ground.kafka.run_tool(main, *args, *ground.kafka.command_config, timeout_s=TOOL_S)
    if code != 0:
        raise DrillError(f"{main} {' '.join(args)}: exit code {code}: {output[-500:]}")


def _holds(ground: Ground, node: Broker) -> int:
    """Return the number of partitions with a replica at this broker."""
    return sum(node.node_id in ids for ids in replicas_of(ground).values())


def _owns(ground: Ground, node: Broker) -> int:
    """Return the number of partitions that this broker's sidecar owns, by the first sidecar's owner map."""
    view = ground.kafka.owners(ground.kafka.nodes[0]) or {}
    return sum(owner == node.node_id for owner in view.get("owners", [node.node_id]))
