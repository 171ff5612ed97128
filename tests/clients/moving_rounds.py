"""Groups are moved, or assigned anew, again and again under live consumers, and what they consume is counted.

    python -m tests.clients.moving_rounds moves --rounds 5 --clients java --protocol cooperative --kill
    python -m tests.clients.moving_rounds rebalances --rounds 10 --force remove --where broker

`moves`: each round takes the group in and gives it back. With `--kill` the group's owner is killed (SIGKILL) in the
middle of each move, at a moment that the seed chooses; in every other round the command spoke to that sidecar.
`rebalances`: each round forces one, by the command `sidecar groups rebalance`, by LeaveGroup for a member that is alive
(as the administrator's tools send it), or by a member that joins. `--where broker` has no sidecars at all: so a plain
broker is compared under the same load.

Prints a line of JSON: records consumed, missing, consumed twice (of those: read again though a commit behind them had
been acknowledged), partitions with two owners. Exit code 1 if any is missing, was committed and read again, or has two
owners, or if a move does not come to its end.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from sidecar.drill.clients import double_owned, missing
from sidecar.drill.local import LocalKafka
from sidecar.drill.processes import DrillError, interrupt_on_sigterm, wait_until
from sidecar.kafka import native
from tests.clients.ground import ENV
from tests.clients.moving import (
    CLIENTS,
    MEMBERS,
    PROTOCOLS,
    RATE,
    Load,
    at_the_broker,
    below_commits,
    groups,
    load,
    picture,
    where,
)
from tests.clients.test_placeholders import at, at_broker

KILL_WITHIN_S = {"adopt": 0.9, "release": 0.9}
"""About so long a move takes, from the moment at which a sidecar tells that it is under way."""


class Live(Protocol):
    """A group with live members; `goes_on` returns when they consume as before."""

    kafka: LocalKafka
    group: str

    def goes_on(self, what: str) -> None: ...


def move(
    live: Live, verb: str, kill_after_s: float | None = None, through_owner: bool = False, members: int = MEMBERS
) -> dict[str, Any]:
    """One move, as the administrator does it; whose death it survived and how long it took. `through_owner`: the
    command speaks to the sidecar that is killed."""
    kafka, begun = live.kafka, time.monotonic()
    told: dict[str, Any] = {"verb": verb}
    if kill_after_s is None:
        code, text = groups(kafka, verb, live.group)
    else:
        code, text = _killed(live, verb, kill_after_s, through_owner, told)
    told |= {"seconds": round(time.monotonic() - begun, 2), "exit": code, "text": text.strip()}
    live.goes_on(f"the {verb}")
    told["all_seconds"] = round(time.monotonic() - begun, 2)
    home = "sidecar" if verb == "adopt" else "broker"
    there = {n.node_id: where(kafka, n, live.group) for n in kafka.nodes}
    found = len(at_the_broker(kafka, live.group).members)
    if code or set(there.values()) != {home} or found != (0 if verb == "adopt" else members):
        raise DrillError(f"{told}: {there}, {found} members at the broker")
    return told


def _killed(live: Live, verb: str, after_s: float, through_owner: bool, told: dict[str, Any]) -> tuple[int, str]:
    kafka = live.kafka
    owner = kafka.owner_of(live.group)
    other = next(n for n in kafka.nodes if n is not owner)
    assert owner.sidecar is not None
    with ThreadPoolExecutor(1) as pool:
        moved = pool.submit(groups, kafka, verb, live.group, skip=(other if through_owner else owner).node_id)
        under_way = "comes" if verb == "adopt" else "leaves"
        wait_until(
            "the move to begin",
            lambda: moved.done() or where(kafka, other, live.group) == under_way,
            30,
            step_s=0.005,
        )
        time.sleep(after_s)  # the moment of the kill is what is tried here
        seen = picture(kafka, other, live.group)
        told |= {
            "killed_after_s": round(after_s, 2),
            "killed_in": f"{seen.get('where')} {seen.get('state', '')}".strip(),
        }
        os.kill(owner.sidecar.pid, signal.SIGKILL)
        wait_until("it to be dead", lambda: owner.sidecar is None or not owner.sidecar.alive, 10)
        wait_until("another owner", lambda: kafka.owner_of(live.group, skip=owner.node_id) is not owner, 60)
        kafka.start_sidecar(owner)
        done = moved.result(400)
    kafka.wait_ready()
    return done


def force(live: Load, how: str, n: int) -> None:
    """One rebalance."""
    if how == "command":
        code, text = groups(live.kafka, "rebalance", live.group)
        if code:
            raise DrillError(text)
    elif how == "join":
        extra = live.add(f"{live.group}-extra-{n}")
        live.goes_on("a member joined")
        extra.stop()
        live.remove(extra)
        extra.journal.end(int(time.time() * 1000))
    else:
        _remove_one(live, n)
    live.goes_on(f"the forced rebalance ({how})")


def _remove_one(live: Load, n: int) -> None:
    """A member that is alive, by its member id: it joins again by itself."""
    kafka, (ids, _) = live.kafka, _members(live)
    one = native.Member(ids[n % len(ids)], None, "", "")
    if kafka.front == "none":
        at_broker(kafka, lambda c: native.send_away(c, live.group, [one], "by hand", 10), live.group)
    else:
        owner = kafka.owner_of(live.group)
        at(owner.sidecar_port, lambda c: native.send_away(c, live.group, [one], "by hand", 10))

    def back() -> bool:
        now, stable = _members(live)
        return stable and len(now) == MEMBERS and one.member_id not in now

    wait_until("the member that was removed to be back", back, 90)


def _members(live: Load) -> tuple[list[str], bool]:
    """Member ids in the order of their clients' names, which they begin with; and whether the group is stable."""
    if live.kafka.front == "none":
        found = at_the_broker(live.kafka, live.group)
        return sorted(m.member_id for m in found.members), found.stable
    there = picture(live.kafka, live.kafka.nodes[0], live.group)
    return sorted(m["member"] for m in there.get("members", [])), there.get("state") == "Stable"


def run(kafka: LocalKafka, a: argparse.Namespace) -> dict[str, Any]:
    rng = random.Random(a.seed)
    name = f"{a.what}-{a.protocol}"
    with load(kafka, name, a.protocol, a.clients, rate=a.rate) as live:
        if a.what == "rebalances" and kafka.front != "none":
            move(live, "adopt")
        before, start = live.twice(), live.count()
        per_round = []
        for n in range(a.rounds):
            at = live.twice()
            if a.what == "moves":
                for verb in ("adopt", "release"):
                    after_s = rng.uniform(0, KILL_WITHIN_S[verb]) if a.kill else None
                    told = move(live, verb, after_s, through_owner=n % 2 == 1)
                    print(json.dumps({"round": n, **told, "twice": live.twice() - at}), flush=True)
            else:
                force(live, a.force, n)
            per_round.append(live.twice() - at)
    for c in live.clients:
        c.journal.end(int(time.time() * 1000))
    settings = {k: v for k, v in vars(a).items() if k not in ("kafka",)}
    return {
        **settings,
        "kafka": kafka.version,
        "consumed": live.count() - start,
        "missing": missing(live.producer.ends, live.journals),
        "twice": live.twice() - before,
        "twice_per_round": per_round,
        "read_again_below_a_commit": below_commits([*live.clients, *live.gone]),
        "two_owners": len(double_owned(live.journals)),
        "commits_refused": sum(len(j.errors) for j in live.journals),
    }


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("what", choices=("moves", "rebalances"))
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--clients", choices=CLIENTS, default=CLIENTS[0])
    ap.add_argument("--protocol", choices=tuple(PROTOCOLS), default="eager")
    ap.add_argument("--kill", action="store_true")
    ap.add_argument("--force", choices=("command", "remove", "join"), default="command")
    ap.add_argument("--where", choices=("sidecar", "broker"), default="sidecar")
    ap.add_argument("--rate", type=float, default=RATE, help="Records a second.")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--keep", help="Keep the logs in this folder.")
    a = ap.parse_args()
    if a.what == "rebalances" and a.force == "remove" and a.protocol == "consumer":
        ap.error("whether a consumer group is stable is not told in one word; use another protocol")
    if a.where == "broker" and (a.what == "moves" or a.force == "command"):
        ap.error("a plain broker knows neither moves nor the command")
    interrupt_on_sigterm()
    with tempfile.TemporaryDirectory(prefix="sidecar-moves-", ignore_cleanup_errors=True) as tmp:
        front = "none" if a.where == "broker" else "two"
        folder = Path(a.keep) if a.keep else Path(tmp) / "run"
        kafka = LocalKafka(folder, brokers=1 if a.what == "rebalances" else 2, front=front, sidecar_env=ENV)
        try:
            with kafka:
                if front != "none":
                    kafka.wait_ready()
                figures = run(kafka, a)
        except DrillError as exc:
            print(f"failed: {exc}", file=sys.stderr)
            return 1
    print(json.dumps(figures))
    return 1 if figures["missing"] or figures["two_owners"] or figures["read_again_below_a_commit"] else 0


if __name__ == "__main__":
    sys.exit(main())
