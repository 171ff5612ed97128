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
from tests.coordinator.moves.moving import at_work, run, store_settings
from tests.coordinator.runtime.test_streams_groups import TOPOLOGY, Member, rounds
from tests.inprocess.broker import request_versions
from tests.inprocess.embedded_sidecar import EmbeddedClient, EmbeddedSidecar, RecordingFront, until
from tests.inprocess.messages import beat

SERVED: dict[str, Any] = {"front": {"share": True, "streams": True}}
GROUP = "g"


async def share_at_work(client: EmbeddedClient) -> int:
    """Member m1 owns both partitions; its epoch."""
    res = await client.ask(sh.ShareGroupHeartbeatRequest(GROUP, "m1", 0, None, ["orders"]), 1)
    assert [t.partitions for t in res.assignment.topic_partitions] == [[0, 1]]
    return int(res.member_epoch)


async def streams_at_work(sidecar: EmbeddedSidecar) -> Member:
    """Returns a streams member with all tasks."""
    await sidecar.topics(**{"in": 2, "app-r": 2, "app-c": 2})
    one = Member(await sidecar.client(), "m1")
    await rounds(sidecar, one)
    assert one.tasks == {"0": [0, 1], "1": [0, 1]}
    await sidecar.all_joined()
    return one


def group_of(sidecar: EmbeddedSidecar) -> Any:
    shard = sidecar.owner_of(GROUP).shard
    return None if shard is None else shard.groups.get(GROUP)


async def revoke_all_tasks(sidecar: EmbeddedSidecar, one: Member) -> None:
    """The member revokes its tasks one heartbeat after the target is empty; the next heartbeat removes it."""
    await until(lambda: not any(group_of(sidecar).target.values()))
    await one.beat()
    assert one.tasks == {} and sidecar.rules.managed(GROUP)
    await one.beat()
    assert sidecar.brokers.placeholders[GROUP].state == "Stable", "it may still commit"
    gone = await one.client.ask(th.StreamsGroupHeartbeatRequest(GROUP, one.name, one.epoch, 0), 1)
    assert gone.error_code == Code.UNKNOWN_MEMBER_ID, "GROUP_ID_NOT_FOUND would end it"
    await until(lambda: not sidecar.rules.managed(GROUP))
    assert sidecar.brokers.placeholders[GROUP].state == "Empty" and not sidecar.state.partitions[0].groups


def test_members_of_a_share_group_join_the_broker_under_the_same_share_state() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        front, client = RecordingFront(sidecar.coordinator), await sidecar.client()
        epoch = await share_at_work(client)
        there = sidecar.brokers.share.group(GROUP)
        await until(lambda: there.members)
        await store_settings(sidecar, GROUP, managed="false")
        await until(lambda: front.of(GroupRules)[-1].moved == {GROUP: False})
        assert not there.members and not sidecar.state.partitions[0].groups
        res = await client.ask(sh.ShareGroupHeartbeatRequest(GROUP, "m1", epoch), 1)
        assert res.error_code == Code.UNKNOWN_MEMBER_ID, "GROUP_ID_NOT_FOUND would end it"
        joined = await client.ask(sh.ShareGroupHeartbeatRequest(GROUP, "m1", 0, None, ["orders"]), 1)
        assert joined.error_code == Code.NONE and list(there.members) == ["m1"]
        assert there.initialised == {("orders", 0), ("orders", 1)}
        assert sidecar.metrics.value("moves", "broker", "done") == 1

    run(test, **SERVED)


def test_a_streams_group_goes_back_when_its_members_have_given_up_their_tasks() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        one = await streams_at_work(sidecar)
        await store_settings(sidecar, GROUP, managed="false")
        join = th.StreamsGroupHeartbeatRequest(GROUP, "m2", 0, -1, None, None, 30_000, TOPOLOGY, [], [], [], "p")
        newcomer = await (await sidecar.client()).ask(join, 1)
        assert newcomer.error_code == Code.NOT_COORDINATOR, "nobody joins any more"
        await revoke_all_tasks(sidecar, one)
        assert sidecar.metrics.value("moves", "broker", "done") == 1

    run(test, **SERVED)


def test_a_new_owner_goes_on_with_a_share_group_that_is_to_leave() -> None:
    """The former one was cut off before its placeholder had left, which only the record of the placeholder tells.
    Symptom: the new owner deleted that record before it had looked at it, and the placeholder stayed at the broker."""

    async def test(sidecar: EmbeddedSidecar) -> None:
        client = await sidecar.client()
        epoch = await share_at_work(client)
        there = sidecar.brokers.share.group(GROUP)
        await until(lambda: there.members)
        sidecar.brokers.share.deaf = True
        await store_settings(sidecar, GROUP, managed="false")
        await until(lambda: not sidecar.owner_of(GROUP).shard.groups[GROUP].members)  # type: ignore[union-attr]
        sidecar.assign(2)
        sidecar.brokers.share.deaf = False
        await sidecar.own()
        await until(lambda: not sidecar.front.scopes.clients.managed(GROUP))
        assert not there.members
        res = await client.ask(sh.ShareGroupHeartbeatRequest(GROUP, "m1", epoch), 1)
        assert res.error_code == Code.UNKNOWN_MEMBER_ID

    run(test, **SERVED)


def test_a_new_owner_goes_on_with_a_streams_group_that_is_to_leave() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        one = await streams_at_work(sidecar)
        await store_settings(sidecar, GROUP, managed="false")
        await until(lambda: sidecar.coordinator.moves.releases.under_way)
        sidecar.assign(2)
        await until(lambda: not sidecar.coordinator.moves.releases.under_way)
        await sidecar.own()
        await until(lambda: sidecar.owner_of(GROUP).shard._turn.soft_of(GROUP).releasing)  # type: ignore[union-attr]
        await revoke_all_tasks(sidecar, one)

    run(test, **SERVED)


REFUSES = {
    "consumer": Api.CONSUMER_GROUP_DESCRIBE,
    "share": Api.SHARE_GROUP_DESCRIBE,
    "streams": Api.STREAMS_GROUP_DESCRIBE,
}
FEATURES = {"consumer": "group.version=1", "share": "share.version=1", "streams": "streams.version=1"}


async def members_of(sidecar: EmbeddedSidecar, kind: str) -> None:
    """The group has one member, which has all."""
    if kind == "consumer":
        await at_work(sidecar, await sidecar.client())
    elif kind == "share":
        await share_at_work(await sidecar.client())
    else:
        await streams_at_work(sidecar)


@pytest.mark.parametrize("how", ["it is off", "an older broker"])
@pytest.mark.parametrize("kind", REFUSES)
def test_a_group_whose_members_its_broker_would_refuse_stays(kind: str, how: str) -> None:
    """Symptom: members of a streams group that was given back to a broker with streams.version=0 died of
    UNSUPPORTED_VERSION, and so did consumers of the consumer protocol at brokers of Kafka 3."""

    async def test(sidecar: EmbeddedSidecar) -> None:
        await members_of(sidecar, kind)
        if how == "an older broker":
            del sidecar.brokers.versions[int(REFUSES[kind])]
        else:
            sidecar.brokers.unserved.add(REFUSES[kind])
        epoch = group_of(sidecar).epoch
        await store_settings(sidecar, GROUP, managed="false")
        await until(lambda: sidecar.rules.overrides.get(GROUP) == "true")
        await until(lambda: not sidecar.coordinator.moves.releases.under_way)
        assert sidecar.stored.why(GROUP).startswith(NOT_GIVEN_BACK) and FEATURES[kind] in sidecar.stored.why(GROUP)
        assert group_of(sidecar).epoch == epoch, "its members have heard nothing of it"
        assert sidecar.metrics.value("moves", "broker", "given up") == 1
        assert sidecar.lines.events("error").count("group not given back") == 1
        # The brokers are told to serve it, and the order is given again.
        sidecar.brokers.unserved.clear()
        sidecar.brokers.versions[int(REFUSES[kind])] = request_versions(REFUSES[kind])
        sidecar.cluster.close()
        await store_settings(sidecar, GROUP, managed="false")
        await until(lambda: group_of(sidecar) is None or group_of(sidecar).epoch > epoch)

    run(test, **SERVED)


@pytest.mark.parametrize("kind", REFUSES)
def test_a_group_without_members_goes_to_any_broker(kind: str) -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        await members_of(sidecar, kind)
        sidecar.brokers.unserved.add(REFUSES[kind])
        client = await sidecar.client()
        if kind == "consumer":
            await client.ask(beat(GROUP, "m1", -1), 1)
        elif kind == "share":
            await client.ask(sh.ShareGroupHeartbeatRequest(GROUP, "m1", -1), 1)
        else:
            await client.ask(th.StreamsGroupHeartbeatRequest(GROUP, "m1", -1), 1)
        await store_settings(sidecar, GROUP, managed="false")
        await until(lambda: not sidecar.rules.managed(GROUP))
        assert sidecar.metrics.value("moves", "broker", "done") == 1

    run(test, **SERVED)


def test_the_patterns_do_not_give_back_what_the_broker_refuses() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        sidecar.brokers.unserved.add(REFUSES["streams"])
        await streams_at_work(sidecar)
        await sidecar.stored.put(
            "", {"/sidecar.groups.include": "nothing"}, "changed by a test", sidecar.coordinator.append_unfenced
        )
        await until(lambda: sidecar.rules.overrides.get(GROUP) == "true")
        await until(lambda: not sidecar.coordinator.moves.releases.under_way)
        assert sidecar.rules.wanted(GROUP) and not sidecar.rules.matches(GROUP)

    run(test, **SERVED)
