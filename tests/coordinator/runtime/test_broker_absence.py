"""A sidecar without its broker withdraws, and comes back with it."""

from __future__ import annotations

import time

import pytest

from sidecar.link.messages import BrokerSilence
from sidecar.wire.apis import Api
from tests.coordinator.runtime.watched import GONE, Bench, run, shorten_pauses
from tests.inprocess.embedded_sidecar import until


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_pauses(monkeypatch)


def test_without_its_broker_the_sidecar_withdraws_and_comes_back_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        await until(lambda: b.sidecar.service.serving() == [0, 1])
        b.brokers.stop(1)
        await until(lambda: b.problems == [GONE])
        assert b.sidecar.service.serving() == [] and not b.sidecar.coordinator.leased()
        assert b.sidecar.lines.fields("ownership lost")["why"] == "broker broker-1:9092 does not answer"
        await until(lambda: b.brokers.count(Api.LEAVE_GROUP))
        for topic in b.brokers.topics.values():
            topic.leaders = [2] * len(topic.leaders)
        b.brokers.start(1)
        await until(lambda: b.sidecar.service.serving() == [0, 1] and b.problems == [])

    run(test, monkeypatch)


def test_it_withdraws_when_a_front_has_found_the_broker_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients wait meanwhile, and the next look at the topics may be far away."""

    async def test(b: Bench) -> None:
        await until(lambda: not b.problems)
        b.sidecar.coordinator.from_front(b.front, BrokerSilence(2_000))
        await until(lambda: b.problems == [GONE], 0.6)
        assert b.sidecar.coordinator.view.owners == (-1, -1), "nobody has claimed them yet"
        b.sidecar.coordinator.from_front(b.front, BrokerSilence(-1))
        await until(lambda: not b.problems)

    run(test, monkeypatch, broker_gone_s=2.5)


def test_a_front_that_goes_takes_its_report_of_a_silent_broker_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: the sidecar owned nothing for good. Cause: the next front had no silence to report the end of."""

    async def test(b: Bench) -> None:
        await until(lambda: not b.problems)
        b.sidecar.coordinator.from_front(b.front, BrokerSilence(9_000))
        await until(lambda: b.problems == [GONE])
        b.sidecar.coordinator.disconnect(b.front)
        b.sidecar.coordinator.connect(b.front)
        await until(lambda: not b.problems)

    run(test, monkeypatch, broker_gone_s=2.5)


def test_a_silence_that_ends_before_it_withdraws_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        await until(lambda: not b.problems)
        for quiet_ms in (2_000, -1):
            b.sidecar.coordinator.from_front(b.front, BrokerSilence(quiet_ms))
        began_s = time.monotonic()
        await until(lambda: time.monotonic() - began_s > 2)
        assert not b.watch.ownership.withdrawn

    run(test, monkeypatch, broker_gone_s=2.5)


def test_a_short_silence_of_the_broker_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        await until(lambda: b.sidecar.service.serving() == [0, 1])
        lost = b.brokers.faults.drop(Api.METADATA, times=3)
        await until(lambda: lost.met == 3)
        await until(lambda: not b.problems)
        assert "ownership lost" not in b.sidecar.lines.events()
        assert "metadata not refreshed" in b.sidecar.lines.events("debug")

    run(test, monkeypatch, broker_gone_s=1.0)
