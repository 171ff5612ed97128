"""Bugs of classic and mixed groups to plant, each with the words by which it must be found."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

import sidecar.core.classic.offsets as offsets
import sidecar.core.classic.rebalance as rebalance
import sidecar.core.classic.registration as classic_kind
import sidecar.core.classic.sync as sync
import sidecar.core.migration.downgrade as downgrade
import sidecar.core.migration.join as mixed_join
import sidecar.core.migration.leave as mixed_leave
import sidecar.core.migration.parked_joins as mixed_waiting
import sidecar.core.migration.sync as mixed_sync
import sidecar.core.migration.upgrade as upgrade
from sidecar.core.classic.config import CLASSIC
from sidecar.core.classic.events import ClassicHeartbeat, JoinedMember, SyncGroup, SyncReply
from sidecar.core.classic.group import ClassicGroup
from sidecar.core.classic.records import AssignmentRecord, State
from sidecar.core.classic.registration import CLASSIC as CLASSIC_KIND
from sidecar.core.consumer.group import ConsumerGroup
from sidecar.core.consumer.records import Kind
from sidecar.core.kinds import REGISTRY
from sidecar.core.runtime.deferred_replies import DeferredReplies
from sidecar.core.runtime.records import Tombstone
from sidecar.core.runtime.turn import Turn
from sidecar.core.vocabulary.errors import Code
from tests.sim.model import Cluster
from tests.sim.planted import Bug, Patch


# ---- classic groups -------------------------------------------------------------------------------------------
def assigns_before_the_commit(patch: Patch, sim: Cluster) -> None:
    """SyncGroup is answered before the leader's assignment is in the log."""
    real = DeferredReplies.send

    def planted(self: Any, reply: Any, shard: Any, now: Any) -> None:
        if isinstance(reply.answer, SyncReply):
            self._release(reply, shard, now)
        else:
            real(self, reply, shard, now)

    patch.setattr(DeferredReplies, "send", planted)


def tells_everybody_the_members(patch: Patch, sim: Cluster) -> None:
    real: Any = rebalance.joined

    def planted(group: Any, member_id: str, members: Any = ()) -> Any:
        reply = real(group, member_id, members)
        reply.members = tuple(
            JoinedMember(m.member_id, None, m.metadata(group.protocol)) for m in group.members.values()
        )
        return reply

    patch.setattr(rebalance, "joined", planted)


def gives_a_generation_again(patch: Patch, sim: Cluster) -> None:
    """A rebalance that goes on after a takeover ends in the generation that there was."""
    real: Any = rebalance.go
    wait: Any = rebalance.await_join
    resumed: set[str] = set()

    def loaded(turn: Any, group: Any) -> None:
        resumed.add(group.group_id)
        wait(turn, group)

    def planted(turn: Any, group: Any, state: Any, why: str, **fields: Any) -> None:
        if state is State.COMPLETING and group.group_id in resumed:
            resumed.discard(group.group_id)
            fields["generation"] = max(group.generation, 1)
        real(turn, group, state, why, **fields)

    patch.setattr(classic_kind, "await_join", loaded)
    patch.setattr(rebalance, "go", planted)


def replaces_without_fencing(patch: Patch, sim: Cluster) -> None:
    """The old process of a static member stays a member beside the new one."""
    real, known = Turn.write, ClassicGroup.validate

    def planted(self: Any, record: Any) -> None:
        if not (isinstance(record, Tombstone) and "replaces" in record.why and record.kind.startswith("classic")):
            real(self, record)

    patch.setattr(Turn, "write", planted)
    patch.setattr(ClassicGroup, "validate", lambda self, member_id, instance_id: known(self, member_id, None))


def waits_for_nobody_new(patch: Patch, sim: Cluster) -> None:
    """The join phase ends without those who were given a member id and are about to come back with it."""
    patch.setattr(rebalance, "all_joined", lambda group, soft: len(group.members) == len(soft.joins))


def waits_for_nobody(patch: Patch, sim: Cluster) -> None:
    """The join phase ends with the first member that joins."""
    patch.setattr(rebalance, "all_joined", lambda group, soft: bool(soft.joins))


def answers_with_the_last_assignment(patch: Patch, sim: Cluster) -> None:
    """A SyncGroup is answered from what was assigned in the generation before."""
    real: Any = sync.sync

    def planted(turn: Any, e: Any, token: int) -> None:
        group = turn.groups.get(e.group_id)
        if isinstance(group, ClassicGroup) and group.state is State.COMPLETING and group.leader != e.member_id:
            known = group.members.get(e.member_id)
            if known is not None and e.generation == group.generation and e.member_id in group.assignments:
                turn.reply(token, rebalance.synced(group, e.member_id))
                return
        real(turn, e, token)

    patch.setitem(REGISTRY.events[SyncGroup], CLASSIC, planted)


def takes_any_generation(patch: Patch, sim: Cluster) -> None:
    real: Any = sync.heartbeat

    def planted(turn: Any, e: Any, token: int) -> None:
        group = turn.groups.get(e.group_id)
        if isinstance(group, ClassicGroup):
            e = msgspec.structs.replace(e, generation=group.generation)
        real(turn, e, token)

    patch.setitem(REGISTRY.events[ClassicHeartbeat], CLASSIC, planted)


def takes_any_commit(patch: Patch, sim: Cluster) -> None:
    patch.setattr(offsets, "_commit", lambda group, c: Code.NONE)


def waits_for_a_leader_for_ever(patch: Patch, sim: Cluster) -> None:
    """Never looks whether the leader assigns."""
    patch.setitem(REGISTRY.kinds["classic"].timers, "classic_sync", lambda *args: None)


def waits_for_the_late_for_ever(patch: Patch, sim: Cluster) -> None:
    """The join phase has no end of its own."""
    patch.setitem(REGISTRY.kinds["classic"].timers, "classic_join", lambda *args: None)


def loses_the_handed_over_assignment(patch: Patch, sim: Cluster) -> None:
    """A static member that comes back is not given what its old process had, in the log."""
    real = Turn.write

    def planted(self: Any, record: Any) -> None:
        real(self, record)
        if isinstance(record, AssignmentRecord) and "replaces" in record.why:
            self.fx.records.pop()

    patch.setattr(Turn, "write", planted)


# ---- mixed groups ---------------------------------------------------------------------------------------------
def upgrades_without_assignments(patch: Patch, sim: Cluster) -> None:
    patch.setattr(upgrade, "_given", lambda *args: {})


def upgrades_below_the_generation(patch: Patch, sim: Cluster) -> None:
    """The epoch of an upgraded group begins anew."""
    real: Any = upgrade.as_consumer_group

    def planted(group: Any, *args: Any) -> Any:
        return real(replace(group, generation=min(group.generation, 1)), *args)

    patch.setattr(upgrade, "as_consumer_group", planted)


def downgrades_to_a_stale_target(patch: Patch, sim: Cluster) -> None:
    """The group does not rebalance, though its target is of an older epoch, and has members that have left."""
    real: Any = downgrade.downgrade

    def planted(turn: Any, group: Any, leaving: Any, rebalance: bool, why: str) -> None:
        real(turn, group, leaving, False, why)

    for module in (mixed_join, mixed_leave):
        patch.setattr(module, "downgrade", planted)


def leaves_records_of_a_downgraded_group(patch: Patch, sim: Cluster) -> None:
    """As it was: those of its members stayed in the log, and the next owner could not read the group."""
    real: Any = ConsumerGroup.tombstones

    def planted(self: Any, why: str) -> Any:
        return [t for t in real(self, why) if t.kind not in (Kind.MEMBER, Kind.CURRENT, Kind.STATIC_MEMBER)]

    patch.setattr(ConsumerGroup, "tombstones", planted)


def arms_no_sessions_of_a_changed_group(patch: Patch, sim: Cluster) -> None:
    patch.setattr(downgrade, "arm_classic_session", lambda *args: None)
    patch.setattr(upgrade, "arm_session", lambda *args: None)


def forgets_who_joins_an_upgraded_group(patch: Patch, sim: Cluster) -> None:
    """A JoinGroup that waits when the group is upgraded is never answered."""

    def answer_waiting(turn: Any, group: Any) -> None:
        soft = turn.soft_of(group.group_id)
        soft.joins, soft.syncs = {}, {}
        CLASSIC_KIND.answer_waiting(turn, group)

    patch.setattr(upgrade, "CLASSIC", replace(CLASSIC_KIND, answer_waiting=answer_waiting))


def believes_that_classic_members_own_nothing(patch: Patch, sim: Cluster) -> None:
    """Ignores the partitions that a cooperative member says that it owns: it is taken to have given them up."""
    for module in (mixed_join, mixed_waiting):
        patch.setattr(module, "by_id", lambda owned, image: {})


def syncs_the_target(patch: Patch, sim: Cluster) -> None:
    """A member of the classic protocol in a consumer group is assigned all that it will have, while others still have
    some of it."""
    real: Any = mixed_sync._named

    def planted(member: Any, image: Any) -> Any:
        group = groups[member.member_id]
        target = {t: dict.fromkeys(ps, 0) for t, ps in group.target.of(member.member_id).items()}
        return real(replace(member, assigned=target), image)

    groups: dict[str, Any] = {}
    caller: Any = mixed_sync._caller

    def noting(group: Any, e: Any) -> Any:
        member = caller(group, e)
        groups[member.member_id] = group
        return member

    patch.setattr(mixed_sync, "_caller", noting)
    patch.setattr(mixed_sync, "_named", planted)


PLANTED_CLASSIC: dict[Bug, str] = {
    assigns_before_the_commit: "before its records",
    tells_everybody_the_members: "who does not lead",
    gives_a_generation_again: "is given to|is told with|went back",
    replaces_without_fencing: "no session timer|two owners",
    waits_for_nobody_new: "was given its id",
    waits_for_nobody: "not settled|was given its id",
    answers_with_the_last_assignment: "before its records|does not assign|two owners",
    takes_any_generation: "all is well in",
    takes_any_commit: "all is well",
    waits_for_a_leader_for_ever: "waits for its answer|not settled",
    waits_for_the_late_for_ever: "waits for its answer|not settled",
    loses_the_handed_over_assignment: "assignments",
    upgrades_without_assignments: "two owners",
    upgrades_below_the_generation: "went back",
    downgrades_to_a_stale_target: "does not rebalance",
    leaves_records_of_a_downgraded_group: "a turn broke",
    arms_no_sessions_of_a_changed_group: "no session timer",
    forgets_who_joins_an_upgraded_group: "waits for its answer",
    believes_that_classic_members_own_nothing: "two owners",
    syncs_the_target: "two owners|does not have in epoch",
}
"""The text of the violation."""
