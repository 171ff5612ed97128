"""The coordinator's half of a process, and the runner that starts another one from the log whenever one has ended.

Ports never depend on it. While there is none, produce, fetch and unmanaged groups go on; requests for managed groups
wait for `takeover_hold_ms` and are then answered COORDINATOR_NOT_AVAILABLE, so clients look for it again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from sidecar.assign.share import ShareAssignor
from sidecar.assign.spec import Assignor
from sidecar.assign.task_spec import TaskAssignor
from sidecar.coordinator.clock import now
from sidecar.coordinator.inspect.broker_groups import BrokerGroups, PageLags
from sidecar.coordinator.inspect.group_metrics import Census
from sidecar.coordinator.inspect.group_views import ClusterFacts, Lag, Views
from sidecar.coordinator.inspect.lag_exporter import Exporter, ExporterPorts
from sidecar.coordinator.inspect.live_state import live
from sidecar.coordinator.inspect.rebalance_history import RebalanceHistory
from sidecar.coordinator.membership.owners_group import sidecar_of
from sidecar.coordinator.membership.peer_links import PeerListener
from sidecar.coordinator.moves.empty_groups import EmptyGroupPorts, EmptyGroups
from sidecar.coordinator.moves.managed_groups import OwnRules, Rules
from sidecar.coordinator.runtime.background import Background, BackgroundCollector
from sidecar.coordinator.runtime.cluster_watch import ClusterWatch, NewTail
from sidecar.coordinator.runtime.coordinator import Coordinator
from sidecar.coordinator.runtime.settings_requests import SettingsRequests
from sidecar.coordinator.settings.settings_in_force import OwnKind, OwnSettings, SettingsInForce
from sidecar.coordinator.settings.stored_settings import StoredSettings
from sidecar.coordinator.statelog.read_index import ReadIndex
from sidecar.coordinator.statelog.startup import (
    Control,
    StartSettings,
    find_broker,
    offsets_leaders,
    one_cluster,
    state_topic,
)
from sidecar.coordinator.statelog.startup_errors import StartAnew, StartError
from sidecar.coordinator.statelog.tail import Listener, StateLog, Tail
from sidecar.coordinator.statelog.topic_watch import policy_fault, read_configs, remedy
from sidecar.core.consumer.config import CONSUMER
from sidecar.core.runtime.quarantine import Quarantine
from sidecar.core.share.config import SHARE
from sidecar.core.streams.config import STREAMS
from sidecar.core.vocabulary.placement import partition_for
from sidecar.kafka.cluster import Cluster
from sidecar.kafka.lanes import Lane
from sidecar.kafka.net import NO_ANSWER
from sidecar.link.loopback import Loopback
from sidecar.process.assignors import CONSUMER as OFFERED
from sidecar.process.assignors import SHARE as OFFERED_TO_SHARE
from sidecar.process.assignors import STREAMS as OFFERED_TO_STREAMS
from sidecar.process.assignors import UnknownAssignor, load
from sidecar.process.broker_credentials import BrokerCredentials, ReadListener
from sidecar.process.coordinator_environment import CoordinatorEnvironment
from sidecar.process.coordinator_links import LoopbackLink, UnixLink
from sidecar.process.coordinator_parts import (
    begin_quarantine,
    cluster_watch_settings,
    coordinator_settings,
    exporter_settings,
)
from sidecar.process.parts import managed_by, own_cluster
from sidecar.process.section import Section
from sidecar.process.setting_kinds import split
from sidecar.process.settings import Settings
from sidecar.process.shared import Shared
from sidecar.process.sockets import listens_at
from sidecar.process.starting import Slices, Starting
from sidecar.process.tasks import Broken, Supervisor
from sidecar.state.codec import StateCodec

READY_TICK_S = 0.05
AGAIN_S, AGAIN_MOST_S = 1.0, 30.0
"""Pause before an ended coordinator is started again: the first one, doubled each time, and the longest."""
CAUSES: dict[type[Exception], str] = {Broken: "bug", StartAnew: "state_topic", StartError: "start"}
CALM_S = 60.0
"""A coordinator that lasts longer than this resets the pause: its end has nothing to do with its start."""


def _own_settings(s: Settings) -> OwnSettings:
    classic = own_kind(s.classic)
    values = {**classic.values, "stale_claims": s.groups.stale_claims}
    kinds = {CONSUMER: own_kind(s.consumer)}
    kinds |= {kind: own_kind(of) for kind, of in ((SHARE, s.share), (STREAMS, s.streams)) if kind in s.groups.kinds}
    return OwnSettings(s.node_id, kinds, replace(classic, values=values))


def own_kind(section: Section) -> OwnKind:
    """Returns the settings of one kind of groups in the coordinator's form."""
    model = type(section).model_fields
    values, defaults = {f: getattr(section, f) for f in model}, {f: field.default for f, field in model.items()}
    return OwnKind(values, frozenset(section.model_fields_set), defaults)


@dataclass(frozen=True)
class Means:
    """The resources that one coordinator leaves to the next."""

    assignors: Mapping[str, Mapping[str, Assignor | ShareAssignor | TaskAssignor]]
    """Assignors by kind of group and name."""
    background: Background
    new_tail: NewTail

    @classmethod
    def of(cls, s: Settings, app: Shared) -> Means:
        """Makes them from the settings. Raises StartError."""
        environment = app.environment.coordinator or CoordinatorEnvironment()
        try:
            assignors: dict[str, Mapping[str, Assignor | ShareAssignor | TaskAssignor]] = {
                CONSUMER: load(s.consumer.assignors, OFFERED),
                SHARE: load(s.share.assignors, OFFERED_TO_SHARE),
                STREAMS: load(s.streams.assignors, OFFERED_TO_STREAMS),
            }
        except UnknownAssignor as exc:
            raise StartError(str(exc)) from None
        background = environment.new_background(s.background_threads)
        app.metrics.add(BackgroundCollector(background))
        return cls(assignors, background, environment.new_tail)


def _secured_tail(
    s: Settings, credentials: BrokerCredentials, new_tail: NewTail, security: Mapping[str, object]
) -> NewTail:
    """Returns `new_tail` with credentials, which hear of refusals and of what was read all the same."""
    read, denied = (partial(f, s.state.topic) for f in (credentials.tail_read, credentials.tail_denied))

    def tail(bootstrap: str, topic: str, client_id: str, log: StateLog, listener: Listener) -> Tail:
        noted = ReadListener(listener, read)
        more = {"security": security, "group": s.ownership.group, "denied": denied}
        return new_tail(bootstrap, topic, client_id, log, noted, **more)

    return tail


async def _peer_listener(s: Settings) -> PeerListener | None:
    """Opens the listener at which other sidecars watch this one; None without `peer_links`. Raises StartError."""
    if not s.ownership.peer_links:
        return None
    hosts, _ = listens_at(s.listen)
    try:
        return await PeerListener.open(hosts, s.ownership.peer_port, s.ownership.peer_advertised_port)
    except OSError as exc:
        raise StartError(
            f"cannot listen for other sidecars on {hosts[0]}:{s.ownership.peer_port}: {exc.strerror or exc}. "
            "Set ownership.peer_port to a free port, or to 0."
        ) from None


class Coordination:
    """The coordinator's half of a process, made once all that it needs is there."""

    def __init__(
        self,
        s: Settings,
        leaders: tuple[int, ...],
        control: Control,
        cluster: Cluster,
        app: Shared,
        means: Means,
        tasks: Supervisor,
        peers: PeerListener | None,
        quarantine: Quarantine,
    ) -> None:
        self._peers = peers
        self.cluster, self.control = cluster, control
        self.codec = codec = StateCodec()
        self.state = state = StateLog(len(leaders), codec, app.log, app.metrics)
        history = None if s.admin is None else RebalanceHistory(s.admin_access.rebalances_kept, codec)
        state.watcher = history
        own = _own_settings(s)
        named = managed_by(s)
        stored = StoredSettings(codec, state, app.log)
        rules = Rules(OwnRules(named, named.include, named.exclude, named.never), stored, app.log)
        read_index = ReadIndex(cluster, s.state.topic, state, max(s.takeover_hold_ms, 1_000) / 1000, tasks)
        configs = SettingsInForce(own, stored, rules.managed, app.log)
        settings = coordinator_settings(s, control.address, quarantine, control.view.cluster_id)
        self.coordinator = Coordinator(
            settings,
            cluster,
            codec,
            state,
            SettingsRequests(configs, rules, read_index),
            means.assignors,
            means.background,
            app.metrics,
            app.log,
            tasks,
        )
        tasks.spawn(self._empty_groups(s, configs, cluster, app).rounds(), "empty groups")
        follow = cluster_watch_settings(s, cluster.client_id, rules)
        made, new_tail = self.coordinator, means.new_tail
        secured = s.command_config is not None or s.broker_command_config is not None
        if secured:
            new_tail = _secured_tail(s, app.credentials, new_tail, app.credentials.librdkafka())
        self.cluster_watch = ClusterWatch(follow, leaders, control, state, made, app.log, tasks, new_tail, peers)

        if secured:
            app.credentials.changed = lambda: self.cluster_watch.tail.secure(app.credentials.librdkafka())
        self._census = Census(made.service, app.metrics, state.changed_ms)
        ports = ExporterPorts(made.leader_of, lambda: control.view)
        self.exporter = Exporter(exporter_settings(s), made.service, cluster, ports, app.metrics, app.log)
        self.views: Views | None = None
        if history is not None:
            self.views = _views(s, self, rules, history, tasks)
        if s.admin is not None and s.exporter.interval_ms:
            tasks.spawn(self.exporter.rounds(), "exporter")

    def _empty_groups(self, s: Settings, configs: SettingsInForce, cluster: Cluster, app: Shared) -> EmptyGroups:
        made, own_ms = self.coordinator, s.offsets.empty_group_check_ms
        ports = EmptyGroupPorts(
            check_s=lambda: (configs.broker.retention_check_ms if own_ms is None else own_ms) / 1000,
            leader_of=made.leader_of,
            placeholder_gone=made.no_placeholder,
            ask=made.moves.core.ask,
        )
        return EmptyGroups(made.service, cluster, ports, app.metrics, app.log)

    def problems(self) -> list[str]:
        return self.cluster_watch.problems()

    def ready_fields(self) -> dict[str, object]:
        """Returns the fields for the log line "ready"."""
        settings = self.coordinator.settings
        return {"partitions": len(self.coordinator.service.owners), "state_topic": settings.topic}

    async def metrics(self) -> bytes:
        """Updates the metrics that are counted on a scrape only. Returns the exporter's text."""
        await self._census.take()
        return self.exporter.page.text

    def owners(self, groups: list[str]) -> dict[str, object]:
        service, assignment = self.coordinator.service, self.coordinator.assignment
        return {
            "generation": assignment.generation,
            "owners": list(assignment.owners),
            "active": service.serving(),
            "groups": {g: node if (node := service.owner_node(g)) >= 0 else None for g in groups},
        }

    def group(self, group_id: str) -> Slices:
        """Returns the answer of /api/v1/group with all members and no other pages. Where this sidecar owns the group,
        `live` is added."""
        answer = None if self.views is None else (yield from self.views.whole(group_id))
        owners = self.coordinator.service.owners
        shard = owners[partition_for(group_id, len(owners))].shard
        live_state = None if answer is None else (yield from live(shard, group_id, now().mono_ms))
        return answer if answer is None or live_state is None else {**answer, "live": live_state}

    async def stop(self, for_good: bool) -> None:
        """Stops the coordinator. `for_good`: no other one takes its place."""
        try:
            await self.coordinator.stop()
        finally:  # the tail's thread must end whatever a bug has left behind, and the owners' group must hear of it
            has_left = await self.cluster_watch.stop(for_good)
        if has_left and for_good:
            await self.coordinator.give_up_placeholders()

    def close(self) -> None:
        if self._peers is not None:
            self._peers.close()
        self.coordinator.appender.close()
        self.control.close()
        self.cluster.close()


def _views(s: Settings, half: Coordination, rules: Rules, history: RebalanceHistory, tasks: Supervisor) -> Views:
    made, control, exporter, state = half.coordinator, half.control, half.exporter, half.state
    reach = partial(half.cluster.lane, lane=Lane.EXPORTER)
    nodes, own_group = (lambda: control.view.brokers.keys()), s.ownership.group
    brokers = BrokerGroups(reach, nodes, len(state.partitions), own_group, tasks)
    peer = partial(sidecar_of, half.cluster_watch.ownership)
    known = ClusterFacts(brokers, lambda: control.view.cluster_id, lambda: made.view.suspects, peer)
    lags = PageLags(lambda: exporter.page, reach, lambda: control.view, made.leader_of, tasks)
    lag = Lag(lags.of, lags.version, lags.look)
    return Views(s.node_id, state, half.codec, rules, history, lambda: made.assignment, known, lag)


def runner_of(s: Settings, app: Shared, brokers: Cluster, loopback: Loopback) -> CoordinatorRunner:
    """Makes the runner with its link. Raises StartError."""
    link = LoopbackLink(loopback) if s.link is None else UnixLink(s, app)
    return CoordinatorRunner(s, app, Means.of(s, app), brokers, link)


class CoordinatorLink(Protocol):
    """The way from the fronts to the coordinator."""

    async def serve(self, coordinator: Coordinator) -> None: ...

    def lose(self) -> None:
        """Disconnects the fronts, which forget the coordinator's grants and refuse what it has not answered."""

    def close(self) -> None:
        """Closes the link for good: the process ends."""


class CoordinatorRunner:
    """Runs coordinators, one after the other. `half` is the present one."""

    def __init__(self, s: Settings, app: Shared, means: Means, brokers: Cluster, link: CoordinatorLink) -> None:
        """Takes in the resources. `brokers`: the fronts' cluster, which learns the addresses that coordinators find."""
        self._means = means
        self.half: Coordination | Starting = Starting()
        self._settings, self._app, self._brokers, self._link = s, app, brokers, link
        self._tasks: Supervisor | None = None
        self._ended_s: float | None = None
        """Monotonic time at which the last coordinator ended, in seconds; None: this is the first."""
        self._why = ""
        """Reason for the end of the last coordinator."""
        self._last_quarantine: Quarantine | None = None
        """Quarantine of the last coordinator that began after a loss of the log; None: there was none, or it is
        over."""
        app.metrics("state_topic_faults").set_function(self._faults)

    def _faults(self) -> float:
        half = self.half
        return float(len(half.cluster_watch.state_topic.faults)) if isinstance(half, Coordination) else 0.0

    async def first_look(self, check: Callable[[Cluster], Awaitable[None]]) -> None:
        """Finds the broker. Raises StartError without a fit answer for `broker_wait_ms`; `check` may raise it, too."""
        s = self._settings
        cluster = own_cluster(s, self._brokers.client_id, self._app.credentials.own)
        control = Control(self._start_settings(s.broker_wait_ms / 1000), cluster)
        try:
            waits = partial(setattr, self.half, "problem")
            await find_broker(self._start_settings(s.broker_wait_ms / 1000), control, self._app.log, waits)
            await check(cluster)
        finally:
            control.close()
            cluster.close()

    def _start_settings(self, wait_s: float) -> StartSettings:
        s = self._settings
        return StartSettings(
            node_id=s.node_id,
            broker=split(s.broker),
            same_listener=not s.bootstrap,
            client_id=self._brokers.client_id,
            wait_s=wait_s,
            owners_group=s.ownership.group,
            topic=s.state.topic,
            replicas=s.state.replicas,
            min_compaction_lag_ms=s.state.min_compaction_lag_ms,
            max_message_bytes=s.state.max_message_bytes,
            security=self._app.credentials.broker,
        )

    # ---- one after the other ------------------------------------------------------------------------------
    async def rounds(self) -> None:
        pause_s = AGAIN_S
        while True:
            began_s = time.monotonic()
            why = await self._round()
            if time.monotonic() - began_s > CALM_S:
                pause_s = AGAIN_S
            self._app.metrics("coordinator_ends", CAUSES[type(why)]).inc()
            self._why = str(why)
            self.half = Starting(f"no coordinator runs; the next one starts in {pause_s:g} s: {why}")
            self._log_end(why, round(pause_s * 1000))
            del why  # its traceback holds the coordinator
            self._app.environment.ended()
            self._ended_s = time.monotonic()
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, AGAIN_MOST_S)

    def _log_end(self, why: Exception, again_ms: int) -> None:
        fields: dict[str, object] = {"problem": str(why), "again_ms": again_ms}
        if isinstance(why, Broken):
            cause = why.__cause__
            self._app.log.error("a bug has ended the coordinator; it is started again", trace=cause, **fields)
        else:
            self._app.log.error("the coordinator has ended and is started again; ports stay open", **fields)

    async def _round(self) -> Exception:
        """Runs one coordinator. Returns the exception that has ended it."""
        tasks = self._tasks = Supervisor()
        self._app.tasks.coordination = tasks
        begins = tasks.spawn(self._begin(tasks), "start of the coordinator")
        try:
            await tasks.failed
        except (StartError, Broken) as exc:
            why = exc
        begins.cancel()
        if isinstance(why, StartAnew):
            self._last_quarantine = begin_quarantine(self._settings, self._app.log)
        self._app.tasks.coordination = None
        half, self.half = self.half, Starting(f"the coordinator has ended: {why}")
        await self._end(half, tasks, for_good=False)
        self._tasks = None
        return why

    async def _begin(self, tasks: Supervisor) -> None:
        """Finds broker, leaders and state topic, then coordinates. Raises StartError."""
        s, log = self._settings, self._app.log
        waiting = Starting(f"a coordinator starts; the one before: {self._why}") if self._why else Starting()
        self.half = waiting
        waits = partial(setattr, waiting, "problem")
        start = self._start_settings(0.0)
        cluster = own_cluster(s, self._brokers.client_id, self._app.credentials.own)
        cluster.brokers = self._brokers.brokers
        control, peers = Control(start, cluster), None
        try:
            await find_broker(start, control, log, waits)
            await one_cluster(start, control, cluster, log, waits)
            leaders = await offsets_leaders(start, control, cluster, log, waits)
            await state_topic(start, control, cluster, len(leaders), log, waits)
            await self._keeps_records(cluster)
            peers = await _peer_listener(s)
            made = Coordination(s, leaders, control, cluster, self._app, self._means, tasks, peers, self._quarantine())
        except BaseException:
            if peers is not None:
                peers.close()
            control.close()
            cluster.close()
            raise
        self.half = made
        await self._link.serve(made.coordinator)
        if self._ended_s is not None:
            tasks.spawn(self._ready_again(made, self._ended_s), "ready again")

    async def _ready_again(self, made: Coordination, ended_s: float) -> None:
        while made.problems():
            await asyncio.sleep(READY_TICK_S)
        self._app.log.info("ready", again=True, ms=round((time.monotonic() - ended_s) * 1000), **made.ready_fields())

    def _quarantine(self) -> Quarantine:
        """Returns the quarantine that still lasts: it also counts for the successor of a coordinator in quarantine."""
        if self._last_quarantine is None or self._last_quarantine.until_ms < now().mono_ms:
            self._last_quarantine = None
            return Quarantine()
        return self._last_quarantine

    async def _keeps_records(self, cluster: Cluster) -> None:
        """Raises StartError if the state topic's settings delete records. Warns if the brokers do not answer."""
        topic = self._settings.state.topic
        try:
            configs = await read_configs(cluster, topic)
        except NO_ANSWER as exc:
            self._app.log.warning("settings of the state topic not read", problem=str(exc) or "timed out")
            return
        if fault := policy_fault(topic, configs):
            raise StartError(f"{fault}: {remedy(topic, configs, len(cluster.brokers), cluster.bootstrap)}")

    # ---- ending -------------------------------------------------------------------------------------------
    async def stop(self) -> None:
        """Stops for good. Clients get errors that send them on before the link to the coordinator is closed."""
        if self._tasks is not None:
            self._app.tasks.coordination = None
            await self._end(self.half, self._tasks, for_good=True)
        self._link.close()
        self._means.background.stop()

    async def _end(self, half: Coordination | Starting, tasks: Supervisor, for_good: bool) -> None:
        try:
            if not for_good:
                self._link.lose()
            await half.stop(for_good)
        except Exception as exc:  # noqa: BLE001 - what ended it may be a bug, and left anything behind
            self._app.log.error("the coordinator could not end in order", error=repr(exc))
        await tasks.end()
        half.close()
