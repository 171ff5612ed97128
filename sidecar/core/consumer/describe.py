"""ConsumerGroupDescribe (api 69, KIP-848): a group as its members and operators see it."""

from __future__ import annotations

from sidecar.core.consumer.config import config_of
from sidecar.core.consumer.events import DescribeConsumerGroup, DescribedMember, DescribeReply
from sidecar.core.consumer.group import ConsumerGroup, Member, consumer_group
from sidecar.core.consumer.target_assignment import preferred_assignor
from sidecar.core.modern.describe import named
from sidecar.core.runtime.turn import Turn
from sidecar.core.vocabulary.errors import Code, CoordinatorError
from sidecar.core.vocabulary.topics import TopicImage


def describe(turn: Turn, event: DescribeConsumerGroup, token: int) -> None:
    group = consumer_group(turn.groups, event.group_id)
    if group is None:
        raise CoordinatorError(Code.GROUP_ID_NOT_FOUND, f"Group {event.group_id} not found.")
    turn.reply(
        token,
        DescribeReply(
            state=group.state_name(),
            epoch=group.epoch,
            assignment_epoch=group.assignment_epoch,
            assignor=preferred_assignor(group, config_of(turn, group.group_id)),
            members=tuple(_member(m, group, turn.image) for m in group.members.values()),
        ),
    )


def _member(m: Member, group: ConsumerGroup, image: TopicImage) -> DescribedMember:
    return DescribedMember(
        m.member_id,
        m.instance_id,
        m.rack_id,
        m.member_epoch,
        m.client_id,
        m.client_host,
        m.topic_names,
        m.topic_regex,
        named(m.held_partitions(), image),
        named(group.target.of(m.member_id), image),
        m.classic is not None,
    )
