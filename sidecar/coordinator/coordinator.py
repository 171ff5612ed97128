"""Drives core/service.py: takes messages from fronts, carries out commands, tells the core what came of them.

It decides nothing about groups or ownership. The numbered duties at the top of core/owner.py are fulfilled here:
fencing and appending by writer.py, following the log by tail.py, background work by background.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from sidecar.assign.spec import Assignor
from sidecar.coordinator.assigning import assigning
from sidecar.coordinator.assignment import Assignment
from sidecar.coordinator.background import Background
from sidecar.coordinator.census import count, observe, show
from sidecar.coordinator.clock import now, wall_ms
from sidecar.coordinator.configs import Configs
from sidecar.coordinator.encoder import Encoder
from sidecar.coordinator.fresh import Fresh
from sidecar.coordinator.loading import Loader
from sidecar.coordinator.moves import COORDINATORS_OWN, MovePorts, Moves
from sidecar.coordinator.placeholders import PlaceholderPorts, Placeholders
from sidecar.coordinator.proofs import Proofs
from sidecar.coordinator.renewal import RenewalPorts, renew
from sidecar.coordinator.rules import Rules
from sidecar.coordinator.settings import CoordinatorSettings
from sidecar.coordinator.tail import StateLog
from sidecar.coordinator.tenure import PROOF_SERIAL, RENEWAL_SERIAL, Tenure, Tenures, claim_of
from sidecar.coordinator.turns import Turns
from sidecar.coordinator.unfenced import append_unfenced
from sidecar.coordinator.visible import Visible
from sidecar.coordinator.writer import Fenced, FencedWriter, WriteLost
from sidecar.core.commands import Append, Claim, Fence, Follow, Occupied, Renew, Stop, TookOver, Void, Work
from sidecar.core.consumer.regexes import ResolveRegex
from sidecar.core.consumer.target import RunAssignor
from sidecar.core.effects import Count, Log, Observe, Reply
from sidecar.core.errors import Code
from sidecar.core.events import Event
from sidecar.core.kinds import REGISTRY
from sidecar.core.looking import LookFirst
from sidecar.core.offsets import CheckReply, CommitCheck, FetchCheck
from sidecar.core.owner import RENEWED, Phase
from sidecar.core.service import Service
from sidecar.core.topics import Topic
from sidecar.core.turn import Now, Ports
from sidecar.kafka.cluster import Cluster, ConnectionLost
from sidecar.kafka.produce import Appender
from sidecar.link.messages import (
    SETTINGS_EVENTS,
    AccessAnswer,
    AskAccess,
    BrokerSilence,
    CommitEnded,
    GroupRules,
    Lease,
    OpenOffsets,
    Request,
    SettingsPassed,
    ToCoordinator,
    TopicsPassed,
    Touch,
    View,
)
from sidecar.link.ports import Figures, FrontEnd, Logger, Tasks
from sidecar.state.codec import Encoded, StateCodec

TICK_S = 0.05
REPLAY_S = 30.0  # the tail has read what was before the claim: if it does not come to the claim, something is wrong
CLAIM_SERIAL, FRONT_BITS = 0, 16
FRONT_MASK = (1 << FRONT_BITS) - 1
"""A token is the front's own token and, in its last bits, the number of the front."""


class Coordinator:
    def __init__(
        self,
        settings: CoordinatorSettings,
        cluster: Cluster,
        codec: StateCodec,
        state: StateLog,
        configs: Configs,
        rules: Rules,
        assignors: Mapping[str, Assignor],
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
        self._configs, self._background, self._figures = configs, background, figures
        self._log, self._tasks = log, tasks
        self._append_took = figures("append_seconds").observe
        limits = (settings.batch_bytes, settings.lease_ms, settings.anew, settings.limits)
        self.fresh = Fresh(settings.look_s, figures)
        ports = Ports(assignors, configs.groups, lambda: configs.authorizer, *limits, self.fresh.moved)
        self.service = Service(settings.node_id, len(state.partitions), REGISTRY, ports, state, settings.service)
        self.tenures = Tenures()
        self._fronts: dict[int, FrontEnd] = {}
        self._numbers: dict[FrontEnd, int] = {}
        self._next_number = 0
        self._checks: dict[int, CommitCheck | FetchCheck] = {}
        """What the core was asked of offsets, by token: its answer may have to wait for a placeholder."""
        self.placeholders = Placeholders(settings.placeholders, cluster, self._placeholder_ports(), figures, log, tasks)
        self.moves = Moves(settings.moves, rules, self.service, cluster, self._move_ports(), figures, log, tasks)
        self._fronts[COORDINATORS_OWN] = self.moves
        self._visible = Visible(background, configs, self.fresh, self._ask_access, self._done, figures, log)
        self._turns = Turns(lambda p: bool(state.groups(p)))
        self._draining = False
        self._loader = Loader(self.service, settings.load_slice_s, self._drain, tasks)
        self._perform: dict[type, Callable[[Any], None]] = {
            Reply: self._reply,
            Append: self._append,
            Log: lambda line: getattr(log, line.level)(line.event, **line.fields),
            Count: partial(count, figures),
            Observe: partial(observe, figures),
            Void: self._broadcast,
            Fence: self._fence,
            Renew: self._renew,
            Claim: self._claim,
            Follow: self._follow,
            Stop: self._stop_tenure,
            Work: self._work,
            TookOver: self._took_over,
            Occupied: lambda c: self.placeholders.occupied(c.group_id, c.members),
        }
        show(figures, self.service, lambda: self.moves.waiting)
        tasks.spawn(self._tick(), "tick")
        tasks.spawn(Proofs(self.service, self.tenures, settings.lease_ms).rounds(), "proofs")

    def _placeholder_ports(self) -> PlaceholderPorts:
        return PlaceholderPorts(
            leased=lambda partition: self.service.leased(partition, now()),
            leader_of=self.leader_of,
            partition_of=self.service.partition_of,
            managed=self._configs.managed,
            strangers=lambda group_id: self.moves.strangers(group_id),
            prove=self._prove,
            again=self._check_again,
            answer=lambda token, answer: self._reply(Reply(token, answer)),
        )

    def _move_ports(self) -> MovePorts:
        async def store(group_id: str, values: dict[str, str | None], why: str) -> None:
            try:
                await self._configs.put(group_id, values, why, self.append_unfenced)
            except WriteLost as exc:
                raise ConnectionLost(str(exc)) from exc

        return MovePorts(
            leader_of=self.leader_of,
            answer=lambda token, answer: self._reply(Reply(token, answer)),
            drain=self._drain,
            store=store,
            seat_given_up=self.placeholders.given_up,
            vacate=lambda group_id: self.placeholders.occupied(group_id, members=False),
            tell=lambda: self._broadcast(self.moves.rules.message()),
        )

    def leader_of(self, partition: int) -> int:
        """Node id of the broker that keeps the offsets of this partition's groups; -1 while unknown."""
        return self.view.leaders[partition] if partition < len(self.view.leaders) else -1

    # ---- fronts -------------------------------------------------------------------------------------------
    def connect(self, front: FrontEnd) -> None:
        # Not the number of one that has just gone: answers to its tokens may still be under way.
        number = self._next_number
        while number in self._fronts:
            number = (number + 1) % (1 << FRONT_BITS)
        self._next_number = (number + 1) % (1 << FRONT_BITS)
        self._fronts[number] = front
        self._numbers[front] = number
        front.from_coordinator(Lease(*self.service.lease_until))
        if self.moves.rules.ready:
            front.from_coordinator(self.moves.rules.message())
        front.from_coordinator(self.view)

    def disconnect(self, front: FrontEnd) -> None:
        """What this front asked is answered into the void; what it was asked, it will not say any more."""
        number = self._numbers.pop(front)
        del self._fronts[number]
        self._visible.front_gone(lambda token: token & FRONT_MASK == number)
        self.placeholders.front_gone(number)

    def from_front(self, front: FrontEnd, message: ToCoordinator) -> None:
        try:
            if type(message) is Request:
                token = message.token << FRONT_BITS | self._numbers[front]
                event = message.event
                if type(event) in SETTINGS_EVENTS:
                    self._tasks.spawn(self._configure(token, event), "settings request")
                elif type(event) is OpenOffsets:
                    self.placeholders.open(token, event)
                else:
                    if type(event) is CommitCheck or type(event) is FetchCheck:
                        self._checks[token] = event
                        event.asked_ms = now().mono_ms
                    self.moves.request(token, event)
            elif isinstance(message, Touch):
                self.service.touch(message.group_id, message.member_id, now())
            elif isinstance(message, AccessAnswer):
                self._visible.told(message.token << FRONT_BITS | self._numbers[front], message.hidden)
            elif isinstance(message, CommitEnded):
                self.placeholders.ended(message.ticket, message.sure)
            elif isinstance(message, BrokerSilence):
                self.broker_silence(message.quiet_ms)
            elif isinstance(message, SettingsPassed):
                self._configs.poll()
            elif isinstance(message, TopicsPassed):
                self.fresh.passed()
            self._drain()
        except Exception as exc:
            # A front's connection would only be closed by it, and the core be left with commands undone.
            self._tasks.broken("coordinator", exc)
            raise

    def _reply(self, reply: Reply) -> None:
        check = self._checks.pop(reply.token, None) if self._checks else None
        if check is not None and isinstance(reply.answer, CheckReply) and reply.answer.code == Code.NONE:
            answer = self.placeholders.checked(reply.token, check, reply.answer, reply.token & FRONT_MASK)
            if answer is None:
                return
            reply.answer = answer
        front = self._fronts.get(reply.token & FRONT_MASK)
        if front is not None:
            reply.token >>= FRONT_BITS
            front.from_coordinator(reply)

    def _check_again(self, token: int, event: CommitCheck | FetchCheck) -> None:
        self._checks[token] = event
        self.moves.request(token, event)
        self._drain()

    def _broadcast(self, message: Void | View | Lease | GroupRules) -> None:
        for front in self._fronts.values():
            front.from_coordinator(message)

    def show(self, view: View) -> None:
        if view != self.view:
            before, self.view = self.view.leaders, view
            self._broadcast(view)
            if view.leaders != before:
                self.placeholders.leaders_moved(before, view.leaders)

    async def _configure(self, token: int, event: Event) -> None:
        self._reply(Reply(token, await self._configs.handle(event, self.append_unfenced)))

    # ---- commands -----------------------------------------------------------------------------------------
    def _drain(self) -> None:
        """Carry out what is due. A command may lead back here: then the outer call goes on with what was added."""
        if self._draining:
            return
        self._draining = True
        out, perform = self.service.out, self._perform
        try:
            i = 0
            while i < len(out):
                command = out[i]
                i += 1
                perform[type(command)](command)
            out.clear()
        finally:
            self._draining = False

    def _took_over(self, c: TookOver) -> None:
        self._figures("takeover_seconds").observe(c.ms / 1000)
        self._turns.ends(c.partition)
        self.moves.took_over(c.partition)
        self._loader.begin(c.partition)

    def _prove(self, p: int, then: Callable[[], None]) -> None:
        if (tenure := self.tenures.get(p)) is not None and tenure.encoder is not None:
            tenure.prove(then)

    # ---- taking over --------------------------------------------------------------------------------------
    def _fence(self, c: Fence) -> None:
        tenure = self.tenures[c.partition] = Tenure(c.attempt, self._writer(c.partition, c.attempt))
        self._turns.begins(c.partition)
        self._tasks.spawn(self._init(c.partition, tenure), f"fence-{c.partition}")

    def _writer(self, p: int, attempt: int) -> FencedWriter:
        s = self.settings

        def written(serial: int, offset: int) -> None:
            if serial == CLAIM_SERIAL:
                self._claimed(p, attempt, offset)
            elif serial == PROOF_SERIAL:
                self.tenures[p].proved()
                self._drain()
            elif serial == RENEWAL_SERIAL:
                self.tenures[p].claims(offset)
            else:
                self.service.owners[p].committed(attempt, serial, now())
                self._drain()

        def failed(why: WriteLost) -> None:
            self._failed(p, attempt, why)

        how = (s.write_timeout_s, self._tasks, written, failed, s.batch_bytes, self._append_took)
        return FencedWriter(self.cluster, self.appender, s.topic, p, *how)

    def _renew(self, c: Renew) -> None:
        p, tenure, owner = c.partition, self.tenures[c.partition], self.service.owners[c.partition]

        def go_on(appends: list[Append]) -> None:
            for append in appends:
                self._append(append)
            self._drain()

        ports = RenewalPorts(
            current=lambda: self.tenures.get(p) is tenure,
            writer=lambda: self._writer(p, c.attempt),
            claim=lambda writer: self._claim_of(p, writer, RENEWED),
            go_on=go_on,
            failed=lambda why: self._failed(p, c.attempt, why),
        )
        self._tasks.spawn(renew(c, tenure, owner, self._codec, self._state, ports), f"renew-{p}")

    async def _init(self, p: int, tenure: Tenure) -> None:
        await self._turns.comes(p)
        try:
            await tenure.writer.init()
        except WriteLost as exc:
            self._failed(p, tenure.attempt, exc)
            return
        if self.tenures.get(p) is not tenure:
            return  # the attempt is over; a later one may count its revisions already
        self._state.revisions[p] = {}
        tenure.encoder = Encoder(self._codec, tenure.writer.owner_epoch, self._state.revisions[p])
        self.service.owners[p].fenced(tenure.attempt, tenure.writer.owner_epoch, now())
        self._drain()

    def _claim(self, c: Claim) -> None:
        tenure = self.tenures[c.partition]
        tenure.claim = self._claim_of(c.partition, tenure.writer, c.why)
        tenure.writer.append(tenure.claim, CLAIM_SERIAL)

    def _claim_of(self, p: int, writer: FencedWriter, why: str) -> list[Encoded]:
        where = (self._codec, self._state.partitions[p], self.settings, self.assignment)
        return claim_of(*where, writer.owner_epoch, why)

    def _claimed(self, p: int, attempt: int, offset: int) -> None:
        if offset < 0:
            self._failed(p, attempt, WriteLost("the broker does not say where the claim is"))
        else:
            self._state.wrote(p, self.tenures[p].writer.claim_at, self.tenures[p].claim)
            self.service.owners[p].claimed(attempt, offset, now())
            self._drain()

    def _follow(self, c: Follow) -> None:
        self._tasks.spawn(self._wait_past(c), f"follow-{c.partition}")

    async def _wait_past(self, c: Follow) -> None:
        try:
            async with asyncio.timeout(REPLAY_S):
                await self._state.wait_past(c.partition, c.offset)
        except TimeoutError:
            self._failed(c.partition, c.attempt, WriteLost(f"the own claim has not been read back for {REPLAY_S:g} s"))
            return
        if self._still_mine(c.partition):
            self.service.owners[c.partition].replayed(c.attempt, now())
        self._drain()

    def claim_read(self, p: int) -> None:
        """By another sidecar, although the fence of this one may still hold: the brokers forget fences."""
        if self.service.owners[p].phase is Phase.SERVING:
            self._still_mine(p)

    def _still_mine(self, p: int) -> bool:
        """Once the own claim has been read: whether it is the last one."""
        tenure, last = self.tenures.get(p), self._state.partitions[p].owners.claimed
        if tenure is None or last in tenure.epochs:
            return True
        self._failed(p, tenure.attempt, Fenced(f"{self.settings.topic}-{p}: claimed by owner epoch {last}"))
        return False

    def _failed(self, p: int, attempt: int, why: WriteLost) -> None:
        self.service.owners[p].failed(attempt, str(why), isinstance(why, Fenced), now())
        self._drain()

    def _stop_tenure(self, c: Stop) -> None:
        tenure = self.tenures.get(c.partition)
        if tenure is not None and tenure.attempt == c.attempt:
            del self.tenures[c.partition]
            tenure.stop()
            self._turns.ends(c.partition)
        self.placeholders.stopped(c.partition)
        self.moves.stopped(c.partition)

    # ---- serving ------------------------------------------------------------------------------------------
    def _append(self, c: Append) -> None:
        tenure = self.tenures.get(c.partition)
        if tenure is not None and tenure.attempt == c.attempt and tenure.encoder is not None:
            if tenure.renewing:
                tenure.later.append(c)
            else:
                tenure.writer.append(tenure.encoder.encode(c.records, wall_ms()), c.serial)

    def _work(self, c: Work) -> None:
        if isinstance(c.item, RunAssignor):
            self._run_assignor(c, c.item)
        elif isinstance(c.item, ResolveRegex):
            self._visible.resolve(c, c.item, lambda: self.service.owners[c.partition].image)
        elif isinstance(c.item, LookFirst):
            self.fresh.look_first(c.item, partial(self._done, c.partition, c.attempt))
        else:
            raise TypeError(f"no background work is called {type(c.item).__name__}")

    def _done(self, partition: int, attempt: int, event: Event) -> None:
        self.service.owners[partition].done(attempt, event, now())
        self._drain()

    def _run_assignor(self, c: Work, ask: RunAssignor) -> None:
        encoder, assignor = self.tenures[c.partition].encoder, self.assignors.get(ask.input.assignor)
        work, done = assigning(ask.input, assignor, encoder, lambda event: self._done(c.partition, c.attempt, event))
        self._background.submit(f"assignor {ask.input.assignor}", work, done, self._configs.assignor_timeout_s)

    def _ask_access(self, token: int, topics: frozenset[str]) -> bool:
        """On the connection of this request. Returns whether its front is there."""
        front = self._fronts.get(token & FRONT_MASK)
        if front is None:
            return False
        front.from_coordinator(AskAccess(token >> FRONT_BITS, topics))
        return True

    async def append_unfenced(self, partition: int, records: list[Encoded]) -> None:
        """Settings: records that any sidecar may write. Returns when the tail has passed them; raises WriteLost."""
        s = self.settings
        await append_unfenced(self.cluster, self.appender, self._state, s.topic, partition, records, s.write_timeout_s)

    # ---- what the owners' group says ------------------------------------------------------------------------
    def owners_assigned(self, a: Assignment) -> None:
        self.assignment = a
        self.moves.rules.peers(a.patterns)
        self.service.assigned(a.owners, a.generation, a.members, now())
        self._drain()

    def owners_lost(self, why: str) -> None:
        self._broadcast(Lease(0))
        self.service.lost(why)
        self._drain()

    def leased(self) -> bool:
        return self.service.all_leased(now())

    def lease_proved(self, until: Now) -> None:
        self.service.lease(until.mono_ms, until.wall_ms)
        self._broadcast(Lease(*self.service.lease_until))

    # ---- time, topics, settings -----------------------------------------------------------------------------
    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(self.service.rest_s(now(), TICK_S))
            for key in self._background.write_off():
                self._log.error("a background run hangs; another thread takes its place", run=key)
            self.service.wake(now())
            self.placeholders.tick()
            self.moves.tick()
            self._drain()

    def pin_state_topic(self, topic_id: bytes) -> None:
        """Records go into this one, and not into another of its name."""
        self.appender.pinned[self.settings.topic] = topic_id

    def topics(self, topics: tuple[Topic, ...]) -> None:
        self.service.topics(topics, now())
        self._drain()

    def config_changed(self) -> None:
        self.service.config_changed(now(), self._configs.fences_kept_ms)
        self._drain()

    def setting_stored(self, group_id: str, name: str) -> None:  # in the state topic; "" stands for brokers
        self._configs.changed(group_id)
        self.config_changed()
        self.moves.stored(group_id, name)

    def state_read(self) -> None:  # to its end, for the first time
        self.moves.begin()

    # ---- ending -------------------------------------------------------------------------------------------
    async def stop(self) -> None:
        """Let the writers finish what they have, then send every client on."""
        self.service.stopping = True
        until = time.monotonic() + 1.0
        while any(t.writer.busy for t in self.tenures.values()) and time.monotonic() < until:
            await asyncio.sleep(0.01)
        self.service.release_all("stopping")
        self._drain()

    async def give_up_placeholders(self) -> None:
        """There is no other sidecar: leave the groups as the brokers' own."""
        await self.placeholders.free({p: list(part.groups) for p, part in enumerate(self._state.partitions)})
