"""Grafana boards as JSON: panels in rows, and what is often asked of Prometheus. boards.py has the boards."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

RATE = "[$__rate_interval]"
I = '{instance=~"$instance"}'  # noqa: E741
G = '{consumergroup=~"$group"}'
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDE = 24
METRIC = re.compile(r"(?<![\w:])((?:sidecar|group_state_audit|kafka|process)_\w+|up|ALERTS)\b(?:\{([^}]*)\})?")
CLUSTERS = ("cluster", 'label_values(up{job="kafka-group-sidecar"}, cluster)')
"""Every board's first variable. Targets without the label belong to no cluster: `All` shows them."""


@dataclass(frozen=True)
class Panel:
    """`queries`: expression and legend of each. `width`: of 24."""

    title: str
    about: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8
    stacked: bool = False


@dataclass(frozen=True)
class Board:
    uid: str
    title: str
    rows: dict[str, tuple[Panel, ...]]
    variables: tuple[tuple[str, str], ...]
    """Name, and the query for its values."""


def of_cluster(expr: str) -> str:
    """Returns the query for the chosen clusters only."""
    return METRIC.sub(lambda m: f'{m[1]}{{{m[2] + "," if m[2] else ""}cluster=~"$cluster"}}', expr)


def number(title: str, about: str, expr: str, unit: str = "short") -> Panel:
    return Panel(title, about, ((expr, title),), unit, "stat", 4)


def quantiles(
    metric: str, by: str = "", select: str = "", of: tuple[float, ...] = (0.5, 0.99)
) -> tuple[tuple[str, str], ...]:
    """Returns queries and legends for quantiles of a histogram of seconds."""
    keep, legend = (f"{by}, le", f" {{{{{by}}}}}") if by else ("le", "")
    rate = f"sum by ({keep}) (rate({metric}_bucket{select}{RATE}))"
    return tuple((f"histogram_quantile({q}, {rate})", f"p{q * 100:g}{legend}") for q in of)


def rate(metric: str, by: str, select: str = "") -> tuple[tuple[str, str], ...]:
    keys = by.split(", ")
    return ((f"sum by ({by}) (rate({metric}{select}{RATE}))", " ".join(f"{{{{{k}}}}}" for k in keys)),)


def each(metric: str, select: str = I) -> tuple[tuple[str, str], ...]:
    return ((f"{metric}{select}", "{{instance}}"),)


def as_json(board: Board) -> dict[str, Any]:
    variables = [(name, of_cluster(query)) for name, query in board.variables]
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in board.rows.items():
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "row",
                "title": title,
                "collapsed": False,
                "panels": [],
                "gridPos": _at(0, y, WIDE, 1),
            }
        )
        y += 1
        x = height = 0
        for panel in row:
            tall = 4 if panel.kind == "stat" else 8
            if x + panel.width > WIDE:
                x, y, height = 0, y + height, 0
            panels.append({"id": len(panels) + 1, **_panel(panel), "gridPos": _at(x, y, panel.width, tall)})
            x, height = x + panel.width, max(height, tall)
        y += height
    return {
        "uid": board.uid,
        "title": board.title,
        "tags": ["kafka", "kafka-group-sidecar"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [_source(), *(_variable(*v) for v in (CLUSTERS, *variables))]},
        "panels": panels,
    }


def _at(x: int, y: int, w: int, h: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": w, "h": h}


def _panel(p: Panel) -> dict[str, Any]:
    custom = {"stacking": {"mode": "normal"}, "fillOpacity": 20} if p.stacked else {"fillOpacity": 5}
    targets = [
        {
            "refId": chr(ord("A") + i),
            "datasource": SOURCE,
            "expr": of_cluster(expr),
            "legendFormat": legend,
            **(
                {"instant": True, "format": "table"}
                if p.kind == "table"
                else {"range": p.kind == "timeseries", "instant": p.kind == "stat"}
            ),
        }
        for i, (expr, legend) in enumerate(p.queries)
    ]
    return {
        "type": p.kind,
        "title": p.title,
        "description": p.about,
        "datasource": SOURCE,
        "fieldConfig": {
            "defaults": {"unit": p.unit, **({"custom": custom, "min": 0} if p.kind == "timeseries" else {})},
            "overrides": [],
        },
        "targets": targets,
    }


def _source() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "current": {}}


def _variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "label": name.capitalize(),
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }
