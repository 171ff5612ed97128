"""Costs of the bugs that tests/sim and tests/whole plant, and of the scenes of tests/whole, and so the tier of each.

Costs are in CPU seconds: of a bug from the first seed to the one that shows it (`python -m tests.whole.planted`), of a
scene one seed. A bug or scene that is not in the table is cheap enough for `quick`; but with each change of the product
the seeds play other runs, so what shows under random faults only is left to `test`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest

TIERS: Mapping[str, float] = {"quick": 0.5, "test": 3.0}
"""The most that a bug or scene costs in each tier. What costs more is in `all`."""
CPU_S: Mapping[str, float] = {
    # bugs
    "takes_silence_for_revocation": 0.5,
    "leaves_out_what_it_cannot_read": 0.5,
    "goes_on_after_a_turn_that_broke": 0.6,
    "removes_the_peer_of_the_first_day": 0.6,
    "counts_leases_by_one_clock": 0.6,
    "renews_fences_by_takeovers": 0.6,
    "lets_offsets_get_old": 0.7,
    "waits_for_a_clock_that_jumped": 0.7,
    "holds_requests_for_ever": 0.7,
    "believes_the_highest_claim": 0.8,
    "forgets_who_waits_for_a_placeholder": 0.8,
    "answers_before_the_commit": 0.8,
    "takes_part_before_it_has_read": 0.8,
    "begins_share_groups_anew": 0.8,
    "grants_tasks_before_they_are_released": 0.8,
    "takes_silence_for_a_release": 0.8,
    "tells_standbys_as_active": 0.8,
    "upgrades_without_assignments": 0.9,
    "follows_its_own_patterns": 0.9,
    "both_twins_own": 1.0,
    "takes_in_no_epochs_of_share_members": 1.0,
    "believes_that_a_part_is_all": 1.1,
    "keeps_the_last_report_only": 1.2,
    "keeps_a_broken_shard": 1.2,
    "leaves_records_of_a_downgraded_group": 1.2,
    "withdraws_no_grant": 1.2,
    "keeps_what_was_removed": 1.3,
    "goes_on_without_its_topic": 1.4,
    "takes_a_lost_connection_for_written": 1.7,
    "asks_nobody_about_transactions": 1.7,
    "counts_leases_by_the_monotonic_clock": 1.8,
    "takes_over_without_the_topology": 1.8,
    "replays_to_init_only": 1.9,
    "waits_for_nobody_new": 2.1,
    "lets_anybody_join_at_once": 2.1,
    "stays_withdrawn": 2.2,
    "shows_offsets_of_open_transactions": 2.3,
    "gives_a_takeover_up": 2.4,
    "forgets_who_joins_an_upgraded_group": 2.5,
    "takes_over_without_what_is_initialised": 2.5,
    "writes_no_more_than_a_batch": 2.7,
    "keeps_a_problem": 2.8,
    "takes_any_generation": 2.8,
    "takes_over_without_a_placeholder": 2.9,
    "believes_that_classic_members_own_nothing": 3.0,
    "assigns_what_is_not_initialised": 3.0,
    "waits_for_no_commits": 3.2,
    "tries_again_under_a_new_sequence": 3.6,
    "placeholder_never_leaves": 3.6,
    "forgets_grants_of_a_broken_turn": 3.8,
    "assigns_nothing_that_comes_later": 4.0,
    "takes_no_placeholder_over": 4.1,
    "creates_no_topics": 4.3,
    "writes_no_current_tasks": 5.2,
    "forgets_who_waits": 5.6,
    "reads_nothing_before_its_claim": 6.4,
    "proves_no_partition": 6.5,
    "sees_no_standbys_of_its_process": 6.8,
    "takes_any_commit": 7.5,
    "takes_commits_of_fenced_members": 8.0,
    "waits_for_a_leader_for_ever": 9.8,
    "passes_on_what_it_has_heard_nothing_of": 14.1,
    "has_no_placeholders": 16.0,
    "tells_tasks_once": 16.9,
    "assigns_nothing_after_a_release": 9.9,
    "gives_no_time_back": 18.5,
    "shows_the_first_topics_for_ever": 22.7,
    "says_that_all_is_stored": 24.6,
    "serves_before_its_claim_is_read": 25.7,
    "asks_the_old_leader_for_ever": 30.9,
    "counts_the_lease_from_the_answer": 42.4,
    # scenes
    "static_members_come_back": 0.5,
    "commit_of_the_former_owner_is_on_its_way": 0.5,
    "leader_of_the_state_dies": 0.6,
    "paused_with_its_members": 0.6,
    "commit_is_in_doubt": 0.6,
    "strangers_come": 0.6,
    "made_anew": 0.6,
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
"""CPU seconds of everything that is too expensive for `quick`."""


def tier(name: str) -> str:
    cost = CPU_S.get(name, 0.0)
    return next((t for t, most in TIERS.items() if cost <= most), "all")


def cases(
    bugs: Iterable[Any], name: Callable[[Any], str] = str, by_chance: Callable[[Any], bool] = lambda bug: False
) -> list[Any]:
    """Returns the parameters of a test that plays each bug or scene, marked with their tiers. `by_chance`: it shows
    under random faults only."""

    def of(bug: Any) -> str:
        cheapest = tier(name(bug))
        return "test" if cheapest == "quick" and by_chance(bug) else cheapest

    return [pytest.param(b, id=name(b), marks=pytest.mark.tier(of(b))) for b in bugs]
