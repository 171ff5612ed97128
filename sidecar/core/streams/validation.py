"""Checks of a StreamsGroupHeartbeat before and against the group, of its member, and of its epoch.

Source: KIP-1071; Kafka's KafkaApis, GroupCoordinatorService and GroupMetadataManager, in their order and with their
messages. The functions stand in the order in which they are called.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sidecar.core.modern import validation as modern
from sidecar.core.modern.group import STATIC_LEAVE_EPOCH
from sidecar.core.streams.config import STREAMS
from sidecar.core.streams.events import JOIN_EPOCH, StreamsHeartbeat
from sidecar.core.streams.tasks import TaskIds, contained
from sidecar.core.streams.topology import Topology, check_topology, invalid
from sidecar.core.vocabulary.errors import Code, CoordinatorError
from sidecar.core.vocabulary.internal_topics import INTERNAL_TOPICS, TOPIC_NAME

if TYPE_CHECKING:
    from sidecar.core.streams.group import Member, StreamsGroup
    from sidecar.core.streams.partitions import ConfiguredTopology

NO_TIMEOUT = -1


def check_topic_names(topology: Topology) -> None:
    """Checks the topics' names. The broker does so before it checks the rights on the topics."""
    topics = topology.all_topics()
    if internal := [t for t in topics if t in INTERNAL_TOPICS]:
        raise invalid(f"Use of Kafka internal topics {','.join(internal)} in a Kafka Streams topology is prohibited.")
    if malformed := [t for t in topics if not TOPIC_NAME.match(t)]:
        raise invalid(f"Topic names {','.join(malformed)} are not valid topic names.")


def check_request(hb: StreamsHeartbeat) -> None:
    if hb.topology is not None and any(s.source_topic_regex for s in hb.topology.subtopologies):
        raise modern.invalid("Regular expressions for source topics are not supported yet.")
    for name, text in (
        ("MemberId", hb.member_id),
        ("GroupId", hb.group_id),
        ("InstanceId", hb.instance_id),
        ("RackId", hb.rack_id),
    ):
        if text is not None and modern.blank(text):
            raise modern.invalid(f"{name} can't be empty.")
    if hb.member_epoch == JOIN_EPOCH:
        _check_join(hb)
    elif hb.member_epoch == STATIC_LEAVE_EPOCH:
        if hb.instance_id is None:
            raise modern.invalid("InstanceId can't be null.")
    elif hb.member_epoch < STATIC_LEAVE_EPOCH:
        raise modern.invalid(f"MemberEpoch is {hb.member_epoch}, but must be greater than or equal to -2.")
    given = [tasks is not None for tasks in (hb.active_tasks, hb.standby_tasks, hb.warmup_tasks)]
    if any(given) and not all(given):
        raise modern.invalid("If one task-type is non-null, all must be non-null.")
    if hb.topology is not None:
        if hb.member_epoch != JOIN_EPOCH:
            raise modern.invalid("Topology can only be provided when (re-)joining.")
        check_topology(hb.topology)


def _check_join(hb: StreamsHeartbeat) -> None:
    if hb.rebalance_timeout_ms == NO_TIMEOUT:
        raise modern.invalid("RebalanceTimeoutMs must be provided in first request.")
    for name, tasks in (
        ("ActiveTasks", hb.active_tasks),
        ("StandbyTasks", hb.standby_tasks),
        ("WarmupTasks", hb.warmup_tasks),
    ):
        if tasks is None or tasks:
            raise modern.invalid(f"{name} must be empty when (re-)joining.")
    if hb.topology is None:
        raise modern.invalid("Topology must be non-null when (re-)joining.")
    for subtopology in hb.topology.subtopologies:
        for topic in subtopology.changelog_topics:
            if topic.partitions != 0:
                raise invalid(
                    f"Changelog topic {topic.name} must have an undefined partition count, but it is set to "
                    f"{topic.partitions}."
                )


def existing(group: StreamsGroup | None, group_id: str) -> StreamsGroup:
    """Returns the group of a member that leaves. Raises GROUP_ID_NOT_FOUND if there is none."""
    if group is None:
        raise CoordinatorError(Code.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
    return group


def existing_member(group: StreamsGroup, hb: StreamsHeartbeat) -> Member:
    """Returns the member that sends this heartbeat, which does not join."""
    if hb.instance_id is not None:
        return modern.held_by_instance(group, hb.instance_id, hb.member_id)
    member = group.members.get(hb.member_id)
    if member is None:
        raise modern.unknown_member(hb.member_id, group.group_id)
    return member


def check_released(member: Member, member_id: str, instance_id: str) -> None:
    """Refuses a joining member whose instance id has another holder, unless the holder has left for a while."""
    if member.member_epoch != STATIC_LEAVE_EPOCH:
        raise CoordinatorError(
            Code.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance id "
            f"is owned by {member.member_id} member.",
        )


def check_epoch(member: Member, hb: StreamsHeartbeat) -> None:
    """Accepts the previous epoch, too, if the member still owns everything that it reports: a reply was lost."""
    lists = [tasks for tasks in (hb.active_tasks, hb.standby_tasks, hb.warmup_tasks) if tasks is not None]
    reply_lost = len(lists) == 3 and contained(lists, member.assigned)
    modern.check_epoch(STREAMS, member, hb.member_epoch, reply_lost)


def must_rejoin(member: Member, why: str) -> CoordinatorError:
    """Returns the only error after which a client sends its topology again."""
    return CoordinatorError(
        Code.FENCED_MEMBER_EPOCH,
        f"The streams group member {member.member_id} must abandon all its partitions and rejoin: {why}.",
    )


def check_tasks(topology: ConfiguredTopology, hb: StreamsHeartbeat) -> None:
    """Checks that the topology, which is ready, has the tasks of the heartbeat."""
    for tasks in (hb.active_tasks, hb.standby_tasks, hb.warmup_tasks):
        _check_task_ids(topology, tasks or ())


def check_offsets(hb: StreamsHeartbeat) -> None:
    """Checks that each task has one offset."""
    for offsets in (hb.task_offsets, hb.task_end_offsets):
        seen = set()
        for s, p, _ in offsets or ():
            if (s, p) in seen:
                raise modern.invalid(f"Task offsets contain a duplicate entry for subtopology {s} and partition {p}.")
            seen.add((s, p))


def _check_task_ids(topology: ConfiguredTopology, tasks: Iterable[TaskIds]) -> None:
    for subtopology_id, partitions in tasks:
        subtopology = topology.subtopologies.get(subtopology_id)
        if subtopology is None:
            raise modern.invalid(f"Subtopology {subtopology_id} does not exist in the topology.")
        for p in partitions:
            if not 0 <= p < subtopology.tasks:
                raise modern.invalid(
                    f"Task {p} for subtopology {subtopology_id} is invalid. "
                    f"Number of tasks for this subtopology: {subtopology.tasks}"
                )
