"""Random members, faults and clocks; the invariants of KIP-848 after every event (Vanlightly's TLA+ names)."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import pytest

from sidecar.core.consumer.config import ConsumerConfig
from sidecar.core.consumer.group import ConsumerGroup, GroupState
from sidecar.core.consumer.records import Kind
from tests.core.world import Client, World, topic
from tests.harness.seeds import alone, hold
from tests.harness.tiers import Seeds

SEEDS = 300
EVENTS = 250


def check_invariants(world: World, clients: list[Client], epochs: dict[str, int]) -> None:
    seen: dict[tuple[bytes, int], str] = {}
    for c in clients:
        for place in c.partitions():
            assert place not in seen, f"NoDoubleClientAssignment: {place} of {seen[place]} and {c.member_id}"
            seen[place] = c.member_id
    for group in map(world.group, world.shard.groups):
        assert group.epoch >= epochs.get(group.group_id, 0), "the group epoch went back"
        epochs[group.group_id] = group.epoch
        assert group.assignment_epoch <= group.epoch, "LegalTargetAssignment"
        owners: dict[tuple[bytes, int], str] = {}
        for m in group.members.values():
            assert m.member_epoch <= group.epoch, "ValidMemberEpoch"
            for part in (m.assigned, m.pending):
                for t, ps in part.items():
                    for p in ps:
                        assert owners.setdefault((t, p), m.member_id) == m.member_id
        assert owners == {(t, p): m for t, ps in group.owners.items() for p, m in ps.items()}
        if group.state() is GroupState.STABLE:
            for m in group.members.values():
                assert m.assigned_partitions() == {t: ps for t, ps in group.target.of(m.member_id).items() if ps}


def find_out(world: World, clients: list[Client]) -> None:
    """A client silent for its whole timeout stops by itself, as real ones do; nobody else may have been removed."""
    members = world.group("g").members if "g" in world.shard.groups else {}
    for c in clients:
        if c.epoch and c.member_id not in members:
            why = next(r.why for r in reversed(world.log) if r.kind is Kind.MEMBER and r.sub_id == c.member_id)
            assert "timeout" in why, f"{c.member_id} was removed: {why}"
            c.epoch, c.owned = 0, {}


def same_state(a: ConsumerGroup, b: ConsumerGroup) -> None:
    for name in (
        "epoch",
        "metadata_hash",
        "members",
        "static_members",
        "assignment_epoch",
        "assignor",
        "regexes",
        "owners",
    ):
        assert getattr(a, name) == getattr(b, name), name
    assert a.assignment_timestamp_ms == b.assignment_timestamp_ms
    assert {m: t for m in a.target if (t := a.target.of(m))} == {m: t for m in b.target if (t := b.target.of(m))}


def test_random_group(seeds: Seeds) -> None:
    hold(random_group, seeds.of(SEEDS), alone("tests/core/test_random_groups.py::test_random_group"))


def random_group(seed: int) -> None:
    rng = random.Random(seed)
    world = World(
        ConsumerConfig(
            join_wait_ms=0,
            assignment_interval_ms=rng.choice((0, 1000)),
            assignors=rng.choice((("uniform", "range"), ("range",))),
            assignor_offload_enable=rng.random() < 0.5,
        )
    )
    counts = [6, 5, 3]
    world.topics(*(topic(i + 1, f"t{i}", n) for i, n in enumerate(counts)))
    clients: list[Client] = []
    epochs: dict[str, int] = {}
    made = 0
    for _ in range(EVENTS):
        what = rng.random()
        if what < 0.08 and len(clients) < 7:
            made += 1
            names = tuple(rng.sample(["t0", "t1", "t2"], rng.randint(1, 3)))
            regex = rng.choice((None, None, "t[01]"))
            clients.append(Client(world, "g", f"m{made}", None if regex else names, regex))
        elif what < 0.11 and clients:
            c = clients.pop(rng.randrange(len(clients)))
            if c.epoch:
                c.leave()
        elif what < 0.13 and clients:
            clients.pop(rng.randrange(len(clients)))  # dies without a word: its session will end
        elif what < 0.15:
            counts[rng.randrange(3)] += 1
            world.topics(*(topic(i + 1, f"t{i}", n) for i, n in enumerate(counts)))
        elif what < 0.2:
            world.resolve()
        elif what < 0.26:
            world.finish()
        elif what < 0.28:
            world.sleep(rng.randint(1000, 60_000), 500)
        elif clients:
            rng.choice(clients).heartbeat()
        world.sleep(rng.randint(1, 300))
        find_out(world, clients)
        check_invariants(world, clients, epochs)
    for _ in range(24):  # faults stop: it must converge
        world.resolve()
        for c in clients:
            c.heartbeat()
            world.finish()
        world.sleep(3000, 500)
        find_out(world, clients)
        check_invariants(world, clients, epochs)
    if clients:
        group = world.group("g")
        assert group.state() is GroupState.STABLE, "EventuallyConverges"
        wanted = {
            (t.id, p)
            for n in group.subscribed_topics()
            if (t := world.shard.image.by_name.get(n))
            for p in range(t.partitions)
        }
        assert set().union(*(c.partitions() for c in clients)) == wanted
    if "g" in world.shard.groups:
        same_state(world.group("g"), world.rebuilt_group("g"))


def a_fixed_run() -> list[object]:
    world = World()
    world.topics(topic(1, "t0", 9), topic(2, "t1", 4), topic(3, "t2", 5))
    clients = [
        Client(world, "g", f"m{i}", None if i == 2 else ("t0", f"t{i % 3}"), "t.*" if i == 2 else None)
        for i in range(6)
    ]
    for _ in range(12):
        for c in clients:
            c.heartbeat()
            world.resolve()
        world.sleep(700)
    return list(world.log)


@pytest.mark.tier("test")
def test_the_same_run_writes_the_same_records_whatever_the_hash_seed() -> None:
    """Two processes with different hash seeds: no order of a set may reach the log."""
    program = "from tests.core.test_random_groups import a_fixed_run; print(repr(a_fixed_run()))"
    logs = []
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
        logs.append(done.stdout)
    assert logs[0] == logs[1] and len(logs[0]) > 1000


def test_a_planted_double_owner_is_found() -> None:
    """The checker bites: a group whose reconciliation forgets who owns what breaks the invariant."""
    world = World(ConsumerConfig(join_wait_ms=0, assignor_offload_enable=False, assignment_interval_ms=0))
    world.topics(topic(1, "t0", 4))
    a, b = Client(world, "g", "a", ("t0",)), Client(world, "g", "b", ("t0",))
    a.heartbeat()
    b.heartbeat()
    world.group("g").owners.clear()  # the bug
    with pytest.raises(AssertionError, match=r"owners|NoDouble"):
        for _ in range(3):
            b.heartbeat()
            check_invariants(world, [a, b], {})
    assert Kind.CURRENT in {r.kind for r in world.log}
