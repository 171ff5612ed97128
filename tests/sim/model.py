"""All of it: three sidecars, their clients, and the brokers' group that says which sidecar owns what.

One heap of events and one `random.Random`: a seed replays exactly.
"""

from __future__ import annotations

from sidecar.core.consumer.group import GroupState
from sidecar.core.topics import Topic
from tests.sim.checks import Checks
from tests.sim.client import Client
from tests.sim.node import Node
from tests.sim.world import GROUPS, LEASE_MS, TICK_MS, World

SIDECARS = 3


class Cluster:
    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.checks = Checks(self.world)
        self.nodes = [Node(self.world, self.checks, i) for i in range(SIDECARS)]
        self.fronts = [n.front for n in self.nodes]
        self.clients: list[Client] = []
        self.checks.clients = self.clients
        for node in self.nodes:
            self.world.sched.at(self.world.rng.randint(1, TICK_MS), node.tick)
        self.world.sched.at(1, self._arbitrate)

    def _arbitrate(self) -> None:
        """The brokers' group of the sidecars: an owner is one that was heard lately."""
        world = self.world
        live = [n.name for n in self.nodes if n.alive and world.now - n.proved < LEASE_MS + 500]
        owners = tuple(o if o in live else world.rng.choice(live) if live else -1 for o in world.owners)
        if owners != world.owners:
            world.appoint(owners)
            world.say(f"owners {owners}")
        world.sched.at(250, self._arbitrate)

    def add(self, client: Client) -> None:
        self.clients.append(client)
        self.world.sched.at(1, client.beat)

    def set_topics(self, *topics: Topic) -> None:
        self.world.topics = topics
        for node in self.nodes:
            node.later(self.world.rng.randint(1, 800), node.learn_topics)

    def set_config(self, **values: object) -> None:
        self.world.set_config(**values)
        for node in self.nodes:
            node.later(self.world.rng.randint(1, 50), node.config_changed)

    # ---- the end --------------------------------------------------------------------------------------------
    def settled(self) -> bool:
        """Every sidecar has gone on for a while, and every group is as it should be."""
        if any(n.paused_until + 2_000 > self.world.now for n in self.nodes):
            return False
        return all(self._settled(g) for g in GROUPS)

    def _settled(self, group_id: str) -> bool:
        """Stable, everybody has what the target says, nothing is left over, the dead are gone."""
        present = {c.member_id: c for c in self.clients if c.group_id == group_id and not c.gone and not c.leaving}
        group = self.checks.group(group_id)
        if group is None:
            return not present
        if set(group.members) != set(present):
            return False
        if not present:
            return True
        if group.state() is not GroupState.STABLE:
            return False
        if any(c.epoch != group.members[c.member_id].member_epoch for c in present.values()):
            return False
        owned = {place for c in present.values() for place in c.partitions()}
        by_name = {t.name: t for t in self.world.topics}
        topics = {by_name[n] for m in group.members.values() for n in group.topics_of(m) if n in by_name}
        return owned == {(t.id, p) for t in topics for p in range(t.partitions)}

    def unanswered(self) -> int:
        return sum(n.service.tally.open for n in self.nodes)

    def describe(self) -> str:
        return "; ".join(self._describe(g) for g in GROUPS if not self._settled(g))

    def _describe(self, group_id: str) -> str:
        group = self.checks.group(group_id)
        clients = [
            (c.member_id, c.epoch, sorted(c.partitions()), c.leaving)
            for c in self.clients
            if c.group_id == group_id and not c.gone
        ]
        if group is None:
            return f"no group {group_id}, clients {clients}"
        members = [(m.member_id, m.member_epoch, str(m.state)) for m in group.members.values()]
        epochs = f"epoch {group.epoch} target {group.assignment_epoch}"
        return f"{group_id} {group.state()} {epochs} members {members} clients {clients}"
