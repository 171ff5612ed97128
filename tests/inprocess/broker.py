"""The brokers of a cluster, in memory. They answer what a sidecar and its clients ask, one request after the other.

All that was asked is kept in `asked`, in its order, so that a test can say what reached a broker. `faults` makes
requests go wrong. Whoever wants to see the records of a topic, as the tail of a sidecar does, adds itself to `readers`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

from sidecar.core.vocabulary import group_config as cf
from sidecar.core.vocabulary.errors import Code
from sidecar.wire.apis import Api, message_name
from sidecar.wire.generated import add_partitions_to_txn as ap
from sidecar.wire.generated import api_versions as av
from sidecar.wire.generated import create_topics as ct
from sidecar.wire.generated import describe_configs as dc
from sidecar.wire.generated import describe_groups as dg
from sidecar.wire.generated import end_txn as et
from sidecar.wire.generated import find_coordinator as fc
from sidecar.wire.generated import heartbeat as hb
from sidecar.wire.generated import init_producer_id as ip
from sidecar.wire.generated import join_group as jg
from sidecar.wire.generated import leave_group as lg
from sidecar.wire.generated import list_config_resources as lr
from sidecar.wire.generated import list_offsets as lo
from sidecar.wire.generated import metadata as md
from sidecar.wire.generated import offset_commit as oc
from sidecar.wire.generated import produce as pr
from sidecar.wire.generated import sync_group as sg
from tests.inprocess.faults import Faults, Kind
from tests.inprocess.log import PartitionLog, Stored
from tests.inprocess.owners import Answer, ClassicGroup
from tests.inprocess.placeholder_group import PlaceholderGroup
from tests.inprocess.share import ASKED as SHARE_ASKED
from tests.inprocess.share import ShareGroups

STATE, OFFSETS, TRANSACTIONS = "__group_state", "__consumer_offsets", "__transaction_state"
APIS = (
    Api.PRODUCE,
    Api.LIST_OFFSETS,
    Api.METADATA,
    Api.OFFSET_COMMIT,
    Api.FIND_COORDINATOR,
    Api.JOIN_GROUP,
    Api.HEARTBEAT,
    Api.LEAVE_GROUP,
    Api.SYNC_GROUP,
    Api.DESCRIBE_GROUPS,
    Api.API_VERSIONS,
    Api.CREATE_TOPICS,
    Api.INIT_PRODUCER_ID,
    Api.ADD_PARTITIONS_TO_TXN,
    Api.END_TXN,
    Api.DESCRIBE_CONFIGS,
    Api.LIST_CONFIG_RESOURCES,
    Api.CONSUMER_GROUP_DESCRIBE,
    Api.STREAMS_GROUP_DESCRIBE,
    *SHARE_ASKED,
)


class Asked(NamedTuple):
    """A request that has reached a broker."""

    node_id: int
    api: Api
    request: Any


@dataclass
class FakeTopic:
    topic_id: bytes
    leaders: list[int]
    replicas: list[list[int]] = field(default_factory=list)
    """Replicas of each partition; empty: only the leader."""
    behind: set[int] = field(default_factory=set)
    """Partitions of which the last replica is not in sync."""

    def replicas_of(self, partition: int) -> list[int]:
        return self.replicas[partition] if self.replicas else [self.leaders[partition]]

    def in_sync(self, partition: int) -> list[int]:
        replicas = self.replicas_of(partition)
        return replicas[:-1] if partition in self.behind else replicas


@dataclass
class Producer:
    """Producer id and epoch of one transactional id."""

    producer_id: int
    epoch: int = -1
    open_at: set[tuple[str, int]] = field(default_factory=set)
    """The partitions of the transaction under way."""


Reader = Callable[[str, int, list[Stored]], None]
"""Topic, partition, the records that were appended."""


@dataclass
class FakeBrokers:
    """`nodes`: their ids. The state topic, `__consumer_offsets` and `__transaction_state` are there from the start."""

    nodes: tuple[int, ...] = (1,)
    controller: int = -1
    """The broker that makes topics; -1: each one does."""
    cluster_id: str = "in-memory"
    partitions: int = 2
    asked: list[Asked] = field(default_factory=list)
    faults: Faults = field(default_factory=Faults)
    topics: dict[str, FakeTopic] = field(default_factory=dict)
    logs: dict[tuple[str, int], PartitionLog] = field(default_factory=dict)
    readers: list[Reader] = field(default_factory=list)
    down: set[int] = field(default_factory=set)
    groups: dict[str, ClassicGroup] = field(default_factory=dict)
    placeholders: defaultdict[str, PlaceholderGroup] = field(default_factory=lambda: defaultdict(PlaceholderGroup))
    """The groups of clients, in which sidecars hold their placeholders."""
    marker_s: float = 0.0
    """From the end of a transaction to its markers in the partitions."""
    initial_delay_s: float = 0.0
    """group.initial.rebalance.delay.ms."""
    no_read: set[str] = field(default_factory=set)
    """Groups that no client may READ."""
    unserved: set[Api] = field(default_factory=set)
    """Answered UNSUPPORTED_VERSION, as while a feature is off."""
    no_describe: set[str] = field(default_factory=set)
    """Topics that no client may DESCRIBE."""
    failed_describe: set[str] = field(default_factory=set)
    """Topics over which the authorizer fails."""
    settings: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Settings of every broker: name -> value and source."""
    hidden: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    """Values that those settings hide, the last one Kafka's default."""
    group_settings: dict[str, dict[str, str]] = field(default_factory=dict)
    lost: list[Callable[[int], None]] = field(default_factory=list)
    """Called with the id of a node that goes down."""
    paused: dict[int, list[Callable[[], None]]] = field(default_factory=dict)
    """Silent nodes, with the requests that they answer after `resume`."""

    def __post_init__(self) -> None:
        self.share = ShareGroups(self.topics)
        """The clients' share groups; sidecars have placeholder members in them."""
        self.versions = {int(api): request_versions(api) for api in APIS}
        self.producers: dict[str, Producer] = {}
        self._read: defaultdict[tuple[str, int], int] = defaultdict(int)
        """Up to where readers know each partition."""
        for name in (STATE, OFFSETS):
            self.add_topic(name, self.partitions)
        self.add_topic(TRANSACTIONS, 1)

    # ---- what a test does -----------------------------------------------------------------------------------
    def add_topic(self, name: str, partitions: int) -> FakeTopic:
        """The leaders are the nodes in turn."""
        leaders = [self.nodes[p % len(self.nodes)] for p in range(partitions)]
        made = self.topics[name] = FakeTopic((len(self.topics) + 1).to_bytes(16, "big"), leaders)
        return made

    def address(self, node_id: int) -> tuple[str, int]:
        return f"broker-{node_id}", 9092

    def node_at(self, host: str, port: int) -> int | None:
        """The node that listens there, if it is up."""
        return next((n for n in self.nodes if self.address(n) == (host, port) and n not in self.down), None)

    def stop(self, node_id: int) -> None:
        """The node goes down, and every connection to it is lost."""
        self.down.add(node_id)
        for connection_lost in list(self.lost):
            connection_lost(node_id)

    def start(self, node_id: int) -> None:
        self.down.discard(node_id)

    def pause(self, node_id: int) -> None:
        self.paused.setdefault(node_id, [])

    def resume(self, node_id: int) -> None:
        for act in self.paused.pop(node_id):
            act()

    def log(self, partition: int = 0, topic: str = STATE) -> PartitionLog:
        return self.logs.setdefault((topic, partition), PartitionLog())

    def init(self, transactional_id: str) -> Producer:
        """InitProducerId, as of another sidecar: a new epoch for this transactional id."""
        found = self.producers.setdefault(transactional_id, Producer(1000 + len(self.producers)))
        found.epoch += 1
        self.end(found, False)
        return found

    def end(self, producer: Producer, commit: bool) -> None:
        """The transaction of this producer is committed or aborted, if it has one."""
        for topic, partition in producer.open_at:
            self.log(partition, topic).end(producer.producer_id, producer.epoch, commit)
            self._feed_readers(topic, partition)
        producer.open_at = set()

    def append(self, topic: str, partition: int, batch: bytes, named: bool = False) -> tuple[int, int]:
        """Returns the error code and the base offset; readers get the records a little later. `named`: the request
        has its transactional id."""
        code, offset = self.log(partition, topic).append(batch, named)
        self._feed_readers(topic, partition)
        return code, offset

    def _feed_readers(self, topic: str, partition: int) -> None:
        """Passes records to the readers up to the last stable offset."""
        log, before = self.log(partition, topic), self._read[(topic, partition)]
        self._read[(topic, partition)] = log.stable
        new = [r for r in log.records[before : log.stable] if r.offset not in log.hidden]
        if new:
            for reader in self.readers:
                reader(topic, partition, new)

    def count(self, api: Api) -> int:
        return sum(a.api == api for a in self.asked)

    def requests(self, api: Api) -> list[Any]:
        return [a.request for a in self.asked if a.api == api]

    # ---- serving ----------------------------------------------------------------------------------------------
    def serve(self, node_id: int, api: Api, version: int, req: Any, answer: Answer, lose: Callable[[], None]) -> None:
        """`answer` is called with the response, now, later or never; `lose` if the connection is lost instead."""
        if node_id in self.paused:
            self.paused[node_id].append(partial(self.serve, node_id, api, version, req, answer, lose))
            return
        self.asked.append(Asked(node_id, api, req))
        act = partial(HANDLERS[api], self, node_id, req, version)
        fault = self.faults.take(api, req)
        if fault is None:
            act(answer)
        elif fault.kind is Kind.FAIL:
            answer(refusal(api, req, version, fault.code))
        elif fault.kind is Kind.DROP:
            if fault.done:
                act(lambda response: None)
            lose()
        elif fault.kind is Kind.DELAY:
            asyncio.get_running_loop().call_later(fault.seconds, act, answer)
        else:
            fault.parked.append(partial(act, answer))


# ---- one function for each API --------------------------------------------------------------------------------------
def _versions(b: FakeBrokers, node_id: int, req: av.ApiVersionsRequest, version: int, answer: Answer) -> None:
    answer(av.ApiVersionsResponse(api_keys=[av.ApiVersion(k, low, high) for k, (low, high) in b.versions.items()]))


def _metadata(b: FakeBrokers, node_id: int, req: md.MetadataRequest, version: int, answer: Answer) -> None:
    up = [n for n in b.nodes if n not in b.down]
    names = [n for n in b.topics if n not in b.no_describe]
    topics = []
    if req.topics is not None:
        by_id = {t.topic_id: name for name, t in b.topics.items()}
        names = [t.name or by_id.get(t.topic_id, "") for t in req.topics]
        unknown = [t.topic_id for t in req.topics if t.name is None and t.topic_id not in by_id]
        topics = [md.MetadataResponseTopic(Code.UNKNOWN_TOPIC_ID, None, topic_id) for topic_id in unknown]
    for name in filter(None, names):
        there = b.topics.get(name)
        if name in b.no_describe:
            topics.append(md.MetadataResponseTopic(Code.TOPIC_AUTHORIZATION_FAILED, name))
            continue
        if there is None:
            topics.append(md.MetadataResponseTopic(Code.UNKNOWN_TOPIC_OR_PARTITION, name))
            continue
        parts = [
            md.MetadataResponsePartition(0, p, n, -1, there.replicas_of(p), there.in_sync(p))
            for p, n in enumerate(there.leaders)
        ]
        topics.append(md.MetadataResponseTopic(Code.NONE, name, there.topic_id, partitions=parts))
    brokers = [md.MetadataResponseBroker(n, *b.address(n)) for n in up]
    answer(md.MetadataResponse(brokers=brokers, cluster_id=b.cluster_id, controller_id=b.controller, topics=topics))


def _find_coordinator(
    b: FakeBrokers, node_id: int, req: fc.FindCoordinatorRequest, version: int, answer: Answer
) -> None:
    lacking = req.key_type == 1 and TRANSACTIONS not in b.topics
    up = [n for n in b.nodes if n not in b.down]
    if lacking or not up:
        answer(refusal(Api.FIND_COORDINATOR, req, version, Code.COORDINATOR_NOT_AVAILABLE))
        return
    host, port = b.address(up[0])
    keys = [fc.Coordinator(k, up[0], host, port) for k in req.coordinator_keys]
    answer(fc.FindCoordinatorResponse(node_id=up[0], host=host, port=port, coordinators=keys))


def _init(b: FakeBrokers, node_id: int, req: ip.InitProducerIdRequest, version: int, answer: Answer) -> None:
    made = b.init(req.transactional_id or "")
    answer(ip.InitProducerIdResponse(producer_id=made.producer_id, producer_epoch=made.epoch))


def _add_partitions(
    b: FakeBrokers, node_id: int, req: ap.AddPartitionsToTxnRequest, version: int, answer: Answer
) -> None:
    who = b.producers.get(req.v3_and_below_transactional_id)
    fenced = who is None or who.epoch != req.v3_and_below_producer_epoch
    told = []
    for t in req.v3_and_below_topics:
        parts = []
        for p in t.partitions:
            if who is not None and not fenced:
                who.open_at.add((t.name, p))
            code = Code.PRODUCER_FENCED if fenced else Code.NONE
            parts.append(ap.AddPartitionsToTxnPartitionResult(p, code))
        told.append(ap.AddPartitionsToTxnTopicResult(t.name, parts))
    answer(ap.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=told))


def _end_txn(b: FakeBrokers, node_id: int, req: et.EndTxnRequest, version: int, answer: Answer) -> None:
    """As with Kafka, the markers come to the partitions a little after the answer."""
    who = b.producers.get(req.transactional_id)
    if who is None or who.epoch != req.producer_epoch:
        answer(et.EndTxnResponse(error_code=Code.PRODUCER_FENCED))
        return
    asyncio.get_running_loop().call_later(b.marker_s, b.end, replace(who), req.committed)
    who.open_at = set()
    answer(et.EndTxnResponse())


def _produce(b: FakeBrokers, node_id: int, req: pr.ProduceRequest, version: int, answer: Answer) -> None:
    told = []
    for t in req.topic_data:
        parts = []
        for p in t.partition_data:
            if version >= 13:
                name = next((n for n, topic in b.topics.items() if topic.topic_id == t.topic_id), "")
            else:
                name = t.name
            there = b.topics.get(name)
            if there is None and version >= 13:
                code, offset = int(Code.UNKNOWN_TOPIC_ID), -1
            elif there is None or p.index >= len(there.leaders):
                code, offset = int(Code.UNKNOWN_TOPIC_OR_PARTITION), -1
            elif there.leaders[p.index] != node_id:
                code, offset = int(Code.NOT_LEADER_OR_FOLLOWER), -1
            else:
                code, offset = b.append(name, p.index, p.records or b"", req.transactional_id is not None)
            parts.append(pr.PartitionProduceResponse(p.index, code, offset))
        told.append(pr.TopicProduceResponse(t.name, t.topic_id, parts))
    answer(pr.ProduceResponse(responses=told))


def _join(b: FakeBrokers, node_id: int, req: jg.JoinGroupRequest, version: int, answer: Answer) -> None:
    if req.group_instance_id is not None:
        b.placeholders[req.group_id].join(req, answer, b.initial_delay_s)
    else:
        b.groups.setdefault(req.group_id, ClassicGroup()).join(req, answer)


def _sync(b: FakeBrokers, node_id: int, req: sg.SyncGroupRequest, version: int, answer: Answer) -> None:
    if req.group_instance_id is not None:
        b.placeholders[req.group_id].sync(req, answer)
    else:
        b.groups.setdefault(req.group_id, ClassicGroup()).sync(req, answer)


def _heartbeat(b: FakeBrokers, node_id: int, req: hb.HeartbeatRequest, version: int, answer: Answer) -> None:
    """Answers a heartbeat. A front also finds out by one whether a client may READ a group."""
    if req.group_id in b.no_read:
        answer(hb.HeartbeatResponse(error_code=Code.GROUP_AUTHORIZATION_FAILED))
    elif req.group_instance_id is not None:
        b.placeholders[req.group_id].heartbeat(req, answer)
    else:
        b.groups.get(req.group_id, ClassicGroup()).heartbeat(req, answer)


def _leave(b: FakeBrokers, node_id: int, req: lg.LeaveGroupRequest, version: int, answer: Answer) -> None:
    if any(m.group_instance_id is not None for m in req.members):
        b.placeholders[req.group_id].leave(req, answer)
    else:
        b.groups.get(req.group_id, ClassicGroup()).leave(req, answer)


def _describe_groups(b: FakeBrokers, node_id: int, req: dg.DescribeGroupsRequest, version: int, answer: Answer) -> None:
    told = []
    for g in req.groups:
        code = Code.GROUP_AUTHORIZATION_FAILED if g in b.no_read else Code.NONE
        there = b.placeholders.get(g) or b.groups.get(g)
        told.append(dg.DescribedGroup(code, None, g, "Dead") if code or there is None else there.described(g))
    answer(dg.DescribeGroupsResponse(groups=told))


def _described_by_kind(api: Api) -> Callable[..., None]:
    """No group of this kind is there; whether it is served says `unserved`."""

    def describe(b: FakeBrokers, node_id: int, req: Any, version: int, answer: Answer) -> None:
        code = Code.UNSUPPORTED_VERSION if api in b.unserved else Code.GROUP_ID_NOT_FOUND
        groups = [module(api).DescribedGroup(error_code=code, group_id=g) for g in req.group_ids]
        answer(getattr(module(api), f"{message_name(api)}Response")(groups=groups))

    return describe


def _list_offsets(b: FakeBrokers, node_id: int, req: lo.ListOffsetsRequest, version: int, answer: Answer) -> None:
    told = []
    for t in req.topics:
        code = Code.TOPIC_AUTHORIZATION_FAILED if t.name in b.no_describe else Code.NONE
        code = Code.UNKNOWN_SERVER_ERROR if t.name in b.failed_describe else code
        logs = {p.partition_index: b.logs.get((t.name, p.partition_index)) for p in t.partitions}
        ends = {p: -1 if log is None else log.seen_to for p, log in logs.items()}
        parts = [lo.ListOffsetsPartitionResponse(p, code, offset=end) for p, end in ends.items()]
        told.append(lo.ListOffsetsTopicResponse(t.name, parts))
    answer(lo.ListOffsetsResponse(topics=told))


def _offset_commit(b: FakeBrokers, node_id: int, req: oc.OffsetCommitRequest, version: int, answer: Answer) -> None:
    owners = b.groups.get(req.group_id)
    if owners is not None:
        code = owners.commit_refusal(req.member_id, req.generation_id_or_member_epoch)
        answer(refusal(Api.OFFSET_COMMIT, req, version, code))
        return
    there = b.placeholders.get(req.group_id, PlaceholderGroup())
    code = there.commit_refusal(req.member_id, req.group_instance_id, req.generation_id_or_member_epoch)
    answer(refusal(Api.OFFSET_COMMIT, req, version, code))


def _create_topics(b: FakeBrokers, node_id: int, req: ct.CreateTopicsRequest, version: int, answer: Answer) -> None:
    told = []
    for t in req.topics:
        code = Code.TOPIC_ALREADY_EXISTS if t.name in b.topics else Code.NONE
        nodes = [a.broker_ids for a in t.assignments]
        if any(n not in b.nodes for ids in nodes for n in ids):
            code = Code.INVALID_REPLICA_ASSIGNMENT
        if b.controller not in (-1, node_id):
            code = Code.NOT_CONTROLLER
        if code == Code.NONE:
            made = b.add_topic(t.name, len(nodes) or t.num_partitions)
            made.replicas = nodes
            made.leaders = [ids[0] for ids in nodes] or made.leaders
        told.append(ct.CreatableTopicResult(t.name, error_code=code))
    answer(ct.CreateTopicsResponse(topics=told))


def _describe_configs(
    b: FakeBrokers, node_id: int, req: dc.DescribeConfigsRequest, version: int, answer: Answer
) -> None:
    told = []
    for r in req.resources:
        if r.resource_type == cf.BROKER and r.resource_name not in ("", str(node_id)):
            text = f"Unexpected broker id, expected {node_id} or empty string, but received {r.resource_name}"
            told.append(dc.DescribeConfigsResult(Code.INVALID_REQUEST, text, r.resource_type, r.resource_name))
            continue
        if r.resource_type == cf.GROUP:
            there = {n: (v, cf.GROUP_CONFIG) for n, v in b.group_settings.get(r.resource_name, {}).items()}
        else:
            there = b.settings
        levels = {n: [at, *b.hidden.get(n, [])] if req.include_synonyms else [] for n, at in there.items()}
        synonyms = {n: [dc.DescribeConfigsSynonym(n, *at) for at in found] for n, found in levels.items()}
        found = [
            dc.DescribeConfigsResourceResult(n, v, config_source=source, synonyms=synonyms[n])
            for n, (v, source) in there.items()
            if r.configuration_keys is None or n in r.configuration_keys
        ]
        told.append(dc.DescribeConfigsResult(Code.NONE, None, r.resource_type, r.resource_name, found))
    answer(dc.DescribeConfigsResponse(results=told))


def _list_resources(
    b: FakeBrokers, node_id: int, req: lr.ListConfigResourcesRequest, version: int, answer: Answer
) -> None:
    found = [lr.ConfigResource(g, cf.GROUP) for g in b.group_settings]
    answer(lr.ListConfigResourcesResponse(config_resources=found))


def _of_share(api: Api, act: Callable[..., None]) -> Callable[..., None]:
    def asked(b: FakeBrokers, node_id: int, req: Any, version: int, answer: Answer) -> None:
        if api in b.unserved and api == Api.SHARE_GROUP_DESCRIBE:
            _described_by_kind(api)(b, node_id, req, version, answer)
        else:
            act(b.share, req, answer)

    return asked


HANDLERS: dict[Api, Callable[[FakeBrokers, int, Any, int, Answer], None]] = {
    Api.API_VERSIONS: _versions,
    Api.METADATA: _metadata,
    Api.FIND_COORDINATOR: _find_coordinator,
    Api.INIT_PRODUCER_ID: _init,
    Api.ADD_PARTITIONS_TO_TXN: _add_partitions,
    Api.END_TXN: _end_txn,
    Api.PRODUCE: _produce,
    Api.JOIN_GROUP: _join,
    Api.SYNC_GROUP: _sync,
    Api.HEARTBEAT: _heartbeat,
    Api.LEAVE_GROUP: _leave,
    Api.DESCRIBE_GROUPS: _describe_groups,
    Api.LIST_OFFSETS: _list_offsets,
    Api.OFFSET_COMMIT: _offset_commit,
    Api.CREATE_TOPICS: _create_topics,
    Api.DESCRIBE_CONFIGS: _describe_configs,
    Api.LIST_CONFIG_RESOURCES: _list_resources,
    Api.CONSUMER_GROUP_DESCRIBE: _described_by_kind(Api.CONSUMER_GROUP_DESCRIBE),
    Api.STREAMS_GROUP_DESCRIBE: _described_by_kind(Api.STREAMS_GROUP_DESCRIBE),
    **{api: _of_share(api, act) for api, act in SHARE_ASKED.items()},
}


def refusal(api: Api, req: Any, version: int, code: int) -> Any:
    """The response that tells this code wherever the API has a place for one."""
    if api is Api.PRODUCE:
        topics = []
        for t in req.topic_data:
            parts = [pr.PartitionProduceResponse(p.index, code, -1) for p in t.partition_data]
            topics.append(pr.TopicProduceResponse(t.name, t.topic_id, parts))
        return pr.ProduceResponse(responses=topics)
    if api is Api.CREATE_TOPICS:
        return ct.CreateTopicsResponse(topics=[ct.CreatableTopicResult(t.name, error_code=code) for t in req.topics])
    if api is Api.ADD_PARTITIONS_TO_TXN:
        results = [
            ap.AddPartitionsToTxnTopicResult(
                t.name, [ap.AddPartitionsToTxnPartitionResult(p, code) for p in t.partitions]
            )
            for t in req.v3_and_below_topics
        ]
        return ap.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)
    if api is Api.FIND_COORDINATOR:
        keys = [fc.Coordinator(k, -1, "", -1, code) for k in req.coordinator_keys]
        return fc.FindCoordinatorResponse(error_code=code, node_id=-1, port=-1, coordinators=keys)
    if api is Api.DESCRIBE_CONFIGS:
        refused = [dc.DescribeConfigsResult(code, "refused", r.resource_type, r.resource_name) for r in req.resources]
        return dc.DescribeConfigsResponse(results=refused)
    if api is Api.LIST_OFFSETS:
        return lo.ListOffsetsResponse(
            topics=[
                lo.ListOffsetsTopicResponse(
                    t.name, [lo.ListOffsetsPartitionResponse(p.partition_index, code) for p in t.partitions]
                )
                for t in req.topics
            ]
        )
    if api is Api.OFFSET_COMMIT:
        told = []
        for t in req.topics:
            done = [oc.OffsetCommitResponsePartition(p.partition_index, code) for p in t.partitions]
            told.append(oc.OffsetCommitResponseTopic(t.name, t.topic_id, done))
        return oc.OffsetCommitResponse(topics=told)
    return getattr(module(api), f"{message_name(api)}Response")(error_code=code)


# ---- messages -------------------------------------------------------------------------------------------------------
@cache
def module(api: int) -> ModuleType:
    return import_module(f"sidecar.wire.generated.{Api(api).name.lower()}")


def request_versions(api: int) -> tuple[int, int]:
    low, high = getattr(module(api), f"{Api(api).name}_REQUEST_VERSIONS")
    return int(low), int(high)


def flexible(api: int, version: int) -> bool:
    """Whether the headers of this version have tagged fields, but for the response to ApiVersions."""
    return version >= int(getattr(module(api), f"{Api(api).name}_REQUEST_FLEXIBLE_FROM"))


def decode_request(api: int, version: int, raw: bytes, pos: int = 0) -> Any:
    return getattr(module(api), f"{message_name(api)}Request").decode(version, raw, pos)


def decode_response(api: int, version: int, raw: bytes, pos: int = 0) -> Any:
    return getattr(module(api), f"{message_name(api)}Response").decode(version, raw, pos)
