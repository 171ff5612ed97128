"""Static members (KIP-345) that leave for a while, and come back under other member ids."""

from __future__ import annotations

from dataclasses import replace

from tests.whole.faults import STREAMS
from tests.whole.run import BOUND_MS, until
from tests.whole.scenes.parts import run_ms, start
from tests.whole.streams import StreamsHabits, StreamsMember
from tests.whole.timeline import FAULT
from tests.whole.world import World

AWAY_MS = 1_000


def static_members_come_back(world: World) -> None:
    """Each member of a streams group has its own tasks again, although nothing else makes a new target assignment."""
    world.kinds = ("streams",)
    world.serve_kinds()
    start(world)
    for i in range(2):
        world.add_client(StreamsMember, StreamsHabits(STREAMS, ("t1", "t2"), f"i{i}"))
    until(world, BOUND_MS, world.settled)
    for member in list(world.clients):
        assert isinstance(member, StreamsMember)
        world.say(FAULT, f"{member.name} leaves for a while")
        member.leaving = True
        run_ms(world, AWAY_MS)
        world.add_client(StreamsMember, replace(member.habits, process_id=member.process))
        until(world, BOUND_MS, world.settled)
