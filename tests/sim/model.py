"""The simulation: a log with fencing and compaction, a lossy network, sidecars around the pure core, members.

One heap of events and one `random.Random`: a seed replays exactly. A sidecar here commits as `runtime/host.py` does:
records are replayed at once, sent as one batch, the reply is parked until the batch is in; a batch that fails drops
the shard, and a takeover is Init -> claim -> replay through the claim -> serve.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from sidecar.assign import BUILT_IN
from sidecar.assign.spec import Assignor, GroupSpec
from sidecar.core.consumer.run import run
from sidecar.core.errors import Code, InvariantError
from sidecar.core.events import (
    AssignorDone,
    ConsumerHeartbeat,
    Effects,
    GroupConfig,
    HeartbeatReply,
    RegexResolved,
    ResolveRegex,
    RunAssignor,
)
from sidecar.core.records import Partitions, Record, single
from sidecar.core.regex import resolve
from sidecar.core.shard import Now, Shard
from sidecar.core.topics import Topic, TopicImage
from tests.sim.log import Log, Scheduler

GROUP = "g"
LEASE_MS = 3_000
TICK_MS = 100


class Violation(AssertionError):
    """An invariant does not hold."""


@dataclass
class Faults:
    """Probabilities, while faults are on."""

    drop: float = 0.0
    duplicate: float = 0.0
    slow: float = 0.0
    append_fails: float = 0.0
    append_lost: float = 0.0
    """It is in the log, but the writer never hears of it."""
    assignor_fails: float = 0.0
    on: bool = True


@dataclass
class Batch:
    epoch: int
    records: list[Record | None]
    done: list[Callable[[bool], None]] = field(default_factory=list)


class Node:
    """A sidecar. `mono` stands still while it is paused; `skew` is what its wall clock is wrong by."""

    def __init__(self, sim: Cluster, name: int) -> None:
        self.sim = sim
        self.name = name
        self.shard: Shard | None = None
        self.epoch = 0
        self.taking = False
        self.alive = True
        self.paused_until = 0
        self.cut_off = False
        self.skew = 0
        self.proved = 0
        self.incarnation = 0
        self.queue: list[Batch] = []
        self.sending = False
        self.image = TopicImage()
        self.runs = 0

    # ---- time -----------------------------------------------------------------------------------------------
    @property
    def awake(self) -> bool:
        return self.alive and self.sim.sched.now >= self.paused_until

    def clock(self) -> Now:
        return Now(self.sim.sched.now, self.sim.sched.now + self.skew)

    def lease_valid(self) -> bool:
        return self.sim.sched.now - self.proved < LEASE_MS or not self.sim.leases

    def tick(self) -> None:
        if self.awake:
            if not self.cut_off:
                self.proved = self.sim.sched.now
            if self.sim.owner != self.name and self.shard is not None and not self.cut_off:
                self.drop("moved")
            if self.sim.owner == self.name and self.shard is None and not self.taking and not self.cut_off:
                self.take_over()
            if self.shard is not None and self.lease_valid():
                self.event(lambda s: s.tick(self.clock()))
        self.sim.sched.at(TICK_MS, self.tick)

    # ---- ownership ------------------------------------------------------------------------------------------
    def drop(self, why: str) -> None:
        self.shard = None
        self.taking = False
        self.incarnation += 1
        self.runs = 0
        queue, self.queue, self.sending = self.queue, [], False
        for batch in queue:
            for done in batch.done:
                done(False)

    def take_over(self) -> None:
        self.taking = True
        incarnation = self.incarnation
        epoch = self.sim.log.init()
        seen = len(self.sim.log.entries)

        def claim() -> None:
            if incarnation != self.incarnation or not self.awake:
                self.taking = False
                return
            if not self.sim.log.append(epoch, [None]):
                self.taking = False
                return
            self.sim.sched.at(self.sim.rng.randint(1, 30), serve)

        def serve() -> None:
            self.taking = False
            if incarnation != self.incarnation or not self.awake or self.sim.owner != self.name:
                return
            self.epoch = epoch
            self.shard = shard = Shard(self.sim.assignors, lambda group_id: self.sim.config)
            shard.image = self.image
            records = self.sim.log.last_values(self.sim.replayed(seen))
            shard.load(GROUP, records, self.clock())
            self.sim.same(self)

        slow = self.sim.faults.on and self.sim.rng.random() < self.sim.faults.slow
        self.sim.sched.at(self.sim.rng.randint(1, 400 if slow else 60), claim)

    # ---- events ---------------------------------------------------------------------------------------------
    def event(self, handle: Callable[[Shard], Effects]) -> None:
        assert self.shard is not None
        try:
            fx = handle(self.shard)
        except InvariantError as exc:
            raise Violation(str(exc)) from exc
        self.commit(fx, lambda ok: None)

    def commit(self, fx: Effects, done: Callable[[bool], None]) -> None:
        records: list[Record | None] = list(single(fx.records))
        if records:
            self.queue.append(Batch(self.epoch, records, [done]))
            if not self.sending:
                self.send()
        elif self.queue:
            self.queue[-1].done.append(done)
        else:
            done(True)
        for command in fx.commands:
            if isinstance(command, RunAssignor):
                self.run_assignor(command)
            elif isinstance(command, ResolveRegex):
                self.resolve(command)
        self.sim.check(self)

    def send(self) -> None:
        """One batch in flight, all that has gathered; retried by nobody: a failure drops the shard."""
        self.sending = True
        incarnation, rng, faults = self.incarnation, self.sim.rng, self.sim.faults
        batches = list(self.queue)
        fails = faults.on and rng.random() < faults.append_fails
        lost = faults.on and rng.random() < faults.append_lost

        def arrive() -> None:
            # A batch that is under way arrives, whatever has become of its writer.
            if fails:
                self.sim.sched.at(rng.randint(1, 20), lambda: finish(False))
                return
            records = [r for b in batches for r in b.records]
            ok = self.sim.log.append(batches[0].epoch, records)
            if not lost:
                self.sim.sched.at(rng.randint(1, 5), lambda: finish(ok))
            else:
                self.sim.sched.at(2_000, lambda: finish(False))

        def finish(ok: bool) -> None:
            if incarnation != self.incarnation:
                return
            if not ok:
                self.drop("append failed")
                return
            self.queue = self.queue[len(batches) :]
            self.sending = False
            for batch in batches:
                for done in batch.done:
                    done(True)
            if self.queue:
                self.send()
            self.sim.check(self)

        self.sim.sched.at(rng.randint(1, 400 if faults.on and rng.random() < faults.slow else 4), arrive)

    def run_assignor(self, ask: RunAssignor) -> None:
        shard, incarnation = self.shard, self.incarnation
        assert shard is not None
        self.runs += 1
        if self.runs > 1 and not self.sim.runs_may_be_late:
            raise Violation("two assignor runs in flight")
        fails = self.sim.faults.on and self.sim.rng.random() < self.sim.faults.assignor_fails

        def end() -> None:
            if incarnation == self.incarnation:
                self.runs -= 1
            else:
                return
            if fails:
                done = AssignorDone(ask.input, None, "planted")
            else:
                done = AssignorDone(ask.input, run(ask.input, shard.assignors[ask.input.assignor]))
            if self.shard is shard:
                self.event(lambda s: s.assignor_done(done, self.clock()))

        self.sim.sched.at(self.sim.rng.choice((1, 20, 300, 1500)) if self.sim.faults.on else 20, end)

    def resolve(self, ask: ResolveRegex) -> None:
        shard = self.shard
        assert shard is not None
        image = shard.image

        def end() -> None:
            if self.shard is shard:
                event = RegexResolved(ask.group_id, resolve(ask.regexes, image.by_name), image.names_version)
                self.event(lambda s: s.regex_resolved(event, self.clock()))

        self.sim.sched.at(self.sim.rng.randint(1, 50), end)

    # ---- requests -------------------------------------------------------------------------------------------
    def request(
        self, hb: ConsumerHeartbeat, reply: Callable[[HeartbeatReply], None], connected: Callable[[], bool]
    ) -> None:
        if not self.alive or not connected():
            return
        if self.sim.sched.now < self.paused_until:  # it lies in the socket until the process goes on
            wait = self.paused_until - self.sim.sched.now
            self.sim.sched.at(wait, lambda: self.request(hb, reply, connected))
            return
        if self.shard is None or not self.lease_valid():
            code = Code.COORDINATOR_LOAD_IN_PROGRESS if self.taking else Code.NOT_COORDINATOR
            reply(HeartbeatReply(code))
            return
        try:
            answer, fx = self.shard.heartbeat(hb, self.clock())
        except InvariantError as exc:
            raise Violation(str(exc)) from exc
        fx.records = written = list(single(fx.records))

        def done(ok: bool) -> None:
            if ok and answer.code == Code.NONE:
                self.sim.replied(written)
            reply(answer if ok else HeartbeatReply(Code.NOT_COORDINATOR))

        if self.sim.reply_early:
            done(True)
            self.commit(fx, lambda ok: None)
        else:
            self.commit(fx, done)


@dataclass
class Client:
    """A member as real clients are: one heartbeat under way, retried; gives partitions up when told; rejoins when
    fenced."""

    sim: Cluster
    member_id: str
    names: tuple[str, ...] | None
    regex: str | None
    instance_id: str | None = None
    epoch: int = 0
    owned: Partitions = field(default_factory=dict)
    leaving: int = 0
    gone: bool = False
    waiting: int = 0
    tokens: int = 0
    sent: int = 0
    node: int = 0
    full: bool = False
    """After an answer that may be lost the next request says everything, as Kafka's clients do."""

    def beat(self) -> None:
        if self.gone:
            return
        self.sim.sched.at(self.sim.rng.randint(700, 1_300), self.beat)
        if self.waiting and self.sim.sched.now - self.sent < 1_500:
            return
        self.full = self.full or self.waiting > 0
        self.send()

    def send(self) -> None:
        self.tokens += 1
        self.waiting = token = self.tokens
        self.sent = self.sim.sched.now
        joining = self.epoch == 0 and not self.leaving
        full = joining or (self.full and not self.leaving)
        hb = ConsumerHeartbeat(
            GROUP,
            self.member_id,
            self.leaving or self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=5_000 if full else -1,
            topic_names=self.names if full else None,
            topic_regex=self.regex if full else None,
            owned={} if joining else None if self.leaving else self.owned,
        )
        node = self.sim.nodes[self.node]
        # One connection neither duplicates nor reorders; what it had under way ends with it. So a request is seen twice
        # when its answer was lost and the member says it again, and late only while the member waits for it.
        self.sim.net(lambda: self.arrive(node, token, hb), duplicate=False)

    def arrive(self, node: Node, token: int, hb: ConsumerHeartbeat) -> None:
        if token == self.waiting:
            node.request(
                hb, lambda reply: self.sim.net(lambda: self.answer(token, reply)), lambda: token == self.waiting
            )

    def answer(self, token: int, reply: HeartbeatReply) -> None:
        if self.gone or token != self.waiting:
            return  # an answer to what it has given up waiting for
        self.waiting = 0
        if reply.code in (Code.NOT_COORDINATOR, Code.COORDINATOR_LOAD_IN_PROGRESS):
            self.node = self.sim.owner if self.sim.owner >= 0 else (self.node + 1) % len(self.sim.nodes)
            self.full = True
            return
        self.full = False
        if self.leaving:
            self.gone = True
            return
        if reply.code:
            self.epoch, self.owned = 0, {}
            return
        self.epoch = reply.member_epoch
        if reply.assignment is not None:
            self.owned = reply.assignment
        self.sim.check_clients()

    def partitions(self) -> set[tuple[bytes, int]]:
        return {(t, p) for t, ps in self.owned.items() for p in ps}


def flaky(spec: GroupSpec) -> dict[str, dict[bytes, tuple[int, ...]]]:
    return BUILT_IN["uniform"](spec)


class Cluster:
    """All of it. `committed` is the fold of the log, record by record."""

    def __init__(self, seed: int) -> None:
        self.sched = Scheduler(seed)
        self.rng = self.sched.rng
        self.faults = Faults()
        self.log = Log()
        self.log.on_append = self.appended
        self.config = GroupConfig(session_timeout_ms=6_000, heartbeat_interval_ms=1_000, regex_min_interval_ms=500)
        self.assignors: dict[str, Assignor] = {**BUILT_IN, "flaky": flaky}
        self.committed = Shard(self.assignors, lambda group_id: self.config)
        self.in_log: set[int] = set()
        self.topics: dict[str, Topic] = {}
        self.nodes = [Node(self, i) for i in range(3)]
        self.owner = -1
        self.clients: list[Client] = []
        self.epochs: dict[str, int] = {}
        self.leases = True
        self.reply_early = False
        self.runs_may_be_late = False
        self.replay_to_init = False
        for node in self.nodes:
            self.sched.at(self.rng.randint(1, TICK_MS), node.tick)
        self.sched.at(1, self.arbitrate)

    # ---- the world ------------------------------------------------------------------------------------------
    def arbitrate(self) -> None:
        """The brokers' group of the sidecars: the owner is one that was heard lately."""
        live = [n.name for n in self.nodes if n.alive and self.sched.now - n.proved < LEASE_MS + 500]
        if self.owner not in live:
            self.owner = self.rng.choice(live) if live else -1
        self.sched.at(250, self.arbitrate)

    def net(self, deliver: Callable[[], None], duplicate: bool = True) -> None:
        f, rng = self.faults, self.rng
        if f.on and rng.random() < f.drop:
            return
        for _ in range(2 if duplicate and f.on and rng.random() < f.duplicate else 1):
            delay = rng.randint(1, 900) if f.on and rng.random() < f.slow else rng.randint(1, 8)
            self.sched.at(delay, deliver)

    def set_topics(self, *topics: Topic) -> None:
        self.topics = {t.name: t for t in topics}
        for node in self.nodes:
            self.sched.at(self.rng.randint(1, 800), lambda n=node: self.learn(n))  # type: ignore[misc]

    def learn(self, node: Node) -> None:
        image, changed = node.image.next(self.topics.values())
        node.image = image
        if node.shard is not None and changed:
            node.shard.topics_changed(image, changed)

    def set_config(self, **values: object) -> None:
        self.config = replace(self.config, **values)  # type: ignore[arg-type]

    # ---- what must hold -------------------------------------------------------------------------------------
    def appended(self, record: Record, epoch: int) -> None:
        self.in_log.add(id(record))
        claimed = max((e.epoch for e in self.log.entries if e is not None and e.record is None), default=0)
        if epoch < claimed:
            if self.log.fencing:
                raise Violation(f"a fenced writer's record is in the log: epoch {epoch} after claim {claimed}")
            return
        try:
            self.committed.replay(record)
        except InvariantError as exc:
            raise Violation(f"in the log: {exc}") from exc
        group = self.committed.groups.get(GROUP)
        if group is None:
            self.epochs.clear()
            return
        if group.epoch < self.epochs.get("", 0):
            raise Violation(f"the group's epoch went back from {self.epochs['']} to {group.epoch}")
        self.epochs[""] = group.epoch
        if group.assignment_epoch > group.epoch:
            raise Violation("the target is of an epoch that is not yet")
        self.check_clients()

    def replied(self, written: list[Record]) -> None:
        if not all(id(r) in self.in_log for r in written):
            raise Violation("a reply before its records were committed")

    def replayed(self, seen: int) -> int | None:
        """How far a takeover replays: through the claim. A planted bug stops where the log ended before it."""
        return seen if self.replay_to_init else None

    def check_clients(self) -> None:
        """No partition with two owners that the group knows at their current epochs."""
        group = self.committed.groups.get(GROUP)
        seen: dict[tuple[bytes, int], str] = {}
        for c in self.clients:
            member = group.members.get(c.member_id) if group is not None else None
            if c.gone or member is None or c.epoch <= 0 or c.epoch not in (member.member_epoch, member.previous_epoch):
                continue
            for place in c.partitions():
                if place in seen:
                    raise Violation(f"{place[0].hex()[-2:]}-{place[1]} has two owners, {seen[place]} and {c.member_id}")
                seen[place] = c.member_id

    def check(self, node: Node) -> None:
        shard = node.shard
        if shard is None:
            return
        group = shard.groups.get(GROUP)
        if group is None:
            return
        for member_id in group.members:
            if shard.timers.deadline(("session", GROUP, member_id)) is None:
                raise Violation(f"{member_id} has no session timer: it would live for ever")
        if not node.queue and node.epoch == self.log.fence:
            self.same(node)

    def same(self, node: Node) -> None:
        """Live state and the fold of the log are one."""
        assert node.shard is not None
        live, folded = node.shard.groups.get(GROUP), self.committed.groups.get(GROUP)
        if (live is None) != (folded is None):
            raise Violation("the group is in the live state or in the log, not in both")
        if live is None or folded is None:
            return
        names = (
            "epoch", "metadata_hash", "members", "static_members", "assignment_epoch", "assignor", "regexes", "owners",
            "assignment_timestamp_ms",
        )  # fmt: skip
        for name in names:
            if getattr(live, name) != getattr(folded, name):
                raise Violation(f"{name}: live {getattr(live, name)!r}, in the log {getattr(folded, name)!r}")
        for member_id in {*live.target, *folded.target}:
            if live.target.of(member_id) != folded.target.of(member_id):
                raise Violation(f"target of {member_id} differs from the log's")
        stray = {m for m in live.target if live.target.of(m)} - live.members.keys()
        if stray:
            raise Violation(f"a target for {stray}, who are no members")
