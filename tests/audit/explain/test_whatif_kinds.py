"""A dry run of share and streams groups says what then happens: it is played, and the group is brought to rest."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from sidecar.assign import SHARE_BUILT_IN, TASK_BUILT_IN
from sidecar.audit.explain.model import Move
from sidecar.audit.explain.replay import replayed
from sidecar.audit.explain.whatif import what_if
from sidecar.audit.explain.words import if_words
from sidecar.core.share.config import ShareConfig
from tests.audit.explain.test_kinds import taken_of
from tests.core.share.world import Client as ShareClient
from tests.core.share.world import World as ShareWorld
from tests.core.streams.world import Client as StreamsClient
from tests.core.streams.world import World as StreamsWorld
from tests.core.streams.world import quick
from tests.core.world import topic, topic_id
from tests.harness.tiers import seeds_of_run

Holders = dict[str, set[str]]
LONG_MS = 100_000


def settle(world: Any, clients: Sequence[Any]) -> None:
    for _ in range(8):
        world.sleep(1_100)
        for c in clients:
            c.heartbeat()


def check(moves: Sequence[Move], kept: int, before: Holders, after: Holders) -> None:
    """Each move by its ends: who of several holders hands over to whom is nobody's business."""
    lost = {(m.partition, m.holder) for m in moves if m.holder}
    gained = {(m.partition, m.to) for m in moves if m.to}
    pairs = [{(p, m) for p, members in of.items() for m in members} for of in (before, after)]
    assert lost == pairs[0] - pairs[1] and gained == pairs[1] - pairs[0]
    assert kept == len(pairs[0] & pairs[1])
    assert not any(m.anyway for m in moves)


def plan(seed: int, most: int) -> tuple[list[str], list[str], list[str]]:
    """Members, those of them who leave, and new ones."""
    rng = random.Random(seed)
    members = [f"m{i}" for i in range(rng.randint(2, most))]
    gone = rng.sample(members, rng.randint(0, len(members) - 1))
    return members, gone, [f"new-{i}" for i in range(1, rng.randint(0 if gone else 1, 3) + 1)]


def played(world: Any, new: Callable[[str], Any], holders: Callable[[], Holders], seed: int, known: Any) -> None:
    """`new`: a client of this name."""
    members, gone, joins = plan(seed, 5)
    clients = {m: new(m) for m in members}
    for c in clients.values():
        c.heartbeat()
    settle(world, list(clients.values()))
    before = holders()
    replay = replayed("g", taken_of(world.log))
    found = what_if(replay, world.shard.image, lambda kind: known, gone, len(joins))
    interval_ms = world.config.assignment_interval_ms
    world.config = replace(world.config, assignment_interval_ms=LONG_MS)
    for m in gone:
        clients.pop(m).leave()
    for m in joins:
        clients[m] = new(m)
        clients[m].heartbeat()
    world.config = replace(world.config, assignment_interval_ms=interval_ms)
    settle(world, list(clients.values()))
    check(found.moves, found.kept, before, holders())
    assert found.assignor == world.shard.groups["g"].assignor


@pytest.mark.parametrize("standbys", [0, 1])
@pytest.mark.parametrize("seed", seeds_of_run(8))
def test_what_is_foretold_of_a_streams_group_happens(seed: int, standbys: int) -> None:
    world = StreamsWorld(quick(assignment_interval_ms=1_000, num_standby_replicas=standbys))
    world.topics(**{"in": 5, "app_r": 5, "app_c": 5})

    def holders() -> Holders:
        found: Holders = {}
        for m in world.group().members.values():
            for word, tasks in (("", m.assigned.active), ("standby ", m.assigned.standby)):
                for s, ps in tasks.items():
                    for p in ps:
                        found.setdefault(f"{word}{s}_{p}", set()).add(m.member_id)
        return found

    def new(name: str) -> StreamsClient:
        return StreamsClient(world, name, process_id=name)

    played(world, new, holders, seed, TASK_BUILT_IN)


@pytest.mark.parametrize("seed", seeds_of_run(8))
def test_what_is_foretold_of_a_share_group_happens(seed: int) -> None:
    world = ShareWorld(ShareConfig(assignor_offload_enable=False, join_wait_ms=0, assignment_interval_ms=1_000))
    world.topics(topic(1, "t", 5))
    first = ShareClient(world, "g", "m0", ("t",))
    first.heartbeat()
    world.initialised("g", {topic_id(1): tuple(range(5))})

    def holders() -> Holders:
        found: Holders = {}
        for m in world.group("g").members.values():
            for p in m.assigned.get(topic_id(1), ()):
                found.setdefault(f"t-{p}", set()).add(m.member_id)
        return found

    def new(name: str) -> ShareClient:
        return first if name == "m0" else ShareClient(world, "g", name, ("t",))

    played(world, new, holders, seed, SHARE_BUILT_IN)


def test_it_is_told_in_words() -> None:
    world = StreamsWorld(quick(assignment_interval_ms=1_000))
    world.topics(**{"in": 2, "app_r": 2, "app_c": 2})
    client = StreamsClient(world, "m1")
    client.heartbeat()
    settle(world, [client])
    replay = replayed("g", taken_of(world.log))
    lines = if_words(what_if(replay, world.shard.image, {"streams": TASK_BUILT_IN}.__getitem__, joins=1))
    assert lines[0] == "If 1 new member joined, 2 partitions would move by sticky, and 2 would stay where they are."
    assert len(lines) == 3 and all(": m1 -> new-1" in line for line in lines[1:])
