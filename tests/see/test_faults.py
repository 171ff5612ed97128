"""The sum of all faults in the files before this one: each alert was raised by a fault of its own, and silent
otherwise, over the whole time. Boards and rules name labels of the series that there were."""

from __future__ import annotations

import socket

import pytest

from sidecar.drill.processes import wait_until
from tests.see import labels
from tests.see.ground import Ground, alerts_in
from tests.see.tolerated import NO_FAULT, RAISES_TOO
from tools.alert_rules import ALERTS, RECORDED
from tools.boards import BOARDS, queries

pytestmark = [
    pytest.mark.tier("nightly"),
    pytest.mark.timeout(240),
    pytest.mark.needs("prometheus", "promtool"),
]


def test_each_alert_was_raised_by_its_fault(ground: Ground) -> None:
    assert alerts_in(ground.faults) == {a.name for a in ALERTS} - NO_FAULT.keys()


def test_no_alert_fired_without_its_fault(ground: Ground) -> None:
    assert ground.noise() == [], "\n".join(ground.noise())


def test_what_a_fault_may_raise_too_it_has_raised_once(ground: Ground) -> None:
    """A fault that is not there any more is not tolerated for ever."""
    assert RAISES_TOO.keys() <= {f.name for f in ground.faults}


def test_every_panel_shows_something_after_the_faults(ground: Ground) -> None:
    assert [f"{title}: {q}" for title, q in queries() if not ground.prometheus.values(q)] == []


def test_boards_and_rules_name_labels_and_values_that_there_are(ground: Ground) -> None:
    refused = "sidecar_frames_refused_total"
    with socket.create_connection(("127.0.0.1", ground.kafka.nodes[0].sidecar_port), timeout=5) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")  # a frame that is refused, so that there is one
        wait_until("the frame", lambda: bool(ground.prometheus.series(refused)), 20, step_s=0.5)
    kept: dict[str, list[dict[str, str]]] = {}

    def series(metric: str) -> list[dict[str, str]]:
        if metric not in kept:
            kept[metric] = ground.prometheus.series(metric)
        return kept[metric]

    asked = {a.name: a.expr for a in ALERTS} | RECORDED | dict(queries())
    found = {name: labels.faults(expr, series) for name, expr in asked.items()}
    panels = [p for board in BOARDS for row in board.rows.values() for p in row]
    for panel in panels:
        for expr, legend in panel.queries:
            found[f"legend of {panel.title}"] = labels.legend_faults(expr, legend, series)
    assert {name: wrong for name, wrong in found.items() if wrong} == {}
