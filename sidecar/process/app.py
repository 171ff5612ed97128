"""One sidecar process, wired in one place: listen first, then find the broker, the topics, the peers; at the end give
up in order. Each part is complete once it is made."""

from __future__ import annotations

import asyncio
import signal
import time
from typing import TYPE_CHECKING, Any

from sidecar.coordinator.statelog.startup_errors import StartError
from sidecar.front.front import Front
from sidecar.kafka.cluster import Cluster
from sidecar.link.loopback import Loopback
from sidecar.process.admin_access import Access, AdminFault
from sidecar.process.broker_credentials import ClientsTls
from sidecar.process.files import open_files
from sidecar.process.lag import watch_loop
from sidecar.process.listening import Listener, listen
from sidecar.process.parts import front_settings, own_cluster
from sidecar.process.principals import knows_clients
from sidecar.process.process_metrics import KERNEL, in_slices, set_process_metrics
from sidecar.process.setting_kinds import split
from sidecar.process.settings import Settings
from sidecar.process.shared import REAL, Environment, Shared
from sidecar.process.starting import Slices, Starting
from sidecar.process.systemd import Notifier, keep_alive, keep_starting
from sidecar.process.worker import ParentEnd

if TYPE_CHECKING:
    from sidecar.process.admin import Admin
    from sidecar.process.coordination import Coordination, CoordinatorRunner

ADMIN_AFTER_S = 1.0
ADMIN_AGAIN_S = 1.0
"""Pause before another attempt, while another process has the admin address: perhaps the one that this one replaces."""
READY_TICK_S = 0.01
COORDINATION, ADMIN = "sidecar.process.coordination", "sidecar.process.admin_made"
"""Modules that are imported when clients are served."""
__all__ = ["App", "Environment", "StartError"]


class Elsewhere(Starting):
    """The coordinator's half of a process that is a front alone: the coordinator is at the other end of the link."""

    def __init__(self, front: Front) -> None:
        super().__init__()
        self._front = front

    def problems(self) -> list[str]:
        return [] if self._front.linked else ["no coordinator is linked"]


class App:
    """A whole sidecar, or one half of it, by its role."""

    def __init__(
        self, settings: Settings, started: float, environment: Environment = REAL, parent: ParentEnd | None = None
    ) -> None:
        self.settings = settings
        self._parent = parent
        self.started = started
        self.shared = Shared(settings, environment)
        self.log = self.shared.log
        self.cluster = own_cluster(settings, f"sidecar-{settings.node_id}", self.shared.credentials.own)
        self.loopback = Loopback(asyncio.get_running_loop().call_soon)
        self.fronts = [self._front()] if settings.role != "coordinator" else []
        self._elsewhere = Elsewhere(*self.fronts) if settings.role == "front" else None
        self._runner: CoordinatorRunner | None = None
        self._admin: Admin | None = None
        self._starting = Starting()
        self.servers: list[Listener] = []
        self.ready_ms: int | None = None
        self._stop = asyncio.Event()
        self._coordinating: asyncio.Task[None] | None = None
        self._manager = Notifier(self.log, parent=None if parent is None else parent.send)
        self.shared.metrics("worker_restarts").set(0 if parent is None else parent.restarts)
        set_process_metrics(self.shared.metrics, settings, lambda: not self._problems())

    @property
    def half(self) -> Coordination | Starting:
        """The coordinator's half, as it is now."""
        return self._elsewhere or (self._starting if self._runner is None else self._runner.half)

    def _front(self) -> Front:
        s, shared = self.settings, self.shared
        most = s.limits.link_frame_bytes
        attach = self.loopback.attach
        if s.link is not None:
            from sidecar.process.unix_link import UnixClient  # with all kinds of groups, whose messages it reads

            attach = UnixClient(s.link, self.log, shared.tasks, most).attach
        tls = ClientsTls(shared.credentials.broker, self.log)
        settings = front_settings(s, shared.environment.new_id, tls, shared.credentials.own.now.principal)
        return Front(settings, attach, self.cluster, shared.metrics, self.log, shared.tasks)

    # ---- life ---------------------------------------------------------------------------------------------
    async def run(self) -> None:
        """Runs until a signal. Raises StartError if the process cannot do its work without the operator."""
        loop = asyncio.get_running_loop()
        tasks = self.shared.tasks
        tasks.watch(loop)
        if self._manager.watchdog_s:
            tasks.keep(lambda: keep_alive(self._manager), "watchdog")
        for sig in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(sig, self._stop.set)
        if self._parent is not None:
            self._parent.watch(loop, self._stop.set)
        reloads = [self.shared.credentials.again]
        loop.add_signal_handler(signal.SIGHUP, lambda: [reload() for reload in reloads])
        if self.fronts:
            open_files(self.settings.limits.connections, self.log)
        for front in self.fronts:
            self.servers.append(
                await listen(self.settings, front.server, self.shared.metrics, self.log, tasks, reloads)
            )
        if self.settings.loop_probe_ms:
            probe_s = self.settings.loop_probe_ms / 1000
            tasks.keep(lambda: watch_loop(self.shared.metrics, probe_s), "loop lag")
        if (access := self._access()) is not None:
            tasks.spawn(self._start_admin(access), "admin")
        work = loop.create_task(self._start())
        stop = loop.create_task(self._stop.wait())
        ends: set[asyncio.Future[Any]] = {work, stop}
        try:
            while not stop.done():
                done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                for ended in done - {stop}:
                    ended.result()  # raises what ended it
                ends -= {work}  # everything is there now: go on until a signal
        finally:
            stop.cancel()
            work.cancel()
            await self._end()

    def _access(self) -> Access | None:
        """Returns the admin endpoint's rules; None: there is no endpoint. Raises StartError."""
        s = self.settings
        if s.admin is None:
            return None
        try:
            return Access(s.admin, s.admin_access, self.log, self.shared.metrics)
        except AdminFault as exc:
            raise StartError(f"admin_access.{exc}") from None

    async def _start(self) -> None:
        """Starts the coordinator and waits until the sidecar is ready. Raises StartError."""
        s, shared = self.settings, self.shared
        if s.role != "front":
            runner = self._runner = await self._new_runner()
            shared.environment.starts()
            await self._may_coordinate()
            await runner.first_look(self._knows_clients)
            self._coordinating = shared.tasks.spawn(runner.rounds(), "coordinator")
        else:
            shared.environment.starts()
            await self._may_coordinate()
        starting = shared.tasks.spawn(keep_starting(self._manager, self.half_problem), "starting")
        while self.half.problems():
            await asyncio.sleep(READY_TICK_S)
        starting.cancel()
        self.ready_ms = round((time.monotonic() - self.started) * 1000)
        shared.environment.started()
        self._manager.ready()
        self.log.info("ready", role=s.role, kernel=KERNEL, ms=self.ready_ms, **self.half.ready_fields())

    async def _may_coordinate(self) -> None:
        """Waits until a worker may coordinate: it takes clients before the worker that it replaces has ended."""
        if self._parent is not None:
            self._parent.listening()
            await self._parent.go.wait()

    def half_problem(self) -> str:
        return next(iter(self.half.problems()), "")

    async def _knows_clients(self, cluster: Cluster) -> None:
        if self.shared.credentials.broker.now.tls:  # without it there are no certificates
            await knows_clients(cluster, self.settings.node_id, split(self.settings.broker), self.log)

    async def _new_runner(self) -> CoordinatorRunner:
        """Imports and makes the runner. Raises StartError. Clients are served already: their requests for the
        coordinator wait."""
        made = await self.shared.environment.load(COORDINATION)
        runner: CoordinatorRunner = made.runner_of(self.settings, self.shared, self.cluster, self.loopback)
        return runner

    async def _start_admin(self, access: Access) -> None:
        """Starts the admin endpoint. Its import takes a while, so it comes after the clients' listener; but it waits
        only `ADMIN_AFTER_S` for a broker."""
        until = time.monotonic() + ADMIN_AFTER_S
        while self.ready_ms is None and time.monotonic() < until:
            await asyncio.sleep(READY_TICK_S)
        module = await self.shared.environment.load(ADMIN)
        if self._parent is not None:
            await self._parent.go.wait()
        admin: Admin = module.admin_of(self, access)
        self._admin = admin
        error = ""
        while True:
            try:
                await admin.start()
                break
            except OSError as exc:
                former, error = error, exc.strerror or str(exc)
            if error != former:
                self.log.error("no admin address", admin=self.settings.admin, error=error)
            await asyncio.sleep(ADMIN_AGAIN_S)
        await admin.keep()

    async def _end(self) -> None:
        """Ends in order, and takes nothing new. Open requests get answers, or errors that send clients on."""
        self.log.info("stopping")
        self._manager.stopping()
        if self._parent is not None and self._parent.replaced:
            self._close()
        for front in self.fronts:
            front.stop()
        if self._coordinating is not None:
            self._coordinating.cancel()
        if self._runner is not None:
            await self._runner.stop()
        self._close()
        for front in self.fronts:
            await front.drain(self.settings.drain_ms / 1000)
        if self._admin is not None:
            await self._admin.stop()
        self.cluster.close()
        self.log.info("stopped")

    def _close(self) -> None:
        """Closes the listeners. Where another worker listens on the same sockets, it takes all new connections."""
        while self.servers:
            self.servers.pop().close()

    # ---- what operators ask -------------------------------------------------------------------------------
    async def metrics(self) -> bytes:
        """Returns all metrics in Prometheus's text format."""
        exported = await self.half.metrics()
        return await in_slices(self.shared.metrics.parts()) + exported

    def problems(self) -> tuple[list[str], int | None]:
        """Returns the reasons why this sidecar is not ready, and the duration of its start in ms."""
        return self._problems(), self.ready_ms

    def _problems(self) -> list[str]:
        silences = [front.server.watch.problem for front in self.fronts]
        return [*filter(None, silences), *self.half.problems()]

    def owners(self, groups: list[str]) -> dict[str, object]:
        """Returns the owners as this sidecar knows them."""
        return self.half.owners(groups)

    def group(self, group_id: str) -> Slices:
        """Returns one group as the state topic has it, a little at a time; None if it is not there."""
        return self.half.group(group_id)
