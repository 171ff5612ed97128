"""Changes of the cluster while faults are on: members come, go and change their protocol, topics and settings change,
sidecars crash, stand still and lose what they own."""

from __future__ import annotations

from collections.abc import Callable

from sidecar.core.classic.config import ClassicConfig
from sidecar.core.classic.events import LeaveGroup, Leaving
from sidecar.core.runtime.events import DeleteGroup
from tests.core.world import topic
from tests.sim.classic import COOPERATIVE, STATIC_SINCE, ClassicMember
from tests.sim.client import OF_FRANZ, Client
from tests.sim.front import Ask
from tests.sim.model import SIDECARS, Cluster, Member
from tests.sim.node import Node
from tests.sim.world import GROUPS, REBALANCE_MS, SESSION_MS, Faults

MEMBERS = 8
STRATEGIES = ((("range",),), ((COOPERATIVE,),), (("range",), (COOPERATIVE, "range")))
"""Protocols that classic members of one group may name: there is one that all of them know."""


class Play:
    """Faults and changes of one run, at random times."""

    def __init__(self, sim: Cluster) -> None:
        self.sim, self.world = sim, sim.world
        self.rng = sim.world.rng
        self.counts = [5, 3, 2]
        """Partitions of the topics t0 to t2."""
        self.made = 0
        self.strategies = {group_id: self.rng.choice(STRATEGIES) for group_id in GROUPS}
        self.topics_of: dict[tuple[str, str], tuple[str, ...]] = {}
        """Group and instance id -> what its classic process subscribes to: another one after a restart would be noticed
        only by the next rebalance, as in Kafka."""
        self.choose()

    def choose(self) -> None:
        rng, world = self.rng, self.world
        world.faults = Faults(
            drop=rng.choice((0, 0.02, 0.15)),
            duplicate=rng.choice((0, 0.02, 0.1)),
            slow=rng.choice((0, 0.05, 0.3)),
            append_fails=rng.choice((0, 0, 0.02)),
            append_lost=rng.choice((0, 0, 0.02)),
            assignor_fails=rng.choice((0, 0, 0.3)),
            hangs_up=rng.choice((0, 0, 0.05)),
            stalls=rng.choice((0, 0, 0.15)),
            breaks=rng.choice((0, 0, 0.004)),
        )
        world.link_ms = rng.choice((0, 0, rng.randint(1, 20)))
        world.asks_access = rng.random() < 0.3
        world.set_config(
            assignment_interval_ms=rng.choice((0, 1_000, 3_000)),
            assignor_offload_enable=rng.random() < 0.6,
            assignors=rng.choice((("uniform", "range"), ("range",), ("flaky", "uniform"))),
            assignor_timeout_ms=rng.choice((1_000, 30_000)),
            join_wait_ms=rng.choice((0, 500, 2_000)),
            migration_policy=rng.choice(("bidirectional",) * 5 + ("upgrade", "downgrade", "disabled")),
        )
        world.classic = ClassicConfig(
            initial_rebalance_delay_ms=rng.choice((0, 500, 1_500)),
            new_member_join_timeout_ms=rng.choice((300_000, 10_000)),
            stale_claims=rng.choice(("report", "strip")),
        )

    def begin(self) -> None:
        self.sim.set_topics(*(topic(i + 1, f"t{i}", n) for i, n in enumerate(self.counts)))
        for _ in range(self.rng.randint(1, 6)):
            self.join()
        self.world.sched.at(500, self.act)

    def act(self) -> None:
        if not self.world.faults.on:
            return
        self.world.sched.at(self.rng.randint(200, 2_500), self.act)
        what = self.rng.random()
        for share, action in ACTIONS:
            what -= share
            if what < 0:
                action(self)
                return

    # ---- members ----------------------------------------------------------------------------------------------
    def join(self) -> None:
        rng, clients = self.rng, self.sim.clients
        group_id = rng.choice((GROUPS[0], GROUPS[0], *GROUPS))
        if sum(not c.ended for c in clients) >= MEMBERS:
            return
        instance = f"i{rng.randrange(3)}" if rng.random() < 0.3 else None
        if any(c.instance_id == instance and c.group_id == group_id and not c.ended for c in clients):
            instance = None
        mode = self.world.modes[group_id]
        self._add_member(group_id, instance, mode == "classic" or (mode == "mixed" and rng.random() < 0.5))

    def _add_member(self, group_id: str, instance: str | None, classic: bool) -> None:
        if not self.world.faults.on:
            return
        self.made += 1
        c = self._classic(group_id, instance) if classic else self._consumer(group_id, instance)
        self.sim.add(c)
        self.world.trace(f"m{self.made} comes to {group_id}, {'classic' if classic else 'consumer'}, {instance}")

    def _consumer(self, group_id: str, instance: str | None) -> Client:
        rng = self.rng
        names = tuple(sorted(rng.sample(["t0", "t1", "t2"], rng.randint(1, 3))))
        regex = rng.choice((None, None, "t[01]"))
        return Client(
            world=self.world,
            fronts=self.sim.fronts,
            check=self.sim.checks.no_two_owners,
            group_id=group_id,
            member_id=f"m{self.made}",
            names=None if regex else names,
            regex=regex,
            instance_id=instance,
            node=rng.randrange(SIDECARS),
            tries=rng.choice((1, 1, OF_FRANZ)),
            terse=rng.random() < 0.5,
        )

    def _classic(self, group_id: str, instance: str | None) -> ClassicMember:
        """Old clients know no instance ids, and get a new member id with every JoinGroup: they must be patient."""
        rng = self.rng
        version = rng.choice((5, 7, 9)) if instance else rng.choice((0, 3, 4, STATIC_SINCE, 7, 9, 9))
        rebalance_ms = rng.choice((5_000, REBALANCE_MS))
        if not version:
            rebalance_ms = SESSION_MS
        names = tuple(sorted(rng.sample(["t1", "t2"], rng.randint(1, 2))))
        if instance is not None:
            names = self.topics_of.setdefault((group_id, instance), names)
        patient = version < 4 or rng.random() < 0.7
        return ClassicMember(
            world=self.world,
            fronts=self.sim.fronts,
            check=self.sim.checks.no_two_owners,
            group_id=group_id,
            member_id="",
            name=f"m{self.made}",
            names=names,
            strategies=rng.choice(self.strategies[group_id]),
            instance_id=instance,
            node=rng.randrange(SIDECARS),
            epoch=-1,
            version=version,
            metadata_version=rng.choice((1, 2, 3, 3)),
            session_ms=rng.choice((SESSION_MS, SESSION_MS + 1_000)),
            rebalance_ms=rebalance_ms,
            join_patience_ms=rebalance_ms + 3_000 if patient else 2_500,
            sync_patience_ms=rng.choice((5_000, 20_000)) if patient else 2_500,
            keeps=rng.random() < 0.3,
        )

    def _anybody(self) -> Member | None:
        present = [c for c in self.sim.clients if not c.ended]
        return self.rng.choice(present) if present else None

    def roll(self) -> None:
        """A static member restarts, or one of a mixed group goes on with the other protocol. Its old process is gone,
        or not yet."""
        c = self._anybody()
        if c is None or c.leaving:
            return
        classic, mixed = isinstance(c, ClassicMember), self.world.modes[c.group_id] == "mixed"
        if c.instance_id is None and not mixed:
            return
        then = self.rng.random() < 0.5 if mixed and c.instance_id else classic != mixed
        how = self.rng.random()
        if c.instance_id is None or (how < 0.5 and not classic):
            c.leave(-2 if c.instance_id else -1)
        elif how < 0.8:
            c.ended = True
        self.world.trace(f"m{self.made + 1} comes in the place of {c.member_id}")
        self.world.sched.at(self.rng.randint(1, 1_000), lambda: self._add_member(c.group_id, c.instance_id, then))

    def doze(self) -> None:
        """Pauses a member for about a session timeout, or longer."""
        c = self._anybody()
        if c is not None:
            c.paused_until = self.world.now + self.rng.randint(1_000, SESSION_MS + 5_000)
            self.world.trace(f"{c.member_id} dozes until {c.paused_until}")

    def leave(self) -> None:
        c = self._anybody()
        if c is not None:
            c.leave(-2 if c.instance_id and self.rng.random() < 0.6 else -1)
            self.world.trace(f"{c.member_id} leaves {c.leaving}")

    def die(self) -> None:
        """Kills a member: its session will end."""
        c = self._anybody()
        if c is not None:
            c.ended = True
            self.world.trace(f"{c.member_id} dies")

    def administer(self) -> None:
        """An administrator removes a static member, whichever protocol it speaks, or deletes a group that is empty."""
        rng, group_id = self.rng, self.rng.choice(GROUPS)
        static = Leaving("", f"i{rng.randrange(3)}", None)
        event = DeleteGroup(group_id) if rng.random() < 0.5 else LeaveGroup(group_id, (static,))
        owner = self.world.owners[self.world.partition_of(group_id)]
        ask = Ask(event, lambda reply: None, lambda: True, lambda: None)
        self.world.net(lambda: self.sim.fronts[owner].receive(ask), duplicate=False)
        self.world.trace(f"an administrator: {event}")

    # ---- topics and settings ------------------------------------------------------------------------------------
    def change_topics(self) -> None:
        rng, counts = self.rng, self.counts
        counts[rng.randrange(3)] += 1
        kinds = [(i + 1, f"t{i}", n) for i, n in enumerate(counts)]
        if rng.random() < 0.2:
            kinds.append((9, "t01", 2))
        if rng.random() < 0.2:
            kinds[0] = (rng.choice((1, 7)), "t0", counts[0])  # made anew under another id
        if rng.random() < 0.1:
            kinds.pop(0)  # no topic of the classic protocol, whose members know names and no ids
        self.sim.set_topics(*(topic(*k) for k in kinds))
        self.world.trace(f"topics {kinds}")

    def change_settings(self) -> None:
        rng = self.rng
        self.sim.set_config(
            assignment_interval_ms=rng.choice((0, 1_000, 3_000)), assignor_offload_enable=rng.random() < 0.5
        )

    # ---- sidecars -----------------------------------------------------------------------------------------------
    def _some_sidecar(self) -> Node:
        return self.rng.choice(self.sim.nodes)

    def crash(self) -> None:
        node, back_ms = self._some_sidecar(), self.rng.randint(500, 8_000)
        node.crash()
        self.world.sched.at(back_ms, node.revive)
        self.world.trace(f"sidecar {node.name} crashes for {back_ms} ms")

    def pause(self) -> None:
        node = self._some_sidecar()
        node.pause(self.rng.randint(200, 9_000))
        self.world.trace(f"sidecar {node.name} stands still until {node.paused_until}")

    def cut_off(self) -> None:
        """One sidecar does not hear the brokers' group; or none does, as it has no coordinator for a while."""
        node, for_ms = self._some_sidecar(), self.rng.randint(500, 8_000)
        for n in self.sim.nodes if self.rng.random() < 0.2 else (node,):
            n.cut_off = True
            self.world.sched.at(for_ms, lambda n=n: setattr(n, "cut_off", False))  # type: ignore[misc]
            self.world.trace(f"sidecar {n.name} is cut off from the brokers for {for_ms} ms")

    def skew(self) -> None:
        node = self._some_sidecar()
        node.skew += self.rng.choice((-3_600_000, -2_000, 2_000, 3_600_000))
        self.world.trace(f"wall clock of sidecar {node.name}: {node.skew}")

    def compact(self) -> None:
        for log in self.world.logs:
            log.compact(self.rng)
        self.world.trace("compaction")

    def move(self) -> None:
        """One partition, or all."""
        node, world = self._some_sidecar(), self.world
        which = self.rng.randrange(2 * len(world.owners))
        owners = tuple(node.name if p == which or which >= len(world.owners) else o for p, o in enumerate(world.owners))
        world.appoint(owners)
        world.trace(f"ownership moves: {owners}")


ACTIONS: tuple[tuple[float, Callable[[Play], None]], ...] = (
    (0.21, Play.join),
    (0.05, Play.roll),
    (0.03, Play.doze),
    (0.09, Play.leave),
    (0.05, Play.die),
    (0.04, Play.administer),
    (0.08, Play.change_topics),
    (0.10, Play.crash),
    (0.08, Play.pause),
    (0.08, Play.cut_off),
    (0.07, Play.skew),
    (0.05, Play.compact),
    (0.04, Play.move),
    (0.04, Play.change_settings),
)
"""The actions, each with its probability."""
