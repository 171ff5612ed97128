"""StreamsGroupDescribe (api 89, KIP-1071): a streams group as its members and operators see it.

v0: KIP-1071.
v1: the client may ask for the description of the topology (KIP-1331), and the response has the assignor (KIP-1357).

A client without DESCRIBE of one of its topics gets no description of the group. A sidecar that coordinates streams
groups serves this API even if the broker does not have it; groups that are the broker's are then no streams groups.
Descriptions of topologies are not kept here.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from functools import partial
from typing import Any

from sidecar.api import access, slices
from sidecar.api.call import FORWARD, PAUSE, Call, Handler, Want, coordinate
from sidecar.api.described import MANY, described
from sidecar.api.store import store_at
from sidecar.core.streams.events import DescribedStreamsMember, DescribeStreamsGroup, StreamsDescribeReply
from sidecar.core.streams.tasks import Partitions, Tasks
from sidecar.core.streams.topology import Subtopology, TopicInfo, Topology
from sidecar.core.vocabulary.errors import Code, fitting
from sidecar.wire.generated import streams_group_describe as sd

HIDDEN_TOPICS = "The described group uses topics that the client is not authorized to describe."
"""Kafka's text, which for groups of the other kinds is another one."""
NOT_STORED = 1
"""Status of a description that was asked for and is not there."""


def streams_group_describe(call: Call) -> Handler:
    req = yield from slices.request(call, sd.StreamsGroupDescribeRequest)
    group_ids = req.group_ids
    local = yield from slices.chosen(group_ids, call.scope.keeps_streams)
    ours = set(local)
    theirs = [g for g in group_ids if g not in ours]
    highest = call.broker_version
    if not local and highest == call.version:
        return FORWARD
    res = sd.StreamsGroupDescribeResponse()
    topology_status = NOT_STORED if req.include_topology_description else 0
    req.include_topology_description = req.include_topology_description and highest == call.version
    if theirs and highest >= 0:
        req.group_ids = theirs
        sent = yield from slices.encoded(req, highest)
        body = yield from store_at(call, call.scope.node_id, highest, sent)
        res = yield from slices.decoded(sd.StreamsGroupDescribeResponse, highest, body)
    elif theirs:
        res.groups = [_no_streams(g) for g in theirs]
    req.group_ids = local
    res.groups += yield from described(
        call, req, partial(_describe, topology_status), sd.StreamsGroupDescribeResponse, _refused
    )
    res.groups = yield from slices.as_asked(group_ids, res.groups, lambda g: g.group_id)
    return (yield from slices.encoded(res, call.version))


def _describe(topology_status: int, call: Call, group_id: str) -> Generator[Want, Any, sd.DescribedGroup]:
    reply: StreamsDescribeReply = yield from coordinate(DescribeStreamsGroup(group_id))
    if reply.code != Code.NONE:
        # A broker gives no text to a refusal that is not about the group itself.
        return _refused(group_id, reply.code, reply.message if reply.code == Code.GROUP_ID_NOT_FOUND else None)
    if reply.topology is not None and (yield from access.hidden_topics(call, reply.topology.all_topics())):
        return _refused(group_id, Code.TOPIC_AUTHORIZATION_FAILED, HIDDEN_TOPICS)
    if len(reply.members) > MANY:
        yield PAUSE
    return sd.DescribedGroup(
        group_id=group_id,
        group_state=reply.state,
        group_epoch=reply.epoch,
        assignment_epoch=reply.assignment_epoch,
        topology=None if reply.topology is None else _topology(reply.topology),
        members=(yield from slices.made(reply.members, _member)),
        assignor_name=reply.assignor if call.version >= 1 else None,
        topology_description_status=topology_status,
    )


def _topology(t: Topology) -> sd.Topology:
    return sd.Topology(t.epoch, list(map(_subtopology, t.subtopologies)))


def _subtopology(s: Subtopology) -> sd.Subtopology:
    return sd.Subtopology(
        s.subtopology_id,
        list(s.source_topics),
        list(s.repartition_sink_topics),
        _topics(s.changelog_topics),
        _topics(s.repartition_source_topics),
    )


def _topics(topics: Iterable[TopicInfo]) -> list[sd.TopicInfo]:
    return [
        sd.TopicInfo(t.name, t.partitions, t.replication_factor, [sd.KeyValue(k, v) for k, v in t.configs])
        for t in topics
    ]


def _member(m: DescribedStreamsMember) -> sd.Member:
    return sd.Member(
        member_id=m.member_id,
        member_epoch=m.member_epoch,
        instance_id=m.instance_id,
        rack_id=m.rack_id,
        client_id=m.client_id,
        client_host=m.client_host,
        topology_epoch=m.topology_epoch,
        process_id=m.process_id,
        user_endpoint=None if m.endpoint is None else sd.Endpoint(*m.endpoint),
        client_tags=[sd.KeyValue(k, v) for k, v in m.client_tags],
        assignment=_assignment(m.assignment),
        target_assignment=_assignment(m.target),
        task_offsets=[sd.TaskOffset(*o) for o in m.offsets],
        task_end_offsets=[sd.TaskOffset(*o) for o in m.end_offsets],
    )


def _assignment(tasks: Tasks) -> sd.Assignment:
    return sd.Assignment(_task_ids(tasks.active), _task_ids(tasks.standby), _task_ids(tasks.warmup))


def _task_ids(tasks: Partitions) -> list[sd.TaskIds]:
    return [sd.TaskIds(s, list(ps)) for s, ps in sorted(tasks.items())]


def _no_streams(group_id: str) -> sd.DescribedGroup:
    if not group_id:
        return _refused(group_id, Code.INVALID_GROUP_ID)
    return _refused(group_id, Code.GROUP_ID_NOT_FOUND, fitting(f"Group {group_id} is not a streams group."))


def _refused(group_id: str, code: Code, message: str | None = None) -> sd.DescribedGroup:
    return sd.DescribedGroup(error_code=code, error_message=message, group_id=group_id)
