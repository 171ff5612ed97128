"""Small logs of share groups, streams groups and claims that no coordinator would write: gold says what the replay
says, however the log is cut."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from sidecar.audit.tables.gold import GOLD
from sidecar.audit.tables.layers import ROLES
from tests.audit.gold.harness import as_set, differences, gold, some_cuts
from tests.audit.gold.replay import replay
from tests.audit.gold.rows import Log

LOGS, STEPS = 60, 40
MEMBERS, PROCESSES = ("m1", "m2", "m3"), ("p1", "p2", "p3")


def wild(log: Log, rng: random.Random) -> None:
    log.claim(1)

    def some() -> list[int]:
        return rng.sample(range(3), rng.choice((0, 1, 1, 2)))

    def tasks(m: str) -> None:
        held = {f"{p}{role}": some() for p in ("", "pending_") for role in ROLES if rng.random() < 0.4}
        log.streams_current("a", m, rng.randrange(1, 4), **held)

    def ready(m: str) -> None:
        configs = [{"name": "num.standby.replicas", "value": str(rng.randrange(3))}][: rng.randrange(3)]
        epoch, validated = rng.randrange(1, 4), rng.choice((-1, 1))
        log.put("streams_group", "a", epoch=epoch, validated_topology_epoch=validated, assignment_configs=configs)

    def topology(state: bool) -> None:
        part = {"subtopology": "0", "repartition_source_topics": [], "changelog_topics": [{"name": "c"}] * state}
        log.put("streams_topology", "a", epoch=1, partial=False, subtopologies=[part])

    for m, process in zip(MEMBERS, PROCESSES, strict=True):
        log.streams_member("a", m, process)
    topology(rng.random() < 0.8)
    ready("")
    steps: list[tuple[int, Callable[[str], Any]]] = [
        (6, lambda m: log.share_current("s", m, rng.randrange(1, 4), some())),
        (2, lambda m: log.share_member("s", m, *rng.sample(("t", "u"), rng.randrange(1, 3)))),
        (1, lambda m: log.remove_member("share", "s", m)),
        (3, lambda m: log.placeholder("s", some())),
        (1, lambda m: log.put("share_placeholder", "s", gone=True)),
        (1, lambda m: log.put("share_group", "s", epoch=rng.randrange(1, 4))),
        (8, tasks),
        (2, lambda m: log.streams_member("a", m, rng.choice(PROCESSES))),
        (1, lambda m: log.remove_member("streams", "a", m)),
        (2, ready),
        (1, lambda m: topology(rng.random() < 0.7)),
        (1, lambda m: log.put("streams_topology", "a", gone=True)),
        (1, lambda m: log.put("streams_group", "a", gone=True)),
        (1, lambda m: log.share_current("s", m, 9, some(), owner_epoch=log.epoch + 1)),
    ]
    for step in rng.choices([s for _, s in steps], [w for w, _ in steps], k=STEPS):
        step(rng.choice(MEMBERS))


@pytest.mark.tier("test")
def test_gold_says_what_the_replay_says() -> None:
    logs = [Log(p) for p in range(LOGS)]
    for log in logs:
        wild(log, random.Random(log.partition))
    rows = [row for log in logs for row in log.rows]
    found, told = gold(rows), replay(rows)
    assert differences(found, told) == []
    names = (
        *("share_holdings", "share_coverage", "share_initialised", "holders"),
        *("streams_tasks", "streams_not_ready", "streams_standby_replicas", "second_owners", "unowned"),
        "streams_standby_coverage",
    )
    assert {(r["role"], r["holders"]) for r in told["holders"]} >= {("share", 2), ("share", 3), ("standby", 2)}
    assert {(r["wanted"], r["held"]) for r in told["streams_standby_coverage"]} == {(1, 0), (2, 0), (2, 1)}
    assert any(r["subscribed_offset"] is None for r in told["share_initialised"])
    assert min(len(told[name]) for name in names) > 50, {name: len(told[name]) for name in names}
    assert any("process" in r["topic_key"] for r in told["second_owners"])
    cut = gold(rows, some_cuts(random.Random(1), rows, 4))
    for name in GOLD:
        assert as_set(cut.get(name, [])) == as_set(found.get(name, [])), name


def wild_claims(log: Log, rng: random.Random) -> None:
    log.claim(1)
    for _ in range(STEPS):
        if rng.random() < 0.3:
            why = rng.choice(("moved from sidecar 1", "fence renewed"))
            log.claim(rng.randrange(1, 4), rng.randrange(2), rng.randrange(3))["why"] = why
        else:
            log.group("g", 1, owner_epoch=rng.choice((log.epoch, log.epoch, rng.randrange(1, 4))))


@pytest.mark.tier("test")
def test_a_claim_is_named_by_its_offset_as_its_number_may_come_again() -> None:
    """Symptom: records under a claim counted for another one of the same number, which the last batch had not left, so
    outages depended on the cut."""
    logs = [Log(p) for p in range(LOGS)]
    for log in logs:
        wild_claims(log, random.Random(log.partition))
    rows = [row for log in logs for row in log.rows]
    found, told = gold(rows), replay(rows)
    names = ("coordinators", "outages", "stale_writes")
    assert differences({n: found[n] for n in names}, {n: told[n] for n in names}) == []
    assert min(len(told[name]) for name in names) > 50
    for seed in range(3):
        cut = gold(rows, some_cuts(random.Random(seed), rows, 6))
        for name in names:
            assert as_set(cut[name]) == as_set(found[name]), name
