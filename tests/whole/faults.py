"""Faults that the seed chooses: each begins, and ends by itself after a while."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.whole.broker.groups import partition_for
from tests.whole.client import Client, Habits
from tests.whole.damage import damage
from tests.whole.kafka import host_of
from tests.whole.members import ClassicMember, ConsumerMember
from tests.whole.moving import BROKER, SIDECARS
from tests.whole.rowdy import Rowdy
from tests.whole.share import ShareMember
from tests.whole.sidecar import SimTail
from tests.whole.stored import OFFSETS
from tests.whole.streams import APPLICATIONS, StreamsHabits, StreamsMember
from tests.whole.timeline import FAULT
from tests.whole.universe import Life
from tests.whole.world import NODES, STATE_TOPIC, TXN_PARTITIONS, World

EVERY_MS = 2_500.0
"""The mean time from one fault to the next."""
TRANSACTIONS = "__transaction_state"
OFTEN = 12
"""The factor for the weight of a fault that should strike often."""
LOOKS_MS = 4_000
"""Milliseconds for which a fault looks whether something is under way."""
MOVES = "m1"
"""A classic group that no pattern of this run names: it moves between the brokers and the sidecars."""
MOVES_SHARE = "m-share"
"""The same of a share group."""
MOVES_STREAMS = "m-streams"
"""The same of a streams group."""
STREAMS = "g-streams"
SHARE = "g-share"
OF_KINDS = {"streams": STREAMS, "share": SHARE}
DYNAMIC = (SHARE, MOVES_STREAMS)
"""Groups without static members: brokers have no static members of streams groups."""
GROUPS: dict[str, type[Client]] = {"g1": ConsumerMember, "g2": ClassicMember}
MORE_GROUPS: dict[str, tuple[type[Client], ...]] = {
    **{group_id: (kind,) for group_id, kind in GROUPS.items()},
    "g3": (ConsumerMember, ClassicMember),
    "g4": (ConsumerMember,),
    "g5": (ClassicMember,),
    MOVES: (ClassicMember,),
    STREAMS: (StreamsMember,),
    SHARE: (ShareMember,),
    MOVES_SHARE: (ShareMember,),
    MOVES_STREAMS: (StreamsMember,),
}
"""The kinds of members that come to a group; g3 goes from one protocol to the other while it lives."""
MOVING, MOVING_SHARE, MOVING_STREAMS = 0.25, 0.4, 0.4
"""The share of seeds in which one group is the brokers' at first, and moves."""
SESSIONS_MS = (6_000, 6_500, 8_000)
INCLUDED: tuple[tuple[str, ...], ...] = (("g.*",), ("other",), ("g1",), ("g2", "x.*"))
TOPICS = (("t1",), ("t2",), ("t1", "t2"))


class Faults:
    def __init__(self, world: World) -> None:
        self.world = world
        self.rng = world.rng
        self.on = False
        self.groups = [*GROUPS]
        """The groups of this run."""
        if self.rng.random() < 0.3:
            self.groups.append("g3")
        if self.rng.random() < 0.15:
            self.groups += ["g4", "g5"]
        self.moves = self.rng.random() < MOVING
        if self.moves:
            self.groups[self.groups.index("g2")] = MOVES
            world.judge.moving.homes[MOVES] = BROKER
        self.groups += [OF_KINDS[kind] for kind in world.kinds]
        if SHARE in self.groups and self.rng.random() < MOVING_SHARE:
            self.groups[self.groups.index(SHARE)] = MOVES_SHARE
            world.judge.moving.homes[MOVES_SHARE] = BROKER
            self.moves = True
        # Of the streams group.
        self.application = self.rng.choice(APPLICATIONS) if STREAMS in self.groups else APPLICATIONS[0]
        if STREAMS in self.groups and self.rng.random() < MOVING_STREAMS:
            self.groups[self.groups.index(STREAMS)] = MOVES_STREAMS
            world.judge.moving.homes[MOVES_STREAMS] = BROKER
            self.moves = True
        self.exactly_once = self.rng.random() < 0.25 or world.exactly_once
        """Two of three clients commit in transactions."""
        self.patterns_stored = self.rng.random() < 0.2
        """An administrator has stored which groups are managed, so that it does not matter what sidecars are told."""
        self.rowdy: Rowdy | None = None
        self.lagging: list[SimTail] = []
        self._furthest_ms = 0.0
        """The most that a wall clock has ever been ahead."""
        self.back: set[str] = set()
        """Clients that have come back."""
        self.kinds: list[tuple[int, Callable[[], None]]] = [
            (4, self.sidecar_crashes),
            (2, self.sidecar_stops),
            (3, self.sidecar_stands_still),
            (2, self.host_is_suspended),
            (2, self.broker_crashes),
            (2, self.broker_stands_still),
            (1, self.broker_is_slow),
            (1, self.broker_accepts_nobody),
            (1, self.majority_is_lost),
            (1, self.fence_is_out_of_reach),
            (1, self.owners_coordinator_is_cut_off),
            (2, self.way_is_cut),
            (1, self.host_is_silent),
            (2, self.host_is_alone),
            (2, self.owner_is_cut_off),
            (1, self.commit_is_held_up),
            (2, self.network_is_slow),
            (1, self.disk_is_slow),
            (2, self.compaction),
            (2, self.tail_lags),
            (1, self.record_is_damaged),
            (1, self.settings_are_rolled_out),
            (1, self.wall_clock_jumps),
            (10 if self.moves else 0, self.group_is_moved),
            (3, self.client_crashes),
            (2, self.client_stands_still),
            (2, self.client_leaves),
            (3, self.client_comes),
        ]
        if "share" in world.kinds:
            self.kinds.append((4, self.share_coordinator_is_away))

    def begin(self) -> None:
        self.on = True
        if self.rng.random() < 0.25:
            self.world.say(FAULT, "somebody does not behave")
            self.rowdy = self.world.add_rowdy()
        if self.world.authorizer:
            self._strangers_come()
        self._next()

    def _strangers_come(self) -> None:
        """One for each group: it may not read it, or not even see it."""
        for group_id in self.groups:
            kind, hidden = self.rng.choice(MORE_GROUPS[group_id]), self.rng.random() < 0.3
            habits = Habits(group_id, ("t1", "t2"))
            if kind is StreamsMember:
                habits = StreamsHabits(group_id, habits.topics, application=self.application)
            made = self.world.add_stranger(kind, habits, hidden)
            self.world.say(FAULT, f"{made.name} comes to {group_id}, which it may not {'see' if hidden else 'read'}")

    def _next(self) -> None:
        self.world.universe.later(self.rng.expovariate(1 / EVERY_MS), self._strike)

    def _strike(self) -> None:
        if not self.on:
            return
        often = self.world.often
        weights = [w * OFTEN if fault.__name__ in often else w for w, fault in self.kinds]
        (_, fault) = self.rng.choices(self.kinds, weights)[0]
        self.world.judge.figures[f"fault: {fault.__name__}"] += 1
        fault()
        self._next()

    def end(self) -> None:
        """Everything is mended; who is down is started."""
        self.on = False
        w = self.world
        w.net.slow_ms = 0.0
        w.kafka.cluster.slow_disk_ms.clear()
        w.kafka.cluster.share_coordinator_away = False
        for tail in self.lagging:
            tail.lag_ms = 0.0
        for n in NODES:
            w.kafka.start(n)
            w.kafka.procs[n].go_on()
            w.kafka.accepts_again(n)
            w.kafka.cluster.nodes[n].answer_ms = 0.0
            s = w.sidecars[n]
            s.proc.go_on()
            # A transaction's time is over by the clock of its coordinator, and began by that of another broker, maybe.
            w.kafka.procs[n].wall_offset_ms = s.proc.wall_offset_ms = self._furthest_ms
            if not s.proc.alive:
                w.start_sidecar(n)
        for c in w.clients:
            c.proc.go_on()
        if self.rowdy is not None:
            self.rowdy.proc.crash()
        for c in w.strangers:
            c.proc.crash()
        w.net.heal()
        w.say(FAULT, "the faults end")

    def _after(self, low_ms: float, high_ms: float, work: Callable[[], object], told: str = "") -> None:
        def then() -> None:
            if self.on:
                if told:
                    self.world.say(FAULT, told)
                work()

        self.world.universe.later(self.rng.uniform(low_ms, high_ms), then)

    # ---- sidecars -------------------------------------------------------------------------------------------
    def sidecar_crashes(self) -> None:
        n = self.rng.choice(NODES)
        w = self.world
        w.say(FAULT, f"sidecar {n} is killed")
        w.sidecars[n].proc.crash()
        self._restart(n)

    def _restart(self, n: int) -> None:
        self._after(50, 8_000, lambda: self._again(n))

    def _again(self, n: int) -> None:
        w = self.world
        if not w.sidecars[n].proc.alive:
            w.say(FAULT, f"... sidecar {n} is started")
            w.start_sidecar(n)

    def sidecar_stops(self) -> None:
        n = self.rng.choice(NODES)
        w = self.world
        if w.sidecars[n].proc.life is Life.RUNS:
            w.say(FAULT, f"sidecar {n} is told to stop")
            w.sidecars[n].terminate()
            self._restart(n)

    def sidecar_stands_still(self) -> None:
        n = self.rng.choice(NODES)
        proc = self.world.sidecars[n].proc
        self.world.say(FAULT, f"sidecar {n} stands still")
        proc.stand_still()
        self._after(100, 12_000, proc.go_on, f"... sidecar {n} goes on")

    def settings_are_rolled_out(self) -> None:
        """Sidecars are restarted one after the other, with other sessions for members and other patterns of groups."""
        w = self.world
        w.more["consumer.session_timeout_ms"] = session_ms = self.rng.choice(SESSIONS_MS)
        if "streams" in w.kinds:
            w.more["streams.session_timeout_ms"] = session_ms
        w.say(FAULT, f"settings are rolled out: sessions of {session_ms:,} ms")
        for i, n in enumerate(self.rng.sample(NODES, len(NODES))):
            if self.patterns_stored:
                w.include[n] = self.rng.choice(INCLUDED)
            self._after(i * 2_000, i * 2_000 + 1_500, lambda n=n: self._restarted(n))  # type: ignore[misc]

    def _restarted(self, n: int) -> None:
        if self.world.sidecars[n].proc.life is Life.RUNS:
            self.world.say(FAULT, f"sidecar {n} is told to stop, for other settings: {self.world.include.get(n)}")
            self.world.sidecars[n].terminate()
            self._restart(n)

    def host_is_suspended(self) -> None:
        """Broker and sidecar, and their clocks."""
        n = self.rng.choice(NODES)
        w = self.world
        procs = [w.sidecars[n].proc, w.kafka.procs[n]]
        paused = self.rng.random() < 0.3
        w.say(FAULT, f"host {n} is suspended{', with all its clocks but one' if paused else ''}")
        for p in procs:
            p.stand_still()

        def wake() -> None:
            w.say(FAULT, f"... host {n} wakes")
            for p in procs:
                p.go_on(slept=True, paused=paused)

        self._after(100, 15_000, wake)

    def tail_lags(self) -> None:
        """A sidecar's copy of the state topic is behind the log."""
        s = self.world.sidecars[self.rng.choice(NODES)]
        lag_ms = self.rng.uniform(100, 3_000)
        if s.tail is None:
            return
        tail, tail.lag_ms = s.tail, lag_ms
        self.world.say(FAULT, f"the tail of sidecar {s.node_id} lags by {lag_ms:.0f} ms")
        self.lagging.append(tail)
        self._after(
            1_000, 10_000, lambda: setattr(tail, "lag_ms", 0.0), f"... the tail of sidecar {s.node_id} lags no more"
        )

    # ---- brokers --------------------------------------------------------------------------------------------
    def _may_go(self, n: int) -> bool:
        """A majority of the brokers stays: nobody promises anything else."""
        kafka, net = self.world.kafka, self.world.net
        others = [m for m in NODES if m != n]
        ways = [(host_of(a), host_of(b)) for a in others for b in others if a != b]
        return all(kafka.procs[m].life is Life.RUNS for m in others) and all(net.open_way(*way) for way in ways)

    def broker_crashes(self) -> None:
        n = self.rng.choice(NODES)
        if self._may_go(n):
            self.world.say(FAULT, f"broker {n} is killed")
            self.world.kafka.crash(n)
            self._after(500, 15_000, lambda: self.world.kafka.start(n), f"... broker {n} is started")

    def broker_stands_still(self) -> None:
        n = self.rng.choice(NODES)
        if self._may_go(n):
            proc = self.world.kafka.procs[n]
            self.world.say(FAULT, f"broker {n} stands still")
            proc.stand_still()
            self._after(200, 20_000, proc.go_on, f"... broker {n} goes on")

    def broker_is_slow(self) -> None:
        n = self.rng.choice(NODES)
        if self._may_go(n):
            node = self.world.kafka.cluster.nodes[n]
            node.answer_ms = self.rng.uniform(500, 10_000)
            self.world.say(FAULT, f"broker {n} takes {node.answer_ms:,.0f} ms for each answer")
            self._after(1_000, 20_000, lambda: setattr(node, "answer_ms", 0.0), f"... broker {n} is slow no more")

    def broker_accepts_nobody(self) -> None:
        """The kernel takes connections, and nobody serves them; older ones go on."""
        n, kafka = self.rng.choice(NODES), self.world.kafka
        if self._may_go(n):
            self.world.say(FAULT, f"broker {n} accepts nobody")
            kafka.accepts_none(n)
            self._after(1_000, 20_000, lambda: kafka.accepts_again(n), f"... broker {n} accepts connections again")

    def majority_is_lost(self) -> None:
        """Stops two brokers just when an owner dies: nothing can be committed for a while. Nothing may be lost."""
        w, p = self.world, self.rng.randrange(self.world.partitions)
        n = w.judge.fold.parts[p].owner
        if n not in NODES or not all(w.kafka.procs[m].life is Life.RUNS for m in NODES):
            return
        still = self.rng.sample(NODES, 2)
        w.say(FAULT, f"brokers {still} stand still, sidecar {n} is killed")
        procs = [w.kafka.procs[m] for m in still]
        for proc in procs:
            proc.stand_still()
        w.sidecars[n].proc.crash()

        def go_on() -> None:
            for proc in procs:
                proc.go_on()

        self._after(3_000, 12_000, go_on, f"... brokers {still} go on")
        self._restart(n)

    def fence_is_out_of_reach(self) -> None:
        """An owner dies while the broker that gives fences takes too long for each: the takeover fails at first."""
        w, p = self.world, self.rng.randrange(self.world.partitions)
        n = w.judge.fold.parts[p].owner
        giver = w.kafka.leader(TRANSACTIONS, partition_for(f"{STATE_TOPIC}-{p}", TXN_PARTITIONS))
        if n not in NODES or giver is None:
            return
        w.say(FAULT, f"the disk of broker {giver} is very slow, sidecar {n} is killed")
        slow = w.kafka.cluster.slow_disk_ms
        slow[giver] = self.rng.uniform(2_500, 5_000)
        w.sidecars[n].proc.crash()
        self._after(5_000, 15_000, lambda: slow.pop(giver, None), f"... the disk of broker {giver} is well again")
        self._restart(n)

    def share_coordinator_is_away(self) -> None:
        """Takes the share coordinator away: nothing is initialised meanwhile, and members keep their partitions."""
        cluster = self.world.kafka.cluster
        self.world.say(FAULT, "the share coordinator is away")
        cluster.share_coordinator_away = True

        def back() -> None:
            cluster.share_coordinator_away = False

        self._after(1_000, 20_000, back, "... the share coordinator is back")

    def _owners_coordinator(self) -> int | None:
        group_id = self.world.settings(NODES[0]).ownership.group
        return self.world.kafka.leader(OFFSETS, partition_for(group_id, self.world.partitions))

    def owners_coordinator_is_cut_off(self) -> None:
        """The broker that coordinates the owners' group goes on answering the sidecar beside it."""
        n = self._owners_coordinator()
        if n is not None and self._may_go(n):
            self.world.say(FAULT, f"host {n}, where the owners' group is coordinated, is cut off")
            self._cut_off(n, 10_000, 28_000)

    def disk_is_slow(self) -> None:
        n = self.rng.choice(NODES)
        slow = self.world.kafka.cluster.slow_disk_ms
        slow[n] = self.rng.uniform(10, 800)
        self.world.say(FAULT, f"the disk of broker {n} is slow: {slow[n]:.0f} ms more")
        self._after(1_000, 10_000, lambda: slow.pop(n, None), f"... the disk of broker {n} is well again")

    def compaction(self) -> None:
        self.world.say(FAULT, "compaction")
        for p in range(self.world.partitions):
            self.world.kafka.cluster.compact(STATE_TOPIC, p)

    def record_is_damaged(self) -> None:
        damage(self.world, self.rng.choice([g for g in self.groups if g not in self.world.judge.moving.homes]))

    def group_is_moved(self) -> None:
        """Taken in, or given back; an order may come before the one before it has been carried out."""
        w = self.world
        homes = w.judge.moving.homes
        group_id = next(iter(homes)) if len(homes) == 1 else self.rng.choice(sorted(homes))
        if group_id in w.ordering:
            return
        managed = homes[group_id] != SIDECARS
        w.say(FAULT, f"{group_id} is to be {'taken in' if managed else 'given back'}")
        w.order(group_id, managed)

    # ---- the network ----------------------------------------------------------------------------------------
    def _hosts(self) -> list[str]:
        return [host_of(n) for n in NODES]

    def way_is_cut(self) -> None:
        """Between two hosts of brokers, or a client's and one of them; in one direction or both."""
        a, b = self.rng.sample(self._hosts(), 2)
        if self.world.clients and self.rng.random() < 0.4:
            a = self.rng.choice(self.world.clients).proc.host
        ways = {(a, b)} if self.rng.random() < 0.5 else {(a, b), (b, a)}
        self.world.say(FAULT, f"cut: {sorted(ways)}")
        net = self.world.net
        net.cut |= ways

        def mend() -> None:
            net.cut -= ways
            net.mended()

        self._after(300, 15_000, mend, f"... mended: {sorted(ways)}")

    def host_is_silent(self) -> None:
        n = self.rng.choice(NODES)
        if self._may_go(n):
            host, net = host_of(n), self.world.net
            self.world.say(FAULT, f"host {n} is silent")
            net.silent.add(host)

            def mend() -> None:
                net.silent.discard(host)
                net.mended()

            self._after(500, 15_000, mend, f"... host {n} is heard again")

    def host_is_alone(self) -> None:
        """Cut off from the other hosts of brokers; clients reach it all the same."""
        n = self.rng.choice(NODES)
        if self._may_go(n):
            self.world.say(FAULT, f"host {n} is alone")
            self._cut_off(n, 2_000, 30_000)

    def _cut_off(self, n: int, low_ms: float, high_ms: float) -> None:
        ways = {way for m in NODES if m != n for way in ((host_of(n), host_of(m)), (host_of(m), host_of(n)))}
        net = self.world.net
        net.cut |= ways

        def mend() -> None:
            net.cut -= ways
            net.mended()

        self._after(low_ms, high_ms, mend, f"... host {n} is reached again")

    def owner_is_cut_off(self) -> None:
        """Just when a batch of its is under way; that arrives when another one has long taken over."""
        w, p = self.world, self.rng.randrange(self.world.partitions)
        n = w.judge.fold.parts[p].owner
        if n not in NODES:
            return
        s, until_ms = w.sidecars[n], w.universe.now_ms + LOOKS_MS

        def look() -> bool:
            owners = s.owners()
            if not self.on or not owners or w.universe.now_ms > until_ms:
                return True
            if owners[p].idle:
                return False
            if self._may_go(n):
                w.say(FAULT, f"host {n}, the owner of {p}, is cut off while it writes")
                self._cut_off(n, 5_000, 14_000)
            return True

        w.universe.watched.append(look)

    def commit_is_held_up(self) -> None:
        """On its way from an owner to the broker that keeps the offsets, until another owner has long taken over. They
        are on two hosts only while the sidecar beside that broker is down."""
        w, p = self.world, self.rng.randrange(self.world.partitions)
        keeper = w.kafka.leader(OFFSETS, p)
        if keeper is None:
            return
        w.say(FAULT, f"sidecar {keeper}, beside the keeper of {p}, is killed")
        w.sidecars[keeper].proc.crash()
        self._after(12_000, 20_000, lambda: self._again(keeper))
        until_ms = w.universe.now_ms + LOOKS_MS

        def look() -> bool:
            if not self.on or w.universe.now_ms > until_ms:
                return True
            n = w.judge.fold.parts[p].owner
            members = [c for c in w.clients if c.committing and w.judge.fold.partition_of(c.habits.group_id) == p]
            elsewhere = n in NODES and n != keeper and members and w.sidecars[n].has_sent_on(keeper)
            if not elsewhere or not self._may_go(n):
                return False
            w.say(FAULT, f"host {n}, the owner of {p}, is cut off while {[c.name for c in members]} commit")
            self._cut_off(n, 9_000, 20_000)
            for c in members:
                if self.rng.random() < 0.5:
                    w.say(FAULT, f"{c.name} is killed")
                    c.proc.crash()
                    self.come(c.habits.group_id)
            return True

        w.universe.watched.append(look)

    def network_is_slow(self) -> None:
        net = self.world.net
        net.slow_ms = self.rng.choice((5.0, 50.0, 400.0))
        self.world.say(FAULT, f"the network is slow: now and then {net.slow_ms:g} ms more")

        def mend() -> None:
            net.slow_ms = 0.0

        self._after(1_000, 10_000, mend, "... the network is well again")

    def wall_clock_jumps(self) -> None:
        n = self.rng.choice(NODES)
        far = 5_000.0 if self.world.forgets_ids else 3_600_000.0  # what an hour is there, would be years elsewhere
        by = self.rng.choice((-far, -5_000.0, 5_000.0, far))
        self.world.say(FAULT, f"the wall clock of host {n} jumps by {by / 1000:g} s")
        self.world.sidecars[n].proc.wall_offset_ms += by
        broker = self.world.kafka.procs[n]
        broker.wall_offset_ms += by
        self._furthest_ms = max(self._furthest_ms, broker.wall_offset_ms)

    # ---- clients --------------------------------------------------------------------------------------------
    def client_crashes(self) -> None:
        alive = [c for c in self.world.clients if c.proc.alive]
        if alive:
            c = self._one_of(alive)
            self.world.say(FAULT, f"{c.name} is killed")
            c.proc.crash()
            if c.habits.instance_id is not None or len(alive) < 3:
                self._after(100, 9_000, lambda: self._comes_back(c))

    def client_stands_still(self) -> None:
        alive = [c for c in self.world.clients if c.proc.life is Life.RUNS]
        if alive:
            c = self._one_of(alive)
            self.world.say(FAULT, f"{c.name} stands still")
            c.proc.stand_still()
            self._after(500, 15_000, c.proc.go_on, f"... {c.name} goes on")

    def client_leaves(self) -> None:
        alive = [c for c in self.world.clients if c.proc.alive and not c.leaving]
        if len(alive) > 3:
            c = self._one_of(alive)
            self.world.say(FAULT, f"{c.name} leaves")
            c.leaving = True
            if isinstance(c, StreamsMember) and c.habits.instance_id is not None:  # for a while
                self._after(100, 4_000, lambda: self._comes_back(c))

    def _comes_back(self, c: Client) -> None:
        """Gives the client's process another life, once, though it was killed while it left. An application keeps the
        id of its process beside its state."""
        if not c.proc.alive and c.name not in self.back:
            self.back.add(c.name)
            same = replace(c.habits, process_id=c.process) if isinstance(c, StreamsMember) else c.habits
            self.world.add_client(type(c), same)

    def _one_of(self, clients: list[Client]) -> Client:
        """Every other time one of the kinds that are not in every run, if there are any."""
        of_kinds = [c for c in clients if c.habits.group_id in (*OF_KINDS.values(), MOVES_STREAMS)]
        return self.rng.choice(of_kinds if of_kinds and self.rng.random() < 0.5 else clients)

    def client_comes(self) -> None:
        if sum(c.proc.alive for c in self.world.clients) < 4 * len(self.groups):
            self.come(self.rng.choice([*self.groups, *(OF_KINDS[kind] for kind in self.world.kinds)]))

    def _of_an_application(self, h: Habits) -> StreamsHabits:
        """One in three is another thread of a process that is there; two in five are slow to give tasks up."""
        there = [c.process for c in self.world.clients if isinstance(c, StreamsMember) and c.proc.alive]
        process = self.rng.choice(there) if there and self.rng.random() < 0.3 else ""
        slow_ms = self.rng.choice((2_000.0, 12_000.0)) if self.rng.random() < 0.4 else h.revoke_ms
        topics = [(t, internal) for task in self.application.by_task.values() for t, _, internal in task]
        made = StreamsHabits(
            h.group_id,
            (),
            h.instance_id,
            revoke_ms=slow_ms,
            exactly_once=h.exactly_once,
            application=self.application,
            process_id=process,
            endpoint=self.rng.random() < 0.5,
        )
        return replace(made, topics=tuple(dict.fromkeys(made.topic(t, internal) for t, internal in topics)))

    def come(self, group_id: str) -> None:
        taken = {c.habits.instance_id for c in self.world.clients if c.habits.group_id == group_id}
        number = f"i{len(taken)}"
        instance = number if self.rng.random() < 0.3 and number not in taken and group_id not in DYNAMIC else None
        how = self.rng.choice(("", "old", "new")) if self.exactly_once and group_id != SHARE else ""
        habits = Habits(group_id, self.rng.choice(TOPICS), instance, exactly_once=how)
        if group_id in (STREAMS, MOVES_STREAMS):
            habits = self._of_an_application(habits)
        made = self.world.add_client(self.rng.choice(MORE_GROUPS[group_id]), habits)
        self.world.say(FAULT, f"{made.name} comes to {group_id}, instance {instance}{how and ', exactly once'}")
