"""Rebalances that an administrator asks for, over brokers in memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sidecar.coordinator.clock import now
from sidecar.core.runtime.events import Answer, Event
from sidecar.core.vocabulary import group_config as cf
from sidecar.core.vocabulary.errors import Code
from sidecar.kafka.cluster import ConnectionLost
from tests.coordinator.moves.moving import Broker, at_work, classic, run, store_settings
from tests.inprocess.embedded_sidecar import EmbeddedClient, EmbeddedSidecar, until
from tests.inprocess.messages import beat


def test_a_rebalance_is_forced_with_its_reason() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        client = await sidecar.client()
        epoch = await at_work(sidecar, client)
        group: Any = sidecar.owner_of("g").shard.groups["g"]  # type: ignore[union-attr]
        await store_settings(sidecar, "g", rebalance="lag is uneven")
        await until(lambda: group.epoch == epoch + 1)
        assert "lag is uneven (changed by a test" in sidecar.lines.fields("group epoch")["why"]

    run(test)


async def ordered(sidecar: EmbeddedSidecar, client: EmbeddedClient) -> int:
    """Member m1 is at work, and a rebalance is asked for while this sidecar, which owned the group, owns nothing."""
    epoch = await at_work(sidecar, client)
    sidecar.assign(2)
    await store_settings(sidecar, "g", rebalance="lag is uneven")
    await asyncio.sleep(0.02)
    assert sidecar.stored.value("g", cf.REBALANCE) == "lag is uneven"
    return epoch


def epoch_of(sidecar: EmbeddedSidecar) -> int:
    shard = sidecar.owner_of("g").shard
    assert shard is not None
    group: Any = shard.groups.get("g")
    return -1 if group is None else int(group.epoch)


def test_the_next_owner_does_the_rebalance_that_the_last_one_did_not_begin() -> None:
    """Symptom: `sidecar groups rebalance` waited 330 s for an owner that had died before its record was written."""

    async def test(sidecar: EmbeddedSidecar) -> None:
        client = await sidecar.client()
        epoch = await ordered(sidecar, client)
        await sidecar.own()
        await until(lambda: sidecar.stored.value("g", cf.REBALANCE) is None)
        assert epoch_of(sidecar) == epoch + 1
        assert sidecar.lines.fields("group epoch")["why"].startswith("lag is uneven (changed by a test, 20")

    run(test)


def test_the_next_owner_does_not_repeat_a_rebalance_that_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        client = await sidecar.client()
        epoch = await at_work(sidecar, client)
        forced = sidecar.coordinator.moves.rebalance_orders
        store = forced._store

        async def fails(group_id: str, values: dict[str, str | None], why: str) -> None:
            raise ConnectionLost("the owner dies before it can say that it is done")

        monkeypatch.setattr(forced, "_store", fails)
        await store_settings(sidecar, "g", rebalance="lag is uneven")
        await until(lambda: epoch_of(sidecar) == epoch + 1)
        sidecar.assign(2)
        await until(lambda: not forced._at_work)
        monkeypatch.setattr(forced, "_store", store)
        await sidecar.own()
        await until(lambda: sidecar.stored.value("g", cf.REBALANCE) is None)
        assert (await client.ask(beat("g", "m1", epoch), 1)).error_code == Code.NONE
        assert epoch_of(sidecar) == epoch + 1

    run(test)


def test_an_order_that_the_next_owner_carried_out_is_not_repeated_when_the_group_comes_back() -> None:
    """Symptom: an owner that was trying when it lost the group kept the order, and rebalanced the group days later."""

    async def test(sidecar: EmbeddedSidecar) -> None:
        client = await sidecar.client()
        epoch = await at_work(sidecar, client)
        forced = sidecar.coordinator.moves.rebalance_orders
        ask = forced._ask

        async def refused(event: Event) -> Answer:
            return Answer(Code.NOT_COORDINATOR)

        forced._ask = refused
        await store_settings(sidecar, "g", rebalance="lag is uneven")
        await until(lambda: bool(forced._at_work))
        sidecar.assign(2)
        await store_settings(sidecar, "g", rebalance=None)  # the next owner has done it
        await until(lambda: sidecar.stored.value("g", cf.REBALANCE) is None and not forced._at_work)
        forced._ask = ask
        await sidecar.own()
        forced.tick()
        assert not forced._at_work
        assert (await client.ask(beat("g", "m1", epoch), 1)).error_code == Code.NONE
        assert epoch_of(sidecar) == epoch

    run(test)


def test_an_order_for_a_group_that_cannot_be_read_is_logged_once_and_tried_seldom() -> None:
    """Symptom: the log had two lines a second of one order, for ever, since the core refused it."""

    async def test(sidecar: EmbeddedSidecar) -> None:
        client = await sidecar.client()
        epoch = await at_work(sidecar, client)
        forced = sidecar.coordinator.moves.rebalance_orders
        ask, tries = forced._ask, 0

        async def refused(event: Event) -> Answer:
            nonlocal tries
            tries += 1
            return Answer(Code.COORDINATOR_NOT_AVAILABLE)

        forced._ask = refused
        await store_settings(sidecar, "g", rebalance="lag is uneven")
        ordered_ms = now().mono_ms
        await until(lambda: now().mono_ms > ordered_ms + 59_000)
        assert sidecar.lines.events().count("rebalance asked for") == 1 and 5 < tries < 12
        forced._ask = ask
        await until(lambda: sidecar.stored.value("g", cf.REBALANCE) is None)
        assert epoch_of(sidecar) == epoch + 1

    run(test)


def test_each_order_is_one_rebalance_and_none_is_left_for_a_group_that_is_not_there() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        client = await sidecar.client()
        epoch = await at_work(sidecar, client)
        for n in (1, 2):
            await store_settings(sidecar, "g", rebalance="the same reason")
            await until(lambda n=n: epoch_of(sidecar) == epoch + n)  # type: ignore[misc]
            said_ms = now().wall_ms
            await until(lambda at=said_ms: now().wall_ms > at)  # type: ignore[misc] # an order is told by its time
        await store_settings(sidecar, "nobody", rebalance="of nothing")
        await until(lambda: sidecar.stored.groups_with(cf.REBALANCE) == [])
        assert epoch_of(sidecar) == epoch + 2

    run(test)


def test_a_rebalance_of_a_group_that_is_being_taken_in_waits_until_it_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(monkeypatch, classic("n1"))
    broker.silent = True

    async def test(sidecar: EmbeddedSidecar) -> None:
        await store_settings(sidecar, "theirs", managed="true")
        await until(lambda: broker.asked > 1)
        await store_settings(sidecar, "theirs", rebalance="lag is uneven")
        await asyncio.sleep(0.1)
        assert sidecar.stored.groups_with(cf.REBALANCE) == ["theirs"]
        broker.silent = False
        await until(lambda: sidecar.stored.groups_with(cf.REBALANCE) == [])
        assert broker.gone == ["n1"]

    run(test)
