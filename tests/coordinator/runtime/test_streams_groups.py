"""A streams group through a whole sidecar: its members speak the wire, its internal topics are made at the brokers, and
its commits go through the placeholder."""

from __future__ import annotations

import asyncio

from sidecar.core.streams.status_texts import StatusCode
from sidecar.core.vocabulary.errors import Code
from sidecar.wire.apis import Api
from sidecar.wire.generated import offset_commit as oc
from sidecar.wire.generated import streams_group_describe as sd
from sidecar.wire.generated import streams_group_heartbeat as st
from tests.inprocess.embedded_sidecar import EmbeddedClient, EmbeddedSidecar, run, until

TOPOLOGY = st.Topology(
    1,
    [
        st.Subtopology("0", ["in"], [], [], ["app-r"]),
        st.Subtopology("1", [], [], [st.TopicInfo("app-c", 0, 1)], [], [st.TopicInfo("app-r", 0, 1)]),
    ],
)
SERVED = {"front": {"streams": True}}


class Member:
    def __init__(self, client: EmbeddedClient, name: str, group: str = "g") -> None:
        self.client, self.name, self.group, self.epoch = client, name, group, 0
        self.tasks: dict[str, list[int]] = {}
        self.statuses: list[int] = []

    async def beat(self) -> st.StreamsGroupHeartbeatResponse:
        joins = self.epoch == 0
        owned = [] if joins else [st.TaskIds(s, ps) for s, ps in self.tasks.items()]
        request = st.StreamsGroupHeartbeatRequest(self.group, self.name, self.epoch, -1)
        request.active_tasks, request.standby_tasks, request.warmup_tasks = owned, [], []
        if joins:
            request.topology, request.process_id, request.rebalance_timeout_ms = TOPOLOGY, self.name, 30_000
        res: st.StreamsGroupHeartbeatResponse = await self.client.ask(request, 1)
        assert res.error_code == Code.NONE, res
        self.epoch, self.statuses = res.member_epoch, [s.status_code for s in res.status or ()]
        if res.active_tasks is not None:
            self.tasks = {t.subtopology_id: t.partitions for t in res.active_tasks}
        return res

    async def commit(self, partition: int) -> int:
        topics = [oc.OffsetCommitRequestTopic("in", partitions=[oc.OffsetCommitRequestPartition(partition, 7)])]
        request = oc.OffsetCommitRequest(self.group, self.epoch, self.name, None, topics=topics)
        return int((await self.client.ask(request, 9)).topics[0].partitions[0].error_code)


async def rounds(sidecar: EmbeddedSidecar, *members: Member) -> None:
    """Sends heartbeats until all members have had time to revoke tasks and to get new ones."""
    for _ in range(6):
        for m in members:
            await m.beat()
        await asyncio.sleep(1.1)


def test_a_group_from_its_first_member_to_its_commits() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        await sidecar.topics(**{"in": 2})
        one, two = Member(await sidecar.client(), "m1"), Member(await sidecar.client(), "m2")
        await one.beat()
        assert one.statuses == [StatusCode.ASSIGNMENT_DELAYED, StatusCode.MISSING_INTERNAL_TOPICS]
        await until(lambda: {"app-r", "app-c"} <= sidecar.brokers.topics.keys())
        assert [len(sidecar.brokers.topics[t].leaders) for t in ("app-r", "app-c")] == [2, 2]
        assert sidecar.brokers.count(Api.CREATE_TOPICS) == 1
        await sidecar.topics()
        await rounds(sidecar, one, two)
        assert sorted((s, p) for m in (one, two) for s, ps in m.tasks.items() for p in ps) == [
            ("0", 0),
            ("0", 1),
            ("1", 0),
            ("1", 1),
        ]
        assert one.epoch == two.epoch and not one.statuses and not two.statuses
        await sidecar.all_joined()
        (mine,), (other,) = one.tasks["0"], two.tasks["0"]
        assert await one.commit(mine) == Code.NONE
        assert await one.commit(other) == Code.STALE_MEMBER_EPOCH
        described = await one.client.ask(sd.StreamsGroupDescribeRequest(["g"]), 1)
        assert [m.member_id for m in described.groups[0].members] == ["m1", "m2"]

    run(test, **SERVED)


def test_after_a_takeover_members_go_on_with_their_tasks() -> None:
    """GROUP_ID_NOT_FOUND or UNKNOWN_SERVER_ERROR would end Kafka Streams for good."""

    async def test(sidecar: EmbeddedSidecar) -> None:
        await sidecar.topics(**{"in": 2, "app-r": 2, "app-c": 2})
        one, two = Member(await sidecar.client(), "m1"), Member(await sidecar.client(), "m2")
        await rounds(sidecar, one, two)
        had = [(m.epoch, m.tasks) for m in (one, two)]
        assert all(m.tasks for m in (one, two))
        sidecar.assign(-1)
        await until(lambda: not sidecar.service.serving())
        await sidecar.own()
        await rounds(sidecar, one, two)
        assert [(m.epoch, m.tasks) for m in (one, two)] == had

    run(test, **SERVED)


def test_a_topic_that_cannot_be_created_is_told_in_the_log_and_to_the_member() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        await sidecar.topics(**{"in": 2})
        sidecar.brokers.faults.fail(Api.CREATE_TOPICS, Code.TOPIC_AUTHORIZATION_FAILED)
        one = Member(await sidecar.client(), "m1")
        await one.beat()
        await until(lambda: "internal topics not created" in sidecar.lines.events("warning"))
        res = await one.beat()
        told = [s.status_detail for s in res.status or () if s.status_code == StatusCode.MISSING_INTERNAL_TOPICS]
        assert told and told[0].endswith("; Unauthorized to CREATE on topics app-c, app-r."), told

    run(test, **SERVED)


def test_steady_heartbeats_are_answered_by_the_front() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        await sidecar.topics(**{"in": 2, "app-r": 2, "app-c": 2})
        one = Member(await sidecar.client(), "m1")
        await rounds(sidecar, one)
        before = sidecar.metrics.value("steady")
        for _ in range(3):
            res = await one.client.ask(st.StreamsGroupHeartbeatRequest("g", "m1", one.epoch, 0), 1)
            assert (res.error_code, res.member_epoch, res.active_tasks) == (Code.NONE, one.epoch, None)
        assert sidecar.metrics.value("steady") - before >= 1

    run(test, **SERVED)
