"""Events of streams groups and their answers. Times are milliseconds."""

from __future__ import annotations

from typing import ClassVar

from msgspec import Struct

from sidecar.core.modern.events import MemberHeartbeat, MemberReply
from sidecar.core.runtime.events import Answer, Event
from sidecar.core.streams.internal_topics import NewTopic
from sidecar.core.streams.records import Endpoint
from sidecar.core.streams.status_texts import Status
from sidecar.core.streams.tasks import Partitions, TaskIds, Tasks, merged
from sidecar.core.streams.topology import Topology
from sidecar.core.vocabulary.errors import Code

EndpointPartitions = tuple[Endpoint, Partitions, Partitions]
"""An endpoint, and topic -> partitions of its member's active tasks and of its other tasks."""
TaskOffset = tuple[str, int, int]
"""Subtopology id, partition, offset: the sum over the changelogs of the task."""
JOIN_EPOCH = 0


class TopicsCreated(Event):
    """The result of the CreateTopics request that the front has sent on the connection of this member: (topic, error
    code, message) each."""

    member_id: str
    topics: tuple[tuple[str, int, str | None], ...]


class DescribedStreamsMember(Struct, gc=False):
    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topology_epoch: int
    process_id: str
    endpoint: Endpoint | None
    client_tags: tuple[tuple[str, str], ...]
    assignment: Tasks
    target: Tasks
    offsets: tuple[TaskOffset, ...] = ()
    end_offsets: tuple[TaskOffset, ...] = ()
    """Offsets by task, as the member has reported them to this owner."""


class StreamsDescribeReply(Answer):
    """`topology` None: no member has sent one. It has the computed numbers of partitions, if it is ready."""

    state: str = ""
    epoch: int = 0
    assignment_epoch: int = 0
    assignor: str = ""
    topology: Topology | None = None
    members: tuple[DescribedStreamsMember, ...] = ()


class DescribeStreamsGroup(Event):
    """StreamsGroupDescribe (api 89). v1 also returns the assignor."""

    answer: ClassVar[type[Answer]] = StreamsDescribeReply


class StreamsHeartbeatReply(MemberReply):
    """Answer to StreamsGroupHeartbeat. `None` means: not changed since the last one. `create`: topics that the front
    creates on the client's connection when it has answered."""

    acceptable_recovery_lag: int = 0
    task_offset_interval_ms: int = 0
    status: tuple[Status, ...] = ()
    active_tasks: Partitions | None = None
    standby_tasks: Partitions | None = None
    warmup_tasks: Partitions | None = None
    topology_description_required: bool = False
    endpoint_epoch: int = 0
    partitions_by_endpoint: tuple[EndpointPartitions, ...] | None = None
    create: tuple[NewTopic, ...] = ()

    def undelivered(self, group_id: str) -> Event | None:
        lost = tuple((t.name, int(Code.REQUEST_TIMED_OUT), None) for t in self.create)
        return TopicsCreated(group_id, self.member_id or "", lost) if lost else None


class StreamsHeartbeat(MemberHeartbeat):
    """StreamsGroupHeartbeat (api 88, KIP-1071). `None` means: not changed since the last one. v1 differs from v0 in the
    answer alone."""

    answer: ClassVar[type[Answer]] = StreamsHeartbeatReply

    endpoint_epoch: int = -1
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topology: Topology | None = None
    active_tasks: tuple[TaskIds, ...] | None = None
    standby_tasks: tuple[TaskIds, ...] | None = None
    warmup_tasks: tuple[TaskIds, ...] | None = None
    process_id: str | None = None
    endpoint: Endpoint | None = None
    client_tags: tuple[tuple[str, str], ...] | None = None
    task_offsets: tuple[TaskOffset, ...] | None = None
    task_end_offsets: tuple[TaskOffset, ...] | None = None
    shutdown_application: bool = False
    client_id: str = ""
    client_host: str = ""
    version: int = 1

    def largest_bytes(self) -> int:
        tags = sum(len(key) + len(value) for key, value in self.client_tags or ())
        if self.topology is None:
            return tags
        return tags + sum(map(len, self.topology.texts())) + self.topology.indices()

    def owned(self) -> Tasks | None:
        """Returns the tasks that the member reports to have; None: it reports none of the lists."""
        if self.active_tasks is None or self.standby_tasks is None or self.warmup_tasks is None:
            return None
        return Tasks(merged(self.active_tasks), merged(self.standby_tasks), merged(self.warmup_tasks))
