"""The start of a coordinator: waits for its broker and `__consumer_offsets`, and finds or makes the state topic."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sidecar.coordinator.statelog.fenced_writer import BATCH_BYTES
from sidecar.coordinator.statelog.startup_errors import StartError
from sidecar.coordinator.statelog.topic_existence import Existence, ask_for
from sidecar.core.vocabulary import group_config as cf
from sidecar.core.vocabulary.errors import Code, name_of
from sidecar.core.vocabulary.internal_topics import OFFSETS
from sidecar.kafka.cluster import Address, Cluster, ClusterView, ConnectionLost, MetadataReader
from sidecar.kafka.credentials import Login
from sidecar.kafka.denials import TOPIC
from sidecar.kafka.net import NO_ANSWER, BrokerConnection, NotAuthenticated
from sidecar.kafka.resolver import joined
from sidecar.kafka.security import PLAINTEXT
from sidecar.link.ports import Logger
from sidecar.wire.generated import describe_configs as dc
from sidecar.wire.generated import metadata as md
from sidecar.wire.primitives import ZERO_UUID

RETRY_S = 0.1
LOG_AGAIN_S = 5.0
NO_IDS = (
    "topics have no ids, without which no group can be coordinated. "
    "Brokers need Kafka 2.8 or later, and inter.broker.protocol.version 2.8 or later"
)
NO_LEADERS = "it has partitions without a leader, or this principal may not DESCRIBE it"


OnWait = Callable[[str], None]
"""Called with a text: the reason why the start waits."""


def ignore_wait(problem: str) -> None:
    """Ignores the reason."""


@dataclass(frozen=True)
class StartSettings:
    """Settings of the start. `broker`: address of the broker's listener for clients; `same_listener`: whether the
    sidecar's own requests use that listener, too; `wait_s` 0: wait for ever; `replicas` 0: three, or as many as there
    are brokers."""

    node_id: int
    broker: Address
    same_listener: bool
    client_id: str
    wait_s: float
    owners_group: str
    topic: str
    replicas: int
    min_compaction_lag_ms: int
    max_message_bytes: int = 2 * BATCH_BYTES
    security: Login = PLAINTEXT
    """Credentials for the broker's listener for clients."""


class Control:
    """Metadata as clients see it, over the broker's own listener for them."""

    def __init__(self, settings: StartSettings, cluster: Cluster) -> None:
        self.view = ClusterView()
        self.address: Address = ("", 0)
        """Address of this sidecar's broker in the last view that had it: a view lacks a broker that is down."""
        self._settings = settings
        self._cluster = cluster
        self._reader = MetadataReader({})
        self._conn: BrokerConnection | None = None

    async def look(self, timeout_s: float = 10.0) -> ClusterView:
        """Reads the cluster's metadata into `view`. Raises ConnectionLost, TimeoutError, WireError."""
        s = self._settings
        if self._conn is None or self._conn.closed:
            most = self._cluster.response_bytes
            self._conn = await BrokerConnection.open(*s.broker, s.client_id, response_bytes=most, security=s.security)
        self.view = await self._reader.read(self._conn, self._cluster if s.same_listener else None, timeout_s)
        self.address = self.view.brokers.get(s.node_id, self.address)
        return self.view

    async def ask(self, topics: list[md.MetadataRequestTopic], low: int = 0) -> md.MetadataResponse:
        """Returns the metadata of these topics, over the connection of `look`. Raises ConnectionLost, TimeoutError,
        WireError."""
        if self._conn is None:
            raise ConnectionLost("no connection yet")
        req = md.MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        res: md.MetadataResponse = await self._conn.request(md, "Metadata", req, low=low)
        return res

    async def node_mismatch(self) -> str:
        """Returns why this sidecar's broker is not the one with this node id; "" if it is, or does not say. A broker
        describes only its own settings. Raises ConnectionLost, TimeoutError, WireError."""
        if self._conn is None:
            raise ConnectionLost("no connection yet")
        own = dc.DescribeConfigsResource(cf.BROKER, str(self._settings.node_id), ["broker.id"])
        res = await self._conn.request(dc, "DescribeConfigs", dc.DescribeConfigsRequest([own]))
        wrong = res.results and res.results[0].error_code == Code.INVALID_REQUEST
        return f"it is not node {self._settings.node_id}: {res.results[0].error_message}" if wrong else ""

    def denied(self, topic: str, code: int) -> None:
        self._settings.security.outcome("Metadata", TOPIC, topic, code)

    def close(self) -> None:
        if self._conn is not None:
            self._conn.close()


class _LogAgain:
    """Reports a problem at most every LOG_AGAIN_S. `first`: whether the first one is reported at once."""

    def __init__(self, log: Callable[[str], None], first: bool) -> None:
        self._log = log
        self._logged_s = 0.0 if first else time.monotonic()

    def __call__(self, problem: str) -> None:
        if time.monotonic() - self._logged_s > LOG_AGAIN_S:
            self._logged_s = time.monotonic()
            self._log(problem)


def _unfit(view: ClusterView) -> str:
    """Returns what this cluster lacks; "" if nothing. A cluster without topics shows a lack only with its first one."""
    return NO_IDS if any(t.id == ZERO_UUID for t in view.topics) else ""


async def find_broker(s: StartSettings, control: Control, log: Logger, waits: OnWait = ignore_wait) -> None:
    """Waits until the broker answers and has the node id of the settings. A broker that refuses this sidecar's
    credentials, or has another id, is waited for without a limit: clients, which need neither, go on meanwhile. Raises
    StartError."""
    until = time.monotonic() + s.wait_s if s.wait_s else float("inf")
    broker = f"{s.broker[0]}:{s.broker[1]}"
    report = _LogAgain(
        lambda problem: log.warning("waiting for the broker", broker=broker, problem=problem), first=True
    )
    while True:
        try:
            view = await control.look()
            problem = _unfit(view)
            other = f"node id {s.node_id} is not among the brokers {sorted(view.brokers)}"
            if s.node_id in view.brokers:
                other = await control.node_mismatch()
            if other:
                problem, until = f"{other}. Check --node-id and --broker, and restart the sidecar", float("inf")
            if not problem:
                return
        except NotAuthenticated as exc:
            problem, until = str(exc), float("inf")
        except NO_ANSWER as exc:
            problem = str(exc) or "timed out"
        waits(f"waiting for the broker: {problem}")
        if time.monotonic() > until:
            raise StartError(
                f"no use of broker {broker} for {s.wait_s:g} s: {problem}. "
                "Check --broker and --node-id, or raise broker_wait_ms."
            )
        report(problem)
        await asyncio.sleep(RETRY_S)


async def one_cluster(
    s: StartSettings, control: Control, cluster: Cluster, log: Logger, waits: OnWait = ignore_wait
) -> None:
    """Waits until `bootstrap` answers. Raises StartError if it leads to another cluster than `broker`. Node ids are the
    same in many clusters: this sidecar would be a second coordinator here, alone in an owners' group there."""
    log_again = _LogAgain(lambda problem: log.warning("waiting for bootstrap", problem=problem), first=True)
    while not s.same_listener:
        try:
            other = (await cluster.refresh([])).cluster_id
        except NO_ANSWER as exc:
            problem = str(exc) or "timed out"
            waits(f"waiting for bootstrap: {problem}")
            log_again(problem)
            await asyncio.sleep(RETRY_S)
            continue
        own = control.view.cluster_id
        if own and other and own != other:
            raise StartError(
                f"broker {joined([s.broker])} is of cluster {own}, and bootstrap {joined(cluster.bootstrap)} of "
                f"cluster {other}. "
                "Both must lead to one cluster: check --broker and --bootstrap."
            )
        return


async def offsets_leaders(
    s: StartSettings, control: Control, cluster: Cluster, log: Logger, waits: OnWait = ignore_wait
) -> tuple[int, ...]:
    """Returns the leaders of `__consumer_offsets`, once all partitions have one. The state topic has as many
    partitions. Asking for a coordinator makes the brokers create `__consumer_offsets`."""
    log_again = _LogAgain(lambda problem: log.warning("waiting for __consumer_offsets", problem=problem), first=False)

    def report(problem: str) -> None:
        waits(f"waiting for {OFFSETS}: {problem}")
        log_again(problem)

    while not (leaders := control.view.leaders.get(OFFSETS, ())) or -1 in leaders or _unfit(control.view):
        try:
            await cluster.coordinator(s.owners_group, 0)
        except NO_ANSWER as exc:
            report(str(exc) or "timed out")
        else:
            report(_unfit(control.view) or NO_LEADERS)
        await asyncio.sleep(RETRY_S)
        await _look_again(control, report)
    return leaders


async def _look_again(control: Control, report: Callable[[str], None]) -> None:
    try:
        await control.look()
    except NO_ANSWER as exc:
        report(str(exc) or "timed out")


async def state_topic(
    s: StartSettings, control: Control, cluster: Cluster, partitions: int, log: Logger, waits: OnWait = ignore_wait
) -> None:
    """Creates the state topic if there is none. A topic that is not in the listing may be one that this principal may
    not describe, so the brokers are asked for it by name. Raises StartError if its number of partitions is wrong."""
    log_again = _LogAgain(lambda problem: log.warning("waiting for the state topic", problem=problem), first=True)

    def report(problem: str) -> None:
        waits(f"waiting for the state topic: {problem}")
        log_again(problem)

    while (have := control.view.leaders.get(s.topic)) is None:
        answer = await ask_for(cluster, s.topic)
        if answer.state is Existence.MISSING:
            await _create(s, len(control.view.brokers), cluster, partitions, log, report)
        elif answer.state is Existence.THERE and len(answer.leaders) > 0:
            have = answer.leaders
            break
        else:
            report(answer.problem)
            await asyncio.sleep(0.5)
        await asyncio.sleep(0.03)
        await _look_again(control, report)
    if len(have) != partitions:  # one of them may still be without a leader: writers and tail wait for that
        raise StartError(
            f"{s.topic} has {len(have)} partitions, {OFFSETS} has {partitions}: they must be equal. "
            "Name another topic by state.topic, or delete this one while no sidecar runs."
        )


async def _create(
    s: StartSettings, brokers: int, cluster: Cluster, partitions: int, log: Logger, report: OnWait
) -> None:
    replicas = s.replicas or min(3, brokers)
    configs = topic_configs(replicas, s.min_compaction_lag_ms, s.max_message_bytes)
    try:
        code = await create_state_topic(cluster, s.topic, partitions, replicas, configs)
        problem = name_of(code)
    except NO_ANSWER as exc:
        code, problem = int(Code.UNKNOWN_SERVER_ERROR), str(exc) or "timed out"
    if code == Code.NONE:
        log.info("created the state topic", topic=s.topic, partitions=partitions, replicas=replicas)
    elif code != Code.TOPIC_ALREADY_EXISTS:
        report(f"{s.topic} cannot be created: {problem}")
        await asyncio.sleep(0.5)


def topic_configs(replicas: int, min_compaction_lag_ms: int, max_message_bytes: int) -> dict[str, str]:
    """Returns the settings with which a state topic is created, here and by `sidecar state load --create`."""
    return {
        "cleanup.policy": "compact",
        "min.compaction.lag.ms": str(min_compaction_lag_ms),
        "min.insync.replicas": str(min(2, replicas)),
        "max.message.bytes": str(max_message_bytes),
        "unclean.leader.election.enable": "false",
    }


async def create_state_topic(
    cluster: Cluster, topic: str, partitions: int, replicas: int, configs: Mapping[str, str]
) -> int:
    """Creates the topic; returns the error code. Raises ConnectionLost, TimeoutError, WireError."""
    nodes = await _beside_offsets(cluster, partitions, replicas)
    code = await cluster.create_topic(topic, partitions, replicas, configs, nodes)
    if code == Code.INVALID_REPLICA_ASSIGNMENT:  # one of those brokers is gone for good
        code = await cluster.create_topic(topic, partitions, replicas, configs)
    return code


async def _beside_offsets(cluster: Cluster, partitions: int, replicas: int) -> list[tuple[int, ...]]:
    """Returns the nodes of the replicas of `__consumer_offsets`, if there are as many; else none. An owner is beside
    the leader of its groups' offsets: so its records go to that broker, too, and have the same new leader later."""
    nodes = await cluster.replicas(OFFSETS)
    return nodes if len(nodes) == partitions and all(len(n) == replicas for n in nodes) else []
