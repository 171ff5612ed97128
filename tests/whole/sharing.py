"""Invariants of share groups: no member is given what is not initialised at the brokers, nothing that is initialised is
forgotten, and the broker's group has a placeholder member as long as the group here has members, and no longer."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sidecar.core.share.group import ShareGroup
from sidecar.kafka.share_group import is_placeholder
from tests.whole.broker.groups import partition_for
from tests.whole.broker.share import StoredShare
from tests.whole.kafka import Kafka
from tests.whole.share import ShareMember
from tests.whole.stored import OFFSETS
from tests.whole.violation import Violation


class Sharing:
    def __init__(self, kafka: Kafka, partitions: int) -> None:
        self._kafka, self._partitions = kafka, partitions
        self.groups: set[str] = set()
        self._known: dict[str, Mapping[str, frozenset[int]]] = {}
        """Partitions of subscribed topics that may be assigned, by topic, of each group that has members."""

    def holds(self, client: ShareMember) -> None:
        """Checks the partitions of a client that has been given some, or given some up."""
        group_id, ids = client.habits.group_id, client.topic_ids()
        self.groups.add(group_id)
        state = self._kafka.cluster.share_state
        if odd := [(t, p) for t, p in sorted(client.owned) if (group_id, ids[t], p) not in state]:
            raise Violation(f"{client.name} is given {odd} of {group_id}, which have no share state")
        if odd := sorted(set(client.owned) - client.wanted()):
            raise Violation(f"{client.name} is given {odd} of {group_id}, to which it does not subscribe")

    def changed(self, group: ShareGroup) -> None:
        """As the log has it. What could be assigned still can be, as long as somebody subscribes to its topic."""
        self.groups.add(group.group_id)
        before, topics = self._known.get(group.group_id, {}), self._kafka.cluster.controller.image.topics
        subscribed = group.subscribed_topics() if group.members else frozenset[str]()
        now = {t: frozenset(group.initialised.get(topics[t].topic_id, ())) for t in subscribed if t in topics}
        for topic, partitions in before.items():
            if topic in now and (lost := partitions - now[topic]):
                raise Violation(f"{group.group_id} has forgotten that {topic} {sorted(lost)} is initialised")
        self._known[group.group_id] = now

    def forget(self, group_id: str | None = None) -> None:
        """The state topic is another one, or this group begins anew."""
        for known in [group_id] if group_id is not None else list(self._known):
            self._known.pop(known, None)

    def at_broker(self, group_id: str) -> StoredShare | None:
        node_id = self._kafka.leader(OFFSETS, partition_for(group_id, self._partitions))
        node = self._kafka.cluster.nodes[node_id] if node_id is not None else None
        shard = node.groups.shards.get(node.groups.partition(group_id)) if node is not None and node.up else None
        return shard.shares.groups.get(group_id) if shard is not None and shard.active else None

    def comes(self, group: ShareGroup) -> None:
        """Checks the first records of a group. A live member at the broker goes on here, with its epoch or a higher
        one, and need not join anew."""
        there = self.at_broker(group.group_id)
        for member_id, member in ({} if there is None else there.members).items():
            here = group.members.get(member_id)
            if not is_placeholder(member_id) and (here is None or here.member_epoch < member.previous):
                raise Violation(f"{group.group_id} begins anew beside {member_id}, who is at the broker")

    def unsettled(self, group_id: str, members: Collection[str], broker: bool, has_records: bool) -> str:
        """`broker`: the group is ordered there; `has_records`: in the state topic."""
        group = self.at_broker(group_id)
        there = set() if group is None else set(group.members)
        if broker:
            if has_records:
                return f"{group_id}: it belongs to the broker, and has records in the state topic"
            return "" if there == set(members) else f"{group_id}: its members at the broker are {sorted(there)}"
        if len(there) != bool(members) or there & set(members):
            return f"{group_id}: at the broker its placeholder members are {sorted(there)}"
        return ""
