"""A thousand seeds hold; a seed replays exactly; and a checker that finds nothing when a bug is planted is no checker.

More seeds: `make sim SEEDS=20000`. One seed with its trail: `python -m tests.sim.run --seed N`.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

import sidecar.core.consumer.heartbeat as heartbeat
import sidecar.core.consumer.members as members
import sidecar.core.consumer.target as target
import sidecar.core.shard as shard
from sidecar.core.consumer.group import Flight
from sidecar.core.records import Kind, Tombstone
from tests.sim.model import Cluster, Violation
from tests.sim.run import attempt, play

SEEDS = 1_000
ENOUGH = 400
"""Seeds in which a planted bug must have shown."""
Patch = pytest.MonkeyPatch


def test_a_thousand_seeds() -> None:
    with ProcessPoolExecutor(2) as pool:
        results = list(pool.map(attempt, range(SEEDS), chunksize=25))
    bad = [f"seed {seed}: {problem}" for seed, _, problem in results if problem]
    assert not bad, "\n".join(bad[:10])
    assert sum(events for _, events, _ in results) > SEEDS * 1_000, "the runs are about something"


def test_a_seed_replays_exactly() -> None:
    def trail(seed: int) -> list[str]:
        told: list[str] = []
        told.append(str(play(seed, tell=told.append)))
        return told

    assert trail(4711) == trail(4711) != trail(4712)


# ---- planted bugs ---------------------------------------------------------------------------------------------
def forgets_owners(patch: Patch, sim: Cluster) -> None:
    real: Any = vars(heartbeat)["reconcile"]

    def planted(*args: Any) -> Any:
        return real(*args[:5], lambda topic, partition: None)

    patch.setattr(heartbeat, "reconcile", planted)


def takes_silence_for_revocation(patch: Patch, sim: Cluster) -> None:
    real: Any = vars(heartbeat)["reconcile"]

    def planted(member: Any, goal: Any, subscribed: Any, changed: Any, owned: Any, owner_of: Any) -> Any:
        return real(member, goal, subscribed, changed, {}, owner_of)

    patch.setattr(heartbeat, "reconcile", planted)


def replies_before_the_commit(patch: Patch, sim: Cluster) -> None:
    sim.reply_early = True


def zombies_write_and_serve(patch: Patch, sim: Cluster) -> None:
    sim.log.fencing = False
    sim.leases = False


def replays_to_init_only(patch: Patch, sim: Cluster) -> None:
    sim.replay_to_init = True


def starts_a_second_run(patch: Patch, sim: Cluster) -> None:
    real = target.update_target

    def planted(turn: Any, group: Any) -> None:
        group.flight = None
        real(turn, group)

    for module in (target, heartbeat, members):
        patch.setattr(module, "update_target", planted)


def applies_a_late_result_as_it_is(patch: Patch, sim: Cluster) -> None:
    patch.setattr(Flight, "gone", lambda self, member_id, successor=None: None)


def forgets_a_record(patch: Patch, sim: Cluster) -> None:
    """A removed static member's instance id stays in the log."""
    real = shard.Turn.write

    def planted(self: Any, record: Any) -> None:
        real(self, record)
        if isinstance(record, Tombstone) and record.kind is Kind.STATIC_MEMBER:
            self.fx.records.pop()

    patch.setattr(shard.Turn, "write", planted)


def arms_no_sessions_after_a_takeover(patch: Patch, sim: Cluster) -> None:
    patch.setattr(shard, "arm_session", lambda turn, group_id, member_id: None)


def waits_for_a_clock_that_jumped(patch: Patch, sim: Cluster) -> None:
    """Kafka's own (kafka-behaviour.md 3.1)."""

    def planted(group: Any, config: Any, wall_ms: int) -> int:
        last, interval = group.assignment_timestamp_ms, config.assignment_interval_ms
        return 0 if last == 0 or interval == 0 else int(max(0, last + interval - wall_ms))

    patch.setattr(target, "_wait_ms", planted)


def lets_members_leave_unseen(patch: Patch, sim: Cluster) -> None:
    real = members.bump_epoch

    def planted(turn: Any, group: Any, why: str) -> None:
        if "timeout" not in why and "left" not in why:
            real(turn, group, why)

    patch.setattr(members, "bump_epoch", planted)


def gives_a_failed_assignor_up(patch: Patch, sim: Cluster) -> None:
    def planted(turn: Any, group: Any, assignor: str, error: str) -> None:
        group.retry_at_ms = 10**12

    patch.setattr(target, "_failed", planted)


def keeps_the_last_epoch(patch: Patch, sim: Cluster) -> None:
    """The target is written under the epoch that the group has when the result comes."""
    real = target._finish

    def planted(turn: Any, group: Any, inp: Any, out: Any, flight: Any, encoded: Any) -> None:
        real(turn, group, replace(inp, epoch=group.epoch), out, flight, encoded)

    patch.setattr(target, "_finish", planted)


PLANTED: dict[Callable[[Patch, Cluster], None], str] = {
    forgets_owners: "assigned to|two owners",
    takes_silence_for_revocation: "two owners",
    replies_before_the_commit: "before its records",
    zombies_write_and_serve: "two owners|differs|live|in the log",
    replays_to_init_only: "live|in the log|differs|went back",
    starts_a_second_run: "two assignor runs",
    applies_a_late_result_as_it_is: "no members|differs",
    forgets_a_record: "static_members",
    arms_no_sessions_after_a_takeover: "no session timer",
    waits_for_a_clock_that_jumped: "not settled",
    lets_members_leave_unseen: "not settled",
    gives_a_failed_assignor_up: "not settled",
    keeps_the_last_epoch: "not settled",
}


@pytest.mark.parametrize("bug", PLANTED, ids=lambda b: b.__name__)
def test_a_planted_bug_is_found(bug: Callable[[Patch, Cluster], None], monkeypatch: Patch) -> None:
    import re

    for seed in range(ENOUGH):
        try:
            with monkeypatch.context() as patch:
                play(seed, plant=lambda sim: bug(patch, sim))
        except Violation as exc:
            assert re.search(PLANTED[bug], str(exc)), exc
            return
    raise AssertionError(f"{bug.__name__} was not found in {ENOUGH} seeds")
