"""The coordinators of groups at one broker: a shard for each partition of `__consumer_offsets` that it leads."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from tests.whole.broker.codes import Err, Refused
from tests.whole.broker.group import java_hash
from tests.whole.broker.image import Image
from tests.whole.broker.offsets import GroupShard

if TYPE_CHECKING:
    from tests.whole.broker.node import Node

OFFSETS = "__consumer_offsets"


@lru_cache(maxsize=4096)
def partition_for(key: str, partitions: int) -> int:
    """Utils.abs of Java's hash."""
    h = java_hash(key)
    return (0 if h == 0x80000000 else h if h < 0x80000000 else 0x100000000 - h) % partitions


class GroupCoordinator:
    def __init__(self, node: Node) -> None:
        self.node = node
        self.shards: dict[int, GroupShard] = {}

    def partition(self, group_id: str) -> int:
        return partition_for(group_id, self.node.settings.number("offsets.topic.num.partitions"))

    def shard(self, group_id: str) -> GroupShard:
        """Raises Refused if this broker does not coordinate the group, or not yet."""
        found = self.shards.get(self.partition(group_id))
        if found is None:
            raise Refused(Err.NOT_COORDINATOR)
        found.check()
        return found

    def image_changed(self, was: Image) -> None:
        """Take over what this broker leads now, give up what others lead."""
        known = self.node.image.topics.get(OFFSETS)
        count = len(known.partitions) if known is not None else 0
        for index in range(max([count, *(i + 1 for i in self.shards)], default=0)):
            replica = self.node.replica(OFFSETS, index)
            shard = self.shards.get(index)
            if shard is not None and (replica is None or replica.state.leader_epoch != shard.epoch):
                shard.resigned()
                shard.close()
                del self.shards[index]
                shard = None
            if replica is not None and shard is None:
                shard = self.shards[index] = GroupShard(self.node, replica)
                shard.open(shard.begin)
        gone = {
            t.name: t.topic_id
            for t in was.topics.values()
            if t.name not in self.node.image.topics or self.node.image.topics[t.name].topic_id != t.topic_id
        }
        if gone:
            for shard in list(self.shards.values()):
                if shard.active:
                    shard.topics_deleted(gone)
