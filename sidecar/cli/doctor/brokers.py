"""The check whether all brokers are up. Metadata names live brokers only, but of a topic all replicas."""

from __future__ import annotations

from sidecar.cli.doctor.model import Check, Facts, Status, Unknown


def brokers_up(f: Facts) -> Check:
    """Checks that no broker with replicas is down: that sidecars are not ready may follow from it."""
    name = "brokers"
    if isinstance(f.nodes, Unknown) or isinstance(f.topics, Unknown):
        return Check(name, Status.UNKNOWN, "Topics or nodes are not known.", "DESCRIBE of the topics is needed.")
    if nodes := down(f):
        finding = f"Broker {', '.join(map(str, nodes))} is down: it has replicas, and no other broker names it."
        remedy = "Start it. If it is gone for good, move its replicas with kafka-reassign-partitions.sh."
        return Check(name, Status.FAIL, finding, remedy)
    return Check(name, Status.OK, f"All are up: {len(f.nodes)}.")


def down(f: Facts) -> list[int]:
    """Returns the node ids of brokers that have replicas and are not up."""
    if isinstance(f.nodes, Unknown) or isinstance(f.topics, Unknown):
        return []
    return sorted({n for topic in f.topics.values() for n in topic.nodes} - {n.node_id for n in f.nodes})


def of_no_broker(f: Facts) -> list[int]:
    """Returns the node ids of sidecars that no broker has, up or down."""
    known = set() if isinstance(f.nodes, Unknown) else {n.node_id for n in f.nodes}
    return sorted({s.node_id for s in f.answered()} - known - set(down(f))) if known else []


def of_all_brokers(f: Facts, good: Check) -> Check:
    """Returns `good`, or UNKNOWN if a broker has not told its settings."""
    silent = [] if isinstance(f.brokers, Unknown) else [c.why for c in f.brokers.values() if isinstance(c, Unknown)]
    if not silent:
        return good
    finding = f"Not every broker told its settings: {'; '.join(silent)}."
    return Check(good.name, Status.UNKNOWN, finding, "DESCRIBE_CONFIGS of the cluster is needed.")
