"""The alerts: made by code, each with a section in the runbook, each tried by promtool with and without its fault.
promtool belongs to Debian's package prometheus."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.see.prometheus import program
from tools import alert_rules, alert_tests, boards
from tools.alert_rules import ALERTS, RECORDED, RULES, RUNBOOK, TESTS, anchor, metrics_in
from tools.grafana import as_json
from tools.metrics_table import names

NOT_OURS = {"ALERTS"}
"""Prometheus's own."""


def test_the_rules_are_those_of_the_code(root: Path) -> None:
    assert (root / RULES).read_text() == alert_rules.rules(), "run python -m tools.alerts"
    assert (root / TESTS).read_text() == alert_tests.tests(), "run python -m tools.alerts"


def test_the_boards_are_those_of_the_code(root: Path) -> None:
    for board in boards.BOARDS:
        assert (root / boards.path(board)).read_text() == boards.text(board), "run python -m tools.boards"
    made = {boards.path(board).name for board in boards.BOARDS}
    assert {p.name for p in (root / boards.FOLDER).iterdir()} == made


def test_every_query_of_a_board_asks_of_the_chosen_clusters() -> None:
    """Symptom: one Prometheus watched several clusters, and each panel added them up."""
    known = "|".join(sorted(names() | NOT_OURS, key=len, reverse=True))
    for board in boards.BOARDS:
        made = as_json(board)
        asked = [target["expr"] for panel in made["panels"] for target in panel.get("targets", [])]
        cluster, *variables = (v for v in made["templating"]["list"] if v["type"] == "query")
        assert cluster["name"] == "cluster" and cluster["allValue"] == ".*"
        asked += [v["query"]["query"] for v in variables]
        selected = rf"(?<![\w:])(?:{known})(?![\w:])(\{{[^}}]*cluster=~\"\$cluster\"\}})?"
        assert len(asked) > 15 and [q for q in asked for matcher in re.findall(selected, q) if not matcher] == []


def test_no_alert_and_no_panel_names_a_metric_that_is_not_there() -> None:
    known = names() | NOT_OURS
    asked = {a.name: a.expr for a in ALERTS} | RECORDED | dict(boards.queries())
    assert {name: gone for name, expr in asked.items() if (gone := metrics_in(expr) - known)} == {}
    assert metrics_in('sum by (a) (rate(x_total{b="c"}[5m])) / on (d) y > 0.5') == {"x_total", "y"}


def test_each_alert_has_a_section_in_the_runbook_that_says_what_to_do(root: Path) -> None:
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", (root / RUNBOOK).read_text(), re.M | re.S))
    assert set(sections) == {a.name for a in ALERTS}
    for a in ALERTS:
        for part in ("**Means.**", "**Look.**", "**Do.**"):
            assert part in sections[a.name], (a.name, part)
        rule = yaml.safe_load(alert_rules.rules())
        urls = [r["annotations"]["runbook_url"] for g in rule["groups"] for r in g["rules"] if r.get("alert") == a.name]
        assert urls == [f"{RUNBOOK}#{anchor(a)}"]


def test_a_pager_can_be_given_an_address() -> None:
    told = yaml.safe_load(alert_rules.rules("https://runbooks.example.org/sidecar"))
    urls = {r["annotations"]["runbook_url"] for g in told["groups"] for r in g["rules"] if "alert" in r}
    assert urls == {f"https://runbooks.example.org/sidecar#{anchor(a)}" for a in ALERTS}


def test_the_command_prints_the_rules_with_it_and_writes_nothing(root: Path) -> None:
    before = (root / RULES).read_bytes()
    command = [sys.executable, "-m", "tools.alerts", "--runbook", "https://a.example/b"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout == alert_rules.rules("https://a.example/b") and (root / RULES).read_bytes() == before


def test_where_a_bound_is_from_below_absent_series_count_as_the_worst() -> None:
    """A comparison with 0 is true of no series that is absent."""
    assert [a.name for a in ALERTS if "== 0" in a.expr and not a.absent] == []


@pytest.mark.needs("prometheus", "promtool")
def test_promtool_finds_that_each_alert_fires_and_is_silent(root: Path) -> None:
    tried = {case["name"] for case in yaml.safe_load(alert_tests.tests())["tests"]}
    every = {f"{a.name} {how}" for a in ALERTS for how in ("fires", "is silent")}
    every |= {f"{a.name} fires without its series" for a in ALERTS if a.absent}
    assert tried == every | {f"{a.name} is silent if it passes" for a in ALERTS if a.held != "0s"}
    folder = root / RULES.parent
    for command in (("check", "config", "prometheus.yml"), ("test", "rules", TESTS.name)):
        done = subprocess.run([program("promtool"), *command], cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
