"""Groups that are not stable at their broker are waited for, over brokers in memory."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from sidecar.coordinator.clock import now
from sidecar.coordinator.moves.unstable_groups import Patience
from sidecar.core.vocabulary.errors import Code
from sidecar.kafka import native
from sidecar.kafka.cluster import ConnectionLost
from sidecar.kafka.native import Native
from tests.coordinator.moves.moving import QUICK, Broker, beats, classic, run, store_settings
from tests.inprocess.embedded_sidecar import EmbeddedSidecar, until
from tests.inprocess.messages import join


def test_a_group_that_is_not_stable_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(monkeypatch, classic("n1", state="PreparingRebalance"))

    async def test(sidecar: EmbeddedSidecar) -> None:
        client = await sidecar.client()
        assert (await client.ask(join("g", "m1"), 1)).error_code == Code.NOT_COORDINATOR
        assert sidecar.rules.overrides == {"g": "later"} and not sidecar.rules.managed("g")
        broker.group = classic("n1")
        await until(lambda: sidecar.rules.overrides == {}, 3)
        assert (await client.ask(beats("n1", 7), 4)).error_code == Code.REBALANCE_IN_PROGRESS

    run(test)


@pytest.mark.parametrize("limit_s", [0.0, 300.0])
def test_what_is_said_while_the_broker_is_asked_counts(monkeypatch: pytest.MonkeyPatch, limit_s: float) -> None:
    """The broker says that the group is stable, or it has been waited for long enough; meanwhile an administrator has
    said something else, which must stand."""
    broker = Broker(monkeypatch, classic("n1", state="PreparingRebalance"))
    word = "true" if limit_s == 0.0 else "false"

    async def test(sidecar: EmbeddedSidecar) -> None:
        await store_settings(sidecar, "theirs", managed="true")
        await until(lambda: sidecar.rules.overrides == {"theirs": "later"}, 3)
        said = asyncio.Event()

        async def describe(conn: object, group_id: str, timeout_s: float) -> Native:
            if sidecar.rules.overrides.get(group_id) == "later":
                broker.group = classic("n1")
                await store_settings(sidecar, group_id, managed=word)
                await until(lambda: sidecar.rules.overrides == {"theirs": word}, 3)
                said.set()
            return broker.group

        monkeypatch.setattr(native, "describe", describe)
        await asyncio.wait_for(said.wait(), 3)
        await until(lambda: not sidecar.coordinator.moves.unstable.watched, 3)
        await asyncio.sleep(0.05)
        assert sidecar.rules.overrides == {"theirs": word}
        assert sidecar.stored.why("theirs") == "changed by a test"

    run(test, moves=replace(QUICK, patience=Patience(limit_s, look_s=0.01)))


def test_what_never_becomes_stable_stays_with_the_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    Broker(monkeypatch, classic("n1", state="PreparingRebalance"))

    async def test(sidecar: EmbeddedSidecar) -> None:
        await store_settings(sidecar, "theirs", managed="true")
        await until(lambda: sidecar.rules.overrides == {"theirs": "false"}, 3)
        assert "does not become stable" in sidecar.lines.fields("group not taken in")["problem"]
        assert sidecar.metrics.value("moves", "sidecar", "given up") == 1
        assert "not taken in" in sidecar.stored.why("theirs")

    run(test)


async def later(ms: int) -> None:
    until_ms = now().mono_ms + ms
    await until(lambda: now().mono_ms > until_ms)


def test_a_second_order_has_the_whole_patience_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: the first order was taken back before its verdict was written; a later one was given up at once."""
    Broker(monkeypatch, classic("n1", state="PreparingRebalance"))

    async def test(sidecar: EmbeddedSidecar) -> None:
        verdicts, tries = sidecar.coordinator.moves.unstable._verdicts, 0
        store = verdicts._store

        async def lost(group_id: str, values: dict[str, str | None], why: str) -> None:
            nonlocal tries
            tries += 1
            raise ConnectionLost("not written")

        monkeypatch.setattr(verdicts, "_store", lost)
        await store_settings(sidecar, "theirs", managed="true")
        await until(lambda: tries > 0, 3)
        await store_settings(sidecar, "theirs", managed="false")
        await until(lambda: not sidecar.coordinator.moves.adoptions.under_way, 3)
        await later(2_000)
        monkeypatch.setattr(verdicts, "_store", store)
        await store_settings(sidecar, "theirs", managed="true")
        await until(lambda: sidecar.rules.overrides == {"theirs": "later"}, 3)
        await later(1_000)
        assert sidecar.rules.overrides == {"theirs": "later"}

    run(test, moves=replace(QUICK, patience=Patience(limit_s=2.0, look_s=0.01)))
