"""The offsets as the brokers have them: what is committed in `__consumer_offsets`, in the order of the log.

Clients only commit what they have come to, and whoever takes a partition begins where the last one has come to. So
there an offset never goes back, also not if a client has given up waiting for a commit and sends the next one over
another connection: the sidecars keep the order of a member's commits, which a plain broker does not. Only a client that
has given a commit up, and begins anew where the one before left off, may find that it came in after all. And a commit
that was given up while it was on its way, and comes to a sidecar which has taken the group over meanwhile, is let in,
as at a broker: nobody there can know of the newer one that the former owner has let in.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from tests.whole.broker.batches import Batch
from tests.whole.client import Place
from tests.whole.kafka import Kafka
from tests.whole.violation import Violation

OFFSETS = "__consumer_offsets"
Kept = tuple[str, Place]
"""Group and partition."""
Sender = tuple[str, str]
"""Member id, and the host of the sidecar that it was sent to."""


class StoredOffsets:
    def __init__(self, kafka: Kafka, went_back: Callable[[Kept, int], None]) -> None:
        """`went_back`: told of an offset that went back and may."""
        self._kafka = kafka
        self.went_back = went_back
        self._position: dict[int, int] = {}
        self._senders: dict[Kept, dict[int, set[Sender]]] = defaultdict(lambda: defaultdict(set))
        """The senders of each offset."""
        self._last: dict[Kept, int] = {}
        self._seen: dict[Kept, set[int]] = defaultdict(set)
        self._last_at: dict[Kept, int] = {}
        """The offset of the record that says so."""
        self._pending: dict[tuple[int, int], list[tuple[Kept, int | None, int]]] = defaultdict(list)
        """By partition and producer id: what is in an open transaction, and the offsets of its records."""
        self._aborted: dict[Kept, set[int]] = defaultdict(set)
        self._acknowledged: dict[Kept, set[int]] = defaultdict(set)
        self._acknowledged_ms: dict[Kept, float] = {}
        """The time at which the last of them was."""
        self._late: dict[Kept, set[int]] = defaultdict(set)
        """Offsets that came to the owner after its claim, when a newer one had been acknowledged before that claim."""

    def sending(self, sender: Sender, kept: Kept, offset: int) -> None:
        self._senders[kept][offset].add(sender)
        self._aborted[kept].discard(offset)

    def aborts(self, member_id: str, kept: Kept, offset: int) -> None:
        """Forbids an aborted offset, if it was not committed before, and no other member has sent the same offset."""
        others = any(m != member_id for m, _ in self._senders[kept][offset])
        if not others and offset not in self._seen[kept] and offset not in self._acknowledged[kept]:
            self._aborted[kept].add(offset)

    def is_aborted(self, kept: Kept, offset: int) -> bool:
        return offset in self._aborted[kept]

    def acknowledged(self, kept: Kept, offset: int) -> None:
        self._acknowledged[kept].add(offset)
        self._acknowledged_ms[kept] = self._kafka.universe.now_ms

    def arrived(self, kept: Kept, offset: int, taken_ms: float) -> None:
        """At the owner, which took the partition over then."""
        if offset not in self._acknowledged[kept] and self._acknowledged_ms.get(kept, taken_ms) < taken_ms:
            self._late[kept].add(offset)

    def read(self, partition: int) -> None:
        """Reads what has been committed to this partition since the last call."""
        node_id = self._kafka.furthest(OFFSETS, partition)
        if node_id is None:
            return
        replica = self._kafka.cluster.nodes[node_id].replica(OFFSETS, partition)
        if replica is None:
            return
        log, at = replica.log, self._position.get(partition, 0)
        for batch in log.batches[log.position(at) :]:
            if batch.last >= replica.high_watermark:
                break
            if batch.last < at:
                continue
            pending = self._pending[partition, batch.producer_id] if batch.transactional else None
            for r in batch.records:
                if isinstance(r.key, tuple) and r.key[0] == "offset" and r.offset >= at:
                    _, group_id, topic, p = r.key
                    found = ((group_id, (topic, p)), r.value.offset if r.value is not None else None, r.offset)
                    if pending is None:
                        self._take(*found)
                    else:
                        pending.append(found)
            if batch.marker:
                self._end(partition, batch)
            at = batch.last + 1
        self._position[partition] = at

    def _end(self, partition: int, marker: Batch) -> None:
        """As the broker does it: what has been committed behind a record of the transaction stays."""
        for kept, offset, at in self._pending.pop((partition, marker.producer_id), []):
            if marker.marker == "commit" and at > self._last_at.get(kept, -1):
                self._take(kept, offset, at)

    def _take(self, kept: Kept, offset: int | None, at: int) -> None:
        if kept not in self._senders:
            return  # of a group that no client is in: the sidecars' own
        last = self._last.get(kept)
        if offset is None:
            raise Violation(f"the offset {last} of {kept} is deleted at the broker")
        if self.is_aborted(kept, offset):
            raise Violation(f"the offset {offset} of {kept} was in an aborted transaction, and is at the broker")
        senders = self._senders[kept]
        if last is not None and offset < last and offset in self._late[kept]:
            self.went_back(kept, offset)
        elif last is not None and offset < last and not self._given_up(kept, senders[last], senders[offset]):
            who = f"{sorted(senders[last])} had committed {last}, now {sorted(senders[offset])}"
            raise Violation(f"the offset of {kept} at the broker goes back: {who}: {offset}")
        self._last[kept], self._last_at[kept] = offset, at
        self._seen[kept].add(offset)

    def _given_up(self, kept: Kept, before: set[Sender], now: set[Sender]) -> bool:
        """Returns whether a sender of the last offset has given up waiting for it and has gone back: it was not
        acknowledged."""
        return self._last[kept] not in self._acknowledged[kept] and bool({m for m, _ in before} & {m for m, _ in now})

    def all_there(self) -> None:
        """To be asked when nothing happens any more: what was acknowledged is in the log. The marker of a transaction
        that is known to be committed may still be missing."""
        ending = {(kept, offset) for found in self._pending.values() for kept, offset, _ in found}
        for kept, offsets in self._acknowledged.items():
            if lost := {n for n in offsets - self._seen[kept] if (kept, n) not in ending}:
                raise Violation(f"{sorted(lost)} of {kept} were acknowledged, but are not in the log of the broker")
