"""The newest that is known of a topic's leaders. A broker that was cut off or stood still tells of those before until
it has heard of the change itself; so each partition keeps the leader with the highest leader epoch, as clients do
(KIP-320)."""

from __future__ import annotations

from sidecar.kafka.cluster import ClusterView

UNKNOWN = -1


class Leaders:
    """`now`: the leaders' node ids by partition, -1 where there is none."""

    def __init__(self, topic: str, now: tuple[int, ...] = ()) -> None:
        self.now = now
        self._topic = topic
        self._id = b""
        self._epochs: tuple[int, ...] = ()

    def take(self, view: ClusterView) -> bool:
        """Returns whether the view has the topic. What it says of another topic of this name counts as a whole."""
        leaders, epochs = view.leaders.get(self._topic, ()), view.epochs.get(self._topic, ())
        if not leaders:
            return False
        topic_id = next((t.id for t in view.topics if t.name == self._topic), b"")
        if topic_id == self._id and len(epochs) == len(self._epochs):
            known = list(zip(self._epochs, self.now, strict=True))
            told = zip(epochs, leaders, strict=True)
            both = [
                new if UNKNOWN in (new[0], old[0]) or new[0] >= old[0] else old
                for new, old in zip(told, known, strict=True)
            ]
            epochs, leaders = tuple(e for e, _ in both), tuple(n for _, n in both)
        self.now, self._id, self._epochs = leaders, topic_id, epochs
        return True
