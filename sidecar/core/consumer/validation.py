"""What a ConsumerGroupHeartbeat must be before the group is looked at, and which epochs are accepted.

Source: KIP-848 'ConsumerGroupHeartbeat API'; Kafka's GroupCoordinatorService and GroupMetadataManager.
"""

from __future__ import annotations

from sidecar.core.consumer.config import ConsumerConfig
from sidecar.core.consumer.events import ConsumerHeartbeat
from sidecar.core.consumer.group import LEAVE_EPOCH, STATIC_LEAVE_EPOCH, ConsumerGroup, Member
from sidecar.core.runtime.records import Epochs, Partitions
from sidecar.core.vocabulary.errors import Code, CoordinatorError
from sidecar.core.vocabulary.topic_regex import validate


def _invalid(message: str) -> CoordinatorError:
    return CoordinatorError(Code.INVALID_REQUEST, message)


def check_request(hb: ConsumerHeartbeat, config: ConsumerConfig) -> None:
    if not hb.member_id and (hb.version >= 1 or hb.member_epoch > 0 or hb.member_epoch == LEAVE_EPOCH):
        raise _invalid("MemberId can't be empty.")
    if not hb.group_id.strip():
        raise _invalid("GroupId can't be empty.")
    if hb.instance_id is not None and not hb.instance_id.strip():
        raise _invalid("InstanceId can't be empty.")
    if hb.rack_id is not None and not hb.rack_id.strip():
        raise _invalid("RackId can't be empty.")
    if hb.member_epoch == 0:
        if hb.rebalance_timeout_ms == -1:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        if hb.owned is None or hb.owned:
            raise _invalid("TopicPartitions must be empty when (re-)joining.")
        if hb.topic_names is None and hb.topic_regex is None:
            raise _invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
    elif hb.member_epoch == STATIC_LEAVE_EPOCH:
        if hb.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    elif hb.member_epoch < STATIC_LEAVE_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    if hb.server_assignor is not None and hb.server_assignor not in config.assignors:
        raise CoordinatorError(
            Code.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {hb.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(config.assignors)}.",
        )


def check_size(group: ConsumerGroup, member_id: str, instance_id: str | None, config: ConsumerConfig) -> None:
    """A static member that comes back takes the place that it has already."""
    if instance_id in group.static_members or member_id in group.members:
        return
    if len(group.members) >= config.max_size:
        raise CoordinatorError(
            Code.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {config.max_size} members.",
        )


def check_regex(group: ConsumerGroup, member: Member, regex: str | None, config: ConsumerConfig) -> None:
    """Of a regular expression that no member of the group has yet, and how many of them there may be."""
    if not regex or regex == member.topic_regex or group.regex_users(regex):
        return
    others = group.subscriptions.regex_count() - (group.regex_users(member.topic_regex or "") == 1)
    if others >= config.regexes_max:
        raise CoordinatorError(
            Code.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum of {config.regexes_max} different regular expressions.",
        )
    validate(regex)


def check_epoch(member: Member, received: int, owned: Partitions | None) -> None:
    """One older epoch is accepted: the previous one, if what the member reports is still its own (a lost reply)."""
    if received in (0, member.member_epoch):
        return
    if received > member.member_epoch:
        size = "greater"
    elif received != member.previous_epoch or not _subset(owned, member.assigned):
        size = "smaller"
    else:
        return
    raise CoordinatorError(
        Code.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {size} member epoch ({received}) than the one known by the group "
        f"coordinator ({member.member_epoch}). The member must abandon all its partitions and rejoin.",
    )


def _subset(owned: Partitions | None, assigned: Epochs) -> bool:
    if owned is None:
        return False
    return all(p in assigned.get(topic, {}) for topic, partitions in owned.items() for p in partitions)


def unknown_member(member_id: str, group_id: str) -> CoordinatorError:
    return CoordinatorError(Code.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group_id}.")


def held_by_instance(group: ConsumerGroup, instance_id: str, member_id: str) -> Member:
    """The static member of that instance id, if this member id holds it."""
    member = group.static_member(instance_id)
    if member is None:
        raise CoordinatorError(Code.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise CoordinatorError(
            Code.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
        )
    return member
