"""The leader of one partition of the state topic, as its writer finds it."""

from __future__ import annotations

from sidecar.coordinator.statelog.write_errors import WriteLost
from sidecar.kafka.cluster import Cluster
from sidecar.kafka.produce import Appender
from sidecar.wire.primitives import ZERO_UUID


class PartitionLeader:
    """The leader. `node_id`: -1 while it must be looked up; `behind`: whether some replica of the partition was not in
    sync at the last lookup."""

    def __init__(self, cluster: Cluster, appender: Appender, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.node_id = -1
        self.behind = False
        self._cluster = cluster
        self._appender = appender

    async def find(self, last: str) -> int:
        """Returns the node id of the leader; -1 if there is none. `last`: the result of a write's last try. Raises
        WriteLost if the topic was deleted and made anew: its records are not those in this sidecar's memory. Raises
        ConnectionLost, TimeoutError, WireError."""
        view = await self._cluster.leaders(self.topic)
        meant = self._appender.pinned.get(self.topic, ZERO_UUID)
        if meant != ZERO_UUID and any(t.name == self.topic and t.id not in (ZERO_UUID, meant) for t in view.topics):
            self._appender.topic_recreated()
            raise WriteLost(f"{self.topic}-{self.partition}: {self.topic} is another topic now ({last})")
        leaders = view.leaders.get(self.topic, ())
        self.behind = (self.topic, self.partition) in view.behind
        return leaders[self.partition] if self.partition < len(leaders) else -1
