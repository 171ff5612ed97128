"""May this member commit or fetch offsets? The offsets themselves stay in the broker's __consumer_offsets.

Source: Kafka's StreamsGroup.validateOffsetCommit and validateOffsetFetch, KIP-1251: an older epoch may commit for the
tasks that the member has had since then.
"""

from __future__ import annotations

from sidecar.core.runtime.offset_checks import TXN_OF_CONSUMERS, CheckReply, CommitCheck, FetchCheck, Place
from sidecar.core.runtime.turn import Turn
from sidecar.core.streams.config import config_of
from sidecar.core.streams.group import Member, StreamsGroup
from sidecar.core.vocabulary.errors import Code
from sidecar.core.vocabulary.topics import TopicImage

OK = CheckReply()


def check_commit(turn: Turn, c: CommitCheck, token: int) -> None:
    turn.reply(token, _commit(turn, turn.groups[c.group_id], c))


def _commit(turn: Turn, group: StreamsGroup, c: CommitCheck) -> CheckReply:
    if c.member_epoch < 0 and not group.members:
        return OK
    if c.transactional and c.member_epoch == -1 and not c.member_id and c.instance_id is None:
        return OK
    member = group.members.get(c.member_id)
    if member is None:
        return CheckReply(Code.UNKNOWN_MEMBER_ID)
    if not c.transactional and c.version < 9:
        return CheckReply(Code.UNSUPPORTED_VERSION)
    stale = Code.ILLEGAL_GENERATION if c.transactional and c.version < TXN_OF_CONSUMERS else Code.STALE_MEMBER_EPOCH
    if c.member_epoch > member.member_epoch:
        return CheckReply(stale)
    if c.member_epoch < member.member_epoch:
        may = all(_may_commit(turn.image, group, member, c.member_epoch, place) for place in c.partitions)
        return OK if may else CheckReply(stale)
    if not config_of(turn, c.group_id).refuse_commits_of_others:
        return OK
    # The present epoch alone does not do: the member may have lost the task and joined again since it read.
    refused = frozenset(p for p in c.partitions if _of_another(turn.image, group, member, p))
    return CheckReply(partition_code=stale, partitions=refused) if refused else OK


def _subtopology(image: TopicImage, group: StreamsGroup, place: Place) -> str | None:
    name, topic_id, _ = place
    topic = None if name else image.by_id.get(topic_id)
    return group.subtopology_of_topic.get(topic.name if topic is not None else name)


def _may_commit(image: TopicImage, group: StreamsGroup, member: Member, epoch: int, place: Place) -> bool:
    subtopology = _subtopology(image, group, place)
    since = None if subtopology is None else member.active_epoch(subtopology, place[2])
    return since is not None and epoch >= since


def _of_another(image: TopicImage, group: StreamsGroup, member: Member, place: Place) -> bool:
    subtopology = _subtopology(image, group, place)
    holder = None if subtopology is None else group.holders.active_member(subtopology, place[2])
    return holder not in (None, member.member_id)


def check_fetch(turn: Turn, f: FetchCheck, token: int) -> None:
    turn.reply(token, _fetch(turn.groups[f.group_id], f))


def _fetch(group: StreamsGroup, f: FetchCheck) -> CheckReply:
    if f.member_id is None and f.member_epoch < 0:
        return OK
    member = group.members.get(f.member_id or "")
    if member is None:
        return CheckReply(Code.UNKNOWN_MEMBER_ID)
    return OK if f.member_epoch == member.member_epoch else CheckReply(Code.STALE_MEMBER_EPOCH)
