"""The brokers as the sidecar's own clients see them: metadata, a connection to each node, coordinators."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from sidecar.core.vocabulary.errors import Code, name_of
from sidecar.core.vocabulary.topics import Topic
from sidecar.kafka.credentials import Login
from sidecar.kafka.lanes import Lane
from sidecar.kafka.net import RESPONSE_BYTES, BrokerConnection, ConnectionLost, Request
from sidecar.kafka.resolver import first_of
from sidecar.kafka.security import PLAINTEXT
from sidecar.wire.apis import Api
from sidecar.wire.frames import response_body
from sidecar.wire.generated import create_topics as ct
from sidecar.wire.generated import describe_cluster as dr
from sidecar.wire.generated import find_coordinator as fc
from sidecar.wire.generated import metadata as md
from sidecar.wire.primitives import WireError

Address = tuple[str, int]
Link = tuple[int, Lane, int]
"""A node, the lane of a connection to it, and the connection's number in that lane."""
LARGE_BYTES = 16_384
Opening = Coroutine[Any, Any, BrokerConnection]
T = TypeVar("T")
FENCED_TOO = 2
"""First version of DescribeCluster that lists brokers that are down."""
SILENT_S = 2.0
"""Time for an answer that any broker could give."""


@dataclass(frozen=True)
class ClusterView:
    """The content of one Metadata response. `leaders[topic][partition]`: a node id, or -1 if there is no leader;
    `epochs`: their leader epochs, -1 from a broker without them; `behind`: the partitions, as (topic, partition), of
    which some replica is not in sync."""

    cluster_id: str = ""
    brokers: Mapping[int, Address] = field(default_factory=dict)
    leaders: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    topics: tuple[Topic, ...] = ()
    behind: frozenset[tuple[str, int]] = frozenset()
    epochs: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def view_of(res: md.MetadataResponse, racks: dict[int, str | None]) -> ClusterView:
    """Makes a view of a Metadata response. `racks` remembers the racks of brokers that are down: a broker that goes
    away must not look like a change of racks, which would rebalance every group. (Kafka's own coordinator keeps fenced
    brokers in its image.)"""
    racks.update((b.node_id, b.rack) for b in res.brokers)
    leaders: dict[str, tuple[int, ...]] = {}
    epochs: dict[str, tuple[int, ...]] = {}
    topics: list[Topic] = []
    behind: set[tuple[str, int]] = set()
    for t in res.topics:
        if t.error_code not in (Code.NONE, Code.LEADER_NOT_AVAILABLE) or not t.name:
            continue
        parts = sorted(t.partitions, key=lambda p: p.partition_index)
        leaders[t.name] = tuple(p.leader_id for p in parts)
        epochs[t.name] = tuple(p.leader_epoch for p in parts)
        behind.update((t.name, p.partition_index) for p in parts if len(p.isr_nodes) < len(p.replica_nodes))
        rack_lists = tuple(tuple(sorted({r for n in p.replica_nodes if (r := racks.get(n))})) for p in parts)
        topics.append(Topic(t.topic_id, t.name, rack_lists))
    brokers = {b.node_id: (b.host, b.port) for b in res.brokers}
    return ClusterView(res.cluster_id or "", brokers, leaders, tuple(topics), frozenset(behind), epochs)


def is_cancelled() -> bool:
    """Returns whether the running task itself is cancelled, and not only what it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class Cluster:
    """Keeps connections by node. `direct` maps a node id to an address that replaces the advertised one, so that the
    sidecar reaches the broker it fronts without passing through itself."""

    def __init__(
        self,
        bootstrap: list[Address],
        client_id: str,
        direct: Mapping[int, Address],
        response_bytes: int = RESPONSE_BYTES,
        security: Login = PLAINTEXT,
    ) -> None:
        self.bootstrap = bootstrap
        self.security = security
        self.client_id = client_id
        self.direct = direct
        self.response_bytes = response_bytes
        self.brokers: dict[int, Address] = {}
        self._nodes: dict[Link, BrokerConnection] = {}
        self._any: BrokerConnection | None = None
        self._any_at: Address = ("", 0)
        self._failed: dict[Address, int] = {}
        """Address -> the number of its last failure; failures are numbered over all addresses."""
        self._failures = 0
        self._unreached_s: dict[int, float] = {}
        """Node id -> monotonic time at which a connection to it last failed, in seconds."""
        self._under_way: dict[Link | str | None, asyncio.Task[Any]] = {}
        """Attempts that callers share: at a connection by its link, at any broker under None, at the leaders of a topic
        by its name."""

    async def anyone(self) -> BrokerConnection:
        """Returns a connection to any broker. Raises ConnectionLost.

        The bootstrap addresses are tried first, then every broker ever seen; those that failed come last, the one that
        failed last at the very end. A slow broker does not block: after BESIDE_S the next address is tried, too."""
        if self._any is not None and not self._any.closed:
            return self._any
        return await self._shared(None, self._open_any)

    async def _open_any(self) -> BrokerConnection:
        self._any, self._any_at = await self._first_that_answers()
        return self._any

    async def _shared(self, key: Link | str | None, attempt: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Awaits one attempt for all callers, which share its failure, too. Attempts in a row would each wait for a
        silent broker."""
        task = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = asyncio.get_running_loop().create_task(attempt())
            task.add_done_callback(partial(self._ended, key))
        try:
            result: T = await asyncio.shield(task)
            return result
        except asyncio.CancelledError:
            if task.cancelled() and not is_cancelled():
                raise ConnectionLost("closed here") from None
            raise
        finally:
            del task  # its exception holds this frame

    def _ended(self, key: Link | str | None, task: asyncio.Task[Any]) -> None:
        del self._under_way[key]
        if not task.cancelled():
            task.exception()  # marks it as seen, as all waiting callers may be gone

    async def _first_that_answers(self) -> tuple[BrokerConnection, Address]:
        known = dict.fromkeys([*self.bootstrap, *self.brokers.values()])
        left = sorted(known, key=lambda a: self._failed.get(a, 0))
        last: BaseException = ConnectionLost("no bootstrap address")

        def failed(address: Address, problem: BaseException) -> None:
            nonlocal last
            last = problem
            self._failures += 1
            self._failed[address] = self._failures

        try:
            return await first_of(left, self._open_at, failed, BrokerConnection.close)
        except OSError:
            raise ConnectionLost(f"no broker answers: {last}") from None

    async def ask_anyone(self, module: Any, name: str, req: Request, high: int | None = None, low: int = 0) -> Any:
        """Returns the answer of any broker that gives one. A silent broker comes last from then on. Raises
        ConnectionLost, TimeoutError and WireError."""
        for last_try in (False, True):
            conn = await self.anyone()
            address = self._any_at
            try:
                return await conn.request(module, name, req, high=high, timeout_s=SILENT_S, low=low)
            except (ConnectionLost, TimeoutError):
                self._failures += 1
                self._failed[address] = self._failures
                if last_try:
                    raise
        raise AssertionError("it returns or raises")

    async def node(self, node_id: int) -> BrokerConnection:
        """Returns the connection to a node for what it answers at once."""
        return await self.lane(node_id, Lane.QUESTIONS)

    async def lane(self, node_id: int, lane: Lane, which: int = 0) -> BrokerConnection:
        """Returns a connection to a node that requests of this lane share. `which`: its number, if a lane has
        several."""
        key = (node_id, lane, which)
        conn = self._nodes.get(key)
        if conn is not None and not conn.closed:
            return conn
        return await self._shared(key, partial(self._open_lane, key))

    async def _open_lane(self, link: Link) -> BrokerConnection:
        conn = self._nodes[link] = await self.open(link[0])
        return conn

    async def open(self, node_id: int) -> BrokerConnection:
        """Opens a connection that only the caller uses."""
        address = self.direct.get(node_id) or self.brokers.get(node_id)
        if address is None:
            await self.refresh([])
            address = self.brokers.get(node_id)
        if address is None:
            raise ConnectionLost(f"broker {node_id} is not in the metadata")
        try:
            return await self._open_at(address)
        except ConnectionLost:
            self._unreached_s[node_id] = time.monotonic()
            raise

    def _open_at(self, address: Address) -> Opening:
        most = self.response_bytes
        return BrokerConnection.open(*address, self.client_id, response_bytes=most, security=self.security)

    def unreached(self, node_id: int, within_s: float) -> bool:
        """Returns whether a connection to this broker has failed within the last `within_s` seconds."""
        return time.monotonic() - self._unreached_s.get(node_id, float("-inf")) < within_s

    async def refresh(self, topics: list[str] | None = None) -> ClusterView:
        """Reads the Metadata of these topics, or of all topics."""
        view = view_of(await self._metadata(topics), {})
        self.brokers.update(view.brokers)
        return view

    async def leaders(self, topic: str) -> ClusterView:
        """Reads the Metadata of this topic. Callers share a request under way: when a broker dies, the writers of all
        its partitions ask, again and again, and each answer has all partitions."""
        return await self._shared(topic, partial(self.refresh, [topic]))

    async def _metadata(self, topics: list[str] | None) -> md.MetadataResponse:
        wanted = None if topics is None else [md.MetadataRequestTopic(name=t) for t in topics]
        req = md.MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        res: md.MetadataResponse = await self.ask_anyone(md, "Metadata", req)
        return res

    async def coordinator(self, key: str, key_type: int) -> BrokerConnection:
        """Returns a connection to the coordinator of a group (key_type 0) or of a transactional id (key_type 1). Raises
        ConnectionLost while there is no coordinator."""
        return await self.node(await self.coordinator_node(key, key_type))

    async def coordinator_node(self, key: str, key_type: int) -> int:
        req = fc.FindCoordinatorRequest(key=key, key_type=key_type, coordinator_keys=[key])
        res = await self.ask_anyone(fc, "FindCoordinator", req, high=4)
        if res.coordinators:
            coordinator = res.coordinators[0]
            error, node_id, host, port = coordinator.error_code, coordinator.node_id, coordinator.host, coordinator.port
        else:
            error, node_id, host, port = res.error_code, res.node_id, res.host, res.port
        if error != Code.NONE:
            raise ConnectionLost(f"coordinator of {key}: {name_of(error)}")
        self.brokers[node_id] = (host, port)
        return int(node_id)

    async def replicas(self, topic: str) -> list[tuple[int, ...]]:
        """Returns the node ids of each partition's replicas, the preferred leader first; nothing if there is no such
        topic."""
        res = await self._metadata([topic])
        parts = sorted(res.topics[0].partitions, key=lambda p: p.partition_index)
        return [tuple(p.replica_nodes) for p in parts]

    async def has_no(self, topic: str) -> bool:
        """Returns whether the brokers report that the topic does not exist; they do not to a principal without
        DESCRIBE."""
        res = await self._metadata([topic])
        return [t.error_code for t in res.topics] == [Code.UNKNOWN_TOPIC_OR_PARTITION]

    async def create_topic(
        self,
        name: str,
        partitions: int,
        replicas: int,
        configs: Mapping[str, str],
        nodes: Sequence[tuple[int, ...]] = (),
    ) -> int:
        """Creates a topic and returns its error code, which may be the harmless TOPIC_ALREADY_EXISTS. `nodes`: the
        replicas of each partition; without it, the controller decides."""
        topic = ct.CreatableTopic(
            name=name,
            num_partitions=-1 if nodes else partitions,
            replication_factor=-1 if nodes else replicas,
            assignments=[ct.CreatableReplicaAssignment(p, list(ids)) for p, ids in enumerate(nodes)],
            configs=[ct.CreatableTopicConfig(name=k, value=v) for k, v in configs.items()],
        )
        controller = await self._controller()
        res = await controller.request(
            ct, "CreateTopics", ct.CreateTopicsRequest(topics=[topic], timeout_ms=10_000), timeout_s=15
        )
        code: int = res.topics[0].error_code
        return code

    async def _controller(self) -> BrokerConnection:
        """Returns a connection to the controller, or to any broker where none is known. Without KRaft the controller
        alone creates topics; with it, any broker does."""
        res = await self._metadata([])
        self.brokers.update({b.node_id: (b.host, b.port) for b in res.brokers})
        known = any(b.node_id == res.controller_id for b in res.brokers)
        return await (self.node(res.controller_id) if known else self.anyone())

    def close(self) -> None:
        for task in self._under_way.values():
            task.cancel()
        for conn in [self._any, *self._nodes.values()]:
            if conn is not None:
                conn.close()


async def racks_of_all(conn: BrokerConnection) -> dict[int, str | None]:
    """Returns the racks of all registered brokers by node id, those that are down among them (KIP-1073: Kafka 4.0);
    nothing if this broker does not return them. Raises ConnectionLost, TimeoutError, WireError."""
    if not conn.offers(Api.DESCRIBE_CLUSTER, FENCED_TOO):
        return {}
    req = dr.DescribeClusterRequest(include_fenced_brokers=True)
    res = await conn.request(dr, "DescribeCluster", req, low=FENCED_TOO)
    return {b.broker_id: b.rack for b in res.brokers} if res.error_code == Code.NONE else {}


class MetadataReader:
    """Reads the Metadata of all topics again and again. A response with the same bytes as the last one gives the same
    view. A large response is decoded in a thread, because thousands of partitions take longer than a heartbeat may
    wait. Brokers that are down are not in Metadata; their racks are asked for once, before the first view is made."""

    def __init__(self, racks: dict[int, str | None]) -> None:
        self._racks = racks
        self._asked = False
        self._last = b""
        self._view = ClusterView()

    async def read(self, conn: BrokerConnection, cluster: Cluster | None, timeout_s: float = 10.0) -> ClusterView:
        if not self._asked:
            self._racks.update(await racks_of_all(conn))
            self._asked = True
        req = md.MetadataRequest(topics=None, allow_auto_topic_creation=False)
        version, flexible, raw = await conn.exchange(md, "Metadata", req, timeout_s=timeout_s)
        start = response_body(raw, flexible)
        body = raw[start:]
        if body != self._last:

            def decode() -> ClusterView:
                return view_of(md.MetadataResponse.decode(version, raw, start), self._racks)

            self._view = await asyncio.to_thread(decode) if len(body) > LARGE_BYTES else decode()
            self._last = body
        if cluster is not None:
            cluster.brokers.update(self._view.brokers)
        return self._view


__all__ = ["Address", "Cluster", "ClusterView", "ConnectionLost", "MetadataReader", "WireError"]
