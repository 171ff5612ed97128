"""Faults of groups, their members and assignors, and of a sidecar with small limits, and the alerts that they raise."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from sidecar.core.vocabulary.errors import Code
from sidecar.drill.local import Broker
from sidecar.drill.processes import wait_until
from sidecar.kafka.net import BrokerConnection, ConnectionLost
from sidecar.kafka.placeholder_requests import INSTANCE_ID
from sidecar.wire.generated import consumer_group_heartbeat as ch
from sidecar.wire.generated import join_group as jg
from sidecar.wire.generated import leave_group as lg
from sidecar.wire.generated import offset_commit as oc
from sidecar.wire.generated import offset_delete as od
from sidecar.wire.generated import sync_group as sg
from tests.clients.test_placeholders import at_broker
from tests.clients.wire import join_request, owner_node, talk
from tests.see.ground import CLASSIC, MODERN, TOPIC, Ground

pytestmark = [
    pytest.mark.tier("nightly"),
    pytest.mark.timeout(240),
    pytest.mark.needs("prometheus", "promtool"),
]
BROKEN = "tests.see.broken_handler"
MANY, MORE = 36, 14
"""Joins that wait, of the 40 that may; connections beside theirs, of the 60 that may be."""


def test_commits_of_strangers_are_refused(ground: Ground) -> None:
    admin = AdminClient({"bootstrap.servers": ground.kafka.bootstrap, "log_level": 3})
    with ground.fault("strangers commit", "SidecarCommitsRefused") as fault:
        refused, end = 0, time.monotonic() + 60
        while not fault.fired():
            assert time.monotonic() < end, f"after {refused} refused commits"
            offsets = [ConsumerGroupTopicPartitions(MODERN, [TopicPartition(TOPIC, 0, 1)])]
            for future in admin.alter_consumer_group_offsets(offsets).values():
                with pytest.raises(KafkaException):
                    raise_of(future.result(timeout=20))
                refused += 1


def raise_of(result: ConsumerGroupTopicPartitions) -> None:
    """The error may be that of a partition."""
    for p in result.topic_partitions or ():
        if p.error is not None:
            raise KafkaException(p.error)


def beat(group: str, member: str, epoch: int) -> ch.ConsumerGroupHeartbeatRequest:
    return ch.ConsumerGroupHeartbeatRequest(group, member, epoch)


def test_a_group_rebalances_again_and_again(ground: Ground) -> None:
    """The sidecars remember a group's rebalances for ten minutes, or until the group is deleted."""
    group = "managed-storm"

    async def storm(conn: BrokerConnection) -> None:
        for i in range(12):
            member = f"comes-and-goes-{i}"
            await conn.request(ch, "ConsumerGroupHeartbeat", join_request(group, member, [TOPIC]))
            await conn.request(ch, "ConsumerGroupHeartbeat", beat(group, member, -1))

    with ground.fault("storm", "SidecarRebalanceStorm") as fault:
        talk(ground.kafka, storm, owner_node(ground.kafka, group))
        fault.until_firing()
        named = ground.prometheus.get("query", query="sidecar_group_rebalances > 20")["result"]
        assert [r["metric"]["consumergroup"] for r in named] == [group]
        admin = AdminClient({"bootstrap.servers": ground.kafka.bootstrap, "log_level": 3})
        for future in admin.delete_consumer_groups([group]).values():
            future.result(timeout=20)


def test_a_member_does_not_give_up_its_partitions(ground: Ground) -> None:
    group = "managed-keeps"

    async def keep(conn: BrokerConnection) -> None:
        first = await conn.request(ch, "ConsumerGroupHeartbeat", join_request(group, "keeps", [TOPIC]))
        await conn.request(ch, "ConsumerGroupHeartbeat", join_request(group, "waits", [TOPIC]))
        begun = time.monotonic()
        while time.monotonic() < begun + 12:  # the bound is 5 s here
            await conn.request(ch, "ConsumerGroupHeartbeat", beat(group, "keeps", first.member_epoch))
            await asyncio.sleep(0.5)
        for member in ("keeps", "waits"):
            await conn.request(ch, "ConsumerGroupHeartbeat", beat(group, member, -1))

    with ground.fault("keeps its partitions", "SidecarGroupNotSettling") as fault:
        talk(ground.kafka, keep, owner_node(ground.kafka, group))
        fault.until_firing()


def test_a_plug_in_fails(ground: Ground) -> None:
    group = "managed-broken"

    async def ask(conn: BrokerConnection) -> None:
        join = join_request(group, "asks", [TOPIC])
        join.server_assignor = "broken"
        await conn.request(ch, "ConsumerGroupHeartbeat", join)

    async def leave(conn: BrokerConnection) -> None:
        await conn.request(ch, "ConsumerGroupHeartbeat", beat(group, "asks", -1))

    with ground.fault("a plug-in fails", "SidecarAssignorFails") as fault:
        node = owner_node(ground.kafka, group)
        talk(ground.kafka, ask, node)
        fault.until_firing()
        talk(ground.kafka, leave, node)


def test_a_native_member_sits_where_the_placeholder_should(ground: Ground) -> None:
    """A client has removed the placeholder at the broker by its instance id, and joined there past the sidecars."""
    group = "managed-beside"
    node = owner_node(ground.kafka, group)
    place = oc.OffsetCommitRequestTopic(TOPIC, partitions=[oc.OffsetCommitRequestPartition(0, 1)])

    async def ours(conn: BrokerConnection) -> int:
        res = await conn.request(ch, "ConsumerGroupHeartbeat", join_request(group, "ours", [TOPIC]))
        return int(res.member_epoch)

    async def commit(conn: BrokerConnection) -> int:
        req = oc.OffsetCommitRequest(group, epoch, "ours", topics=[place])
        res = await conn.request(oc, "OffsetCommit", req, high=9, timeout_s=30)
        return int(res.topics[0].partitions[0].error_code)

    async def native(conn: BrokerConnection) -> str:
        identity = lg.LeaveGroupRequest(group, members=[lg.MemberIdentity("", INSTANCE_ID)])
        await conn.request(lg, "LeaveGroup", identity, high=5)
        protocols = [jg.JoinGroupRequestProtocol("range", b"")]
        req = jg.JoinGroupRequest(group, 30_000, 30_000, "", None, "consumer", protocols)
        return str((await conn.request(jg, "JoinGroup", req, high=3)).member_id)

    async def leave(conn: BrokerConnection) -> None:
        await conn.request(lg, "LeaveGroup", lg.LeaveGroupRequest(group, member), high=2)

    epoch = talk(ground.kafka, ours, node)
    assert talk(ground.kafka, commit, node) == Code.NONE
    with ground.fault("a native member", "SidecarPlaceholdersMissing") as fault:
        member = at_broker(ground.kafka, native, group)
        assert talk(ground.kafka, commit, node) == Code.COORDINATOR_LOAD_IN_PROGRESS
        fault.until_firing()
        at_broker(ground.kafka, leave, group)
    left = beat(group, "ours", -1)
    talk(ground.kafka, lambda c: c.request(ch, "ConsumerGroupHeartbeat", left), node)


# ---- small limits ---------------------------------------------------------------------------------------------------
def test_a_sidecar_has_small_limits_and_a_bug(ground: Ground) -> None:
    env = {
        "SIDECAR_EXPORTER__SERIES": "3",
        "SIDECAR_EXPORTER__INTERVAL_MS": "60000",
        "SIDECAR_LIMITS__CONNECTIONS": "60",
        "SIDECAR_LIMITS__CONNECTIONS_PER_IP": "60",
        "SIDECAR_LIMITS__PARKED_REPLIES": "40",
    }
    fires = ("SidecarExporterCut", "SidecarExporterStale", "SidecarConnections", "SidecarParkedReplies")
    node = ground.owner(CLASSIC)
    with ground.replaced_sidecar("small limits", node, env, *fires, "SidecarHandlerFault", main=BROKEN) as fault:
        ground.kafka.wait_ready()
        wait_until("its groups to come back", lambda: ground.owner(CLASSIC) == node, 30)
        with crowd(ground, node):
            fault.until_firing(*fires)
        with pytest.raises(ConnectionLost):
            delete = od.OffsetDeleteRequest(CLASSIC)
            talk(ground.kafka, lambda c: c.request(od, "OffsetDelete", delete), ground.kafka.nodes.index(node))
        fault.until_firing()


@contextmanager
def crowd(ground: Ground, node: Broker) -> Iterator[None]:
    """Many members wait for the first one to join again; each has a connection, and there are some more."""
    group = next(g for g in (f"managed-crowd-{i}" for i in range(1_000)) if ground.owner(g) == node)
    stopped = threading.Event()
    work = partial(join_and_wait, group=group, port=node.sidecar_port, stopped=stopped)
    thread = threading.Thread(target=talk, args=(ground.kafka, work, ground.kafka.nodes.index(node)))
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join(60)


async def join_and_wait(first: BrokerConnection, group: str, port: int, stopped: threading.Event) -> None:
    protocols = [jg.JoinGroupRequestProtocol("range", b"")]

    async def join(conn: BrokerConnection, member: str = "") -> jg.JoinGroupResponse:
        req = jg.JoinGroupRequest(group, 60_000, 60_000, member, None, "consumer", protocols)
        res: jg.JoinGroupResponse = await conn.request(jg, "JoinGroup", req, high=3, timeout_s=90)
        return res

    async def leave(conn: BrokerConnection, member: str) -> None:
        await conn.request(lg, "LeaveGroup", lg.LeaveGroupRequest(group, member), high=2)

    joined = await join(first)
    await first.request(sg, "SyncGroup", sg.SyncGroupRequest(group, joined.generation_id, joined.member_id), high=3)
    conns = [await BrokerConnection.open("127.0.0.1", port, "test") for _ in range(MANY)]
    with suppress(ConnectionLost):  # the limit: the world's own clients are some, too
        for _ in range(MORE):
            conns.append(await BrokerConnection.open("127.0.0.1", port, "test"))
    waiting = [asyncio.ensure_future(join(conn)) for conn in conns[:MANY]]
    while not stopped.is_set():
        await asyncio.sleep(0.2)
    await join(first, joined.member_id)
    for conn, joining in zip(conns, waiting, strict=False):
        await leave(conn, (await joining).member_id)
    await leave(first, joined.member_id)
    for conn in conns:
        conn.close()
