"""The placeholder of each managed group that has members: a member of the broker's group of the same name.

What it is for (docs/decisions.md, Placeholder members): a group with a member is not empty, so the broker lets none
of its offsets expire; and a commit goes on in the placeholder's name, so the broker itself refuses the commits of a
former owner, however late they come.

**A seat may be used only after a fenced write that was begun when the broker had answered its JoinGroup.** If that
write is committed, nobody had taken the partition over before; whoever does so later joins later, and so takes the
seat. And a new owner answers no fetch and no commit of a group with members before it has looked at the seat: so
nothing that an older owner let pass can land behind what the new one has shown or taken.

broker_membership.py talks to the brokers. Here is what is wanted, who waits for it, and what an answer of the broker
means.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as copy_of
from zlib import crc32

from msgspec.structs import replace

from sidecar.coordinator.clock import now
from sidecar.coordinator.placeholder.broker_membership import STRANGERS, TROUBLE, Chair, Seating
from sidecar.coordinator.placeholder.inflight_commits import UnderWay
from sidecar.core.runtime.events import Answer, Event
from sidecar.core.runtime.offset_checks import CheckReply, CommitCheck, FetchCheck, Seat
from sidecar.core.vocabulary.cache import BoundedCache
from sidecar.core.vocabulary.errors import TEXT, Code, name_of
from sidecar.kafka.cluster import Cluster
from sidecar.link.messages import OpenOffsets
from sidecar.link.ports import Figures, Logger, Tasks

PAUSE_MS, PAUSE_MAX_MS = 50, 2_000
"""After trouble: doubled each time, up to the second."""
PATIENCE_MS = 200
"""The longest pause while commits wait, or two for each group whose commits do: when a broker has died, its successors
load for a moment, and nobody is to wait for more than that."""
HEARTBEATS = 3
"""In the time of one session."""
BEAT_TICK_S = 1.0
BEATS_AT_ONCE = 100
LOST_SIGHT_MS = 15_000
"""A commit that is still under way then is in doubt, whatever its front waits for."""
FREE_S = 5.0
SAY_AGAIN_MS = 5_000
OPEN_MS = 5_000
"""How long the broker can read a subscription that was shown to it for the sake of one OffsetDelete."""


UNSEATED = (
    Code.UNKNOWN_MEMBER_ID,
    Code.FENCED_INSTANCE_ID,
    Code.ILLEGAL_GENERATION,
    Code.REBALANCE_IN_PROGRESS,
)
"""The broker knows no such member, or not so."""


Waits = CommitCheck | FetchCheck | OpenOffsets


@dataclass(frozen=True)
class PlaceholderSettings:
    """`wait_ms`: how long a commit waits, for a takeover and then for its placeholder; `first_joins`: JoinGroups that
    wait at one broker."""

    session_timeout_ms: int = 300_000
    wait_ms: int = 5_000
    first_joins: int = 200
    parked_max: int = 100_000


@dataclass(frozen=True)
class PlaceholderPorts:
    """What the coordinator gives. `prove(partition, then)`: `then` is called when a fenced write that begins now is
    committed; `again(token, event)`: ask the core anew; `answer(token, answer)`: this is the answer;
    `strangers(group)`: others are members of the broker's group."""

    leased: Callable[[int], bool]
    leader_of: Callable[[int], int]
    partition_of: Callable[[str], int]
    managed: Callable[[str], bool]
    prove: Callable[[int, Callable[[], None]], None]
    again: Callable[[int, CommitCheck | FetchCheck], None]
    answer: Callable[[int, Answer], None]
    strangers: Callable[[str], None] = lambda group_id: None


@dataclass(slots=True)
class _Parked:
    token: int
    event: Waits
    until_ms: int
    reply: CheckReply | None = None
    """Its seat is there; it only waits for commits that were let pass before."""
    behind: frozenset[int] = frozenset()


@dataclass(slots=True, eq=False)
class _Group(Chair):
    parked: list[_Parked] = field(default_factory=list)
    beat_ms: int = 0
    """When to prove that it lives."""
    open_until_ms: int = 0
    """Until when the broker may read its subscription."""

    def ready_for(self, event: Event) -> bool:
        """Nothing has to be waited for any more."""
        if self.gone:
            return True
        if isinstance(event, FetchCheck):
            return self.settled or not self.wanted
        if not self.wanted:
            return self.there == ""
        if isinstance(event, OpenOffsets):
            return self.final and self.shown == self.topics
        return self.seat is not None


class Placeholders:
    def __init__(
        self,
        settings: PlaceholderSettings,
        cluster: Cluster,
        ports: PlaceholderPorts,
        figures: Figures,
        log: Logger,
        tasks: Tasks,
    ) -> None:
        self._settings = settings
        self._ports = ports
        self._figures = figures
        self._log = log
        self._groups: dict[str, _Group] = {}
        self._generations: BoundedCache[str, int] = BoundedCache()
        """Of groups whose seat was given up: what the broker's group had come to."""
        self._under_way = UnderWay()
        self._parked: set[_Group] = set()
        self._waiting = 0
        self._seating = Seating(cluster, self, settings.session_timeout_ms, settings.first_joins, log, tasks)
        self._said_ms = -SAY_AGAIN_MS
        figures("placeholders_wanted").set_function(lambda: sum(g.wanted for g in self._groups.values()))
        figures("placeholders_seated").set_function(lambda: sum(g.final for g in self._groups.values()))
        tasks.spawn(self._beat(), "placeholders")

    # ---- what the core says -------------------------------------------------------------------------------
    def occupied(self, group_id: str, members: bool) -> None:
        """The group has members now, or has none: then a seat that a former owner may have left there is given up."""
        wanted = members and self._ports.managed(group_id)
        group = self._groups.get(group_id)
        if group is None:
            group = self._add(group_id, wanted)
        elif group.wanted != wanted:
            group.wanted, group.since_ms = wanted, now().mono_ms
            group.topics, group.open_until_ms = None, 0
            if not wanted:
                group.seat, group.joining, group.final, group.renew = None, None, False, False
        self._look_after(group)
        self._wake(group)

    def stopped(self, partition: int) -> None:
        """The state of this partition is forgotten."""
        for group in [g for g in self._groups.values() if g.partition == partition]:
            group.gone = True
            del self._groups[group.group_id]
            self._under_way.forget(group.group_id)
            self._wake(group)

    def _add(self, group_id: str, wanted: bool) -> _Group:
        partition = self._ports.partition_of(group_id)
        group = self._groups[group_id] = _Group(group_id, partition, wanted, now().mono_ms)
        group.generation = self._generations.get(group_id, 0)
        self._generations.forget(group_id)
        return group

    def _forget(self, group: _Group) -> None:
        del self._groups[group.group_id]
        self._under_way.forget(group.group_id)
        if group.generation:
            self._generations[group.group_id] = group.generation

    # ---- what waits for a seat ----------------------------------------------------------------------------
    def checked(self, token: int, event: CommitCheck | FetchCheck, reply: CheckReply, front: int) -> CheckReply | None:
        """The core has no objection. Returns its answer with the seat in it, or None: it must wait for the seat, and
        then the core is asked again; or for commits of others, and then it is answered."""
        group = self._groups.get(event.group_id)
        if isinstance(event, CommitCheck) and event.again:
            group = self._refused(group, event)
            event = replace(event, again=False, sent_as=None)
        if group is None:
            return reply
        if not group.ready_for(event):
            self._park(group, token, event)
            return None
        if not group.wanted:
            return reply
        if isinstance(event, FetchCheck):
            behind = self._under_way.before_fetch(event.group_id, event.member_id)
        else:
            who = (event.group_id, event.member_id, event.partitions, (front, event.connection))
            behind = self._under_way.before_commit(*who)
            reply = replace(reply, seat=group.seat, ticket=self._under_way.begin(*who, now().mono_ms))
        if behind:
            self._park(group, token, event, reply, behind)
            return None
        return reply

    def ended(self, ticket: int, sure: bool) -> None:
        """A commit is not under way any more. Not `sure`: only as far as its front can tell."""
        group_id = self._under_way.end(ticket) if sure else self._under_way.doubt(ticket)
        group = self._groups.get(group_id) if group_id is not None else None
        if group is not None:
            if not sure:
                group.renew, group.seat, group.final = True, None, False
                self._look_after(group, urgent=True)
            if group.parked:
                self._wake(group)

    def front_gone(self, front: int) -> None:
        for ticket in self._under_way.of_front(front):
            self.ended(ticket, sure=False)

    def open(self, token: int, event: OpenOffsets) -> None:
        """Offsets are to be deleted at the broker: it must see which topics are subscribed, or no member at all."""
        if not self._ports.leased(self._ports.partition_of(event.group_id)):
            self._ports.answer(token, event.refused(Code.NOT_COORDINATOR, TEXT[Code.NOT_COORDINATOR]))
            return
        group = self._groups.get(event.group_id) or self._add(event.group_id, False)
        if group.wanted:
            group.topics, group.open_until_ms = event.subscribed, now().mono_ms + OPEN_MS
        elif group.there == "":
            group.there = None  # deletion is rare, and must not fail for a seat that was left behind
        if group.ready_for(event):
            self._ports.answer(token, Answer())
        else:
            self._park(group, token, event)

    def _refused(self, group: _Group | None, event: CommitCheck) -> _Group:
        """The broker does not know the member in whose name this commit went on."""
        group = group or self._add(event.group_id, False)
        if event.sent_as is not None and event.sent_as == group.seat:
            self._lost(group, "a commit in its name was refused")
        elif event.sent_as is None and not group.wanted:
            group.there = None  # somebody is a member there; if it is a seat left behind, it is given up
        return group

    def _park(
        self,
        group: _Group,
        token: int,
        event: Waits,
        reply: CheckReply | None = None,
        behind: frozenset[int] = frozenset(),
    ) -> None:
        if self._waiting >= self._settings.parked_max:
            code = Code.COORDINATOR_NOT_AVAILABLE
            self._ports.answer(token, event.refused(code, TEXT[code]))
            return
        self._waiting += 1
        self._parked.add(group)
        if group.resting is not None and group.pause_ms > self._patience_ms:
            group.resting.cancel()
            self._rest(group)
        since_ms = now().mono_ms if isinstance(event, OpenOffsets) else event.asked_ms
        group.parked.append(_Parked(token, event, since_ms + self._settings.wait_ms, reply, behind))
        self._look_after(group, urgent=True)

    def _wake(self, group: _Group) -> None:
        """Those who need not wait any more go on; a group that nobody needs is forgotten."""
        parked, group.parked = group.parked, []
        go_on: list[_Parked] = []
        for p in parked:
            ready = group.ready_for(p.event) if p.reply is None else group.gone or not self._under_way.still(p.behind)
            (go_on if ready else group.parked).append(p)
        self._waiting -= len(go_on)
        if not group.parked:
            self._parked.discard(group)
            if not group.wanted and group.there == "" and not group.busy and self._groups.get(group.group_id) is group:
                self._forget(group)
        for p in go_on:
            if p.reply is not None:
                self._go_on(group, p, p.reply)
            elif not isinstance(p.event, OpenOffsets):
                self._ports.again(p.token, p.event)
            elif group.gone:
                self._refuse(p, Code.NOT_COORDINATOR)
            else:
                self._ports.answer(p.token, Answer())

    def _go_on(self, group: _Group, p: _Parked, reply: CheckReply) -> None:
        """What it waited for has ended; meanwhile the seat may have become another."""
        if group.gone or not self._ports.leased(group.partition):
            self._refuse(p, Code.NOT_COORDINATOR)
        elif not reply.ticket:
            self._ports.answer(p.token, reply)
        elif group.seat is None:
            assert not isinstance(p.event, OpenOffsets)
            self._under_way.end(reply.ticket)
            self._ports.again(p.token, p.event)
        else:
            self._ports.answer(p.token, replace(reply, seat=group.seat))

    def _refuse(self, p: _Parked, code: Code) -> None:
        if p.reply is not None:
            self._under_way.end(p.reply.ticket)
        self._ports.answer(p.token, p.event.refused(code, TEXT[code]))

    def tick(self) -> None:
        """Every 50 ms or so: nobody waits for ever."""
        at_ms = now().mono_ms
        for group in list(self._parked):
            late = [p for p in group.parked if p.until_ms <= at_ms]
            if late:
                group.parked = [p for p in group.parked if p.until_ms > at_ms]
                self._waiting -= len(late)
                for p in late:
                    self._refuse(p, Code.COORDINATOR_LOAD_IN_PROGRESS)
                self._wake(group)

    # ---- what the brokers say (broker_membership.py) -----------------------------------------------------------------
    def leased(self, partition: int) -> bool:
        return self._ports.leased(partition)

    def leader_of(self, partition: int) -> int:
        return self._ports.leader_of(partition)

    def taken(self, chair: Chair, seat: Seat, final: bool) -> None:
        chair.joining = seat
        self._ports.prove(chair.partition, lambda: self._proved(chair, seat, final))

    def _proved(self, chair: Chair, seat: Seat, final: bool) -> None:
        """Nobody had taken the partition over when the broker answered: the seat may be used."""
        assert isinstance(chair, _Group)
        if chair.gone or chair.joining is not seat:
            return
        chair.joining = None
        if chair.wanted:
            ms = now().mono_ms
            if chair.seat is None:
                self._figures("placeholder_seconds").observe((ms - chair.since_ms) / 1000)
            chair.seat, chair.final = seat, final
            if not chair.renew:
                self._under_way.cleared(chair.group_id)
            if final:
                chair.generation = seat.generation + 1  # what the broker makes of it when the seat is given up
                chair.beat_ms = ms + self._spread_ms(chair)
        self._look_after(chair)
        self._wake(chair)

    def changed(self, chair: Chair) -> None:
        assert isinstance(chair, _Group)
        self._wake(chair)

    def trouble(self, chair: Chair, problem: str) -> None:
        """Try again after a while."""
        assert isinstance(chair, _Group)
        self._figures("placeholder_troubles").inc()
        chair.problem = problem
        if chair.wanted and problem.startswith((STRANGERS, "JoinGroup")):
            self._ports.strangers(chair.group_id)
        chair.pause_ms = min(max(2 * chair.pause_ms, PAUSE_MS), PAUSE_MAX_MS)
        self._rest(chair)
        at_ms = now().mono_ms
        if chair.wanted and chair.pause_ms == PAUSE_MAX_MS and at_ms - self._said_ms >= SAY_AGAIN_MS:
            self._said_ms = at_ms
            waiting = sum(g.wanted and not g.final for g in self._groups.values())
            self._log.warning("placeholders cannot be seated", groups=waiting, group_id=chair.group_id, problem=problem)

    @property
    def _patience_ms(self) -> int:
        return max(PATIENCE_MS, 2 * len(self._parked))

    def _rest(self, group: _Group) -> None:
        pause_ms = min(group.pause_ms, self._patience_ms) if group in self._parked else group.pause_ms
        group.resting = asyncio.get_running_loop().call_later(pause_ms / 1000, self._rested, group)

    def _rested(self, group: _Group) -> None:
        group.resting = None
        self._look_after(group)

    def leaders_moved(self, before: Sequence[int], leaders: Sequence[int]) -> None:
        """What was the trouble at the former leader of a group's offsets says nothing of the new one."""
        for group in list(self._groups.values()):
            p = group.partition
            if before[p : p + 1] == leaders[p : p + 1]:
                continue
            if group.resting is not None:
                group.resting.cancel()
                group.pause_ms = 0
                self._rested(group)
            elif group.busy or group.queued:
                self._look_after(self._instead_of(group))

    def _instead_of(self, group: _Group) -> _Group:
        """The former leader may never answer: its answer concerns nobody any more, and the new one is asked. A seat of
        a JoinGroup that was held back is not known there."""
        seat = group.seat if group.final else None
        group.gone = True
        fresh = copy_of(
            group, seat=seat, joining=None, there=None, gone=False, busy=False, queued=0, pause_ms=0, problem=""
        )
        self._groups[group.group_id] = fresh
        group.parked = []
        if group in self._parked:
            self._parked.discard(group)
            self._parked.add(fresh)
        return fresh

    def waited_for(self, ms: int) -> bool:
        """Whether a commit waits for so long already: for its seat, or for the broker's answer."""
        before_ms = now().mono_ms - ms
        asked_ms = (p.until_ms - self._settings.wait_ms for g in self._parked for p in g.parked)
        return min(asked_ms, default=before_ms + 1) <= before_ms or any(self._under_way.since(before_ms))

    def _look_after(self, group: _Group, urgent: bool = False) -> None:
        if group.needs_work:
            self._seating.put(group, urgent or bool(group.parked))

    def _lost(self, group: _Group, why: str) -> None:
        """The broker does not know the seat any more. Whether the group is still ours, the proof of the next one
        will show."""
        self._log.warning("placeholder lost", group_id=group.group_id, why=why)
        self._figures("placeholders_lost").inc()
        group.seat, group.joining, group.final, group.shown = None, None, False, None
        group.since_ms = now().mono_ms
        self._look_after(group)

    @property
    def quiet(self) -> bool:
        """Nothing that was let pass is under way."""
        return not self._under_way.open

    def given_up(self, group_id: str) -> bool:
        """No seat is left in the broker's group, nor will one be taken."""
        group = self._groups.get(group_id)
        return group is None or (not group.wanted and group.there == "" and not group.busy)

    @property
    def seated(self) -> bool:
        """Everybody who is wanted has a seat, and nobody else."""
        return all(g.final if g.wanted else g.there == "" for g in self._groups.values())

    # ---- signs of life --------------------------------------------------------------------------------------
    def _interval_ms(self) -> int:
        return self._seating.session_ms // HEARTBEATS

    def _spread_ms(self, group: _Group) -> int:
        """Groups that were seated together do not beat together."""
        interval_ms = self._interval_ms()
        return interval_ms // 2 + crc32(group.group_id.encode()) % (interval_ms // 2)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_TICK_S)
            at_ms = now().mono_ms
            for ticket in list(self._under_way.since(at_ms - LOST_SIGHT_MS)):
                self.ended(ticket, sure=False)
            due = []
            for group in self._groups.values():
                if group.open_until_ms and group.open_until_ms <= at_ms:
                    group.topics, group.open_until_ms = None, 0
                    self._look_after(group)
                if group.final and group.beat_ms <= at_ms:
                    due.append(group)
            for start in range(0, len(due), BEATS_AT_ONCE):
                await asyncio.gather(*[self._prove_life(g) for g in due[start : start + BEATS_AT_ONCE]])

    async def _prove_life(self, group: _Group) -> None:
        seat = group.seat
        if seat is None or group.busy or not self._ports.leased(group.partition):
            return
        try:
            code = await self._seating.heartbeat(group, seat)
        except TROUBLE as exc:
            self._log.debug("placeholder not heard", group_id=group.group_id, problem=str(exc) or "timed out")
            return
        if code == Code.NONE:
            group.beat_ms = now().mono_ms + self._interval_ms()
        elif code in UNSEATED and group.seat is seat and not group.busy and not group.gone:
            self._lost(group, f"Heartbeat: {name_of(code)}")

    # ---- ending -------------------------------------------------------------------------------------------
    async def free(self, groups: Mapping[int, Sequence[str]]) -> None:
        """The last sidecar ends: the groups are the brokers' own again."""
        try:
            async with asyncio.timeout(FREE_S):
                freed = await self._seating.free(groups)
        except TROUBLE as exc:
            self._log.warning(
                "placeholders stay at the brokers until their sessions end",
                session_timeout_ms=self._seating.session_ms,
                problem=str(exc) or "timed out",
            )
        else:
            self._log.info("placeholders given up", groups=freed)
