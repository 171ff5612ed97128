"""One broker: its replicas and coordinators, what it knows of the cluster, and its talk with the controller.

What a disk keeps (logs, with their producers) outlives a crash; everything else begins anew. Callbacks of a broker that
has crashed meanwhile never run: each belongs to the incarnation that made it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from sidecar.wire.generated.metadata import MetadataResponseTopic
from tests.whole.broker.codes import Err, Refused
from tests.whole.broker.controller import BLOCK
from tests.whole.broker.groups import GroupCoordinator
from tests.whole.broker.image import Image, Partition
from tests.whole.broker.ports import Handle, Host
from tests.whole.broker.replica import KICK_AGAIN_MS, Replica
from tests.whole.broker.settings import Settings
from tests.whole.broker.txn import TxnCoordinator

if TYPE_CHECKING:
    from tests.whole.broker.cluster import SimCluster
    from tests.whole.broker.connection import SimConnection

REGISTER_AGAIN_MS = 500
PREFETCH = BLOCK * 9 // 10
"""The next block of producer ids is asked for when so many of this one are used."""


class _Timer:
    """A callback of one incarnation of a broker."""

    __slots__ = ("fn", "handle", "incarnation", "node")

    def __init__(self, node: Node, ms: float, fn: Callable[[], None]) -> None:
        self.node, self.incarnation = node, node.incarnation
        self.fn: Callable[[], None] | None = fn
        self.handle = node.host.later(ms, self.run)

    def run(self) -> None:
        fn = self.fn
        if fn is not None and self.node.up and self.node.incarnation == self.incarnation:
            fn()

    def cancel(self) -> None:
        self.fn = None
        self.handle.cancel()


class Node:
    def __init__(self, cluster: SimCluster, node_id: int, host: Host) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.host = host
        self.up = False
        self.incarnation = 0
        self.answer_ms = 0.0
        """Milliseconds by which its answers leave later than they could."""
        self.image = Image()
        self.settings = Settings(node_id, cluster.static)
        self.told: dict[str, MetadataResponseTopic] = {}
        """Metadata's answers about topics in this image."""
        self.replicas: dict[tuple[bytes, int], Replica] = {}
        self.connections: set[SimConnection] = set()
        self.groups = GroupCoordinator(self)
        self.txns = TxnCoordinator(self)
        self.producer_ids: Iterator[int] = iter(())
        self._next_ids: Iterator[int] = iter(())
        self._asking_ids = False
        self._awaited: dict[int, dict[Replica, None]] = {}

    # ---- time and talk --------------------------------------------------------------------------------------
    def later(self, ms: float, fn: Callable[[], None]) -> Handle:
        """Runs only if the broker has not crashed by then."""
        return _Timer(self, ms, fn)

    def tell(self, other: int, fn: Callable[[Node], None]) -> None:
        """A message to another broker (or to this one): it gets lost if that one cannot be reached."""
        node = self.cluster.nodes[other]
        if other == self.node_id:
            self.later(0, lambda: fn(self))
        elif self.up and node.up and self.cluster.world.reachable(self.node_id, other):
            node.later(self.cluster.draw(self.cluster.settings.delays.network), lambda: fn(node))

    def ask_controller(self, ask: Callable[[], Callable[[], None] | None]) -> None:
        """`ask` runs at the controller, and what it returns runs here with the answer. Either way may fail."""
        if not self.cluster.controller_reachable(self.node_id):
            return
        delay = self.cluster.settings.delays.network

        def there() -> None:
            then = ask()
            if then is not None and self.cluster.controller_reachable(self.node_id):
                self.later(self.cluster.draw(delay), then)

        mine = self.incarnation
        self.cluster.controller_host.later(
            self.cluster.draw(delay), lambda: there() if self.incarnation == mine and self.up else None
        )

    # ---- life -----------------------------------------------------------------------------------------------
    @property
    def listens(self) -> bool:
        """A broker that starts opens its listeners when it knows the metadata."""
        return self.up and self.image.version > 0

    def start(self, clean: bool) -> None:
        assert not self.up
        self.up = True
        self.incarnation += 1
        self._register(clean)

    def _register(self, clean: bool) -> None:
        controller, mine = self.cluster.controller, self.incarnation
        registered = [False]

        def ask() -> Callable[[], None]:
            registered[0] = registered[0] or controller.register(self.node_id, mine, clean)
            return answered

        def answered() -> None:
            if registered[0] and not started[0]:
                started[0] = True
                self.catch_up(self.cluster.controller.image)
                self._beat()

        started = [False]

        def again() -> None:
            if not started[0]:
                self.ask_controller(ask)
                self.later(REGISTER_AGAIN_MS, again)

        again()

    def _beat(self) -> None:
        mine, version = self.incarnation, self.image.version

        def ask() -> Callable[[], None] | None:
            controller = self.cluster.controller
            controller.heartbeat(self.node_id, mine, version >= controller.image.version)
            return None

        self.ask_controller(ask)
        fenced = self.node_id not in self.image.alive
        self.later(100 if fenced else self.settings.number("broker.heartbeat.interval.ms"), self._beat)

    def crash(self) -> None:
        """As by kill -9: what was written stays, in the page cache at least."""
        self.up = False
        self.incarnation += 1
        connections, self.connections = self.connections, set()
        for c in sorted(connections, key=lambda c: c.number):
            c.drop()
        for replica in self.replicas.values():
            replica.leads = False
            replica.waiting, replica.watchers, replica.followers = [], [], {}
            replica.forget()
        self.groups = GroupCoordinator(self)
        self.txns = TxnCoordinator(self)
        self.image = Image()
        self.told = {}
        self.settings.image = self.image
        self.producer_ids = self._next_ids = iter(())
        self._asking_ids = False
        self._awaited = {}

    # ---- metadata -------------------------------------------------------------------------------------------
    def catch_up(self, image: Image) -> None:
        """A newer image has come: replicas first, then the coordinators on them."""
        if image.version <= self.image.version:
            return
        was, self.image, self.told = self.image, image, {}
        self.settings.image = image
        wanted = set()
        for t in image.topics.values():
            if was.topics.get(t.name) is t and was.alive == image.alive:
                wanted |= {(t.topic_id, i) for i, p in enumerate(t.partitions) if self.node_id in p.replicas}
                continue
            for i, p in enumerate(t.partitions):
                if self.node_id in p.replicas:
                    wanted.add((t.topic_id, i))
                    self._replica(t.name, t.topic_id, i).apply(p)
        for key in [k for k in self.replicas if k not in wanted]:
            self.replicas.pop(key).gone()
        self.groups.image_changed(was)
        self.txns.image_changed()

    def _replica(self, topic: str, topic_id: bytes, index: int) -> Replica:
        key = (topic_id, index)
        if key not in self.replicas:
            self.replicas[key] = Replica(self, topic, topic_id, index)
        return self.replicas[key]

    def replica(self, topic: str, index: int, follows: bool = False) -> Replica | None:
        """Returns the replica of a partition that this broker leads, as far as it knows; with `follows`, also of one
        that it follows."""
        known = self.image.topics.get(topic)
        found = self.replicas.get((known.topic_id, index)) if known is not None else None
        return found if found is not None and (found.leads or follows) else None

    def kicked(self, leader: Replica, epoch: int) -> None:
        """A leader has something for us."""
        mine = self.replicas.get((leader.topic_id, leader.index))
        origin = leader.node
        if mine is None or not origin.up or not self.cluster.world.reachable(self.node_id, origin.node_id):
            return
        if mine.fetch(leader, epoch):
            end, mark, me = mine.log.end, mine.high_watermark, self.node_id
            self.tell(
                origin.node_id, lambda node: leader.acknowledged(me, epoch, end, mark) if node is origin else None
            )

    def await_follower(self, n: int, replica: Replica) -> None:
        """Kick again those that do not answer: one timer for each follower, however many partitions it follows."""
        waiting = self._awaited.get(n)
        if waiting is not None:
            waiting[replica] = None
            return
        self._awaited[n] = {replica: None}

        def again() -> None:
            for late in self._awaited.pop(n):
                late.kick_again(n)

        self.later(KICK_AGAIN_MS, again)

    def alter_isr(
        self, replica: Replica, p: Partition, isr: tuple[int, ...], told: Callable[[Partition | None], None]
    ) -> None:
        controller, me = self.cluster.controller, self.node_id

        def ask() -> Callable[[], None]:
            now = controller.alter_isr(me, replica.topic_id, replica.index, p.leader_epoch, p.version, isr)
            return lambda: told(now)

        self.ask_controller(ask)

    # ---- producer ids ---------------------------------------------------------------------------------------
    def new_producer_id(self) -> int:
        """Raises Refused while the controller has not sent the next block."""
        found = next(self.producer_ids, None)
        if found is None:
            found = next(self._next_ids, None)
            if found is not None:
                self.producer_ids, self._next_ids = self._next_ids, iter(())
        if found is None or (found % BLOCK == PREFETCH):
            self._ask_ids()
        if found is None:
            raise Refused(Err.COORDINATOR_LOAD_IN_PROGRESS)
        return found

    def _ask_ids(self) -> None:
        if self._asking_ids:
            return
        self._asking_ids = True

        def ask() -> Callable[[], None]:
            block = self.cluster.controller.producer_ids()
            return lambda: taken(block)

        def taken(block: range) -> None:
            self._next_ids = iter(block)
            self._asking_ids = False

        def again() -> None:
            self._asking_ids = False

        self.ask_controller(ask)
        self.later(REGISTER_AGAIN_MS, again)

    def append_code(self, replica: Replica | None) -> Err:
        """Whether a coordinator may append here: acks=all needs enough in-sync replicas."""
        if replica is None or not replica.leads:
            return Err.NOT_LEADER_OR_FOLLOWER
        return Err.NOT_ENOUGH_REPLICAS if replica.too_few() else Err.NONE
