"""Random scripts to a simulated broker and to a real one; the first difference of each is told.

    python -m tests.whole.broker.differential --scripts 500 [--first 0]
    python -m tests.whole.broker.differential --kind data --seed 17         # one, step by step

Half of the scripts are about members of classic groups (those of tests/differential, which compare the sidecar with
Kafka), half about topics, logs, producers, transactions with offsets, offsets and settings (script.py).

Differences that are accepted:
* Who leads a group after its leader has gone, and in which order members are told, is the order of a hash table in
  Kafka: where the choices differ, a script ends (`Parted`), and its steps until then count.
* Where Kafka answers UNKNOWN_SERVER_ERROR because it breaks, a script ends.
* A simulated broker knows only the APIs of table.py; what it tells of these in ApiVersions is compared.
* Kafka verifies TxnOffsetCommits of several clients in one batch, and tells all of them TRANSACTION_ABORTABLE, or all
  INVALID_TXN_STATE as up to version 3, by the version of one of them: there the script ends.
* A transaction that is being ended makes the real broker answer CONCURRENT_TRANSACTIONS for some milliseconds: both are
  asked until they do not.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from sidecar.drill.local import LocalKafka
from sidecar.kafka.net import BrokerConnection
from sidecar.wire.generated import api_versions as av
from sidecar.wire.generated import create_topics as ct
from sidecar.wire.generated import find_coordinator as fc
from sidecar.wire.generated import init_producer_id as ip
from tests.differential.classic import ClassicSide, Parted, Pool, make_classic, settle
from tests.differential.run import PROPERTIES
from tests.differential.script import TOPICS, Step
from tests.whole.broker.codes import Err
from tests.whole.broker.gateway import Gateway
from tests.whole.broker.script import DataSide, make_data

AT_ONCE = 24
ADD_PARTITIONS = 24
"""AddPartitionsToTxn: its later versions are spoken between brokers only."""
SIMULATED = {
    **PROPERTIES,
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "10",
}


SIMULATED_VERSION = "4.3.1"
"""The Kafka that tests/whole simulates."""


class Difference(AssertionError):
    pass


def unlike(a: object, b: object) -> tuple[object, object]:
    """Returns only the parts of two long answers that differ."""
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)) and len(a) == len(b):
        pairs = [unlike(x, y) for x, y in zip(a, b, strict=True) if x != y]
        return [x for x, _ in pairs], [y for _, y in pairs]
    return a, b


class Side(ClassicSide):
    """A side that excuses nothing, because nothing differs on purpose here."""

    def excused(self, n: int, theirs: ClassicSide) -> str:
        return ""


def verified_together(s: Step, a: object, b: object) -> bool:
    """Whether Kafka verified this TxnOffsetCommit in a batch with others of another version."""
    if not s.verb.endswith("txn") or not isinstance(a, list) or not isinstance(b, list):
        return False
    together = {Err.INVALID_TXN_STATE: Err.TRANSACTION_ABORTABLE}
    first, second = ([(index, together.get(code, code)) for index, code in answer] for answer in (a, b))
    return first == second


@dataclass(slots=True)
class Tally:
    steps: int = 0
    found: list[str] = field(default_factory=list)
    ended: Counter[str] = field(default_factory=Counter)


# ---- one script ---------------------------------------------------------------------------------------------------
async def play_data(seed: int, ports: tuple[int, int], name: str, tell: bool) -> tuple[int, str]:
    conns = [await BrokerConnection.open("127.0.0.1", port, "diff") for port in ports]
    sides = [DataSide(conn, name) for conn in conns]
    steps = make_data(seed)
    trail: list[str] = []
    try:
        for n, s in enumerate(steps):
            a, b = await asyncio.gather(*(side.run(s) for side in sides))
            trail.append(f"   {n:3} {s}: {str(b)[:200]}")
            if tell:
                print(trail[-1] + (f"\n      simulated {a}" if a != b else ""), flush=True)
            if a != b:
                if verified_together(s, a, b):
                    return n, "Kafka verifies several commits together"
                told = "\n".join(trail[-15:])
                x, y = unlike(a, b)
                raise Difference(f"data seed {seed}, step {n}, {s}\n simulated {x}\n Kafka     {y}\n{told}")
    finally:
        for conn in conns:
            conn.close()
    return len(steps), ""


async def play_classic(seed: int, pools: tuple[Pool, Pool], name: str, tell: bool) -> tuple[int, str]:
    """Like tests.differential.run.play_classic, between other sides."""
    sides = Side(pools[0], name), Side(pools[1], name)
    steps = make_classic(seed)
    trail: list[str] = []
    try:
        for n, s in enumerate(steps):
            for side in sides:
                side.send(n, s)
            same = await settle(n, s, *sides)
            a, b = (side.answers for side in sides)
            trail.append(f"   {n:3} {s}: {b.get(n, 'waits')}")
            if tell:
                print(trail[-1] + ("" if same else f"\n      simulated {a.get(n, 'waits')}"), flush=True)
            if not same:
                wrong = {i: (a.get(i, "waits"), b.get(i, "waits")) for i in a.keys() | b.keys() if a.get(i) != b.get(i)}
                told = "\n".join(f" {steps[i]}\n  simulated {x}\n  Kafka     {y}" for i, (x, y) in wrong.items())
                lines = "\n".join(trail[-15:])
                raise Difference(f"classic seed {seed}, step {n}, {s}\n{told}\n{lines}")
            for side in sides:
                side.answers.clear()
    except Parted as why:
        return n, str(why)
    finally:
        for side in sides:
            side.close()
    return len(steps), ""


# ---- many scripts -------------------------------------------------------------------------------------------------
async def _worker(kind: str, left: Iterator[int], ports: tuple[int, int], tally: Tally, tell: bool) -> None:
    pools = Pool(ports[0]), Pool(ports[1])
    for seed in left:
        name = f"{kind[0]}{seed}x"
        try:
            if kind == "data":
                steps, why = await play_data(seed, ports, name, tell)
            else:
                steps, why = await play_classic(seed, pools, name, tell)
            tally.steps += steps
            tally.ended[f"{kind}: {why or 'the whole script'}"] += 1
        except Difference as exc:
            again = f"python -m tests.whole.broker.differential --kind {kind} --seed {seed}"
            tally.found.append(f"{again}\n{exc}")
    for pool in pools:
        pool.close()


async def versions(port: int) -> tuple[dict[int, tuple[int, int]], list[tuple[str, int]], list[tuple[str, int, int]]]:
    """Returns the answer to ApiVersions: versions by api, features in force, features supported."""
    conn = await BrokerConnection.open("127.0.0.1", port, "diff")
    raw = await conn.raw(18, 4, av.ApiVersionsRequest("diff", "1").encode(4), True)
    res = av.ApiVersionsResponse.decode(4, raw, 8)
    conn.close()
    return (
        {k.api_key: (k.min_version, k.max_version) for k in res.api_keys},
        sorted((f.name, f.max_version_level) for f in res.finalized_features),
        sorted((f.name, f.min_version, f.max_version) for f in res.supported_features),
    )


async def _compare_versions(ports: tuple[int, int], tally: Tally) -> None:
    """A simulated broker knows fewer APIs, but these in the same versions."""
    (ours, *features), (theirs, *real) = await versions(ports[0]), await versions(ports[1])
    known = {key: theirs.get(key) for key in ours if key != ADD_PARTITIONS}
    wrong = {key: (ours[key], v) for key, v in known.items() if v != ours[key]}
    if wrong or features != real:
        tally.found.append(f"ApiVersions: {wrong}, features {features} and {real}")


async def _prepare(port: int) -> None:
    """Topics for the scripts of groups, and coordinators that are there."""
    conn = await BrokerConnection.open("127.0.0.1", port, "diff")
    topics = [ct.CreatableTopic(n, p, 1) for n, p in TOPICS.items()]
    await conn.request(ct, "CreateTopics", ct.CreateTopicsRequest(topics, 10_000))
    for key_type in (0, 1):
        for _ in range(100):
            res = await conn.request(fc, "FindCoordinator", fc.FindCoordinatorRequest("", key_type, ["warm"]), high=4)
            if res.coordinators[0].error_code == 0:
                break
            await asyncio.sleep(0.1)
    for _ in range(100):
        res = await conn.request(ip, "InitProducerId", ip.InitProducerIdRequest("warm", 60_000), high=4)
        if res.error_code == 0:
            break
        await asyncio.sleep(0.1)
    await asyncio.sleep(0.5)
    conn.close()


async def compare(kafka: LocalKafka, kinds: dict[str, range], tell: bool = False) -> Tally:
    """Play these seeds of each kind. The scripts of one kind run side by side, the kinds one after the other."""
    tally = Tally()
    real = kafka.nodes[0].clients_port
    async with Gateway(SIMULATED) as gateway:
        ports = gateway.port, real
        for port in ports:
            await _prepare(port)
        with suppress(Difference):  # the first requests of a cold broker take long
            await play_data(-1, ports, "warm", False)
        await _compare_versions(ports, tally)
        for kind, seeds in kinds.items():
            left = iter(seeds)
            count = min(AT_ONCE, len(seeds))
            await asyncio.gather(*(_worker(kind, left, ports, tally, tell) for _ in range(count)))
    return tally


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--scripts", type=int, default=500)
    ap.add_argument("--first", type=int, default=0)
    ap.add_argument("--seed", type=int)
    ap.add_argument("--kind", choices=("classic", "data"))
    a = ap.parse_args()
    kinds = ("data", "classic") if a.kind is None else (a.kind,)
    each = a.scripts // len(kinds)
    seeds = range(a.first, a.first + each) if a.seed is None else range(a.seed, a.seed + 1)
    with (
        tempfile.TemporaryDirectory(prefix="broker-diff-", ignore_cleanup_errors=True) as tmp,
        LocalKafka(
            Path(tmp) / "run", brokers=1, front="none", properties=PROPERTIES, version=SIMULATED_VERSION
        ) as kafka,
    ):
        begun = time.monotonic()
        tally = asyncio.run(compare(kafka, dict.fromkeys(kinds, seeds), a.seed is not None))
        took = time.monotonic() - begun
    for text in tally.found[:20]:
        print(text)
    print("scripts by where they ended:", ", ".join(f"{why} {n:,}" for why, n in tally.ended.most_common()))
    which = f"seeds {seeds.start} to {seeds.stop - 1} of {' and '.join(kinds)}"
    print(f"{which}: {tally.steps:,} steps, {took:.0f} s, {len(tally.found)} differences")
    return 1 if tally.found else 0


if __name__ == "__main__":
    sys.exit(main())
