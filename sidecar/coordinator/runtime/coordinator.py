"""Drives core/runtime/service.py: takes messages from fronts, carries out commands, and reports their ends to the core.

It decides nothing about groups or ownership. The numbered duties at the top of core/runtime/owner.py are fulfilled here
and below: fencing and appending by takeovers.py, following the log by tail.py, background work by background.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from sidecar.coordinator.clock import now
from sidecar.coordinator.membership.owners_protocol import Assignment
from sidecar.coordinator.moves.core_client import COORDINATORS_OWN
from sidecar.coordinator.moves.fleet_kinds import FleetKinds
from sidecar.coordinator.moves.moves import MovePorts, Moves
from sidecar.coordinator.placeholder.placeholders import PlaceholderPorts, Placeholders
from sidecar.coordinator.placeholder.share_placeholders import SharePlaceholderPorts, SharePlaceholders
from sidecar.coordinator.runtime.assignor_task import assigning
from sidecar.coordinator.runtime.background import Background
from sidecar.coordinator.runtime.fronts import Fronts, front_of
from sidecar.coordinator.runtime.lease_proofs import LeaseProofs
from sidecar.coordinator.runtime.load_task import LoadTask
from sidecar.coordinator.runtime.metrics import count, observe, show
from sidecar.coordinator.runtime.regex_task import RegexResolver
from sidecar.coordinator.runtime.settings import CoordinatorSettings
from sidecar.coordinator.runtime.settings_requests import SettingsRequests
from sidecar.coordinator.runtime.takeovers import TakeoverPorts, Takeovers
from sidecar.coordinator.runtime.topic_refresh import TopicRefresh
from sidecar.coordinator.runtime.turn_log import TurnLog
from sidecar.coordinator.statelog.tail import StateLog
from sidecar.coordinator.statelog.unfenced_append import append_unfenced
from sidecar.coordinator.statelog.write_errors import WriteLost
from sidecar.core.consumer.regexes import ResolveRegex
from sidecar.core.kinds import REGISTRY
from sidecar.core.modern.target_assignment import RunAssignor
from sidecar.core.runtime.commands import Occupied, TookOver, Void, Work
from sidecar.core.runtime.effects import Count, Log, Observe, Reply
from sidecar.core.runtime.events import Event
from sidecar.core.runtime.offset_checks import CheckReply, CommitCheck, FetchCheck
from sidecar.core.runtime.service import Service
from sidecar.core.runtime.topic_lookup import LookFirst
from sidecar.core.runtime.turn import Now, Ports
from sidecar.core.share.placeholder import HoldPlaceholder, LeavePlaceholder
from sidecar.core.vocabulary.errors import Code
from sidecar.core.vocabulary.topics import Topic
from sidecar.kafka.cluster import Cluster, ConnectionLost
from sidecar.kafka.produce import Appender
from sidecar.link.messages import (
    SETTINGS_EVENTS,
    AccessAnswer,
    BrokerSilence,
    CommitEnded,
    Lease,
    OpenOffsets,
    OpenShareState,
    Request,
    SettingsPassed,
    ToCoordinator,
    TopicsPassed,
    Touch,
    View,
)
from sidecar.link.ports import Figures, FrontEnd, Logger, Tasks
from sidecar.link.turn_queue import TurnQueue
from sidecar.state.codec import Encoded, StateCodec

TICK_S = 0.05


class Coordinator:
    def __init__(
        self,
        settings: CoordinatorSettings,
        cluster: Cluster,
        codec: StateCodec,
        state: StateLog,
        requests: SettingsRequests,
        assignors: Mapping[str, Mapping[str, Any]],
        background: Background,
        figures: Figures,
        log: Logger,
        tasks: Tasks,
    ) -> None:
        self.settings, self.cluster, self.assignors = settings, cluster, assignors
        self.appender = Appender(cluster, settings.write_timeout_s)
        self.assignment, self.view = Assignment(), View()
        self.broker_silence: Callable[[int], None] = lambda quiet_ms: None
        self._codec, self._state = codec, state
        self.requests, self._background, self._figures = requests, background, figures
        configs, rules = requests.configs, requests.rules
        self._log, self._tasks = log, tasks
        limits = (settings.batch_bytes, settings.lease_ms, settings.quarantine, settings.limits)
        soon = asyncio.get_running_loop().call_soon
        turn_queue = TurnQueue(soon, self._run_commands, partial(tasks.broken, "coordinator"))
        self.fresh = TopicRefresh(settings.look_s, turn_queue, figures)
        turns = TurnLog(log).turn if settings.turns else None
        ports = Ports(assignors, configs.groups, lambda: configs.broker.authorizer, *limits, self.fresh.moved, turns)
        self.service = Service(settings.node_id, len(state.partitions), REGISTRY, ports, state, settings.service)
        self.takeovers = Takeovers(
            settings, cluster, self.appender, codec, state, self.service.owners, self._takeover_ports(), tasks
        )
        self.fronts = Fronts()
        self._checks: dict[int, CommitCheck | FetchCheck] = {}
        """Token -> open check of a commit or fetch in the core: the answer may have to wait for a placeholder."""
        self.placeholders = Placeholders(settings.placeholders, cluster, self._placeholder_ports(), figures, log, tasks)
        self.share_placeholders = SharePlaceholders(cluster, self._share_ports(), figures, log, tasks)
        self.moves = Moves(
            settings.moves, rules, self.service, cluster, self._move_ports(turn_queue), figures, log, tasks
        )
        self.fronts.connected[COORDINATORS_OWN] = self.moves.core
        self._regexes = RegexResolver(background, configs, self.fresh, self.fronts.ask_access, self._done, figures, log)
        self._running_commands = False
        self._load_task = LoadTask(self.service, settings.load_slice_s, self._run_commands, tasks)
        self._perform: dict[type, Callable[[Any], None]] = {
            Reply: self._reply,
            Log: lambda line: getattr(log, line.level)(line.event, **line.fields),
            Count: partial(count, figures),
            Observe: partial(observe, figures),
            Void: self.fronts.broadcast,
            **self.takeovers.commands(),
            Work: self._work,
            TookOver: self._took_over,
            Occupied: lambda c: self.placeholders.occupied(c.group_id, c.members),
        }
        show(figures, self.service, lambda: len(self.moves.parked))
        tasks.spawn(self._tick(), "tick")
        self._proofs = LeaseProofs(self.service, self.takeovers.terms, settings.lease_ms)
        tasks.spawn(self._proofs.rounds(), "proofs")

    def _placeholder_ports(self) -> PlaceholderPorts:
        return PlaceholderPorts(
            leased=lambda partition: self.service.owners[partition].lease.valid(now()),
            leader_of=self.leader_of,
            partition_of=self.service.partition_of,
            managed=self.requests.rules.managed,
            other_members=lambda group_id: self.moves.adoptions.remove_adopted(group_id),
            prove=self.takeovers.prove,
            again=self._check_again,
            answer=lambda token, answer: self._reply(Reply(token, answer)),
        )

    def _share_ports(self) -> SharePlaceholderPorts:
        def serves(partition: int) -> bool:
            owner = self.service.owners[partition]
            return owner.shard is not None and owner.lease.valid(now())

        return SharePlaceholderPorts(
            serves=serves,
            leader_of=self.leader_of,
            partition_of=self.service.partition_of,
            owner_epoch=lambda partition: self.takeovers.terms[partition].writer.owner_epoch,
            done=self._done,
            answer=lambda token, answer: self._reply(Reply(token, answer)),
            other_members=lambda group_id: self.moves.adoptions.remove_adopted(group_id),
            wait_ms=self.settings.placeholders.wait_ms,
        )

    def _takeover_ports(self) -> TakeoverPorts:
        def stopped(partition: int) -> None:
            self.placeholders.stopped(partition)
            self.share_placeholders.stopped(partition)
            self.moves.stopped(partition)

        return TakeoverPorts(
            assignment=lambda: self.assignment,
            run_commands=self._run_commands,
            stopped=stopped,
            append_took=self._figures("append_seconds").observe,
        )

    def _move_ports(self, turn_queue: TurnQueue) -> MovePorts:
        async def store(group_id: str, values: dict[str, str | None], why: str) -> None:
            try:
                await self.requests.rules.settings.put(group_id, values, why, self.append_unfenced)
            except WriteLost as exc:
                raise ConnectionLost(str(exc)) from exc

        return MovePorts(
            configs=self.requests.configs.groups,
            leader_of=self.leader_of,
            run_commands=self._run_commands,
            store=store,
            placeholder_gone=self.no_placeholder,
            vacate=lambda group_id: self.placeholders.occupied(group_id, members=False),
            fleet=FleetKinds(lambda kind: self.assignment.lacking(kind), lambda: len(self.assignment.members)),
            send_rules=lambda: self.fronts.broadcast(self.moves.rules.message()),
            turn_queue=turn_queue,
        )

    def no_placeholder(self, group_id: str) -> bool:
        """Returns whether no placeholder of this sidecar is left in the broker's group of this name."""
        return self.placeholders.given_up(group_id) and self.share_placeholders.given_up(group_id)

    def leader_of(self, partition: int) -> int:
        """Returns the node id of the broker that keeps the offsets of this partition's groups; -1 while unknown."""
        return self.view.leaders[partition] if partition < len(self.view.leaders) else -1

    # ---- fronts -------------------------------------------------------------------------------------------
    def connect(self, front: FrontEnd) -> None:
        self.fronts.add(front)
        front.from_coordinator(Lease(*self.service.lease.until))
        if self.moves.rules.ready:
            front.from_coordinator(self.moves.rules.message())
        front.from_coordinator(self.view)

    def disconnect(self, front: FrontEnd) -> None:
        """Removes a front: answers to its requests are dropped, and its open questions end without an answer. A silence
        that it reported is over, as it can report no end: listings of topics show whether the broker answers."""
        number = self.fronts.remove(front)
        self.broker_silence(-1)
        self._regexes.front_gone(lambda token: front_of(token) == number)
        self.placeholders.commits.front_gone(number)

    def from_front(self, front: FrontEnd, message: ToCoordinator) -> None:
        try:
            if type(message) is Request:
                token = self.fronts.token(front, message.token)
                event = message.event
                if type(event) in SETTINGS_EVENTS:
                    self._tasks.spawn(self._configure(token, event), "settings request")
                elif type(event) is OpenOffsets:
                    self.placeholders.commits.open(token, event)
                elif type(event) is OpenShareState:
                    self.share_placeholders.open(token, event)
                else:
                    if type(event) is CommitCheck or type(event) is FetchCheck:
                        self._checks[token] = event
                        event.asked_ms = now().mono_ms
                    self.moves.request(token, event)
            elif isinstance(message, Touch):
                self.service.touch(message.group_id, message.member_id, now())
            elif isinstance(message, AccessAnswer):
                self._regexes.answered(self.fronts.token(front, message.token), message.hidden)
            elif isinstance(message, CommitEnded):
                self.placeholders.commits.ended(message.ticket, message.sure)
            elif isinstance(message, BrokerSilence):
                self.broker_silence(message.quiet_ms)
            elif isinstance(message, SettingsPassed):
                self.requests.configs.broker.wanted.set()
            elif isinstance(message, TopicsPassed):
                self.fresh.passed()
            self._run_commands()
        except Exception as exc:
            # Without this only the front's connection would close, and the core's commands would stay undone.
            self._tasks.broken("coordinator", exc)
            raise

    def _reply(self, reply: Reply) -> None:
        check = self._checks.pop(reply.token, None) if self._checks else None
        if check is not None and isinstance(reply.answer, CheckReply) and reply.answer.code == Code.NONE:
            answer = self.placeholders.commits.checked(reply.token, check, reply.answer, front_of(reply.token))
            if answer is None:
                return
            reply.answer = answer
        self.fronts.answer(reply)

    def _check_again(self, token: int, event: CommitCheck | FetchCheck) -> None:
        self._checks[token] = event
        self.moves.enqueue(token, event)

    def show(self, view: View) -> None:
        if view != self.view:
            before, self.view = self.view.leaders, view
            self.fronts.broadcast(view)
            if view.leaders != before:
                self.placeholders.leaders_moved(before, view.leaders)
                self.share_placeholders.leaders_moved(before, view.leaders)

    async def _configure(self, token: int, event: Event) -> None:
        self._reply(Reply(token, await self.requests.handle(event, self.append_unfenced)))

    # ---- commands -----------------------------------------------------------------------------------------
    def _run_commands(self) -> None:
        """Carries out the core's commands, each once, even if one raises. If one leads back here, the outer call
        carries out the added ones."""
        if self._running_commands:
            return
        self._running_commands = True
        out, perform = self.service.out, self._perform
        i = 0
        try:
            while i < len(out):
                command = out[i]
                i += 1
                perform[type(command)](command)
        finally:
            del out[:i]
            self._running_commands = False

    def _took_over(self, c: TookOver) -> None:
        self._figures("takeover_seconds").observe(c.ms / 1000)
        self.takeovers.took_over(c.partition)
        self.moves.took_over(c.partition)
        self._load_task.begin(c.partition)

    # ---- serving ------------------------------------------------------------------------------------------
    def _work(self, c: Work) -> None:
        if isinstance(c.item, RunAssignor):
            self._run_assignor(c, c.item)
        elif isinstance(c.item, ResolveRegex):
            self._regexes.resolve(c, c.item, lambda: self.service.owners[c.partition].image)
        elif isinstance(c.item, LookFirst):
            self.fresh.look_first(c.item, partial(self._done, c.partition, c.attempt))
        elif isinstance(c.item, HoldPlaceholder | LeavePlaceholder):
            self.share_placeholders.want(c.partition, c.attempt, c.item)
        else:
            raise TypeError(f"no background work is called {type(c.item).__name__}")

    def _done(self, partition: int, attempt: int, event: Event) -> None:
        self.service.owners[partition].done(attempt, event, now())
        self._run_commands()

    def _run_assignor(self, c: Work, ask: RunAssignor) -> None:
        encoder = self.takeovers.terms[c.partition].encoder
        assignor = self.assignors[ask.input.kind].get(ask.input.assignor)
        report = partial(self._done, c.partition, c.attempt)
        work, done = assigning(REGISTRY.runner(ask.input.kind), ask.input, assignor, encoder, report)
        limit_s = self.requests.configs.assignor_timeout_s(ask.input.kind)
        self._background.submit(f"assignor {ask.input.assignor}", work, done, limit_s)

    async def append_unfenced(self, partition: int, records: list[Encoded]) -> None:
        """Appends settings, which any sidecar may write. Returns when the tail has passed them; raises WriteLost."""
        s = self.settings
        await append_unfenced(self.cluster, self.appender, self._state, s.topic, partition, records, s.write_timeout_s)

    # ---- called for the owners' group -----------------------------------------------------------------------
    def owners_assigned(self, a: Assignment, missed: bool = False) -> None:
        self.assignment = a
        if missed:
            self._proofs.map_missed()
        self.moves.rules.peers(a.patterns)
        self.service.assigned(a.owners, a.generation, a.members, now())
        self._run_commands()

    def owners_lost(self, why: str) -> None:
        self.fronts.broadcast(Lease(0))
        self.service.lost(why)
        self._run_commands()

    def leased(self) -> bool:
        return self.service.all_leased(now())

    def lease_proved(self, until: Now) -> None:
        self.service.lease.extended(until.mono_ms, until.wall_ms)
        self.fronts.broadcast(Lease(*self.service.lease.until))

    # ---- time, topics, settings -----------------------------------------------------------------------------
    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self.service.rest_s(now(), TICK_S))
            for key in self._background.write_off():
                self._log.error("a background run hangs; another thread takes its place", run=key)
            self.service.wake(now())
            self.placeholders.commits.tick()
            self.moves.tick()
            self._run_commands()

    def pin_state_topic(self, topic_id: bytes) -> None:
        """Lets records go only into the topic with this id, and not into another one of its name."""
        self.appender.pinned[self.settings.topic] = topic_id

    def topics(self, topics: tuple[Topic, ...]) -> None:
        if self.service.topics(topics, now()):
            self.fresh.seen()
        self._run_commands()

    def config_changed(self) -> None:
        self.requests.configs.not_followed = False
        self.service.config_changed(now(), self.requests.configs.broker.fences_kept_ms)
        self._run_commands()

    def setting_stored(self, group_id: str, name: str) -> None:  # in the state topic; "" stands for brokers
        self.requests.configs.changed(group_id)
        if group_id:
            self.service.owner_of(group_id).config_changed(now(), group_id)
            self._run_commands()
        elif not self.requests.configs.not_followed:  # one change of all groups for all settings that are read together
            self.requests.configs.not_followed = True
            asyncio.get_running_loop().call_soon(self.config_changed)
        self.moves.stored(group_id, name)

    def state_read(self, unread: frozenset[int] = frozenset()) -> None:  # to its end, but for these partitions
        self.moves.begin(unread)

    # ---- ending -------------------------------------------------------------------------------------------
    async def stop(self) -> None:
        """Lets the writers finish their open appends, then sends every client to the next owner."""
        self.service.stopping = True
        await self.takeovers.finish(within_s=1.0)
        self.service.resign_all("stopping")
        self._run_commands()

    async def give_up_placeholders(self) -> None:
        """Removes all placeholders, as there is no other sidecar: the groups are the brokers' own again."""
        await self.placeholders.free({p: list(part.groups) for p, part in enumerate(self._state.partitions)})
        await self.share_placeholders.free(self._state.share_placeholders())
