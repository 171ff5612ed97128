"""Adoption of a streams group: it comes whole, as the broker described it. Its members go on with their epochs and
tasks. The release is modern/release.py.

StreamsGroupDescribe returns no copartition groups. The topology is partial until a member joins and brings it whole;
one member has to rejoin as soon as the whole topology is needed (step.py).
"""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from sidecar.core.modern.release import GroupRelease
from sidecar.core.modern.sessions import arm_session
from sidecar.core.runtime.events import Answer, Event
from sidecar.core.runtime.turn import Turn
from sidecar.core.streams.config import STREAMS, config_of
from sidecar.core.streams.configure import configured_now
from sidecar.core.streams.group import NOT_VALIDATED, Member, StreamsGroup
from sidecar.core.streams.members import current_record, member_record, remove_members
from sidecar.core.streams.records import Endpoint, GroupRecord, TargetMemberRecord, TargetMetadataRecord, TopologyRecord
from sidecar.core.streams.tasks import AssignedTasks, Tasks
from sidecar.core.streams.topology import Topology
from sidecar.core.vocabulary.errors import Code, CoordinatorError


class NativeStreamsMember(Struct, gc=False):
    """A member in the broker's StreamsGroupDescribe response. Its tasks count as its target."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topology_epoch: int
    process_id: str
    endpoint: Endpoint | None
    client_tags: tuple[tuple[str, str], ...]
    tasks: Tasks


class AdoptStreams(Event):
    """Takes in this group of the broker, which is stable or not ready."""

    inner: ClassVar[bool] = True

    epoch: int
    assignment_epoch: int
    assignor: str
    topology: Topology
    members: tuple[NativeStreamsMember, ...]
    rebalance_timeout_ms: int
    why: str


RELEASE = GroupRelease(STREAMS, remove_members)


def adopt(turn: Turn, e: AdoptStreams, token: int) -> None:
    if e.group_id in turn.groups:
        raise CoordinatorError(Code.NON_EMPTY_GROUP, f"Group {e.group_id} is here already.")
    g, why = e.group_id, e.why
    members = [_adopted(m, e.rebalance_timeout_ms) for m in e.members]
    for m in members:
        turn.write(member_record(g, m, why))
    turn.write(TopologyRecord(g, e.topology, partial=True, why=why))
    for m in members:
        turn.write(TargetMemberRecord(g, m.member_id, m.assigned.without_epochs(), why))
        turn.write(current_record(g, m, why))
    turn.write(TargetMetadataRecord(g, e.assignment_epoch, 0, e.assignor, why))
    turn.write(_group_record(turn, e))
    for m in members:
        arm_session(turn, g, m.member_id, config_of(turn, g).session_timeout_ms)
    turn.fx.log("group taken over from the broker", group_id=g, kind=STREAMS, members=len(members), epoch=e.epoch)
    turn.reply(token, Answer())


def _adopted(m: NativeStreamsMember, rebalance_timeout_ms: int) -> Member:
    """Returns the member. Its active tasks count as assigned at its epoch: the description has no epochs of tasks."""
    epochs = {s: dict.fromkeys(ps, m.member_epoch) for s, ps in m.tasks.active.items()}
    return Member(
        m.member_id,
        m.instance_id,
        m.rack_id,
        m.client_id,
        m.client_host,
        rebalance_timeout_ms,
        m.topology_epoch,
        m.process_id,
        m.endpoint,
        dict(m.client_tags),
        m.member_epoch,
        m.member_epoch,
        assigned=AssignedTasks(epochs, m.tasks.standby, m.tasks.warmup),
    )


def _group_record(turn: Turn, e: AdoptStreams) -> GroupRecord:
    """Returns the group's record with the hash and settings of the present topics and settings, so that no task
    moves."""
    group: StreamsGroup = turn.groups[e.group_id]
    validated = e.topology.epoch if configured_now(turn, group).ready else NOT_VALIDATED
    return group.record(
        e.why,
        epoch=e.epoch,
        metadata_hash=group.hash_over(turn.image),
        validated_topology_epoch=validated,
        assignment_configs=config_of(turn, e.group_id).assignment_configs(),
    )
