"""The newest known leaders of a topic's partitions. A broker that was cut off or stood still reports the previous
leaders until it learns of the change itself; so each partition keeps the leader with the highest leader epoch, as
clients do (KIP-320)."""

from __future__ import annotations

from sidecar.kafka.cluster import ClusterView

UNKNOWN = -1


class Leaders:
    """`now`: the leaders' node ids by partition, -1 where there is none; `epochs`: their leader epochs, -1 where they
    are not known, none before the first view."""

    def __init__(self, topic: str, now: tuple[int, ...] = ()) -> None:
        self.topic = topic
        self.now = now
        self.epochs: tuple[int, ...] = ()
        self._id = b""

    def of(self, partition: int) -> tuple[int, int]:
        """Returns the partition's leader and leader epoch; UNKNOWN twice if the brokers have not told it."""
        if partition >= len(self.epochs):
            return UNKNOWN, UNKNOWN
        return self.now[partition], self.epochs[partition]

    def take(self, view: ClusterView) -> bool:
        """Merges the view's leaders, and returns whether the view has the topic. A topic id or a number of partitions
        that differs means another topic of this name, whose leaders replace all that were known."""
        leaders, epochs = view.leaders.get(self.topic, ()), view.epochs.get(self.topic, ())
        if not leaders:
            return False
        topic_id = next((t.id for t in view.topics if t.name == self.topic), b"")
        if topic_id == self._id and len(epochs) == len(self.epochs):
            known = list(zip(self.epochs, self.now, strict=True))
            listed = zip(epochs, leaders, strict=True)
            newest = [
                new if UNKNOWN in (new[0], old[0]) or new[0] >= old[0] else old
                for new, old in zip(listed, known, strict=True)
            ]
            epochs, leaders = tuple(e for e, _ in newest), tuple(n for _, n in newest)
        self.now, self._id, self.epochs = leaders, topic_id, epochs
        return True
