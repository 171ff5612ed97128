"""Checks whether a group may change its protocol, and which members of the classic protocol a consumer group admits.

Source: Kafka's GroupMetadataManager (validateOnlineUpgrade, validateOnlineDowngrade..., throwIfClassic...).
"""

from __future__ import annotations

from collections.abc import Collection

from sidecar.core.classic.config import config_of as classic_config
from sidecar.core.classic.embedded import CONSUMER_TYPE
from sidecar.core.classic.events import JoinGroup
from sidecar.core.classic.group import ClassicGroup
from sidecar.core.consumer.config import config_of
from sidecar.core.consumer.group import ConsumerGroup, Member
from sidecar.core.modern.validation import check_size
from sidecar.core.runtime.turn import Turn
from sidecar.core.vocabulary.errors import Code, CoordinatorError

UPGRADES, DOWNGRADES = ("upgrade", "bidirectional"), ("downgrade", "bidirectional")
"""Values of group.consumer.migration.policy that allow each change."""


def check_upgrade(turn: Turn, group: ClassicGroup) -> None:
    """Raises GROUP_ID_NOT_FOUND, which is final for clients, if the group must not be upgraded."""
    config = config_of(turn, group.group_id)
    if config.migration_policy not in UPGRADES:
        raise no_upgrade(group.group_id, "online upgrade is disabled")
    if group.type != CONSUMER_TYPE:
        raise no_upgrade(group.group_id, "the group does not use the consumer embedded protocol")
    if len(group.members) > config.max_size:
        raise no_upgrade(group.group_id, "the group size exceeds the consumer group maximum size")


def no_upgrade(group_id: str, why: str) -> CoordinatorError:
    text = f"Cannot upgrade classic group {group_id} to consumer group because {why}."
    return CoordinatorError(Code.GROUP_ID_NOT_FOUND, text)


def downgrades(turn: Turn, group: ConsumerGroup, leaving: Collection[Member], joining: int = 0) -> bool:
    """Whether the group becomes a classic one when these members leave, and `joining` members of the classic protocol
    join."""
    staying = len(group.members) - len(leaving) + joining
    classic = group.classic_members - sum(m.classic is not None for m in leaving) + joining
    if not staying or classic != staying:
        return False
    if config_of(turn, group.group_id).migration_policy not in DOWNGRADES:
        return False
    return staying <= classic_config(turn, group.group_id).max_size


def check_admission(turn: Turn, group: ConsumerGroup, member_id: str, e: JoinGroup) -> None:
    """Checks whether a member with these classic protocols may join this consumer group. Raises
    INCONSISTENT_GROUP_PROTOCOL or GROUP_MAX_SIZE_REACHED."""
    config = config_of(turn, group.group_id)
    if config.migration_policy == "disabled":
        raise _inconsistent(f"The group migration of consumer group {group.group_id} is disabled.")
    check_size(group, member_id, e.instance_id, config.max_size)
    known = group.classic_protocols
    if e.protocol_type != CONSUMER_TYPE or not any(known[name] == group.classic_members for name, _ in e.protocols):
        raise _inconsistent("The member's protocols are not supported.")


def _inconsistent(text: str) -> CoordinatorError:
    return CoordinatorError(Code.INCONSISTENT_GROUP_PROTOCOL, text)


def classic_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> Member:
    """Returns the member of the classic protocol, if the caller is it. Raises UNKNOWN_MEMBER_ID or
    FENCED_INSTANCE_ID."""
    if instance_id is None:
        member = group.members.get(member_id)
    else:
        member = group.static_member(instance_id)
        if member is not None and member.member_id != member_id:
            raise CoordinatorError(Code.FENCED_INSTANCE_ID, f"Instance id {instance_id} is held by {member.member_id}.")
    if member is None or member.classic is None:
        raise CoordinatorError(Code.UNKNOWN_MEMBER_ID, f"No member {member_id} speaks the classic protocol.")
    return member
