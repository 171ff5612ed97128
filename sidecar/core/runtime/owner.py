"""One partition of `__group_state` in one sidecar: taking it over, serving it, giving it up. No IO, no clock.

          assigned          fenced            claimed             replayed
ELSEWHERE ────────► FENCING ───────► CLAIMING ────────► REPLAYING ─────────► SERVING
                       ▲                │ failed           │ failed             │ failed, broken
                       │ rested         ▼                  ▼                    ▼
                       └──────────── PAUSING ◄─────────────┴────────────────────┘
From each of them `released` leads back to ELSEWHERE.

Whoever drives an owner has these duties:
 1. It calls one method at a time, with the time of the call, and carries out the commands in `out`, in their order,
    before it waits for anything.
 2. `Fence`: it shuts out every earlier writer (InitProducerId), and then reports `fenced` with the owner epoch.
 3. `Claim`: it appends the claim under that fence, and reports `claimed` with the claim's offset. Records of an
    earlier owner may still have come in between: so the state is read only after the claim.
 4. `Follow`: it waits until its copy of the log holds everything through that offset, and reports `replayed`. From
    then on `Log.groups` and `Log.records` give the last values of the keys, void records left out.
 5. `Append`: it writes the records of one command together or not at all, however many they are, commands in their
    order, and reports `committed(serial)` when that and everything before it is on all in-sync replicas. If it cannot
    say so in the end, it reports `failed`. It may gather many commands in one batch.
 6. A failure of 2 to 5 is reported once, as `failed`, with the attempt that it belongs to; then nothing more of
    that attempt may reach the log as far as the driver can help it.
 7. `Work` always ends in `done`, also when it failed; in the same attempt or never.
 8. It sends a `Reply` to whoever holds the token, and a `Void` before any reply that follows it.
 9. It calls `wake` at least every 100 ms or so, and `load_next` while there is time, until it returns False. A call
    is a small step, so that it can look at the clock.
10. It asks nothing of an owner while its lease is not proved (lease.py).
11. `Occupied`: while a group has members, it holds a member of its own in the broker's group of that name, and sends
    on no commit but in that member's name (coordinator/placeholder/placeholders.py).
12. `Renew`: as 2 and 3, but it goes on serving; appends wait. It reports `renewed` when its copy of the log holds the
    new claim and no other since the last one of this attempt, `not_renewed` if there is no new fence, else `failed`.
13. `leases_end_ms` tells when the last lease of a former owner ends; if that is earlier, `Shard.doubt_ends` hears it.

In return: a request is answered once, never before the records of its group are committed, and with NOT_COORDINATOR
if that becomes impossible. Any exception in a turn drops the state in memory, and the partition is built anew from the
log.
"""

from __future__ import annotations

from collections.abc import Callable
from traceback import format_exception

from sidecar.core.runtime.commands import (
    Append,
    Claim,
    Command,
    Fence,
    Follow,
    Occupied,
    Renew,
    Stop,
    TookOver,
    Void,
    Work,
)
from sidecar.core.runtime.deferred_replies import Unsent
from sidecar.core.runtime.effects import Count, Effects, Log, Reply
from sidecar.core.runtime.events import NO_TOKEN, Event
from sidecar.core.runtime.group_loader import Build
from sidecar.core.runtime.lease import PartitionLease
from sidecar.core.runtime.load_queue import Loading
from sidecar.core.runtime.pending_requests import Held, LogView, Tally, Waiting, refuse
from sidecar.core.runtime.phases import TRANSITIONS, Phase
from sidecar.core.runtime.registry import Registry
from sidecar.core.runtime.settings import ServiceSettings
from sidecar.core.runtime.shard import Shard
from sidecar.core.runtime.turn import Now, Ports
from sidecar.core.vocabulary.errors import TEXT, Code, InvariantError
from sidecar.core.vocabulary.topics import TopicImage

RETRY_MS, RETRY_MAX_MS = 50, 2_000
"""Between two attempts at a takeover: doubled each time, up to the second."""
REBUILD_MS, RENEW_AGAIN_MS = 100, 10_000
STEP, REQUESTS = 16, 4
"""Records, and requests that have waited, of one step of loading: less than a millisecond."""
FENCED_MS = 1_000
"""After another sidecar has shut this one out: the brokers' group will say soon who owns the partition."""


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
        self.phase = Phase.ELSEWHERE
        self.attempt = 0
        self.shard: Shard | None = None
        self.loading = Loading()
        """Groups that are not loaded yet since the takeover, and who waits for them."""
        self.unreadable: dict[str, str] = {}
        """Groups with unreadable records, and why. They are refused: such a record may assign what looks free."""
        self._failed_once: set[str] = set()
        """Groups that could not be loaded when this was last tried, for no reason that the records give."""
        self.image = TopicImage()
        self.problem = ""
        """Why the last attempt to take over failed; empty once one has succeeded."""
        self.lease = lease
        self._registry, self._ports, self._log = registry, ports, log
        self._hold_ms, self._load_at_once = settings.hold_ms, settings.load_at_once
        self._tally, self._out = tally, out
        self.leases_end_ms: Callable[[Now], int] = lambda now: now.mono_ms + ports.lease_ms
        self._occupied: set[str] = set()
        """Groups with members, as the driver was told."""
        self._unsent = Unsent()
        self._held = Waiting(tally, out)
        self._owner_epoch = -1
        self._rest_until_ms = 0
        self._pause_ms, self._why = RETRY_MS, ""
        self.fenced_ms, self.renew_again_ms, self.renewing = 0, 0, False
        self._since_ms = self._claimed_ms = self._served_ms = 0

    # ---- ownership ----------------------------------------------------------------------------------------
    def assigned(self, now: Now, why: str) -> None:
        self._pause_ms, self._since_ms = RETRY_MS, now.mono_ms
        self._begin("assigned", why)

    def released(self, why: str) -> None:
        self.problem = ""
        if self.phase is not Phase.ELSEWHERE:
            self._drop("released", why)
            self._held.refuse(Code.NOT_COORDINATOR)

    def renew(self, now: Now) -> None:
        """Brokers forget fences."""
        self.renewing = True
        self._out.append(Renew(self.partition, self.attempt))

    def renewed(self, attempt: int, owner_epoch: int, now: Now) -> None:
        if attempt == self.attempt and self.phase is Phase.SERVING:
            self._owner_epoch, self.fenced_ms, self.renewing = owner_epoch, now.mono_ms, False

    def not_renewed(self, attempt: int, why: str, now: Now) -> None:
        """The former fence goes on; the next try comes soon."""
        if attempt == self.attempt and self.phase is Phase.SERVING:
            self.renew_again_ms, self.renewing = now.mono_ms + RENEW_AGAIN_MS, False
            told = {"partition": self.partition, "why": why}
            self._out.append(Log("the fence is not renewed, trying again", told, "warning"))

    def fenced(self, attempt: int, owner_epoch: int, now: Now) -> None:
        if attempt == self.attempt and self.phase is Phase.FENCING:
            self._go("fenced")
            self._owner_epoch, self.fenced_ms = owner_epoch, now.mono_ms
            self._out.append(Claim(self.partition, attempt, self._why))

    def claimed(self, attempt: int, offset: int, now: Now) -> None:
        if attempt == self.attempt and self.phase is Phase.CLAIMING:
            self._go("claimed")
            self._claimed_ms = now.mono_ms
            self._out.append(Follow(self.partition, attempt, offset))

    def replayed(self, attempt: int, now: Now) -> None:
        if attempt != self.attempt or self.phase is not Phase.REPLAYING:
            return
        self._go("replayed")
        self.problem = ""
        self.loading = Loading(self._log.groups(self.partition))
        until_ms = self.leases_end_ms(now), self._ports.anew.closed_until_ms(now.mono_ms)
        self.shard = Shard(self._registry, self._ports, self.image, *until_ms, self._unsent.waits_ms)
        self._served_ms = now.mono_ms
        ms = now.mono_ms - self._since_ms
        groups = len(self.loading.left)
        self._out.append(TookOver(self.partition, self._owner_epoch, groups, ms))
        told = {
            "partition": self.partition,
            "owner_epoch": self._owner_epoch,
            "groups": groups,
            "ms": ms,
            "fence_ms": self.fenced_ms - self._since_ms,
            "claim_ms": self._claimed_ms - self.fenced_ms,
        }
        self._out.append(Log("took over", told, "info" if groups else "debug"))
        for h in self._held.all():
            self.loading.hold(h, self._log.size(self.partition, h.event.group_id))

    def proved(self, attempt: int, until: Now) -> None:
        """A fenced write is committed that began a lease before `until`."""
        if attempt == self.attempt and self.phase is Phase.SERVING:
            self.lease.proved(until)

    def failed(self, attempt: int, why: str, shut_out: bool, now: Now) -> None:
        """A fence, a claim or an append failed. `shut_out`: because another sidecar owns the partition now."""
        if attempt != self.attempt or self.phase in (Phase.ELSEWHERE, Phase.PAUSING):
            return
        if self.phase is Phase.SERVING:
            self._out.append(Count("fenced", ("fenced" if shut_out else "write lost",)))
            self._out.append(Log("shard dropped", {"partition": self.partition, "why": why}, "error"))
            rest_ms = FENCED_MS if shut_out else REBUILD_MS
        else:
            self.problem = why
            told = {"partition": self.partition, "error": why}
            self._out.append(Log("takeover failed, trying again", told, "debug"))
            rest_ms, self._pause_ms = self._pause_ms, min(2 * self._pause_ms, RETRY_MAX_MS)
        self._rest(why, rest_ms, now)

    def _broken(self, exc: Exception, now: Now) -> None:
        """A bug, or a contradiction in the state: what is in memory cannot be trusted any more, the log can."""
        trail = "".join(format_exception(exc)[-3:])
        told = {"partition": self.partition, "error": repr(exc), "trail": trail}
        self._out.append(Count("invariant_violations"))
        self._out.append(Log("a turn broke; the partition is rebuilt from the log", told, "error"))
        if self.shard is not None:
            self._out.append(Void(tuple(self.shard.soft)))  # what the turn itself voided is lost with its effects
        self._rest(f"a turn broke: {exc!r}", REBUILD_MS, now)

    def _rest(self, why: str, rest_ms: int, now: Now) -> None:
        if self.phase is Phase.SERVING:
            self._since_ms = now.mono_ms
        self._drop("failed", why)
        self._rest_until_ms = now.mono_ms + rest_ms

    # ---- requests -----------------------------------------------------------------------------------------
    def request(self, token: int, event: Event, now: Now) -> None:
        shard = self.shard
        if shard is None:
            self._hold(token, event, now)
            return
        if self.loading.left or self.loading.behind:
            if self._comes_later(shard, token, event, now):
                return
            shard = self.shard
            if shard is None:  # loading the group has broken it
                self._hold(token, event, now)
                return
        self._answer(shard, token, event, now)

    def _answer(self, shard: Shard, token: int, event: Event, now: Now) -> None:
        self._unsent.open[token] = event
        self._tally.open += 1
        try:
            if event.group_id in self.unreadable:
                self._refuse_unreadable(token, event)
                return
            fx = shard.handle(event, token, now)
        except Exception as exc:  # noqa: BLE001 - whatever a turn raises, its shard is dropped
            self._broken(exc, now)
            return
        self._settle(fx, now)

    def done(self, attempt: int, event: Event, now: Now) -> None:
        """Background work has ended."""
        if attempt == self.attempt and self.shard is not None:
            shard = self.shard
            self._run(lambda: shard.handle(event, NO_TOKEN, now), now)

    def touch(self, group_id: str, member_id: str, now: Now) -> None:
        """A front answered this member under a grant."""
        if self.shard is not None:
            try:
                self.shard.touch(group_id, member_id, now)
            except Exception as exc:  # noqa: BLE001 - whatever a turn raises, its shard is dropped
                self._broken(exc, now)

    def _hold(self, token: int, event: Event, now: Now) -> None:
        """Clients do worse with COORDINATOR_LOAD_IN_PROGRESS than with a slow answer: wait for the takeover a while."""
        if self.phase is Phase.ELSEWHERE or not self._hold_ms:
            loading = self.phase is not Phase.ELSEWHERE
            code = Code.COORDINATOR_LOAD_IN_PROGRESS if loading else Code.NOT_COORDINATOR
            refuse(self._out, token, event, code)
        else:
            self._held.hold(Held(token, event, now.mono_ms + self._hold_ms))

    def _comes_later(self, shard: Shard, token: int, event: Event, now: Now) -> bool:
        """Whether the request has to wait until its group is loaded. A small group is loaded now."""
        group_id, loading = event.group_id, self.loading
        if not loading.comes_later(group_id):
            return False
        size = self._log.size(self.partition, group_id)
        if group_id not in loading.behind and group_id not in loading.builds and size <= self._load_at_once:
            try:
                while group_id in loading.left:
                    self._load(shard, group_id, self._load_at_once, now)
            except Exception as exc:  # noqa: BLE001 - the first time; the second time the group stays out
                self._broken(exc, now)
            return False
        if self._hold_ms:
            self._tally.open += 1
            loading.hold(Held(token, event, now.mono_ms + self._hold_ms), size)
        else:
            loading.want(group_id, size)
            refuse(self._out, token, event, Code.COORDINATOR_LOAD_IN_PROGRESS)
        return True

    # ---- commits ------------------------------------------------------------------------------------------
    def committed(self, attempt: int, serial: int, now: Now) -> None:
        if attempt != self.attempt or self.shard is None:
            return
        for reply in self._unsent.committed(serial):
            self._release(self.shard, reply, now)

    @property
    def idle(self) -> bool:
        """Everything that was written is committed."""
        return self._unsent.idle

    def _run(self, turn: Callable[[], Effects], now: Now) -> None:
        try:
            fx = turn()
        except Exception as exc:  # noqa: BLE001 - whatever a turn raises, its shard is dropped
            self._broken(exc, now)
        else:
            self._settle(fx, now)

    def _settle(self, fx: Effects, now: Now) -> None:
        out, shard = self._out, self.shard
        assert shard is not None
        if fx.records:
            # What is taken out leaves the effects as new, and the next event need not make others.
            records, fx.records = fx.records, []
            groups = dict.fromkeys(r.group_id for r in records)
            out.append(Append(self.partition, self.attempt, self._unsent.append(groups, now.mono_ms), records))
            for group_id in groups:
                members = shard.has_committers(group_id)
                if members != (group_id in self._occupied):
                    self._tell_occupied(group_id, members)
        if fx.notes:
            out += fx.notes
            fx.notes = []
        for item in fx.background:
            out.append(Work(self.partition, self.attempt, item))
        if fx.voided:
            out.append(Void(tuple(fx.voided)))
        replies, fx.replies = fx.replies, []
        for reply in replies:
            if not self._unsent.hold(reply):
                self._release(shard, reply, now)

    def _release(self, shard: Shard, reply: Reply, now: Now) -> None:
        event = self._unsent.open.pop(reply.token, None)
        if event is None:
            return
        self._tally.open -= 1
        if not self.lease.valid(now):  # it waited while the lease ended: another owner may have decided otherwise since
            refuse(self._out, reply.token, event, Code.NOT_COORDINATOR)
            return
        grant = reply.grant
        if grant is not None:
            soft = shard.soft.get(grant.group_id)
            if soft is not None and soft.revision == grant.revision:
                soft.granted = True
            else:
                reply.grant = None  # the group has changed while the answer waited
        self._out.append(reply)

    # ---- time, topics, settings ---------------------------------------------------------------------------
    def wake(self, now: Now, proved: bool = True) -> None:
        """Timers of groups, and of the takeover itself. Not `proved`: the lease is over, and the partition may have
        another owner by now, who must not be shut out."""
        if self._held:
            self._held.refuse(Code.COORDINATOR_LOAD_IN_PROGRESS, now.mono_ms)
        for h in self.loading.late(now.mono_ms):
            self._held.refuse_one(h, Code.COORDINATOR_LOAD_IN_PROGRESS)
        if not proved:
            return
        if self.phase is Phase.PAUSING and now.mono_ms >= self._rest_until_ms:
            self._begin("rested", "rebuilt")
        shard = self.shard
        if shard is not None:
            due = shard.timers.next_ms()
            if due is not None and due <= now.mono_ms:
                self._run(lambda: shard.wake(now), now)

    def shift(self, by_ms: int, now: Now) -> None:
        """Nobody could be heard for so long: every member gets that time back, as far as it has been served here."""
        if self.shard is not None:
            self.shard.timers.shift(min(by_ms, now.mono_ms - self._served_ms))

    def topics_changed(self, image: TopicImage, changed: frozenset[str], now: Now) -> None:
        self.image = image
        shard = self.shard
        if shard is not None:
            self._run(lambda: shard.topics_changed(image, changed, now), now)

    def config_changed(self, now: Now) -> None:
        shard = self.shard
        if shard is not None:
            self._run(lambda: shard.config_changed(now), now)

    def load_next(self, now: Now, count: int = STEP) -> bool:
        """A step of so many records, or of a few requests that have waited. False: nothing is left to do."""
        shard = self.shard
        group_id = self.loading.next() if shard is not None else None
        if shard is None or group_id is None:
            return False
        if group_id not in self.loading.left:
            for h in self.loading.take(group_id, REQUESTS):
                self._tally.open -= 1
                self._go_on(h, now)
            return True
        try:
            self._load(shard, group_id, count, now)
        except Exception as exc:  # noqa: BLE001 - the first time; the second time the group stays out
            self._broken(exc, now)
        return True

    def _go_on(self, h: Held, now: Now) -> None:
        """Its group is there, but the shard may have been dropped since by another one's request."""
        if self.shard is None:
            self._hold(h.token, h.event, now)
        else:
            self._answer(self.shard, h.token, h.event, now)

    def _load(self, shard: Shard, group_id: str, count: int, now: Now) -> None:
        """A step of one group."""
        loading = self.loading
        build = loading.builds.get(group_id)
        if build is None:
            records = self._log.records(self.partition, group_id)
            build = loading.builds[group_id] = Build(shard, group_id, records)
        try:
            if build.step(count, now):
                return
            loading.loaded(group_id)
        except Exception as exc:
            loading.loaded(group_id)
            shard.unload(group_id)
            if not isinstance(exc, InvariantError) and group_id not in self._failed_once:
                self._failed_once.add(group_id)
                raise  # a bug that may not show again: everything is built anew
            self._keep_unreadable(group_id, repr(exc))
        else:
            self._failed_once.discard(group_id)
            self._tell_occupied(group_id, shard.has_committers(group_id))

    def _keep_unreadable(self, group_id: str, why: str) -> None:
        """The same records would bring the same about again."""
        self.unreadable[group_id] = why
        told = {"group_id": group_id, "partition": self.partition, "error": why}
        self._out.append(Count("invariant_violations"))
        self._out.append(Log("a group cannot be read; its requests are refused, the others go on", told, "error"))
        self._tell_occupied(group_id, True)  # so that its offsets stay

    def _refuse_unreadable(self, token: int, event: Event) -> None:
        del self._unsent.open[token]
        self._tally.open -= 1
        why = f"The group's state cannot be read: {self.unreadable[event.group_id]}"
        self._out.append(Reply(token, event.refused(Code.COORDINATOR_NOT_AVAILABLE, why)))

    def has(self, group_id: str) -> bool:
        """Whether there are records of this group."""
        there = self.shard is not None and group_id in self.shard.groups
        return there or group_id in self.loading.left or group_id in self.unreadable

    def _tell_occupied(self, group_id: str, members: bool) -> None:
        (self._occupied.add if members else self._occupied.discard)(group_id)
        self._out.append(Occupied(self.partition, group_id, members))

    # ---- phases -------------------------------------------------------------------------------------------
    def _go(self, signal: str) -> None:
        then = TRANSITIONS[self.phase].get(signal)
        if then is None:
            raise InvariantError(f"partition {self.partition}: {signal} while {self.phase}")
        self.phase = then

    def _begin(self, signal: str, why: str) -> None:
        self._go(signal)
        self.attempt += 1
        self._why = why
        self._out.append(Fence(self.partition, self.attempt))

    def _drop(self, signal: str, why: str) -> None:
        """Forget the state; everybody who still waits for an answer is sent to the coordinator that will be."""
        self._go(signal)
        shard, self.shard = self.shard, None
        self.lease.unproved()
        self.renewing = False
        self._held.again(self.loading.everybody())
        self.loading, self.unreadable = Loading(), {}
        self._occupied.clear()
        self._out.append(Stop(self.partition, self.attempt, why))
        if shard is not None:
            granted = tuple(g for g, soft in shard.soft.items() if soft.granted)
            if granted:
                self._out.append(Void(granted))
        waiting, self._unsent = self._unsent.open, Unsent()
        self._tally.open -= len(waiting)
        code = Code.NOT_COORDINATOR
        self._out += [Reply(token, event.refused(code, TEXT[code])) for token, event in waiting.items()]
