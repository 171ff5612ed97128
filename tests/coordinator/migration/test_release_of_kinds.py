"""Live share groups and streams groups go back to their brokers, over brokers in memory."""

from __future__ import annotations

from typing import Any

import pytest

from sidecar.core.vocabulary.errors import Code
from sidecar.core.vocabulary.group_config import NOT_GIVEN_BACK
from sidecar.link.messages import GroupRules
from sidecar.wire.apis import Api
from sidecar.wire.generated import share_group_heartbeat as sh
from sidecar.wire.generated import streams_group_heartbeat as th
from tests.coordinator.migration.moving import at_work, run, say
from tests.coordinator.runtime.test_streams_groups import TOPOLOGY, Member, rounds
from tests.inprocess.broker import request_versions
from tests.inprocess.house import Heard, House, HouseClient, until
from tests.inprocess.messages import beat

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
        await until(lambda: not house.front.scopes.clients.managed(GROUP))
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


REFUSES = {
    "consumer": Api.CONSUMER_GROUP_DESCRIBE,
    "share": Api.SHARE_GROUP_DESCRIBE,
    "streams": Api.STREAMS_GROUP_DESCRIBE,
}
FEATURES = {"consumer": "group.version=1", "share": "share.version=1", "streams": "streams.version=1"}


async def members_of(house: House, kind: str) -> None:
    """The group has one member, which has all."""
    if kind == "consumer":
        await at_work(house, await house.client())
    elif kind == "share":
        await share_at_work(await house.client())
    else:
        await streams_at_work(house)


@pytest.mark.parametrize("how", ["it is off", "an older broker"])
@pytest.mark.parametrize("kind", REFUSES)
def test_a_group_whose_members_its_broker_would_refuse_stays(kind: str, how: str) -> None:
    """Symptom: members of a streams group that was given back to a broker with streams.version=0 died of
    UNSUPPORTED_VERSION, and so did consumers of the consumer protocol at brokers of Kafka 3."""

    async def test(house: House) -> None:
        await members_of(house, kind)
        if how == "an older broker":
            del house.brokers.versions[int(REFUSES[kind])]
        else:
            house.brokers.unserved.add(REFUSES[kind])
        epoch = group_of(house).epoch
        await say(house, GROUP, managed="false")
        await until(lambda: house.rules.overrides.get(GROUP) == "true")
        await until(lambda: not house.coordinator.moves.releases.under_way)
        assert house.stored.why(GROUP).startswith(NOT_GIVEN_BACK) and FEATURES[kind] in house.stored.why(GROUP)
        assert group_of(house).epoch == epoch, "its members have heard nothing of it"
        assert house.metrics.value("moves", "broker", "given up") == 1
        assert house.lines.events("error").count("group not given back") == 1
        # The brokers are told to serve it, and the order is given again.
        house.brokers.unserved.clear()
        house.brokers.versions[int(REFUSES[kind])] = request_versions(REFUSES[kind])
        house.cluster.close()
        await say(house, GROUP, managed="false")
        await until(lambda: group_of(house) is None or group_of(house).epoch > epoch)

    run(test, **SERVED)


@pytest.mark.parametrize("kind", REFUSES)
def test_a_group_without_members_goes_to_any_broker(kind: str) -> None:
    async def test(house: House) -> None:
        await members_of(house, kind)
        house.brokers.unserved.add(REFUSES[kind])
        client = await house.client()
        if kind == "consumer":
            await client.ask(beat(GROUP, "m1", -1), 1)
        elif kind == "share":
            await client.ask(sh.ShareGroupHeartbeatRequest(GROUP, "m1", -1), 1)
        else:
            await client.ask(th.StreamsGroupHeartbeatRequest(GROUP, "m1", -1), 1)
        await say(house, GROUP, managed="false")
        await until(lambda: not house.rules.managed(GROUP))
        assert house.metrics.value("moves", "broker", "done") == 1

    run(test, **SERVED)


def test_the_patterns_do_not_give_back_what_the_broker_refuses() -> None:
    async def test(house: House) -> None:
        house.brokers.unserved.add(REFUSES["streams"])
        await streams_at_work(house)
        await house.stored.put(
            "", {"/sidecar.groups.include": "nothing"}, "changed by a test", house.coordinator.append_unfenced
        )
        await until(lambda: house.rules.overrides.get(GROUP) == "true")
        await until(lambda: not house.coordinator.moves.releases.under_way)
        assert house.rules.wanted(GROUP) and not house.rules.matches(GROUP)

    run(test, **SERVED)
