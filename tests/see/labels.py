"""Labels in the expressions of boards and rules: a filter that is wrong finds nothing, and `or vector(0)` says that all
is well."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from tools.alert_rules import RECORDED, metrics_in

Series = Callable[[str], list[dict[str, str]]]
"""The labels of all series of a metric."""
FILTERED = re.compile(r"([a-zA-Z_:][\w:]*)\{([^}]*)\}")
MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
GROUPED = re.compile(r"\b(?:by|without)\s*\(([^)]*)\)")
LEGEND = re.compile(r"\{\{\s*(\w+)\s*\}\}")
ALIKE = re.compile(r"\b(?:ignoring|on)\s*\(([^)]*)\)")
ANY = ".*"


def metrics(expr: str) -> set[str]:
    return metrics_in(expr) | {name for name in RECORDED if name in expr}


def filters(expr: str) -> Iterator[tuple[str, str, str]]:
    """Metric, label, and a value that it is asked for, or ANY."""
    for name, inside in FILTERED.findall(expr):
        for label, how, value in MATCHER.findall(inside):
            for one in value.split("|") if "~" in how else [value]:
                yield name, label, one


def groupings(expr: str) -> Iterator[tuple[str, str]]:
    """Metric, and a label by which it is grouped: `sum by (label) (metric)` or `sum(metric) by (label)`."""
    for found in GROUPED.finditer(expr):
        before, behind = expr[: found.start()].rstrip(), expr[found.end() :].lstrip()
        inside = _first(behind) if behind.startswith("(") else _first(before[::-1])[::-1]
        for label in _labels(found[1]):
            yield from ((name, label) for name in sorted(metrics(inside)))


def _first(text: str) -> str:
    """Returns the content of the parenthesis with which the text begins, whichever way it is read."""
    depth = 0
    for at, c in enumerate(text):
        depth += {text[0]: 1}.get(c, -1 if c in "()" else 0)
        if not depth:
            return text[1:at]
    raise ValueError(f"{text}: a parenthesis is not closed")


def _labels(text: str) -> list[str]:
    return [label.strip() for label in text.split(",") if label.strip()]


def faults(expr: str, series: Series) -> list[str]:
    """Labels and values that no series has."""
    found = []
    for name, label, value in filters(expr):
        values = {s[label] for s in series(name) if label in s}
        if not values:
            found.append(f"no series of {name} has the label {label}")
        elif value not in values | {ANY}:
            found.append(f"{name} is never of {label} {value}")
    for name, label in groupings(expr):
        if not any(label in s for s in series(name)):
            found.append(f"no series of {name} has the label {label}")
    for named in ALIKE.findall(expr):
        for label in _labels(named):
            if not any(label in s for name in metrics(expr) for s in series(name)):
                found.append(f"no series in {expr} has the label {label}")
    return found


def legend_faults(expr: str, legend: str, series: Series) -> list[str]:
    """Labels in the legend of a query that its result does not have."""
    grouped = {label for _, label in groupings(expr)}
    there = grouped or {label for name in metrics(expr) for s in series(name) for label in s}
    return [label for label in LEGEND.findall(legend) if label not in there]
