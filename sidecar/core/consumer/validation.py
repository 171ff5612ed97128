"""Checks of a ConsumerGroupHeartbeat before and against the group, and of its member epoch.

Source: KIP-848 'ConsumerGroupHeartbeat API'; Kafka's GroupCoordinatorService and GroupMetadataManager.
"""

from __future__ import annotations

from sidecar.core.consumer.config import CONSUMER, ConsumerConfig
from sidecar.core.consumer.events import ConsumerHeartbeat
from sidecar.core.consumer.group import ConsumerGroup, Member
from sidecar.core.modern.group import LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from sidecar.core.modern.validation import blank, check_epoch, invalid
from sidecar.core.runtime.records import Epochs, Partitions
from sidecar.core.vocabulary.errors import Code, CoordinatorError
from sidecar.core.vocabulary.topic_regex import validate


def check_request(hb: ConsumerHeartbeat, config: ConsumerConfig) -> None:
    if not hb.member_id and (hb.version >= 1 or hb.member_epoch > 0 or hb.member_epoch == LEAVE_EPOCH):
        raise invalid("MemberId can't be empty.")
    if blank(hb.group_id):
        raise invalid("GroupId can't be empty.")
    if hb.instance_id is not None and blank(hb.instance_id):
        raise invalid("InstanceId can't be empty.")
    if hb.rack_id is not None and blank(hb.rack_id):
        raise invalid("RackId can't be empty.")
    if hb.member_epoch == 0:
        if hb.rebalance_timeout_ms == -1:
            raise invalid("RebalanceTimeoutMs must be provided in first request.")
        if hb.owned is None or hb.owned:
            raise invalid("TopicPartitions must be empty when (re-)joining.")
        if hb.topic_names is None and hb.topic_regex is None:
            raise invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
    elif hb.member_epoch == STATIC_LEAVE_EPOCH:
        if hb.instance_id is None:
            raise invalid("InstanceId can't be null.")
    elif hb.member_epoch < STATIC_LEAVE_EPOCH:
        raise invalid("MemberEpoch is invalid.")
    if hb.server_assignor is not None and hb.server_assignor not in config.assignors:
        raise CoordinatorError(
            Code.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {hb.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(config.assignors)}.",
        )


def check_regex(group: ConsumerGroup, member: Member, regex: str | None, config: ConsumerConfig) -> None:
    """Checks a regular expression that no member of the group has yet, and the number of the group's expressions."""
    if not regex or regex == member.topic_regex or group.regex_users(regex):
        return
    others = group.subscriptions.regex_count() - (group.regex_users(member.topic_regex or "") == 1)
    if others >= config.regexes_max:
        raise CoordinatorError(
            Code.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum of {config.regexes_max} different regular expressions.",
            "expressions",
        )
    validate(regex)


def check_member_epoch(member: Member, received: int, owned: Partitions | None) -> None:
    """Accepts the previous epoch, too, if the member still owns everything that it reports: a reply was lost."""
    if received != member.member_epoch:
        check_epoch(CONSUMER, member, received, owned is not None and _subset(owned, member.assigned))


def _subset(owned: Partitions, assigned: Epochs) -> bool:
    return all(topic in assigned and assigned[topic].keys() >= {*partitions} for topic, partitions in owned.items())
