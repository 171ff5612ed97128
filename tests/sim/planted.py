"""Bugs to plant, each with the words by which it must be found. A checker that finds nothing then is no checker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import sidecar.core.consumer.registration as kind
import sidecar.core.consumer.step as step
from sidecar.core.consumer.events import ConsumerHeartbeat
from sidecar.core.consumer.group import ConsumerGroup, Member
from sidecar.core.consumer.records import Kind
from sidecar.core.modern import epochs, target_assignment
from sidecar.core.modern.group import STATIC_LEAVE_EPOCH
from sidecar.core.modern.soft_state import Flight
from sidecar.core.modern.target_assignment import Targets
from sidecar.core.runtime.deferred_replies import DeferredReplies
from sidecar.core.runtime.owner import Owner
from sidecar.core.runtime.pending_requests import Waiting
from sidecar.core.runtime.records import Tombstone
from sidecar.core.runtime.shard import Shard
from sidecar.core.runtime.turn import Turn
from sidecar.core.vocabulary.errors import Code, CoordinatorError
from sidecar.front.steady import Grants
from tests.sim.model import Cluster

Patch = pytest.MonkeyPatch
Bug = Callable[[Patch, Cluster], None]


# ---- groups ---------------------------------------------------------------------------------------------------
def forgets_owners(patch: Patch, sim: Cluster) -> None:
    real: Any = vars(step)["reconcile"]

    def planted(*args: Any) -> Any:
        return real(*args[:5], lambda topic, partition: None)

    patch.setattr(step, "reconcile", planted)


def takes_silence_for_revocation(patch: Patch, sim: Cluster) -> None:
    real: Any = vars(step)["reconcile"]

    def planted(member: Any, goal: Any, subscribed: Any, changed: Any, owned: Any, owner_of: Any) -> Any:
        return real(member, goal, subscribed, changed, {}, owner_of)

    patch.setattr(step, "reconcile", planted)


def starts_a_second_run(patch: Patch, sim: Cluster) -> None:
    real = Targets.update

    def planted(self: Any, turn: Any, group: Any) -> None:
        turn.soft_of(group.group_id).flight = None
        real(self, turn, group)

    patch.setattr(Targets, "update", planted)


def applies_a_late_result_as_it_is(patch: Patch, sim: Cluster) -> None:
    patch.setattr(Flight, "gone", lambda self, member_id, successor=None: None)


def forgets_a_record(patch: Patch, sim: Cluster) -> None:
    """A removed static member's instance id stays in the log."""
    real = Turn.write

    def planted(self: Any, record: Any) -> None:
        real(self, record)
        if isinstance(record, Tombstone) and record.kind is Kind.STATIC_MEMBER:
            self.fx.records.pop()

    patch.setattr(Turn, "write", planted)


def refuses_a_repeated_static_join(patch: Patch, sim: Cluster) -> None:
    """As Kafka does: the answer to a join that was let in is lost, and the next one ends the client."""
    _refuses_static_joins(patch, lambda holder, member_id: holder.member_id == member_id)


def keeps_the_instance_of_a_member_that_left(patch: Patch, sim: Cluster) -> None:
    _refuses_static_joins(patch, lambda holder, member_id: holder.member_epoch == STATIC_LEAVE_EPOCH)


def _refuses_static_joins(patch: Patch, refused: Callable[[Member, str], bool]) -> None:
    real: Any = vars(step)["_find_or_make"]

    def planted(group: ConsumerGroup, hb: ConsumerHeartbeat, member_id: str) -> Any:
        holder = None if hb.instance_id is None or hb.member_epoch else group.static_member(hb.instance_id)
        if holder is not None and refused(holder, member_id):
            raise CoordinatorError(Code.UNRELEASED_INSTANCE_ID, "planted")
        return real(group, hb, member_id)

    patch.setattr(step, "_find_or_make", planted)


def arms_no_sessions_after_a_takeover(patch: Patch, sim: Cluster) -> None:
    patch.setattr(kind, "arm_session", lambda *args: None)


def waits_for_a_clock_that_jumped(patch: Patch, sim: Cluster) -> None:
    """As Kafka does (docs/reference/behaviour.md, section 3)."""

    def planted(group: Any, config: Any, wall_ms: int) -> int:
        last, interval = group.assignment_timestamp_ms, config.assignment_interval_ms
        return 0 if last == 0 or interval == 0 else int(max(0, last + interval - wall_ms))

    patch.setattr(target_assignment, "interval_left_ms", planted)


def lets_members_leave_unseen(patch: Patch, sim: Cluster) -> None:
    real = epochs.bump_epoch

    def planted(turn: Any, group: Any, why: str, reason: Any) -> None:
        if "timeout" not in why and "left" not in why:
            real(turn, group, why, reason)

    patch.setattr(epochs, "bump_epoch", planted)


def gives_a_failed_assignor_up(patch: Patch, sim: Cluster) -> None:
    def planted(self: Any, turn: Any, group: Any, assignor: str, error: str) -> None:
        turn.soft_of(group.group_id).retry_at_ms = 10**12

    patch.setattr(Targets, "_failed", planted)


# ---- ownership ------------------------------------------------------------------------------------------------
def replies_before_the_commit(patch: Patch, sim: Cluster) -> None:
    answers_before_the_commit(patch)


def answers_before_the_commit(patch: Patch) -> None:
    """The simulation of whole processes has it, too."""
    patch.setattr(DeferredReplies, "send", DeferredReplies._release)


def zombies_write_and_serve(patch: Patch, sim: Cluster) -> None:
    sim.world.leases = False
    for log in sim.world.logs:
        log.fencing = False


def replays_to_init_only(patch: Patch, sim: Cluster) -> None:
    sim.world.replay_to_init = True


def keeps_a_broken_shard(patch: Patch, sim: Cluster) -> None:
    """A turn raised an exception when half of it was done, and the owner goes on."""
    patch.setattr(Owner, "_broken", lambda self, exc, now: None)


def forgets_who_waits(patch: Patch, sim: Cluster) -> None:
    """An owner that drops its shard answers nobody."""
    patch.setattr(DeferredReplies, "refuse_open", lambda self, code: None)


def keeps_the_held_waiting(patch: Patch, sim: Cluster) -> None:
    patch.setattr(Waiting, "refuse", lambda self, code, now_ms=None: None)


def shuts_out_without_a_lease(patch: Patch, sim: Cluster) -> None:
    real = Owner.wake
    patch.setattr(Owner, "wake", lambda self, now, budget, proved: real(self, now, budget, True))


def gives_sessions_back_without_end(patch: Patch, sim: Cluster) -> None:
    """A sidecar that was deaf for long gives that time to members of a partition that it has just taken over."""

    def planted(self: Any, by_ms: int, now: Any) -> None:
        if self.shard is not None:
            self.shard.timers.shift(by_ms)

    patch.setattr(Owner, "shift", planted)


# ---- grants ---------------------------------------------------------------------------------------------------
def grants_without_end(patch: Patch, sim: Cluster) -> None:
    patch.setattr(Grants, "allows", lambda self, steady, api, version, now_ms: steady.group.valid)


def withdraws_no_grant(patch: Patch, sim: Cluster) -> None:
    """The front does not listen when a group has changed."""
    patch.setattr(Grants, "void", lambda self, groups: None)


def forgets_grants_of_a_broken_turn(patch: Patch, sim: Cluster) -> None:
    """The turn that broke had voided grants, and its effects are lost."""
    real: Any = Owner._broken

    def planted(self: Any, exc: Exception, now: Any) -> None:
        before = len(self._out)
        real(self, exc, now)
        self._out[before:] = [c for c in self._out[before:] if type(c).__name__ != "Void"]

    patch.setattr(Owner, "_broken", planted)


def hears_no_touch(patch: Patch, sim: Cluster) -> None:
    patch.setattr(Shard, "touch", lambda self, group_id, member_id, now: None)


PLANTED: dict[Bug, str] = {
    forgets_owners: "assigned to|two owners",
    takes_silence_for_revocation: "two owners",
    starts_a_second_run: "two assignor runs",
    applies_a_late_result_as_it_is: "no members|differs",
    forgets_a_record: "static_members",
    refuses_a_repeated_static_join: "UNRELEASED_INSTANCE_ID, which ends Java",
    keeps_the_instance_of_a_member_that_left: "UNRELEASED_INSTANCE_ID, which ends Java",
    arms_no_sessions_after_a_takeover: "no session timer|removed for silence",
    waits_for_a_clock_that_jumped: "not settled",
    lets_members_leave_unseen: "not settled",
    gives_a_failed_assignor_up: "not settled",
    replies_before_the_commit: "before its records",
    zombies_write_and_serve: "two owners|differs|live|in the log|went back|before its records|all is well",
    replays_to_init_only: "live|in the log|differs|went back",
    keeps_a_broken_shard: "live|in the log|differs",
    forgets_who_waits: "waits for its answer",
    keeps_the_held_waiting: "waits for its answer|wait for ever",
    shuts_out_without_a_lease: "without a lease",
    gives_sessions_back_without_end: "ends only in",
    grants_without_end: "after the end of the lease|after it was removed",
    withdraws_no_grant: "after it was removed|changed",
    forgets_grants_of_a_broken_turn: "after it was removed|changed",
    hears_no_touch: "removed for silence",
}
"""The text of the violation."""
