"""Random members, faults, owners and a broker whose topics come and go; what must hold of a streams group after every
event."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from sidecar.core.runtime.effects import Effects
from sidecar.core.runtime.offset_checks import CommitCheck
from sidecar.core.streams.configure import configured_with
from sidecar.core.streams.events import TopicsCreated
from sidecar.core.streams.group import Member, StreamsGroup
from sidecar.core.streams.records import TargetRecord
from sidecar.core.streams.soft_state import StreamsSoft
from sidecar.core.streams.tasks import Holders
from sidecar.core.streams.topology import Subtopology, TopicInfo, Topology
from sidecar.core.vocabulary.errors import Code
from tests.core.streams.world import TOPOLOGY, Client, World, quick, tasks_of
from tests.harness.seeds import alone, hold
from tests.harness.tiers import Seeds

SEEDS = 200
EVENTS = 200
TOPOLOGIES = (
    TOPOLOGY,
    Topology(0, (Subtopology("0", ("in",), (), (), (TopicInfo("app-c"),)),)),
    Topology(0, (Subtopology("0", ("in",)), Subtopology("1", ("b",), (), (), (TopicInfo("app-c"),)))),
)
Task = tuple[str, int]
REFUSALS = (Code.TOPIC_AUTHORIZATION_FAILED, 44)


@dataclass
class Run:
    rng: random.Random
    world: World = field(init=False)
    topology: Topology = field(init=False)
    clients: list[Client] = field(default_factory=list)
    away: list[Client] = field(default_factory=list)
    """Static members that left for a while."""
    counts: dict[str, int] = field(default_factory=lambda: {"in": 3, "b": 2})
    """Partitions of the source topics, if these are there: they do not shrink."""
    made: int = 0
    epoch: int = 0
    endpoint_epoch: int = 0
    member_epochs: dict[str, int] = field(default_factory=dict)
    deaf: Client | None = None
    """The client whose answers are lost."""

    def __post_init__(self) -> None:
        rng = self.rng
        self.topology = rng.choice(TOPOLOGIES)
        self.world = World(
            quick(
                join_wait_ms=rng.choice((0, 500)),
                assignment_interval_ms=rng.choice((0, 1000)),
                assignor_offload_enable=rng.random() < 0.5,
                initial_rebalance_delay_ms=rng.choice((0, 0, 3000)),
                num_standby_replicas=rng.choice((0, 1)),
            )
        )
        self.world.applied = self.listen
        self.world.grow(self.counts)
        if rng.random() < 0.5:
            self.world.grow(self.wanted())

    def wanted(self) -> dict[str, int]:
        """The internal topics as they should be."""
        ready = dict(self.counts)
        group = StreamsGroup("g")
        soft = StreamsSoft()
        other = World()
        other.grow(ready)
        configured = configured_with(group, self.topology, other.shard.image, soft)
        return {t.name: t.partitions for s in configured.subtopologies.values() for t in s.internal_topics()}

    # ---- events -------------------------------------------------------------------------------------------
    def event(self) -> None:
        what = self.rng.random()
        if what < 0.1 and len(self.clients) < 6:
            self.join()
        elif what < 0.28:
            self.once()
        elif what < 0.38:
            self.create()
        elif what < 0.45:
            self.world.finish("injected" if self.rng.random() < 0.1 else "")
        elif what < 0.47:
            self.world.sleep(self.rng.randint(1_000, 60_000), 500)
        elif self.clients:
            self.rng.choice(self.clients).send()
        self.world.sleep(self.rng.randint(1, 300), 50)

    def join(self) -> None:
        self.made += 1
        if self.away and self.rng.random() < 0.7:
            old = self.away.pop()
            client = replace(old, member_id=f"m{self.made}", full=True)
        else:
            instance = f"i{self.made}" if self.rng.random() < 0.3 else None
            client = Client(self.world, f"m{self.made}", instance_id=instance, topology=self.topology)
            client.process_id = f"p{self.rng.randrange(4)}"
            client.endpoint = self.rng.choice((None, ("h", self.made)))
        self.clients.append(client)

    def create(self) -> None:
        """The broker's controller takes a request to create topics, refuses it, or is never heard."""
        asked = [c for c in self.clients if c.create]
        if not asked:
            return
        client = self.rng.choice(asked)
        topics, client.create = client.create, []
        told: list[tuple[str, int, str | None]] = []
        for t in topics:
            if t.name in self.world.counts:
                told.append((t.name, Code.TOPIC_ALREADY_EXISTS, None))
            elif self.rng.random() < 0.2:
                told.append((t.name, self.rng.choice(REFUSALS), "not now"))
            else:
                self.world.counts[t.name] = t.partitions
                told.append((t.name, Code.NONE, None))
        if self.rng.random() < 0.9:
            self.world.ask(TopicsCreated("g", client.member_id, tuple(told)))
        self.world.look()

    def once(self) -> None:
        kind = self.rng.randrange(10)
        client = self.rng.choice(self.clients) if self.clients else None
        if kind == 0:
            self.topics()
        elif kind == 1:
            self.takeover()
        elif kind == 2:
            config = self.world.config
            self.world.config = replace(config, num_standby_replicas=self.rng.choice((0, 1)))
        elif client is None:
            return
        elif kind == 3:
            self.clients.remove(client)
            if client.epoch and not client.token:
                client.leave()
        elif kind == 4:
            self.clients.remove(client)  # dies without a word: its session will end
        elif kind in (5, 6):
            self.deaf = client
            client.send()
            client.lose()
            self.deaf = None
        elif kind == 7:
            self.world.dying = True
            client.send()
            client.lose()
            self.takeover()
        elif kind == 8 and client.instance_id is not None and client.epoch:
            if client.leave(-2).code == Code.NONE:
                self.clients.remove(client)
                self.away.append(client)
        elif client.topology.epoch == 0 or client.epoch:
            client.offsets = (("0", self.rng.randrange(3), self.rng.randrange(100)),)

    def topics(self) -> None:
        name = self.rng.choice(("in", "b", "app-c", "app-r"))
        if name not in self.counts or self.rng.random() < 0.4:
            self.world.grow({name: 0})
        else:
            self.counts[name] = min(self.counts[name] + self.rng.randrange(2), 6)
            self.world.grow({name: self.counts[name]})
            if self.rng.random() < 0.8:  # an administrator who knows what is needed
                self.world.grow({n: c for n, c in self.wanted().items() if n in self.world.counts})

    def takeover(self) -> None:
        dying = self.world.dying
        before = self.world.shard.groups.get("g")
        self.world.takeover()
        after = self.world.shard.groups.get("g")
        if not dying and isinstance(before, StreamsGroup):
            assert isinstance(after, StreamsGroup)
            same_state(before, after)
        for c in self.clients:
            if c.token:
                c.lose()
        self.world.sleep(1, 1)

    # ---- invariants ---------------------------------------------------------------------------------------
    def listen(self, fx: Effects) -> None:
        for r in fx.records:
            if isinstance(r, TargetRecord):
                self.check_target(r)
        for c in self.clients:
            if c is not self.deaf and c.take_reply() is not None:
                self.check_answer(c)

    def check_target(self, r: TargetRecord) -> None:
        """Checks that the target is of the topology as it is now, and gives each active task to a member."""
        group, image = self.world.group(), self.world.shard.image
        assert group.topology is not None
        configured = configured_with(group, group.topology, image, StreamsSoft())
        there = {(i, p) for i, s in configured.subtopologies.items() for p in range(s.tasks)}
        wanted = there if configured.ready else set[Task]()
        targets = [group.target_of(m) for m in group.members]
        assert set().union(*(tasks_of(t.active) for t in targets)) <= wanted, "a target of another topology"
        assert set().union(*(tasks_of(t.standby) for t in targets)) <= wanted, "a target of another topology"
        if group.epoch == r.assignment_epoch:
            assert set().union(*(tasks_of(t.active) for t in targets)) == wanted, "a target without a task"

    def check_answer(self, c: Client) -> None:
        assert not c.died_of, f"{c.member_id} ends by {c.died_of.name}"
        if not c.epoch:
            self.member_epochs.pop(c.member_id, None)
            return
        assert c.epoch >= self.member_epochs.get(c.member_id, 0), "a member's epoch went back"
        self.member_epochs[c.member_id] = c.epoch

    def check(self) -> None:
        if "g" not in self.world.shard.groups:
            return
        group = self.world.group()
        assert group.epoch >= self.epoch, "the group epoch went back"
        assert group.endpoint_epoch >= self.endpoint_epoch, "the endpoint epoch went back"
        self.epoch, self.endpoint_epoch = group.epoch, group.endpoint_epoch
        assert group.assignment_epoch <= group.epoch
        holders = Holders()
        for m in group.members.values():
            assert m.member_epoch <= group.epoch
            holders.add(m.member_id, m.process_id, m.assigned, m.pending)
        assert holders == group.holders
        self.check_processes(list(group.members.values()))
        self.check_clients(group)

    def check_processes(self, members: list[Member]) -> None:
        seen: dict[tuple[str, Task], str] = {}
        for m in members:
            for part in (m.assigned, m.pending):
                held = part.without_epochs()
                for task in tasks_of(held.active) | tasks_of(held.standby) | tasks_of(held.warmup):
                    other = seen.setdefault((m.process_id, task), m.member_id)
                    assert other == m.member_id, f"{task} is twice in {m.process_id}"

    def check_clients(self, group: StreamsGroup) -> None:
        """Checks that no task runs at two clients: it is a client's until the client has said that it gave it up."""
        runs: dict[Task, str] = {}
        for c in self.clients:
            if not c.epoch or c.member_id not in group.members:
                continue
            for task in c.active():
                other = runs.setdefault(task, c.member_id)
                assert other == c.member_id, f"{task} runs at {other} and at {c.member_id}"

    def commit(self) -> None:
        """A live member may commit what it runs, and nobody else may."""
        group = self.world.shard.groups.get("g")
        if not isinstance(group, StreamsGroup) or group.topology is None:
            return
        topics = {s.subtopology_id: next(s.task_topics()) for s in group.topology.subtopologies}
        for c in self.clients:
            if c.epoch and c.member_id in group.members and c.active():
                places = tuple((topics[s], bytes(16), p) for s, p in c.active())
                own = self.world.ask(CommitCheck("g", c.member_id, c.epoch, None, 9, False, places))
                assert not own.code, "a commit is refused"
                for m in group.members.values():
                    if m.member_id != c.member_id and m.member_epoch >= 0:
                        epoch = self.rng.choice((m.member_epoch, m.previous_epoch))
                        other = self.world.ask(CommitCheck("g", m.member_id, epoch, None, 9, False, places))
                        assert other.code, "a commit of another is let pass"

    def stop_faults(self) -> None:
        """Ends all faults and runs the group until it has converged."""
        self.world.grow(self.counts)
        self.world.grow(self.wanted())
        for _ in range(25):
            for c in self.clients:
                c.send()
                self.world.finish()
                self.check()
            self.world.sleep(3_000, 500)
            self.world.finish()
            self.check()
        if not self.clients:
            return
        group = self.world.group()
        assert set(group.members) == {c.member_id for c in self.clients}
        assert group.state_name() == "Stable", group.state_name()
        for c in self.clients:
            assert c.tasks == group.members[c.member_id].assigned.without_epochs(), "it was not told of all"
            assert c.endpoint_epoch == group.endpoint_epoch, "it was not told who serves what"
            told = {endpoint: show for endpoint, *show in c.endpoints}
            for m in group.members.values():
                if m.endpoint is not None:
                    assert told[m.endpoint] == self.served(m), "it was told that another serves it"
        self.covered(group)
        self.commit()

    def served(self, m: Member) -> list[dict[str, tuple[int, ...]]]:
        """Topic -> partitions of its active tasks, and of the others."""
        found: list[dict[str, tuple[int, ...]]] = []
        held = m.assigned.without_epochs()
        for part in (held.active, held.standby):
            of_topic: dict[str, tuple[int, ...]] = {}
            for s in self.topology.subtopologies:
                for name in s.task_topics():
                    ps = tuple(p for p in part.get(s.subtopology_id, ()) if p < self.world.counts[name])
                    if ps:
                        of_topic[name] = ps
            found.append(of_topic)
        return found

    def covered(self, group: StreamsGroup) -> None:
        configured = configured_with(group, self.topology, self.world.shard.image, StreamsSoft())
        assert configured.ready
        wanted = {(i, p) for i, s in configured.subtopologies.items() for p in range(s.tasks)}
        assert set().union(*(c.active() for c in self.clients)) == wanted, "nobody runs a task"
        processes = len({c.process_id for c in self.clients})
        replicas = min(self.world.config.num_standby_replicas, processes - 1)
        stateful = {i for i, s in configured.subtopologies.items() if s.changelog_topics}
        for task in wanted:
            having = [c for c in self.clients if task in tasks_of(c.tasks.standby)]
            assert len(having) == (replicas if task[0] in stateful else 0), f"standbys of {task}"


def same_state(a: StreamsGroup, b: StreamsGroup) -> None:
    for name in (
        "epoch",
        "metadata_hash",
        "validated_topology_epoch",
        "assignment_configs",
        "delay_until_ms",
        "endpoint_epoch",
        "shutdown_member",
        "topology",
        "members",
        "static_members",
        "assignment_epoch",
        "assignment_timestamp_ms",
        "target",
        "holders",
        "held_bytes",
    ):
        assert getattr(a, name) == getattr(b, name), name


def random_streams(seed: int) -> None:
    run = Run(random.Random(seed))
    for i in range(EVENTS):
        run.event()
        run.check()
        if i % 10 == 0:
            run.commit()
    run.stop_faults()
    rebuilt = run.world.rebuilt()
    for group_id in run.world.shard.groups:
        other = rebuilt.groups[group_id]
        assert isinstance(other, StreamsGroup)
        same_state(run.world.group(group_id), other)


def test_random_streams(seeds: Seeds) -> None:
    hold(random_streams, seeds.of(SEEDS), alone("tests/core/streams/test_random_streams.py::test_random_streams"))
