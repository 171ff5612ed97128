"""A record of the state topic that nobody can read: damaged, or of a version that is newer than everybody here.

Whoever has the group in memory goes on. From the next takeover on nobody serves it, and its records stay, until
somebody repairs it, as docs/operate/runbook.md says: here by tombstones for all its keys, and one more takeover.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from sidecar.state.keys import StateKey, encode_key
from tests.whole.broker.batches import of_records
from tests.whole.judge import STATE_TOPIC
from tests.whole.timeline import FAULT
from tests.whole.violation import Violation
from tests.whole.world import NODES, World

KEYS = {"damaged": ("member", "m-damaged"), "of a newer version": ("constellation", "m1")}
"""Keys that no sidecar writes to."""
NOTICED_MS, LOOK_MS, REFUSED_MS = 30_000, 200, 2_500
Record = tuple[bytes, bytes | None]


def inject(world: World, partition: int, records: Sequence[Record]) -> bool:
    """As somebody writes who knows no fences. False: no broker takes it now."""
    node_id = world.kafka.leader(STATE_TOPIC, partition)
    if node_id is None or not world.kafka.procs[node_id].alive:
        return False
    replica = world.kafka.cluster.nodes[node_id].replica(STATE_TOPIC, partition)
    if replica is None or not replica.leads:
        return False
    world.kafka.inject(STATE_TOPIC, partition, of_records(records, world.kafka.procs[node_id].wall_ms()))
    return True


def damage(world: World, group_id: str) -> None:
    """Damages a record of the group. Nothing happens if one group of this run is damaged already, or no broker takes
    the record."""
    judge = world.judge
    if judge.fold.injected:
        return
    what = world.rng.choice(sorted(KEYS))
    kind, sub_id = KEYS[what]
    part = judge.fold.parts[judge.fold.partition_of(group_id)]
    if part.claims and inject(
        world, judge.fold.partition_of(group_id), [_record(kind, group_id, sub_id, part.claimed)]
    ):
        judge.fold.injected.add(StateKey(kind, group_id, sub_id))
        judge.figures["groups damaged"] += 1
        world.say(FAULT, f"a record of {group_id} is {what}")


def _record(kind: str, group_id: str, sub_id: str, owner_epoch: int) -> Record:
    """Under a schema that nobody knows. Only whose it is can be read."""
    value = bytearray(b"\xc3\x01unknown!")
    put_long(value, owner_epoch)
    return encode_key(kind, group_id, sub_id), bytes(value) + b"\xff" * 8


def put_long(out: bytearray, n: int) -> None:
    """As Avro does it."""
    n <<= 1
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)


def repair(world: World) -> None:
    """Repairs the damage when nothing else goes wrong any more. First nobody may serve the group, and none of its
    records may go."""
    judge = world.judge
    be_sure(world)
    for group_id in sorted(judge.fold.foreign):
        part = judge.fold.parts[judge.fold.partition_of(group_id)]
        _another_takeover(world, group_id)
        _wait(world, partial(_refuses, world, group_id), f"{group_id} is read, though one record cannot be")
        world.universe.run_until(world.universe.now_ms + LOOK_MS)  # what was answered before is told
        keys = [key for key in part.values if key.group_id == group_id]
        since_ms = world.universe.now_ms
        world.universe.run_until(world.universe.now_ms + REFUSED_MS)
        if served := [c.name for c in world.clients if c.habits.group_id == group_id and c.spoke_ms > since_ms]:
            raise Violation(f"{served} are served, though nobody can read what {group_id} was")
        if left := [str(k) for k in keys if k not in part.values]:
            raise Violation(f"of {group_id}, which cannot be read, records are gone: {left}")
        world.say(FAULT, f"... {group_id} is repaired: tombstones for its {len(keys)} keys, and another takeover")
        gone: list[Record] = [(encode_key(k.kind, k.group_id, k.sub_id), None) for k in keys]
        p = judge.fold.partition_of(group_id)
        _wait(world, partial(inject, world, p, gone), "no broker takes tombstones")
        _wait(world, partial(_was_emptied, world, group_id), f"the tombstones of {group_id} are not read")
        _another_takeover(world, group_id)


def be_sure(world: World) -> None:
    """Waits until the record is in the log for good, or will never be."""
    for key in sorted(world.judge.fold.injected):
        p = world.judge.fold.partition_of(key.group_id)
        _wait(world, partial(_is_final, world, p), f"partition {p} has records that not all brokers have")


def _is_final(world: World, p: int) -> bool:
    """Returns whether nothing goes from the log and nothing comes into it any more: a broker that is not in sync may
    have records that the leader lacks, and may yet be elected with them (KIP-966)."""
    part = world.kafka.cluster.controller.image.partition(STATE_TOPIC, p)
    return part is not None and len(part.isr) == len(part.replicas) and world.judge.fold.is_whole(p)


def _another_takeover(world: World, group_id: str) -> None:
    n = world.judge.owner_of(group_id)
    if n in NODES and world.sidecars[n].proc.alive:
        world.say(FAULT, f"sidecar {n}, the owner of {group_id}, is killed and started again")
        world.sidecars[n].proc.crash()
        world.start_sidecar(n)


def _refuses(world: World, group_id: str) -> bool:
    """Returns whether the owner that has claimed the group's partition last has found out."""
    s = world.sidecars.get(world.judge.owner_of(group_id))
    owners = s.owners() if s is not None else []
    return bool(owners) and group_id in owners[world.judge.fold.partition_of(group_id)].loader.unreadable


def _was_emptied(world: World, group_id: str) -> bool:
    """An owner that has taken over since may have begun it anew."""
    return group_id not in world.judge.fold.foreign


def _wait(world: World, done: Callable[[], bool], otherwise: str) -> None:
    until_ms = world.universe.now_ms + NOTICED_MS
    while not done():
        if world.universe.now_ms > until_ms:
            raise Violation(f"not within {NOTICED_MS / 1000:g} s: {otherwise}")
        world.start_the_stopped()
        world.universe.run_until(world.universe.now_ms + LOOK_MS)
