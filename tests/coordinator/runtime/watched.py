"""A sidecar that a real ClusterWatch keeps informed: its owners' group, tail, settings and metadata are real."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sidecar.coordinator.membership.peer_links import PeerSettings
from sidecar.coordinator.membership.ports import OwnershipSettings
from sidecar.coordinator.runtime import coordinator as coordinator_module
from sidecar.coordinator.runtime import settings_refresh
from sidecar.coordinator.runtime.cluster_watch import ClusterWatch, ClusterWatchSettings
from sidecar.coordinator.statelog import fence as fence_module
from sidecar.coordinator.statelog import fenced_writer as writer_module
from sidecar.coordinator.statelog import startup as start
from sidecar.coordinator.statelog.startup import Control, StartSettings
from sidecar.coordinator.statelog.tail import Listener, StateLog
from sidecar.core.runtime import lifecycle
from sidecar.link.messages import View
from tests.inprocess import clock
from tests.inprocess.broker import OFFSETS, STATE, FakeBrokers
from tests.inprocess.embedded_sidecar import EmbeddedSidecar, RecordingFront
from tests.inprocess.tail import FedTail

GONE = "the broker broker-1:9092 does not answer; this sidecar owns nothing until it does"


def shorten_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings_refresh, "CONTROLLER_LAG_S", 0.002)
    monkeypatch.setattr(coordinator_module, "TICK_S", 0.005)
    monkeypatch.setattr(writer_module, "RETRY_S", 0.002)
    monkeypatch.setattr(fence_module, "RETRY_S", 0.002)
    monkeypatch.setattr(fence_module, "INIT_S", 0.01)
    monkeypatch.setattr(lifecycle, "RETRY_MS", 5)


class Bench:
    """A sidecar whose owners' group, tail, settings and metadata are those of a real ClusterWatch."""

    def __init__(self, sidecar: EmbeddedSidecar, watch: ClusterWatch, control: Control) -> None:
        self.sidecar = sidecar
        self.brokers = sidecar.brokers
        self.watch = watch
        self.control = control
        self.front = RecordingFront(sidecar.coordinator)

    @property
    def problems(self) -> list[str]:
        return self.watch.problems()

    def views(self) -> list[View]:
        return self.front.of(View)


def run(
    test: Callable[[Bench], Coroutine[Any, Any, None]],
    monkeypatch: pytest.MonkeyPatch,
    prepare: Callable[[FakeBrokers], None] = lambda brokers: None,
    slow_tail: bool = False,
    **given: Any,
) -> None:
    """`given`: fields of `ClusterWatchSettings`; `slow_tail`: the test says when the tail has come to the end."""

    async def main() -> None:
        brokers = FakeBrokers(nodes=(1, 2), partitions=2)
        sidecar = EmbeddedSidecar(brokers, serve=False)
        brokers.readers.clear()
        monkeypatch.setattr(start, "BrokerConnection", sidecar.cluster.connections)

        def tail(bootstrap: str, topic: str, client_id: str, log: StateLog, listener: Listener) -> FedTail:
            made = FedTail(topic, log, listener, slow_tail)
            brokers.readers.append(made.read)
            return made

        settings = StartSettings(1, brokers.address(1), True, "sidecar-1", 0.1, "owners", STATE, 0, 0)
        control = Control(settings, sidecar.cluster)
        await control.look()
        prepare(brokers)
        owners = OwnershipSettings("owners", 2_000, 5, PeerSettings(links=False))
        follow = {
            "broker": "broker-1:9092",
            "tail_bootstrap": "",
            "tail_client_id": "",
            "same_listener": True,
            "metadata_refresh_s": 0.005,
            "settings_refresh_s": 60.0,
            "broker_gone_s": 0.03,
            "follow_leader_s": 0.0,
            "tail_wait_s": 60.0,
            "ownership": owners,
        }
        watch = ClusterWatch(
            ClusterWatchSettings(**{**follow, **given}),
            control.view.leaders[OFFSETS],
            control,
            sidecar.state,
            sidecar.coordinator,
            sidecar.lines,
            sidecar.tasks,
            tail,
        )
        sidecar.link.serve(sidecar.coordinator)
        try:
            await test(Bench(sidecar, watch, control))
        finally:
            sidecar.background.stop()
            await watch.stop(for_good=True)
        if sidecar.tasks.failed.done():
            sidecar.tasks.failed.result()

    clock.run(main())
