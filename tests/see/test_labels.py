"""The judge of labels finds what is wrong."""

from __future__ import annotations

import pytest

from tests.see.labels import faults, legend_faults

THERE = {
    "x_total": [{"api": "join", "result": "ok"}, {"api": "sync", "result": "ok"}],
    "y": [{"api": "join", "of": "connections"}],
}


def series(metric: str) -> list[dict[str, str]]:
    return THERE.get(metric, [])


@pytest.mark.parametrize(
    "expr",
    [
        'sum by (api) (rate(x_total{result!="ok",api=~"join|sync"}[5m])) or vector(0)',
        "sum(x_total) by (api)",
        'y{of="connections"} / ignoring (of) sum by (api) (x_total)',
        'topk(5, x_total{api=~".*"})',
    ],
)
def test_right_labels_pass(expr: str) -> None:
    assert faults(expr, series) == []


@pytest.mark.parametrize(
    ("expr", "what"),
    [
        ('sum(x_total{apo="join"}) or vector(0)', "no series of x_total has the label apo"),
        ('sum(x_total{api="leave"}) or vector(0)', "x_total is never of api leave"),
        ('x_total{api=~"join|leave"}', "x_total is never of api leave"),
        ('x_total{result!="okay"}', "x_total is never of result okay"),
        ("sum by (apo) (rate(x_total[5m]))", "no series of x_total has the label apo"),
        ("sum by (result) (x_total + y)", "no series of y has the label result"),
        ("sum(rate(x_total[5m])) by (apo)", "no series of x_total has the label apo"),
        ("x_total / on (apo) y", "no series in x_total / on (apo) y has the label apo"),
    ],
)
def test_wrong_labels_are_found(expr: str, what: str) -> None:
    assert faults(expr, series) == [what]


def test_a_legend_names_what_the_query_gives() -> None:
    assert legend_faults("sum by (api) (x_total)", "{{api}}", series) == []
    assert legend_faults("x_total", "{{api}} {{result}}", series) == []
    assert legend_faults("sum by (api) (x_total)", "{{result}}", series) == ["result"]
    assert legend_faults("x_total", "{{apo}}", series) == ["apo"]
