"""Events of consumer groups and their answers. Times are milliseconds."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from sidecar.assign.spec import Partitions
from sidecar.core.modern.events import MemberHeartbeat, MemberReply, TopicPartitions
from sidecar.core.runtime.events import Answer, Event


class HeartbeatReply(MemberReply):
    assignment: Partitions | None = None


class ConsumerHeartbeat(MemberHeartbeat):
    """ConsumerGroupHeartbeat (api 68, KIP-848). `None` means: not changed since the last one."""

    answer: ClassVar[type[Answer]] = HeartbeatReply

    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topic_names: tuple[str, ...] | None = None
    topic_regex: str | None = None
    server_assignor: str | None = None
    owned: Partitions | None = None
    client_id: str = ""
    client_host: str = ""
    version: int = 1
    new_member_id: str = ""
    """Member id for a v0 request without one: the caller brings the randomness."""

    def largest_bytes(self) -> int:
        return sum(map(len, self.topic_names)) if self.topic_names else 0


class DescribedMember(Struct, gc=False):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    topic_regex: str | None
    assignment: tuple[TopicPartitions, ...]
    """Partitions of the member, with those that it must still give up: it is responsible for them as well."""
    target: tuple[TopicPartitions, ...]
    classic: bool = False
    """Whether the member speaks the classic protocol."""


class DescribeReply(Answer):
    state: str = ""
    epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    members: tuple[DescribedMember, ...] = ()


class DescribeConsumerGroup(Event):
    """ConsumerGroupDescribe (api 69, KIP-848)."""

    answer: ClassVar[type[Answer]] = DescribeReply
