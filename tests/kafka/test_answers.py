"""Brokers that leave something out of an answer: it cannot be read, and breaks no caller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sidecar.core.vocabulary.errors import Code
from sidecar.kafka import native, share_group
from sidecar.kafka.answers import ANSWERED_BY, check_answers
from sidecar.kafka.cluster import Cluster
from sidecar.kafka.net import BrokerConnection
from sidecar.wire.frames import PREFIX, response_frame
from sidecar.wire.generated import api_versions as av
from sidecar.wire.generated import consumer_group_describe as cd
from sidecar.wire.generated import create_topics as ct
from sidecar.wire.generated import describe_configs as dc
from sidecar.wire.generated import describe_groups as dg
from sidecar.wire.generated import describe_share_group_offsets as do
from sidecar.wire.generated import list_offsets as lo
from sidecar.wire.generated import metadata as md
from sidecar.wire.generated import offset_commit as oc
from sidecar.wire.generated import offset_fetch as of
from sidecar.wire.generated import share_group_describe as sd
from sidecar.wire.primitives import WireError
from tests.inprocess import clock

EMPTY: dict[int, Any] = {
    3: md.MetadataResponse(controller_id=-1),
    15: dg.DescribeGroupsResponse(),
    19: ct.CreateTopicsResponse(),
    69: cd.ConsumerGroupDescribeResponse(),
    77: sd.ShareGroupDescribeResponse(),
    90: do.DescribeShareGroupOffsetsResponse(),
}
NEWEST = 99
VERSIONS = {3: (12, True), 15: (5, True), 19: (7, True), 69: (1, True), 77: (1, True), 90: (0, True)}
"""API -> its one version, whose headers are flexible."""


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers every request, and with nothing in it."""
    known = [av.ApiVersion(18, 0, 3), *(av.ApiVersion(key, v, v) for key, (v, _) in VERSIONS.items())]
    try:
        while True:
            size = await reader.readexactly(4)
            frame = size + await reader.readexactly(int.from_bytes(size, "big"))
            _, key, version, correlation = PREFIX.unpack_from(frame)
            body = av.ApiVersionsResponse(api_keys=known) if key == 18 else EMPTY[key]
            writer.write(response_frame(correlation, key != 18, body.encode(version)))
    except asyncio.IncompleteReadError:
        writer.close()


QUESTIONS: dict[str, Callable[[Cluster, BrokerConnection], Coroutine[Any, Any, Any]]] = {
    "replicas": lambda cluster, conn: cluster.replicas("t"),
    "has_no": lambda cluster, conn: cluster.has_no("t"),
    "create_topic": lambda cluster, conn: cluster.create_topic("t", 1, 1, {}),
    "describe": lambda cluster, conn: native.describe(conn, "g", 1),
    "serves": lambda cluster, conn: native.serves(conn, "share", "g", 1),
    "assigned": lambda cluster, conn: share_group.assigned(conn, "g", 1),
    "placeholders": lambda cluster, conn: share_group.placeholders(conn, "g", 1),
    "initialised": lambda cluster, conn: share_group.initialised(conn, "g", 1),
}


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS)
def test_an_empty_answer_is_no_bug(question: Callable[[Cluster, BrokerConnection], Coroutine[Any, Any, Any]]) -> None:
    async def main() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()[:2]
        cluster = Cluster([(host, port)], "c", {})
        conn = await cluster.anyone()
        with pytest.raises(WireError, match="does not answer for all"):
            await question(cluster, conn)
        cluster.close()
        server.close()

    clock.run(main())


def topics(of_topic: Any, of_partition: Any, counts: tuple[int, ...]) -> list[Any]:
    return [of_topic(partitions=[of_partition() for _ in range(n)]) for n in counts]


ASKED: dict[str, tuple[Any, Any]] = {
    "DescribeGroups": (
        dg.DescribeGroupsRequest(groups=["a", "b"]),
        dg.DescribeGroupsResponse(groups=[dg.DescribedGroup(group_id=g) for g in "ab"]),
    ),
    "ConsumerGroupDescribe": (
        cd.ConsumerGroupDescribeRequest(group_ids=["a", "b"]),
        cd.ConsumerGroupDescribeResponse(groups=[cd.DescribedGroup(group_id=g) for g in "ab"]),
    ),
    "Metadata": (
        md.MetadataRequest(topics=[md.MetadataRequestTopic(), md.MetadataRequestTopic()]),
        md.MetadataResponse(topics=[md.MetadataResponseTopic(), md.MetadataResponseTopic()]),
    ),
    "DescribeConfigs": (
        dc.DescribeConfigsRequest([dc.DescribeConfigsResource(), dc.DescribeConfigsResource()]),
        dc.DescribeConfigsResponse(results=[dc.DescribeConfigsResult(), dc.DescribeConfigsResult()]),
    ),
    "ListOffsets": (
        lo.ListOffsetsRequest(topics=topics(lo.ListOffsetsTopic, lo.ListOffsetsPartition, (1, 2))),
        lo.ListOffsetsResponse(topics=topics(lo.ListOffsetsTopicResponse, lo.ListOffsetsPartitionResponse, (1, 2))),
    ),
    "OffsetCommit": (
        oc.OffsetCommitRequest(topics=topics(oc.OffsetCommitRequestTopic, oc.OffsetCommitRequestPartition, (1, 2))),
        oc.OffsetCommitResponse(topics=topics(oc.OffsetCommitResponseTopic, oc.OffsetCommitResponsePartition, (1, 2))),
    ),
    "OffsetFetch": (
        of.OffsetFetchRequest(groups=[of.OffsetFetchRequestGroup("a", topics=None)]),
        of.OffsetFetchResponse(groups=[of.OffsetFetchResponseGroup("a")]),
    ),
}


@pytest.mark.parametrize("name", ASKED)
def test_each_thing_that_is_left_out_is_noticed(name: str) -> None:
    req, res = ASKED[name]
    check_answers(name, NEWEST, req, res)
    answered = next(a for q, a in ANSWERED_BY.items() if getattr(req, q, None) and hasattr(res, a))
    given = getattr(res, answered)
    for inner in [t.partitions for t in given if getattr(t, "partitions", None) and name != "Metadata"]:
        kept = inner[:]
        inner.clear()
        with pytest.raises(WireError):
            check_answers(name, NEWEST, req, res)
        inner[:] = kept
    if name == "DescribeGroups":
        with pytest.raises(WireError):
            check_answers(name, NEWEST, dg.DescribeGroupsRequest(groups=["a", "c"]), res)
    given.pop()
    with pytest.raises(WireError):
        check_answers(name, NEWEST, req, res)


def test_an_error_for_the_whole_request_is_an_answer() -> None:
    topic = of.OffsetFetchRequestTopic("t", [0])
    refused = of.OffsetFetchResponse(error_code=Code.NOT_COORDINATOR)
    check_answers("OffsetFetch", 7, of.OffsetFetchRequest("g", topics=[topic]), refused)


@pytest.mark.parametrize("version", [7, 8])
@pytest.mark.parametrize("topics", [[of.OffsetFetchRequestTopic("t", [0])], None])
def test_a_request_may_have_the_lists_of_several_versions(version: int, topics: Any) -> None:
    req = of.OffsetFetchRequest("g", topics=topics, groups=[of.OffsetFetchRequestGroup("g", topics=None)])
    old = of.OffsetFetchResponse(topics=[of.OffsetFetchResponseTopic("t", [of.OffsetFetchResponsePartition()])])
    new = of.OffsetFetchResponse(groups=[of.OffsetFetchResponseGroup("g")])
    check_answers("OffsetFetch", version, req, new if version == 8 else old)
    if version == 8 or topics:
        with pytest.raises(WireError):
            check_answers("OffsetFetch", version, req, of.OffsetFetchResponse())
