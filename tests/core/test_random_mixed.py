"""Random members of both protocols in one group that changes its own, with takeovers, lost writes and compaction: no
partition is of two, the log knows everything, and epochs and generations never go back."""

from __future__ import annotations

from dataclasses import replace

from sidecar.core.classic.group import ClassicGroup
from sidecar.core.classic.records import GroupRecord as Generation
from sidecar.core.consumer.group import ConsumerGroup
from sidecar.core.consumer.records import GroupRecord as Epoch
from sidecar.core.migration.downgrade import WHY as DOWNGRADED
from sidecar.core.migration.upgrade import WHY as UPGRADED
from tests.core.mixed_actors import POLICIES, Mixed, make
from tests.core.test_random_groups import same_state
from tests.core.world import topic_id
from tests.harness.seeds import alone, hold
from tests.harness.tiers import Seeds

SEEDS = 200
EVENTS = 250


def one_event(mixed: Mixed) -> None:
    rng, size = mixed.rng, len(mixed.old) + len(mixed.new)
    what = rng.random()
    if size < 1 or (what < 0.25 and size < 3) or (what < 0.05 and size < 7):
        mixed.add_client()
    elif what < 0.09:
        mixed.leaves()
    elif what < 0.1:
        mixed.kill_client()
    elif what < 0.14:
        mixed.restarts()
    elif what < 0.16:
        mixed.takeover()
    elif what < 0.165:
        mixed.grows()
    elif what < 0.18:
        mixed.world.config = replace(mixed.world.config, migration_policy=rng.choice(POLICIES))
    elif what < 0.19:
        mixed.sleep(rng.randint(1_000, 25_000))
    elif what < 0.2:
        mixed.delete()
    elif what < 0.3:
        mixed.world.finish()
        mixed.deliver()
    else:
        act_all(mixed, 0.5)


def act_all(mixed: Mixed, part: float) -> None:
    for o in list(mixed.old):
        if mixed.rng.random() < part:
            mixed.act(o)
            mixed.find_out()
            mixed.check()
    for n in list(mixed.new):
        if mixed.rng.random() < part:
            mixed.acts(n)
            mixed.find_out()
            mixed.check()


def same_after_a_rebuild(mixed: Mixed) -> None:
    live = mixed.world.now_is
    for shard in (mixed.world.rebuilt(), mixed.world.replayed()):
        made = shard.groups.get("g")
        assert type(made) is type(live)
        if isinstance(live, ConsumerGroup):
            assert isinstance(made, ConsumerGroup)
            same_state(made, live)
            assert (made.classic_members, made.classic_protocols) == (live.classic_members, live.classic_protocols)
        elif live is not None:
            assert made == live


def never_back(mixed: Mixed) -> None:
    """By the log: within one kind of group, and from one to the other while it has members."""
    last: dict[type, int] = {}
    highest = 0
    for r in mixed.world.log:
        if r.kind in ("group", "classic_group") and not isinstance(r, Epoch | Generation):
            highest = max(last.values(), default=0)
            last.clear()
        elif isinstance(r, Epoch | Generation):
            number = r.epoch if isinstance(r, Epoch) else r.generation
            floor = highest if r.why in (UPGRADED, DOWNGRADED) else 0
            assert number >= last.get(type(r), floor), r
            last[type(r)] = number


def test_random_mixed_group(seeds: Seeds) -> None:
    hold(random_mixed_group, seeds.of(SEEDS), alone("tests/core/test_random_mixed.py::test_random_mixed_group"))


def random_mixed_group(seed: int) -> None:
    mixed = make(seed)
    for n in range(EVENTS):
        one_event(mixed)
        mixed.find_out()
        mixed.check()
        mixed.sleep(mixed.rng.randint(1, 300))
        mixed.check()
        if n % 10 == 0:
            same_after_a_rebuild(mixed)
    converge(mixed)
    same_after_a_rebuild(mixed)
    never_back(mixed)


def converge(mixed: Mixed) -> None:
    """Faults stop: each partition gets one owner."""
    world = mixed.world
    world.loses = world.full = 0.0
    world.config = replace(world.config, migration_policy="bidirectional")
    if not mixed.old and not mixed.new:
        mixed.add_client()
    for _ in range(60):
        act_all(mixed, 1.0)
        world.finish()
        mixed.sleep(2_000)
        mixed.check()
    group = world.now_is
    assert group is not None and group.state_name() == "Stable", group
    assert group.member_count() == len(mixed.old) + len(mixed.new)
    owned = [p for o in mixed.old for p in o.places] + [p for n in mixed.new for p in n.owned.get(topic_id(1), ())]
    assert sorted(owned) == list(range(mixed.partitions))
    assert isinstance(group, ClassicGroup) <= (not mixed.new)
