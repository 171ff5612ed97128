"""A member of the consumer protocol as real clients are: it revokes partitions when asked to, joins anew when it is
fenced, and ends by the answers that end Java's consumer and librdkafka (tests/harness/endings.py)."""

from __future__ import annotations

from dataclasses import dataclass, field

from sidecar.core.consumer.events import ConsumerHeartbeat, HeartbeatReply
from sidecar.core.runtime.events import Answer, Event
from sidecar.core.runtime.records import Partitions
from sidecar.core.vocabulary.errors import Code
from tests.harness.endings import JAVA, ends
from tests.sim.peer import Peer, Place

OF_FRANZ = 4
"""Attempts of franz-go while another member has its instance id; then the application gets the error
(consumer_group_848.go)."""


@dataclass(kw_only=True, eq=False)
class Client(Peer):
    names: tuple[str, ...] | None
    regex: str | None
    tries: int = 1
    """Attempts while another member has its instance id: Java's consumer and librdkafka end by the first answer."""
    terse: bool = False
    """Whether the client reports what it owns only when that has changed, as the Java client does."""
    owned: Partitions = field(default_factory=dict)
    reported: Partitions | None = None
    """The owned partitions of the last request that was answered."""
    refusals: int = 0
    """One after another because of its instance id."""
    full: bool = False
    """After an answer that may be lost the next request has all fields, as of Kafka's clients."""

    def send_next(self) -> None:
        joining = self.epoch == 0 and not self.leaving
        full = joining or (self.full and not self.leaving)
        silent = self.leaving or (self.terse and not full and self.owned == self.reported)
        hb = ConsumerHeartbeat(
            self.group_id,
            self.member_id,
            self.leaving or self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=5_000 if full else -1,
            topic_names=self.names if full else None,
            topic_regex=self.regex if full else None,
            owned={} if joining else None if silent else self.owned,
        )
        self.ask(hb, self._heartbeat_answered)

    def answer_lost(self) -> None:
        self.full = True

    def _heartbeat_answered(self, hb: Event, reply: Answer) -> None:
        assert isinstance(hb, ConsumerHeartbeat)
        assert isinstance(reply, HeartbeatReply)
        self.full = False
        if self.leaving:
            self.ended = True
            return
        if reply.code == Code.UNRELEASED_INSTANCE_ID and self.refusals < self.tries - 1:
            self.refusals += 1
            return
        if reply.code:
            self.ended = JAVA in ends("ConsumerGroupHeartbeat", reply.code)
            self.epoch, self.owned, self.reported = 0, {}, None
            return
        self.refusals = 0
        self.epoch = reply.member_epoch
        if hb.owned is not None:
            self.reported = hb.owned
        if reply.assignment is not None:
            self.owned = reply.assignment
        self.check(self.group_id)

    def drop_partitions(self) -> None:
        self.owned = {}

    def partitions(self) -> set[Place]:
        return {(t, p) for t, ps in self.owned.items() for p in ps}
