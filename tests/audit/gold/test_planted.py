"""Bugs planted in the coordinator: its log shows them, and gold names them."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from sidecar.assign.share import ShareAssignor, ShareSpec
from sidecar.assign.simple import SIMPLE
from sidecar.assign.spec import Result
from sidecar.assign.sticky import STICKY
from sidecar.assign.task_spec import TaskAssignor, TaskResult, TaskSpec
from sidecar.audit.page.source import Budget
from sidecar.core.streams.tasks import Holders
from tests.audit.gold.harness import Tables, gold
from tests.audit.gold.replay import Row
from tests.audit.gold.rows import Log, random_streams, written_by
from tests.core.share.world import Client, World, topic, topic_id
from tests.core.streams.world import Client as StreamsClient
from tests.core.streams.world import World as StreamsWorld
from tests.core.streams.world import quick

pytestmark = pytest.mark.tier("test")
SECONDS, SEEDS = 30, 6
STATEFUL = "1"
"""The subtopology of the tests' topology that has a changelog."""


def forgets(spec: ShareSpec) -> Result:
    """Assigns as `SIMPLE` does, but gives partition 0 to no member."""
    return {m: {t: tuple(p for p in ps if p) for t, ps in had.items()} for m, had in SIMPLE(spec).items()}


def gives_all(spec: ShareSpec) -> Result:
    """Every member gets every partition."""
    return {m: {t: tuple(ps) for t, ps in spec.assignable.items()} for m in spec.members}


def without_standbys(spec: TaskSpec) -> TaskResult:
    return {m: replace(tasks, standby={}) for m, tasks in STICKY(spec).items()}


def shared(assignor: ShareAssignor = SIMPLE, initialised_s: int = 1) -> tuple[World, Tables]:
    """A share group with two members that never fail, and what gold says of it."""
    world, log = World(), Log()
    world.assignors["simple"] = assignor
    written_by(world, log)
    world.topics(topic(1, "a", 3))
    clients = [Client(world, "g", m, ("a",)) for m in ("m1", "m2")]
    for second in range(SECONDS):
        for c in clients:
            c.heartbeat()
        if second == initialised_s:
            world.initialised("g", {topic_id(1): (0, 1, 2)})
        world.sleep(1_000)
    return world, gold(log.rows)


def holes(planted: bool) -> list[Row]:
    """Returns the spans without an owner that are longer than the page allows."""
    world, told = shared(forgets if planted else SIMPLE)
    found, most = told["share_coverage"], Budget().uncovered_ms
    assert found, "each partition has nobody at first"
    return [r for r in found if (world.now_ms if r["open"] else r["to_ms"]) - r["from_ms"] > most]


def test_a_share_group_has_a_hole_only_if_the_assignor_forgets_a_partition() -> None:
    assert holes(planted=False) == []
    assert [(r["topic"], r["partition"], r["open"], r["grade"]) for r in holes(planted=True)] == [
        ("a", 0, True, "proven")
    ]


def test_more_members_than_needed_share_a_partition_only_if_the_assignor_gives_all_to_all() -> None:
    """Two members and three partitions: one each is enough."""
    assert {r["holders"] for r in shared()[1]["holders"]} == {1}
    told = shared(gives_all)[1]["holders"]
    assert {(r["partition"], r["holders"]) for r in told if r["open"]} == {(0, 2), (1, 2), (2, 2)}


def test_how_late_the_broker_initialises_is_told() -> None:
    for second in (1, 20):
        told = shared(initialised_s=second)[1]["share_initialised"]
        assert {(r["partition"], r["after_ms"] // 1_000, r["grade"]) for r in told} == {
            (p, second, "proven") for p in range(3)
        }


def lacking(assignor: TaskAssignor, processes: tuple[str, str] = ("p1", "p2")) -> list[Row]:
    """Tasks with state that had fewer standbys than the group wants, for longer than the page allows. Two members."""
    world, log = StreamsWorld(quick(num_standby_replicas=2)), Log()
    world.assignors = {"sticky": assignor}
    world.shard = world.empty()
    written_by(world, log)
    world.topics(**{"in": 2, "app_r": 2, "app_c": 2})
    clients = [StreamsClient(world, f"m{n}", process_id=p) for n, p in enumerate(processes)]
    for second in range(SECONDS):
        for c in clients[: 1 + second]:
            c.heartbeat()
        world.sleep(1_000)
    found = gold(log.rows)
    (topology,) = found["streams_topology_changes"]
    assert topology["internal_topics"] == ["app-c", "app-r"] and topology["epoch"] == 1
    tasks = {(r["subtopology"], r["partition"]) for r in found["streams_tasks"] if r["role"] == "active" and r["open"]}
    assert len(tasks) == 4
    short, most = found["streams_standby_coverage"], Budget().lacking_ms
    assert bool(short) == (len(set(processes)) > 1), "no task has a standby at first"
    return [r for r in short if (world.now_ms if r["open"] else r["to_ms"]) - r["from_ms"] > most]


def test_standbys_are_lacking_only_if_the_assignor_gives_none() -> None:
    """The group wants two, but two processes have room for one."""
    assert lacking(STICKY) == []
    told = [(r["subtopology"], r["partition"], r["wanted"], r["held"], r["open"]) for r in lacking(without_standbys)]
    assert sorted(told) == [(STATEFUL, 0, 1, 0, True), (STATEFUL, 1, 1, 0, True)]


def test_one_process_lacks_no_standbys() -> None:
    assert lacking(without_standbys, ("p1", "p1")) == []


def test_a_task_is_twice_in_a_process_only_if_nobody_looks_for_standbys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two holders of an active task cannot be planted so: the coordinator stops at the record."""

    def second_owners() -> list[Row]:
        found = gold([row for seed in range(SEEDS) for row in random_streams(random.Random(seed), seed)])
        return found["second_owners"]

    assert second_owners() == []
    monkeypatch.setattr(Holders, "standby_processes", lambda *task: ())
    told = second_owners()
    assert told and all(" in process " in r["topic"] and r["grade"] == "proven" for r in told)
