"""The group coordinator of one sidecar: which partition a request belongs to, the lease, what concerns all partitions.

A *lease* says until when this sidecar may take itself for the owner of what it was assigned: the brokers answered it
as a live member, and will not give its partitions away before the session that began then is over. Every request
looks at it, so that a process that was suspended finds out before it answers.

The brokers' answer is for all partitions, and it stays away while their coordinator of the owners' group is replaced,
which takes longer than a lease. A partition can prove its owner, too: whoever takes it over writes a claim, behind
which no write of the former owner is accepted. So what was committed under the fence proves that nobody had taken over
when it was sent, and what can be answered under a lease can be answered for the same time from then on.

The driver has, beside those of owner.py, these duties: it reports `lease` whenever the brokers have answered, with the
time at which it *asked* them; `proved` of an owner when such a write is committed; `assigned` when the owners' group
has a new map; `lost` when this sidecar is out of it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from sidecar.core.runtime.commands import Command
from sidecar.core.runtime.effects import Log, Reply
from sidecar.core.runtime.events import FOR_EVER_MS, Event, KnownGroups, KnownReply, ListGroups, ListReply
from sidecar.core.runtime.owner import ASSIGNED, MOVED, Owner
from sidecar.core.runtime.pending_requests import Held, LogView, Tally, Waiting
from sidecar.core.runtime.phases import Phase
from sidecar.core.runtime.registry import Registry
from sidecar.core.runtime.turn import Now, Ports
from sidecar.core.vocabulary.errors import TEXT, Code
from sidecar.core.vocabulary.placement import partition_for
from sidecar.core.vocabulary.topics import Topic, TopicImage

GAP_MS = 1_000
"""A pause of the whole process that is longer is given back to every member's session."""
SAY_AGAIN_MS = 5_000
GOLDEN = 0.6180339887
"""Its multiples, without what is before the point, spread evenly however many there are."""
FENCES_IN_TIME = 4
"""So many times as often as the brokers would forget a fence it is renewed at least."""
LEAST_REST_MS = 5
"""Timers that are due within so long of each other are looked at together."""


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """`hold_ms`: how long a request waits for a takeover, 0: not at all; `parked_max`: requests without an answer;
    `fence_interval_ms`: how often a fence is renewed, `fence_spread`: by which part of that it may come earlier;
    `load_at_once`: a group of at most so many records is loaded with
    the request that asks for it."""

    hold_ms: int = 3_000
    parked_max: int = 100_000
    fence_interval_ms: int = 3_600_000
    load_at_once: int = 32
    fence_spread: float = 0.5


@dataclass(slots=True)
class LeaseEnd:
    """Of all partitions here: by the clock of leases and by the wall clock. `just_proved`: the brokers have answered
    since the last `wake`."""

    until_ms: int = 0
    until_wall_ms: int = FOR_EVER_MS
    just_proved: bool = False

    def proved(self, until_ms: int, until_wall_ms: int) -> None:
        """The same answer may be told again, and an older one late."""
        self.just_proved |= until_ms > self.until_ms
        if until_ms >= self.until_ms:
            self.until_ms, self.until_wall_ms = until_ms, until_wall_ms


class Service:
    """`out` holds the commands that are due; the driver takes them out."""

    def __init__(
        self,
        node_id: int,
        partitions: int,
        registry: Registry,
        ports: Ports,
        log: LogView,
        settings: ServiceSettings | None = None,
    ) -> None:
        self.node_id = node_id
        self.registry = registry
        self.settings = settings or ServiceSettings()
        self.out: list[Command] = []
        self.tally = Tally()
        ports = replace(ports, limits=replace(ports.limits, held=self.held_bytes))
        how = (self.settings.hold_ms, self.tally, self.out, self.settings.load_at_once)
        self.owners = [Owner(p, registry, ports, log, *how) for p in range(partitions)]
        for owner in self.owners:
            owner.leased = partial(self.leased, owner.partition)
        self._lists: list[Held] = []
        """ListGroups that wait until all groups are loaded."""
        self.map: Sequence[int] = ()
        """Node id of each partition's owner, as the owners' group says; -1 or short while unknown."""
        self._told: dict[str, Any] = {}
        """What was last logged of the map."""
        self.stopping = False
        self._log = log
        self._lease = LeaseEnd()
        self._image = TopicImage()
        self._topics: tuple[Topic, ...] = ()
        self._woken_ms = 0
        self._unproved = Waiting(self.tally, self.out)
        """Requests for partitions served here, while no lease on them is proved."""
        self._fences_kept_ms = FOR_EVER_MS
        self._deaf_ms = [0] * partitions
        """How long each partition's members could not be heard, until they get that time back."""
        self._said_ms = -SAY_AGAIN_MS

    # ---- ownership ----------------------------------------------------------------------------------------
    def assigned(self, owners: Sequence[int], generation: int, members: Collection[int], now: Now) -> None:
        """The owners' group has a new map. `members`: node ids of the sidecars that are in it."""
        before, self.map = self.map, owners
        mine = {p for p, n in enumerate(owners) if n == self.node_id}
        gained = [p for p in mine if self.owners[p].phase is Phase.ELSEWHERE]
        told = {"generation": generation, "mine": len(mine), "gained": len(gained), "sidecars": len(members)}
        # While a generation cannot be completed, a member may join the one that stands again and again.
        self.out.append(Log("owners", told, "debug" if told == self._told else "info"))
        self._told = told
        for p, owner in enumerate(self.owners):
            if p not in mine:
                owner.released("moved to another sidecar")
        for p in gained:
            self.owners[p].assigned(now, self._why(before[p] if p < len(before) else -1, members))

    def _why(self, before: int, members: Collection[int]) -> str:
        """Why a partition of this owner is taken over; it stands in the claim."""
        if before in (-1, self.node_id):
            return ASSIGNED
        return f"{MOVED} {before}" if before in members else f"sidecar {before} is gone"

    def lost(self, why: str) -> None:
        """This sidecar is out of the owners' group: it owns nothing until it is assigned again."""
        mine = sum(o.phase is not Phase.ELSEWHERE for o in self.owners)
        self.out.append(Log("ownership lost", {"why": why, "partitions": mine}, "warning"))
        self._lease.until_ms = 0
        self.map = ()
        self._unproved.refuse(Code.NOT_COORDINATOR)
        self.release_all(why)

    def release_all(self, why: str) -> None:
        for owner in self.owners:
            owner.released(why)

    def lease(self, until_ms: int, until_wall_ms: int = FOR_EVER_MS) -> None:
        """The brokers know this sidecar as a live member; counted from when they were asked. By the wall clock, too: it
        shows a pause of the whole machine that no other clock of it has seen, and if it only was set forward, the next
        answer of the brokers puts that right."""
        self._lease.proved(until_ms, until_wall_ms)

    @property
    def lease_until_ms(self) -> int:
        return self._lease.until_ms

    @property
    def lease_until(self) -> tuple[int, int]:
        """By the clock of leases and by the wall clock."""
        return self._lease.until_ms, self._lease.until_wall_ms

    def lease_valid(self, now: Now) -> bool:
        """For all partitions."""
        return now.mono_ms < self._lease.until_ms and now.wall_ms < self._lease.until_wall_ms

    def leased(self, partition: int, now: Now) -> bool:
        until = self.owners[partition].proved_until
        return self.lease_valid(now) or (now.mono_ms < until.mono_ms and now.wall_ms < until.wall_ms)

    def all_leased(self, now: Now) -> bool:
        """By the brokers, or each partition that is served here by itself."""
        serving = self.serving()
        return self.lease_valid(now) or (bool(serving) and all(self.leased(p, now) for p in serving))

    # ---- requests -----------------------------------------------------------------------------------------
    def partition_of(self, group_id: str) -> int:
        return partition_for(group_id, len(self.owners))

    def owner_of(self, group_id: str) -> Owner:
        return self.owners[partition_for(group_id, len(self.owners))]

    def request(self, token: int, event: Event, now: Now) -> None:
        """Answered by a `Reply` with this token, now or later."""
        if self.stopping or self.tally.open >= self.settings.parked_max:
            self._refuse(token, event, Code.COORDINATOR_NOT_AVAILABLE)
        elif not event.group_id and isinstance(event, ListGroups):
            self._list(token, event, now)
        elif not event.group_id and isinstance(event, KnownGroups):
            self.out.append(Reply(token, KnownReply(groups=frozenset(filter(self.known, event.candidates)))))
        else:
            owner = self.owner_of(event.group_id)
            if self.leased(owner.partition, now):
                owner.request(token, event, now)
            elif owner.phase is Phase.ELSEWHERE or not self.settings.hold_ms:
                self._refuse(token, event, Code.NOT_COORDINATOR)
            else:  # it is this sidecar's, as far as is known; mostly the proof is only late
                self._unproved.hold(Held(token, event, now.mono_ms + self.settings.hold_ms))

    def _go_on_proved(self, now: Now) -> None:
        for h in self._unproved.all():
            owner = self.owner_of(h.event.group_id)
            if self.leased(owner.partition, now):
                self.tally.open -= 1
                owner.request(h.token, h.event, now)
            elif owner.phase is Phase.ELSEWHERE or h.until_ms <= now.mono_ms:
                self._unproved.refuse_one(h, Code.NOT_COORDINATOR)
            else:
                self._unproved.again([h])

    def _refuse(self, token: int, event: Event, code: Code) -> None:
        self.out.append(Reply(token, event.refused(code, TEXT[code])))

    def touch(self, group_id: str, member_id: str, now: Now) -> None:
        """A front has answered this member under a grant, so the member was heard."""
        owner = self.owner_of(group_id)
        if self.leased(owner.partition, now):
            owner.touch(group_id, member_id, now)

    def held_bytes(self) -> int:
        """About what the members of all groups that are served here take in memory."""
        return sum(o.shard.held_bytes for o in self.owners if o.shard is not None)

    def known(self, group_id: str) -> bool:
        owner = self.owner_of(group_id)
        if owner.shard is not None:
            return owner.has(group_id)
        return group_id in self._log.groups(owner.partition)

    def _list(self, token: int, event: ListGroups, now: Now) -> None:
        """Every group whose coordinator is here; a partition that is being taken over fails the whole list (row 1.27
        of docs/reference/behaviour.md). Groups that are being loaded are waited for."""
        mine = [o for o in self.owners if self.leased(o.partition, now)]
        if any(o.phase not in (Phase.ELSEWHERE, Phase.SERVING) for o in mine):
            self.out.append(Reply(token, ListReply(Code.COORDINATOR_LOAD_IN_PROGRESS)))
        elif not any(o.loading.left for o in mine):
            shards = [o.shard for o in mine if o.shard is not None]
            self.out.append(Reply(token, ListReply(groups=tuple(g for s in shards for g in s.listed()))))
        elif self.settings.hold_ms:
            self.tally.open += 1
            self._lists.append(Held(token, event, now.mono_ms + self.settings.hold_ms))
        else:
            self.out.append(Reply(token, ListReply(Code.COORDINATOR_LOAD_IN_PROGRESS)))

    def _list_those_held(self, now: Now) -> None:
        held, self._lists = self._lists, []
        for h in held:
            if now.mono_ms < h.until_ms and any(o.loading.left for o in self.owners):
                self._lists.append(h)
                continue
            self.tally.open -= 1
            if any(o.loading.left for o in self.owners):
                self.out.append(Reply(h.token, ListReply(Code.COORDINATOR_LOAD_IN_PROGRESS)))
            else:
                self._list(h.token, ListGroups(), now)

    # ---- time, topics, settings ---------------------------------------------------------------------------
    def wake(self, now: Now) -> None:
        """To be called every 50 ms or so, and when a timer is due."""
        gap_ms = now.mono_ms - self._woken_ms if self._woken_ms else 0
        self._woken_ms = now.mono_ms
        if gap_ms > GAP_MS:
            self.out.append(Log("the process stood still", {"ms": gap_ms}, "warning"))
        if self._lists:
            self._list_those_held(now)
        for p, owner in enumerate(self.owners):
            valid = self.leased(p, now)
            if gap_ms > GAP_MS or not valid:
                self._deaf_ms[p] += gap_ms
            if valid and self._deaf_ms[p]:
                # Nobody could be heard meanwhile: members get that time back, none is expired for it.
                owner.shift(self._deaf_ms[p], now)
                self._deaf_ms[p] = 0
            owner.wake(now, valid)
            if valid and owner.shard is not None and self._lease.just_proved:
                self._renew(owner, now)
        self._lease.just_proved = False
        if self._unproved:
            self._go_on_proved(now)
        self._tell_problem(now)

    def rest_s(self, now: Now, most_s: float) -> float:
        """How long the driver may rest before the next `wake`: until a timer is due, if that comes before `most_s` is
        over. A timer that is due already waits for something else than its time."""
        most_ms = int(most_s * 1000)
        rest_ms = most_ms
        for owner in self.owners:
            timers = owner.shard.timers if owner.shard is not None else None
            if timers is not None and timers.behind:
                return LEAST_REST_MS / 1000
            due_ms = timers.next_ms() if timers is not None else None
            if due_ms is not None and now.mono_ms < due_ms < now.mono_ms + rest_ms:
                rest_ms = due_ms - now.mono_ms
        return most_s if rest_ms == most_ms else max(rest_ms, LEAST_REST_MS) / 1000

    def _renew(self, owner: Owner, now: Now) -> None:
        """Brokers forget fences. The partitions do not come at once: each has its own share of the interval. Where the
        brokers remember a fence only for a short time, a successor has most of that time to fence with the same id.

        Called only when the brokers have just answered: a renewal that meets a dead broker waits until it is replaced,
        and a partition cannot prove its owner meanwhile. It should have a whole lease before it."""
        part = owner.partition * GOLDEN % 1
        most_ms = min(self.settings.fence_interval_ms, self._fences_kept_ms // FENCES_IN_TIME)
        interval_ms = most_ms * (1 - self.settings.fence_spread * part)
        due = now.mono_ms - owner.fenced_ms > interval_ms and now.mono_ms >= owner.renew_again_ms
        if due and not owner.renewing:
            owner.renew(now)

    def problem(self) -> str:
        """Why partitions cannot be taken over; empty if nothing hinders it."""
        return next((o.problem for o in self.owners if o.problem), "")

    def _tell_problem(self, now: Now) -> None:
        problem = self.problem()
        if problem and now.mono_ms - self._said_ms >= SAY_AGAIN_MS:
            self._said_ms = now.mono_ms
            waiting = sum(bool(o.problem) for o in self.owners)
            told = {"partitions": waiting, "problem": problem}
            self.out.append(Log("partitions cannot be taken over", told, "warning"))

    def topics(self, topics: tuple[Topic, ...], now: Now) -> bool:
        """A listing of all topics; the same object as last time is the same listing. Returns whether one is new."""
        if topics is self._topics:
            return False
        self._topics = topics
        image, changed = self._image.next(topics)
        if changed:
            self._image = image
            for owner in self.owners:
                owner.topics_changed(image, changed, now)
        return bool(changed)

    def config_changed(self, now: Now, fences_kept_ms: int | None = None) -> None:
        """`fences_kept_ms`: how long the brokers remember a fence; None: as before."""
        self._fences_kept_ms = self._fences_kept_ms if fences_kept_ms is None else fences_kept_ms
        for owner in self.owners:
            owner.config_changed(now)

    # ---- what an operator sees ----------------------------------------------------------------------------
    def serving(self) -> list[int]:
        return [o.partition for o in self.owners if o.phase is Phase.SERVING]

    def owner_node(self, group_id: str) -> int:
        """Node id beside which the owner of this group stands; -1 while unknown."""
        p = self.partition_of(group_id)
        return self.map[p] if p < len(self.map) else -1

    def loading(self) -> int:
        return sum(o.phase not in (Phase.ELSEWHERE, Phase.SERVING) for o in self.owners)
