"""Live share groups and streams groups go back to their brokers, over brokers in memory."""

from __future__ import annotations

from typing import Any

from sidecar.core.vocabulary.errors import Code
from sidecar.link.messages import GroupRules
from sidecar.wire.generated import share_group_heartbeat as sh
from sidecar.wire.generated import streams_group_heartbeat as th
from tests.coordinator.migration.moving import run, say
from tests.coordinator.runtime.test_streams_groups import TOPOLOGY, Member, rounds
from tests.inprocess.house import Heard, House, HouseClient, until

SERVED: dict[str, Any] = {"front": {"share": True, "streams": True}}
GROUP = "g"


async def share_at_work(client: HouseClient) -> int:
    """Member m1 owns both partitions; its epoch."""
    res = await client.ask(sh.ShareGroupHeartbeatRequest(GROUP, "m1", 0, None, ["orders"]), 1)
    assert [t.partitions for t in res.assignment.topic_partitions] == [[0, 1]]
    return int(res.member_epoch)


async def streams_at_work(house: House) -> Member:
    """It has all tasks."""
    await house.topics(**{"in": 2, "app-r": 2, "app-c": 2})
    one = Member(await house.client(), "m1")
    await rounds(house, one)
    assert one.tasks == {"0": [0, 1], "1": [0, 1]}
    await house.all_joined()
    return one


def group_of(house: House) -> Any:
    shard = house.owner_of(GROUP).shard
    return None if shard is None else shard.groups.get(GROUP)


async def gives_up(house: House, one: Member) -> None:
    """Its tasks, one heartbeat after it has been told to; the one after that removes it."""
    await until(lambda: not any(group_of(house).target.values()))
    await one.beat()
    assert one.tasks == {} and house.rules.managed(GROUP)
    await one.beat()
    assert house.brokers.placeholders[GROUP].state == "Stable", "it may still commit"
    gone = await one.client.ask(th.StreamsGroupHeartbeatRequest(GROUP, one.name, one.epoch, 0), 1)
    assert gone.error_code == Code.UNKNOWN_MEMBER_ID, "GROUP_ID_NOT_FOUND would end it"
    await until(lambda: not house.rules.managed(GROUP))
    assert house.brokers.placeholders[GROUP].state == "Empty" and not house.state.partitions[0].groups


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
        one = await streams_at_work(house)
        await say(house, GROUP, managed="false")
        join = th.StreamsGroupHeartbeatRequest(GROUP, "m2", 0, -1, None, None, 30_000, TOPOLOGY, [], [], [], "p")
        newcomer = await (await house.client()).ask(join, 1)
        assert newcomer.error_code == Code.NOT_COORDINATOR, "nobody joins any more"
        await gives_up(house, one)
        assert house.metrics.value("moves", "broker", "done") == 1

    run(test, **SERVED)


def test_a_new_owner_goes_on_with_a_share_group_that_is_to_leave() -> None:
    """The former one was cut off before its placeholder had left, which only the record of the placeholder tells.
    Symptom: the new owner deleted that record before it had looked at it, and the placeholder stayed at the broker."""

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
        await until(lambda: not house.front._managed.managed(GROUP))
        assert not there.members
        res = await client.ask(sh.ShareGroupHeartbeatRequest(GROUP, "m1", epoch), 1)
        assert res.error_code == Code.UNKNOWN_MEMBER_ID

    run(test, **SERVED)


def test_a_new_owner_goes_on_with_a_streams_group_that_is_to_leave() -> None:
    async def test(house: House) -> None:
        one = await streams_at_work(house)
        await say(house, GROUP, managed="false")
        await until(lambda: house.coordinator.moves.releases.under_way)
        house.assign(2)
        await until(lambda: not house.coordinator.moves.releases.under_way)
        await house.own()
        before = group_of(house).epoch
        await until(lambda: group_of(house).epoch > before)
        await gives_up(house, one)

    run(test, **SERVED)
