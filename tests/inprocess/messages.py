"""Requests as clients send them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Protocol

from sidecar.wire.apis import SERVED, Api, message_name
from sidecar.wire.frames import request_frame
from sidecar.wire.generated import consumer_group_heartbeat as ch
from sidecar.wire.generated import metadata as md
from sidecar.wire.generated import offset_commit as oc
from tests.inprocess.broker import flexible

KEYS = {message_name(api): api for api in Api}
Owned = Mapping[bytes, Sequence[int]]
"""Topic id -> partitions."""


class Message(Protocol):
    def encode(self, version: int) -> bytes: ...


def api_of(message: Message) -> Api:
    return KEYS[type(message).__name__.removesuffix("Request")]


def smallest(api: Api, group_id: str) -> bytes:
    """The frame of a request that a handler can read, of this group where it names one."""
    name = message_name(api)
    made = getattr(import_module(f"sidecar.wire.generated.{api.name.lower()}"), f"{name}Request")()
    given = {"group_id": group_id, "member_id": "m1", "key": group_id, "coordinator_keys": [group_id]}
    lists = {"groups_names": [group_id], "group_ids": [group_id]}
    if api == Api.DESCRIBE_GROUPS:
        lists["groups"] = [group_id]
    for field, value in {**given, **lists}.items():
        if hasattr(made, field):
            setattr(made, field, value)
    return to_frame(made, 5 if api == Api.OFFSET_FETCH else SERVED[api].high, 7)


def to_frame(message: Message, version: int, correlation: int, client_id: str = "app") -> bytes:
    api = api_of(message)
    return request_frame(api, version, correlation, client_id, flexible(api, version), message.encode(version))


def join(
    group_id: str, member_id: str, topics: Sequence[str] | None = ("orders",), regex: str | None = None
) -> ch.ConsumerGroupHeartbeatRequest:
    """The first heartbeat of a member."""
    return ch.ConsumerGroupHeartbeatRequest(
        group_id=group_id,
        member_id=member_id,
        member_epoch=0,
        rebalance_timeout_ms=300_000,
        subscribed_topic_names=None if topics is None else list(topics),
        subscribed_topic_regex=regex,
        topic_partitions=[],
    )


def beat(group_id: str, member_id: str, epoch: int, owned: Owned | None = None) -> ch.ConsumerGroupHeartbeatRequest:
    """A later heartbeat. `owned` is given when what the member owns has changed."""
    told = None if owned is None else [ch.TopicPartitions(t, list(ps)) for t, ps in owned.items()]
    return ch.ConsumerGroupHeartbeatRequest(
        group_id=group_id, member_id=member_id, member_epoch=epoch, topic_partitions=told
    )


def assigned(reply: ch.ConsumerGroupHeartbeatResponse) -> dict[bytes, list[int]]:
    """Topic id -> partitions of a heartbeat's answer."""
    found = reply.assignment.topic_partitions if reply.assignment is not None else []
    return {t.topic_id: list(t.partitions) for t in found}


def commit(group_id: str, member_id: str, epoch: int, topic: str, offsets: Mapping[int, int]) -> oc.OffsetCommitRequest:
    parts = [oc.OffsetCommitRequestPartition(p, offset) for p, offset in offsets.items()]
    topics = [oc.OffsetCommitRequestTopic(name=topic, partitions=parts)]
    return oc.OffsetCommitRequest(
        group_id=group_id, member_id=member_id, generation_id_or_member_epoch=epoch, topics=topics
    )


def metadata(*topics: str) -> md.MetadataRequest:
    """A request that passes through."""
    return md.MetadataRequest(topics=[md.MetadataRequestTopic(name=t) for t in topics])
