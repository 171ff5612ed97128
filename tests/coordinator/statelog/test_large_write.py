"""Turns whose records are more than a batch, and requests that would make a single record greater than that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sidecar.coordinator.runtime import coordinator as module
from sidecar.core.consumer.group import ConsumerGroup
from sidecar.core.vocabulary.errors import Code
from sidecar.wire.apis import Api
from sidecar.wire.generated import join_group as jg
from tests.inprocess import clock
from tests.inprocess.house import House, HouseClient, until
from tests.inprocess.messages import assigned, beat, join

BATCH_BYTES = 4_000
MEMBERS = 40


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TICK_S", 0.005)


def run(test: Callable[[House], Coroutine[Any, Any, None]]) -> None:
    """A house of one partition whose batches are small, with the topic `orders`."""

    async def whole() -> None:
        async with House(partitions=1, batch_bytes=BATCH_BYTES, consumer={"assignment_interval_ms": 50}) as house:
            await house.topics(orders=2 * MEMBERS)
            await test(house)

    clock.run(whole())


async def settled(house: House, client: HouseClient) -> dict[str, tuple[int, Any]]:
    """Member id -> epoch and partitions, when nothing changes any more."""
    known: dict[str, tuple[int, Any]] = {}
    for i in range(MEMBERS):
        res = await client.ask(join("g", f"m{i}"), 1)
        assert res.error_code == Code.NONE
        known[f"m{i}"] = (res.member_epoch, assigned(res))
    for _ in range(20):
        await asyncio.sleep(0.06)
        before = dict(known)
        for m, (epoch, owned) in before.items():
            res = await client.ask(beat("g", m, epoch, owned), 1)
            assert res.error_code == Code.NONE
            known[m] = (res.member_epoch, assigned(res) if res.assignment is not None else owned)
        if known == before and sum(len(ps) for _, own in known.values() for ps in own.values()) == 2 * MEMBERS:
            return known
    raise AssertionError("it never settles")


def test_a_target_of_many_batches_is_given_out_and_taken_over_whole() -> None:
    """Symptom: MESSAGE_TOO_LARGE dropped the shard, the rebuilt one computed the same target, and so on."""

    async def test(house: House) -> None:
        client = await house.client()
        known = await settled(house, client)
        large = [b for b in house.brokers.log().batches if b.transactional]
        assert len(large) > 1 and house.brokers.count(Api.END_TXN) >= 1
        group = house.owner_of("g").shard.groups["g"]  # type: ignore[union-attr]
        assert isinstance(group, ConsumerGroup)
        await house.seated()
        house.assign(2)
        await house.own()
        for m, (epoch, owned) in known.items():
            res = await (await house.client()).ask(beat("g", m, epoch, owned), 1)
            assert (res.error_code, res.member_epoch) == (Code.NONE, epoch)
        heir = house.owner_of("g").shard.groups["g"]  # type: ignore[union-attr]
        assert isinstance(heir, ConsumerGroup)
        assert {m: heir.target.of(m) for m in heir.members} == {m: group.target.of(m) for m in group.members}
        assert heir.members == group.members and house.lines.events("error") == []

    run(test)


def test_a_member_that_says_more_than_a_record_holds_is_refused_and_the_group_goes_on() -> None:
    async def test(house: House) -> None:
        client = await house.client()
        epoch = (await client.ask(join("g", "m"), 1)).member_epoch
        attempt = house.service.owners[0].attempt
        res = await client.ask(join("g", "loud", [f"topic-{i:0100d}" for i in range(50)]), 1)
        assert res.error_code == Code.UNKNOWN_SERVER_ERROR and str(BATCH_BYTES) in res.error_message
        classic = jg.JoinGroupRequest(
            group_id="c",
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id="",
            protocol_type="consumer",
            protocols=[jg.JoinGroupRequestProtocol("range", b"x" * 2 * BATCH_BYTES)],
        )
        assert (await client.ask(classic, 9)).error_code == Code.UNKNOWN_SERVER_ERROR
        assert (await client.ask(beat("g", "m", epoch), 1)).error_code == Code.NONE
        assert house.service.owners[0].attempt == attempt and house.lines.events("error") == []
        await until(lambda: house.service.owners[0].idle)
        assert not any(b"loud" in r.key for r in house.brokers.log().records)

    run(test)
