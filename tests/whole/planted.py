"""Bugs to plant in the outer layers of the sidecar, each with the words by which it must be found. A simulation that
finds nothing then is no simulation.

python -m tests.whole.planted [name ...]     # how many seeds each one takes
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from tests.harness.by_cost import seeds_for
from tests.whole import bugs, findings
from tests.whole import bugs_of_kinds as kinds
from tests.whole.bugs import Patch
from tests.whole.many import spread
from tests.whole.run import play
from tests.whole.scenes import SCENES, act
from tests.whole.violation import Violation
from tests.whole.world import World

ENOUGH = 200
"""Seeds in which a planted bug must have shown."""


@dataclass(frozen=True)
class Bug:
    """`words`: of the violation that it must bring about. `often`: the faults under which it does harm; they strike
    more often than usual, so that it takes few seeds."""

    plant: Callable[[Patch, World], None]
    words: str
    often: Sequence[str] = ()
    scene: str = ""
    """The one in which it shows (scenes/); else it shows under random faults."""
    kind: str = ""
    """The kind of the groups that it is about, which all seeds have then; others have none of these kinds."""

    @property
    def name(self) -> str:
        return self.plant.__name__


ARRIVES_LATE = "write_of_the_former_owner_arrives_late"
ALONE_WITH_MEMBERS = "owner_is_alone_with_its_members"
OWNERS_DIE = "owners_die_in_moves_of"
ALONE = ("host_is_alone", "broker_stands_still", "sidecar_stands_still")
CUT = ("owner_is_cut_off", "client_comes", "client_crashes")
HELD_UP = ("commit_is_held_up",)
LATE = ("tail_lags", "sidecar_crashes", *CUT)
COME, LEAVE = ("client_comes", "client_leaves"), ("client_leaves", "client_crashes")
STALE = "goes back|was acknowledged"
PLANTED = [
    Bug(bugs.answers_before_the_commit, "before its records"),
    Bug(bugs.takes_over_without_a_fence, "behind the claim", scene=ARRIVES_LATE),
    Bug(bugs.goes_on_after_it_was_fenced, "behind the claim", scene=ARRIVES_LATE),
    Bug(bugs.tries_again_under_a_new_sequence, "in the log twice", ("broker_crashes", "broker_stands_still")),
    Bug(bugs.takes_a_lost_connection_for_written, "before its records|in the log|differs|live", ALONE),
    Bug(bugs.asks_the_old_leader_for_ever, "not within|waits for its answer", scene="leader_of_the_state_dies"),
    Bug(bugs.gives_a_takeover_up, "not within|waits for its answer", scene="fences_take_long"),
    Bug(bugs.serves_before_its_claim_is_read, "in the log|live|went back|differs", ("tail_lags",)),
    Bug(bugs.reads_nothing_before_its_claim, "in the log|live|went back|differs|lost records", LATE),
    Bug(bugs.keeps_what_was_removed, "the tail of"),
    Bug(bugs.reads_out_of_order, "the tail of|has lost records"),
    Bug(bugs.looks_at_no_lease, "no lease|all is well", scene=ALONE_WITH_MEMBERS),
    Bug(bugs.removes_whom_the_former_owner_answers, "was removed at|could be heard", scene=ALONE_WITH_MEMBERS),
    Bug(bugs.takes_silence_for_a_word, "was removed at|could be heard", scene=ALONE_WITH_MEMBERS),
    Bug(bugs.counts_the_lease_from_the_answer, "too long", ("disk_is_slow", "network_is_slow")),
    Bug(bugs.keeps_an_instance_for_ever, "UNRELEASED_INSTANCE_ID, which ends", ("client_crashes", "client_comes")),
    Bug(bugs.stays_withdrawn, "not within", ("broker_crashes", "broker_stands_still")),
    Bug(bugs.gives_no_time_back, "could be heard for", ("host_is_suspended",)),
    Bug(bugs.keeps_a_problem, "not within.*cannot be taken over", scene="fences_take_long"),
    Bug(bugs.has_no_placeholders, STALE, HELD_UP),
    Bug(bugs.says_that_all_is_stored, "were acknowledged", HELD_UP),
    Bug(bugs.asks_nobody_about_transactions, f"{STALE}|all is well", ("client_stands_still",)),
    Bug(bugs.shows_offsets_of_open_transactions, STALE, scene="leaves_right_behind_its_transaction"),
    Bug(bugs.asks_nobody_for_rights, "which may not come to", scene="strangers_come"),
    Bug(bugs.withdraws_no_grant, "all is well", ("client_comes", "client_stands_still")),
    Bug(bugs.hears_no_touch, "could be heard for"),
    Bug(bugs.tells_of_no_other_owner, "has not been answered", scene="owner_dies"),
    Bug(bugs.forgets_who_waits, "waits for its answer", ALONE),
    Bug(bugs.forgets_who_waits_for_a_placeholder, "waits for its answer", HELD_UP),
    Bug(findings.waits_for_whoever_is_silent, "has not been answered", scene="first_bootstrap_is_silent"),
    Bug(findings.takes_part_before_it_has_read, "has not been answered|longer than it should", scene="cold_start"),
    Bug(findings.removes_the_peer_of_the_first_day, "has not been", scene="owner_dies_that_had_lost_its_session"),
    Bug(findings.hears_only_who_hangs_up, "have not been taken", scene="owner_stands_still"),
    Bug(findings.waits_for_its_predecessor, "are not ready", scene="all_are_killed"),
    Bug(findings.leaves_behind_its_own_join, "has not been answered", scene="two_die_at_once"),
    Bug(findings.lets_offsets_get_old, "is deleted at the broker", scene="offsets_get_old"),
    Bug(findings.believes_the_highest_claim, "the tail of|went back|live|in the log", scene="fences_go_down"),
    Bug(findings.follows_its_own_patterns, "not within|two owners|before its records", scene="patterns_differ"),
    Bug(findings.leaves_out_what_it_cannot_read, "are served|before its records", scene="unreadable_group"),
    Bug(findings.an_unreadable_group_takes_its_partition_down, "a turn broke", scene="unreadable_group"),
    Bug(findings.both_twins_own, "have taken partitions from each other", scene="twins"),
    Bug(findings.goes_on_after_a_turn_that_broke, "live|waits for its answer"),
    Bug(findings.waits_at_the_old_coordinator, "has not been answered", scene="coordinator_falls_silent_in_a_join"),
    Bug(bugs.believes_heartbeats_alone, "nobody who could commit", scene="last_sidecar_is_cut_off"),
    Bug(bugs.takes_no_placeholder_over, STALE, scene="commit_of_the_former_owner_is_on_its_way"),
    Bug(bugs.waits_for_no_commits, STALE, scene="commit_is_on_its_way"),
    Bug(bugs.forgets_commits_in_doubt, STALE, scene="commit_is_in_doubt"),
    Bug(bugs.holds_requests_for_ever, "longer than it should|waits for its answer", scene="fences_take_long"),
    Bug(bugs.leaves_whom_the_former_owner_took_in, "not within", scene="owner_dies_while_it_takes_in"),
    Bug(bugs.a_release_ends_with_its_owner, "not within", scene="owner_dies_while_it_gives_back"),
    Bug(bugs.passes_on_what_it_has_heard_nothing_of, "two owners", scene="one_hears_nothing_of_it"),
    Bug(bugs.asks_leaders_only, "whose broker lives", scene="leader_of_the_patterns_dies"),
    Bug(findings.goes_on_without_its_topic, "behind the claim|the tail of", scene="made_anew"),
    Bug(findings.lets_anybody_join_at_once, "is worked on by", scene="made_anew"),
    Bug(findings.believes_that_the_topic_is_kept, "state topic.* forgets", scene="set_to_forget"),
    Bug(findings.counts_leases_by_the_monotonic_clock, "all is well", scene="paused_with_its_members"),
    Bug(findings.counts_leases_by_one_clock, "all is well", scene="paused_with_its_members"),
    Bug(findings.proves_no_partition, "has not been answered", scene="owners_coordinator_dies"),
    Bug(findings.says_not_why_there_is_no_fence, "does not say why", scene="no_transactions"),
    Bug(findings.expects_to_know_the_owners, "gives no answer|unknown server error", scene="asked_while_it_starts"),
    Bug(findings.writes_no_more_than_a_batch, "not within|waits for its answer", scene="large_writes"),
    Bug(findings.renews_fences_by_takeovers, "taken over anew|not renewed", scene="fences_are_renewed"),
    Bug(kinds.grants_tasks_before_they_are_released, "has two owners", COME, kind="streams"),
    Bug(kinds.takes_silence_for_a_release, "has two owners", COME, kind="streams"),
    Bug(kinds.tells_standbys_as_active, "has two owners", COME, kind="streams"),
    Bug(kinds.sees_no_standbys_of_its_process, "is twice in process", COME, kind="streams"),
    Bug(kinds.counts_missing_topics_as_ready, "whose topics do not exist", kind="streams"),
    Bug(kinds.copartitions_nothing, "which its topology does not have|ends Kafka Streams", kind="streams"),
    Bug(kinds.creates_no_topics, "not within.*g-streams", kind="streams"),
    Bug(kinds.writes_no_current_tasks, "not within.*g-streams|two owners", kind="streams"),
    Bug(kinds.loses_the_target_of_a_replaced_member, "not within.*g-streams", scene="static_members_come_back"),
    Bug(kinds.takes_commits_of_fenced_members, f"{STALE}|all is well", ("client_stands_still",), kind="streams"),
    Bug(kinds.takes_over_without_the_topology, "topology: live|not within", ("sidecar_crashes",), kind="streams"),
    Bug(kinds.tells_tasks_once, "not within.*g-streams", ("sidecar_crashes", "way_is_cut", *COME), kind="streams"),
    Bug(kinds.takes_in_no_epochs_of_streams_members, "begins anew beside", ("group_is_moved",), kind="streams"),
    Bug(kinds.takes_in_streams_groups_in_the_middle, "two owners", ("group_is_moved", *COME), kind="streams"),
    Bug(
        kinds.passes_on_that_a_streams_group_is_gone,
        "GROUP_ID_NOT_FOUND, which ends",
        scene="members_stand_still_while_their_group_leaves",
    ),
    Bug(kinds.assigns_nothing_after_a_release, "not within.*m-streams", scene=f"{OWNERS_DIE}_a_streams_group"),
    Bug(kinds.assigns_what_is_not_initialised, "no share state", kind="share"),
    Bug(kinds.believes_that_a_part_is_all, "has forgotten", ("sidecar_crashes", *COME), kind="share"),
    Bug(kinds.placeholder_never_leaves, "not within.*placeholder members are", LEAVE, kind="share"),
    Bug(
        kinds.leaves_placeholders_that_no_record_names,
        "not within.*m-share: .*(placeholder members are|are owned of)",
        scene=f"{OWNERS_DIE}_a_share_group",
    ),
    Bug(kinds.takes_over_without_what_is_initialised, "placeholder: live", ("sidecar_crashes",), kind="share"),
    Bug(kinds.takes_over_without_a_placeholder, "placeholder members are", ("sidecar_crashes",), kind="share"),
    Bug(kinds.assigns_nothing_that_comes_later, "not within.*g-share", kind="share"),
    Bug(kinds.keeps_the_last_report_only, "has forgotten", ("sidecar_crashes", *COME), kind="share"),
    Bug(kinds.shows_the_first_topics_for_ever, "not within.*g-share", COME, kind="share"),
    Bug(kinds.begins_share_groups_anew, "begins anew beside", ("group_is_moved",), kind="share"),
    Bug(kinds.takes_in_no_epochs_of_share_members, "begins anew beside", ("group_is_moved",), kind="share"),
]


@dataclass(frozen=True)
class Finding:
    name: str
    seeds: int
    """The number of seeds that were played."""
    found: str
    """The violation, or what came instead."""
    right: bool
    cpu_s: float


def search(name: str, enough: int = ENOUGH) -> Finding:
    """Play until it is found."""
    bug = next(b for b in PLANTED if b.name == name)
    began, last = time.process_time(), "nothing"
    for n, seed in enumerate(seeds_for(name, enough)):
        try:
            with Patch.context() as patch:

                def plant(world: World, patch: Patch = patch) -> None:
                    world.often = tuple(bug.often)
                    world.kinds = (bug.kind,) if bug.kind else ()
                    bug.plant(patch, world)

                if bug.scene:
                    act(SCENES[bug.scene], seed, plant)
                else:
                    play(seed, plant)
        except Violation as exc:
            last = f"seed {seed}: {exc}"
            if re.search(bug.words, str(exc)):
                return Finding(name, n + 1, last, True, time.process_time() - began)
        except Exception as exc:  # noqa: BLE001 - told with its seed
            last = f"seed {seed}: {exc!r}"
    return Finding(name, enough, last, False, time.process_time() - began)


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("names", nargs="*")
    ap.add_argument("--jobs", type=int, default=os.cpu_count())
    ap.add_argument("--enough", type=int, default=ENOUGH)
    a = ap.parse_args()
    names = a.names or [b.name for b in PLANTED]
    bad = 0
    for f in spread(partial(search, enough=a.enough), names, a.jobs, each=1):
        bad += not f.right
        seeds = f"{f.seeds}" if f.right else "never"
        print(f"{f.name:38} {seeds:>5} {f.cpu_s:6.1f} s  {f.found[:140]}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
