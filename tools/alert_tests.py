"""promtool's unit tests of the alerts: each at series at which it must fire, and at series at which it must just not."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from tools.alert_rules import ALERTS, HEAD, RECORDED, RULES, Alert, Series, annotations_of, dump


def tests() -> str:
    cases = []
    for a in ALERTS:
        cases.append(_case(a, "fires", a.fires, {at: [_fired(a)] for at in (a.by, a.at) if at}))
        for series, labels in a.absent:
            cases.append(_case(a, "fires without its series", series, {a.at: [_fired(replace(a, labels=labels))]}))
        cases.append(_case(a, "is silent", a.silent, {a.at: []}))
        if a.held != "0s":
            steps, then = _short(a)
            short = {s: _ended(v, steps) for s, v in a.fires.items()}
            cases.append(_case(a, "is silent if it passes", short, {at: [] for at in then}))
    return HEAD + dump({"rule_files": [RULES.name], "evaluation_interval": "15s", "tests": cases})


def _fired(a: Alert) -> dict[str, Any]:
    return {"exp_labels": {"severity": a.severity, **a.labels}, "exp_annotations": annotations_of(a)}


def _case(a: Alert, how: str, series: Series, expected: dict[str, list[Any]]) -> dict[str, Any]:
    return {
        "name": f"{a.name} {how}",
        "interval": f"{STEP_S}s",
        "input_series": [{"series": s, "values": v} for s, v in series.items()],
        "alert_rule_test": [{"eval_time": at, "alertname": a.name, "exp_alerts": e} for at, e in expected.items()],
    }


STEP_S = 15
SECONDS = {"s": 1, "m": 60, "h": 3600}


def _short(a: Alert) -> tuple[int, list[str]]:
    """Returns the length in steps of a fault that is too short for the alert, and the times to look. An expression that
    looks back over some minutes stays true for that long after the fault."""
    held_s, back_s = _seconds(a.held), _back_s(a)
    steps = max(1, (held_s - back_s) // STEP_S - 1)
    return steps, [f"{s}s" for s in range(steps * STEP_S, held_s + back_s + 2 * STEP_S, STEP_S)]


def _back_s(a: Alert) -> int:
    expressions = " ".join([a.expr, *(RECORDED.get(name, "") for name in re.findall(r"[\w:]+", a.expr))])
    return max(map(_seconds, re.findall(r"\[(\w+)\]", expressions)), default=0) if "rate(" in expressions else 0


def _seconds(duration: str) -> int:
    return int(duration[:-1]) * SECONDS[duration[-1]]


def _ended(values: str, steps: int) -> str:
    """The same series, gone after so many steps."""
    if " " in values:
        return " ".join([*values.split()[: steps + 1], "stale"])
    return re.sub(r"x\d+$", f"x{steps} stale", values)
