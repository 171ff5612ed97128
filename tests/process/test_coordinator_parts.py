"""A sidecar that starts anew refuses whoever joins for as long as the settings say, and only for its first minute."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from sidecar.coordinator.clock import now
from sidecar.coordinator.moves.managed_groups import Rules
from sidecar.coordinator.statelog.topic_watch import LOOKS
from sidecar.core.runtime.quarantine import Quarantine
from sidecar.core.vocabulary.group_patterns import Patterns
from sidecar.process.coordinator_parts import (
    OTHERS_START_MS,
    begin_quarantine,
    cluster_watch_settings,
    coordinator_settings,
)
from sidecar.process.settings import Settings
from tests.inprocess.embedded_sidecar import Lines


def settings(**state: int) -> Settings:
    needed = {"listen": "127.0.0.1:1", "broker": "127.0.0.1:2", "node_id": 1}
    return Settings.model_validate({**needed, "metadata_refresh_ms": 30_000, "state": state})


def test_it_counts_until_the_slowest_of_the_others_has_noticed_and_started() -> None:
    lines = Lines()
    before_ms = now().mono_ms
    made = begin_quarantine(settings(quarantine_ms=9_000), lines)
    after_ms = now().mono_ms
    assert made.quarantine_ms == 9_000
    assert before_ms <= made.until_ms - OTHERS_START_MS - LOOKS * 30_000 <= after_ms
    assert lines.events("warning") == ["nobody joins a group at first, so that former members hear of it"]
    assert coordinator_settings(settings(), ("h", 1), made).quarantine is made


def test_by_default_it_is_longer_than_the_pause_between_two_heartbeats() -> None:
    default = settings()
    assert default.state.quarantine_ms > default.consumer.heartbeat_interval_ms


def test_a_coordinator_that_has_lost_nothing_closes_no_partition() -> None:
    assert Quarantine().closed_until_ms(now().mono_ms) == 0


def test_the_tail_gets_addresses_as_librdkafka_reads_them() -> None:
    """Symptom: with an IPv6 address the tail never connected. Cause: `[::1]:9092` came to it as `::1:9092`."""
    for given, wanted in (("[::1]:1, b:2,", "[::1]:1,b:2"), ("", "127.0.0.1:2"), (" , ", "127.0.0.1:2")):
        s = settings().model_validate({**settings().model_dump(exclude_unset=True), "bootstrap": given})
        rules = SimpleNamespace(own_patterns=lambda: Patterns((), ()))
        assert cluster_watch_settings(s, "c", cast(Rules, rules)).tail_bootstrap == wanted
