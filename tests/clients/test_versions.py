"""The sidecar serves what the broker behind it serves: the same requests go to the broker and through the sidecar
before it, in versions that only old or new Kafkas have."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any, Protocol

import pytest
from msgspec.structs import replace

from sidecar.core.vocabulary.errors import Code
from sidecar.drill.artifacts import KAFKA
from sidecar.drill.local import LocalKafka
from sidecar.drill.processes import wait_until
from sidecar.kafka import native
from sidecar.kafka.cluster import Cluster
from sidecar.wire.apis import SERVED, Api
from sidecar.wire.frames import SIZE, request_frame, response_body
from sidecar.wire.generated import api_versions as av
from sidecar.wire.generated import consumer_group_describe as cd
from sidecar.wire.generated import consumer_group_heartbeat as ch
from sidecar.wire.generated import consumer_protocol_subscription as sub
from sidecar.wire.generated import delete_groups as dl
from sidecar.wire.generated import describe_cluster as ds
from sidecar.wire.generated import describe_configs as dc
from sidecar.wire.generated import join_group as jg
from sidecar.wire.generated import offset_commit as oc
from sidecar.wire.generated import offset_fetch as of
from sidecar.wire.generated import sync_group as sy
from tests.api.announced import announced, ask
from tests.clients.ground import make_topic

HOST = "127.0.0.1"
TOPIC_RESOURCE = 2
REBOOTSTRAP_REQUIRED = 129
BROUGHT = {int(Api.CONSUMER_GROUP_HEARTBEAT): (0, 1), int(Api.CONSUMER_GROUP_DESCRIBE): (0, 1)}


class Request(Protocol):
    def encode(self, version: int) -> bytes: ...


class Caller:
    """One connection, to the broker or to its sidecar."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=30)

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *exc: object) -> None:
        self._socket.close()

    def frame(self, api: int, version: int, body: bytes, flexible: bool) -> bytes:
        """The answer, or nothing if the connection is closed."""
        self._socket.sendall(request_frame(api, version, 7, "old", flexible, body))
        size = self._socket.recv(4, socket.MSG_WAITALL)
        return size + self._socket.recv(SIZE.unpack(size)[0], socket.MSG_WAITALL) if size else b""

    def ask(self, module: Any, api: Api, version: int, request: Request) -> Any:
        flexible = version >= SERVED[api].flexible_from
        frame = self.frame(api, version, request.encode(version), flexible)
        name = type(request).__name__.replace("Request", "Response")
        return getattr(module, name).decode(version, frame, response_body(frame, flexible)) if frame else None


def both(world: LocalKafka) -> Iterator[tuple[str, Caller]]:
    """The broker with a group of its own, and the sidecar with one of the sidecars'."""
    n = world.nodes[0]
    for group, port in (("brokers-", n.clients_port), ("managed-", n.sidecar_port)):
        with Caller(port) as caller:
            yield group, caller


def check_announced(world: LocalKafka) -> None:
    n = world.nodes[0]
    theirs, ours = ask(HOST, n.clients_port), ask(HOST, n.sidecar_port)
    assert theirs == announced()[world.version], "python -m tests.api.announced"
    low, high = theirs[Api.OFFSET_COMMIT]
    assert ours == theirs | BROUGHT | {int(Api.OFFSET_COMMIT): (low, max(high, 9))}


def check_refusals(world: LocalKafka) -> None:
    """A bad name of the client's software, and a version that nobody has."""
    bad = av.ApiVersionsRequest("a b", "!")
    for version, body in ((3, bad.encode(3)), (4, bad.encode(4)), (99, b"anything")):
        told, answer = (c.frame(Api.API_VERSIONS, version, body, True) for _, c in both(world))
        assert told == answer and told, version


def check_groups_of_the_broker(world: LocalKafka) -> None:
    """Versions that the sidecar announces for its own groups. A broker that lacks them would close the connection."""
    part = oc.OffsetCommitRequestPartition(0, 5)
    commit = oc.OffsetCommitRequest("brokers-nine", topics=[oc.OffsetCommitRequestTopic("old", partitions=[part])])
    with Caller(world.nodes[0].sidecar_port) as caller:  # which has not asked for ApiVersions
        told = caller.ask(oc, Api.OFFSET_COMMIT, 9, commit)
        assert told.topics[0].partitions[0].error_code == Code.NONE
        told = caller.ask(cd, Api.CONSUMER_GROUP_DESCRIBE, 1, cd.ConsumerGroupDescribeRequest(["brokers-nine"]))
        assert told.groups[0].error_code in (Code.UNSUPPORTED_VERSION, Code.GROUP_ID_NOT_FOUND)
        beat = ch.ConsumerGroupHeartbeatRequest("brokers-nine", "m", 3)
        told = caller.ask(ch, Api.CONSUMER_GROUP_HEARTBEAT, 1, beat)
        assert told.error_code in (Code.UNSUPPORTED_VERSION, Code.UNKNOWN_MEMBER_ID)


def test_the_sidecar_announces_what_its_broker_announces(kafka: LocalKafka) -> None:
    check_announced(kafka)
    check_refusals(kafka)


def test_a_version_that_the_broker_lacks_closes_the_connection(kafka: LocalKafka) -> None:
    for group, caller in both(kafka):
        assert caller.ask(oc, Api.OFFSET_COMMIT, 1, oc.OffsetCommitRequest(f"{group}gone")) is None


@pytest.fixture(scope="module", params=["3.9.1", KAFKA])
def other(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    env = {"SIDECAR_GROUPS__INCLUDE": '["managed.*"]'}
    folder = tmp_path_factory.mktemp(f"versions-{request.param}")
    with LocalKafka(folder, brokers=1, version=request.param, sidecar_env=env) as world:
        world.wait_ready()
        make_topic(world, "old", 1)
        yield world


@pytest.mark.tier("all")
def test_another_kafka(other: LocalKafka) -> None:
    check_announced(other)
    check_refusals(other)
    check_groups_of_the_broker(other)
    if other.version.startswith("3."):
        check_old_versions(other)
    else:
        check_new_versions(other)


KINDS = {"classic": "", "consumer": "group.version", "share": "share.version", "streams": "streams.version"}


def served(world: LocalKafka) -> set[str]:
    async def look() -> set[str]:
        cluster = Cluster([(HOST, world.nodes[0].internal_port)], "which-kinds", {})
        try:
            conn = await cluster.anyone()
            return {kind for kind in KINDS if await native.serves(conn, kind, "nobody", 10)}
        finally:
            cluster.close()

    return asyncio.run(look())


def switch(world: LocalKafka, how: str) -> None:
    for feature in filter(None, KINDS.values()):
        tool = ("org.apache.kafka.tools.FeatureCommand", "--bootstrap-server", world.internal)
        code, told = world.run_tool(*tool, how, "--feature", f"{feature}={int(how == 'upgrade')}")
        assert code == 0, told


@pytest.mark.tier("all")
def test_which_kinds_of_groups_a_broker_serves(other: LocalKafka) -> None:
    """The broker's ApiVersions lists the APIs of a kind that is off. Groups with members do not go back to it."""
    if other.version.startswith("3."):
        assert served(other) == {"classic"}
        return
    assert served(other) == set(KINDS)
    switch(other, "downgrade")
    try:
        wait_until("the broker serves classic groups alone", lambda: served(other) == {"classic"}, 30)
    finally:
        switch(other, "upgrade")


def check_old_versions(world: LocalKafka) -> None:
    told = [old_versions(caller, group) for group, caller in both(world)]
    assert told[0] == told[1]
    simple, offset, fetched, refused, not_told, default = told[0]
    assert (simple, offset) == (Code.NONE, Code.NONE)
    assert fetched == [("old", 0, 7, "", Code.NONE)]
    assert refused == not_told == Code.UNSUPPORTED_VERSION, "no ZooKeeper"
    assert default == [("retention.ms", False)], "it is set for the broker"


def old_versions(caller: Caller, group: str) -> tuple[Any, ...]:
    """OffsetCommit v1 of nobody and of a member, as sarama up to 1.38 has it, and what these stored; v0 of commit and
    fetch, which are ZooKeeper's; DescribeConfigs v0."""
    part = oc.OffsetCommitRequestPartition(0, 5, commit_timestamp=1_000)
    commit = oc.OffsetCommitRequest(f"{group}simple", topics=[oc.OffsetCommitRequestTopic("old", partitions=[part])])
    simple = caller.ask(oc, Api.OFFSET_COMMIT, 1, commit)
    member, generation = join(caller, f"{group}old")
    part = oc.OffsetCommitRequestPartition(0, 7)
    topics = [oc.OffsetCommitRequestTopic("old", partitions=[part])]
    commit = oc.OffsetCommitRequest(f"{group}old", generation, member, topics=topics)
    stored = caller.ask(oc, Api.OFFSET_COMMIT, 1, commit)
    fetch = of.OffsetFetchRequest(f"{group}old", [of.OffsetFetchRequestTopic("old", [0])])
    fetched = caller.ask(of, Api.OFFSET_FETCH, 1, fetch)
    resource = dc.DescribeConfigsResource(TOPIC_RESOURCE, "old", ["retention.ms"])
    described = caller.ask(dc, Api.DESCRIBE_CONFIGS, 0, dc.DescribeConfigsRequest([resource]))
    return (
        simple.topics[0].partitions[0].error_code,
        stored.topics[0].partitions[0].error_code,
        [
            (t.name, p.partition_index, p.committed_offset, p.metadata, p.error_code)
            for t in fetched.topics
            for p in t.partitions
        ],
        caller.ask(oc, Api.OFFSET_COMMIT, 0, replace(commit)).topics[0].partitions[0].error_code,
        caller.ask(of, Api.OFFSET_FETCH, 0, fetch).topics[0].partitions[0].error_code,
        [(c.name, c.is_default) for c in described.results[0].configs],
    )


def join(caller: Caller, group: str) -> tuple[str, int]:
    """The only member of a classic group, in the first version that names a rebalance timeout."""
    metadata = sub.ConsumerProtocolSubscription(["old"]).encode(0)
    protocol = jg.JoinGroupRequestProtocol("range", b"\0\0" + metadata)
    request = jg.JoinGroupRequest(group, 30_000, 30_000, "", None, "consumer", [protocol])
    joined = caller.ask(jg, Api.JOIN_GROUP, 1, request)
    assert joined.error_code == Code.NONE
    given = [sy.SyncGroupRequestAssignment(joined.member_id, b"\0\0\0\0\0\0\xff\xff\xff\xff")]
    sync = sy.SyncGroupRequest(group, joined.generation_id, joined.member_id, assignments=given)
    assert caller.ask(sy, Api.SYNC_GROUP, 1, sync).error_code == Code.NONE
    return joined.member_id, joined.generation_id


def check_new_versions(world: LocalKafka) -> None:
    told = [new_versions(caller, group) for group, caller in both(world)]
    assert told[0] == told[1]
    assert told[0][:3] == (Code.NONE, REBOOTSTRAP_REQUIRED, REBOOTSTRAP_REQUIRED)


def new_versions(caller: Caller, group: str) -> tuple[Any, ...]:
    """ApiVersions v5 to the cluster and node that are meant, and to others; DeleteGroups v3 of a group with a member
    and of none."""
    frame = caller.frame(Api.DESCRIBE_CLUSTER, 0, ds.DescribeClusterRequest().encode(0), True)
    cluster = ds.DescribeClusterResponse.decode(0, frame, response_body(frame, True))
    node = cluster.brokers[0].broker_id
    meant = ((cluster.cluster_id, node), ("another", node), (cluster.cluster_id, node + 1))
    codes = []
    for cluster_id, node_id in meant:
        body = av.ApiVersionsRequest("app", "1", cluster_id, node_id).encode(5)
        codes.append(av.ApiVersionsResponse.decode(5, caller.frame(Api.API_VERSIONS, 5, body, True), 8).error_code)
    join(caller, f"{group}new")
    request = dl.DeleteGroupsRequest([f"{group}new", f"{group}none"])
    results = caller.ask(dl, Api.DELETE_GROUPS, 3, request).results
    return (*codes, sorted((r.group_id.removeprefix(group), r.error_code, r.error_message) for r in results))
