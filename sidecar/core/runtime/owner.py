"""One partition of `__group_state` in one sidecar: serving it from the takeover on, giving it up. No IO, no clock.

The driver of an owner has these duties:
 1. It calls one method at a time, with the time of the call, and carries out the commands in `out`, in their order,
    before it waits for anything. It reports claims and fences (2, 3, 12) to `lifecycle`.
 2. `Fence`: it shuts out every earlier writer (InitProducerId), and then reports `fenced` with the owner epoch.
 3. `Claim`: it appends the claim under that fence, and reports `claimed` with the claim's offset. Records of an
    earlier owner may stand before the claim, so the state is read only after it.
 4. `Follow`: it waits until its copy of the log holds everything through that offset, and until the brokers, asked
    after the fence, have confirmed that they know no newer owner map. Then it reports `replayed`. From then on
    `LogView.groups` and `LogView.records` return the last values of the keys, without void records.
 5. `Append`: it writes the records of one command together or not at all, however many they are, commands in their
    order; for a command without records it writes something that changes nothing. It reports `committed(serial)` when
    that and everything before it is on all in-sync replicas. If that remains unknown, it reports `failed`. It may
    gather many commands in one batch.
 6. A failure of 2 to 5 is reported once, as `failed`, with the attempt that it belongs to; then nothing more of
    that attempt may reach the log as far as the driver can help it.
 7. `Work` always ends in `done`, also when it failed; in the same attempt or never.
 8. It sends a `Reply` to the front of the token's request, and a `Void` before any reply that follows it.
 9. It calls `wake` at least every 100 ms or so, and `load_next` while there is time, until it returns False. A call
    is a small step, so that it can look at the clock.
10. It asks nothing of an owner while its lease is not proved (lease.py).
11. `Occupied`: while a group has members, it holds a member of its own in the broker's group of that name, and sends
    on no commit but in that member's name (coordinator/placeholder/placeholders.py).
12. `Renew`: as 2 and 3, but it goes on serving; appends wait. It reports `renewed` when its copy of the log holds the
    new claim and no other since the last one of this attempt, `not_renewed` if there is no new fence, else `failed`.
13. `leases_end_ms` returns the end of the former owners' leases. If it learns of an earlier end, it calls
    `Shard.set_former_leases_end`.

In return: a request is answered once, never before the records of its group are committed, and with NOT_COORDINATOR
if that becomes impossible. Any exception in a turn drops the state in memory, and the partition is built anew from the
log.
"""

from __future__ import annotations

from collections.abc import Callable

from sidecar.core.runtime.commands import Append, Command, Occupied, Void, Work
from sidecar.core.runtime.deferred_replies import DeferredReplies
from sidecar.core.runtime.effects import Count, Effects, Log
from sidecar.core.runtime.events import NO_TOKEN, Event
from sidecar.core.runtime.group_loader import GroupLoader
from sidecar.core.runtime.lease import PartitionLease
from sidecar.core.runtime.lifecycle import Lifecycle
from sidecar.core.runtime.pending_requests import Held, LogView, Tally, Waiting, refuse
from sidecar.core.runtime.phases import Phase
from sidecar.core.runtime.registry import Registry
from sidecar.core.runtime.settings import ServiceSettings
from sidecar.core.runtime.shard import Shard
from sidecar.core.runtime.timers import TimersBudget
from sidecar.core.runtime.turn import Now, Ports
from sidecar.core.vocabulary.errors import Code
from sidecar.core.vocabulary.topics import TopicImage

STEP, REQUESTS = 16, 4
"""Records, and waiting requests, of one step of loading: less than a millisecond."""


class Owner:
    def __init__(
        self,
        partition: int,
        registry: Registry,
        ports: Ports,
        log: LogView,
        lease: PartitionLease,
        settings: ServiceSettings,
        tally: Tally,
        out: list[Command],
    ) -> None:
        self.partition = partition
        self.lifecycle = Lifecycle(partition, out)
        self.lease = lease
        self.shard: Shard | None = None
        """None unless the partition is served."""
        self.loader = GroupLoader(partition, log, settings, self._report_occupied, tally, out)
        self.image = TopicImage()
        self.leases_end_ms: Callable[[Now], int] = lambda now: now.mono_ms + ports.lease_ms
        self._registry, self._ports = registry, ports
        self._hold_ms = settings.hold_ms
        self.held = Waiting(tally, out)
        """Requests that came during the takeover."""
        self._replies = DeferredReplies(lease, tally, out)
        self._occupied: set[str] = set()
        """Groups with members, as last reported to the driver."""
        self._tally, self._out = tally, out

    @property
    def phase(self) -> Phase:
        return self.lifecycle.phase

    @property
    def attempt(self) -> int:
        return self.lifecycle.attempt

    # ---- when it begins and ends to serve -------------------------------------------------------------------
    def replayed(self, attempt: int, now: Now) -> None:
        if self.lifecycle.replayed(attempt, now):
            self.shard = Shard(
                self._registry,
                self._ports,
                self.image,
                former_leases_end_ms=self.leases_end_ms(now),
                closed_until_ms=self._ports.quarantine.closed_until_ms(now.mono_ms),
                waits_ms=self._replies.waits_ms,
            )
            self.lifecycle.took_over(self.loader.begin(self.shard, self.held.all()))

    def proved(self, attempt: int, until: Now) -> None:
        """Takes in that a fenced write is committed. The write began a lease that ends at `until`."""
        if self.lifecycle.serves(attempt):
            self.lease.proved(until)

    def resigned(self, why: str) -> None:
        if self.lifecycle.resigned(why):
            self._drop()
            self.held.refuse(Code.NOT_COORDINATOR)

    def failed(self, attempt: int, why: str, shut_out: bool, now: Now) -> None:
        """Takes in that a fence, a claim or an append failed. `shut_out`: because another sidecar owns the partition
        now."""
        if self.lifecycle.failed(attempt, why, shut_out, now):
            self._drop()

    def _broken(self, exc: Exception, now: Now) -> None:
        """Drops the state after a bug or a contradiction in it: memory cannot be trusted any more, the log can."""
        fields = {"partition": self.partition, "error": repr(exc), "trace": exc}
        self._out.append(Count("invariant_violations"))
        self._out.append(Log("a turn broke; the partition is rebuilt from the log", fields, "error"))
        if self.shard is not None:
            self._out.append(Void(tuple(self.shard.soft)))  # the turn's own voids are lost with its effects
        self.lifecycle.broken(f"a turn broke: {exc!r}", now)
        self._drop()

    def _drop(self) -> None:
        """Forgets the state, and refuses every open request with NOT_COORDINATOR, so that clients find the next
        coordinator."""
        shard, self.shard = self.shard, None
        self.lease.unproved()
        self.held.again(self.loader.stop())
        self._occupied.clear()
        if shard is not None:
            shard.end()
            granted = tuple(g for g, soft in shard.soft.items() if soft.granted)
            if granted:
                self._out.append(Void(granted))
        replies, self._replies = self._replies, DeferredReplies(self.lease, self._tally, self._out)
        replies.refuse_open(Code.NOT_COORDINATOR)

    # ---- requests -----------------------------------------------------------------------------------------
    def request(self, token: int, event: Event, now: Now) -> None:
        queue = self.loader.queue
        if queue.left or queue.behind:
            try:
                if self.loader.must_wait(event.group_id, now):
                    self.loader.hold(token, event, now)
                    return
            except Exception as exc:  # noqa: BLE001 - the first time; the second time the group stays out
                self._broken(exc, now)
        self._answer(token, event, now)

    def _answer(self, token: int, event: Event, now: Now) -> None:
        """Answers a request whose group is loaded. Holds it if the shard was dropped meanwhile."""
        shard = self.shard
        if shard is None:
            self._hold(token, event, now)
        elif event.group_id in self.loader.unreadable:
            self.loader.refuse_unreadable(token, event)
        else:
            self._replies.opened(token, event)
            try:
                fx = shard.handle(event, token, now)
            except Exception as exc:  # noqa: BLE001 - whatever a turn raises, its shard is dropped
                self._broken(exc, now)
            else:
                self._settle(shard, fx, now, event)

    def _hold(self, token: int, event: Event, now: Now) -> None:
        """Holds the request for a while during a takeover: COORDINATOR_LOAD_IN_PROGRESS costs clients more than a slow
        answer."""
        if self.phase is Phase.ELSEWHERE or not self._hold_ms:
            loading = self.phase is not Phase.ELSEWHERE
            code = Code.COORDINATOR_LOAD_IN_PROGRESS if loading else Code.NOT_COORDINATOR
            refuse(self._out, token, event, code)
        else:
            self.held.hold(Held(token, event, now.mono_ms + self._hold_ms))

    def done(self, attempt: int, event: Event, now: Now) -> None:
        """Takes in the end of background work."""
        if attempt == self.attempt:
            self._run(lambda shard: shard.handle(event, NO_TOKEN, now), now, event)

    def touch(self, group_id: str, member_id: str, now: Now) -> None:
        """Takes in that a front answered this member under a grant."""
        if self.shard is not None:
            try:
                self.shard.touch(group_id, member_id, now)
            except Exception as exc:  # noqa: BLE001 - whatever a turn raises, its shard is dropped
                self._broken(exc, now)

    def has(self, group_id: str) -> bool:
        """Whether there are records of this group."""
        return self.loader.has(group_id)

    # ---- turns --------------------------------------------------------------------------------------------
    def _run(self, turn: Callable[[Shard], Effects | None], now: Now, event: Event | None = None) -> None:
        shard = self.shard
        if shard is None:
            return
        try:
            fx = turn(shard)
        except Exception as exc:  # noqa: BLE001 - whatever a turn raises, its shard is dropped
            self._broken(exc, now)
        else:
            if fx is not None:
                self._settle(shard, fx, now, event)

    def _settle(self, shard: Shard, fx: Effects, now: Now, event: Event | None) -> None:
        if self._ports.turns is not None:
            self._ports.turns(self.partition, event, fx, now)
        out = self._out
        if fx.records or fx.proved:
            # Emptied effects are as new, so the next event need not make others.
            records, fx.records = fx.records, []
            groups = dict.fromkeys(r.group_id for r in records)
            if fx.proved:
                groups |= dict.fromkeys(fx.proved)
                fx.proved = []
            out.append(Append(self.partition, self.attempt, self._replies.append(groups, now.mono_ms), records))
            for group_id in groups:
                members = shard.has_committers(group_id)
                if members != (group_id in self._occupied):
                    self._report_occupied(group_id, members)
        if fx.notes:
            out += fx.notes
            fx.notes = []
        for item in fx.background:
            out.append(Work(self.partition, self.attempt, item))
        if fx.voided:
            out.append(Void(tuple(fx.voided)))
        replies, fx.replies = fx.replies, []
        for reply in replies:
            self._replies.send(reply, shard, now)

    def _report_occupied(self, group_id: str, members: bool) -> None:
        (self._occupied.add if members else self._occupied.discard)(group_id)
        self._out.append(Occupied(self.partition, group_id, members))

    def committed(self, attempt: int, serial: int, now: Now) -> None:
        if attempt == self.attempt and self.shard is not None:
            self._replies.committed(serial, self.shard, now)

    @property
    def idle(self) -> bool:
        """Whether every append is committed."""
        return self._replies.idle

    # ---- time, topics, settings ---------------------------------------------------------------------------
    def wake(self, now: Now, budget: TimersBudget, proved: bool = True) -> None:
        """Runs due timers of groups and of the takeover, at most as many as `budget` has left. Not `proved`: the lease
        is over, and the partition may have another owner by now, which must not be shut out."""
        if self.held:
            self.held.refuse(Code.COORDINATOR_LOAD_IN_PROGRESS, now.mono_ms)
        if self.loader.queue.behind:
            self.loader.refuse_late(now)
        if not proved:
            return
        self.lifecycle.wake(now)
        if self.shard is not None:
            timers = self.shard.timers
            due = timers.next_ms(budget)
            timers.behind = due is not None and due <= now.mono_ms
            if timers.behind:
                self._run(lambda shard: shard.wake(now, budget), now)

    def shift(self, by_ms: int, now: Now) -> None:
        """Moves all deadlines later by a time in which no heartbeat could arrive, up to the time since serving began
        here."""
        if self.shard is not None:
            self.shard.timers.shift(min(by_ms, now.mono_ms - self.lifecycle.served_ms))

    def topics_changed(self, image: TopicImage, changed: frozenset[str], now: Now) -> None:
        self.image = image
        self._run(lambda shard: shard.topics_changed(image, changed, now), now)

    def config_changed(self, now: Now, group_id: str = "") -> None:
        self._run(lambda shard: shard.config_changed(now, group_id), now)

    def load_next(self, now: Now, count: int = STEP) -> bool:
        """Takes one step of `count` records, or of a few waiting requests. Returns False if nothing is left to do."""
        loader = self.loader
        self._tally.loaded_at_once = 0
        group_id = loader.queue.next()
        if group_id is None:
            return False
        if group_id in loader.queue.left:
            self._run(lambda shard: loader.step(group_id, count, now), now)
        else:
            for h in loader.take(group_id, REQUESTS):
                self._answer(h.token, h.event, now)
        return True
