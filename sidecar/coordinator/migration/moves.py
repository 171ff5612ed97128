"""Groups move between the brokers and the sidecars while their members live (docs/decisions.md, Moves).

managed_groups.py says which groups are wanted here. The owner of a group brings that about:

**Taking in.** The first request of a group that has no records here waits until its broker has been asked. A group
that has members there is taken in if it is stable: it is written down here as the broker describes it, and then its
members are removed from the broker's group. One that is not stable is left to the broker until it is (`later`).
**Giving back.** The members of a group that is not wanted any more give up what they own (core, `Drain`). When the
group has no members and its placeholder has left the broker's group, its records go; with the last of them it is the
broker's.

A takeover in the middle needs no memory: a group with records that is not wanted is given back, and a member of the
broker's group that is a member here was taken in, and is removed there.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field

from sidecar.coordinator.clock import now
from sidecar.coordinator.migration.adoption import adoption, obstacle
from sidecar.coordinator.migration.forced_rebalance import Forced
from sidecar.coordinator.migration.managed_groups import Rules
from sidecar.core.classic.events import JoinGroup
from sidecar.core.classic.group import ClassicGroup
from sidecar.core.modern.events import MemberHeartbeat
from sidecar.core.runtime.events import Answer, DeleteGroup, Drain, DrainReply, Event
from sidecar.core.runtime.phases import Phase
from sidecar.core.runtime.registry import Group
from sidecar.core.runtime.service import Service
from sidecar.core.vocabulary import group_config as cf
from sidecar.core.vocabulary.cache import BoundedCache
from sidecar.core.vocabulary.errors import TEXT, Code, name_of
from sidecar.kafka import native
from sidecar.kafka.cluster import Cluster, ConnectionLost
from sidecar.kafka.lanes import Lane
from sidecar.kafka.native import Native
from sidecar.link.messages import Reply, ToFront
from sidecar.link.ports import Figures, Logger, Tasks
from sidecar.wire.primitives import WireError

"""The connection to each broker over which groups are described."""
ANSWER_S = 5.0
PAUSE_S, PAUSE_MAX_S = 0.05, 2.0
SAY_AGAIN_MS = 5_000
TROUBLE = (ConnectionLost, TimeoutError, WireError)
COORDINATORS_OWN = (1 << 16) - 1
"""In the place of a front's number: this coordinator asks itself."""


@dataclass(frozen=True)
class MoveSettings:
    """`settle_s`: so long after a change every sidecar has heard of it; `hold_s`: how long a request waits while its
    group is taken in; `limit_s`: how long a group is waited for that is not stable; `at_once`: groups that are given
    back at the same time."""

    settle_s: float = 0.5
    hold_s: float = 5.0
    limit_s: float = 300.0
    look_s: float = 0.5
    at_once: int = 100
    parked_max: int = 100_000


@dataclass(frozen=True)
class MovePorts:
    """What the coordinator gives. `answer(token, answer)`; `drain()` carries out what the core wants done;
    `store(group, values, why)` writes settings; `seat_given_up(group)`: no placeholder is left there;
    `vacate(group)`: the group is not here, and a placeholder that is still there goes; `tell(rules)` tells all
    fronts."""

    leader_of: Callable[[int], int]
    answer: Callable[[int, Answer], None]
    drain: Callable[[], None]
    store: Callable[[str, dict[str, str | None], str], Awaitable[None]]
    seat_given_up: Callable[[str], bool]
    vacate: Callable[[str], None]
    tell: Callable[[], None]


@dataclass(slots=True)
class _Parked:
    token: int
    event: Event
    until_s: float


@dataclass(slots=True)
class _Intake:
    """A group whose broker is being asked."""

    parked: list[_Parked] = field(default_factory=list)
    settled: bool = False
    """Its requests need no further look, though it may not be remembered."""


class Moves:
    def __init__(
        self,
        settings: MoveSettings,
        rules: Rules,
        service: Service,
        cluster: Cluster,
        ports: MovePorts,
        figures: Figures,
        log: Logger,
        tasks: Tasks,
    ) -> None:
        self.rules = rules
        self._settings = settings
        self._service = service
        self._cluster = cluster
        self._ports = ports
        self._figures = figures
        self._log = log
        self._tasks = tasks
        self._settled: BoundedCache[str, bool] = BoundedCache()
        """Groups whose requests need no look: they are wanted, and here, or nobody is at the broker."""
        self._intakes: dict[str, _Intake] = {}
        self._early: list[_Parked] = []
        """Requests that came before the state topic was read to its end."""
        self._taking: dict[int, list[_Parked]] = {}
        """By partition: requests that came while it was being taken over, or while no lease on it was proved."""
        self._leaving: set[str] = set()
        self._watched: set[str] = set()
        self._first_try_s: dict[str, float] = {}
        self._sent_away: set[str] = set()
        self._asked: dict[int, asyncio.Future[Answer]] = {}
        self._last = 0
        self._said_ms = -SAY_AGAIN_MS
        self.forced = Forced(rules, self._arrived, self.ask, ports.store, log, tasks)
        figures("patterns_differ").set_function(lambda: len(rules.differing()))
        figures("groups_leaving").set_function(lambda: len(self.rules.kept))

    # ---- requests -----------------------------------------------------------------------------------------
    def request(self, token: int, event: Event) -> None:
        """Of a client. It goes on to the core, waits, or is refused."""
        group_id = event.group_id
        if group_id in self._settled or not group_id:
            self._service.request(token, event, now())
        elif not self.rules.ready:
            self._park(self._early, token, event)
        else:
            self._look_at(token, event)

    def _look_at(self, token: int, event: Event) -> None:
        group_id = event.group_id
        owner = self._service.owner_of(group_id)
        if owner.shard is None or not self._service.leased(owner.partition, now()):
            # Whether the group is here will be known when the partition is. The core's own waiting rooms would let
            # the request past the questions that are asked below.
            hold_ms = self._service.settings.hold_ms
            if owner.phase is Phase.ELSEWHERE or not hold_ms:
                self._service.request(token, event, now())
            else:
                self._park(self._taking.setdefault(owner.partition, []), token, event, hold_ms / 1000)
            return
        here = owner.has(group_id)
        if self.rules.wanted(group_id):
            if here and group_id not in self._intakes:
                self._settled[group_id] = True
                self._service.request(token, event, now())
            else:
                self._park(self._intake(group_id).parked, token, event)
        elif here and (not _joins(event) or _returns(event, owner.shard.groups.get(group_id))):
            self._service.request(token, event, now())
        else:
            self._refuse(token, event, Code.NOT_COORDINATOR)

    @property
    def waiting(self) -> int:
        """Requests that have not got to the core yet."""
        parked = [i.parked for i in self._intakes.values()]
        return sum(map(len, (self._early, *self._taking.values(), *parked)))

    def _park(self, where: list[_Parked], token: int, event: Event, hold_s: float | None = None) -> None:
        if len(where) >= self._settings.parked_max:
            self._refuse(token, event, Code.COORDINATOR_NOT_AVAILABLE)
        else:
            until_s = time.monotonic() + (self._settings.hold_s if hold_s is None else hold_s)
            where.append(_Parked(token, event, until_s))

    def _refuse(self, token: int, event: Event, code: Code) -> None:
        self._ports.answer(token, event.refused(code, TEXT[code]))

    def _go_on(self, parked: list[_Parked]) -> None:
        waiting, parked[:] = list(parked), []
        for p in waiting:
            self.request(p.token, p.event)

    # ---- what the state topic says ------------------------------------------------------------------------
    def begin(self) -> None:
        """It has been read to its end."""
        self.rules.begin()
        self.forced.begin()
        self._ports.tell()
        self._go_on(self._early)
        self._ports.drain()

    def stored(self, group_id: str, name: str) -> None:
        """This setting stands there, or is gone from there."""
        if self.rules.stored(group_id, name):
            if group_id:
                self._settled.forget(group_id)
            else:
                self._settled.clear()
            if self.rules.ready:
                self.rules.dirty = False
                self._ports.tell()
                if group_id and self._mine(group_id):
                    self._consider(group_id)
        elif group_id and name == cf.REBALANCE and self.rules.ready:
            self.forced.stored(group_id)

    def took_over(self, partition: int) -> None:
        """The partition is served here now."""
        self._go_on(self._taking.pop(partition, []))
        for group_id in self.rules.unwanted_in(partition):
            self._vacate(group_id)

    def stopped(self, partition: int) -> None:
        """The partition is not served here any more, or is taken over once more."""
        self._settled.clear()
        if self._service.owners[partition].phase is Phase.ELSEWHERE:
            for p in self._taking.pop(partition, []):
                self._refuse(p.token, p.event, Code.NOT_COORDINATOR)

    def _mine(self, group_id: str) -> bool:
        return self._serves(self._service.partition_of(group_id))

    def _serves(self, partition: int) -> bool:
        return self._service.owners[partition].shard is not None and self._service.leased(partition, now())

    def _arrived(self, group_id: str) -> bool:
        """Served here, and not just being taken in."""
        return self._mine(group_id) and group_id not in self._intakes

    # ---- the core, asked by the coordinator itself ----------------------------------------------------------
    async def ask(self, event: Event) -> Answer:
        """The answer comes when all is committed that was written for it."""
        self._last = key = self._last + 1
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._asked[key] = future
        self._service.request(key << 16 | COORDINATORS_OWN, event, now())
        self._ports.drain()
        return await future

    def from_coordinator(self, message: ToFront) -> None:
        """As a front hears it."""
        if isinstance(message, Reply):
            future = self._asked.pop(message.token, None)
            if future is not None and not future.done():
                future.set_result(message.answer)

    # ---- time ---------------------------------------------------------------------------------------------
    def tick(self) -> None:
        """Every 50 ms or so."""
        self.rules.tick()
        if self.rules.dirty and self.rules.ready:
            self.rules.dirty = False
            self._ports.tell()
        at_s = time.monotonic()
        for p in [p for p in self._taking if self._serves(p)]:
            self._go_on(self._taking.pop(p))
        for waiting in (self._early, *self._taking.values(), *(i.parked for i in self._intakes.values())):
            self._expire(waiting, at_s)
        if self.rules.ready:
            self.forced.tick()
            self._look_after(at_s)

    def _expire(self, parked: list[_Parked], at_s: float) -> None:
        late = [p for p in parked if p.until_s <= at_s]
        if late:
            parked[:] = [p for p in parked if p.until_s > at_s]
            for p in late:
                # As at a broker, a heartbeat of a classic member is told that all is well while its group is loaded: so
                # only who has a lease may say so.
                leased = self._service.leased(self._service.partition_of(p.event.group_id), now())
                self._refuse(p.token, p.event, Code.COORDINATOR_LOAD_IN_PROGRESS if leased else Code.NOT_COORDINATOR)

    def _look_after(self, at_s: float) -> None:
        for group_id in self.rules.kept:
            if len(self._leaving) >= self._settings.at_once:
                break
            if group_id not in self._leaving and self._mine(group_id):
                self._leaving.add(group_id)
                self._tasks.spawn(self._leave(group_id), "group leaves")
        for group_id in self.rules.later:
            if group_id not in self._watched and self._mine(group_id):
                self._watched.add(group_id)
                self._tasks.spawn(self._watch(group_id), "group not stable")

    # ---- giving back --------------------------------------------------------------------------------------
    async def _leave(self, group_id: str) -> None:
        try:
            await self._give_back(group_id)
        finally:
            self._leaving.discard(group_id)

    async def _give_back(self, group_id: str) -> None:
        began_s = time.monotonic()
        why = self.rules.why(group_id) or "the patterns leave it to the broker"
        while not self.rules.wanted(group_id):
            reply = await self.ask(Drain(group_id, f"goes back to the broker: {why}"))
            if not isinstance(reply, DrainReply) or reply.code != Code.NONE:
                return  # it is gone, or another sidecar goes on
            if reply.members == 0 and self._ports.seat_given_up(group_id):
                gone = await self.ask(DeleteGroup(group_id))
                if gone.code == Code.NONE:
                    seconds = round(time.monotonic() - began_s, 3)
                    self._log.info("group given back to the broker", group_id=group_id, seconds=seconds, why=why)
                    self._figures("moves", "broker", "done").inc()
                    return
            await asyncio.sleep(PAUSE_S)
        await self.ask(Drain(group_id, "stays with the sidecars", stop=True))

    # ---- taking in ----------------------------------------------------------------------------------------
    def _consider(self, group_id: str) -> None:
        """It was just said where the group is to be."""
        if not self.rules.wanted(group_id):
            self._vacate(group_id)
        elif not self._service.owner_of(group_id).has(group_id):
            self._intake(group_id)

    def _vacate(self, group_id: str) -> None:
        """The group is the broker's at once if nothing of it is here; but an owner that was cut off while it took the
        group in may have left its placeholder there, and the broker lets nobody join beside that."""
        if not self._service.owner_of(group_id).has(group_id):
            self._ports.vacate(group_id)

    def _intake(self, group_id: str) -> _Intake:
        found = self._intakes.get(group_id)
        if found is None:
            found = self._intakes[group_id] = _Intake()
            self._tasks.spawn(self._take_in(group_id), "group comes")
        return found

    async def _take_in(self, group_id: str) -> None:
        intake = self._intakes[group_id]
        pause_s = PAUSE_S
        try:
            while self._mine(group_id) and self.rules.wanted(group_id):
                wait_s = self._settings.settle_s - self.rules.in_force_s(group_id)
                if wait_s > 0:
                    await asyncio.sleep(wait_s)
                    continue
                try:
                    found = await self._described(group_id)
                    await self._decide(group_id, found)
                    break
                except TROUBLE as exc:
                    self._not_told(group_id, str(exc) or "timed out", again=pause_s == PAUSE_MAX_S)
                    await asyncio.sleep(pause_s)
                    pause_s = min(2 * pause_s, PAUSE_MAX_S)
        finally:
            del self._intakes[group_id]
        if intake.settled:
            for p in intake.parked:
                self._service.request(p.token, p.event, now())
        else:
            self._go_on(intake.parked)
        self._ports.drain()

    def _settle(self, group_id: str) -> None:
        self._settled[group_id] = True
        self._intakes[group_id].settled = True

    def _not_told(self, group_id: str, problem: str, again: bool) -> None:
        """Members wait for it. `again`: for some seconds already, and somebody has to hear of it."""
        if not again or now().mono_ms - self._said_ms < SAY_AGAIN_MS:
            self._log.debug("the broker does not tell of a group", group_id=group_id, problem=problem)
            return
        self._said_ms, waiting = now().mono_ms, len(self._intakes)
        self._log.warning("the broker does not tell of a group", group_id=group_id, groups=waiting, problem=problem)

    async def _described(self, group_id: str) -> Native:
        node_id = self._ports.leader_of(self._service.partition_of(group_id))
        if node_id < 0:
            raise ConnectionLost("no leader of the offsets is known")
        return await native.describe(await self._cluster.lane(node_id, Lane.MOVES), group_id, ANSWER_S)

    async def _decide(self, group_id: str, found: Native) -> None:
        if not self._mine(group_id) or not self.rules.wanted(group_id):
            return
        problem = obstacle(found)
        if found.kind == native.NOBODY or (found.kind == native.OTHER and self.rules.matches(group_id)):
            # Of a share or streams group that the patterns match, api/one_name.py keeps members of ours away.
            self._first_try_s.pop(group_id, None)
            self._settle(group_id)
        elif found.kind == native.OTHER or problem:
            await self._give_up(group_id, problem or "it is a share or streams group")
        elif not found.stable:
            self._first_try_s.setdefault(group_id, time.monotonic())
            await self._judge(group_id, cf.LATER, f"it is {found.state} at the broker: taken in when it is stable")
        elif not self._knows(group_id, found.topics):
            raise ConnectionLost("topics that it owns are not known here yet")
        else:
            await self._adopt(group_id, found)

    def _knows(self, group_id: str, topics: Collection[bytes]) -> bool:
        shard = self._service.owner_of(group_id).shard
        return shard is not None and all(t in shard.image.by_id for t in topics)

    async def _adopt(self, group_id: str, found: Native) -> None:
        why = self.rules.why(group_id) or "the patterns name it"
        reply = await self.ask(adoption(group_id, found, f"taken over from the broker: {why}"))
        if reply.code not in (Code.NONE, Code.NON_EMPTY_GROUP):
            raise ConnectionLost(f"not taken in: {name_of(reply.code)}")
        await self._send_away(group_id, found)
        self._first_try_s.pop(group_id, None)
        self._settle(group_id)
        self._figures("moves", "sidecar", "done").inc()

    async def _send_away(self, group_id: str, found: Native) -> None:
        """From the broker's group: those who are members here."""
        shard = self._service.owner_of(group_id).shard
        group = None if shard is None else shard.groups.get(group_id)
        if group is None:
            return
        here = group.member_ids()
        members = [m for m in found.members if m.member_id in here]
        if members:
            node_id = self._ports.leader_of(self._service.partition_of(group_id))
            conn = await self._cluster.lane(node_id, Lane.MOVES)
            await native.send_away(conn, group_id, members, "the group is taken over by the sidecars", ANSWER_S)

    def strangers(self, group_id: str) -> None:
        """The placeholder finds others in the broker's group. Those that were taken in are removed there."""
        if group_id not in self._sent_away and group_id not in self._intakes and self._mine(group_id):
            self._sent_away.add(group_id)
            self._tasks.spawn(self._removed(group_id), "strangers")

    async def _removed(self, group_id: str) -> None:
        try:
            await self._send_away(group_id, await self._described(group_id))
        except TROUBLE as exc:
            self._log.debug("members stay at the broker", group_id=group_id, problem=str(exc) or "timed out")
        finally:
            self._sent_away.discard(group_id)

    # ---- groups that are not stable -------------------------------------------------------------------------
    async def _watch(self, group_id: str) -> None:
        """Until the broker's group is stable, or it has been waited for long enough."""
        first_s = self._first_try_s.setdefault(group_id, time.monotonic())
        try:
            while self._waits(group_id):
                await asyncio.sleep(self._settings.look_s)
                try:
                    found = await self._described(group_id)
                    if not self._waits(group_id):
                        break  # what was said while the broker was asked counts
                    if time.monotonic() - first_s > self._settings.limit_s:
                        await self._give_up(group_id, f"it does not become stable at the broker: {found.state}")
                    elif found.kind in (native.NOBODY, native.OTHER) or found.stable:
                        await self._comes(group_id)
                except TROUBLE as exc:
                    self._log.debug("a group is waited for", group_id=group_id, problem=str(exc) or "timed out")
        finally:
            self._watched.discard(group_id)
            if not self._waits(group_id):
                self._first_try_s.pop(group_id, None)

    def _waits(self, group_id: str) -> bool:
        return self._mine(group_id) and self.rules.overrides.get(group_id) == cf.LATER

    async def _give_up(self, group_id: str, problem: str) -> None:
        self._first_try_s.pop(group_id, None)
        self._log.error("group not taken in", group_id=group_id, problem=problem)
        self._figures("moves", "sidecar", "given up").inc()
        await self._judge(group_id, "false", f"not taken in: {problem}")

    async def _judge(self, group_id: str, word: str, why: str) -> None:
        """About the order that is known now; of one that is under way, this will say nothing."""
        await self._ports.store(group_id, {cf.VERDICT: self.rules.verdict(group_id, word)}, why)

    async def _comes(self, group_id: str) -> None:
        """It need not be waited for any more. An older sidecar has written in the place of the order."""
        name, value = cf.VERDICT, None
        if self.rules.value(group_id, cf.MANAGED) == cf.LATER:
            name, value = cf.MANAGED, None if self.rules.matches(group_id) else "true"
        await self._ports.store(group_id, {name: value}, "it is stable at the broker now")


def _joins(event: Event) -> bool:
    """Whether somebody wants to become a member."""
    if isinstance(event, JoinGroup):
        return not event.member_id
    return isinstance(event, MemberHeartbeat) and event.joins()


def _returns(event: Event, group: Group | None) -> bool:
    """Whether it is a static member that was started again: the others wait for it. One of the consumer protocol has
    said that it leaves for a while, and nobody waits."""
    return isinstance(event, JoinGroup) and isinstance(group, ClassicGroup) and event.instance_id in group.static
