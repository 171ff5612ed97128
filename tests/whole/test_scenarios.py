"""What chance brings about too seldom, played step by step."""

from __future__ import annotations

import pytest

from sidecar.coordinator.coordinator import Coordinator
from sidecar.state.fold import Claims
from tests.whole.broker.groups import partition_for
from tests.whole.client import Habits
from tests.whole.faults import GROUPS, TRANSACTIONS
from tests.whole.judge import STATE_TOPIC
from tests.whole.loop import virtual_time
from tests.whole.many import quiet
from tests.whole.run import BOUND_MS, START_MS, until
from tests.whole.violation import Violation
from tests.whole.world import NODES, PARTITIONS, World

FORGETS = {"transactional.id.expiration.ms": "20000"}
FORGOTTEN_MS = 60_000
SEEDS = 40


def _ready(world: World) -> str:
    return "" if world.ready() else str({n: s.problems for n, s in world.sidecars.items()})


def _start(world: World) -> None:
    for n in NODES:
        world.start_sidecar(n)
    until(world, START_MS, lambda: _ready(world))


def _come(world: World) -> None:
    for group_id, kind in GROUPS.items():
        world.add_client(kind, Habits(group_id, ("t1", "t2")))
    until(world, BOUND_MS, world.settled)


def _giver(world: World, p: int) -> int | None:
    """The broker that gives fences for this partition."""
    return world.kafka.leader(TRANSACTIONS, partition_for(f"{STATE_TOPIC}-{p}", PARTITIONS))


def _fences_go_down(world: World) -> bool:
    """All sidecars are stopped until the brokers have forgotten their transactional ids, and then other brokers give
    them producer ids. Returns whether one of these is lower than the one before, as it is where that broker had its
    block of ids first; and then takes that partition over once more, in a state that has changed meanwhile."""
    _start(world)
    _come(world)
    parts = world.judge.fold.parts
    p = max(range(PARTITIONS), key=lambda p: parts[p].claimed)
    high, gave = parts[p].claimed, _giver(world, p)
    for s in world.sidecars.values():
        s.terminate()
    world.universe.run_until(world.universe.now_ms + FORGOTTEN_MS)
    if gave is None:
        return False
    world.kafka.crash(gave)
    world.universe.run_until(world.universe.now_ms + 20_000)
    first = _giver(world, p)
    world.kafka.start(gave)
    world.universe.run_until(world.universe.now_ms + 10_000)
    _start(world)
    if first is None or parts[p].claimed >= high:
        return False
    _come(world)
    world.sidecars[parts[p].owner].proc.crash()
    until(world, BOUND_MS, world.settled)
    _come(world)
    world.judge.at_the_end()
    return True


def _play(seed: int) -> bool:
    world = World(seed, broker=FORGETS)
    with virtual_time(world.universe):
        try:
            return _fences_go_down(world)
        finally:
            world.bury()


def _first_seed() -> int:
    return next(seed for seed in range(SEEDS) if _play(seed))


@pytest.fixture(autouse=True)
def _quietly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.unraisablehook", lambda found: None)
    quiet()


def test_state_does_not_jump_back_when_producer_ids_go_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """Finding S3: the last claim in the log is the owner's, whatever its number. With the highest one, every tail would
    drop all that the new owner writes."""
    seed = _first_seed()

    def highest(self: Claims, owner_epoch: int) -> None:
        self.claimed = max(self.claimed, owner_epoch)

    monkeypatch.setattr(Claims, "claim", highest)
    with pytest.raises(Violation, match=r"not within|cannot be taken over"):
        _play(seed)
    monkeypatch.setattr(Coordinator, "_still_mine", lambda self, p: True)
    with pytest.raises(Violation, match=r"the tail of|went back|live|in the log"):
        _play(seed)
