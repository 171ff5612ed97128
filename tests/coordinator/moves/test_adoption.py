"""Groups are taken in from their brokers, over brokers in memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sidecar.core.vocabulary.errors import Code
from sidecar.kafka import native
from sidecar.kafka.native import Member, Native
from sidecar.wire.generated import join_group as jg
from tests.coordinator.moves.moving import Broker, beats, classic, run, store_settings
from tests.core.classic_client import subscription
from tests.inprocess.embedded_sidecar import EmbeddedClient, EmbeddedSidecar, until
from tests.inprocess.messages import beat, commit, join


async def joins(client: EmbeddedClient, member_id: str, group: str = "g") -> Any:
    protocols = [jg.JoinGroupRequestProtocol("range", subscription(["orders"], {"orders": (0,)}, 7))]
    return await client.ask(jg.JoinGroupRequest(group, 10_000, 60_000, member_id, None, "consumer", protocols), 9)


def test_a_classic_group_of_the_broker_is_taken_in_at_its_first_request(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(monkeypatch, classic("n1"))

    async def test(sidecar: EmbeddedSidecar) -> None:
        client = await sidecar.client()
        assert (await client.ask(beats("n1", 7), 4)).error_code == Code.REBALANCE_IN_PROGRESS
        assert broker.gone == ["n1"]
        done = await client.ask(commit("g", "n1", 7, "orders", {0: 5}), 8)
        assert done.topics[0].partitions[0].error_code == Code.NONE, "in the placeholder's name"
        joined = await joins(client, "n1")
        assert (joined.error_code, joined.member_id, joined.generation_id) == (Code.NONE, "n1", 8)
        assert sidecar.metrics.value("moves", "sidecar", "done") == 1
        assert broker.asked == 1

    run(test)


def test_a_group_that_nobody_is_in_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(monkeypatch, Native(native.NO_MEMBERS))

    async def test(sidecar: EmbeddedSidecar) -> None:
        client = await sidecar.client()
        for member in ("m1", "m2"):
            assert (await client.ask(join("g", member), 1)).error_code == Code.NONE
        assert broker.asked == 1

    run(test)


def test_a_member_that_the_broker_has_removed_before_its_group_came_joins_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Symptom: GROUP_ID_NOT_FOUND, and librdkafka's consumers of a group that came while they were silent are dead."""
    Broker(monkeypatch, Native(native.NO_MEMBERS))

    async def test(sidecar: EmbeddedSidecar) -> None:
        client = await sidecar.client()
        for epoch in (7, -1):
            assert (await client.ask(beat("g", "m1", epoch), 1)).error_code == Code.UNKNOWN_MEMBER_ID
        done = await client.ask(commit("g", "m1", 7, "orders", {0: 5}), 9)
        assert done.topics[0].partitions[0].error_code == Code.UNKNOWN_MEMBER_ID
        assert (await client.ask(join("g", "m1"), 1)).error_code == Code.NONE

    run(test)


@pytest.mark.parametrize(
    ("group", "problem"),
    [
        (Native(native.OTHER), "its kind is not known"),
        (Native(native.CONSUMER, "Stable", (Member("n1", None, "", "", classic=True),)), "members of the classic"),
    ],
)
def test_what_cannot_be_taken_in_is_refused(monkeypatch: pytest.MonkeyPatch, group: Native, problem: str) -> None:
    Broker(monkeypatch, group)

    async def test(sidecar: EmbeddedSidecar) -> None:
        await store_settings(sidecar, "theirs", managed="true")
        await until(lambda: sidecar.rules.overrides == {"theirs": "false"})
        assert problem in sidecar.lines.fields("group not taken in")["problem"]

    run(test)


def test_a_stable_consumer_group_goes_on_with_its_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        orders = sidecar.topic_id("orders")
        owned: dict[bytes, tuple[int, ...]] = {orders: (0, 1)}
        member = Member("n1", None, "app", "/h", names=("orders",), epoch=5, owned=owned, target=owned)
        group = Native(native.CONSUMER, "Stable", (member,), epoch=5, assignor="uniform", topics={orders: "orders"})
        broker = Broker(monkeypatch, group)
        client = await sidecar.client()
        reply = await client.ask(beat("g", "n1", 5), 1)
        assert (reply.error_code, reply.member_epoch, reply.assignment) == (Code.NONE, 5, None)
        assert broker.gone == ["n1"]

    run(test)


def test_what_was_found_at_the_broker_is_looked_for_anew_after_another_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the partition was another's, native members may have come."""
    broker = Broker(monkeypatch, Native(native.NO_MEMBERS))

    async def test(sidecar: EmbeddedSidecar) -> None:
        client = await sidecar.client()
        assert (await client.ask(beats("n1", 7), 4)).error_code == Code.UNKNOWN_MEMBER_ID
        assert (await client.ask(beats("n1", 7), 4)).error_code == Code.UNKNOWN_MEMBER_ID
        assert broker.asked == 1
        sidecar.assign(2)
        broker.group = classic("n1")
        await sidecar.own()
        assert (await client.ask(beats("n1", 7), 4)).error_code == Code.REBALANCE_IN_PROGRESS
        assert broker.asked == 2 and broker.gone == ["n1"]

    run(test)


def test_only_those_are_sent_away_from_the_broker_who_are_members_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another member may have joined at the broker since the group was described."""
    broker = Broker(monkeypatch, classic("n1"))

    async def test(sidecar: EmbeddedSidecar) -> None:
        client = await sidecar.client()
        assert (await client.ask(beats("n1", 7), 4)).error_code == Code.REBALANCE_IN_PROGRESS
        broker.gone.clear()
        broker.group = classic("n1", "stranger")
        sidecar.coordinator.moves.adoptions.remove_adopted("g")
        await until(lambda: not sidecar.coordinator.moves.adoptions.sent_away)
        assert broker.gone == ["n1"]

    run(test)


def test_whoever_is_ordered_back_while_its_broker_is_asked_is_not_taken_in(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(monkeypatch, classic("n1"))

    async def test(sidecar: EmbeddedSidecar) -> None:
        asked, told = asyncio.Event(), asyncio.Event()

        async def describe(conn: object, group_id: str, timeout_s: float) -> Native:
            asked.set()
            await told.wait()
            return broker.group

        monkeypatch.setattr(native, "describe", describe)
        client = await sidecar.client()
        client.post(beats("n1", 7), 4)
        await asyncio.wait_for(asked.wait(), 3)
        await store_settings(sidecar, "g", managed="false")
        await until(lambda: sidecar.rules.overrides == {"g": "false"})
        told.set()
        assert (await client.answer(beats("n1", 7), 4)).error_code == Code.NOT_COORDINATOR
        assert broker.gone == [] and not sidecar.state.partitions[0].groups

    run(test)


def test_nobody_joins_a_group_that_was_ordered_back_while_its_members_were_sent_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Symptom: the end of the adoption counted more than the later order. Members sent to the broker joined here
    again, for ever, and the group never went."""
    broker = Broker(monkeypatch, classic("n1"))

    async def test(sidecar: EmbeddedSidecar) -> None:
        broker.held_up = asyncio.Event()
        client = await sidecar.client()
        client.post(beats("n1", 7), 4)
        await until(lambda: sidecar.owner_of("g").has("g"))
        await store_settings(sidecar, "g", managed="false")
        broker.held_up.set()
        await until(lambda: not sidecar.coordinator.moves.adoptions.under_way)
        assert (await joins(await sidecar.client(), "")).error_code == Code.NOT_COORDINATOR

    run(test)
