"""A simulated Kafka cluster (4.3.1, KRaft) that speaks the wire: deterministic, without asyncio, threads or real time.

    cluster = SimCluster(world, hosts, controller, settings)
    connection = cluster.connect(1, "CLIENTS", send, close, peer="10.0.0.7")
    connection.received(frame)             # `send` is called with the answer, never from within `received`

All chance comes from `world.rng`, all time from the hosts, so one seed gives one trace. `controller` is the clock of
the quorum of controllers, which is neither paused nor down. All brokers are up when the constructor returns.

A paused broker needs no call: its host runs nothing. `received` and `connect` may be called for it meanwhile, as an
operating system takes bytes for a process that stands still; `read` may not, and neither while it is down.

Modelled: see README.md beside this file. Not modelled: native consumer groups, share and streams groups (their APIs
answer as a broker that has no such group), Fetch on the wire, compression, quotas, SASL, TLS,
reassignment, log retention, tiered storage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tests.whole.broker.batches import Record
from tests.whole.broker.codes import Err
from tests.whole.broker.connection import SimConnection
from tests.whole.broker.controller import Controller
from tests.whole.broker.image import TOPIC, Image
from tests.whole.broker.node import Node
from tests.whole.broker.ports import ClusterSettings, Host, ReadResult, Stored, World
from tests.whole.broker.rights import Rights

TELL_AGAIN_MS = 200
"""A broker that the controller does not reach is told again of what is new."""


class SimCluster:
    def __init__(self, world: World, hosts: Mapping[int, Host], controller: Host, settings: ClusterSettings) -> None:
        self.world = world
        self.settings = settings
        self.static = dict(settings.broker)
        self.rights = Rights(settings.authorizer)
        self.controller_host = controller
        self.controller = Controller(controller, self, self.static, hosts)
        self.nodes = {n: Node(self, n, host) for n, host in sorted(hosts.items())}
        self.share_state: set[tuple[str, bytes, int]] = set()
        """Group, topic id and partition: what the share coordinator has initialised."""
        self.share_coordinator_away = False
        self.timed_out: set[tuple[int, int]] = set()
        """Producer id and epoch of each transaction that its coordinator has ended for its timeout."""
        self.slow_disk_ms: dict[int, float] = {}
        """Added to each append of a broker."""
        self.on_committed: Callable[[str, int], None] = lambda topic, partition: None
        """Called when the high watermark of a leader has moved."""
        self.on_image: Callable[[Image, Image], None] = lambda was, image: None
        """Called with the controller's former and new image."""
        self.on_asked: Callable[[int, str, str], None] = lambda node_id, group_id, member_id: None
        """Called when a member of a group has asked this broker something as such."""
        self.on_joined: Callable[[str, str, int], None] = lambda group_id, member_id, generation: None
        """Called when a JoinGroup is answered, with the member id that it gives."""
        self._telling: set[int] = set()
        self._connections = 0
        self._boot()

    def _boot(self) -> None:
        """All brokers at once, so that a simulation need not wait for them."""
        for node in self.nodes.values():
            node.up = True
            node.incarnation = 1
            self.controller.register(node.node_id, 1, True)
        for node in self.nodes.values():
            self.controller.heartbeat(node.node_id, 1, True)
        self._telling.clear()
        for node in self.nodes.values():
            node.catch_up(self.controller.image)
            node.later(self.world.rng.uniform(0, 2_000), node._beat)

    # ---- what the world does --------------------------------------------------------------------------------
    def connect(
        self, node_id: int, listener: str, send: Callable[[bytes], None], close: Callable[[], None], peer: str
    ) -> SimConnection | None:
        """None: the broker is down, so the connection is refused. `close`: the broker closes it."""
        node = self.nodes[node_id]
        if not node.listens:
            return None
        self._connections += 1
        connection = SimConnection(node, listener, send, close, peer, self._connections)
        node.connections.add(connection)
        return connection

    def crash(self, node_id: int) -> None:
        """kill -9: its connections close, its log stays."""
        if self.nodes[node_id].up:
            self.nodes[node_id].crash()

    def start(self, node_id: int, clean: bool = False) -> None:
        """`clean`: it was stopped by `stop`. After a crash the controller lets it in when its old session has ended."""
        if not self.nodes[node_id].up:
            self.nodes[node_id].start(clean)

    def stop(self, node_id: int) -> None:
        """A controlled shutdown: its partitions are led by others when it goes."""
        node = self.nodes[node_id]
        if node.up:
            self.controller.leave(node_id, node.incarnation)
            node.later(self.draw(self.settings.delays.metadata), node.crash)

    def read(self, node_id: int, topic: str, partition: int, offset: int, max_records: int) -> ReadResult:
        """Returns what a consumer gets that fetches from this broker: committed records only, of transactions, too."""
        node = self.nodes[node_id]
        known = node.image.topics.get(topic)
        if not node.up or known is None or not 0 <= partition < len(known.partitions):
            return ReadResult(Err.UNKNOWN_TOPIC_OR_PARTITION)
        replica = node.replica(topic, partition)
        if replica is None:
            return ReadResult(Err.NOT_LEADER_OR_FOLLOWER, topic_id=known.topic_id)
        log, epoch = replica.log, replica.state.leader_epoch
        mark = log.stable(replica.high_watermark)
        if not log.start <= offset <= log.end:
            return ReadResult(Err.OFFSET_OUT_OF_RANGE, (), -1, mark, log.start, known.topic_id, epoch)
        found: list[Stored] = []
        at = offset
        for batch in log.batches[log.position(offset) :]:
            if batch.last >= mark or len(found) >= max_records:
                break
            rows = () if batch.marker or log.is_aborted(batch) else batch.records
            chosen = [r for r in rows if r.offset >= offset][: max_records - len(found)]
            found += [_stored(r) for r in chosen]
            full = len(found) >= max_records and chosen and chosen[-1].offset < batch.last
            at = chosen[-1].offset + 1 if full else batch.last + 1
            if full:
                break
        else:
            at = max(at, mark)
        return ReadResult(Err.NONE, tuple(found), max(at, offset), mark, log.start, known.topic_id, epoch)

    def compact(self, topic: str, partition: int) -> None:
        """Each broker that is up cleans its replica, below what it knows to be committed."""
        for node in self.nodes.values():
            known = node.image.topics.get(topic)
            replica = node.replicas.get((known.topic_id, partition)) if known is not None and node.up else None
            if replica is None or "compact" not in node.settings.topic(topic, "cleanup.policy"):
                continue
            at_ms = node.host.wall_ms()
            kept_ms = int(node.settings.topic(topic, "delete.retention.ms"))
            lag_ms = int(node.settings.topic(topic, "min.compaction.lag.ms"))
            replica.log.compact(replica.high_watermark, at_ms - kept_ms, at_ms - lag_ms)

    def create_topic(
        self, name: str, partitions: int = 1, replicas: int = 1, configs: Mapping[str, str] | None = None
    ) -> None:
        """At the controller, at once; the brokers hear of it as of any change. Raises Refused."""
        first = self.world.rng.randrange(len(self.nodes))
        self.controller.create_topic(name, partitions, replicas, configs or {}, first)

    def delete_topic(self, name: str) -> None:
        self.controller.delete_topic(name)

    def configure(self, resource_type: int, resource: str, values: Mapping[str, str | None]) -> None:
        """As kafka-configs does; None takes a value away. "" as a broker's name stands for all brokers."""

        own = dict(self.controller.image.configs.get((resource_type, resource), {}))
        for name, value in values.items():
            own.pop(name, None)
            if value is not None:
                own[name] = value
        self.controller.set_configs((resource_type, resource), own)

    def leaders(self, topic: str) -> list[int]:
        """As the controller knows them, for a world that wants to strike at one."""
        known = self.controller.image.topics.get(topic)
        return [p.leader for p in known.partitions] if known is not None else []

    # ---- what the parts ask for -----------------------------------------------------------------------------
    def draw(self, span: tuple[float, float]) -> float:
        return self.world.rng.uniform(*span) if span[1] > 0 else 0.0

    def disk_ms(self, node_id: int) -> float:
        return self.draw(self.settings.delays.disk) + self.slow_disk_ms.get(node_id, 0.0)

    def new_id(self) -> bytes:
        return bytes(self.world.rng.randrange(256) for _ in range(16))

    def controller_reachable(self, node_id: int) -> bool:
        """The broker reaches most of the nodes, so also the quorum of controllers."""
        others = sum(n != node_id and self.nodes[n].up and self.world.reachable(node_id, n) for n in self.nodes)
        return self.nodes[node_id].up and 2 * (others + 1) > len(self.nodes)

    def changed(self, was: Image, image: Image) -> None:
        self.on_image(was, image)
        for node_id in self.nodes:
            self._tell(node_id)

    def _tell(self, node_id: int) -> None:
        """Until the broker knows the newest image."""
        node = self.nodes[node_id]
        if node_id in self._telling or not node.up or node.image.version == 0:
            return
        self._telling.add(node_id)
        incarnation = node.incarnation

        def taken() -> None:
            if node.incarnation == incarnation and self.controller_reachable(node_id):
                node.catch_up(self.controller.image)
                self._telling.discard(node_id)

        def tell() -> None:
            self._telling.discard(node_id)
            if node.incarnation != incarnation or node.image.version >= self.controller.image.version:
                return
            if self.controller_reachable(node_id):
                node.later(0, taken)
            self._telling.add(node_id)
            self.controller_host.later(TELL_AGAIN_MS, tell)

        self.controller_host.later(self.draw(self.settings.delays.metadata), tell)

    def topic_config(self, topic: str) -> Mapping[str, str]:
        return self.controller.image.configs.get((TOPIC, topic), {})


def _stored(r: Record) -> Stored:
    key = r.key if isinstance(r.key, bytes) or r.key is None else repr(r.key).encode()
    value = r.value if isinstance(r.value, bytes) or r.value is None else repr(r.value).encode()
    return Stored(r.offset, key, value, r.headers, r.time_ms)
