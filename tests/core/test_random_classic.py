"""Random members of a classic group, well-behaved and not, time, takeovers and lost writes; what the protocol promises
holds after every event: one generation at a time, the same for all its members, and the log knows all of it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from sidecar.core.classic.records import State
from sidecar.core.vocabulary.errors import Code
from tests.core.classic_actors import Crowd, make
from tests.harness.seeds import alone, hold
from tests.harness.tiers import Seeds

SEEDS = 200
EVENTS = 600


def one_event(crowd: Crowd) -> None:
    rng, actors = crowd.rng, crowd.actors
    what = rng.random() / crowd.faults
    if len(actors) == 1 and rng.random() < 0.1:
        crowd.leave(actors[0])  # perhaps within the initial delay
    elif len(actors) < 1 or (what < 0.3 and len(actors) < 3) or (what < 0.03 and len(actors) < 7):
        crowd.add_client()
    elif what < 0.06:
        crowd.leave(rng.choice(actors))
    elif what < 0.07:
        rng.choice(actors).dead = True
    elif what < 0.1:
        crowd.restart(rng.choice(actors))
    elif what < 0.2:
        crowd.misbehave(rng.choice(actors))
    elif what < 0.22:
        crowd.takeover()
    elif what < 0.24:
        a = rng.choice(actors)
        a.me.protocols, a.wants = crowd.protocols(a), "join"
    elif what < 0.25:
        sleep(crowd, rng.randint(1_000, 15_000))
    else:
        for a in rng.sample(actors, len(actors) // 2 + 1):
            crowd.act(a)


def sleep(crowd: Crowd, ms: int) -> None:
    until = crowd.world.now_ms + ms
    while crowd.world.now_ms < until:
        crowd.world.sleep(min(500, until - crowd.world.now_ms), 500)
        crowd.deliver()
        crowd.check()


def test_random_classic_group(seeds: Seeds) -> None:
    hold(random_classic_group, seeds.of(SEEDS), alone("tests/core/test_random_classic.py::test_random_classic_group"))


def random_classic_group(seed: int) -> None:
    crowd = make(seed)
    for n in range(EVENTS):
        one_event(crowd)
        crowd.check()
        sleep(crowd, crowd.rng.randint(1, 300))
        if n % 10 == 0:
            crowd.same_after_a_rebuild()
    converge(crowd)
    crowd.same_after_a_rebuild()


def converge(crowd: Crowd) -> None:
    """One last leader does not sync, then faults stop: whoever is alive gets into one generation."""
    crowd.world.classic = replace(crowd.world.classic, max_size=100)
    crowd.world.full = 0.0
    taken: set[str] = set()
    for a in list(crowd.actors):
        twice = a.me.instance_id in taken
        if a.dead or twice:
            crowd.actors.remove(a)
        elif a.me.instance_id is not None:
            taken.add(a.me.instance_id)
    crowd.sloth = True
    for a in crowd.actors:
        a.wants = "join"
        if a.me.instance_id is not None:
            a.me.member_id = ""  # its twin, which is gone now, may have had the instance id last
    for _ in range(240):
        for a in crowd.actors:
            crowd.act(a)
        sleep(crowd, 500)
    group = crowd.world.classic_group
    if not crowd.actors:
        return
    assert group is not None and group.state is State.STABLE, group
    assert {a.me.member_id for a in crowd.actors} == group.members.keys()
    assert all(a.me.generation == group.generation and a.wants == "beat" for a in crowd.actors)
    assert crowd.world.ask(crowd.actors[0].me.beat()).code == Code.NONE


def a_fixed_run() -> list[object]:
    crowd = make(1)
    for _ in range(150):
        one_event(crowd)
        sleep(crowd, 200)
    return list(crowd.world.log)


@pytest.mark.tier("test")
def test_the_same_run_writes_the_same_records_whatever_the_hash_seed() -> None:
    """Two processes with different hash seeds: no order of a set may reach the log."""
    program = "from tests.core.test_random_classic import a_fixed_run; print(repr(a_fixed_run()))"
    logs = []
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
        logs.append(done.stdout)
    assert logs[0] == logs[1] and len(logs[0]) > 1000
