"""Bugs to plant in what share and streams groups have of their own: `planted.py` plays with them."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import Any

import sidecar.core.share.group as share_group
import sidecar.core.share.initialised as share_initialised
import sidecar.core.share.placeholder as share_placeholder
import sidecar.core.share.step as share_step
import sidecar.core.streams.members as streams_members
import sidecar.core.streams.offsets as streams_offsets
import sidecar.core.streams.partitions as streams_partitions
import sidecar.core.streams.reconcile as streams_reconcile
import sidecar.core.streams.step as streams_step
from sidecar.api import streams_group_heartbeat
from sidecar.coordinator.moves import adoption
from sidecar.coordinator.moves.adoption_event import adoption_event
from sidecar.coordinator.moves.native_groups import NativeGroups
from sidecar.coordinator.placeholder import share_placeholders
from sidecar.coordinator.placeholder.share_membership import ShareMembership
from sidecar.coordinator.placeholder.share_placeholders import SharePlaceholders
from sidecar.coordinator.statelog.tail import StateLog
from sidecar.core.modern import release
from sidecar.core.modern.epochs import bump_epoch
from sidecar.core.modern.offsets import OK
from sidecar.core.modern.release import GroupRelease
from sidecar.core.share.placeholder import HoldPlaceholder
from sidecar.core.share.records import Kind as ShareKind
from sidecar.core.streams.records import Kind as StreamsKind
from sidecar.core.streams.records import TargetMemberRecord
from sidecar.core.streams.tasks import NO_TASKS, AssignedTasks, Holders, Tasks, overlap, table_of
from sidecar.core.vocabulary.errors import Code, CoordinatorError
from sidecar.core.vocabulary.rebalance_reasons import Reason
from sidecar.kafka import native
from sidecar.kafka.native import Native
from tests.whole.bugs import Patch
from tests.whole.world import World


def _reads_without(patch: Patch, kind: str) -> None:
    """A takeover leaves the records of this kind out."""
    real = StateLog.records

    def planted(self: Any, partition: int, group_id: str) -> Generator[Any, None, None]:
        yield from (r for r in real(self, partition, group_id) if r is None or r.kind != kind)

    patch.setattr(StateLog, "records", planted)


# ---- streams groups -------------------------------------------------------------------------------------------
def grants_tasks_before_they_are_released(patch: Patch, world: World) -> None:
    """An active task goes to its next member while another one still has it."""
    real = Holders.add

    def add(self: Holders, member_id: str, process_id: str, *tasks: AssignedTasks) -> None:
        for part in tasks:
            for subtopology, epochs in part.active.items():
                for p in epochs:
                    self.active.get(subtopology, {}).pop(p, None)
        real(self, member_id, process_id, *tasks)

    patch.setattr(Holders, "add", add)
    patch.setattr(Holders, "active_process", lambda self, subtopology, partition: None)


def takes_silence_for_a_release(patch: Patch, world: World) -> None:
    """A member that reports no tasks is thought to have given up what it must."""
    patch.setattr(streams_reconcile, "_still_has", lambda owned, pending: owned is not None and overlap(owned, pending))


def tells_standbys_as_active(patch: Patch, world: World) -> None:
    """A standby task is told as an active one."""
    world.more["streams.num_standby_replicas"] = 1

    def planted(self: AssignedTasks) -> Tasks:
        both: dict[str, set[int]] = {}
        for part in (self.active, self.standby):
            for subtopology, ps in part.items():
                both.setdefault(subtopology, set()).update(ps)
        return Tasks(table_of(both), {}, self.warmup)

    patch.setattr(AssignedTasks, "without_epochs", planted)


def sees_no_standbys_of_its_process(patch: Patch, world: World) -> None:
    """A thread is granted a task that another thread of its process has as a standby."""
    world.more["streams.num_standby_replicas"] = 1
    patch.setattr(Holders, "standby_processes", lambda self, subtopology, partition: ())


def counts_missing_topics_as_ready(patch: Patch, world: World) -> None:
    """A topology is ready before its internal topics are there."""
    patch.setattr(streams_partitions, "_to_create", lambda topology, configured, partitions_of: {})


def copartitions_nothing(patch: Patch, world: World) -> None:
    """A repartition topic gets the partitions of its source, whatever it is joined with."""
    patch.setattr(streams_partitions, "_copartition", lambda topics, internal, known: {})


def creates_no_topics(patch: Patch, world: World) -> None:
    """Internal topics are missed, and nobody is asked to create them."""
    patch.setattr(streams_step, "create", lambda turn, group, member: ())


def writes_no_current_tasks(patch: Patch, world: World) -> None:
    """A member is told its new epoch and tasks, and they are in no record."""

    def planted(turn: Any, group: Any, member: Any, owned: Any, process_before: Any) -> Any:
        return streams_reconcile.reconcile(
            member, group.assignment_epoch, group.target_of(member.member_id), owned, group.holders
        )

    patch.setattr(streams_step, "_reconcile", planted)


def loses_the_target_of_a_replaced_member(patch: Patch, world: World) -> None:
    """A static member that comes back finds nobody's target."""

    def planted(group_id: str, member_id: str, tasks: Tasks, why: str) -> TargetMemberRecord:
        return TargetMemberRecord(group_id, member_id, NO_TASKS, why)

    patch.setattr(streams_members, "TargetMemberRecord", planted)


def takes_commits_of_fenced_members(patch: Patch, world: World) -> None:
    """Takes every commit for a streams group."""
    patch.setattr(streams_offsets, "_commit", lambda turn, group, c: OK)


def takes_over_without_the_topology(patch: Patch, world: World) -> None:
    """A new owner has read everything of a streams group but its topology."""
    _reads_without(patch, StreamsKind.TOPOLOGY)


def tells_tasks_once(patch: Patch, world: World) -> None:
    """A member whose answer was lost is not told its tasks again."""

    def must_send_assignment(
        soft: Any, member: Any, acknowledged: bool, due: bool, now_ms: int, interval_ms: int
    ) -> bool:
        return due

    patch.setattr(streams_step, "must_send_assignment", must_send_assignment)
    patch.setattr(streams_step, "_missed", lambda soft, hb, before, acknowledged: False)


def takes_in_no_epochs_of_streams_members(patch: Patch, world: World) -> None:
    """Members of a streams group that come from the broker begin in the first epoch."""
    _comes_in_the_first_epoch(patch, native.STREAMS)


def takes_in_streams_groups_in_the_middle(patch: Patch, world: World) -> None:
    """A streams group is taken in while its members still have tasks to give up."""
    real = vars(Native)["stable"].fget
    patch.setattr(Native, "stable", property(lambda self: self.kind == native.STREAMS or real(self)))


def passes_on_that_a_streams_group_is_gone(patch: Patch, world: World) -> None:
    """A member that was silent while its group went back hears of its broker that there is no such group."""

    def gone(member_id: str, group_id: str) -> CoordinatorError:
        return CoordinatorError(Code.GROUP_ID_NOT_FOUND, f"Streams group {group_id} not found.")

    patch.setattr(streams_group_heartbeat, "unknown_member", gone)


def assigns_nothing_after_a_release(patch: Patch, world: World) -> None:
    """An owner dies when it has taken all tasks from a group that goes back. The next one keeps the group, and does not
    see that it must assign anew."""

    def planted(self: Any, turn: Any, group: Any, soft: Any, why: str) -> None:
        soft.releasing, soft.flight = True, None
        if group.members:
            bump_epoch(turn, group, why, Reason.MOVED)
            release._take_all(turn, group, why)

    patch.setattr(GroupRelease, "_begin", planted)


def _comes_in_the_first_epoch(patch: Patch, kind: str) -> None:
    real = adoption_event

    def planted(group_id: str, found: Native, why: str) -> Any:
        members = tuple(replace(m, epoch=1) for m in found.members) if found.kind == kind else found.members
        return real(group_id, replace(found, members=members), why)

    patch.setattr(adoption, "adoption_event", planted)


# ---- share groups ---------------------------------------------------------------------------------------------
def assigns_what_is_not_initialised(patch: Patch, world: World) -> None:
    """Assigns everything that exists of a subscribed topic."""

    def planted(initialised: Any, topics: Any, image: Any) -> Mapping[bytes, tuple[int, ...]]:
        found = [image.by_name[name] for name in topics if name in image.by_name]
        return {t.id: tuple(range(t.partitions)) for t in sorted(found, key=lambda t: t.id)}

    patch.setattr(share_group, "assignable", planted)


def believes_that_a_part_is_all(patch: Patch, world: World) -> None:
    """Takes what the broker has assigned so far for all that is initialised."""
    real = ShareMembership.assigned

    async def planted(self: Any, node_id: int, group_id: str) -> Any:
        found = await real(self, node_id, group_id)
        found.whole = True
        return found

    patch.setattr(ShareMembership, "assigned", planted)


def placeholder_never_leaves(patch: Patch, world: World) -> None:
    """The placeholder of an empty share group stays at the broker, and its name is taken there."""

    async def planted(self: Any, p: Any, wanted: Any, node_id: int) -> None:
        p.epoch = (await self._membership.heartbeat(node_id, p.group_id, p.member_id, p.epoch, None)).member_epoch

    patch.setattr(SharePlaceholders, "_leave", planted)


def leaves_placeholders_that_no_record_names(patch: Patch, world: World) -> None:
    """An owner died before the first report of its placeholder, which stays at the broker and is assigned partitions
    there."""

    async def none(self: Any, node_id: int, group_id: str) -> list[str]:
        return []

    patch.setattr(share_placeholders, "is_placeholder", lambda member_id: False)
    patch.setattr(ShareMembership, "placeholders", none)


def takes_over_without_what_is_initialised(patch: Patch, world: World) -> None:
    """A new owner has read everything of a share group but the record of its placeholder."""
    _reads_without(patch, ShareKind.PLACEHOLDER)


def takes_over_without_a_placeholder(patch: Patch, world: World) -> None:
    """A new owner asks for no placeholder member until somebody joins."""
    patch.setattr(share_placeholder, "keep_placeholder", lambda turn, group: None)


def assigns_nothing_that_comes_later(patch: Patch, world: World) -> None:
    """Keeps partitions that are initialised after the target was computed waiting for another member."""
    for module in (share_step, share_initialised):
        patch.setattr(module, "reassign_initialised", lambda turn, group: False)


def keeps_the_last_report_only(patch: Patch, world: World) -> None:
    """Forgets the broker's earlier reports when it tells of other partitions."""
    patch.setattr(share_initialised, "_merged", lambda known, more: more)


def shows_the_first_topics_for_ever(patch: Patch, world: World) -> None:
    """The placeholder does not follow when members subscribe to more."""
    real = SharePlaceholders.want

    def planted(self: Any, partition: int, attempt: int, wanted: Any) -> None:
        p = self._groups.get(wanted.group_id)
        if p is not None and isinstance(p.wanted, HoldPlaceholder) and isinstance(wanted, HoldPlaceholder):
            wanted = replace(wanted, topic_names=p.wanted.topic_names)
        real(self, partition, attempt, wanted)

    patch.setattr(SharePlaceholders, "want", planted)


def begins_share_groups_anew(patch: Patch, world: World) -> None:
    """A share group whose members are at the broker counts as one that has none there."""
    real = NativeGroups.describe

    async def planted(self: Any, group_id: str) -> Native:
        found = await real(self, group_id)
        return replace(found, members=()) if found.kind == native.SHARE else found

    patch.setattr(NativeGroups, "describe", planted)


def takes_in_no_epochs_of_share_members(patch: Patch, world: World) -> None:
    """Members that come from the broker begin in the first epoch."""
    _comes_in_the_first_epoch(patch, native.SHARE)
