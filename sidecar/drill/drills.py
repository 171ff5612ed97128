"""Failover drills on real processes.

    make drill NAME=kill-owner N=10

`kill-owner` kills the sidecar that owns the group with SIGKILL, N times, while clients are running, and starts it again
five seconds later. It prints how long after each kill the first heartbeat was accepted, and fails if a commit or a
record was lost or a partition was owned twice.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from rich.console import Console

from sidecar.drill.artifacts import KAFKA, ArtifactError
from sidecar.drill.clients import backward_commits, double_owned, missing
from sidecar.drill.processes import DrillError, interrupt_on_sigterm
from sidecar.drill.scenario import GROUP, Scenario

BACK_AFTER_S = 5.0


def committed_offsets(s: Scenario) -> dict[int, int]:
    """Return what the cluster says is committed, asked the way any tool asks."""
    admin = AdminClient({"bootstrap.servers": s.kafka.bootstrap, "log_level": 3})
    future = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)])[GROUP]
    return {tp.partition: tp.offset for tp in future.result(timeout=30).topic_partitions}


def lost_commits(s: Scenario) -> list[str]:
    """List the partitions whose committed offset is lower than one that was acknowledged to a client."""
    best: dict[int, int] = {}
    for j in s.journals:
        for _, p, offset in j.commit_log:
            best[p] = max(best.get(p, 0), offset)
    now = committed_offsets(s)
    return [f"partition {p}: {o} acknowledged, {now.get(p, -1)} found" for p, o in best.items() if now.get(p, -1) < o]


def kill_owner(s: Scenario, n: int, say: Callable[[str], None]) -> dict[str, object]:
    s.start()
    for name in ("java-1", "py-1", "java-2", "py-2"):
        s.consumer(name)
    s.wait("four consumers sharing all partitions", lambda: s.balanced(4), 60)
    time.sleep(5)
    first: list[float] = []
    commit: list[float] = []
    lost: list[str] = []
    for i in range(n):
        owner = s.kafka.owner_of(GROUP)
        assert owner.sidecar is not None and s.probe is not None
        probe = s.probe
        at, at_ms = time.monotonic(), time.time() * 1000
        owner.sidecar.kill()
        owner.sidecar = None
        s.wait("a heartbeat accepted by another owner", lambda t=at, p=probe: p.first_after(t) is not None, 60)  # type: ignore[misc]
        s.wait("a commit", lambda t=at_ms: any(c[0] > t for j in s.journals for c in j.commit_log), 60)  # type: ignore[misc]
        took = probe.first_after(at) or 0.0
        first.append(took)
        commit.append((min(c[0] for j in s.journals for c in j.commit_log if c[0] > at_ms) - at_ms) / 1000)
        new = s.kafka.owner_of(GROUP, skip=owner.node_id)
        time.sleep(max(0.0, BACK_AFTER_S - (time.monotonic() - at)))
        s.kafka.start_sidecar(owner)
        s.kafka.wait_ready()
        s.wait("the group Stable again", lambda: s.balanced(4), 60)
        lost += lost_commits(s)
        say(
            f"kill {i + 1:2}: sidecar {owner.node_id} -> {new.node_id}, first heartbeat after {took:.2f} s, "
            f"first commit after {commit[-1]:.2f} s, commits lost so far {len(lost)}"
        )
        time.sleep(2)
    assert s.producer is not None
    s.producer.stop()
    s.wait("everything consumed and committed", lambda: not any(s.lag().values()) and s.committed_all(), 90)
    lost += lost_commits(s)
    s.stop_clients()
    from sidecar.audit.job import audit, session

    spark = session()
    try:
        found = audit(spark, s.kafka.internal)
    finally:
        spark.stop()
    owned_twice = len(double_owned(s.journals)) + len(found.overlaps)
    return {
        "drill": "kill-owner",
        "kafka": s.kafka.version,
        "n": n,
        "p50_s": round(statistics.median(first), 3),
        "p95_s": round(sorted(first)[min(n - 1, round(0.95 * n))], 3),
        "max_s": round(max(first), 3),
        "first_commit_p50_s": round(statistics.median(commit), 3),
        "lost_commits": len(lost) + len(backward_commits(s.journals)),
        "lost_records": missing(s.producer.ends, s.journals),
        "double_owned": owned_twice,
        "stale_writes": len(found.stale),
    }


DRILLS = {"kill-owner": kill_owner}


def main(argv: list[str]) -> int:
    ap = argparse.ArgumentParser(
        prog="drill", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ap.add_argument("name", choices=sorted(DRILLS))
    ap.add_argument("--n", type=int, default=10)
    ap.add_argument("--kafka", default=KAFKA)
    ap.add_argument("--out", type=Path, default=Path("out/drill"))
    a = ap.parse_args(argv)
    console = Console(highlight=False, soft_wrap=True)
    interrupt_on_sigterm()
    run = a.out / f"{a.name}-{time.strftime('%H%M%S')}"
    scenario: Scenario | None = None
    try:
        scenario = Scenario(run, a.kafka, console.print)
        figures = DRILLS[a.name](scenario, a.n, console.print)
    except KeyboardInterrupt:
        console.print(f"interrupted; logs: {run}")
        return 130
    except (DrillError, ArtifactError) as exc:
        console.print(f"failed: {exc}\nlogs: {run}")
        return 1
    finally:
        if scenario is not None:
            scenario.stop()
    console.print(json.dumps(figures))
    return 1 if figures["lost_commits"] or figures["double_owned"] or figures["lost_records"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
