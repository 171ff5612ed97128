"""Takes and gives up placeholders in the brokers' groups: order and connections of the requests. It knows no commits.

A broker answers the requests of one connection one after the other, and holds back the JoinGroup that begins a new
group (group.initial.rebalance.delay.ms, 3 s by default). So each round first describes many groups at once: where the
placeholder is there already, JoinGroup is answered at once and goes over a few shared connections; where it is not,
JoinGroup has a connection to itself, and at most `first_joins` of them wait at one broker.

While such a JoinGroup waits, DescribeGroups shows its member id already, and the broker accepts that member's commits:
so a commit waits for milliseconds, not for three seconds (docs/design/decisions.md, Placeholder members).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from sidecar.core.runtime.offset_checks import MemberIdentity
from sidecar.core.vocabulary.errors import Code, name_of
from sidecar.kafka import placeholder_requests as ms
from sidecar.kafka.cluster import Cluster, ConnectionLost
from sidecar.kafka.lanes import PLACEHOLDERS, Lane
from sidecar.kafka.net import NO_ANSWER, BrokerConnection
from sidecar.kafka.placeholder_requests import Looked
from sidecar.link.ports import Logger, Tasks
from sidecar.wire.generated import join_group as jg

ROUND = 100
"""Most groups of one DescribeGroups, and most groups that are worked on over one broker's shared connections."""
ANSWER_S = 5.0
EARLY_S = 0.02
"""Seconds after which a JoinGroup without an answer counts as held back by the broker."""
LEAST_SESSION_MS = 1_000
QUEUED, URGENT = 1, 2
STRANGERS = "the broker's group has members of its own"
T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Placeholder:
    """The placeholder of one managed group in the broker's group of the same name, as far as it is known."""

    group_id: str
    partition: int
    wanted: bool
    since_ms: int
    """Monotonic time since when `wanted` is as it is, or since when the placeholder was lost."""
    identity: MemberIdentity | None = None
    """The identity in whose name commits go on now; None: none may."""
    joining: MemberIdentity | None = None
    """The identity of a placeholder that has joined, but must not be used before a proof."""
    final: bool = False
    """Whether the broker's group is stable; before, the placeholder is that of a JoinGroup that is held back."""
    settled: bool = False
    """Whether no placeholder of an earlier owner can be used any more."""
    member_id_at_broker: str | None = None
    """Member id of the placeholder at the broker; "" if there is none, None if that is not known."""
    generation: int = 0
    """Guessed generation of the broker's group while it has no members."""
    topics: frozenset[str] | None = None
    """The subscription that the broker should be able to read; None: none."""
    shown: frozenset[str] | None = None
    renew: bool = False
    """Whether the placeholder needs another member id, so that the broker refuses commits in the present one's name."""
    gone: bool = False
    """Whether this object is out of use: the partition is lost, or another Placeholder has replaced it."""
    busy: bool = False
    queued: int = 0
    """QUEUED or URGENT while it waits in a broker's queue, else 0."""
    pause_ms: int = 0
    """Back-off after the last trouble."""
    resting: asyncio.TimerHandle | None = None
    """The timer that ends the back-off."""
    problem: str = ""
    beat_ms: int = 0
    """Monotonic time of its next heartbeat."""
    open_until_ms: int = 0
    """Monotonic time until which the broker may read its subscription; 0: it may not."""

    @property
    def needs_work(self) -> bool:
        if self.gone or self.busy or self.resting is not None:
            return False
        if self.wanted:
            return self.joining is None and (not self.final or self.renew or self.shown != self.topics)
        return self.member_id_at_broker != ""


class MembershipListener(Protocol):
    """Listener of BrokerMembership, which decides what follows from a change."""

    def taken(self, placeholder: Placeholder, identity: MemberIdentity, final: bool) -> None:
        """Called when the broker knows this member. It must be proved before it is used."""

    def changed(self, placeholder: Placeholder) -> None:
        """Called when the placeholder is settled, or given up."""

    def trouble(self, placeholder: Placeholder, problem: str) -> None:
        """Called when a step failed; the listener must try again later."""


@dataclass(slots=True, eq=False)
class _BrokerWork:
    """The work at one broker. `slow`: placeholders whose JoinGroup waits for a connection to itself; `spare`: such
    connections that are free; `room`: set when a shared connection has room."""

    node_id: int
    urgent: deque[Placeholder] = field(default_factory=deque)
    queue: deque[Placeholder] = field(default_factory=deque)
    slow: deque[Placeholder] = field(default_factory=deque)
    held: int = 0
    """Number of JoinGroups under way that have a connection to themselves."""
    quick: int = 0
    """Number of groups that are being worked on over the shared connections."""
    room: asyncio.Event = field(default_factory=asyncio.Event)
    spare: list[BrokerConnection] = field(default_factory=list)
    running: bool = False
    turn: int = 0


class BrokerMembership:
    """Memberships of placeholders at all brokers. `leased(partition)`: whether this sidecar owns the partition under a
    lease; `leader_of(partition)`: node id of the broker that keeps the offsets of its groups, -1 while unknown."""

    def __init__(
        self,
        cluster: Cluster,
        listener: MembershipListener,
        leased: Callable[[int], bool],
        leader_of: Callable[[int], int],
        session_ms: int,
        first_joins: int,
        log: Logger,
        tasks: Tasks,
    ) -> None:
        self.session_ms = session_ms
        self._cluster = cluster
        self._listener = listener
        self._leased = leased
        self._leader_of = leader_of
        self._first_joins = first_joins
        self._log = log
        self._tasks = tasks
        self._work: dict[int, _BrokerWork] = {}

    def put(self, placeholder: Placeholder, urgent: bool) -> None:
        """Queues the work that brings the broker's group to the wanted state. `urgent`: a commit waits."""
        node_id = self._leader_of(placeholder.partition)
        if node_id < 0:
            self._listener.trouble(placeholder, "no leader of the offsets is known")
            return
        work = self._work.get(node_id)
        if work is None:
            work = self._work[node_id] = _BrokerWork(node_id)
        if placeholder.queued < (rank := URGENT if urgent else QUEUED):
            placeholder.queued = rank
            (work.urgent if urgent else work.queue).append(placeholder)
        if not work.running:
            work.running = True
            self._tasks.spawn(self._rounds(work), f"placeholders-{node_id}")

    async def heartbeat(self, placeholder: Placeholder, identity: MemberIdentity) -> int:
        """Sends a heartbeat and returns the broker's error code. Raises one of NO_ANSWER."""
        node_id = self._leader_of(placeholder.partition)
        if node_id < 0:
            raise ConnectionLost("no leader of the offsets is known")
        work = self._work.setdefault(node_id, _BrokerWork(node_id))
        return await self._ask(work, lambda conn: ms.heartbeat(conn, placeholder.group_id, identity, ANSWER_S))

    async def free(self, groups: Mapping[int, Sequence[str]]) -> int:
        """Removes the placeholders of these groups, by partition, when the last sidecar ends. Returns how many groups
        had one. Raises one of NO_ANSWER."""
        at: dict[int, list[Placeholder]] = {}
        for partition, ids in groups.items():
            placeholders = at.setdefault(self._leader_of(partition), [])
            placeholders += [Placeholder(g, partition, False, 0) for g in ids]
        return sum(await _all([self._free(_BrokerWork(n), placeholders) for n, placeholders in at.items() if n >= 0]))

    async def _free(self, work: _BrokerWork, placeholders: list[Placeholder]) -> int:
        freed = 0
        for start in range(0, len(placeholders), ROUND):
            part = placeholders[start : start + ROUND]
            answers = await self._look(work, part)
            for placeholder in part:
                answer = answers.get(placeholder.group_id)
                placeholder.member_id_at_broker = answer.member_id if answer is not None else ""
            joined = [c for c in part if c.member_id_at_broker]
            await _all([self._leave(work, c) for c in joined])
            freed += len(joined)
        return freed

    async def _ask(self, work: _BrokerWork, ask: Callable[[BrokerConnection], Awaitable[T]]) -> T:
        """Sends a request over a shared connection. Closes it after a timeout, as other requests wait behind."""
        conn = await self._lane(work)
        try:
            return await ask(conn)
        except TimeoutError:
            conn.close()
            raise

    async def _lane(self, work: _BrokerWork) -> BrokerConnection:
        work.turn += 1
        return await self._cluster.lane(work.node_id, Lane.PLACEHOLDERS, work.turn % PLACEHOLDERS)

    # ---- rounds -------------------------------------------------------------------------------------------
    async def _rounds(self, work: _BrokerWork) -> None:
        while work.urgent or work.queue:
            while work.quick >= ROUND:
                work.room.clear()
                await work.room.wait()
            placeholders: list[Placeholder] = []
            while (work.urgent or work.queue) and work.quick + len(placeholders) < ROUND:
                placeholder = (work.urgent or work.queue).popleft()
                placeholder.queued = 0
                if placeholder.needs_work:
                    placeholder.busy = True
                    placeholders.append(placeholder)
            if not placeholders:
                break
            try:
                answers = await self._look(work, placeholders)
            except NO_ANSWER as exc:
                for placeholder in placeholders:
                    self._failed(placeholder, str(exc) or "timed out")
                continue
            for placeholder in placeholders:
                if not self._looked(work, placeholder, answers.get(placeholder.group_id)):
                    work.quick += 1
                    self._tasks.spawn(self._quickly(work, placeholder), f"placeholder-{work.node_id}")
        work.running = False

    async def _look(self, work: _BrokerWork, placeholders: Sequence[Placeholder]) -> dict[str, Looked]:
        ids = [c.group_id for c in placeholders]
        return await self._ask(work, lambda conn: ms.look(conn, ids, ANSWER_S))

    def _looked(self, work: _BrokerWork, placeholder: Placeholder, answer: Looked | None) -> bool:
        """Takes in the broker's description; returns whether nothing is left to do over a shared connection."""
        if answer is None or answer.code not in (Code.NONE, Code.GROUP_ID_NOT_FOUND):
            self._failed(placeholder, "DescribeGroups: " + ("no answer" if answer is None else name_of(answer.code)))
            return True
        if placeholder.gone:
            return True
        placeholder.member_id_at_broker = answer.member_id
        if not answer.member_id and not placeholder.settled:
            placeholder.settled = True
            self._listener.changed(placeholder)
        if not placeholder.wanted:
            if answer.member_id:
                return False
            self._done(placeholder)
        elif answer.others and not answer.member_id:
            self._failed(placeholder, STRANGERS)
        elif answer.settled:
            return False
        else:
            work.slow.append(placeholder)
            self._start_slow(work)
        return True

    def _done(self, placeholder: Placeholder) -> None:
        placeholder.busy, placeholder.pause_ms, placeholder.problem = False, 0, ""
        self._listener.changed(placeholder)
        if placeholder.needs_work:
            self.put(placeholder, False)

    def _failed(self, placeholder: Placeholder, problem: str) -> None:
        placeholder.busy = False
        if not placeholder.gone:
            self._listener.trouble(placeholder, problem)

    # ---- where the answer comes at once -------------------------------------------------------------------
    async def _quickly(self, work: _BrokerWork, placeholder: Placeholder) -> None:
        try:
            if not placeholder.wanted:
                await self._leave(work, placeholder)
            else:
                # With its own member id a placeholder is kept, and only shows another subscription.
                keep = (
                    placeholder.identity is not None
                    and placeholder.identity.member_id == placeholder.member_id_at_broker
                    and not placeholder.renew
                )
                member_id = placeholder.member_id_at_broker or "" if keep else ""
                placeholder.identity, placeholder.final, placeholder.renew = None, False, False
                await self._ask(work, lambda conn: self._join(conn, placeholder, member_id))
        except NO_ANSWER as exc:
            self._failed(placeholder, str(exc) or "timed out")
        else:
            self._done(placeholder)
        finally:
            work.quick -= 1
            work.room.set()

    async def _leave(self, work: _BrokerWork, placeholder: Placeholder) -> None:
        member_id = placeholder.member_id_at_broker or ""
        code = await self._ask(work, lambda conn: ms.leave(conn, placeholder.group_id, member_id, ANSWER_S))
        placeholder.identity, placeholder.final, placeholder.shown = None, False, None
        if code in (Code.NONE, Code.UNKNOWN_MEMBER_ID):
            placeholder.member_id_at_broker, placeholder.settled = "", True
        elif code == Code.FENCED_INSTANCE_ID:
            placeholder.member_id_at_broker = ""  # another sidecar has the placeholder now, and the group with it
        else:
            raise ConnectionLost(f"LeaveGroup: {name_of(code)}")

    # ---- where the broker holds JoinGroup back ------------------------------------------------------------
    def _start_slow(self, work: _BrokerWork) -> None:
        while work.slow and work.held < self._first_joins:
            placeholder = work.slow.popleft()
            if not placeholder.gone:
                work.held += 1
                self._tasks.spawn(self._slowly(work, placeholder), f"first-join-{work.node_id}")

    async def _slowly(self, work: _BrokerWork, placeholder: Placeholder) -> None:
        conn: BrokerConnection | None = None
        joined: asyncio.Future[None] | None = None
        try:
            while work.spare and work.spare[-1].closed:
                work.spare.pop()
            conn = work.spare.pop() if work.spare else await self._cluster.open(work.node_id)
            placeholder.renew = False
            joined = asyncio.ensure_future(self._join(conn, placeholder, ""))
            joined.add_done_callback(lambda task: task.cancelled() or task.exception())  # also if nobody waits for it
            pause_s, early = EARLY_S, False
            while not joined.done() and not early:
                await asyncio.wait([joined], timeout=pause_s)
                early = joined.done() or await self._join_early(work, placeholder)
                pause_s *= 2
            await joined
        except NO_ANSWER as exc:
            if conn is not None:
                conn.close()
            self._failed(placeholder, str(exc) or "timed out")
        else:
            self._done(placeholder)
        finally:
            joined = None  # its error holds this frame, which would hold it until the collector comes
            work.held -= 1
            if conn is not None and not conn.closed:
                if len(work.spare) < PLACEHOLDERS:
                    work.spare.append(conn)
                else:
                    conn.close()
            self._start_slow(work)

    async def _join_early(self, work: _BrokerWork, placeholder: Placeholder) -> bool:
        """Takes the placeholder of a JoinGroup that is held back: DescribeGroups shows its member id; its generation is
        guessed, as that of the group before, and a Heartbeat shows whether the guess is right. Returns whether a
        further try is of no use."""
        try:
            answer = (await self._look(work, [placeholder])).get(placeholder.group_id)
            if answer is None or not answer.member_id or answer.state != "PreparingRebalance":
                return False  # the broker has not come to it yet
            identity = MemberIdentity(answer.member_id, placeholder.generation, ms.INSTANCE_ID)
            code = await self._ask(work, lambda conn: ms.heartbeat(conn, placeholder.group_id, identity, ANSWER_S))
        except NO_ANSWER as exc:
            self._log.debug("no early placeholder", group_id=placeholder.group_id, problem=str(exc) or "timed out")
            return False
        begun = not placeholder.busy or placeholder.joining is not None or placeholder.final
        if code == Code.REBALANCE_IN_PROGRESS and not placeholder.gone and not begun:
            placeholder.member_id_at_broker = identity.member_id
            self._listener.taken(placeholder, identity, False)
        return True

    # ---- JoinGroup and SyncGroup --------------------------------------------------------------------------
    async def _join(self, conn: BrokerConnection, placeholder: Placeholder, member_id: str) -> None:
        """Joins, and syncs if needed. Raises ConnectionLost if there is no placeholder afterwards."""
        if placeholder.gone or not placeholder.wanted:  # a connection may take long to open
            raise ConnectionLost("the placeholder is not wanted any more")
        topics = placeholder.topics
        shown = ms.UNREADABLE if topics is None else ms.readable(topics)
        timeout_s = ms.REBALANCE_TIMEOUT_MS / 1000 + ANSWER_S
        placeholder.member_id_at_broker = None
        while True:
            tried_ms = self.session_ms
            res = await ms.join(conn, placeholder.group_id, member_id, shown, tried_ms, timeout_s)
            if res.error_code != Code.INVALID_SESSION_TIMEOUT or not self._session_halved(tried_ms):
                break
        self._check(placeholder, res)
        identity = MemberIdentity(res.member_id, res.generation_id, ms.INSTANCE_ID)
        placeholder.member_id_at_broker = identity.member_id
        if ms.must_sync(res):
            # Until SyncGroup is answered the broker takes no commit, and an early placeholder has the wrong generation.
            placeholder.identity = placeholder.joining = None
            code = await ms.sync(conn, placeholder.group_id, identity, ANSWER_S)
            if code != Code.NONE:
                raise ConnectionLost(f"SyncGroup: {name_of(code)}")
        placeholder.shown, placeholder.settled = topics, True
        if placeholder.gone:
            # The present owner may have described the group before this join, and may even have released it: nobody
            # else would remove this member. If another placeholder was taken meanwhile, the broker refuses this.
            await ms.leave(conn, placeholder.group_id, identity.member_id, ANSWER_S)
            return
        if not self._leased(placeholder.partition):
            raise ConnectionLost("the lease is over")
        self._listener.taken(placeholder, identity, True)

    def _session_halved(self, refused_ms: int) -> bool:
        """Halves the session timeout that a broker has refused. Returns whether a join with the present one is of use.
        Many joins are refused at the same time, and only the first of them may halve it."""
        if self.session_ms == refused_ms and refused_ms // 2 >= LEAST_SESSION_MS:
            self.session_ms //= 2
            self._log.warning("the broker allows no session so long; it is halved", session_timeout_ms=self.session_ms)
        return self.session_ms < refused_ms

    def _check(self, placeholder: Placeholder, res: jg.JoinGroupResponse) -> None:
        if res.error_code == Code.NONE:
            return
        placeholder.identity = placeholder.joining = None
        if res.error_code == Code.INCONSISTENT_GROUP_PROTOCOL:
            raise ConnectionLost(STRANGERS)
        raise ConnectionLost(f"JoinGroup: {name_of(res.error_code)}")


async def _all(steps: Sequence[Awaitable[T]]) -> list[T]:
    """Returns the results when all steps have ended, even after a failure. Raises the error of the first failed one."""
    ends = await asyncio.gather(*steps, return_exceptions=True)
    for end in ends:
        if isinstance(end, BaseException):
            raise end
    return [end for end in ends if not isinstance(end, BaseException)]
