"""Well-behaved clients beside hostile ones, at the sidecar and, in the same run, at the broker itself.

    python -m tests.hostile.run [--seconds 6] [--only half_open,heartbeats] [--base PATH]
    python -m tests.hostile.run --callers [--open] [--seconds 3] [--only described,owners_deep] [--base PATH]

The first is for floods, which a server has to serve as fairly as it can.

Two bystanders go on throughout, each with one request at a time: a member's heartbeats, which the sidecar answers, and
Metadata requests, which pass to the broker. The table has their p99 without and with each attack ("inf": it was not
served any more), how many of the attacker's connections were closed by the other side, and the resident memory of the
process that is attacked before, at most, and two seconds after, and how much of a core it uses then. `--base`: a
checkout of another version, whose sidecar is run instead.

`--callers` is for requests that ask for more than they look like, of callers with the rights of each, at a broker with
SASL and ACLs; `--open`: at one with neither. Its table has what effect.py measures and the limits that were broken, and
it fails where there are any.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from dataclasses import asdict
from math import isinf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.common import cpu_s, create_topic, one_broker
from benchmarks.heartbeat import PARTITIONS, TOPIC, join
from tests.hostile.attacks import CALLERS, FLOODS
from tests.hostile.effect import HEAD, place
from tests.hostile.side import Side, Waits, ended, fill, measure_bystanders
from tests.hostile.target import DATA, HOST


def under(side: Side, name: str, seconds: float) -> dict[str, Any]:
    before = side.rss_mib()
    found = side.bystanders()
    most, out = side.attacked(name, seconds)
    waits = {name: asdict(w) for name, w in zip(("beat", "passed", "direct"), ended(found), strict=False)}
    memory = {"rss_before_mib": round(before), "rss_most_mib": round(most)}
    return {**waits, **memory, **json.loads(out)}


def after(side: Side) -> dict[str, Any]:
    """Two seconds after an attack."""
    time.sleep(1)
    used, since = cpu_s(side.process), time.monotonic()
    time.sleep(1)
    cpu = (cpu_s(side.process) - used) / (time.monotonic() - since)
    return {"cpu_after": round(cpu, 3), "rss_after_mib": round(side.rss_mib())}


def row(name: str, side: Side, quiet: list[Waits], seconds: float) -> dict[str, Any]:
    found = under(side, name, seconds) | after(side)
    calm_ms = {"calm_beat_p99_ms": quiet[0].wall_ms, "calm_passed_p99_ms": quiet[1].wall_ms}
    found |= {"attack": name, "at": side.name, **calm_ms}
    closed = f"{found['closed']:,}/{found['opened']:,}"
    if found["close_p50_ms"] is not None:
        closed += f" in {found['close_p50_ms']:.1f} ms"
    memory = f"{found['rss_before_mib']}, {found['rss_most_mib']}, {found['rss_after_mib']}"
    memory = f"{memory:16} {found['cpu_after']:.0%}"
    beats = f"{quiet[0].wall_ms:8.1f} {found['beat']['wall_ms']:8.1f}"
    passes = f"{quiet[1].wall_ms:8.1f} {found['passed']['wall_ms']:8.1f}"
    print(f"{name:14} {side.name:8} {beats}  {passes}  {closed:26} {memory}", flush=True)
    return found


def callers(only: list[str], seconds: float, secured: bool, base: str) -> None:
    """Prints the table of requests, and ends with 1 where others felt one of them."""
    effects = []
    with TemporaryDirectory(prefix="sidecar-hostile-") as tmp, place(Path(tmp) / "run", secured, base) as at:
        print(HEAD)
        for user, attacks in CALLERS.items():
            for name in attacks:
                if not only or name in only:
                    effects.append(at.attacked(name, user, seconds))
                    print(effects[-1].row(), flush=True)
    print(json.dumps({"callers": [asdict(effect) for effect in effects]}))
    if felt := sum(bool(effect.faults()) for effect in effects):
        sys.exit(f"{felt} of {len(effects)} attacks were felt by others")


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--seconds", type=float, default=0.0, help="how long each attack takes")
    ap.add_argument("--only", default="", help="names of attacks, with commas")
    ap.add_argument("--base", default="")
    ap.add_argument("--callers", action="store_true", help="requests of callers instead of floods")
    ap.add_argument("--open", action="store_true", help="with --callers: without SASL and ACLs")
    a = ap.parse_args()
    only = [name for name in a.only.split(",") if name]
    if a.callers:
        callers(only, a.seconds or 3.0, not a.open, a.base)
    else:
        floods(only or list(FLOODS), a.seconds or 6.0, a.base)


def floods(only: list[str], seconds: float, base: str) -> None:
    with one_broker("bench-h.*", {"PYTHONPATH": base} if base else {}) as kafka:
        os.environ["PYTHONPATH"] = os.getcwd()
        create_topic(kafka, TOPIC, PARTITIONS)
        create_topic(kafka, DATA, 1)
        fill(kafka)
        node = kafka.nodes[0]
        assert node.sidecar is not None and node.process is not None
        time.sleep(3)
        sides = []
        for name, port, process in (
            ("sidecar", node.sidecar_port, node.sidecar),
            ("broker", node.internal_port, node.process),
        ):
            sides.append(Side(name, port, process, asyncio.run(join(HOST, port, f"bench-h-{name}", 1))[0]))
        for side in sides:
            measure_bystanders(side, 6)  # the JVM compiles
        print(f"{'':24}heartbeat p99 ms   passed p99 ms     closed by it               resident MiB")
        head = f"{'attack':14} {'at':8} {'calm':>8} {'under':>8}  {'calm':>8} {'under':>8}"
        print(f"{head}  {'':26} before, most, after, then CPU")
        rows = [row(n, side, measure_bystanders(side, 3), seconds) for n in only for side in sides]
    print(json.dumps({"hostile": rows}))
    if any(isinf(r["beat"]["wall_ms"]) or isinf(r["passed"]["wall_ms"]) for r in rows if r["at"] == "sidecar"):
        sys.exit("a well-behaved client of the sidecar was not served")


if __name__ == "__main__":
    main()
