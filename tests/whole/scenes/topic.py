"""The state topic itself: finding S6."""

from __future__ import annotations

from tests.whole.client import Place
from tests.whole.judge import STATE_TOPIC
from tests.whole.run import BOUND_MS, until
from tests.whole.scenes.parts import come, run_ms, start
from tests.whole.timeline import FAULT
from tests.whole.violation import Violation
from tests.whole.world import NODES, PARTITIONS, World

TOPIC = 2
"""The resource type."""
CALM_MS, NOTICED_MS, LOOK_MS = 3_000, 20_000, 20
ENDS = "the coordinator has ended and is started again"
CONFIGS = {"cleanup.policy": "compact", "min.insync.replicas": "2"}


def made_anew(world: World) -> None:
    """The state topic is deleted, and in half of the seeds made anew at once. Everything that sidecars have in memory
    is in no log then: they start anew, members join again, and offsets are what they were. No member works on what
    another one has been given before it has heard that it owns nothing. No sidecar is about to write when the topic is
    deleted."""
    world.judge.inside.expected = (ENDS,)
    start(world)
    come(world, 2)
    run_ms(world, CALM_MS)
    cluster = world.kafka.cluster
    world.say(FAULT, f"{STATE_TOPIC} is deleted")
    cluster.delete_topic(STATE_TOPIC)
    if world.rng.random() < 0.5:
        run_ms(world, world.rng.uniform(0, 300))
        world.say(FAULT, "... and made anew")
        cluster.create_topic(STATE_TOPIC, PARTITIONS, 3, CONFIGS)
    run_ms(world, 1_500)
    world.judge.forget()
    noticed = world.universe.now_ms + NOTICED_MS
    while world.universe.now_ms < noticed:
        for _ in range(500 // LOOK_MS):
            run_ms(world, LOOK_MS)
            nobody_owns_twice(world)
    for n, s in world.sidecars.items():
        if not any("starting anew" in line for line in s.lines.errors):
            raise Violation(f"sidecar {n} does not say that the state topic is another one")
    world.start_the_stopped()
    world.judge.read_all()
    until(world, BOUND_MS, world.settled)
    world.judge.at_the_end()


def nobody_owns_twice(world: World) -> None:
    """Raises Violation if two live clients own a partition, even if a coordinator no longer knows one of the two."""
    seen: dict[tuple[str, Place], str] = {}
    for c in world.clients:
        for place in c.owned if c.proc.alive else ():
            first = seen.setdefault((c.habits.group_id, place), c.name)
            if first != c.name:
                raise Violation(f"{place} of {c.habits.group_id} is worked on by {first} and {c.name}")


def set_to_forget(world: World) -> None:
    """Brokers that delete its records by their age, and one replica that may acknowledge alone: the first is refused at
    the start, both are told while a sidecar runs."""
    world.judge.inside.expected = (ENDS,)
    start(world)
    come(world)
    cluster = world.kafka.cluster
    cluster.configure(TOPIC, STATE_TOPIC, {"min.insync.replicas": "1", "cleanup.policy": "delete"})
    run_ms(world, 12_000)
    for n, s in world.sidecars.items():
        told = [line for line in s.lines.errors if line.startswith("the state topic is not set to keep")]
        if len(told) < 2:
            raise Violation(f"sidecar {n} does not say that the state topic forgets: {told}")
    n = world.rng.choice(NODES)
    world.sidecars[n].proc.crash()
    world.start_sidecar(n)
    run_ms(world, 10_000)
    s = world.sidecars[n]
    if s.ended is not None or "cleanup.policy" not in " ".join(s.problems):
        raise Violation(f"sidecar {n} coordinates with a state topic that forgets, or its ports are shut: {s.problems}")
    cluster.configure(TOPIC, STATE_TOPIC, CONFIGS)
    until(world, BOUND_MS, world.settled)
