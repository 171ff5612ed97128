"""Takes and gives up seats in the brokers' groups: which request goes when, over which connection. It knows no commit.

A broker answers the requests of one connection one after the other, and holds back the JoinGroup that begins a new
group (group.initial.rebalance.delay.ms, 3 s by default). So each round first looks, many groups at once: where the seat
is there already, JoinGroup is answered at once and goes over a few shared connections; where it is not, JoinGroup has a
connection to itself, and not more than `first_joins` of them wait at one broker.

While it waits, DescribeGroups tells its member id already, and the broker accepts that member's commits: so a commit
waits for milliseconds, not for three seconds (docs/decisions.md, Placeholder members).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from sidecar.core.runtime.offset_checks import Seat
from sidecar.core.vocabulary.errors import Code, name_of
from sidecar.kafka import membership as ms
from sidecar.kafka.cluster import Cluster, ConnectionLost
from sidecar.kafka.lanes import PLACEHOLDERS, Lane
from sidecar.kafka.membership import Looked
from sidecar.kafka.net import NO_ANSWER, BrokerConnection
from sidecar.link.ports import Logger, Tasks
from sidecar.wire.generated import join_group as jg

ROUND = 100
"""Groups of one look; so many requests are under way at one broker."""
ANSWER_S = 5.0
EARLY_S = 0.02
"""A JoinGroup not answered by then is held back by the broker."""
LEAST_SESSION_MS = 1_000
QUEUED, URGENT = 1, 2
STRANGERS = "the broker's group has members of its own"
T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Chair:
    """What is known of the seat in the broker's group of one managed group."""

    group_id: str
    partition: int
    wanted: bool
    since_ms: int
    """Since when it is wanted."""
    seat: Seat | None = None
    """In this name commits go on now."""
    joining: Seat | None = None
    """A seat that has been taken, but must not be used before it is proved."""
    final: bool = False
    """The broker's group is stable; before, the seat is that of a JoinGroup which the broker holds back."""
    settled: bool = False
    """No seat of an earlier owner can be used any more."""
    there: str | None = None
    """Member id at the broker; empty if there is none, None if nobody knows."""
    generation: int = 0
    """That of the broker's group while it has no members, as far as it can be guessed."""
    topics: frozenset[str] | None = None
    """The subscription that the broker should be able to read; None: none."""
    shown: frozenset[str] | None = None
    renew: bool = False
    """The seat needs another member id: what was sent in the name of the present one is to be refused."""
    gone: bool = False
    """The partition is not ours any more, or another chair stands here for the group."""
    busy: bool = False
    queued: int = 0
    """QUEUED or URGENT while it waits for its turn."""
    pause_ms: int = 0
    """How long it rests after trouble."""
    resting: asyncio.TimerHandle | None = None
    """Ends its rest."""
    problem: str = ""
    beat_ms: int = 0
    """When its next heartbeat is due."""
    open_until_ms: int = 0
    """Until when the broker may read its subscription."""

    @property
    def needs_work(self) -> bool:
        if self.gone or self.busy or self.resting is not None:
            return False
        if self.wanted:
            return self.joining is None and (not self.final or self.renew or self.shown != self.topics)
        return self.there != ""


class Told(Protocol):
    """Who decides what a change means."""

    def taken(self, chair: Chair, seat: Seat, final: bool) -> None:
        """The broker knows this member now. It must be proved before it is used."""

    def changed(self, chair: Chair) -> None:
        """It is settled, or given up."""

    def trouble(self, chair: Chair, problem: str) -> None:
        """Try again later."""


@dataclass(slots=True, eq=False)
class _Desk:
    """The work at one broker."""

    node_id: int
    urgent: deque[Chair] = field(default_factory=deque)
    queue: deque[Chair] = field(default_factory=deque)
    slow: deque[Chair] = field(default_factory=deque)
    held: int = 0
    """How many JoinGroups have a connection to themselves."""
    quick: int = 0
    """How many groups are being worked on over the shared connections."""
    room: asyncio.Event = field(default_factory=asyncio.Event)
    spare: list[BrokerConnection] = field(default_factory=list)
    running: bool = False
    turn: int = 0


class Seating:
    """`leased(partition)`: this sidecar owns it; `leader_of(partition)`: node id of the broker that keeps the offsets
    of its groups, -1 while unknown."""

    def __init__(
        self,
        cluster: Cluster,
        told: Told,
        leased: Callable[[int], bool],
        leader_of: Callable[[int], int],
        session_ms: int,
        first_joins: int,
        log: Logger,
        tasks: Tasks,
    ) -> None:
        self.session_ms = session_ms
        self._cluster = cluster
        self._told = told
        self._leased = leased
        self._leader_of = leader_of
        self._first_joins = first_joins
        self._log = log
        self._tasks = tasks
        self._desks: dict[int, _Desk] = {}

    def put(self, chair: Chair, urgent: bool) -> None:
        """Bring it about that the broker's group has what is wanted. `urgent`: a commit waits."""
        node_id = self._leader_of(chair.partition)
        if node_id < 0:
            self._told.trouble(chair, "no leader of the offsets is known")
            return
        desk = self._desks.get(node_id)
        if desk is None:
            desk = self._desks[node_id] = _Desk(node_id)
        if chair.queued < (rank := URGENT if urgent else QUEUED):
            chair.queued = rank
            (desk.urgent if urgent else desk.queue).append(chair)
        if not desk.running:
            desk.running = True
            self._tasks.spawn(self._rounds(desk), f"seats-{node_id}")

    async def heartbeat(self, chair: Chair, seat: Seat) -> int:
        """The broker's answer; raises what NO_ANSWER names."""
        node_id = self._leader_of(chair.partition)
        if node_id < 0:
            raise ConnectionLost("no leader of the offsets is known")
        desk = self._desks.setdefault(node_id, _Desk(node_id))
        return await self._ask(desk, lambda conn: ms.heartbeat(conn, chair.group_id, seat, ANSWER_S))

    async def free(self, groups: Mapping[int, Sequence[str]]) -> int:
        """At the end of the last sidecar: nobody holds a seat any more in these groups, told by their partition.
        Returns in how many the seat was there. Raises what NO_ANSWER names."""
        at: dict[int, list[Chair]] = {}
        for partition, ids in groups.items():
            chairs = at.setdefault(self._leader_of(partition), [])
            chairs += [Chair(g, partition, False, 0) for g in ids]
        return sum(await _all([self._free(_Desk(n), chairs) for n, chairs in at.items() if n >= 0]))

    async def _free(self, desk: _Desk, chairs: list[Chair]) -> int:
        freed = 0
        for start in range(0, len(chairs), ROUND):
            part = chairs[start : start + ROUND]
            found = await self._look(desk, part)
            for chair in part:
                told = found.get(chair.group_id)
                chair.there = told.member_id if told is not None else ""
            there = [c for c in part if c.there]
            await _all([self._leave(desk, c) for c in there])
            freed += len(there)
        return freed

    async def _ask(self, desk: _Desk, ask: Callable[[BrokerConnection], Awaitable[T]]) -> T:
        """Over a shared connection; one that gives no answer in time is closed, as others wait behind it."""
        conn = await self._lane(desk)
        try:
            return await ask(conn)
        except TimeoutError:
            conn.close()
            raise

    async def _lane(self, desk: _Desk) -> BrokerConnection:
        desk.turn += 1
        return await self._cluster.lane(desk.node_id, Lane.PLACEHOLDERS, desk.turn % PLACEHOLDERS)

    # ---- rounds -------------------------------------------------------------------------------------------
    async def _rounds(self, desk: _Desk) -> None:
        while desk.urgent or desk.queue:
            while desk.quick >= ROUND:
                desk.room.clear()
                await desk.room.wait()
            chairs: list[Chair] = []
            while (desk.urgent or desk.queue) and desk.quick + len(chairs) < ROUND:
                chair = (desk.urgent or desk.queue).popleft()
                chair.queued = 0
                if chair.needs_work:
                    chair.busy = True
                    chairs.append(chair)
            if not chairs:
                break
            try:
                found = await self._look(desk, chairs)
            except NO_ANSWER as exc:
                for chair in chairs:
                    self._failed(chair, str(exc) or "timed out")
                continue
            for chair in chairs:
                if not self._looked(desk, chair, found.get(chair.group_id)):
                    desk.quick += 1
                    self._tasks.spawn(self._quickly(desk, chair), f"seat-{desk.node_id}")
        desk.running = False

    async def _look(self, desk: _Desk, chairs: Sequence[Chair]) -> dict[str, Looked]:
        ids = [c.group_id for c in chairs]
        return await self._ask(desk, lambda conn: ms.look(conn, ids, ANSWER_S))

    def _looked(self, desk: _Desk, chair: Chair, found: Looked | None) -> bool:
        """Take in what the broker has said; returns whether there is nothing to be done quickly."""
        if found is None or found.code not in (Code.NONE, Code.GROUP_ID_NOT_FOUND):
            self._failed(chair, "DescribeGroups: " + ("no answer" if found is None else name_of(found.code)))
            return True
        if chair.gone:
            return True
        chair.there = found.member_id
        if not found.member_id and not chair.settled:
            chair.settled = True
            self._told.changed(chair)
        if not chair.wanted:
            if found.member_id:
                return False
            self._done(chair)
        elif found.others and not found.member_id:
            self._failed(chair, STRANGERS)
        elif found.settled:
            return False
        else:
            desk.slow.append(chair)
            self._start_slow(desk)
        return True

    def _done(self, chair: Chair) -> None:
        chair.busy, chair.pause_ms, chair.problem = False, 0, ""
        self._told.changed(chair)
        if chair.needs_work:
            self.put(chair, False)

    def _failed(self, chair: Chair, problem: str) -> None:
        chair.busy = False
        if not chair.gone:
            self._told.trouble(chair, problem)

    # ---- where the answer comes at once -------------------------------------------------------------------
    async def _quickly(self, desk: _Desk, chair: Chair) -> None:
        try:
            if not chair.wanted:
                await self._leave(desk, chair)
            else:
                # With its own member id a seat is kept, and only shows another subscription.
                keep = chair.seat is not None and chair.seat.member_id == chair.there and not chair.renew
                mine = chair.there or "" if keep else ""
                chair.seat, chair.final, chair.renew = None, False, False
                await self._ask(desk, lambda conn: self._join(conn, chair, mine))
        except NO_ANSWER as exc:
            self._failed(chair, str(exc) or "timed out")
        else:
            self._done(chair)
        finally:
            desk.quick -= 1
            desk.room.set()

    async def _leave(self, desk: _Desk, chair: Chair) -> None:
        member_id = chair.there or ""
        code = await self._ask(desk, lambda conn: ms.leave(conn, chair.group_id, member_id, ANSWER_S))
        chair.seat, chair.final, chair.shown = None, False, None
        if code in (Code.NONE, Code.UNKNOWN_MEMBER_ID):
            chair.there, chair.settled = "", True
        elif code == Code.FENCED_INSTANCE_ID:
            chair.there = ""  # another sidecar has the seat now, and the group with it
        else:
            raise ConnectionLost(f"LeaveGroup: {name_of(code)}")

    # ---- where the broker holds JoinGroup back ------------------------------------------------------------
    def _start_slow(self, desk: _Desk) -> None:
        while desk.slow and desk.held < self._first_joins:
            chair = desk.slow.popleft()
            if not chair.gone:
                desk.held += 1
                self._tasks.spawn(self._slowly(desk, chair), f"first-join-{desk.node_id}")

    async def _slowly(self, desk: _Desk, chair: Chair) -> None:
        conn: BrokerConnection | None = None
        try:
            while desk.spare and desk.spare[-1].closed:
                desk.spare.pop()
            conn = desk.spare.pop() if desk.spare else await self._cluster.open(desk.node_id)
            chair.renew = False
            joined = asyncio.ensure_future(self._join(conn, chair, ""))
            pause_s, early = EARLY_S, False
            while not joined.done() and not early:
                await asyncio.wait([joined], timeout=pause_s)
                early = joined.done() or await self._seat_early(desk, chair)
                pause_s *= 2
            await joined
        except NO_ANSWER as exc:
            if conn is not None:
                conn.close()
            self._failed(chair, str(exc) or "timed out")
        else:
            self._done(chair)
        finally:
            desk.held -= 1
            if conn is not None and not conn.closed:
                if len(desk.spare) < PLACEHOLDERS:
                    desk.spare.append(conn)
                else:
                    conn.close()
            self._start_slow(desk)

    async def _seat_early(self, desk: _Desk, chair: Chair) -> bool:
        """The seat of a JoinGroup that is held back: its member id is told by DescribeGroups, and its generation, that
        of the group before, is guessed; a Heartbeat tells whether the guess is right. Returns whether it is of no use
        to try again."""
        try:
            found = (await self._look(desk, [chair])).get(chair.group_id)
            if found is None or not found.member_id or found.state != "PreparingRebalance":
                return False  # the broker has not come to it yet
            seat = Seat(found.member_id, chair.generation, ms.INSTANCE_ID)
            code = await self._ask(desk, lambda conn: ms.heartbeat(conn, chair.group_id, seat, ANSWER_S))
        except NO_ANSWER as exc:
            self._log.debug("no early seat", group_id=chair.group_id, problem=str(exc) or "timed out")
            return False
        begun = not chair.busy or chair.joining is not None or chair.final
        if code == Code.REBALANCE_IN_PROGRESS and not chair.gone and not begun:
            chair.there = seat.member_id
            self._told.taken(chair, seat, False)
        return True

    # ---- JoinGroup and SyncGroup --------------------------------------------------------------------------
    async def _join(self, conn: BrokerConnection, chair: Chair, member_id: str) -> None:
        """Raises ConnectionLost if it does not come to a seat."""
        if chair.gone or not chair.wanted:  # a connection may take long to open
            raise ConnectionLost("the seat is not wanted any more")
        topics = chair.topics
        shown = ms.UNREADABLE if topics is None else ms.readable(topics)
        timeout_s = ms.REBALANCE_TIMEOUT_MS / 1000 + ANSWER_S
        chair.there = None
        res = await ms.join(conn, chair.group_id, member_id, shown, self.session_ms, timeout_s)
        while res.error_code == Code.INVALID_SESSION_TIMEOUT and self.session_ms // 2 >= LEAST_SESSION_MS:
            self.session_ms //= 2
            self._log.warning("the broker allows no session so long; it is halved", session_timeout_ms=self.session_ms)
            res = await ms.join(conn, chair.group_id, member_id, shown, self.session_ms, timeout_s)
        self._check(chair, res)
        seat = Seat(res.member_id, res.generation_id, ms.INSTANCE_ID)
        chair.there = seat.member_id
        if ms.must_sync(res):
            # Until SyncGroup is answered the broker takes no commit, and an early seat has the wrong generation.
            chair.seat = chair.joining = None
            code = await ms.sync(conn, chair.group_id, seat, ANSWER_S)
            if code != Code.NONE:
                raise ConnectionLost(f"SyncGroup: {name_of(code)}")
        chair.shown, chair.settled = topics, True
        if chair.gone:
            # Whoever owns the partition now may have looked before, and may even have given the group back: nobody else
            # would take this member away. If another seat was taken meanwhile, the broker refuses this.
            await ms.leave(conn, chair.group_id, seat.member_id, ANSWER_S)
            return
        if not self._leased(chair.partition):
            raise ConnectionLost("the lease is over")
        self._told.taken(chair, seat, True)

    def _check(self, chair: Chair, res: jg.JoinGroupResponse) -> None:
        if res.error_code == Code.NONE:
            return
        chair.seat = chair.joining = None
        if res.error_code == Code.INCONSISTENT_GROUP_PROTOCOL:
            raise ConnectionLost(STRANGERS)
        raise ConnectionLost(f"JoinGroup: {name_of(res.error_code)}")


async def _all(steps: Sequence[Awaitable[T]]) -> list[T]:
    """Their results when all have ended, also if one has failed before. Raises what the first of these has raised."""
    ends = await asyncio.gather(*steps, return_exceptions=True)
    for end in ends:
        if isinstance(end, BaseException):
            raise end
    return [end for end in ends if not isinstance(end, BaseException)]
