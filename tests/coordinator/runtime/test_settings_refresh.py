"""The broker's settings are read now and then, and at once after a change."""

from __future__ import annotations

import pytest

from sidecar.link.messages import SettingsPassed
from sidecar.wire.apis import Api
from tests.coordinator.runtime.watched import Bench, run, shorten_pauses
from tests.inprocess.broker import FakeBrokers
from tests.inprocess.embedded_sidecar import until


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_pauses(monkeypatch)


def test_the_settings_are_read_at_once_when_a_change_passed_through(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        await until(lambda: b.sidecar.configs.broker.known.is_set())
        b.brokers.settings["group.consumer.session.timeout.ms"] = ("50000", 2)
        b.front.send(SettingsPassed())
        await until(lambda: b.sidecar.configs.effective()["group.consumer.session.timeout.ms"] == 50_000)
        asked = b.brokers.count(Api.DESCRIBE_CONFIGS)
        await until(lambda: b.brokers.count(Api.DESCRIBE_CONFIGS) > asked)  # and once more when the controller is done

    run(test, monkeypatch)


def test_an_authorizer_that_appears_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        await until(lambda: not b.views()[-1].authorizer)
        b.brokers.settings["authorizer.class.name"] = ("Standard", 4)
        await until(lambda: b.views()[-1].authorizer)

    run(test, monkeypatch, settings_refresh_s=0.01)


def test_settings_that_cannot_be_read_are_read_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def prepare(brokers: FakeBrokers) -> None:
        brokers.faults.drop(Api.DESCRIBE_CONFIGS, times=2)

    async def test(b: Bench) -> None:
        await until(lambda: b.sidecar.configs.broker.known.is_set())
        assert b.sidecar.lines.events("debug").count("settings not read") == 2

    run(test, monkeypatch, prepare, settings_refresh_s=0.01)
