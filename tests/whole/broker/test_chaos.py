"""Random crashes, pauses and cuts among three brokers while clients write and commit: nothing that was acknowledged is
lost, readers never read two things at one offset, and in the end all replicas are equal."""

from __future__ import annotations

from dataclasses import dataclass, field

from sidecar.wire.generated import offset_commit as oc
from sidecar.wire.generated import produce as pr
from tests.harness.seeds import alone, hold
from tests.harness.tiers import Seeds
from tests.whole.broker.clockwork import Client, Clockwork
from tests.whole.broker.ports import Delays
from tests.whole.broker.talk import coordinator, fetch, init, make_topic, produce_request

SEEDS = 30
STRIKES = 12


@dataclass
class Writer:
    """One fenced writer, as a sidecar has it: one batch in flight, repeated until it is answered."""

    world: Clockwork
    producer: tuple[int, int]
    acknowledged: dict[str, int] = field(default_factory=dict)
    number: int = 0
    client: Client | None = None
    waiting: int = -1
    since_ms: float = 0

    def step(self) -> None:
        world = self.world
        if self.client is not None and self.waiting in self.client.answers:
            (p,) = self.client.answers.pop(self.waiting).responses[0].partition_responses
            self.waiting = -1
            if p.error_code == 0:
                self.acknowledged[f"k{self.number}=v"] = p.base_offset
                self.number += 1
            else:
                self.client = None
        elif self.client is not None and (self.client.closed or world.now_ms - self.since_ms > 5_000):
            self.client, self.waiting = None, -1
        if self.waiting >= 0:
            return
        leader = world.cluster.leaders("t")[0]
        if self.client is None:
            if leader < 0 or not world.cluster.nodes[leader].listens:
                return
            self.client = Client(world, leader)
        req = produce_request([f"k{self.number}=v"], producer=(*self.producer, self.number), timeout_ms=2_000)
        self.waiting, self.since_ms = self.client.send(pr, "Produce", req, 9), world.now_ms


def strike(world: Clockwork) -> None:
    rng, cluster = world.rng, world.cluster
    node = rng.choice(list(world.hosts))
    what = rng.choice(
        ("crash", "crash", "start", "start", "start", "stop", "pause", "resume", "resume", "cut", "heal", "heal")
    )
    down = sum(not cluster.nodes[n].up or world.hosts[n].paused for n in world.hosts)
    if what == "crash" and down == 0:
        cluster.crash(node)
    elif what == "stop" and down == 0:
        cluster.stop(node)
    elif what == "start":
        for n in world.hosts:
            cluster.start(n)
    elif what == "pause" and down == 0:
        world.pause(node)
    elif what == "resume":
        for n in world.hosts:
            world.resume(n)
    elif what == "cut":
        world.isolate(node)
    elif what == "heal":
        world.cut.clear()


def read_all(world: Clockwork, node: int, seen: dict[int, str]) -> None:
    at = 0
    while True:
        res = world.cluster.read(node, "t", 0, at, 50)
        for r in res.records:
            assert seen.setdefault(r.offset, repr((r.key, r.value))) == repr((r.key, r.value)), "one offset, one record"
        if res.error or res.next_offset == at:
            return
        at = res.next_offset


def test_nothing_acknowledged_is_lost(seeds: Seeds) -> None:
    test = "tests/whole/broker/test_chaos.py::test_nothing_acknowledged_is_lost"
    hold(a_chaotic_run, seeds.of(SEEDS), alone(test))


def a_chaotic_run(seed: int) -> None:
    world = Clockwork(3, seed, Delays())
    make_topic(world, min_insync_replicas="2")
    writer = Writer(world, init(world, "w"))
    seen: dict[int, str] = {}
    asked: dict[int, int] = {}
    group = Client(world, coordinator(world, "g"))
    for round_ in range(STRIKES):
        strike(world)
        if not group.closed:
            topic = oc.OffsetCommitRequestTopic("t", partitions=[oc.OffsetCommitRequestPartition(0, round_ + 1)])
            asked[group.send(oc, "OffsetCommit", oc.OffsetCommitRequest("g", topics=[topic]), 9)] = round_ + 1
        for _ in range(world.rng.randint(5, 80)):
            writer.step()
            world.run(100)
            up = [n for n in world.hosts if world.cluster.nodes[n].up and not world.hosts[n].paused]
            if not world.rng.randrange(10):
                read_all(world, world.rng.choice(up), seen)
    world.cut.clear()
    for n in world.hosts:
        world.resume(n)
        world.cluster.start(n)
    for _ in range(400):
        writer.step()
        world.run(100)
    world.run(5_000)
    leader = world.cluster.leaders("t")[0]
    read_all(world, leader, seen)
    for value, offset in writer.acknowledged.items():
        key, _, text = value.partition("=")
        assert seen[offset] == repr((key.encode(), text.encode())), "what was acknowledged is there"
    assert writer.number > 50
    assert len(set(seen.values())) == len(seen), "nothing stands there twice"
    logs = [r.log.batches for node in world.cluster.nodes.values() for r in node.replicas.values() if r.topic == "t"]
    assert logs[0] == logs[1] == logs[2]
    codes = {n: a.topics[0].partitions[0].error_code for n, a in group.answers.items()}
    committed = max((asked[n] for n, code in codes.items() if code == 0), default=-1)
    assert fetch(Client(world, coordinator(world, "g")), "g")[1] >= committed
