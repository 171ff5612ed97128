"""Bugs planted in the coordinator: its log shows them, and gold names them."""

from __future__ import annotations

import random

import pytest

from sidecar.assign.share import ShareSpec
from sidecar.assign.simple import SIMPLE
from sidecar.assign.spec import Result
from sidecar.audit.page.source import Budget
from sidecar.core.streams.tasks import Holders
from tests.audit.gold.harness import gold
from tests.audit.gold.replay import Row
from tests.audit.gold.rows import Log, random_streams, written_by
from tests.core.share.world import Client, World, topic, topic_id

SECONDS, SEEDS = 30, 6


def forgets(spec: ShareSpec) -> Result:
    """Nobody gets partition 0."""
    return {m: {t: tuple(p for p in ps if p) for t, ps in had.items()} for m, had in SIMPLE(spec).items()}


def holes(planted: bool) -> list[Row]:
    """Of a share group with two members that never fail, those that are longer than the page allows."""
    world, log = World(), Log()
    if planted:
        world.assignors["simple"] = forgets
    written_by(world, log)
    world.topics(topic(1, "a", 3))
    clients = [Client(world, "g", m, ("a",)) for m in ("m1", "m2")]
    for second in range(SECONDS):
        for c in clients:
            c.heartbeat()
        if second == 1:
            world.initialised("g", {topic_id(1): (0, 1, 2)})
        world.sleep(1_000)
    found, most = gold(log.rows)["share_coverage"], Budget().uncovered_ms
    assert found, "each partition has nobody at first"
    return [r for r in found if (world.now_ms if r["open"] else r["to_ms"]) - r["from_ms"] > most]


def test_a_share_group_has_a_hole_only_if_the_assignor_forgets_a_partition() -> None:
    assert holes(planted=False) == []
    assert [(r["topic"], r["partition"], r["open"], r["grade"]) for r in holes(planted=True)] == [
        ("a", 0, True, "proven")
    ]


def test_a_task_is_twice_in_a_process_only_if_nobody_looks_for_standbys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two holders of an active task cannot be planted so: the coordinator stops at the record."""

    def second_owners() -> list[Row]:
        found = gold([row for seed in range(SEEDS) for row in random_streams(random.Random(seed), seed)])
        return found["second_owners"]

    assert second_owners() == []
    monkeypatch.setattr(Holders, "standby_processes", lambda *task: ())
    told = second_owners()
    assert told and all(" in process " in r["topic"] and r["grade"] == "proven" for r in told)
