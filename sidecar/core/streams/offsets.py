"""Checks whether a member may commit offsets. The offsets themselves stay in the broker's __consumer_offsets.

Source: Kafka's StreamsGroup.validateOffsetCommit, KIP-1251: an older epoch may commit for the tasks that the member has
had since then.
"""

from __future__ import annotations

from sidecar.core.modern.offsets import OK, needs_no_member, stale_code
from sidecar.core.runtime.offset_checks import CheckReply, CommitCheck, Place
from sidecar.core.runtime.turn import Turn
from sidecar.core.streams.config import config_of
from sidecar.core.streams.group import Member, StreamsGroup
from sidecar.core.vocabulary.errors import Code
from sidecar.core.vocabulary.topics import TopicImage


def check_commit(turn: Turn, c: CommitCheck, token: int) -> None:
    turn.reply(token, _commit(turn, turn.groups[c.group_id], c))


def _commit(turn: Turn, group: StreamsGroup, c: CommitCheck) -> CheckReply:
    if needs_no_member(group, c):
        return OK
    member = group.members.get(c.member_id)
    if member is None:
        return CheckReply(Code.UNKNOWN_MEMBER_ID)
    if not c.transactional and c.version < 9:
        return CheckReply(Code.UNSUPPORTED_VERSION)
    stale = stale_code(c)
    if c.member_epoch > member.member_epoch:
        return CheckReply(stale)
    if c.member_epoch < member.member_epoch:
        allowed = all(_may_commit(turn.image, group, member, c.member_epoch, place) for place in c.partitions)
        return OK if allowed else CheckReply(stale)
    if not config_of(turn, c.group_id).refuse_commits_of_others:
        return OK
    # The present epoch alone is no proof: the member may have lost the task and joined again since it read.
    return (
        CheckReply(stale) if any(_has_other_owner(turn.image, group, member, place) for place in c.partitions) else OK
    )


def _subtopology(image: TopicImage, group: StreamsGroup, place: Place) -> str | None:
    name, topic_id, _ = place
    topic = None if name else image.by_id.get(topic_id)
    return group.subtopology_of_topic.get(topic.name if topic is not None else name)


def _may_commit(image: TopicImage, group: StreamsGroup, member: Member, epoch: int, place: Place) -> bool:
    subtopology = _subtopology(image, group, place)
    since = None if subtopology is None else member.active_epoch(subtopology, place[2])
    return since is not None and epoch >= since


def _has_other_owner(image: TopicImage, group: StreamsGroup, member: Member, place: Place) -> bool:
    subtopology = _subtopology(image, group, place)
    holder = None if subtopology is None else group.holders.active_member(subtopology, place[2])
    return holder not in (None, member.member_id)
