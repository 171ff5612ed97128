"""Topics and leaders are asked for now and then, and often while something waits."""

from __future__ import annotations

import asyncio
import time

import pytest

from sidecar.coordinator.runtime import metadata_refresh
from sidecar.core.vocabulary.errors import Code
from sidecar.wire.apis import Api
from tests.coordinator.joined import committed, joined
from tests.coordinator.runtime.watched import Bench, run, shorten_pauses
from tests.inprocess.broker import OFFSETS, STATE
from tests.inprocess.embedded_sidecar import until
from tests.inprocess.messages import beat


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_pauses(monkeypatch)


def test_topics_reach_the_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        await until(lambda: b.sidecar.service.serving() == [0, 1])
        b.brokers.add_topic("orders", 3)
        await until(lambda: "orders" in b.sidecar.service.owners[0].image.by_name)

    run(test, monkeypatch)


def test_leaders_are_asked_for_often_while_one_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: after the death of a broker commits were taken 1 to 4 s later than at Kafka's own coordinator. Cause:
    the new leader of the offsets was found at the next turn of a two-second round."""
    monkeypatch.setattr(metadata_refresh, "QUICK_S", 0.01)

    async def test(b: Bench) -> None:
        await until(lambda: b.sidecar.service.serving() == [0, 1])
        b.brokers.topics[OFFSETS].leaders[1] = 1
        await asyncio.sleep(0.1)
        assert b.views()[-1].leaders == (1, 2)
        b.sidecar.cluster._unreached_s[2] = time.monotonic()
        await until(lambda: b.views()[-1].leaders == (1, 1))
        asked = b.brokers.count(Api.METADATA)
        await asyncio.sleep(0.1)
        assert b.brokers.count(Api.METADATA) == asked, "broker 2 leads nothing any more"

    run(test, monkeypatch, metadata_refresh_s=60.0)


def test_leaders_are_asked_for_often_while_a_commit_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that stands still can be connected to, and nobody is told that another one leads now."""
    monkeypatch.setattr(metadata_refresh, "QUICK_S", 0.01)
    monkeypatch.setattr(metadata_refresh, "LATE_MS", 20)

    async def test(b: Bench) -> None:
        await until(lambda: b.sidecar.service.serving() == [0, 1])
        b.brokers.topics[OFFSETS].leaders = [1, 1]
        await asyncio.sleep(0.1)
        assert b.views()[-1].leaders == (1, 2)
        b.brokers.faults.hang(Api.OFFSET_COMMIT)
        client, epoch = await joined(b.sidecar)
        waiting = asyncio.create_task(committed(client, epoch))
        await until(lambda: b.views()[-1].leaders == (1, 1))
        waiting.cancel()

    run(test, monkeypatch, metadata_refresh_s=60.0)


def test_writers_are_told_who_leads_while_an_append_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader stands still. Its records are put to the next leader, without waiting until it counts as lost."""
    monkeypatch.setattr(metadata_refresh, "QUICK_S", 0.01)
    monkeypatch.setattr(metadata_refresh, "LATE_MS", 20)

    async def test(b: Bench) -> None:
        await until(lambda: b.sidecar.service.serving() == [0, 1])
        client, epoch = await joined(b.sidecar)
        still = b.brokers.faults.hang(Api.PRODUCE)
        leaving = asyncio.create_task(client.ask(beat("g", "m1", -1), 1))
        await until(lambda: still.met == 1)
        b.brokers.topics[STATE].leaders = [3 - n for n in b.brokers.topics[STATE].leaders]
        assert (await leaving).error_code == Code.NONE
        assert epoch > 0 and len({a.node_id for a in b.brokers.asked[-20:] if a.api is Api.PRODUCE}) == 2

    run(test, monkeypatch, metadata_refresh_s=60.0)
