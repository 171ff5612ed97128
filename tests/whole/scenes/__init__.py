"""Runs in which one thing goes wrong, at a chosen moment, and the time counts: what chance brings about too seldom, or
what is only seen with a watch in the hand. Each raises Violation.

Each is a test (test_scenes.py), and some planted bugs show in them (planted.py). One with its timeline:

python -m tests.whole.scenes owner_dies [--seed 3]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from tests.whole.run import Plant, on_stage
from tests.whole.scenes import denied, failures, fences, moves, offsets, silence, state, statics, topic
from tests.whole.scenes.parts import Scene
from tests.whole.world import ID_EXPIRATION, PARTITIONS, WEEK_MS, World

SCENES: Mapping[str, Scene] = {
    scene.__name__: scene
    for scene in (
        failures.owner_dies,
        failures.owner_dies_that_had_lost_its_session,
        failures.owner_stands_still,
        failures.member_dies_while_its_owner_ends,
        failures.member_dies_while_its_owner_is_given_its_partitions_back,
        failures.all_are_killed,
        failures.two_die_at_once,
        failures.cold_start,
        failures.asked_while_it_starts,
        failures.first_bootstrap_is_silent,
        failures.coordinator_falls_silent_in_a_join,
        failures.leader_of_the_state_dies,
        failures.owners_coordinator_dies,
        failures.owner_is_alone_with_its_members,
        failures.last_sidecar_is_cut_off,
        failures.paused_with_its_members,
        silence.broker_hangs,
        silence.broker_is_slow,
        silence.broker_accepts_nobody,
        offsets.offsets_get_old,
        offsets.commit_is_on_its_way,
        offsets.commit_is_in_doubt,
        offsets.commit_of_the_former_owner_is_on_its_way,
        offsets.leaves_right_behind_its_transaction,
        state.patterns_differ,
        state.unreadable_group,
        state.strangers_come,
        statics.static_members_come_back,
        moves.owner_dies_while_it_takes_in,
        moves.owner_dies_while_it_gives_back,
        moves.owners_die_in_moves_of_a_classic_group,
        moves.owners_die_in_moves_of_a_share_group,
        moves.owners_die_in_moves_of_a_streams_group,
        moves.members_stand_still_while_their_group_leaves,
        moves.one_hears_nothing_of_it,
        moves.leader_of_the_patterns_dies,
        topic.made_anew,
        topic.set_to_forget,
        denied.rights_are_made_anew,
        denied.a_right_is_taken_away,
        denied.a_bug_ends_the_coordinator,
        fences.twins,
        fences.fences_go_down,
        fences.fences_are_renewed,
        fences.fences_take_long,
        fences.no_transactions,
        fences.large_writes,
        fences.write_of_the_former_owner_arrives_late,
    )
}
BROKERS: Mapping[Scene, Mapping[str, str]] = {
    offsets.offsets_get_old: {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "5000"},
    fences.fences_go_down: {ID_EXPIRATION: "20000"},
    fences.twins: {ID_EXPIRATION: str(WEEK_MS)},  # its bound is one on claims, and renewals of fences are claims
    fences.no_transactions: {"transaction.state.log.replication.factor": "4"},
}
"""Settings of the brokers in some scenes."""
SIDECARS: Mapping[Scene, Mapping[str, Any]] = {
    # A shorter time would end an owner's service before its lease is over, and hide what the lease is for.
    failures.owner_is_alone_with_its_members: {"state.write_timeout_ms": 20_000},
    failures.owners_coordinator_dies: {"ownership.proof_ms": 4_000},
    **{
        scene: {"consumer.session_timeout_ms": silence.SESSION_MS}
        for scene in (silence.broker_hangs, silence.broker_is_slow, silence.broker_accepts_nobody)
    },
    fences.fences_are_renewed: {"state.fence_interval_ms": 5_000},
}
"""Settings of the sidecars in some scenes."""


WITH_AUTHORIZER = (state.strangers_come, denied.rights_are_made_anew, denied.a_right_is_taken_away)


def act(scene: Scene, seed: int, plant: Plant | None = None, tell: Callable[[str], None] | None = None) -> Counter[str]:
    """Plays a scene, and returns how often each thing has happened. Raises Violation."""
    world = World(seed, tell, BROKERS.get(scene), PARTITIONS, scene in WITH_AUTHORIZER)
    world.more.update(SIDECARS.get(scene, {}))
    if plant is not None:
        plant(world)
    on_stage(world, scene)
    return world.judge.figures
