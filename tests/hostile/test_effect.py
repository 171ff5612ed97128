"""The verdict on an attack: each limit is found broken, and a busy machine is nobody's fault."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from tests.hostile.effect import PAGING, Effect, event_of
from tests.hostile.side import felt

CALM: dict[str, Any] = {"beat_ms": [2, 3, 2], "passed_ms": [4, 5, 4], "rss_mib": [90, 100, 95], "held_ms": 20}


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ({}, ""),
        ({"beat_ms": [2, 90, 3], "passed_ms": [4, 95, 5], "held_ms": 75}, "heartbeat: p99 90 ms, 3 ms when calm"),
        ({"beat_ms": [2, 90, 3], "passed_ms": [4, 95, 5], "busy": 0.9}, "passed: p99 95 ms, 5 ms when calm"),
        ({"beat_ms": [2, 590, 3]}, "heartbeat: p99 590 ms, 3 ms when calm"),
        ({"beat_ms": [2, 90, 3], "passed_ms": [4, 95, 5]}, ""),
        ({"beat_ms": [2, 90, 60], "passed_ms": [4, 95, 60], "held_ms": 75}, ""),
        ({"passed_ms": [4, inf, 5]}, "passed: not served any more"),
        ({"rss_mib": [90, 160, 95]}, "RSS grew by 70 MiB"),
        ({"rss_mib": [90, 120, 110]}, "RSS stays 20 MiB above"),
        ({"newcomer_s": inf}, "a newcomer waited inf s"),
        ({"probes_failed": 1}, "1 probes of /livez failed"),
        ({"others": ["the sidecar ended"]}, "the sidecar ended"),
    ],
)
def test_each_limit(more: dict[str, Any], fault: str) -> None:
    faults = Effect("a", "alice", **{**CALM, **more}).faults()
    assert fault in faults if fault else not faults


def test_one_long_wait_is_felt_at_every_moment_of_it() -> None:
    assert felt([1.0, 9.0, 1.5]) == [1.0, 9.0, 7.0, 5.0, 3.0, 1.0, 1.5]


def test_what_pages_is_read_from_the_alerts() -> None:
    assert {"sidecar_handler_faults_total", "sidecar_partition_owned", "sidecar_void_records"} <= PAGING
    assert "sidecar_loop_lag_seconds" not in PAGING


def test_events_are_the_same_whatever_their_fields() -> None:
    line = "timestamp='2026' level='error' event='handler broke' node_id=1 api='X' error=\"E('y')\""
    assert event_of(line) == "event='handler broke' api='X'"
