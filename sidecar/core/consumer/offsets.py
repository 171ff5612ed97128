"""Checks whether a member may commit offsets. The offsets themselves stay in the broker's __consumer_offsets.

Source: KIP-848 'OffsetCommit API', KIP-1251 (an older epoch may commit for partitions that the member still owns),
Kafka's ConsumerGroup.validateOffsetCommit and OffsetMetadataManager.
"""

from __future__ import annotations

from sidecar.core.consumer.config import config_of
from sidecar.core.consumer.group import ConsumerGroup, Member
from sidecar.core.modern.offsets import OK, needs_no_member, stale_code
from sidecar.core.runtime.offset_checks import CheckReply, CommitCheck, Place
from sidecar.core.runtime.turn import Turn
from sidecar.core.vocabulary.errors import Code
from sidecar.core.vocabulary.topics import TopicImage

ZERO_ID = b"\0" * 16


def check_commit(turn: Turn, c: CommitCheck, token: int) -> None:
    turn.reply(token, _commit(turn, turn.groups[c.group_id], c))


def _commit(turn: Turn, group: ConsumerGroup, c: CommitCheck) -> CheckReply:
    if needs_no_member(group, c):
        return OK
    member = group.members.get(c.member_id)
    if member is None:
        return CheckReply(Code.UNKNOWN_MEMBER_ID)
    classic = member.classic is not None
    if not c.transactional and not classic and c.version < 9:
        return CheckReply(Code.UNSUPPORTED_VERSION)
    stale = stale_code(c, classic)
    if c.member_epoch > member.member_epoch:
        return CheckReply(stale)
    image = turn.image
    if c.member_epoch < member.member_epoch:
        allowed = all(_may_commit(image, member, c.member_epoch, place) for place in c.partitions)
        return OK if allowed else CheckReply(stale)
    if not config_of(turn, c.group_id).refuse_commits_of_others:
        return OK
    # The present epoch alone is no proof. A Java client joins again in the background after it was removed, and its
    # application then commits offsets from before with the present epoch (docs/reference/differences.md).
    return CheckReply(stale) if any(_has_other_owner(group, image, member, place) for place in c.partitions) else OK


def _topic_id(image: TopicImage, name: str, topic_id: bytes) -> bytes:
    if topic_id != ZERO_ID:
        return topic_id
    topic = image.by_name.get(name)
    return topic.id if topic is not None else ZERO_ID


def _has_other_owner(group: ConsumerGroup, image: TopicImage, member: Member, where: Place) -> bool:
    name, topic_id, partition = where
    owner = group.owners.get(_topic_id(image, name, topic_id), {}).get(partition, member.member_id)
    return owner != member.member_id


def _may_commit(image: TopicImage, member: Member, epoch: int, where: Place) -> bool:
    name, topic_id, partition = where
    topic_id = _topic_id(image, name, topic_id)
    since = member.assigned.get(topic_id, {}).get(partition)
    if since is None:
        since = member.pending.get(topic_id, {}).get(partition)
    return since is not None and epoch >= since
