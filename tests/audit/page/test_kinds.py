"""Share groups and streams groups on the page: their members, partitions, tasks, rebalances and findings."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sidecar.audit.page import build, view
from sidecar.audit.tables.gold import GOLD
from tests.audit.gold.harness import gold, rows_of
from tests.audit.gold.rows import Log
from tests.audit.page.looking import NEEDS_BROWSER, Open, group
from tests.audit.page.rows import said, unpacked

HOLE_MS = 9_000


def made() -> Log:
    """Two members share partition 0, nobody has partition 1 for nine seconds. A streams app that is not ready at first
    gives its task 0-1 to two members, and task 0-0 twice to one process. Its task 0-1 has no standby."""
    log = Log()
    log.claim(1)
    for m in ("m1", "m2"):
        log.share_member("jobs", m)
    log.put("share_group", "jobs", epoch=1, metadata_hash=1)
    log.placeholder("jobs", [0, 1])
    log.share_current("jobs", "m1", 1, [0, 1])
    log.share_current("jobs", "m2", 1, [0])
    log.share_current("jobs", "m1", 1, [0])
    log.share_current("jobs", "m2", 1, [0, 1], log_ms=1_090 + HOLE_MS)
    for m, process in (("s1", "p1"), ("s2", "p2"), ("s3", "p1")):
        log.streams_member("app", m, process)
    log.put("streams_group", "app", epoch=1, validated_topology_epoch=-1)
    configs = [{"name": "num.standby.replicas", "value": "2"}]
    log.put("streams_group", "app", epoch=2, validated_topology_epoch=1, assignment_configs=configs)
    log.streams_current("app", "s1", 2, active=[0, 1])
    log.streams_current("app", "s2", 2, active=[1], standby=[0])
    log.streams_current("app", "s3", 2, standby=[0])
    state = {"subtopology": "0", "repartition_source_topics": [], "changelog_topics": [{"name": "c"}]}
    log.put("streams_topology", "app", epoch=1, partial=False, subtopologies=[state])
    for row in log.rows[log.rows[-1]["offset"] - 8 :]:
        row["log_ms"] += HOLE_MS
    log.streams_member("app", "s2", "p2", log_ms=log.rows[-1]["log_ms"] + 20_000)
    return log


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    found = gold(made().rows)
    tables = {name: rows_of(table, found.get(name, [])) for name, table in GOLD.items()}
    return view(tables, title="Kinds", until_ms=60_000)


def by_name(seen: dict[str, Any], name: str) -> dict[str, Any]:
    return next(g for g in seen["groups"] if g["id"] == name)


def test_each_holder_of_a_shared_partition_has_a_lane(seen: dict[str, Any]) -> None:
    jobs, app = by_name(seen, "jobs"), by_name(seen, "app")
    assert (jobs["kinds"], jobs["members"], app["kinds"], app["members"]) == (["share"], 2, ["streams"], 3)
    assert jobs["partitions"] == 2 and said(seen, "places", "name")[5:] == ["t-0", "t-0 [2]", "t-1"]
    names = ["task 0-0", "task 0-1", "task 0 in process p1-0", "task 0 standby-0", "task 0 standby-0 [2]"]
    assert said(seen, "places", "name")[:5] == names
    own, owners = unpacked(seen, "own"), unpacked(seen, "owners")["process_id"]
    bars = Counter(zip(own["g"], own["p"], strict=True))
    assert [bars[0, p] for p in range(5)] == [1, 2, 0, 1, 1] and [bars[1, p] for p in range(3)] == [1, 1, 2]
    assert [n if n < 0 else seen["texts"][n] for n in owners] == ["p1", "p2", "p1", -1, -1]
    assert unpacked(seen, "epochs")["g"] == [0, 0, 1]


def test_planted_faults_are_findings(seen: dict[str, Any]) -> None:
    names = [key for key, *_ in seen["kinds"]]
    listed = zip(unpacked(seen, "findings")["k"], said(seen, "findings", "text"), strict=True)
    told = {(names[k], text) for k, text in listed}
    assert told == {
        ("overlap", "task 0-1: m2 (c) began while m1 (c) still owned it"),
        ("overlap", "task 0 in process p1-0: m3 (c) began while m1 (c) still owned it"),
        ("uncovered", "t-1 was nobody’s for 9.0 s while a member subscribed to it"),
        ("lacking", "task 0-1 had 0 of 1 standbys for 20.0 s; it still has"),
        ("unready", "the topology was not ready for 10 ms, so no task was assigned (why 12)"),
    }
    assert (seen["verdict"]["state"], seen["verdict"]["faults"]) == ("findings", 2)


@NEEDS_BROWSER
def test_the_page_opens(open_page: Open, seen: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "kinds.html"
    path.write_text(build(seen), encoding="utf-8")
    page = open_page(path=path)
    for name, lanes in (("jobs", ["t-0", "t-0 [2]", "t-1"]), ("app", ["task 0-0", "task 0 standby-0 [2]"])):
        group(page, name)
        labels = page.locator("#labels").inner_text()
        assert "group epoch" in labels and all(lane in labels for lane in lanes), labels
