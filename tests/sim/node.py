"""One sidecar: the coordinator's own code (core/runtime/service.py, core/runtime/owner.py) and a driver that fulfils
its duties.

`Node` decides nothing. It carries out the commands that the service hands it, on the simulated log, network and
clock, and reports what came of them. While it stands still nothing happens in its process; what it had sent arrives
all the same. A crash makes a new process with an empty service.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sidecar.core.classic.config import ClassicConfig
from sidecar.core.classic.events import ClassicHeartbeat, JoinGroup, SyncGroup
from sidecar.core.consumer.config import ConsumerConfig
from sidecar.core.consumer.events import ConsumerHeartbeat
from sidecar.core.consumer.group import ConsumerGroup
from sidecar.core.consumer.regexes import RegexResolved, ResolveRegex
from sidecar.core.kinds import REGISTRY
from sidecar.core.modern.assignor_run import RunInput
from sidecar.core.modern.target_assignment import AssignorDone, RunAssignor
from sidecar.core.runtime.commands import Append, Claim, Fence, Follow, Occupied, Renew, Stop, TookOver, Void, Work
from sidecar.core.runtime.effects import Count, Observe, Reply
from sidecar.core.runtime.effects import Log as LogLine
from sidecar.core.runtime.events import Answer
from sidecar.core.runtime.owner import Owner
from sidecar.core.runtime.phases import Phase
from sidecar.core.runtime.records import Record, Tombstone, single
from sidecar.core.runtime.service import Service
from sidecar.core.runtime.shard import Shard
from sidecar.core.runtime.topic_lookup import LookFirst, TopicsSeen
from sidecar.core.runtime.turn import Computed, Now, Ports
from sidecar.core.vocabulary.topic_regex import resolve
from sidecar.link.messages import Lease
from tests.sim.checks import MEMBERS, Checks, MemberKey, as_a_member, key_of, lease_end
from tests.sim.front import Ask, Front, Granted
from tests.sim.log import Writer
from tests.sim.peer import ASK_ELSEWHERE
from tests.sim.term import Copy, Outcome, Term
from tests.sim.world import FOR_EVER_MS, LEASE_MS, LOST_MS, PARTITIONS, TICK_MS, Violation, World

LOAD_STEPS = 6
"""Slices of each partition's loading in 100 ms."""


class Node:
    def __init__(self, world: World, checks: Checks, name: int) -> None:
        self.world = world
        self.sched = world.sched
        self.checks = checks
        self.name = name
        self.paused_until = self.busy_until = 0
        self.cut_off = False
        self.skew = 0
        """By how much the wall clock is wrong."""
        self.proved = -LEASE_MS
        """The time at which the brokers last answered this sidecar as a live member."""
        self.process = 0
        self.front = Front(world, self)
        self._perform: dict[type, Callable[[Any], None]] = {
            Fence: self._fence,
            Renew: self._renew,
            Claim: self._claim,
            Follow: self._follow,
            Append: self._append,
            Stop: self._stop,
            Work: self._work,
            Reply: self._reply,
            Void: self.front.from_coordinator,
            TookOver: self._took_over,
            Occupied: self._occupied,
            LogLine: self._log,
            Count: self._count,
            Observe: lambda measured: None,
        }
        self._start()

    def _start(self) -> None:
        """A new process, which knows nothing."""
        self.process += 1
        self.copy = Copy()
        ports = Ports({"consumer": self.world.assignors}, Computed(self._config), lambda: self.world.asks_access)
        self.service = Service(self.name, PARTITIONS, REGISTRY, ports, self.copy, self.world.service)
        self.terms = [Term() for _ in range(PARTITIONS)]
        self.pending: dict[int, Ask] = {}
        self.last_ok_ms: dict[MemberKey, int] = {}
        """Time of a member's last request that was answered without an error."""
        self.lived_ms = 0
        """Milliseconds for which this process has run with a valid lease."""
        self._generation = -1
        self._confirming: list[Callable[[], None]] = []
        """Calls for when the brokers have confirmed the map."""
        self._runs: dict[tuple[int, int, str], tuple[Any, list[RunInput]]] = {}
        self._tokens = 0
        self._acking = False
        self._broke = ""
        self.front.reset()

    # ---- the process and its clock --------------------------------------------------------------------------
    @property
    def alive(self) -> bool:
        return self.front.alive

    @property
    def writer(self) -> Writer:
        return self.name, self.process

    def clock(self) -> Now:
        return Now(self.sched.now, self.sched.now + self.skew)

    def stands_still_ms(self) -> int:
        return self.paused_until - self.sched.now

    def later(self, delay_ms: int, fn: Callable[[], None]) -> None:
        """Calls `fn` later in this process, if it still lives, and after its pause."""
        process = self.process

        def happen() -> None:
            if process == self.process:
                wait_ms = self.paused_until - self.sched.now
                if wait_ms > 0:
                    self.sched.at(wait_ms, happen)
                else:
                    fn()

        self.sched.at(delay_ms, happen)

    def crash(self) -> None:
        broken, self.front.alive, self.paused_until = list(self.pending.values()), False, 0
        self._start()
        for ask in broken:
            self.sched.at(self.world.rng.randint(1, 8), ask.broken)

    def revive(self) -> None:
        if not self.alive:
            self.front.alive = True
            self.learn_topics()

    def pause(self, for_ms: int) -> None:
        self.paused_until = max(self.paused_until, self.sched.now + for_ms)

    def learn_topics(self) -> None:
        if self.alive:
            self.service.topics(self.world.topics, self.clock())
            self.run_commands()

    def config_changed(self) -> None:
        if self.alive:
            self.service.config_changed(self.clock())
            self.run_commands()

    def _config(self, kind: str, group_id: str) -> ConsumerConfig | ClassicConfig:
        """Every step of a turn asks for the settings, so here an exception may be injected in the middle of any. Not in
        two loads of a group, which would rightly count as unreadable."""
        faults, failed = self.world.faults, (o.loader._failed_once for o in self.service.owners)
        if faults.breaks and not any(group_id in groups for groups in failed) and self.world.strikes(faults.breaks):
            self.world.broken_turns += 1
            raise ZeroDivisionError("injected")
        return self.world.settings(kind, group_id)

    # ---- every 100 ms ---------------------------------------------------------------------------------------
    def tick(self) -> None:
        self.sched.at(TICK_MS, self.tick)
        if not self.front.alive or self.sched.now < self.paused_until:
            return
        service, now = self.service, self.clock()
        service.wake(now)
        self.run_commands()
        if service.lease.valid(now):
            self.lived_ms += TICK_MS
            self._nobody_waits_too_long()
        for owner in service.owners:
            for _ in range(LOAD_STEPS):
                if not (owner.loader.queue.left or owner.loader.queue.behind):
                    break
                owner.load_next(now)
                self.run_commands()
        if not self.cut_off:
            self._renew_lease(now)

    def _renew_lease(self, now: Now) -> None:
        """The owners' group at the brokers answers: that extends the lease."""
        world, service = self.world, self.service
        self.proved = now.mono_ms
        until_ms = lease_end(self.proved)
        if 0 <= self._generation < world.generation - 1:
            service.lost("a generation passed without this sidecar")
        service.lease.extended(until_ms if world.leases else FOR_EVER_MS)
        if self._generation != world.generation:
            self._generation = world.generation
            service.assigned(world.owners, world.generation, set(world.owners), now)
            self.run_commands()
        asked, self._confirming = self._confirming, []
        for then in asked:
            then()
        self.front.from_coordinator(Lease(until_ms))

    # ---- from the front -------------------------------------------------------------------------------------
    def over_link(self, fn: Callable[[], None]) -> None:
        if self.world.link_ms:
            self.later(self.world.link_ms, fn)
        else:
            fn()

    def request(self, ask: Ask) -> None:
        self._tokens += 1
        token = self._tokens
        self.pending[token] = ask
        self.checks.generations.asked(ask.event)
        ask.taken_ms, ask.lived_ms = self.sched.now, self.lived_ms
        self.service.request(token, ask.event, self.clock())
        self.run_commands()
        p = self.world.partition_of(ask.event.group_id)
        if self.service.owners[p].shard is not None:  # else it is held
            ask.behind = self.terms[p].written.get(ask.event.group_id, 0)
            ask.owner_epoch = self.terms[p].epoch

    def touch(self, group_id: str, member_id: str) -> None:
        self.service.touch(group_id, member_id, self.clock())
        self.run_commands()

    def answered_under_grant(self, granted: Granted, touched: bool) -> None:
        if touched:
            self.last_ok_ms[granted.event.group_id, granted.member_id] = self.sched.now
        self.checks.answered_under_grant(granted, self.writer, lease_end(self.proved))

    # ---- commands -------------------------------------------------------------------------------------------
    def run_commands(self) -> None:
        """Carry out what is due, in its order; then everything must hold."""
        service, out = self.service, self.service.out
        if out:
            perform = self._perform
            i = 0
            while i < len(out):
                command = out[i]
                i += 1
                perform[type(command)](command)
            out.clear()
            if self.world.broken_turns < 0:
                raise Violation(f"a turn broke: {self._broke}")
        if service.tally.open != len(self.pending):
            raise Violation(f"{len(self.pending)} requests are open, {service.tally.open} are counted")
        for owner in service.owners:
            if owner.shard is not None:
                self._holds(owner, owner.shard)

    def _holds(self, owner: Owner, shard: Shard) -> None:
        """With nothing outstanding, and nobody else in the log, the live state is what the log says."""
        term, log = self.terms[owner.partition], self.world.logs[owner.partition]
        self.checks.sessions(shard, term.since_ms, owner.loader.queue.left)
        if owner.idle and term.epoch == log.fence:
            length, revisions = len(log.entries), 0
            for soft in shard.soft.values():
                revisions += soft.revision
            if term.compared != (length, revisions):
                term.compared = (length, revisions)
                self.checks.same(owner)

    def _fence(self, c: Fence) -> None:
        if not self.service.lease.valid(self.clock()):
            raise Violation(f"sidecar {self.name} shuts out the owner of {c.partition} without a lease of its own")
        rng, faults = self.world.rng, self.world.faults
        term = self.terms[c.partition] = Term(c.attempt)
        for ask in self.pending.values():  # what the former attempt did not answer waits for this one's records only
            if self.world.partition_of(ask.event.group_id) == c.partition:
                ask.behind = 0
        fails, slow = self.world.strikes(faults.append_fails), self.world.strikes(faults.slow)
        writer = self.writer
        owner = self.service.owners[c.partition]

        def begin() -> None:
            if owner.attempt == c.attempt and owner.phase is Phase.FENCING:
                self.sched.at(rng.randint(1, 10), arrive)

        def arrive() -> None:
            log = self.world.logs[c.partition]
            epoch, term.seen = log.init(writer), len(log.entries)
            if writer == self.writer:
                self.later(rng.randint(1, 400 if slow else 50), lambda: failed() if fails else fenced(epoch))

        def fenced(epoch: int) -> None:
            term.epoch = epoch
            self._confirm_map(term)
            owner.lifecycle.fenced(c.attempt, epoch, self.clock())
            self.run_commands()

        def failed() -> None:
            owner.failed(c.attempt, "no answer", False, self.clock())
            self.run_commands()

        if c.again:
            self._when_confirmed(begin)
        else:
            begin()
        self._may_stall()

    def _confirm_map(self, term: Term) -> None:
        def confirmed() -> None:
            term.confirmed = True
            if term.serve is not None:
                term.serve()

        self._when_confirmed(confirmed)

    def _when_confirmed(self, then: Callable[[], None]) -> None:
        """Calls `then` once the owners' group at the brokers has answered in the generation of this sidecar's map. A
        sidecar that is cut off, or whose map is old, learns the map with its next answer."""

        def arrive() -> None:
            if self.cut_off or self._generation != self.world.generation:
                self._confirming.append(then)
            else:
                self.later(self.world.rng.randint(1, 20), then)

        self.later(self.world.rng.randint(1, 10), arrive)

    def _renew(self, c: Renew) -> None:
        """Writes wait until the new claim has been read, and no other one before it."""
        p, log, owner, writer = c.partition, self.world.logs[c.partition], self.service.owners[c.partition], self.writer
        term, before = self.terms[p], self.terms[p].epoch
        term.renewing = True

        def over() -> bool:
            return self.terms[p] is not term or owner.attempt != c.attempt or owner.shard is None

        def begin() -> None:
            if term.sending and not over():
                self.later(2, begin)
            elif not over():
                epoch = log.init(writer)
                self._produce(p, epoch, [None], lambda outcome, offset: then(epoch, outcome, offset))

        def then(epoch: int, outcome: Outcome, offset: int) -> None:
            claims = [e.epoch for e in log.entries[: offset + 1] if e is not None and e.record is None]
            if over():
                return
            if outcome is not Outcome.DONE or claims[-2:] != [before, epoch]:
                owner.failed(c.attempt, "not renewed", outcome is not Outcome.LOST, self.clock())
            else:
                term.epoch, term.renewing = epoch, False
                self.world.figures["fences renewed"] += 1
                owner.lifecycle.renewed(c.attempt, epoch, self.clock())
                if term.queue:
                    self._send(p, term)
            self.run_commands()

        self.later(self.world.rng.randint(1, 10), begin)
        self._may_stall()

    def _claim(self, c: Claim) -> None:
        owner = self.service.owners[c.partition]

        def then(outcome: Outcome, offset: int) -> None:
            if outcome is Outcome.DONE:
                owner.lifecycle.claimed(c.attempt, offset, self.clock())
            else:
                owner.failed(c.attempt, outcome.value, outcome is Outcome.FENCED, self.clock())
            self.run_commands()

        self._produce(c.partition, self.terms[c.partition].epoch, [None], then)
        self._may_stall()

    def _follow(self, c: Follow) -> None:
        """The copy has the log through the claim, and what came since. A planted bug ends it where the fence was."""
        term = self.terms[c.partition]

        def replayed() -> None:
            until = term.seen if self.world.replay_to_init else None
            self.copy.values[c.partition] = self.world.logs[c.partition].last_values(until)
            self.service.owners[c.partition].replayed(c.attempt, self.clock())
            self.run_commands()

        def read() -> None:
            if term.confirmed:
                replayed()
            else:
                term.serve = replayed

        self.later(self.world.rng.randint(1, 30), read)
        self._may_stall()

    def _may_stall(self) -> None:
        if self.world.strikes(self.world.faults.stalls):
            self.pause(self.world.rng.randint(200, 5_000))
            self.world.trace(f"sidecar {self.name} stands still until {self.paused_until}, while it takes over")

    def _took_over(self, c: TookOver) -> None:
        self.world.figures["takeovers"] += 1
        self.terms[c.partition].since_ms = self.sched.now

    def _occupied(self, c: Occupied) -> None:
        """Offsets have no part in the simulation."""

    def _append(self, c: Append) -> None:
        term = self.terms[c.partition]
        if term.attempt != c.attempt:
            raise Violation(f"attempt {c.attempt} of {c.partition} is over and writes")
        records = list(single(c.records))
        for r in records:
            if isinstance(r, Tombstone) and r.kind in MEMBERS and r.why == "session timeout":
                self._fell_silent((r.group_id, r.sub_id))
        term.queue.append((c.serial, records))
        term.written.update((r.group_id, c.serial) for r in records)
        if not term.sending and not term.renewing:
            self._send(c.partition, term)

    def _send(self, p: int, term: Term) -> None:
        """One batch in flight, with all that has gathered; retried by nobody: a failure drops the shard."""
        queue, term.queue, term.sending = term.queue, [], True
        owner, serial = self.service.owners[p], queue[-1][0]

        def then(outcome: Outcome, offset: int) -> None:
            term.sending = False
            if outcome is Outcome.DONE:
                term.acked = serial
                self._acking = True
                owner.committed(term.attempt, serial, self.clock())
                self.run_commands()
                self._acking = False
                if term.queue and not term.sending and not term.renewing:
                    self._send(p, term)
            else:
                owner.failed(term.attempt, outcome.value, outcome is Outcome.FENCED, self.clock())
                self.run_commands()

        self._produce(p, term.epoch, [r for _, records in queue for r in records], then)

    def _produce(
        self, p: int, epoch: int, records: Sequence[Record | None], then: Callable[[Outcome, int], None]
    ) -> None:
        """A batch that is under way arrives, whatever has become of its writer."""
        rng, faults, process = self.world.rng, self.world.faults, self.process
        fails, lost = self.world.strikes(faults.append_fails), self.world.strikes(faults.append_lost)

        def arrive() -> None:
            offset = -1 if fails else self.world.logs[p].append(epoch, records)
            if process != self.process:
                return
            if fails:
                self.later(rng.randint(1, 20), lambda: then(Outcome.LOST, -1))
            elif lost:
                self.later(LOST_MS, lambda: then(Outcome.LOST, -1))
            else:
                self.later(rng.randint(1, 5), lambda: then(Outcome.FENCED if offset < 0 else Outcome.DONE, offset))

        self.sched.at(rng.randint(1, 400 if self.world.strikes(faults.slow) else 4), arrive)

    def _stop(self, c: Stop) -> None:
        self.terms[c.partition].queue.clear()
        self.world.trace(f"sidecar {self.name} drops partition {c.partition}: {c.why}")

    def _work(self, c: Work) -> None:
        if isinstance(c.item, RunAssignor):
            self._run_assignor(c, c.item)
        elif isinstance(c.item, LookFirst):
            self._look(c, c.item)
        else:
            assert isinstance(c.item, ResolveRegex)
            self._resolve(c, c.item)

    def _look(self, c: Work, ask: LookFirst) -> None:
        request = ask.request
        if request is None:
            return

        def end() -> None:
            seen = TopicsSeen(ask.group_id, request, ask.token)
            self.service.owners[c.partition].done(c.attempt, seen, self.clock())
            self.run_commands()

        self.later(self.world.rng.randint(1, max(1, ask.wait_ms)), end)

    def _run_assignor(self, c: Work, ask: RunAssignor) -> None:
        world, inp = self.world, ask.input
        soft = self._soft(c.partition, inp.group_id)
        key = (c.partition, c.attempt, inp.group_id)
        known, under_way = self._runs.get(key, (soft, []))
        if known is not soft:  # the group has become a classic one meanwhile, and one of consumers again
            under_way = []
        under_way = [earlier for earlier in under_way if not self._emptied_since(c.partition, earlier)]
        self._runs[key] = (soft, [*under_way, inp])
        if under_way and not world.runs_may_be_late:
            raise Violation(f"two assignor runs in flight for {inp.group_id}")
        fails = world.strikes(world.faults.assignor_fails)

        def end() -> None:
            known, under_way = self._runs[key]
            if known is soft:
                self._runs[key] = (soft, [other for other in under_way if other is not inp])
            output = None if fails else REGISTRY.runner(inp.kind)(inp, world.assignors[inp.assignor])
            done = AssignorDone(inp.group_id, inp, output, "injected" if fails else "")
            self.service.owners[c.partition].done(c.attempt, done, self.clock())
            self.run_commands()

        self.later(world.rng.choice((1, 20, 300, 1500)) if world.faults.on else 20, end)

    def _emptied_since(self, partition: int, run: RunInput) -> bool:
        """A group without members gives up its run: its target is nothing, and has no time."""
        shard = self.service.owners[partition].shard
        group = None if shard is None else shard.groups.get(run.group_id)
        if not isinstance(group, ConsumerGroup):
            return False
        return group.assignment_timestamp_ms == 0 and group.assignment_epoch >= run.epoch

    def _soft(self, partition: int, group_id: str) -> Any:
        shard = self.service.owners[partition].shard
        return None if shard is None else shard.soft.get(group_id)

    def _resolve(self, c: Work, ask: ResolveRegex) -> None:
        owner = self.service.owners[c.partition]
        image = owner.image

        def end() -> None:
            event = RegexResolved(ask.group_id, resolve(ask.regexes, image.by_name), image.names_version)
            owner.done(c.attempt, event, self.clock())
            self.run_commands()

        self.later(self.world.rng.randint(1, 50), end)

    def _log(self, line: LogLine) -> None:
        if line.level == "error":
            self._broke = str(line.fields.get("error"))
        if self.world.tracer is not None and line.level != "debug":
            fields = " ".join(f"{k}={v}" for k, v in line.fields.items() if k != "trace")
            self.world.trace(f"sidecar {self.name}: {line.event} {fields}")

    def _count(self, c: Count) -> None:
        if c.metric == "invariant_violations":
            self.world.figures["broken turns"] += 1
            self.world.broken_turns -= 1
        elif c.metric == "migrations":
            self.world.figures[f"groups now {c.labels[0]}"] += 1
        elif c.metric == "completed_rebalances":
            self.world.figures["classic rebalances"] += 1

    # ---- what must hold of answers and silence --------------------------------------------------------------
    def _reply(self, reply: Reply) -> None:
        ask, answer = self.pending.pop(reply.token, None), reply.answer
        if ask is None:
            raise Violation(f"token {reply.token} is answered twice")
        if answer.code not in ASK_ELSEWHERE:
            self.world.figures["answers"] += 1
            term = self.terms[self.world.partition_of(ask.event.group_id)]
            written = term.written.get(ask.event.group_id, 0)
            if term.acked < (ask.behind if self._acking else written):
                raise Violation(f"a reply before its records were committed: {ask.event}")
            self._judge(ask, answer)
        self.front.from_coordinator((ask, reply))

    def _judge(self, ask: Ask, answer: Answer) -> None:
        """The member got an answer without an error, or one that only members get."""
        event = ask.event
        if not as_a_member(event, answer):
            return
        key = key_of(event, answer)
        if type(event) in (ConsumerHeartbeat, ClassicHeartbeat):  # others do not move the session in every case
            self.last_ok_ms[key] = max(ask.taken_ms, self.last_ok_ms.get(key, 0))
        self.checks.answered(ask, answer, self.writer, lease_end(self.proved))

    def _fell_silent(self, key: MemberKey) -> None:
        """A member that has sent a request is not removed for silence, unless its last one may not have arrived yet."""
        heard, now = self.last_ok_ms.get(key, 0), self.sched.now
        heard_in_time = now - self.world.config.session_timeout_ms < heard < now - self.world.link_ms
        if heard_in_time and self.paused_until < heard:
            raise Violation(f"{key} is removed for silence, though it was answered {now - heard} ms ago")

    def _nobody_waits_too_long(self) -> None:
        world = self.world
        for token, ask in self.pending.items():
            waited_ms = self.lived_ms - ask.lived_ms
            if waited_ms <= world.hold_bound_ms:
                continue
            held = self.service.owners[world.partition_of(ask.event.group_id)].shard is None
            others = type(ask.event) in (JoinGroup, SyncGroup)
            bound_ms = world.rebalance_bound_ms if others else world.wait_bound_ms
            if held or waited_ms > bound_ms:
                raise Violation(f"token {token} waits for its answer since {waited_ms} ms: {ask.event}")
