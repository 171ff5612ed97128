"""Node ids, producer ids and the fences that they are."""

from __future__ import annotations

from sidecar.core.runtime.phases import Phase
from sidecar.kafka.lanes import Lane
from sidecar.process.coordination import Coordination
from tests.whole.client import Habits
from tests.whole.faults import GROUPS
from tests.whole.judge import STATE_TOPIC
from tests.whole.run import BOUND_MS, until
from tests.whole.scenes.parts import GONE_MS, an_owner, come, end_of, giver, goes_on, owned_by, run_ms, start, watch
from tests.whole.timeline import FAULT
from tests.whole.violation import Violation
from tests.whole.world import NODES, PARTITIONS, World

RENEWED_MS = 30_000
LAG_MS = 1_000
TOPIC = 2
"""The resource type."""
TRANSACTION_REPLICAS = "transaction.state.log.replication.factor"


def twins(world: World) -> None:
    """Finding S8: two sidecars with one node id. One of them serves, the other one says why it does not."""
    start(world)
    come(world)
    n = an_owner(world)
    world.say(FAULT, f"a second sidecar with node id {n} is started on another host")
    world.judge.unheard.add(n)
    twin = world.start_twin(n)
    goes_on(world, owned_by(world, *(m for m in NODES if m != n)), 25_000, GONE_MS)
    claims = sum(part.claims for part in world.judge.fold.parts)
    run_ms(world, 20_000)
    again = sum(part.claims for part in world.judge.fold.parts) - claims
    if again > 4:
        raise Violation(f"two sidecars with one node id have taken partitions from each other {again} times in 20 s")
    twin.proc.crash()


def fences_go_down(world: World) -> None:
    """Finding S3, played with ids that the brokers forget soon. All sidecars are stopped until the brokers have
    forgotten their transactional ids, and then other brokers give them producer ids. If one of these is lower than the
    one before, as it is where that broker had its block of ids first (one seed in five), that partition is taken over
    once more, in a state that has changed meanwhile."""
    start(world)
    come(world)
    parts = world.judge.fold.parts
    p = max(range(PARTITIONS), key=lambda p: parts[p].claimed)
    high, gave = parts[p].claimed, giver(world, p)
    for s in world.sidecars.values():
        s.terminate()
    run_ms(world, 60_000)
    if gave is None:
        return
    world.kafka.crash(gave)
    run_ms(world, 20_000)
    first = giver(world, p)
    world.kafka.start(gave)
    run_ms(world, 10_000)
    start(world)
    if first is None or parts[p].claimed >= high:
        return
    world.judge.figures["fences went down"] += 1
    come(world)
    world.sidecars[parts[p].owner].proc.crash()
    until(world, BOUND_MS, world.settled)
    come(world)
    world.judge.at_the_end()


def fences_are_renewed(world: World) -> None:
    """Played with fences that are renewed every 5 s. What is in memory stays, and nobody waits."""
    start(world)
    come(world, 2)
    parts = world.judge.fold.parts
    serving = {(s.proc, o): o.attempt for s in world.lives for o in s.owners() if o.phase is Phase.SERVING}
    claims = sum(part.claims for part in parts)
    goes_on(world, world.clients, RENEWED_MS, GONE_MS)
    if sum(part.claims for part in parts) < claims + 3 * PARTITIONS:
        raise Violation(f"fences are not renewed: {sum(p.claims for p in parts) - claims} claims in {RENEWED_MS:,} ms")
    anew = {o.partition: o.attempt - attempt for (_, o), attempt in serving.items() if o.attempt != attempt}
    if anew:
        raise Violation(f"partitions were taken over anew, so often: {anew}, though nobody else wants them")


def fences_take_long(world: World) -> None:
    """An owner dies while the broker that gives fences is too slow to give one: who asks for its groups is told so.
    Another sidecar has the partition in the end."""
    world.more["ownership.follow_leader_ms"] = 0
    start(world)
    come(world, 2)
    n = an_owner(world)
    p = next(p for p, part in enumerate(world.judge.fold.parts) if part.owner == n)
    slow = giver(world, p)
    assert slow is not None
    world.say(FAULT, f"the disk of broker {slow} is very slow, sidecar {n} is killed")
    world.kafka.cluster.slow_disk_ms[slow] = 14_000.0
    world.sidecars[n].proc.crash()
    run_ms(world, 20_000)
    world.kafka.cluster.slow_disk_ms.clear()
    world.start_sidecar(n)
    until(world, BOUND_MS, world.settled)


def no_transactions(world: World) -> None:
    """Finding L9: the brokers are to keep more replicas of transactions than there are brokers, as a single one with
    Kafka's defaults is. There are no fences then, and each sidecar says why."""
    for n in NODES:
        world.start_sidecar(n)
    run_ms(world, 20_000)
    wanted = {n: s for n, s in world.sidecars.items() if any(o.phase is not Phase.ELSEWHERE for o in s.owners())}
    if not wanted:
        raise Violation("no sidecar tries to take a partition over")
    for n, s in wanted.items():
        if not any(TRANSACTION_REPLICAS in problem for problem in s.problems):
            raise Violation(f"sidecar {n} does not say why it serves nobody: {s.problems}")


def large_writes(world: World) -> None:
    """Finding L8, played with a state topic that takes no batch of more than 500 bytes. What is larger goes out in
    several batches inside one transaction; now and then the owner dies while one is open, and then nobody sees it."""
    start(world)
    come(world, 3)
    world.kafka.cluster.configure(TOPIC, STATE_TOPIC, {"max.message.bytes": "500"})
    run_ms(world, 1_000)
    for _ in range(2):
        for group_id, kind in GROUPS.items():
            world.add_client(kind, Habits(group_id, ("t1", "t2")))
        if watch(world, 3_000, lambda: bool(_open(world))):
            world.judge.figures["large writes"] += 1
            p = _open(world)[0]
            n = world.judge.fold.parts[p].owner
            if world.rng.random() < 0.7:
                world.say(FAULT, f"sidecar {n} is killed, while it writes to {p} in a transaction")
                world.sidecars[n].proc.crash()
        until(world, BOUND_MS, world.settled)
    world.judge.at_the_end()


def write_of_the_former_owner_arrives_late(world: World) -> None:
    """An owner stands still with a write on its way, and another sidecar takes the partition over. The write arrives
    then, and is refused for its fence. By nothing else the former owner knows of the other one yet: its tail lags, and
    its connections to the owners' group are silent."""
    start(world)
    come(world)
    group_id = world.rng.choice(sorted(GROUPS))
    p = world.judge.fold.partition_of(group_id)
    part, leader = world.judge.fold.parts[p], world.kafka.leader(STATE_TOPIC, p)
    former = world.sidecars[part.owner]
    assert former.app is not None and isinstance(former.app.half, Coordination) and former.tail is not None
    half = former.app.half
    term = half.coordinator.takeovers.terms[p]
    writes = [end_of(c) for c in half.coordinator.appender._leaders[leader or 0].idle]
    world.net.loses = lambda end: end in writes
    world.add_client(GROUPS[group_id], Habits(group_id, ("t1", "t2")))
    if not watch(world, 10_000, lambda: term.writer.busy):
        raise Violation(f"nothing was written for a member that came to {group_id}")
    world.say(FAULT, f"sidecar {former.node_id} stands still, with a write to {p} on its way")
    former.tail.lag_ms = LAG_MS
    former.proc.stand_still()
    lanes = [c for (_, lane, _), c in half.cluster._nodes.items() if lane is not Lane.OWNERS and not c.closed]
    work = writes + [end_of(c) for c in (*lanes, half.cluster._any) if c is not None]
    silent = [end for end in world.net._ends[former.proc] if end not in work]
    silent += [end.other for end in silent]
    world.net.loses = lambda end: end in writes or end in silent
    if not watch(world, BOUND_MS, lambda: part.owner != former.node_id):
        raise Violation(f"{p} has not been taken from sidecar {former.node_id}")
    world.say(FAULT, f"... the write arrives, and sidecar {former.node_id} goes on")
    world.net.loses = lambda end: end in silent
    world.net.mended()
    former.proc.go_on()
    run_ms(world, LAG_MS)
    former.tail.lag_ms, world.net.loses = 0.0, None
    world.net.mended()
    until(world, BOUND_MS, world.settled)


def _open(world: World) -> list[int]:
    """Partitions of the state topic in which a transaction is open."""
    found = []
    for p in range(PARTITIONS):
        leader = world.kafka.leader(STATE_TOPIC, p)
        replica = world.kafka.cluster.nodes[leader].replica(STATE_TOPIC, p) if leader is not None else None
        if replica is not None and replica.log.open:
            found.append(p)
    return found
