"""The states of a group (or of a producer) in which a request comes, each made by requests of a client."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.player.side import Side

Make = Callable[["State"], None]
TOPICS = ("player-a", "player-b")
PARTITIONS = 3
CLASSIC_MEMBER_VERSION, SYNC, COMMIT, CGH = 5, 3, 8, 0
"""Versions that every Kafka has; no case looks at them."""
SESSION_MS, REBALANCE_MS = 45_000, 2_500
"""A JoinGroup waits no longer for a member that is silent."""


@dataclass
class State:
    """A client's knowledge of the group, from which correct requests are made."""

    side: Side
    ids: Mapping[str, uuid.UUID]
    """Topic ids."""
    rebalance_ms: int
    """Rebalance timeout of members of the classic protocol. A leader that sends no assignment is removed after it."""
    member: str = ""
    epoch: int = -1
    """Generation or member epoch."""
    instance: str | None = None
    protocol: str | None = "consumer"
    assignor: str | None = "range"
    topic: str = TOPICS[0]
    """The member's topic."""
    modern: str = ""
    """Member of the consumer protocol, in a group that has one."""
    modern_epoch: int = 0
    producer: int = 0
    producer_epoch: int = 0
    named: str = ""
    """A group other than that of the case."""

    @property
    def group(self) -> str:
        return self.named or self.side.group

    @property
    def transaction(self) -> str:
        return f"{self.side.group}-tx"


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def subscription(*topics: str) -> bytes:
    """Returns a consumer's metadata in a JoinGroup, version 0."""
    return struct.pack(">hi", 0, len(topics)) + b"".join(map(text, topics)) + struct.pack(">i", -1)


def assignment(topic: str) -> bytes:
    partitions = struct.pack(f">i{PARTITIONS}i", PARTITIONS, *range(PARTITIONS))
    return struct.pack(">hi", 0, 1) + text(topic) + partitions + struct.pack(">i", -1)


def join(s: State, topic: str, member: str = "", kind: str = "consumer") -> dict[str, Any]:
    body = {
        "groupId": s.group,
        "sessionTimeoutMs": SESSION_MS,
        "rebalanceTimeoutMs": s.rebalance_ms,
        "memberId": member,
        "groupInstanceId": s.instance,
        "protocolType": kind,
        "protocols": [{"name": "range", "metadata": subscription(topic)}],
    }
    return s.side.ask("JoinGroup", CLASSIC_MEMBER_VERSION, body)


def _sync(s: State, topic: str) -> None:
    body = {
        "groupId": s.group,
        "generationId": s.epoch,
        "memberId": s.member,
        "groupInstanceId": s.instance,
        "assignments": [{"memberId": s.member, "assignment": assignment(topic)}],
    }
    s.side.ask("SyncGroup", SYNC, body)


def _joined(s: State, topic: str = TOPICS[0], kind: str = "consumer") -> None:
    answer = join(s, topic, kind=kind)
    if answer.get("errorCode") == 79:
        answer = join(s, topic, answer["memberId"], kind)
    s.member, s.epoch, s.protocol = answer.get("memberId", ""), answer.get("generationId", -1), kind


def commit(s: State, member: str, epoch: int) -> None:
    partitions = [{"partitionIndex": p, "committedOffset": 5 + p, "committedMetadata": "said"} for p in (0, 1)]
    body = {
        "groupId": s.group,
        "generationIdOrMemberEpoch": epoch,
        "memberId": member,
        "groupInstanceId": s.instance,
        "topics": [{"name": s.topic, "partitions": partitions}],
    }
    s.side.ask("OffsetCommit", COMMIT, body)


def _beat(s: State, topics: list[str] | None) -> None:
    body = {
        "groupId": s.group,
        "memberId": s.modern,
        "memberEpoch": s.modern_epoch,
        "instanceId": s.instance,
        "rebalanceTimeoutMs": SESSION_MS if topics is not None else -1,
        "subscribedTopicNames": topics,
        "topicPartitions": [] if topics is not None else None,
    }
    answer = s.side.ask("ConsumerGroupHeartbeat", CGH, body)
    s.modern = answer.get("memberId") or s.modern
    s.modern_epoch = answer.get("memberEpoch", s.modern_epoch)


def no_group(s: State) -> None:
    """No such group."""


def offsets(s: State) -> None:
    """A group that has offsets and never had members."""
    commit(s, "", -1)


def classic(s: State) -> None:
    _joined(s)
    _sync(s, TOPICS[0])
    commit(s, s.member, s.epoch)


def classic_static(s: State) -> None:
    s.instance = f"{s.group}-i"
    classic(s)


def classic_syncing(s: State) -> None:
    """The leader has not sent its assignments."""
    _joined(s)


def classic_pending(s: State) -> None:
    """A member id was given out, and nobody has joined with it."""
    s.member = join(s, TOPICS[0]).get("memberId", "")


def classic_empty(s: State) -> None:
    classic(s)
    body = {"groupId": s.group, "members": [{"memberId": s.member, "groupInstanceId": None}]}
    s.side.ask("LeaveGroup", 3, body)


def connect(s: State) -> None:
    """A classic group of another protocol type."""
    _joined(s, kind="connect")
    _sync(s, TOPICS[0])
    commit(s, s.member, s.epoch)


def consumer(s: State) -> None:
    _beat(s, [TOPICS[0]])
    s.member, s.epoch = s.modern, s.modern_epoch
    commit(s, s.member, s.epoch)


def consumer_static(s: State) -> None:
    s.instance = f"{s.group}-i"
    consumer(s)


def consumer_empty(s: State) -> None:
    consumer(s)
    s.modern_epoch = -1
    _beat(s, None)
    s.modern_epoch = s.epoch


def mixed(s: State) -> None:
    """A member of each protocol, each with a topic of its own."""
    _beat(s, [TOPICS[0]])
    s.topic = TOPICS[1]
    _joined(s, s.topic)
    _sync(s, s.topic)
    _beat(s, None)
    commit(s, s.member, s.epoch)


def mixed_static(s: State) -> None:
    """The member of the classic protocol has an instance id."""
    _beat(s, [TOPICS[0]])
    s.instance, s.topic = f"{s.group}-i", TOPICS[1]
    _joined(s, s.topic)
    _sync(s, s.topic)
    commit(s, s.member, s.epoch)
    s.instance, kept = None, s.instance
    _beat(s, None)
    s.instance = kept


def several(s: State) -> None:
    """Groups of both kinds, managed and not. The one that is asked for is classic."""
    for group in (f"{s.group}-2", s.side.other):
        _of_another(s, group, consumer)
    _of_another(s, f"{s.side.other}-2", offsets)
    classic(s)


def _of_another(s: State, group: str, make: Make) -> None:
    other = State(s.side, s.ids, s.rebalance_ms, named=group)
    make(other)


def _producer(s: State) -> None:
    body = {"transactionalId": s.transaction, "transactionTimeoutMs": 60_000}
    answer = s.side.ask("InitProducerId", 3, body)
    s.producer, s.producer_epoch = answer.get("producerId", -1), answer.get("producerEpoch", -1)


def _begun(s: State) -> None:
    body = {
        "transactionalId": s.transaction,
        "producerId": s.producer,
        "producerEpoch": s.producer_epoch,
        "groupId": s.group,
    }
    s.side.ask("AddOffsetsToTxn", 3, body)


def producer(s: State) -> None:
    """A transactional producer that has begun nothing."""
    _producer(s)


def transaction(s: State) -> None:
    """An open transaction with offsets of a group without members."""
    _producer(s)
    _begun(s)


def transaction_classic(s: State) -> None:
    classic(s)
    transaction(s)


def transaction_consumer(s: State) -> None:
    consumer(s)
    transaction(s)


def transaction_mixed(s: State) -> None:
    mixed(s)
    transaction(s)


CLASSIC: tuple[Make, ...] = (
    no_group,
    offsets,
    classic,
    classic_static,
    classic_syncing,
    classic_pending,
    classic_empty,
    connect,
    several,
)
MODERN: tuple[Make, ...] = (consumer, consumer_static, consumer_empty, mixed, mixed_static)
TRANSACTIONS: tuple[Make, ...] = (transaction, transaction_classic, transaction_consumer, transaction_mixed)
NEED_MODERN = frozenset({*MODERN, several, transaction_consumer, transaction_mixed})


def looks(s: State, versions: Mapping[str, int]) -> None:
    """Asks for everything that is there afterwards.

    Kafka answers a JoinGroup before the record of its new group is committed, and describes what is committed. The
    heartbeat of a member that nobody has is answered behind all such records.
    """
    side = s.side
    side.ask("Heartbeat", versions["Heartbeat"], {"groupId": s.group, "generationId": 0, "memberId": "of-nobody"})
    side.ask("DescribeGroups", versions["DescribeGroups"], {"groups": [s.group]})
    if "ConsumerGroupDescribe" in versions:
        side.ask("ConsumerGroupDescribe", versions["ConsumerGroupDescribe"], {"groupIds": [s.group]})
    side.ask("OffsetFetch", 8, {"groups": [{"groupId": s.group, "topics": None}]})
    side.ask("ListGroups", versions["ListGroups"], {})
