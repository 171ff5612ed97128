"""ApiVersions, Metadata, FindCoordinator, CreateTopics, DeleteTopics, ListOffsets."""

from __future__ import annotations

import re
from collections.abc import Callable
from copy import copy

from sidecar.wire.generated import create_topics as ct
from sidecar.wire.generated import delete_topics as dt
from sidecar.wire.generated import find_coordinator as fc
from sidecar.wire.generated import list_offsets as lo
from sidecar.wire.generated import metadata as md
from tests.whole.broker import rights as rt
from tests.whole.broker.codes import Err, Refused
from tests.whole.broker.context import Context, Reply
from tests.whole.broker.groups import OFFSETS
from tests.whole.broker.image import TOPIC, Topic
from tests.whole.broker.node import Node
from tests.whole.broker.settings import known
from tests.whole.broker.txn import TRANSACTIONS

ZERO = b"\0" * 16
INTERNAL = (OFFSETS, TRANSACTIONS, "__share_group_state")
GROUP, TRANSACTION, SHARE = 0, 1, 2
DEBUGGING = -2
"""The replica id of who is no replica and asks as if."""
NO_OPERATIONS = -(1 << 31)
LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def legal(name: str) -> bool:
    return LEGAL.fullmatch(name) is not None and name not in (".", "..")


def illegal(name: str) -> str:
    """Topic.validate in words, for the names that the scripts have."""
    return (
        f"Topic name is invalid: '{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' "
        "and '-'"
    )


# ---- Metadata ---------------------------------------------------------------------------------------------------
def metadata(ctx: Context, req: md.MetadataRequest, reply: Reply) -> None:
    node, image = ctx.node, ctx.node.image
    found: list[md.MetadataResponseTopic] = []
    every = req.topics is None or (ctx.version == 0 and not req.topics)
    if every:
        found = [_topic(node, t) for t in image.topics.values() if ctx.may(rt.DESCRIBE, rt.TOPIC, t.name)]
    else:
        for wanted in {(t.topic_id, t.name): t for t in req.topics or ()}.values():
            _asked(ctx, wanted, found)
    if req.include_topic_authorized_operations and ctx.version >= 8:
        for t in found:
            if t.name is not None and t.error_code != Err.TOPIC_AUTHORIZATION_FAILED:
                t.topic_authorized_operations = ctx.rights.operations(ctx.principal, rt.TOPIC, t.name)
    listed = []
    for n in sorted(image.alive):
        host, port = node.cluster.settings.addresses[n, ctx.listener]
        listed.append(md.MetadataResponseBroker(n, host, port, node.cluster.settings.racks.get(n)))
    operations = NO_OPERATIONS
    if req.include_cluster_authorized_operations and 8 <= ctx.version <= 10:
        may = ctx.may(rt.DESCRIBE, rt.CLUSTER, rt.CLUSTER_NAME)
        operations = ctx.rights.operations(ctx.principal, rt.CLUSTER, rt.CLUSTER_NAME) if may else 0
    controller = node.cluster.world.rng.choice(sorted(image.alive)) if image.alive else -1
    reply(md.MetadataResponse(0, listed, node.cluster.settings.cluster_id, controller, found, operations))


def _asked(ctx: Context, wanted: md.MetadataRequestTopic, found: list[md.MetadataResponseTopic]) -> None:
    image = ctx.node.image
    if wanted.topic_id != ZERO:
        t = image.by_id(wanted.topic_id)
        if t is None:
            found.append(md.MetadataResponseTopic(Err.UNKNOWN_TOPIC_ID, None, wanted.topic_id))
        elif not ctx.may(rt.DESCRIBE, rt.TOPIC, t.name):
            found.append(md.MetadataResponseTopic(Err.TOPIC_AUTHORIZATION_FAILED, None, wanted.topic_id))
        else:
            found.append(_topic(ctx.node, t))
        return
    name = wanted.name or ""
    if not ctx.may(rt.DESCRIBE, rt.TOPIC, name):
        found.append(md.MetadataResponseTopic(Err.TOPIC_AUTHORIZATION_FAILED, name))
    elif name in image.topics:
        found.append(_topic(ctx.node, image.topics[name]))
    else:
        code = Err.UNKNOWN_TOPIC_OR_PARTITION if legal(name) else Err.INVALID_TOPIC_EXCEPTION
        found.append(md.MetadataResponseTopic(code, name, is_internal=name in INTERNAL))


def _topic(node: Node, t: Topic) -> md.MetadataResponseTopic:
    """As this image has it: a new one begins with none."""
    if t.name not in node.told:
        node.told[t.name] = _described(node, t)
    return copy(node.told[t.name])


def _described(node: Node, t: Topic) -> md.MetadataResponseTopic:
    alive = node.image.alive
    parts = []
    for i, p in enumerate(t.partitions):
        leader = p.leader if p.leader in alive else -1
        code = Err.NONE if leader >= 0 else Err.LEADER_NOT_AVAILABLE
        offline = [n for n in p.replicas if n not in alive]
        parts.append(
            md.MetadataResponsePartition(code, i, leader, p.leader_epoch, list(p.replicas), list(p.isr), offline)
        )
    return md.MetadataResponseTopic(Err.NONE, t.name, t.topic_id, t.name in INTERNAL, parts)


# ---- FindCoordinator ----------------------------------------------------------------------------------------------
def find_coordinator(ctx: Context, req: fc.FindCoordinatorRequest, reply: Reply) -> None:
    if ctx.version >= 4:
        found = [_coordinator(ctx, key, req.key_type) for key in req.coordinator_keys]
        reply(fc.FindCoordinatorResponse(coordinators=found))
        return
    one = _coordinator(ctx, req.key, req.key_type if ctx.version >= 1 else GROUP)
    text = "NONE" if one.error_code == Err.NONE else one.error_message
    reply(fc.FindCoordinatorResponse(0, one.error_code, text, one.node_id, one.host, one.port))


def _coordinator(ctx: Context, key: str, key_type: int) -> fc.Coordinator:
    node = ctx.node
    kind = rt.GROUP if key_type == GROUP else rt.TRANSACTIONAL_ID
    refusal = Err.GROUP_AUTHORIZATION_FAILED if key_type == GROUP else Err.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if key_type not in (GROUP, TRANSACTION):
        return _nobody(key, Err.INVALID_REQUEST)
    if not ctx.may(rt.DESCRIBE, kind, key):
        return _nobody(key, refusal)
    topic = OFFSETS if key_type == GROUP else TRANSACTIONS
    index = node.groups.partition(key) if key_type == GROUP else node.txns.partition(key)
    if topic not in node.image.topics:
        create_internal(node, topic)
        return _nobody(key, Err.COORDINATOR_NOT_AVAILABLE)
    p = node.image.partition(topic, index)
    if p is None or p.leader not in node.image.alive:
        return _nobody(key, Err.COORDINATOR_NOT_AVAILABLE)
    host, port = node.cluster.settings.addresses[p.leader, ctx.listener]
    return fc.Coordinator(key, p.leader, host, port, Err.NONE, "")


def _nobody(key: str, code: Err) -> fc.Coordinator:
    return fc.Coordinator(key, -1, "", -1, code, "")


def create_internal(node: Node, topic: str) -> None:
    """AutoTopicCreationManager: the topic of the coordinators is made when it is first needed, if there are enough
    brokers for its replicas."""
    prefix = "offsets.topic" if topic == OFFSETS else "transaction.state.log"
    settings, controller = node.settings, node.cluster.controller
    configs = {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"}
    if topic == TRANSACTIONS:
        configs["compression.type"] = "uncompressed"
        configs["min.insync.replicas"] = settings.text("transaction.state.log.min.isr")
        configs["unclean.leader.election.enable"] = "false"
    first = node.cluster.world.rng.randrange(len(node.cluster.nodes))

    def ask() -> None:
        try:
            count, replicas = (
                settings.number(f"{prefix}.num.partitions"),
                settings.number(f"{prefix}.replication.factor"),
            )
            controller.create_topic(topic, count, replicas, configs, first)
        except Refused:
            pass

    node.ask_controller(ask)


# ---- topics -------------------------------------------------------------------------------------------------------
def at_controller(ctx: Context, timeout_ms: int, ask: Callable[[], object], late: object, reply: Reply) -> None:
    """Forward a request to the controller. `late` is the answer if nothing is heard from it in time."""
    answered = [False]

    def answer(response: object) -> None:
        if not answered[0]:
            answered[0] = True
            timer.cancel()
            reply(response)

    def there() -> Callable[[], None]:
        response = ask()
        return lambda: answer(response)

    timer = ctx.node.later(max(timeout_ms, 1), lambda: answer(late))
    ctx.node.ask_controller(there)


def create_topics(ctx: Context, req: ct.CreateTopicsRequest, reply: Reply) -> None:
    names = [t.name for t in req.topics]

    def ask() -> ct.CreateTopicsResponse:
        found = []
        for t in req.topics:
            try:
                if names.count(t.name) > 1:
                    raise Refused(Err.INVALID_REQUEST, "Duplicate topic name.")
                found.append(_create(ctx, t, req.validate_only))
            except Refused as exc:
                found.append(ct.CreatableTopicResult(t.name, ZERO, exc.code, exc.text))
        return ct.CreateTopicsResponse(0, found)

    late = [ct.CreatableTopicResult(t.name, ZERO, Err.REQUEST_TIMED_OUT, None) for t in req.topics]
    at_controller(ctx, req.timeout_ms, ask, ct.CreateTopicsResponse(0, late), reply)


def _create(ctx: Context, t: ct.CreatableTopic, check_only: bool) -> ct.CreatableTopicResult:
    cluster = ctx.node.cluster
    if not (ctx.may(rt.CREATE, rt.CLUSTER, rt.CLUSTER_NAME) and ctx.may(rt.CREATE, rt.TOPIC, t.name)):
        raise Refused(Err.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
    if not legal(t.name):
        raise Refused(Err.INVALID_TOPIC_EXCEPTION, illegal(t.name))
    if t.name in cluster.controller.image.topics:
        raise Refused(Err.TOPIC_ALREADY_EXISTS, f"Topic '{t.name}' already exists.")
    for c in t.configs:
        if c.name not in known(TOPIC):
            raise Refused(Err.INVALID_CONFIG, f"Unknown topic config name: {c.name}")
    settings = cluster.controller.settings
    if t.assignments and (t.replication_factor != -1 or t.num_partitions != -1):
        what = "replication factor" if t.replication_factor != -1 else "numPartitions"
        text = f"A manual partition assignment was specified, but {what} was not set to -1."
        raise Refused(Err.INVALID_REQUEST, text)
    nodes = tuple(tuple(a.broker_ids) for a in sorted(t.assignments, key=lambda a: a.partition_index))
    count = settings.number("num.partitions") if t.num_partitions == -1 else t.num_partitions
    replicas = settings.number("default.replication.factor") if t.replication_factor == -1 else t.replication_factor
    configs = {c.name: c.value for c in t.configs if c.value is not None}
    first = cluster.world.rng.randrange(len(cluster.nodes))
    made = cluster.controller.create_topic(t.name, count, replicas, configs, first, check_only, nodes)
    told = [ct.CreatableTopicConfigs(*row) for row in _configs(ctx.node, configs)]
    size = len(made.partitions[0].replicas)
    return ct.CreatableTopicResult(t.name, made.topic_id, Err.NONE, None, 0, len(made.partitions), size, told)


def _configs(node: Node, own: dict[str, str]) -> list[tuple[str, str | None, bool, int, bool]]:
    settings = node.cluster.controller.settings
    rows: list[tuple[str, str | None, bool, int, bool]] = []
    for name in sorted(known(TOPIC)):
        default: tuple[str, str | None, int] = (name, known(TOPIC)[name].default, 5)
        _, value, source = next(settings.of(TOPIC, "", name), default)
        rows.append((name, own.get(name, value), False, 1 if name in own else source, False))
    return rows


def delete_topics(ctx: Context, req: dt.DeleteTopicsRequest, reply: Reply) -> None:
    asked = [(t.name, t.topic_id) for t in req.topics] if ctx.version >= 6 else [(n, ZERO) for n in req.topic_names]

    def ask() -> dt.DeleteTopicsResponse:
        return dt.DeleteTopicsResponse(0, [_delete(ctx, name, topic_id) for name, topic_id in asked])

    late = [dt.DeletableTopicResult(n, i, Err.REQUEST_TIMED_OUT, None) for n, i in asked]
    at_controller(ctx, req.timeout_ms, ask, dt.DeleteTopicsResponse(0, late), reply)


def _delete(ctx: Context, name: str | None, topic_id: bytes) -> dt.DeletableTopicResult:
    controller = ctx.node.cluster.controller
    if name is None and topic_id == ZERO:
        text = "Neither topic name nor id were specified."
        return dt.DeletableTopicResult(None, ZERO, Err.INVALID_REQUEST, text)
    if name is not None and topic_id != ZERO:
        text = "You may not specify both topic name and topic id."
        return dt.DeletableTopicResult(name, topic_id, Err.INVALID_REQUEST, text)
    t = controller.image.by_id(topic_id) if name is None else controller.image.topics.get(name)
    denied = "Topic authorization failed."
    if name is not None and not ctx.may(rt.DESCRIBE, rt.TOPIC, name):
        return dt.DeletableTopicResult(name, ZERO, Err.TOPIC_AUTHORIZATION_FAILED, denied)
    if t is None:
        if name is None:
            text = "This server does not host this topic ID."
            return dt.DeletableTopicResult(None, topic_id, Err.UNKNOWN_TOPIC_ID, text)
        text = "This server does not host this topic-partition."
        return dt.DeletableTopicResult(name, ZERO, Err.UNKNOWN_TOPIC_OR_PARTITION, text)
    if not ctx.may(rt.DELETE, rt.TOPIC, t.name):
        return dt.DeletableTopicResult(name, topic_id, Err.TOPIC_AUTHORIZATION_FAILED, denied)
    controller.delete_topic(t.name)
    return dt.DeletableTopicResult(t.name, t.topic_id)


# ---- ListOffsets --------------------------------------------------------------------------------------------------
def list_offsets(ctx: Context, req: lo.ListOffsetsRequest, reply: Reply) -> None:
    topics = []
    for t in req.topics:
        parts = [_offset(ctx, t.name, p, req.replica_id == DEBUGGING) for p in t.partitions]
        topics.append(lo.ListOffsetsTopicResponse(t.name, parts))
    reply(lo.ListOffsetsResponse(0, topics))


def _offset(ctx: Context, topic: str, p: lo.ListOffsetsPartition, anyone: bool) -> lo.ListOffsetsPartitionResponse:
    """`anyone`: followers answer, too, and all of them as to a replica."""
    node = ctx.node
    if not ctx.may(rt.DESCRIBE, rt.TOPIC, topic):
        return lo.ListOffsetsPartitionResponse(p.partition_index, Err.TOPIC_AUTHORIZATION_FAILED)
    if node.image.partition(topic, p.partition_index) is None:
        return lo.ListOffsetsPartitionResponse(p.partition_index, Err.UNKNOWN_TOPIC_OR_PARTITION)
    replica = node.replica(topic, p.partition_index, True)
    if replica is not None and p.current_leader_epoch not in (-1, replica.state.leader_epoch):
        newer = p.current_leader_epoch > replica.state.leader_epoch
        return lo.ListOffsetsPartitionResponse(
            p.partition_index, Err.UNKNOWN_LEADER_EPOCH if newer else Err.FENCED_LEADER_EPOCH
        )
    if replica is None or not (replica.leads or anyone):
        return lo.ListOffsetsPartitionResponse(p.partition_index, Err.NOT_LEADER_OR_FOLLOWER)
    log, mark = replica.log, replica.log.end if anyone else replica.high_watermark
    if p.timestamp in (-1, -2):
        at = mark if p.timestamp == -1 else log.start
        epoch = replica.state.leader_epoch if p.timestamp == -1 else log.epochs[0][0] if log.epochs else -1
        return lo.ListOffsetsPartitionResponse(p.partition_index, Err.NONE, -1, at, epoch)
    for batch in log.batches[: log.position(mark)]:
        for r in batch.records:
            if r.time_ms >= p.timestamp >= 0:
                return lo.ListOffsetsPartitionResponse(
                    p.partition_index, Err.NONE, r.time_ms, r.offset, batch.leader_epoch
                )
    return lo.ListOffsetsPartitionResponse(p.partition_index, Err.NONE, -1, -1, -1)
