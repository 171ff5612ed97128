"""Live share groups and streams groups go back to their brokers, over brokers in memory."""

from __future__ import annotations

from typing import Any

from sidecar.core.vocabulary.errors import Code
from sidecar.link.messages import GroupRules
from sidecar.wire.generated import share_group_heartbeat as sh
from sidecar.wire.generated import streams_group_heartbeat as th
from tests.coordinator.migration.moving import run, say
from tests.inprocess.house import Heard, House, HouseClient, until

SERVED: dict[str, Any] = {"front": {"share": True, "streams": True}}
GROUP = "g"
TOPOLOGY = th.Topology(1, [th.Subtopology("0", ["orders"])])
NO_ANSWERS_OF_OURS = (Code.UNKNOWN_MEMBER_ID, Code.NOT_COORDINATOR)


async def share_at_work(client: HouseClient) -> int:
    """Member m1 owns both partitions; its epoch."""
    req = sh.ShareGroupHeartbeatRequest(GROUP, "m1", 0, None, ["orders"])
    res = await client.ask(req, 1)
    while res.assignment is None or not res.assignment.topic_partitions:
        res = await client.ask(sh.ShareGroupHeartbeatRequest(GROUP, "m1", res.member_epoch, None, ["orders"]), 1)
    return int(res.member_epoch)


def streams_beat(epoch: int, tasks: list[int] | None, member_id: str = "m1") -> th.StreamsGroupHeartbeatRequest:
    req = th.StreamsGroupHeartbeatRequest(GROUP, member_id, epoch, 0)
    if tasks is not None:
        req.active_tasks = [th.TaskIds("0", tasks)] if tasks else []
        req.standby_tasks, req.warmup_tasks = [], []
    if epoch == 0:
        req.topology, req.process_id, req.rebalance_timeout_ms = TOPOLOGY, "p", 30_000
    return req


async def streams_at_work(client: HouseClient) -> int:
    res = await client.ask(streams_beat(0, []), 1)
    while not res.active_tasks:
        res = await client.ask(streams_beat(res.member_epoch, []), 1)
    acknowledged = await client.ask(streams_beat(res.member_epoch, [0, 1]), 1)
    return int(acknowledged.member_epoch)


def test_members_of_a_share_group_join_the_broker_under_the_same_share_state() -> None:
    async def test(house: House) -> None:
        heard, client = Heard(house.coordinator), await house.client()
        epoch = await share_at_work(client)
        there = house.brokers.share.group(GROUP)
        await until(lambda: there.members)
        await say(house, GROUP, managed="false")
        await until(lambda: heard.of(GroupRules)[-1].moved == {GROUP: False})
        assert not there.members and not house.state.partitions[0].groups
        res = await client.ask(sh.ShareGroupHeartbeatRequest(GROUP, "m1", epoch), 1)
        assert res.error_code == Code.UNKNOWN_MEMBER_ID, "GROUP_ID_NOT_FOUND would end it"
        joined = await client.ask(sh.ShareGroupHeartbeatRequest(GROUP, "m1", 0, None, ["orders"]), 1)
        assert joined.error_code == Code.NONE and list(there.members) == ["m1"]
        assert there.initialised == {("orders", 0), ("orders", 1)}
        assert house.metrics.value("moves", "broker", "done") == 1

    run(test, **SERVED)


def test_a_streams_group_goes_back_when_its_members_have_given_up_their_tasks() -> None:
    async def test(house: House) -> None:
        heard, client = Heard(house.coordinator), await house.client()
        epoch = await streams_at_work(client)
        await house.seated()
        await say(house, GROUP, managed="false")
        newcomer = await client.ask(streams_beat(0, [], "m2"), 1)
        assert newcomer.error_code == Code.NOT_COORDINATOR, "nobody joins any more"
        told = await client.ask(streams_beat(epoch, None), 1)
        while told.active_tasks is None:
            told = await client.ask(streams_beat(epoch, None), 1)
        assert not told.active_tasks and house.rules.managed(GROUP)
        given_up = await client.ask(streams_beat(epoch, []), 1)
        assert given_up.error_code == Code.NONE and house.brokers.seats[GROUP].state == "Stable"
        gone = await client.ask(streams_beat(given_up.member_epoch, None), 1)
        assert gone.error_code == Code.UNKNOWN_MEMBER_ID, "GROUP_ID_NOT_FOUND would end it"
        await until(lambda: heard.of(GroupRules)[-1].moved == {GROUP: False})
        assert house.brokers.seats[GROUP].state == "Empty" and not house.state.partitions[0].groups

    run(test, **SERVED)


def test_a_new_owner_goes_on_with_a_share_group_that_is_to_leave() -> None:
    """The former one was cut off before its placeholder had left, which only the record of the placeholder tells."""

    async def test(house: House) -> None:
        client = await house.client()
        epoch = await share_at_work(client)
        there = house.brokers.share.group(GROUP)
        await until(lambda: there.members)
        house.brokers.share.deaf = True
        await say(house, GROUP, managed="false")
        await until(lambda: not house.owner_of(GROUP).shard.groups[GROUP].members)  # type: ignore[union-attr]
        house.assign(2)
        house.brokers.share.deaf = False
        await house.own()
        await until(lambda: not house.rules.managed(GROUP))
        assert not there.members
        res = await client.ask(sh.ShareGroupHeartbeatRequest(GROUP, "m1", epoch), 1)
        assert res.error_code in NO_ANSWERS_OF_OURS

    run(test, **SERVED)


def test_a_new_owner_goes_on_with_a_streams_group_that_is_to_leave() -> None:
    async def test(house: House) -> None:
        client = await house.client()
        epoch = await streams_at_work(client)
        await house.seated()
        await say(house, GROUP, managed="false")
        await until(lambda: house.coordinator.moves.releases.under_way)
        house.assign(2)
        await until(lambda: not house.coordinator.moves.releases.under_way)
        await house.own()
        await until(lambda: house.coordinator.moves.releases.under_way)
        tasks: list[int] = [0, 1]
        while house.rules.managed(GROUP):
            told = await client.ask(streams_beat(epoch, tasks), 1)
            assert told.error_code in (Code.NONE, *NO_ANSWERS_OF_OURS)
            epoch = told.member_epoch or epoch
            tasks = [p for t in told.active_tasks for p in t.partitions] if told.active_tasks is not None else tasks
        assert house.brokers.seats[GROUP].state == "Empty"

    run(test, **SERVED)
