"""StreamsGroupHeartbeat (api 88, KIP-1071), and StreamsGroupTopologyDescriptionUpdate (api 93, KIP-1331).

v0: KIP-1071.
v1: the answer has the acceptable recovery lag, whose field in v0 Kafka 4.4.0 leaves 0. It may ask for the topology's
description, which is never asked for here: a broker without a plug-in for descriptions refuses them, and so does the
sidecar.

A sidecar that coordinates streams groups serves both versions at every broker. A member's internal topics are created
on its own connection, so that the broker checks its rights and names it in its log. The member gets its answer
meanwhile, and the result goes to the owner of the group.

A managed group of another kind with this name refuses the member, also where streams groups are left to the broker: the
broker does not know managed groups.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Any

from sidecar.api import access, slices
from sidecar.api.call import FORWARD, Call, Coordinate, Handler, Start, Want, upstream
from sidecar.api.one_name import join_refused_by_managed_group, left_to_the_broker, taken_from_streams
from sidecar.api.store import store_at
from sidecar.core.modern.validation import unknown_member
from sidecar.core.streams.config import STREAMS
from sidecar.core.streams.events import (
    JOIN_EPOCH,
    EndpointPartitions,
    StreamsHeartbeat,
    StreamsHeartbeatReply,
    TaskOffset,
    TopicsCreated,
)
from sidecar.core.streams.internal_topics import NewTopic
from sidecar.core.streams.tasks import Partitions, TaskIds
from sidecar.core.streams.topology import CopartitionGroup, Subtopology, TopicInfo, Topology
from sidecar.core.streams.validation import check_topic_names
from sidecar.core.vocabulary.errors import TEXT, Code, CoordinatorError, fitting
from sidecar.wire.apis import Api
from sidecar.wire.frames import request_frame, response_body
from sidecar.wire.generated import create_topics as ct
from sidecar.wire.generated import streams_group_heartbeat as st
from sidecar.wire.generated import streams_group_topology_description_update as td

NO_PLUGIN = "The broker has no streams group topology description plugin configured."
CREATE_VERSION = 4
"""Version of CreateTopics: the first that knows the broker's default replication factor, and the last without tagged
fields."""
CREATE_MS = 5_000
"""Time for which the broker waits until the topics exist. A broker answers the requests of a connection one by one."""


def streams_group_heartbeat(call: Call) -> Handler:
    event, came_ms = (yield from to_event(call)), call.now_ms
    group_id, topology = event.group_id, event.topology
    if not call.scope.streams:
        return (yield from _left_to_the_broker(call, event))
    if event.member_epoch == JOIN_EPOCH and not call.scope.managed(group_id):
        code = yield from left_to_the_broker(call, group_id)
        if code != Code.NONE:
            return _error(call, code, TEXT.get(code))
    if not call.scope.managed(group_id):
        return (yield from _at_the_broker(call, event))
    refused = access.kept_read(call, group_id)
    if refused is None:
        refused = yield from access.refused_read(call, group_id)
    if refused != Code.NONE:
        return _error(call, refused)
    if topology is not None:
        try:
            check_topic_names(topology)
        except CoordinatorError as exc:
            return _error(call, exc.code, exc.message)
        if call.view.authorizer and (yield from access.hidden_topics(call, topology.all_topics())):
            return _error(call, Code.TOPIC_AUTHORIZATION_FAILED)
    if event.member_epoch == JOIN_EPOCH:
        taken = yield from taken_from_streams(call, group_id, came_ms)
        if taken == Code.GROUP_ID_NOT_FOUND:
            return _not_a_streams_group(call, group_id)
        if taken != Code.NONE:
            return _error(call, taken, TEXT.get(taken))
    reply = yield Coordinate(event)
    assert isinstance(reply, StreamsHeartbeatReply)
    if reply.create:
        yield _creation(call, event, reply.create)
    return _to_body(call, event, reply)


def streams_group_topology_description_update(call: Call) -> Handler:
    req = yield from slices.request(call, td.StreamsGroupTopologyDescriptionUpdateRequest)
    if not call.scope.keeps_streams(req.group_id):
        return FORWARD
    refused = yield from access.refused_read(call, req.group_id)
    res = td.StreamsGroupTopologyDescriptionUpdateResponse(error_code=refused)
    if refused == Code.NONE:
        res = td.StreamsGroupTopologyDescriptionUpdateResponse(
            error_code=Code.UNSUPPORTED_VERSION, error_message=NO_PLUGIN
        )
    return res.encode(call.version)


# ---- groups of the broker -------------------------------------------------------------------------------------------
def _left_to_the_broker(call: Call, event: StreamsHeartbeat) -> Handler:
    topics = () if event.topology is None else event.topology.all_topics()
    code = yield from join_refused_by_managed_group(call, event.group_id, topics, STREAMS)
    if code == Code.NONE:
        return FORWARD
    if code != Code.GROUP_ID_NOT_FOUND:
        return _error(call, code)
    return _not_a_streams_group(call, event.group_id)


def _at_the_broker(call: Call, event: StreamsHeartbeat) -> Handler:
    """Passes a heartbeat to the broker, which has the group. The broker may not know the group any more, or no streams
    groups at all, or fewer versions. GROUP_ID_NOT_FOUND ends a client; UNKNOWN_MEMBER_ID makes it join, and a join gets
    the broker's answer."""
    highest, joins = call.broker_version, event.member_epoch == JOIN_EPOCH
    error = unknown_member(event.member_id, event.group_id)
    if highest < 0:
        return _error(call, Code.UNSUPPORTED_VERSION) if joins else _error(call, error.code, error.message)
    may_be_gone = event.member_epoch > JOIN_EPOCH and call.scope.managing
    if highest == call.version and not may_be_gone:
        return FORWARD
    if highest == call.version:
        body, version = (yield from upstream(call)), call.version
    else:  # the versions of the request are the same
        body, version = (yield from store_at(call, call.scope.node_id, highest, call.frame[call.pos :])), highest
    res = yield from slices.decoded(st.StreamsGroupHeartbeatResponse, version, body)
    if res.error_code == Code.GROUP_ID_NOT_FOUND and may_be_gone:
        return _error(call, error.code, error.message)
    if version == call.version:
        return body
    if res.error_code == Code.NONE and event.member_epoch >= JOIN_EPOCH:
        res.acceptable_recovery_lag = res.acceptable_recovery_lag_legacy
    return (yield from slices.encoded(res, call.version))


# ---- internal topics ------------------------------------------------------------------------------------------------
def _creation(call: Call, event: StreamsHeartbeat, topics: Sequence[NewTopic]) -> Start:
    """Returns the request that creates internal topics. It leaves before the answer does, when nothing that the client
    has sent after its heartbeat can be half passed."""
    wanted = ct.CreateTopicsRequest([_new_topic(t) for t in topics], CREATE_MS)
    body = wanted.encode(CREATE_VERSION)
    frame = request_frame(Api.CREATE_TOPICS, CREATE_VERSION, call.correlation_id, call.client_id, False, body)
    return Start(frame, lambda answer: TopicsCreated(event.group_id, event.member_id, _created(topics, answer)))


def _new_topic(t: NewTopic) -> ct.CreatableTopic:
    configs = [ct.CreatableTopicConfig(name, value) for name, value in t.configs]
    return ct.CreatableTopic(t.name, t.partitions, t.replication_factor, [], configs)


def _created(topics: Iterable[NewTopic], answer: bytes | None) -> tuple[tuple[str, int, str | None], ...]:
    """Returns the result for each topic; REQUEST_TIMED_OUT if the broker did not mention it. Raises WireError."""
    results: dict[str, tuple[int, str | None]] = {}
    if answer is not None:
        res = ct.CreateTopicsResponse.decode(CREATE_VERSION, answer, response_body(answer, False))
        results = {t.name: (t.error_code, t.error_message) for t in res.topics}
    unknown = (int(Code.REQUEST_TIMED_OUT), None)
    return tuple((t.name, *results.get(t.name, unknown)) for t in topics)


# ---- the request ----------------------------------------------------------------------------------------------------
def to_event(call: Call) -> Generator[Want, Any, StreamsHeartbeat]:
    """Reads the request. Raises WireError."""
    r = yield from slices.request(call, st.StreamsGroupHeartbeatRequest)
    return StreamsHeartbeat(
        group_id=r.group_id,
        member_id=r.member_id,
        member_epoch=r.member_epoch,
        endpoint_epoch=r.endpoint_information_epoch,
        instance_id=r.instance_id,
        rack_id=r.rack_id,
        rebalance_timeout_ms=r.rebalance_timeout_ms,
        topology=None if r.topology is None else _topology(r.topology),
        active_tasks=_tasks(r.active_tasks),
        standby_tasks=_tasks(r.standby_tasks),
        warmup_tasks=_tasks(r.warmup_tasks),
        process_id=r.process_id,
        endpoint=None if r.user_endpoint is None else (r.user_endpoint.host, r.user_endpoint.port),
        client_tags=None if r.client_tags is None else tuple((t.key, t.value) for t in r.client_tags),
        task_offsets=_offsets(r.task_offsets),
        task_end_offsets=_offsets(r.task_end_offsets),
        shutdown_application=r.shutdown_application,
        client_id=call.client_id or "",
        client_host="/" + call.client.host,
        version=call.version,
    )


def _topology(t: st.Topology) -> Topology:
    return Topology(t.epoch, tuple(map(_subtopology, t.subtopologies)))


def _subtopology(s: st.Subtopology) -> Subtopology:
    return Subtopology(
        s.subtopology_id,
        tuple(s.source_topics),
        tuple(s.repartition_sink_topics),
        tuple(map(_topic, s.repartition_source_topics)),
        tuple(map(_topic, s.state_changelog_topics)),
        tuple(
            CopartitionGroup(tuple(g.source_topics), tuple(g.repartition_source_topics)) for g in s.copartition_groups
        ),
        tuple(s.source_topic_regex),
    )


def _topic(t: st.TopicInfo) -> TopicInfo:
    return TopicInfo(t.name, t.partitions, t.replication_factor, tuple((c.key, c.value) for c in t.topic_configs))


def _tasks(tasks: list[st.TaskIds] | None) -> tuple[TaskIds, ...] | None:
    return None if tasks is None else tuple((t.subtopology_id, tuple(t.partitions)) for t in tasks)


def _offsets(offsets: list[st.TaskOffset] | None) -> tuple[TaskOffset, ...] | None:
    return None if offsets is None else tuple((o.subtopology_id, o.partition, o.offset) for o in offsets)


# ---- the answer -----------------------------------------------------------------------------------------------------
def _to_body(call: Call, event: StreamsHeartbeat, reply: StreamsHeartbeatReply) -> bytes:
    if reply.code != Code.NONE:
        return _error(call, reply.code, reply.message)
    res = st.StreamsGroupHeartbeatResponse(
        member_id=reply.member_id or "",
        member_epoch=reply.member_epoch,
        heartbeat_interval_ms=reply.heartbeat_interval_ms,
        task_offset_interval_ms=reply.task_offset_interval_ms,
        status=[st.Status(s.code, fitting(s.detail)) for s in reply.status],
        active_tasks=_task_ids(reply.active_tasks),
        standby_tasks=_task_ids(reply.standby_tasks),
        warmup_tasks=_task_ids(reply.warmup_tasks),
        topology_description_required=reply.topology_description_required,
        endpoint_information_epoch=reply.endpoint_epoch,
        partitions_by_user_endpoint=_endpoints(reply.partitions_by_endpoint),
    )
    if event.member_epoch >= JOIN_EPOCH:
        res.acceptable_recovery_lag = reply.acceptable_recovery_lag
    return res.encode(call.version)


def _task_ids(tasks: Partitions | None) -> list[st.ResponseTaskIds] | None:
    return None if tasks is None else [st.ResponseTaskIds(s, list(ps)) for s, ps in sorted(tasks.items())]


def _endpoints(endpoints: tuple[EndpointPartitions, ...] | None) -> list[st.EndpointToPartitions] | None:
    if endpoints is None:
        return None
    return [
        st.EndpointToPartitions(st.ResponseEndpoint(host, port), _partitions(active), _partitions(standby))
        for (host, port), active, standby in endpoints
    ]


def _partitions(topics: Partitions) -> list[st.TopicPartition]:
    return [st.TopicPartition(topic, list(ps)) for topic, ps in sorted(topics.items())]


def _not_a_streams_group(call: Call, group_id: str) -> bytes:
    return _error(call, Code.GROUP_ID_NOT_FOUND, fitting(f"Group {group_id} is not a streams group."))


def _error(call: Call, code: Code, message: str | None = None) -> bytes:
    return st.StreamsGroupHeartbeatResponse(error_code=code, error_message=message).encode(call.version)
