"""All of it: three sidecars, their clients, and the brokers' group that says which sidecar owns what.

One heap of events and one `random.Random`: a seed replays exactly.
"""

from __future__ import annotations

from sidecar.core.classic.embedded import assigned
from sidecar.core.classic.group import ClassicGroup
from sidecar.core.classic.records import State
from sidecar.core.consumer.group import GroupState
from sidecar.core.vocabulary.topics import Topic
from tests.sim.checks import Checks
from tests.sim.classic import ClassicMember
from tests.sim.client import Client
from tests.sim.node import Node
from tests.sim.peer import Place
from tests.sim.world import GROUPS, LEASE_MS, TICK_MS, TOPIC_IDS, World

SIDECARS = 3
Member = Client | ClassicMember


class Cluster:
    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.checks = Checks(self.world)
        self.nodes = [Node(self.world, self.checks, i) for i in range(SIDECARS)]
        self.fronts = [n.front for n in self.nodes]
        self.clients: list[Member] = []
        self.changed_ms = 0
        """The time at which the topics changed last."""
        self.checks.clients = self.clients
        for node in self.nodes:
            self.world.sched.at(self.world.rng.randint(1, TICK_MS), node.tick)
        self.world.sched.at(1, self._arbitrate)

    def _arbitrate(self) -> None:
        """The owners' group at the brokers: an owner has sent a heartbeat lately."""
        world = self.world
        live = [n.name for n in self.nodes if n.alive and world.now - n.proved < LEASE_MS + 500]
        owners = tuple(o if o in live else world.rng.choice(live) if live else -1 for o in world.owners)
        if owners != world.owners:
            world.appoint(owners)
            world.trace(f"owners {owners}")
        world.sched.at(250, self._arbitrate)

    def add(self, client: Member) -> None:
        self.clients.append(client)
        self.world.sched.at(1, client.beat)

    def set_topics(self, *topics: Topic) -> None:
        self.world.topics, self.changed_ms = topics, self.world.now
        for node in self.nodes:
            node.later(self.world.rng.randint(1, 800), node.learn_topics)

    def set_config(self, **values: object) -> None:
        self.world.set_config(**values)
        for node in self.nodes:
            node.later(self.world.rng.randint(1, 50), node.config_changed)

    # ---- the end --------------------------------------------------------------------------------------------
    def settled(self) -> bool:
        """Everybody has gone on for a while, and every group is as it should be."""
        present = (*self.nodes, *(c for c in self.clients if not c.ended))
        if any(max(n.paused_until, n.busy_until) + 2_000 > self.world.now for n in present):
            return False
        return all(self._settled(g) for g in GROUPS)

    def _settled(self, group_id: str) -> bool:
        """Stable, everybody has what the target says, nothing is left over, the dead are gone."""
        present = {c.member_id: c for c in self.clients if c.group_id == group_id and not c.ended and not c.leaving}
        group = self.checks.group(group_id)
        if group is None:
            return not present
        if set(group.members) != set(present):
            return False
        if isinstance(group, ClassicGroup):
            return self._settled_classic(group, present)
        if not present:
            return True
        if group.state() is not GroupState.STABLE:
            return False
        if any(c.epoch != group.members[c.member_id].member_epoch or not c.only_heartbeats for c in present.values()):
            return False
        return _owned(present) == self._all({n for m in group.members.values() for n in group.topics_of(m)})

    def _settled_classic(self, group: ClassicGroup, present: dict[str, Member]) -> bool:
        if not present:
            return group.state is State.EMPTY
        if group.state is not State.STABLE:
            return False
        for member_id, c in present.items():
            told = assigned(group.assignments.get(member_id, b"")) or {}
            if not isinstance(c, ClassicMember) or not c.only_heartbeats or c.epoch != group.generation:
                return False
            if c.partitions() != {(TOPIC_IDS[t], p) for t, ps in told.items() for p in ps if t in TOPIC_IDS}:
                return False
        leader = present.get(group.leader or "")
        unaware = not isinstance(leader, ClassicMember) or leader.seen is None
        if unaware and self.changed_ms > self.checks.generations.stable_ms[group.group_id] - 5_000:
            # The leader came back as a static member (KIP-814), or the group was downgraded, and it does not know that
            # it leads: nobody looks at the topics until something else happens, as in Kafka.
            return True
        names = {n for c in present.values() if isinstance(c, ClassicMember) for n in c.names}
        return _owned(present) == self._all(names)

    def _all(self, names: set[str]) -> set[Place]:
        return {(t.id, p) for t in self.world.topics if t.name in names for p in range(t.partitions)}

    def unanswered(self) -> int:
        return sum(n.service.tally.open for n in self.nodes)

    def describe(self) -> str:
        return "; ".join(self._describe(g) for g in GROUPS if not self._settled(g))

    def _describe(self, group_id: str) -> str:
        group = self.checks.group(group_id)
        clients = [
            (c.member_id, c.epoch, sorted(c.partitions()), c.leaving)
            for c in self.clients
            if c.group_id == group_id and not c.ended
        ]
        if group is None:
            return f"no group {group_id}, clients {clients}"
        if isinstance(group, ClassicGroup):
            return f"{group_id} {group.state} {group.generation} members {list(group.members)} clients {clients}"
        members = [(m.member_id, m.member_epoch, str(m.state)) for m in group.members.values()]
        epochs = f"epoch {group.epoch} target {group.assignment_epoch}"
        return f"{group_id} {group.state()} {epochs} members {members} clients {clients}"


def _owned(present: dict[str, Member]) -> set[Place]:
    return {place for c in present.values() for place in c.partitions()}
