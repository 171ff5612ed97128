"""The group coordinator of one sidecar: dispatches requests to partitions, and handles the concerns of all partitions.

Beside the duties in owner.py, the driver has these. It reports `Lease.extended` whenever the brokers have answered,
with the time at which it *asked* them. It reports `proved` of an owner when a write is committed that proves it
(lease.py), `assigned` when the owners' group has a new map, and `lost` when this sidecar is out of that group.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from sidecar.core.runtime.commands import Command
from sidecar.core.runtime.effects import Log
from sidecar.core.runtime.events import FOR_EVER_MS, Event, GroupsWithRecords, ListGroups
from sidecar.core.runtime.group_listing import GroupListing
from sidecar.core.runtime.lease import Lease, PartitionLease
from sidecar.core.runtime.lost_time import LostTime
from sidecar.core.runtime.owner import Owner
from sidecar.core.runtime.owner_map import OwnerMap
from sidecar.core.runtime.pending_requests import Held, LogView, Tally, Waiting, refuse
from sidecar.core.runtime.phases import Phase
from sidecar.core.runtime.registry import Registry
from sidecar.core.runtime.settings import ServiceSettings
from sidecar.core.runtime.timers import TimersBudget
from sidecar.core.runtime.turn import Now, Ports
from sidecar.core.vocabulary.errors import Code
from sidecar.core.vocabulary.placement import partition_for
from sidecar.core.vocabulary.topics import Topic, TopicImage

LOG_AGAIN_MS = 5_000
GOLDEN = 0.6180339887
"""Golden ratio minus one: the fractional parts of its multiples spread evenly, however many they are."""
FENCES_IN_TIME = 4
"""A fence is renewed at least this many times within the time for which brokers remember it."""
PROVED_AT_ONCE = 64
"""Requests that go on in one `wake` after they waited for a lease: thousands may have waited."""
LEAST_REST_MS = 5
"""Timers that are due within this time of each other are handled together."""


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
        self.registry = registry
        self.settings = settings or ServiceSettings()
        self.out: list[Command] = []
        self.tally = Tally()
        self.lease = Lease()
        ports = replace(ports, limits=replace(ports.limits, held=self.held_bytes))
        self.owners = [
            Owner(p, registry, ports, log, PartitionLease(self.lease), self.settings, self.tally, self.out)
            for p in range(partitions)
        ]
        self.owner_map = OwnerMap(node_id, self.out)
        self.stopping = False
        self._listing = GroupListing(self.owners, log, self.settings.hold_ms, self.tally, self.out)
        self._image = TopicImage()
        self._topics: tuple[Topic, ...] = ()
        self._unproved: dict[int, Waiting] = {}
        """By partition served here: its requests since it had no lease. Newer ones wait behind them."""
        self._fences_kept_ms = FOR_EVER_MS
        self._lost_time = LostTime(partitions)
        self._logged_ms = -LOG_AGAIN_MS

    # ---- ownership ----------------------------------------------------------------------------------------
    def assigned(self, owners: Sequence[int], generation: int, members: Collection[int], now: Now) -> None:
        """Takes in a new map of the owners' group. `members`: node ids of the sidecars in it."""
        owned = self.owner_map.next(owners)
        gained = [p for p in owned if self.owners[p].phase is Phase.ELSEWHERE]
        self.owner_map.log(generation, len(owned), len(gained), len(members))
        for p, owner in enumerate(self.owners):
            if p not in owned:
                owner.resigned("moved to another sidecar")
        for p in gained:
            self.owners[p].lifecycle.assigned(now, self.owner_map.why(p, members))

    def lost(self, why: str) -> None:
        """Resigns all partitions: this sidecar is out of the owners' group, and owns nothing until it is assigned
        again."""
        owned = sum(o.phase is not Phase.ELSEWHERE for o in self.owners)
        self.out.append(Log("ownership lost", {"why": why, "partitions": owned}, "warning"))
        self.lease.lost()
        self.owner_map.lost()
        for waiting in self._unproved.values():
            waiting.refuse(Code.NOT_COORDINATOR)
        self._unproved.clear()
        self.resign_all(why)

    def map_missed(self) -> None:
        """Takes in that there may have been an owner map of which this sidecar knows nothing. Takeovers begin anew with
        the next one. The lease is in doubt until the driver has proved what is served."""
        self.out.append(Log("an owner map was missed", {"serving": len(self.serving())}))
        self.lease.in_doubt = True
        for owner in self.owners:
            if owner.phase is Phase.SERVING:
                owner.lease.unproved()
            else:
                owner.resigned("an owner map was missed")

    def resign_all(self, why: str) -> None:
        for owner in self.owners:
            owner.resigned(why)

    def all_leased(self, now: Now) -> bool:
        """Whether a lease covers all partitions served here: the brokers' lease, or a proof for each partition."""
        serving = self.serving()
        return self.lease.valid(now) or (bool(serving) and all(self.owners[p].lease.valid(now) for p in serving))

    # ---- requests -----------------------------------------------------------------------------------------
    def partition_of(self, group_id: str) -> int:
        return partition_for(group_id, len(self.owners))

    def owner_of(self, group_id: str) -> Owner:
        return self.owners[partition_for(group_id, len(self.owners))]

    def request(self, token: int, event: Event, now: Now) -> None:
        """Handles a request. Its answer is a `Reply` with this token, now or later."""
        if self.stopping or self.tally.open >= self.settings.parked_max:
            refuse(self.out, token, event, Code.COORDINATOR_NOT_AVAILABLE)
        elif not event.group_id and isinstance(event, ListGroups):
            self._listing.answer_list(token, event, now)
        elif not event.group_id and isinstance(event, GroupsWithRecords):
            self._listing.answer_groups_with_records(token, event)
        else:
            owner = self.owner_of(event.group_id)
            valid = owner.lease.valid(now)
            if valid and owner.partition in self._unproved:
                # An older request of the same member must not come after this one.
                self._go_on_proved(owner, now)
            if valid and owner.partition not in self._unproved:
                owner.request(token, event, now)
            elif owner.phase is Phase.ELSEWHERE or not self.settings.hold_ms:
                refuse(self.out, token, event, Code.NOT_COORDINATOR)
            else:  # probably still this sidecar's: mostly the proof is only late
                waiting = self._unproved.setdefault(owner.partition, Waiting(self.tally, self.out))
                waiting.hold(Held(token, event, now.mono_ms + self.settings.hold_ms))

    def _go_on_proved(self, owner: Owner, now: Now) -> None:
        """Lets requests of this partition go on that waited for the lease, the oldest first; PROVED_AT_ONCE of all
        partitions before the next `wake`."""
        waiting = self._unproved[owner.partition]
        while waiting and self.tally.went_on < PROVED_AT_ONCE and owner.lease.valid(now):
            self.tally.went_on += 1
            h = waiting.take_oldest()
            owner.request(h.token, h.event, now)
        if not owner.lease.valid(now):
            waiting.refuse(Code.NOT_COORDINATOR, None if owner.phase is Phase.ELSEWHERE else now.mono_ms)
        if not waiting:
            del self._unproved[owner.partition]

    def touch(self, group_id: str, member_id: str, now: Now) -> None:
        """Takes in that a front has answered this member's heartbeat under a grant."""
        owner = self.owner_of(group_id)
        if owner.lease.valid(now):
            owner.touch(group_id, member_id, now)

    def held_bytes(self) -> int:
        """About how many bytes the members of all groups that are served here take in memory."""
        return sum(o.shard.held_bytes for o in self.owners if o.shard is not None)

    # ---- time, topics, settings ---------------------------------------------------------------------------
    def wake(self, now: Now) -> None:
        """Runs due work. The driver calls this every 50 ms or so, and when a timer is due. If there is too much for one
        call, the rest waits for the next one, and `rest_s` is short."""
        if pause_ms := self._lost_time.woken(now):
            self.out.append(Log("the process stood still", {"ms": pause_ms}, "warning"))
        self._listing.go_on(now)
        answered = self.lease.take_answered()
        budget = TimersBudget()
        first = now.mono_ms % len(self.owners)  # another one each time, so that all have their part of the work
        for owner in (*self.owners[first:], *self.owners[:first]):
            valid = owner.lease.valid(now)
            if lost_ms := self._lost_time.take(owner.partition, valid):
                owner.shift(lost_ms, now)
            owner.wake(now, budget, valid)
            if valid and owner.shard is not None and answered:
                self._renew(owner, now)
        self.tally.went_on = 0
        for p in list(self._unproved):
            self._go_on_proved(self.owners[p], now)
        self._log_problem(now)

    def rest_s(self, now: Now, most_s: float) -> float:
        """Returns how long the driver may rest before the next `wake`: until a timer is due, at most `most_s`. An
        overdue timer does not shorten the rest: it waits for something else than its time."""
        most_ms = int(most_s * 1000)
        rest_ms = most_ms
        if any(self.owners[p].lease.valid(now) for p in self._unproved):
            return LEAST_REST_MS / 1000
        budget = TimersBudget()
        for owner in self.owners:
            timers = owner.shard.timers if owner.shard is not None else None
            if timers is not None and timers.behind:
                return LEAST_REST_MS / 1000
            due_ms = timers.next_ms(budget) if timers is not None else None
            if due_ms is not None and now.mono_ms < due_ms < now.mono_ms + rest_ms:
                rest_ms = due_ms - now.mono_ms
        return most_s if rest_ms == most_ms else max(rest_ms, LEAST_REST_MS) / 1000

    def _renew(self, owner: Owner, now: Now) -> None:
        """Renews the owner's fence if it is due, because brokers forget fences. Each partition has its own share of the
        interval, so that they do not come all at once. Where brokers remember a fence only for a short time, a
        successor has most of that time to fence with the same id.

        Called only when the brokers have just answered. A renewal that meets a dead broker waits until it is replaced,
        and the partition cannot prove its owner meanwhile: it should start with a whole lease."""
        part = owner.partition * GOLDEN % 1
        most_ms = min(self.settings.fence_interval_ms, self._fences_kept_ms // FENCES_IN_TIME)
        interval_ms = most_ms * (1 - self.settings.fence_spread * part)
        if owner.lifecycle.renewal_due(interval_ms, now):
            owner.lifecycle.renew()

    def problem(self) -> str:
        """Returns the reason why partitions cannot be taken over; empty if none."""
        return next((o.lifecycle.problem for o in self.owners if o.lifecycle.problem), "")

    def _log_problem(self, now: Now) -> None:
        problem = self.problem()
        if problem and now.mono_ms - self._logged_ms >= LOG_AGAIN_MS:
            self._logged_ms = now.mono_ms
            waiting = sum(bool(o.lifecycle.problem) for o in self.owners)
            fields = {"partitions": waiting, "problem": problem}
            self.out.append(Log("partitions cannot be taken over", fields, "warning"))

    def topics(self, topics: tuple[Topic, ...], now: Now) -> bool:
        """Takes in a listing of all topics. The same object as last time is the same listing. Returns whether a topic
        has changed."""
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
        """Takes in changed settings. `fences_kept_ms`: how long the brokers remember a fence; None: as before."""
        self._fences_kept_ms = self._fences_kept_ms if fences_kept_ms is None else fences_kept_ms
        for owner in self.owners:
            owner.config_changed(now)

    # ---- what an operator sees ----------------------------------------------------------------------------
    def serving(self) -> list[int]:
        return [o.partition for o in self.owners if o.phase is Phase.SERVING]

    def owner_node(self, group_id: str) -> int:
        """Returns the node id of the broker beside this group's owner; -1 while unknown."""
        return self.owner_map.node(self.partition_of(group_id))

    def loading(self) -> int:
        return sum(o.phase not in (Phase.ELSEWHERE, Phase.SERVING) for o in self.owners)
