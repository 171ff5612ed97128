"""Gathers the facts: over the wire client from brokers and sidecars, by HTTP from the sidecars' admin addresses."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sidecar.cli.asking import READY, Asking, Fields
from sidecar.cli.connect import Client
from sidecar.cli.doctor.checks import (
    BROKER_SESSION,
    EVERYONE,
    EXPIRATION,
    INITIAL_DELAY,
    MAX_SESSION,
    MIN_SESSION,
    RETENTION,
    TXN_LIMIT,
    TXN_REPLICAS,
)
from sidecar.cli.doctor.model import About, Configs, Facts, Grant, Node, Rights, Topic, Unknown
from sidecar.cli.exits import Failed
from sidecar.core.vocabulary import group_config as cf
from sidecar.core.vocabulary.errors import Code as Kafka
from sidecar.core.vocabulary.errors import name_of
from sidecar.core.vocabulary.internal_topics import OFFSETS, TRANSACTIONS
from sidecar.wire.primitives import ZERO_UUID

if TYPE_CHECKING:
    from sidecar.kafka.cluster import Cluster
    from sidecar.kafka.net import BrokerConnection

TOPIC = 2
SUPER_USERS, AUTHORIZER = "super.users", "authorizer.class.name"
BROKER_NAMES = [
    MIN_SESSION,
    MAX_SESSION,
    INITIAL_DELAY,
    RETENTION,
    BROKER_SESSION,
    EXPIRATION,
    TXN_LIMIT,
    TXN_REPLICAS,
    SUPER_USERS,
    AUTHORIZER,
    EVERYONE,
]
STATE_NAMES = [
    "cleanup.policy",
    "min.insync.replicas",
    "unclean.leader.election.enable",
    "min.compaction.lag.ms",
    "max.message.bytes",
]
PROBE = "sidecar-doctor"
"""A group that need not exist: a sidecar answers this command where any group is, a broker does not."""
KINDS = {2: "topic", 3: "group", 4: "cluster", 5: "transactional-id"}
"""ResourceType of Kafka's protocol; confluent-kafka calls the fourth one BROKER."""
ACLS_S = 10.0
READERS_S = 30.0
"""Time for the descriptions of all groups."""
GROUPS_AT_ONCE = 100
ABOUT: Fields = {"version": str, "node_id": int, "settings": dict, "wall_ms": int, "kernel": str}
OWNERS: Fields = {"owners": list}


def gather(client: Client, bootstrap: str, topic: str, sidecars: Sequence[About | Unknown], principal: str) -> Facts:
    """Returns the facts. `sidecars`: the result of `about` for each. Raises Failed if nobody answers at `bootstrap`.
    Any other fact that cannot be learned is Unknown."""
    facts = client.ask(bootstrap, cf.CLI_CLIENT, lambda cluster: _brokers(cluster, topic))
    facts.sidecars, facts.bootstrap = list(sidecars), bootstrap
    facts.rights = rights(client, bootstrap, principal, facts)
    facts.readers = readers_of(client, bootstrap, topic)
    return facts


async def _brokers(cluster: Cluster, topic: str) -> Facts:
    from sidecar.kafka.net import NO_ANSWER
    from sidecar.kafka.resolver import joined
    from sidecar.wire.generated import metadata as md

    facts = Facts(topic)
    res = await cluster.ask_anyone(md, "Metadata", md.MetadataRequest(topics=None, allow_auto_topic_creation=False))
    cluster.brokers.update({b.node_id: (b.host, b.port) for b in res.brokers})
    facts.topics = {t.name: _topic(t) for t in res.topics if t.name in (topic, OFFSETS, TRANSACTIONS) and t.partitions}
    nodes = await asyncio.gather(*(_node(cluster, b.node_id, joined([(b.host, b.port)])) for b in res.brokers))
    facts.nodes = sorted(nodes, key=lambda n: n.node_id)
    try:
        broker = await cluster.anyone()
        facts.state_configs = await configs(broker, TOPIC, topic, STATE_NAMES)
        facts.stored = await configs(broker, cf.BROKER, "", list(cf.BROKER_MOVES))
    except NO_ANSWER as exc:
        facts.state_configs = facts.stored = Unknown(str(exc) or "no answer in time")
    brokers: dict[int, Configs | Unknown] = {}
    for n in nodes:
        try:
            conn = await cluster.node(n.node_id)
            brokers[n.node_id] = await configs(conn, cf.BROKER, str(n.node_id), BROKER_NAMES)
        except NO_ANSWER as exc:
            brokers[n.node_id] = Unknown(f"node {n.node_id}: {str(exc) or 'no answer in time'}")
    facts.brokers = brokers
    return facts


def _topic(t: Any) -> Topic:
    parts = sorted(t.partitions, key=lambda p: int(p.partition_index))
    return Topic(
        len(parts),
        min(len(p.replica_nodes) for p in parts),
        tuple(p.partition_index for p in parts if p.leader_id < 0),
        tuple(p.partition_index for p in parts if len(p.isr_nodes) < len(p.replica_nodes)),
        t.topic_id != ZERO_UUID,
        frozenset(n for p in parts for n in p.replica_nodes),
    )


async def _node(cluster: Cluster, node_id: int, address: str) -> Node:
    """Returns whether a sidecar answers at the address to which clients are sent for this node."""
    from sidecar.kafka.net import NO_ANSWER

    try:
        conn = await cluster.node(node_id)
        settings = await configs(conn, cf.GROUP, PROBE, None)
    except NO_ANSWER as exc:
        return Node(node_id, address, None, str(exc) or "no answer in time")
    return Node(node_id, address, not isinstance(settings, Unknown) and cf.STATE in settings)


async def configs(conn: BrokerConnection, kind: int, name: str, names: list[str] | None) -> Configs | Unknown:
    """Returns the settings that have a value. Raises ConnectionLost, TimeoutError, WireError."""
    from sidecar.wire.generated import describe_configs as dc

    resource = dc.DescribeConfigsResource(kind, name, names)
    res = await conn.request(dc, "DescribeConfigs", dc.DescribeConfigsRequest(resources=[resource]))
    result = res.results[0]
    if result.error_code != Kafka.NONE:
        return Unknown(f"DescribeConfigs of {name or 'all brokers'}: {name_of(result.error_code)}")
    return {c.name: c.value for c in result.configs if c.value is not None}


def about(admin: str, asking: Asking) -> About | Unknown:
    """Returns a sidecar by its admin address. Its clock is compared with this one's, in the middle of the question."""
    try:
        began = time.time()
        answer = asking.get(admin, "/about", ABOUT)
        here_ms = int((began + time.time()) * 500)
        ready = asking.get(admin, "/readyz", READY)
        owners = asking.get(admin, "/owners", OWNERS)
        return About(
            admin,
            answer["version"],
            answer["node_id"],
            answer["settings"],
            answer["wall_ms"] - here_ms,
            tuple(ready["problems"]),
            tuple(owners["owners"]),
            answer["kernel"],
            tuple(ready.get("denials", ())),
            ready.get("last_denial"),
            answer.get("certificate_ends_ms", 0),
        )
    except Failed as failed:
        return Unknown(failed.what)


def rights(client: Client, bootstrap: str, principal: str, facts: Facts) -> Rights | Unknown:
    """Returns the ACLs. The brokers' settings tell whether there is an authorizer, and who the super users are."""
    broker_configs = (
        [] if isinstance(facts.brokers, Unknown) else [c for c in facts.brokers.values() if not isinstance(c, Unknown)]
    )
    if broker_configs and not any(c.get(AUTHORIZER) for c in broker_configs):
        return Rights(enforced=False)
    users = tuple(u.strip() for c in broker_configs for u in c.get(SUPER_USERS, "").split(";") if u.strip())
    grants = _grants(client, bootstrap)
    if isinstance(grants, Unknown):
        return grants
    return Rights(True, principal, users, grants, any(cf.truth(c.get(EVERYONE, "")) for c in broker_configs))


def _grants(client: Client, bootstrap: str) -> tuple[Grant, ...] | Unknown:
    """Returns all ACLs."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import (  # type: ignore[attr-defined]
        AclBindingFilter,
        AclOperation,
        AclPermissionType,
        ResourcePatternType,
        ResourceType,
    )

    everything: tuple[Any, ...] = (
        ResourceType.ANY,
        None,
        ResourcePatternType.ANY,
        None,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    admin = client.admin(bootstrap, cf.CLI_CLIENT)  # kept: without it the question would end unanswered
    try:
        bindings = admin.describe_acls(AclBindingFilter(*everything), request_timeout=ACLS_S).result()
    except KafkaException as exc:
        return Unknown(f"ACLs cannot be read: {exc.args[0].str()}")
    return tuple(
        Grant(
            a.principal,
            KINDS.get(a.restype.value, str(a.restype.value)),
            a.name,
            a.resource_pattern_type is ResourcePatternType.PREFIXED,
            "".join(part.capitalize() for part in a.operation.name.split("_")),
            a.permission_type is AclPermissionType.ALLOW,
            a.host,
        )
        for a in bindings
    )


def readers_of(client: Client, bootstrap: str, topic: str) -> tuple[str, ...] | Unknown:
    """Returns the groups with a member that is assigned partitions of this topic now. Unknown if there is none among
    those that are told, and not all are told."""
    from confluent_kafka import KafkaException

    admin = client.admin(bootstrap, cf.CLI_CLIENT)
    readers = []
    try:
        listed = admin.list_consumer_groups(request_timeout=ACLS_S).result()
    except KafkaException as exc:
        return Unknown(f"groups cannot be listed: {_words(exc)}")
    problems = [f"a node does not list its groups: {_words(exc)}" for exc in listed.errors]
    ids = sorted(g.group_id for g in listed.valid)
    until = time.monotonic() + READERS_S
    for at in range(0, len(ids), GROUPS_AT_ONCE):
        if (left_s := until - time.monotonic()) <= 0:
            problems.append(f"{len(ids) - at} of {len(ids)} groups are not described within {READERS_S:g} s")
            break
        batch = ids[at : at + GROUPS_AT_ONCE]
        futures = admin.describe_consumer_groups(batch, request_timeout=min(ACLS_S, left_s))
        for group_id, future in futures.items():
            if (error := future.exception()) is not None:
                problems.append(f"group {group_id} is not described: {_words(error)}")
                continue
            held = (m.assignment for m in future.result().members if m.assignment is not None)
            if any(p.topic == topic for a in held for p in a.topic_partitions):
                readers.append(group_id)
    return Unknown(problems[0]) if problems and not readers else tuple(readers)


def _words(error: Any) -> str:
    """Returns the text of an error of confluent-kafka, or of an exception."""
    error = error.args[0] if isinstance(error, Exception) and error.args else error
    return str(error.str()) if hasattr(error, "str") else str(error)
