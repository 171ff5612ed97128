"""One sidecar process: listen first, then find the broker, the state topic, the peers; at the end give up in order."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import time
from collections.abc import Sequence
from typing import Any

from sidecar.core.errors import Code
from sidecar.core.placement import partition_for
from sidecar.kafka.cluster import Cluster, ClusterView, ConnectionLost, MetadataReader
from sidecar.kafka.net import BrokerConnection
from sidecar.native import COMPILED
from sidecar.runtime.admin import Admin
from sidecar.runtime.assignors import UnknownAssignor, load
from sidecar.runtime.background import Background, BackgroundCollector
from sidecar.runtime.configs import Configs
from sidecar.runtime.front import Front
from sidecar.runtime.host import Host
from sidecar.runtime.log import Logger, make_logger
from sidecar.runtime.metrics import Metrics
from sidecar.runtime.ownership import Ownership, OwnershipSettings
from sidecar.runtime.session import Session
from sidecar.runtime.settings import Settings, split
from sidecar.runtime.tail import Tail
from sidecar.runtime.tasks import Supervisor
from sidecar.state.codec import StateCodec
from sidecar.wire.primitives import WireError

OFFSETS = "__consumer_offsets"
BACKLOG = 1024
RETRY_S = 0.1
SAY_AGAIN_S = 5.0
ADMIN_AFTER_S = 1.0
CONTROLLER_LAG_S = 0.1
GC_THRESHOLDS = (700, 10, 10_000)


class StartError(Exception):
    """Cannot start; the text says why and what to do."""


class App:
    def __init__(self, settings: Settings, started: float) -> None:
        self.settings = settings
        self.started = started
        self.log: Logger = make_logger(settings.log.level, settings.log.format, node_id=settings.node_id)
        self.metrics = Metrics()
        self.tasks = Supervisor()
        try:
            self.assignors = load(settings.consumer.assignors)
        except UnknownAssignor as exc:
            raise StartError(str(exc)) from None
        self.background = Background(settings.background_threads)
        self.metrics.registry.register(BackgroundCollector(self.background))
        self.front = Front(settings, self.metrics, self.log)
        self.codec = StateCodec()
        self.configs = Configs(
            settings, self.codec, lambda g: partition_for(g, len(self.leaders)), self.front.managed, self.log
        )
        self.front.configs = self.configs
        self._poll_settings = asyncio.Event()
        self.front.settings_changed = self._poll_settings.set
        host, port = split(settings.broker)
        own = settings.own_bootstrap()
        same_listener = not settings.bootstrap
        self.client_id = f"sidecar-{settings.node_id}"
        # With one listener for everything the broker's own address would lead back through this process.
        direct = {settings.node_id: (host, port)} if same_listener else {}
        self.cluster = Cluster(own, self.client_id, direct)
        self.view = ClusterView()
        self.leaders: Sequence[int] = ()
        self.host: Host | None = None
        self.ownership: Ownership | None = None
        self.tail: Tail | None = None
        self.admin: Admin | None = None
        self.ready_ms: int | None = None
        self._control: BrokerConnection | None = None
        self._stop = asyncio.Event()
        self._ready = asyncio.Event()
        self._broker_seen = time.monotonic()
        self._metadata = MetadataReader({})

    # ---- life ---------------------------------------------------------------------------------------------
    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        self.tasks.watch(loop)
        for sig in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(sig, self._stop.set)
        server = await self._listen(loop)
        work = loop.create_task(self._work())
        stop = loop.create_task(self._stop.wait())
        try:
            ends: set[asyncio.Future[Any]] = {work, stop, self.tasks.failed}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for ended in (work, self.tasks.failed):
                if ended.done():
                    ended.result()  # raises what ended it
        finally:
            stop.cancel()
            await self._end(server, work)

    async def _listen(self, loop: asyncio.AbstractEventLoop) -> asyncio.Server:
        host, port = split(self.settings.listen)
        try:
            server = await loop.create_server(
                lambda: Session(self.front), host, port, backlog=BACKLOG, reuse_address=True
            )
        except OSError as exc:
            raise StartError(f"cannot listen on {self.settings.listen}: {exc.strerror or exc}") from None
        for sock in server.sockets:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.log.info("listening", listen=self.settings.listen, broker=self.settings.broker)
        return server

    async def _end(self, server: asyncio.Server, work: asyncio.Task[None]) -> None:
        self.log.info("stopping", partitions=len(self.host.active) if self.host else 0)
        self.front.stopping = True
        work.cancel()
        if self.host is not None:
            await self.host.stop()
        if self.ownership is not None:
            await self.ownership.stop()
        server.close()
        await self.front.drain(self.settings.drain_ms / 1000)
        if self.admin is not None:
            await self.admin.stop()
        if self.tail is not None:
            await asyncio.to_thread(self.tail.stop)
        self.background.stop()
        self.cluster.close()
        self.log.info("stopped")

    async def _work(self) -> None:
        if self.settings.admin is not None:
            self.tasks.spawn(self._start_admin(), "admin")
        await self._find_broker()
        await self._offsets_topic()
        partitions = len(self.leaders)
        await self._state_topic(partitions)
        await self._read_settings()
        await self._own(partitions)
        self.ready_ms = round((time.monotonic() - self.started) * 1000)
        self._ready.set()
        # What is there now stays. The state has no cycles, and a full collection of a large one would stop the loop
        # for longer than an assignment does.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        self.tasks.spawn(self._follow_settings(), "settings")
        kernel = "compiled" if COMPILED else "python"
        self.log.info(
            "ready", kernel=kernel, ms=self.ready_ms, state_topic=self.settings.state.topic, partitions=partitions
        )
        while True:
            await asyncio.sleep(self.settings.metadata_refresh_ms / 1000)
            await self._refresh()

    async def _follow_settings(self) -> None:
        """The broker's group settings, again and again, and at once when a change passed through us."""
        while True:
            wait = asyncio.ensure_future(self._poll_settings.wait())
            await asyncio.wait({wait}, timeout=self.settings.settings_refresh_ms / 1000)
            wait.cancel()
            if self._poll_settings.is_set():
                self._poll_settings.clear()
                await self._read_settings()
                await asyncio.sleep(CONTROLLER_LAG_S)  # the controller's word reaches the broker a little later
            await self._read_settings()

    async def _read_settings(self) -> None:
        try:
            await self.configs.refresh(self.cluster)
        except (ConnectionLost, TimeoutError, WireError) as exc:
            self.log.debug("settings not read", problem=str(exc) or "timed out")

    async def _start_admin(self) -> None:
        """Its import takes a while, so it comes after the clients' way; but it does not wait long for a broker."""
        ready = asyncio.ensure_future(self._ready.wait())
        await asyncio.wait({ready}, timeout=ADMIN_AFTER_S)
        ready.cancel()
        self.admin = Admin(self)
        try:
            await self.admin.start()
        except OSError as exc:
            self.log.error("no admin address", admin=self.settings.admin, error=exc.strerror or str(exc))

    # ---- start --------------------------------------------------------------------------------------------
    async def _find_broker(self) -> None:
        wait_s = self.settings.broker_wait_ms / 1000
        until = time.monotonic() + wait_s if wait_s else float("inf")
        said = 0.0
        while True:
            try:
                await self._look()
                if self.settings.node_id in self.view.brokers:
                    return
                problem = f"node id {self.settings.node_id} is not among the brokers {sorted(self.view.brokers)}"
            except (ConnectionLost, TimeoutError, WireError) as exc:
                problem = str(exc) or "timed out"
            if time.monotonic() > until:
                raise StartError(
                    f"no use of broker {self.settings.broker} for {wait_s:g} s: {problem}. "
                    "Check --broker and --node-id, or raise broker_wait_ms."
                )
            if time.monotonic() - said > SAY_AGAIN_S:
                said = time.monotonic()
                self.log.warning("waiting for the broker", broker=self.settings.broker, problem=problem)
            await asyncio.sleep(RETRY_S)

    async def _look(self) -> None:
        """Metadata as clients see it, over the broker's own listener for them."""
        if self._control is None or self._control.closed:
            self._control = await BrokerConnection.open(*split(self.settings.broker), self.client_id)
        self.view = await self._metadata.read(self._control, None if self.settings.bootstrap else self.cluster)
        self.front.client_brokers = dict(self.view.brokers)

    async def _offsets_topic(self) -> None:
        """The number of partitions of `__consumer_offsets` decides ours; asking for a coordinator makes it."""
        said = time.monotonic()
        while not (leaders := self.view.leaders.get(OFFSETS, ())) or -1 in leaders:
            try:
                await self.cluster.coordinator(self.settings.ownership.group, 0)
            except ConnectionLost as exc:
                if time.monotonic() - said > SAY_AGAIN_S:
                    said = time.monotonic()
                    self.log.warning("waiting for __consumer_offsets", problem=str(exc))
            await asyncio.sleep(RETRY_S)
            await self._look()
        self.leaders = leaders

    async def _state_topic(self, partitions: int) -> None:
        topic = self.settings.state.topic
        while True:
            have = self.view.leaders.get(topic)
            if have is not None:  # its partitions may still be without a leader: writers and tail wait for that
                if len(have) != partitions:
                    raise StartError(
                        f"{topic} has {len(have)} partitions, {OFFSETS} has {partitions}: they must be equal"
                    )
                return
            if have is None:
                await self._create_state_topic(topic, partitions)
            await asyncio.sleep(0.03)
            await self._look()

    async def _create_state_topic(self, topic: str, partitions: int) -> None:
        replicas = self.settings.state.replicas or min(3, len(self.view.brokers))
        configs = {
            "cleanup.policy": "compact",
            "min.compaction.lag.ms": str(self.settings.state.min_compaction_lag_ms),
            "min.insync.replicas": str(min(2, replicas)),
            "max.message.bytes": str(16 << 20),
            "unclean.leader.election.enable": "false",
        }
        code = await self.cluster.create_topic(topic, partitions, replicas, configs)
        if code == Code.NONE:
            self.log.info("created the state topic", topic=topic, partitions=partitions, replicas=replicas)
        elif code != Code.TOPIC_ALREADY_EXISTS:
            self.log.warning("could not create the state topic, trying again", topic=topic, error_code=code)
            await asyncio.sleep(0.5)

    async def _own(self, partitions: int) -> None:
        s = self.settings
        codec = self.codec

        def learn(text: str) -> None:
            codec.schemas.learn(text)

        bootstrap = ",".join(f"{h}:{p}" for h, p in s.own_bootstrap())
        self.tail = Tail(
            bootstrap,
            s.state.topic,
            partitions,
            self.client_id + "-tail",
            learn,
            lambda text: self.log.debug("state tail", problem=text),
            lambda exc: self.tasks.broken("state-tail", exc),
            self.configs.changed,
        )
        self.tail.start()
        address = self.view.brokers[s.node_id]
        self.host = Host(
            self.cluster,
            s.state.topic,
            partitions,
            s.node_id,
            address,
            self.tail,
            codec,
            self.assignors,
            self.configs.group,
            s.state.write_timeout_ms / 1000,
            s.state.fence_interval_ms / 1000,
            s.state.claims_kept,
            self.metrics,
            self.log,
            self.tasks,
            self.background,
        )
        self.host.topics(self.view.topics)
        own = OwnershipSettings(
            s.ownership.group, s.ownership.session_timeout_ms, s.ownership.heartbeat_ms, s.ownership.peer_links
        )
        self.ownership = Ownership(
            self.cluster,
            s.node_id,
            address,
            own,
            lambda: self.leaders,
            self.host.on_assignment,
            self.host.on_lost,
            self.log,
            self.tasks,
        )
        self.configs.tail = self.tail
        self.configs.on_change = self.host.config_changed
        self.host.ownership = self.ownership
        self.front.host = self.host
        self.front.offsets_leader = lambda group_id: self.leaders[partition_for(group_id, partitions)]
        self.host.start()
        self.ownership.start()

    async def _refresh(self) -> None:
        """Topics and client addresses from the broker beside us, leaders from whichever broker answers."""
        assert self.host is not None and self.ownership is not None
        try:
            await self._look()
            self._broker_seen = time.monotonic()
            self.host.topics(self.view.topics)
            self.ownership.resume()
        except (ConnectionLost, TimeoutError, WireError) as exc:
            self.log.debug("metadata not refreshed", problem=str(exc) or "timed out")
            if time.monotonic() - self._broker_seen > self.settings.ownership.broker_gone_ms / 1000:
                self.ownership.withdraw(f"broker {self.settings.broker} does not answer")
        view = self.view
        if self.settings.bootstrap:
            try:
                view = await self.cluster.refresh([OFFSETS])
            except (ConnectionLost, TimeoutError, WireError) as exc:
                self.log.debug("leaders not refreshed", problem=str(exc) or "timed out")
        leaders = view.leaders.get(OFFSETS, ())
        if leaders and len(leaders) == len(self.leaders):
            self.leaders = leaders
        self.ownership.placement_changed()

    # ---- health -------------------------------------------------------------------------------------------
    def problems(self) -> list[str]:
        """Why this sidecar is not ready; empty when it is."""
        if self.ready_ms is None or self.host is None or self.ownership is None:
            return ["starting: broker, topics or tail not there yet"]
        found = []
        if self.ownership.withdrawn:
            return [f"the broker {self.settings.broker} does not answer; this sidecar owns nothing until it does"]
        if not self.ownership.assignment.owners:
            found.append("no owner is known yet")
        elif not self.ownership.lease_valid():
            found.append("the lease on the owned partitions is not proved")
        loading = sum(1 for p in self.host.assigned if p not in self.host.active)
        if loading:
            found.append(f"{loading} partitions are being taken over")
        return found
