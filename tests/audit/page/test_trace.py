"""The page's data as Chrome trace JSON, which a button saves."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from sidecar.audit.page import build, view
from tests.audit.page.looking import NEEDS_BROWSER, Open, group
from tests.audit.page.rows import BEGIN, covered, row, tables

pytestmark = [NEEDS_BROWSER, pytest.mark.tier("all")]
Events = list[dict[str, Any]]


def saved(open_page: Open, group_id: str = "", **more: Any) -> Events:
    """Returns the events that the button saves, with one group in sight or all."""
    page = open_page(**more)
    if group_id:
        group(page, group_id)
    with page.expect_download() as download:
        page.click("#trace")
    assert download.value.suggested_filename == f"trace-{group_id or 'all-groups'}.json"
    found: Events = json.loads(Path(download.value.path()).read_text())["traceEvents"]
    return found


def names(events: Events, which: str) -> dict[tuple[int, int], str]:
    return {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == which}


def test_every_event_belongs_to_a_named_thread_and_slices_do_not_cross(open_page: Open) -> None:
    events = saved(open_page)
    threads, processes = names(events, "thread_name"), names(events, "process_name")
    assert processes[1, 0] == "coordinators"
    assert "group payments" in processes.values()
    slices: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for e in events:
        assert (e["pid"], 0) in processes
        if e["ph"] == "X":
            assert (e["pid"], e["tid"]) in threads
            assert e["dur"] >= 0
            slices[e["pid"], e["tid"]].append((e["ts"], e["ts"] + e["dur"]))
    for mine in slices.values():
        mine.sort()
        assert all(a[1] <= b[0] for a, b in pairwise(mine))


def test_two_owners_are_beside_each_other(open_page: Open) -> None:
    events = saved(open_page)
    assert "payments-events-3 (2)" in names(events, "thread_name").values()
    assert any(e["ph"] == "i" and e["name"].startswith("two owners: payments-events-3") for e in events)
    assert any(e["name"] == "no coordinator" and e["dur"] == 12_300_000 for e in events)


def test_one_group_alone(open_page: Open, shown: dict[str, Any]) -> None:
    number = [g["id"] for g in shown["groups"]].index("payments")
    events = saved(open_page, "payments")
    assert {e["pid"] for e in events} == {1, 2, 10 + number}
    assert set(names(events, "thread_name").values()) >= {"state partition 1", "group epoch", "settling"}
    assert "state partition 0" not in names(events, "thread_name").values()


def test_what_is_open_lasts_until_the_end(open_page: Open, tmp_path: Path) -> None:
    rows = tables({"intervals": [row("intervals", 10)], "coverage": [covered(500)]})
    path = tmp_path / "open.html"
    path.write_text(build(view(rows, title="t", until_ms=BEGIN + 500)), encoding="utf-8")
    (life,) = [e for e in saved(open_page, "g", path=path) if e["ph"] == "X" and e["name"] == "m1"]
    assert (life["ts"], life["dur"]) == ((BEGIN + 10) * 1000, 490_000)
    assert life["args"]["member_id"] == "m-1"
