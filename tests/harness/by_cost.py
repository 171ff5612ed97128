"""Costs of the bugs that tests/sim and tests/whole plant, and of the scenes of tests/whole, and so the tier of each.

Costs are in CPU seconds: of a bug from the first seed that is played to the one that shows it, of a scene one seed.
What is not in the table is cheap enough for its first tier. Scenes begin in `quick`. Planted bugs show that a
simulation can fail, which a change of the product seldom alters: they begin in `test`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pytest

TIERS: Mapping[str, float] = {"quick": 0.3, "test": 1.5, "all": 9.0}
"""The most that a bug or scene costs in each tier. What costs more is in `nightly`."""
CPU_S: Mapping[str, float] = {
    # bugs
    "asks_the_old_leader_for_ever": 1.5,
    "serves_before_its_claim_is_read": 1.5,
    "gives_no_time_back": 1.6,
    "forgets_who_waits_for_a_placeholder": 1.7,
    "takes_in_streams_groups_in_the_middle": 1.9,
    "says_that_all_is_stored": 2.0,
    "tells_tasks_once": 2.1,
    "sees_no_standbys_of_its_process": 2.2,
    "takes_commits_of_fenced_members": 2.5,
    "assigns_nothing_after_a_release": 2.6,
    "both_twins_own": 2.7,
    "shows_the_first_topics_for_ever": 2.8,
    "takes_over_without_a_placeholder": 2.8,
    "assigns_what_is_not_initialised": 3.2,
    "stays_withdrawn": 3.8,
    "keeps_a_problem": 4.0,
    "placeholder_never_leaves": 4.7,
    "assigns_nothing_that_comes_later": 8.7,
    "has_no_placeholders": 11.6,
    "writes_no_current_tasks": 11.7,
    "creates_no_topics": 13.7,
    "copartitions_nothing": 13.8,
    "writes_no_more_than_a_batch": 16.0,
    # scenes
    "rights_are_made_anew": 0.43,
    "last_sidecar_is_cut_off": 0.43,
    "patterns_differ": 0.45,
    "owner_is_alone_with_its_members": 0.46,
    "coordinator_falls_silent_in_a_join": 0.47,
    "fences_go_down": 0.49,
    "large_writes": 0.52,
    "member_dies_while_its_owner_is_given_its_partitions_back": 0.52,
    "first_bootstrap_is_silent": 0.56,
    "cold_start": 0.61,
    "a_bug_ends_the_coordinator": 0.65,
    "static_members_come_back": 0.5,
    "commit_of_the_former_owner_is_on_its_way": 0.5,
    "leader_of_the_state_dies": 0.6,
    "paused_with_its_members": 0.6,
    "commit_is_in_doubt": 0.6,
    "strangers_come": 0.6,
    "made_anew": 0.6,
    "broker_accepts_nobody": 0.6,
    "a_right_is_taken_away": 0.6,
    "broker_hangs": 0.7,
    "set_to_forget": 0.6,
    "fences_take_long": 0.6,
    "no_transactions": 0.6,
    "leader_of_the_patterns_dies": 0.7,
    "broker_is_slow": 0.7,
    "owners_die_in_moves_of_a_share_group": 0.7,
    "one_hears_nothing_of_it": 0.8,
    "twins": 0.8,
    "fences_are_renewed": 0.8,
    "owner_dies_that_had_lost_its_session": 0.9,
    "asked_while_it_starts": 0.9,
    "owners_coordinator_dies": 1.0,
    "owners_die_in_moves_of_a_classic_group": 1.0,
    "unreadable_group": 1.6,
    "owners_die_in_moves_of_a_streams_group": 2.1,
    "offsets_get_old": 2.5,
}
"""CPU seconds of everything that is too expensive for its first tier."""


SHOWN_BY: Mapping[str, int] = {
    "applies_a_late_result_as_it_is": 33,
    "arms_no_sessions_of_a_changed_group": 5,
    "asks_nobody_about_transactions": 2,
    "asks_the_old_leader_for_ever": 6,
    "assigns_nothing_after_a_release": 2,
    "believes_that_classic_members_own_nothing": 30,
    "counts_leases_by_one_clock": 22,
    "counts_leases_by_the_monotonic_clock": 4,
    "counts_the_lease_from_the_answer": 177,
    "downgrades_to_a_stale_target": 24,
    "forgets_grants_of_a_broken_turn": 48,
    "forgets_who_joins_an_upgraded_group": 220,
    "forgets_who_waits": 10,
    "forgets_who_waits_for_a_placeholder": 2,
    "gives_a_failed_assignor_up": 2,
    "gives_a_takeover_up": 3,
    "gives_no_time_back": 38,
    "gives_sessions_back_without_end": 16,
    "grants_tasks_before_they_are_released": 1,
    "grants_without_end": 3,
    "has_no_placeholders": 17,
    "keeps_a_broken_shard": 3,
    "keeps_the_instance_of_a_member_that_left": 11,
    "leaves_records_of_a_downgraded_group": 30,
    "lets_members_leave_unseen": 11,
    "loses_the_handed_over_assignment": 9,
    "passes_on_what_it_has_heard_nothing_of": 4,
    "placeholder_never_leaves": 4,
    "replays_to_init_only": 211,
    "says_that_all_is_stored": 18,
    "sees_no_standbys_of_its_process": 22,
    "serves_before_its_claim_is_read": 24,
    "shows_offsets_of_open_transactions": 9,
    "shows_the_first_topics_for_ever": 29,
    "syncs_the_target": 5,
    "takes_a_lost_connection_for_written": 37,
    "takes_any_commit": 13,
    "takes_any_generation": 89,
    "takes_commits_of_fenced_members": 1,
    "takes_in_streams_groups_in_the_middle": 114,
    "takes_over_without_a_placeholder": 39,
    "takes_over_without_what_is_initialised": 13,
    "takes_silence_for_a_release": 1,
    "takes_silence_for_revocation": 31,
    "tells_standbys_as_active": 1,
    "tells_tasks_once": 18,
    "upgrades_below_the_generation": 24,
    "upgrades_without_assignments": 24,
    "waits_for_a_clock_that_jumped": 28,
    "waits_for_a_leader_for_ever": 73,
    "waits_for_nobody_new": 45,
    "waits_for_the_late_for_ever": 13,
    "writes_no_current_tasks": 1,
}
"""The seed that shows a planted bug, where no early one does. The search begins there. A change of the product alters
what a seed plays: then the search is longer, and `python -m tests.whole.planted` prints another seed."""


def seeds_for(bug: str, enough: int) -> Iterator[int]:
    """Returns the seeds below `enough`, the one that is known to show the bug first."""
    first = SHOWN_BY.get(bug, 0)
    yield from (*range(first, enough), *range(first))


def tier(name: str, first: str) -> str:
    cost = CPU_S.get(name, 0.0)
    tiers = list(TIERS)
    return next((t for t in tiers[tiers.index(first) :] if cost <= TIERS[t]), "nightly")


def cases(them: Iterable[Any], first: str, name: Callable[[Any], str] = str) -> list[Any]:
    """Returns the parameters of a test that plays each bug or scene, marked with their tiers."""
    return [pytest.param(x, id=name(x), marks=pytest.mark.tier(tier(name(x), first))) for x in them]
