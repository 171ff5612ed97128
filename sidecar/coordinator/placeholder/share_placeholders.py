"""The placeholder of each managed share group: a member of the broker's share group of the same name.

Purpose: the broker initialises the share state of the partitions that its members subscribe to, and lets no client
alter or delete that state while the group has a member. The core orders placeholders (core/share/placeholder.py), and
learns the initialised partitions. No consumer uses the partitions that the broker assigns to a placeholder; they show
which partitions are initialised.

A broker sees a new topic at the second or third heartbeat, and initialises it some time after that. So while any
partition is not initialised, heartbeats come quickly at first and then each second; else three in a session.

**Takeover**: the successor joins with a member id of its own. It finds the placeholders of former owners in the
description of the broker's group, and removes them; until then all are in the group, which does no harm. No record
could name them: an owner may die before its first report, and the broker would go on assigning partitions to its
placeholder when the group goes back. In the same way it finds members that a former owner took in and did not remove
there. A predecessor that wakes finds its member gone; it joins again only under a lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from zlib import crc32

from sidecar.coordinator.clock import now
from sidecar.coordinator.placeholder.share_membership import ShareMembership
from sidecar.core.runtime.events import Answer, Event
from sidecar.core.share.events import PlaceholderLeft, PlaceholderRefused, ShareInitialised
from sidecar.core.share.placeholder import HoldPlaceholder, LeavePlaceholder
from sidecar.core.vocabulary.errors import TEXT, Code, name_of
from sidecar.kafka.cluster import Cluster, ConnectionLost
from sidecar.kafka.net import NO_ANSWER
from sidecar.kafka.share_group import GroupRefused, Initialised, is_placeholder, placeholder_id
from sidecar.link.messages import OpenShareState
from sidecar.link.ports import Figures, Logger, Tasks

FIRST_MS, EACH_MS = (50, 100, 200, 400), 1_000
"""Times of the heartbeats after a change, and then their interval, while any partition is not initialised."""
BEAT_MS, BEAT_INTERVALS = 15_000, 3
"""Longest interval of the heartbeats: a third of the shortest session that Kafka allows by default
(group.share.min.session.timeout.ms). A broker that wants heartbeats more often gets one in each BEAT_INTERVALS of its
intervals."""
PAUSE_MS, PAUSE_MAX_MS = 50, 2_000
"""First pause after trouble; it doubles each time, up to the second value."""
REFUSED_MS = 30_000
"""Pause after a refusal that only an administrator can change: a missing right, or another group of this name."""
LOG_AGAIN_MS = 5_000
FREE_S = 5.0
LATE_MS = 10_000
"""Time after which share state that is not initialised is logged."""
NOT_IN: tuple[int, ...] = (Code.UNKNOWN_MEMBER_ID, Code.FENCED_MEMBER_EPOCH)
"""Errors by which the broker does not know the placeholder, or not at this epoch."""
REFUSED: dict[int, str] = {
    Code.GROUP_AUTHORIZATION_FAILED: "give the sidecar Read of the group",
    Code.TOPIC_AUTHORIZATION_FAILED: "give the sidecar Describe of the group's topics",
    Code.GROUP_ID_NOT_FOUND: "a group of another kind has this name at the broker: delete it there",
    Code.UNSUPPORTED_VERSION: "the broker serves no share groups: set share.version=1, or see groups.kinds",
    Code.GROUP_MAX_SIZE_REACHED: "members at the broker fill the group: let them connect to the sidecars",
}


class State(StrEnum):
    JOINING = "joining"
    INITIALISING = "initialising"
    HELD = "held"
    REFUSED = "refused"
    LEAVING = "leaving"


class Refused(ConnectionLost):
    """Raised when the broker refuses until an administrator acts; `remedy` names the action."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.remedy = remedy


@dataclass(frozen=True)
class SharePlaceholderPorts:
    """The coordinator's calls. `serves(partition)`: whether the partition is owned here, under a lease;
    `done(partition, attempt, event)`: gives an event to the core; `owner_epoch(partition)`: part of the member ids of
    this owner's placeholders; `other_members(group)`: called when the broker's group has members other than
    placeholders; `wait_ms`: how long a request waits until a placeholder has left."""

    serves: Callable[[int], bool]
    leader_of: Callable[[int], int]
    partition_of: Callable[[str], int]
    owner_epoch: Callable[[int], int]
    done: Callable[[int, int, Event], None]
    answer: Callable[[int, Answer], None]
    other_members: Callable[[str], None]
    wait_ms: int = 5_000


@dataclass(slots=True, eq=False)
class _Placeholder:
    group_id: str
    partition: int
    attempt: int
    member_id: str
    wanted: HoldPlaceholder | LeavePlaceholder
    since_ms: int
    """Monotonic time of the last change of the core's order."""
    epoch: int = 0
    """Member epoch; 0: the broker has no such member, as far as is known."""
    tried: bool = False
    """Whether a request to join was sent."""
    shown: tuple[str, ...] | None = None
    """The topics that the broker knows of; None: it is not known whether it has taken the last ones."""
    reported: Initialised | None = None
    """The initialised partitions that the core received since this hold began; None: none. The core forgets them
    when its group is empty, and the group may have members again before the placeholder has left."""
    others: set[str] = field(default_factory=set)
    """Placeholders of former owners that must be removed."""
    busy: bool = False
    urgent: bool = False
    gone: bool = False
    refused: bool = False
    late: bool = False
    pause_ms: int = 0
    beat_ms: int = BEAT_MS
    due: asyncio.TimerHandle | None = None

    @property
    def state(self) -> State:
        if isinstance(self.wanted, LeavePlaceholder):
            return State.LEAVING
        if self.refused:
            return State.REFUSED
        if self.epoch == 0:
            return State.JOINING
        return State.HELD if self.wanted.complete else State.INITIALISING


class SharePlaceholders:
    def __init__(
        self, cluster: Cluster, ports: SharePlaceholderPorts, figures: Figures, log: Logger, tasks: Tasks
    ) -> None:
        self._ports = ports
        self._figures = figures
        self._log = log
        self._tasks = tasks
        self._groups: dict[str, _Placeholder] = {}
        self._waiting: dict[str, list[tuple[int, OpenShareState, asyncio.TimerHandle]]] = {}
        """Group -> requests that wait until no placeholder is left at the broker: token, event, timer."""
        self._membership = ShareMembership(cluster, log, self._keeps)
        self._logged_ms = -LOG_AGAIN_MS
        for state in State:
            figures("share_placeholders", state).set_function(partial(self._count, state))

    def _count(self, state: State) -> int:
        return sum(p.state is state for p in self._groups.values())

    def _keeps(self, node_id: int, group_id: str) -> bool:
        return self._ports.leader_of(self._ports.partition_of(group_id)) == node_id

    # ---- orders of the core ---------------------------------------------------------------------------------
    def want(self, partition: int, attempt: int, wanted: HoldPlaceholder | LeavePlaceholder) -> None:
        p = self._groups.get(wanted.group_id)
        if p is None:
            epoch = self._ports.owner_epoch(partition)
            member_id = placeholder_id(wanted.group_id, epoch)
            p = _Placeholder(wanted.group_id, partition, attempt, member_id, wanted, now().mono_ms)
            self._groups[wanted.group_id] = p
            changed = True
        else:
            before, p.wanted, p.attempt = p.wanted, wanted, attempt
            p.reported = p.reported if _number(before) == _number(wanted) else None
            changed = type(before) is not type(wanted) or p.shown != getattr(wanted, "topic_names", p.shown)
        if changed:
            p.since_ms, p.pause_ms, p.late = now().mono_ms, 0, False
            self._at_once(p)
        elif not p.busy and p.due is not None and not p.refused and not p.pause_ms:
            self._rest(p)  # all is initialised now, or not any more

    def stopped(self, partition: int) -> None:
        """Drops the placeholders of a partition that is not owned any more. Its next owner removes them."""
        for p in [p for p in self._groups.values() if p.partition == partition]:
            p.gone = True
            if p.due is not None:
                p.due.cancel()
            del self._groups[p.group_id]
        for group_id in [g for g in self._waiting if self._ports.partition_of(g) == partition]:
            self._answer(group_id, Code.NOT_COORDINATOR)

    def leaders_moved(self, before: Sequence[int], leaders: Sequence[int]) -> None:
        """Resets the back-off: errors of the former leader of a group's offsets do not apply to the new one."""
        for p in list(self._groups.values()):
            if p.pause_ms and before[p.partition : p.partition + 1] != leaders[p.partition : p.partition + 1]:
                p.pause_ms = 0
                self._at_once(p)

    # ---- requests that wait until the placeholder has left --------------------------------------------------
    def open(self, token: int, event: OpenShareState) -> None:
        """Answers an administrator's request to alter or delete share state once the broker has no placeholder."""
        if not self._ports.serves(self._ports.partition_of(event.group_id)):
            self._ports.answer(token, event.refused(Code.NOT_COORDINATOR, TEXT[Code.NOT_COORDINATOR]))
        elif event.group_id not in self._groups:
            self._ports.answer(token, Answer())
        else:
            late = asyncio.get_running_loop().call_later(self._ports.wait_ms / 1000, self._late, event.group_id, token)
            self._waiting.setdefault(event.group_id, []).append((token, event, late))
            p = self._groups[event.group_id]
            if isinstance(p.wanted, LeavePlaceholder):
                self._at_once(p)

    def _late(self, group_id: str, token: int) -> None:
        waiting = self._waiting.pop(group_id, [])
        for other, event, timer in waiting:
            if other == token:
                code = Code.COORDINATOR_LOAD_IN_PROGRESS
                self._ports.answer(token, event.refused(code, TEXT[code]))
            else:
                self._waiting.setdefault(group_id, []).append((other, event, timer))

    def _answer(self, group_id: str, code: Code = Code.NONE) -> None:
        for token, event, timer in self._waiting.pop(group_id, []):
            timer.cancel()
            self._ports.answer(token, event.refused(code, TEXT[code]) if code else Answer())

    def given_up(self, group_id: str) -> bool:
        """Returns whether no placeholder of this owner is left in the broker's group, nor will one join."""
        return group_id not in self._groups

    # ---- when -------------------------------------------------------------------------------------------------
    def _at_once(self, p: _Placeholder) -> None:
        if p.busy:
            p.urgent = True
            return
        if p.due is not None:
            p.due.cancel()
        self._begin(p)

    def _begin(self, p: _Placeholder) -> None:
        p.due, p.busy, p.urgent = None, True, False
        self._tasks.spawn(self._turn(p), "share placeholder")

    def _rest(self, p: _Placeholder) -> None:
        if p.due is not None:
            p.due.cancel()
        p.due = asyncio.get_running_loop().call_later(self._pause_ms(p) / 1000, self._begin, p)

    def _pause_ms(self, p: _Placeholder) -> int:
        if p.pause_ms:
            return p.pause_ms
        if isinstance(p.wanted, LeavePlaceholder) or p.wanted.complete:
            # Spreads the heartbeats of groups that came together.
            return p.beat_ms - crc32(p.group_id.encode()) % (p.beat_ms // 3)
        since_ms = now().mono_ms - p.since_ms
        return next((at - since_ms for at in FIRST_MS if at > since_ms), EACH_MS)

    # ---- one turn -----------------------------------------------------------------------------------------------
    async def _turn(self, p: _Placeholder) -> None:
        wanted = p.wanted
        try:
            node_id = self._ports.leader_of(p.partition)
            if node_id < 0:
                raise ConnectionLost("no leader of the offsets is known")
            if isinstance(wanted, HoldPlaceholder):
                await self._hold(p, wanted, node_id)
            else:
                await self._leave(p, wanted, node_id)
            p.pause_ms, p.refused = 0, False
        except NO_ANSWER as exc:
            self._trouble(p, str(exc) or "timed out", exc.remedy if isinstance(exc, Refused) else "")
        p.busy = False
        if p.gone:
            return
        if p.urgent:
            self._begin(p)
        else:
            self._rest(p)

    async def _hold(self, p: _Placeholder, wanted: HoldPlaceholder, node_id: int) -> None:
        joins = p.epoch == 0
        if joins and not self._ports.serves(p.partition):
            raise ConnectionLost("the lease is over")
        shows = joins or p.shown != wanted.topic_names
        p.tried = True
        names = wanted.topic_names if shows else None
        if shows:
            p.shown = None
        res = await self._membership.heartbeat(node_id, p.group_id, p.member_id, p.epoch, names)
        if p.gone:
            return
        if res.error_code != Code.NONE:
            if res.error_code in REFUSED and shows and not joins and not _not_in(p, res.error_code):
                await self._stay(p, node_id)
            self._not_accepted(p, wanted, res.error_code, res.error_message)
        p.epoch, p.shown = res.member_epoch, wanted.topic_names
        p.beat_ms = min(BEAT_MS, max(BEAT_INTERVALS * res.heartbeat_interval_ms, EACH_MS))
        if joins:
            self._log.debug("share placeholder joined", group_id=p.group_id, broker=node_id, member_id=p.member_id)
        await self._remove_others(p, node_id)
        if shows or res.assignment is not None or p.reported is None:
            assigned = await self._membership.assigned(node_id, p.group_id)
            self._report(p, wanted, node_id, assigned)
            await self._look_at_members(p, assigned.members - {p.member_id}, node_id)
        if not wanted.complete and p.wanted is wanted:
            initialised = await self._membership.initialised(node_id, p.group_id)
            if initialised is not None:
                self._report(p, wanted, node_id, initialised)
            self._late_state(p)

    async def _remove_others(self, p: _Placeholder, node_id: int) -> None:
        while p.others:
            await self._membership.leave(node_id, p.group_id, other := next(iter(p.others)))
            p.others.discard(other)

    async def _look_at_members(self, p: _Placeholder, others: frozenset[str], node_id: int) -> None:
        """Removes what former owners have left in the broker's group. Without a lease the others may be a
        successor's."""
        if p.gone or not self._ports.serves(p.partition):
            return
        p.others.update(filter(is_placeholder, others))
        if others - p.others:
            self._ports.other_members(p.group_id)
        await self._remove_others(p, node_id)

    async def _stay(self, p: _Placeholder, node_id: int) -> None:
        """Keeps the placeholder alive with its former topics, as the broker refuses the present ones: without a member
        administrators could alter share state that is in use."""
        res = await self._membership.heartbeat(node_id, p.group_id, p.member_id, p.epoch, None)
        if res.error_code == Code.NONE:
            p.epoch = res.member_epoch
        elif _not_in(p, res.error_code):
            p.epoch = 0

    def _not_accepted(self, p: _Placeholder, wanted: HoldPlaceholder, code: int, message: str | None) -> None:
        """Takes in an error code of the broker's answer, and raises ConnectionLost."""
        problem = f"ShareGroupHeartbeat: {name_of(code)}" + (f" ({message})" if message else "")
        if _not_in(p, code):
            if p.epoch:
                self._log.warning("share placeholder lost", group_id=p.group_id, problem=name_of(code))
                self._figures("placeholders_lost").inc()
            # The broker may have lost the group with its initialised partitions.
            p.epoch, p.reported = 0, None
        elif code in REFUSED:
            # So the next report is sent, and shows the core that the refusal is over.
            p.reported = None
            self._ports.done(p.partition, p.attempt, PlaceholderRefused(p.group_id, wanted.hold_id, code, message))
            raise Refused(problem, REFUSED[code])
        raise ConnectionLost(problem)

    def _report(self, p: _Placeholder, wanted: HoldPlaceholder, node_id: int, initialised: Initialised) -> None:
        present = p.wanted
        if p.gone or not isinstance(present, HoldPlaceholder) or present.hold_id != wanted.hold_id:
            return
        if initialised.whole and present.topic_names != wanted.topic_names:  # a member has come or gone meanwhile
            initialised = replace(initialised, whole=False)
        reported = p.reported
        if reported is not None and not _news(reported, initialised):
            return
        if reported is None or initialised.whole:
            p.reported = initialised
        else:
            for topic_id, partitions in initialised.partitions.items():
                reported.add(topic_id, initialised.names[topic_id], partitions)
        self._ports.done(
            p.partition,
            p.attempt,
            ShareInitialised(
                p.group_id,
                wanted.hold_id,
                p.member_id,
                node_id,
                wanted.topic_names,
                initialised.partitions,
                initialised.names,
                initialised.whole,
            ),
        )

    async def _leave(self, p: _Placeholder, wanted: LeavePlaceholder, node_id: int) -> None:
        try:
            others = await self._membership.placeholders(node_id, p.group_id)
            if not self._ports.serves(p.partition):
                raise ConnectionLost("the lease is over")  # they may be a successor's, and none of them may stay
            p.others.update(others)
            if p.tried:
                p.others.add(p.member_id)
            await self._remove_others(p, node_id)
        except GroupRefused as exc:  # until it lets the placeholders leave, their sessions are over
            p.others.clear()
            if p.epoch:
                fields = {"group_id": p.group_id, "problem": str(exc)}
                self._log.warning("share placeholders stay at the brokers until their sessions end", **fields)
        p.epoch, p.tried, p.reported, p.shown = 0, False, None, None
        if p.gone or p.wanted is not wanted:
            return
        p.gone = True
        del self._groups[p.group_id]
        left = PlaceholderLeft(p.group_id, wanted.placeholder_id or p.member_id)
        self._ports.done(p.partition, p.attempt, left)
        self._answer(p.group_id)

    # ---- ending ---------------------------------------------------------------------------------------------------
    async def free(self, placeholders: Sequence[tuple[int, str, str]]) -> None:
        """Removes the placeholders when the last sidecar ends: the groups are the brokers' own again.
        `placeholders`: partition, group and member id of each."""
        leave, leader_of = self._membership.leave, self._ports.leader_of
        problem = ""

        async def go(node_id: int, group_id: str, member_id: str) -> None:
            nonlocal problem
            try:
                await leave(node_id, group_id, member_id)
            except NO_ANSWER as exc:
                problem = str(exc) or "timed out"

        try:
            async with asyncio.timeout(FREE_S):
                await asyncio.gather(*[go(leader_of(p), g, m) for p, g, m in placeholders if leader_of(p) >= 0])
        except TimeoutError:
            problem = "timed out"
        if problem:
            self._log.warning("share placeholders stay at the brokers until their sessions end", problem=problem)

    # ---- trouble --------------------------------------------------------------------------------------------------
    def _trouble(self, p: _Placeholder, problem: str, remedy: str) -> None:
        self._figures("placeholder_troubles").inc()
        p.refused = bool(remedy)
        p.pause_ms = REFUSED_MS if remedy else min(max(2 * p.pause_ms, PAUSE_MS), PAUSE_MAX_MS)
        at_ms = now().mono_ms
        if p.pause_ms >= PAUSE_MAX_MS and at_ms - self._logged_ms >= LOG_AGAIN_MS:
            self._logged_ms = at_ms
            waiting = sum(g.pause_ms >= PAUSE_MAX_MS for g in self._groups.values())
            fields = {"groups": waiting, "group_id": p.group_id, "problem": problem}
            self._log.warning("share placeholders cannot join or leave", **fields, hint=remedy or "look at that broker")

    def _late_state(self, p: _Placeholder) -> None:
        if isinstance(p.wanted, HoldPlaceholder) and not p.wanted.complete and not p.late:
            waited_ms = now().mono_ms - p.since_ms
            if waited_ms >= LATE_MS:
                p.late = True
                self._log.warning(
                    "share state is not initialised",
                    group_id=p.group_id,
                    topics=len(p.wanted.topic_names),
                    ms=waited_ms,
                    hint="members get these partitions later: look at the leaders of __share_group_state",
                )


def _not_in(p: _Placeholder, code: int) -> bool:
    """Returns whether this error means that the broker does not know the placeholder. A broker that has lost the whole
    group answers GROUP_ID_NOT_FOUND to a member of it; to a member that joins, that means a group of another kind."""
    return code in NOT_IN or (code == Code.GROUP_ID_NOT_FOUND and p.epoch > 0)


def _number(wanted: HoldPlaceholder | LeavePlaceholder) -> int | None:
    """Returns the number of the hold; None if the placeholder should leave."""
    return wanted.hold_id if isinstance(wanted, HoldPlaceholder) else None


def _news(reported: Initialised, initialised: Initialised) -> bool:
    """Returns whether `initialised` has partitions that the core has not received yet."""
    if initialised.whole:
        return not reported.whole or reported.partitions != initialised.partitions
    return any(set(ps).difference(reported.partitions.get(t, ())) for t, ps in initialised.partitions.items())
