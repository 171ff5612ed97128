"""One sidecar process, wired in one place: listen first, then find the broker, the topics, the peers; at the end give
up in order. Each part is complete once it is made."""

from __future__ import annotations

import asyncio
import gc
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import uuid4

from sidecar.coordinator.abandoned import Abandoned, AbandonedPorts
from sidecar.coordinator.background import Background, BackgroundCollector
from sidecar.coordinator.census import Census
from sidecar.coordinator.clock import now
from sidecar.coordinator.configs import Configs, OwnSettings
from sidecar.coordinator.coordinator import Coordinator
from sidecar.coordinator.exporter import Exporter, ExporterPorts
from sidecar.coordinator.follower import Follower, NewTail
from sidecar.coordinator.live import live
from sidecar.coordinator.past import Past
from sidecar.coordinator.peers import PeerListener
from sidecar.coordinator.picture import picture
from sidecar.coordinator.rules import OwnRules, Rules
from sidecar.coordinator.start import (
    Control,
    StartAnew,
    StartError,
    StartSettings,
    find_broker,
    offsets_leaders,
    state_topic,
)
from sidecar.coordinator.state_topic import policy_fault, read_configs
from sidecar.coordinator.tail import StateLog, Tail
from sidecar.coordinator.views import Lag, Views
from sidecar.coordinator.written import Written
from sidecar.core.anew import Anew
from sidecar.core.placement import partition_for
from sidecar.front.front import Front
from sidecar.kafka.cluster import Cluster, ConnectionLost
from sidecar.link.loopback import Loopback
from sidecar.link.ports import Logger
from sidecar.process.about import about
from sidecar.process.admin import Admin, Slices, nothing
from sidecar.process.admin_access import Access, AdminFault
from sidecar.process.admin_page import Pages
from sidecar.process.assignors import UnknownAssignor, load
from sidecar.process.files import open_files
from sidecar.process.lag import watch_loop
from sidecar.process.listening import Listener, listen, peer_listener
from sidecar.process.log import make_logger
from sidecar.process.metrics import Metrics
from sidecar.process.parts import (
    began_anew,
    coordinator_settings,
    follower_settings,
    front_settings,
    managed_by,
    own_cluster,
)
from sidecar.process.principals import knows_clients
from sidecar.process.reach import ClientsTls, Reach
from sidecar.process.sections import split
from sidecar.process.seen import KERNEL, exporter_settings, in_slices, tell_figures
from sidecar.process.settings import Settings
from sidecar.process.systemd import Notifier, keep_alive
from sidecar.process.tasks import Supervisor
from sidecar.process.unix_link import UnixClient, serve_unix
from sidecar.state.codec import StateCodec
from sidecar.wire.primitives import WireError

ADMIN_AFTER_S = 1.0
READY_TICK_S = 0.01
GC_THRESHOLDS = (700, 10, 10_000)
__all__ = ["App", "StartAnew", "StartError"]


def collect_rarely() -> None:
    """What is there now stays. The state that comes has no cycles, and a full collection of a large one would stop the
    loop for longer than an assignment does."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def freeze() -> None:
    """What was read of the state stays, too. It is not searched for garbage first: clients are served already, and with
    100,000 members that stops the loop for 0.1 s."""
    gc.freeze()


@dataclass(frozen=True)
class Edges:
    """Where a process meets what cannot be replayed: threads, random ids, the collector, where its log goes. The
    simulation of whole processes has its own."""

    new_logger: Callable[..., Logger] = make_logger
    new_background: Callable[[int], Background] = Background
    new_tail: NewTail = Tail
    new_id: Callable[[], str] = lambda: str(uuid4())
    starts: Callable[[], None] = collect_rarely
    started: Callable[[], None] = freeze


REAL = Edges()


class Coordination:
    """The coordinator's half of a process: made when everything it needs is there."""

    def __init__(
        self,
        s: Settings,
        leaders: tuple[int, ...],
        control: Control,
        cluster: Cluster,
        app: Shared,
        peers: PeerListener | None,
    ) -> None:
        self._peers = peers
        self._codec = codec = StateCodec()
        self._state = state = StateLog(len(leaders), codec, app.log, app.metrics)
        if s.admin is not None:
            state.past = Past(s.admin_access.rebalances_kept, codec)
        values = {f: getattr(s.consumer, f) for f in type(s.consumer).model_fields}
        defaults = {f: field.default for f, field in type(s.consumer).model_fields.items()}
        classic = {f: getattr(s.classic, f) for f in type(s.classic).model_fields}
        classic["stale_claims"] = s.groups.stale_claims
        given = frozenset(s.consumer.model_fields_set)
        own = OwnSettings(s.node_id, values, given, defaults, classic, frozenset(s.classic.model_fields_set))
        named = managed_by(s)
        rules = Rules(OwnRules(named, named.include, named.exclude, named.never), codec, state, app.log)
        written = Written(cluster, s.state.topic, state, max(s.takeover_hold_ms, 1_000) / 1000, app.tasks)
        configs = Configs(own, codec, state, written, rules, app.log)
        anew = began_anew(s, app.log) if app.anew else Anew()
        settings = coordinator_settings(s, control.address, anew)
        self.coordinator = Coordinator(
            settings,
            cluster,
            codec,
            state,
            configs,
            rules,
            app.assignors,
            app.background,
            app.metrics,
            app.log,
            app.tasks,
        )
        app.tasks.spawn(self._abandoned(s, configs, cluster, app).rounds(), "abandoned groups")
        follow = follower_settings(s, cluster.client_id, rules)
        made, new_tail = self.coordinator, app.edges.new_tail
        if secured := app.reach.librdkafka():
            new_tail = partial(new_tail, security=secured, group=s.ownership.group)
        self.follower = Follower(
            follow, leaders, control, cluster, configs, state, made, app.log, app.tasks, new_tail, peers
        )

        self._census = Census(made.service, app.metrics)
        ports = ExporterPorts(made.leader_of, lambda: control.view)
        self._exporter = told = Exporter(exporter_settings(s), made.service, cluster, ports, app.metrics, app.log)
        self.views: Views | None = None
        if state.past is not None:
            lag = Lag(lambda group_id: told.page.lags.get(group_id), lambda: told.page.at_s)
            self.views = Views(s.node_id, state, codec, rules, state.past, lambda: made.assignment, lag)
        if s.admin is not None and s.exporter.interval_ms:
            app.tasks.spawn(self._exporter.rounds(), "exporter")

    def _abandoned(self, s: Settings, configs: Configs, cluster: Cluster, app: Shared) -> Abandoned:
        made, own_ms = self.coordinator, s.offsets.empty_group_check_ms
        ports = AbandonedPorts(
            check_s=lambda: (configs.retention_check_ms if own_ms is None else own_ms) / 1000,
            leader_of=made.leader_of,
            seat_given_up=made.placeholders.given_up,
            ask=made.moves.ask,
        )
        return Abandoned(made.service, cluster, ports, app.metrics, app.log)

    def problems(self) -> list[str]:
        return self.follower.problems()

    async def metrics(self) -> bytes:
        """Bring what is counted only when somebody asks up to date; returns what the exporter has."""
        await self._census.take()
        return self._exporter.page.text

    def owners(self, groups: list[str]) -> dict[str, object]:
        service, assignment = self.coordinator.service, self.coordinator.assignment
        return {
            "generation": assignment.generation,
            "owners": list(assignment.owners),
            "active": service.serving(),
            "groups": {g: node if (node := service.owner_node(g)) >= 0 else None for g in groups},
        }

    def group(self, group_id: str) -> Slices:
        found = yield from picture(self._state, self._codec, self.coordinator.moves.rules, group_id)
        owners = self.coordinator.service.owners
        shard = owners[partition_for(group_id, len(owners))].shard
        told = None if found is None else (yield from live(shard, group_id, now().mono_ms))
        return found if found is None or told is None else {**found, "live": told}

    async def stop(self) -> None:
        await self.coordinator.stop()
        if await self.follower.stop():
            await self.coordinator.give_up_placeholders()
        if self._peers is not None:
            self._peers.close()


class Starting:
    """The coordinator's half before its broker and topics are there."""

    views: Views | None = None

    def problems(self) -> list[str]:
        return ["starting: broker or topics not there yet"]

    async def metrics(self) -> bytes:
        return b""

    def owners(self, groups: list[str]) -> dict[str, object]:
        return {"generation": -1, "owners": [], "active": [], "groups": dict.fromkeys(groups)}

    def group(self, group_id: str) -> Slices:
        return nothing()

    async def stop(self) -> None:
        """There is nothing to stop."""


class Elsewhere(Starting):
    """In a process that is a front alone, the coordinator is at the other end of the link."""

    def __init__(self, front: Front) -> None:
        self._front = front

    def problems(self) -> list[str]:
        return [] if self._front.linked else ["no coordinator is linked"]


class Shared:
    """What both halves of a process use: log, metrics, tasks, background threads."""

    def __init__(self, s: Settings, edges: Edges, anew: bool) -> None:
        self.edges = edges
        self.anew = anew
        self.log = edges.new_logger(s.log.level, s.log.format, node_id=s.node_id)
        self.metrics = Metrics()
        self.tasks = Supervisor()
        self.reach = Reach.of(s)
        try:
            self.assignors = load(s.consumer.assignors)
        except UnknownAssignor as exc:
            raise StartError(str(exc)) from None
        self.background = edges.new_background(s.background_threads)
        self.metrics.add(BackgroundCollector(self.background))


class App:
    """A whole sidecar, or the half of it that the role says."""

    def __init__(self, settings: Settings, started: float, edges: Edges = REAL, anew: bool = False) -> None:
        """`anew`: the process that was here before ended with StartAnew."""
        self.settings = settings
        self.started = started
        self.shared = Shared(settings, edges, anew)
        self.log = self.shared.log
        self.cluster = own_cluster(settings, f"sidecar-{settings.node_id}", self.shared.reach.own)
        self.loopback = Loopback(asyncio.get_running_loop().call_soon)
        self.fronts = [self._front()] if settings.role != "coordinator" else []
        self.half: Coordination | Starting = Elsewhere(*self.fronts) if settings.role == "front" else Starting()
        self.servers: list[Listener] = []
        self.ready_ms: int | None = None
        self._stop = asyncio.Event()
        self._manager = Notifier(self.log)
        tell_figures(self.shared.metrics, settings, lambda: not self.half.problems())

    def _front(self) -> Front:
        s, shared = self.settings, self.shared
        most = s.limits.link_frame_bytes
        attach = self.loopback.attach if s.link is None else UnixClient(s.link, self.log, shared.tasks, most).attach
        settings = front_settings(s, shared.edges.new_id, ClientsTls(shared.reach.broker, self.log))
        return Front(settings, attach, self.cluster, shared.metrics, self.log, shared.tasks)

    # ---- life ---------------------------------------------------------------------------------------------
    async def run(self) -> None:
        """Until a signal, a StartError, or a bug (Broken)."""
        loop = asyncio.get_running_loop()
        tasks = self.shared.tasks
        tasks.watch(loop)
        if self._manager.watchdog_s:
            tasks.spawn(keep_alive(self._manager), "watchdog")
        for sig in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(sig, self._stop.set)
        if self.fronts:
            open_files(self.settings.limits.connections, self.log)
        for front in self.fronts:
            self.servers.append(await listen(self.settings, front, self.shared.metrics, self.log, tasks))
        if self.settings.loop_probe_ms:
            tasks.spawn(watch_loop(self.shared.metrics, self.settings.loop_probe_ms / 1000), "loop lag")
        admin = self._admin()
        if self.settings.admin is not None:
            tasks.spawn(self._start_admin(admin), "admin")
        work = loop.create_task(self._start())
        stop = loop.create_task(self._stop.wait())
        ends: set[asyncio.Future[Any]] = {work, stop, tasks.failed}
        try:
            while not stop.done():
                done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                for ended in done - {stop}:
                    ended.result()  # raises what ended it
                ends -= {work}  # everything is there now: go on until a signal, or a bug
        finally:
            stop.cancel()
            work.cancel()
            await self._end(admin)

    def _admin(self) -> Admin:
        s = self.settings
        told = self.metrics, self.problems, self.owners, self.group, partial(about, s)
        if s.admin is None:
            return Admin(None, *told)
        try:
            access = Access(s.admin, s.admin_access, self.log, self.shared.metrics)
        except AdminFault as exc:
            raise StartError(f"admin_access: {exc}") from None
        return Admin(s.admin, *told, access, Pages(s.node_id, s.role, self.problems, lambda: self.half.views))

    async def _start(self) -> None:
        self.shared.edges.starts()
        told: dict[str, object] = {}
        if self.settings.role != "front":
            told = await self._coordinate()
        while self.half.problems():
            await asyncio.sleep(READY_TICK_S)
        self.ready_ms = round((time.monotonic() - self.started) * 1000)
        self.shared.edges.started()
        self._manager.ready()
        self.log.info("ready", role=self.settings.role, kernel=KERNEL, ms=self.ready_ms, **told)

    async def _coordinate(self) -> dict[str, object]:
        """Find what must be there, then coordinate."""
        s, log = self.settings, self.log
        start = StartSettings(
            node_id=s.node_id,
            broker=split(s.broker),
            same_listener=not s.bootstrap,
            client_id=self.cluster.client_id,
            wait_s=s.broker_wait_ms / 1000,
            owners_group=s.ownership.group,
            topic=s.state.topic,
            replicas=s.state.replicas,
            min_compaction_lag_ms=s.state.min_compaction_lag_ms,
            max_message_bytes=s.state.max_message_bytes,
            security=self.shared.reach.broker,
        )
        control = Control(start, self.cluster)
        await find_broker(start, control, log)
        if self.shared.reach.broker.tls:  # without it there are no certificates
            await knows_clients(self.cluster, s.node_id, split(s.broker), log)
        leaders = await offsets_leaders(start, control, self.cluster, log)
        await state_topic(start, control, self.cluster, len(leaders), log)
        await self._keeps_records()
        peers = await peer_listener(s)
        self.half = made = Coordination(s, leaders, control, self.cluster, self.shared, peers)
        self.shared.metrics("state_topic_faults").set_function(lambda: len(made.follower.state_topic.faults))
        if s.link is None:
            self.loopback.serve(made.coordinator)
        else:
            self.servers.append(await serve_unix(s.link, made.coordinator, log, s.limits.link_frame_bytes))
        return {"partitions": len(leaders), "state_topic": s.state.topic}

    async def _keeps_records(self) -> None:
        """Raises StartError if the state topic is set to forget. Where the brokers do not tell, nobody knows."""
        topic = self.settings.state.topic
        try:
            fault = policy_fault(topic, await read_configs(self.cluster, topic))
        except (ConnectionLost, TimeoutError, WireError) as exc:
            self.log.warning("settings of the state topic not read", problem=str(exc) or "timed out")
            return
        if fault:
            raise StartError(fault)

    async def _start_admin(self, admin: Admin) -> None:
        """Its import takes a while, so it comes after the clients' way; but it does not wait long for a broker."""
        until = time.monotonic() + ADMIN_AFTER_S
        while self.ready_ms is None and time.monotonic() < until:
            await asyncio.sleep(READY_TICK_S)
        try:
            await admin.start()
        except OSError as exc:
            self.log.error("no admin address", admin=self.settings.admin, error=exc.strerror or str(exc))
        else:
            await admin.keep()

    async def _end(self, admin: Admin) -> None:
        """Nothing new is taken; what was asked is answered, by this sidecar or by a word that sends clients on."""
        self.log.info("stopping")
        if self._stop.is_set():  # not if it starts anew: the manager would count until it ends
            self._manager.stopping()
        for front in self.fronts:
            front.stopping = True
        await self.half.stop()
        for server in self.servers:
            server.close()
        for front in self.fronts:
            await front.drain(self.settings.drain_ms / 1000)
        await admin.stop()
        self.shared.background.stop()
        self.cluster.close()
        self.log.info("stopped")

    # ---- what operators ask -------------------------------------------------------------------------------
    async def metrics(self) -> bytes:
        """All of them, as Prometheus reads them."""
        exported = await self.half.metrics()
        return await in_slices(self.shared.metrics.parts()) + exported

    def problems(self) -> tuple[list[str], int | None]:
        """Why this sidecar is not ready, and how long its start took."""
        return self.half.problems(), self.ready_ms

    def owners(self, groups: list[str]) -> dict[str, object]:
        """The owners as this sidecar knows them."""
        return self.half.owners(groups)

    def group(self, group_id: str) -> Slices:
        """One group as the state topic has it, a little at a time; None if it is not there."""
        return self.half.group(group_id)
