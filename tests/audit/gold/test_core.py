"""Gold names the same owners at the end of a simulated run as the coordinator's own state, for every group. Writes of a
fenced coordinator, which the broker keeps out of a real log, change nothing and are named."""

from __future__ import annotations

import pytest

from tests.audit.gold.harness import Tables, differences, gold
from tests.audit.gold.replay import replay
from tests.audit.gold.rows import simulated_with_owners
from tests.harness.tiers import Seeds
from tests.sim.world import Violation

SEEDS, LEAST = 40, 8
FENCED_SEEDS = range(200)


def test_gold_and_the_coordinator_agree_who_owns_what_now(seeds: Seeds) -> None:
    rows, owners = [], set()
    for n, seed in enumerate(seeds.of(SEEDS, LEAST)):
        some, theirs = simulated_with_owners(seed, 10 * n)
        rows += some
        owners |= theirs
    now = owned_now(gold(rows))
    assert now == owners and {kind for _, _, kind, *_ in owners} == {"consumer", "classic"}


def owned_now(found: Tables) -> set[tuple[object, ...]]:
    columns = ("state_partition", "group_id", "kind", "topic_key", "partition", "member_id")
    return {tuple(r[c] for c in columns) for r in found["intervals"] if r["open"]}


@pytest.mark.tier("test")
def test_a_fenced_coordinator_that_got_in_changes_nothing_and_is_named() -> None:
    for seed in FENCED_SEEDS:
        try:
            rows, owners = simulated_with_owners(seed, 0, fencing=False)
        except Violation:  # without fences the run may break a promise before it ends
            continue
        told = replay(rows)
        if told["stale_writes"]:
            break
    else:
        pytest.fail("no seed has a fenced coordinator that writes")
    found = gold(rows)
    assert differences(found, told) == [] and owned_now(found) == owners
    assert len(found["stale_writes"]) == len(told["stale_writes"]) > 0
