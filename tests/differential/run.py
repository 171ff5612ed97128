"""Random scripts to a sidecar and to Kafka's own coordinator, both on one real broker; the first difference is told.

python -m tests.differential.run --scripts 2000 [--first 0]     # or: make differential SCRIPTS=2000
python -m tests.differential.run --seed 17                      # one, step by step
python -m tests.differential.run --kafka 4.3.1                  # where older.py says why 4.3.1 differs

The sidecar does what 4.4.0 does, whatever its broker is.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]

from sidecar.core.vocabulary.errors import Code
from sidecar.drill.artifacts import KAFKA
from sidecar.drill.local import JVM, LocalKafka
from sidecar.kafka.net import BrokerConnection
from sidecar.wire.generated import metadata as md
from tests.differential.classic import AT_MOST_S, ClassicSide, Parted, Pool, make_classic, settle
from tests.differential.mixed import MixedSide, make_mixed
from tests.differential.older import harmless_difference, is_older, parts
from tests.differential.script import MORE_TOPICS, TOPICS, Side, Step, make, make_topics

AT_ONCE = 24
CLASSIC_AT_ONCE = 24
AGAIN = "python -m tests.differential.run"
MATCHED_ANEW_S = 9.0
"""Less than the 10 s after which a coordinator matches patterns against new topics again."""
MATCHED_S = 5.0
"""Limit of the wait for both coordinators to match a new pattern."""
KNOWN_S = 60.0
"""Limit of the wait for both coordinators to know what topics there are."""
ENV = {
    # Nobody stops this broker, but on a busy machine it may be silent for seconds.
    "SIDECAR_OWNERSHIP__BROKER_GONE_MS": "60000",
    "SIDECAR_LIMITS__BROKER_SILENCE_MS": "0",
    "SIDECAR_GROUPS__INCLUDE": '["managed.*"]',
    "SIDECAR_GROUPS__KINDS": '["classic", "consumer", "share", "streams"]',
    "SIDECAR_LOG__LEVEL": "warning",
    # Kafka assigns in the heartbeat itself: offload is KIP-1263's, and its own tests look at it.
    "SIDECAR_CONSUMER__ASSIGNOR_OFFLOAD_ENABLE": "false",
    "SIDECAR_CONSUMER__JOIN_WAIT_MS": "0",
    "SIDECAR_CONSUMER__REGEX_MATCHES": "1",
    "SIDECAR_CONSUMER__REFUSE_COMMITS_OF_OTHERS": "false",
    "SIDECAR_SHARE__ASSIGNOR_OFFLOAD_ENABLE": "false",
    # A join waits for share state, which a busy machine has later.
    "SIDECAR_SHARE__JOIN_WAIT_MS": "20000",
    "SIDECAR_STREAMS__ASSIGNOR_OFFLOAD_ENABLE": "false",
    "SIDECAR_STREAMS__JOIN_WAIT_MS": "0",
    "SIDECAR_STREAMS__REFUSE_COMMITS_OF_OTHERS": "false",
    "SIDECAR_METADATA_REFRESH_MS": "200",
}
PROPERTIES = {
    "group.consumer.assignment.interval.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.max.assignment.interval.ms": "3600000",
    "group.streams.initial.rebalance.delay.ms": "0",
    # Nothing is told again because so much time is over, and no member or empty group is removed.
    "offsets.retention.check.interval.ms": "86400000",
    "group.streams.max.session.timeout.ms": "3600000",
    "group.streams.session.timeout.ms": "3600000",
    "group.streams.max.heartbeat.interval.ms": "1800000",
    "group.streams.heartbeat.interval.ms": "1800000",
    "group.streams.max.size": "4",
    "group.share.assignment.interval.ms": "0",
    "group.share.max.session.timeout.ms": "3600000",
    "group.share.session.timeout.ms": "3600000",
    "group.share.max.heartbeat.interval.ms": "1800000",
    "group.share.heartbeat.interval.ms": "1800000",
    "group.share.max.size": "4",
}


@contextmanager
def cluster(folder: Path, version: str = KAFKA) -> Iterator[LocalKafka]:
    # A thousand scripts leave some thousand partitions at the broker.
    jvm = (*JVM, "-Xmx1g")
    kafka = LocalKafka(folder, brokers=1, version=version, sidecar_env=ENV, properties=PROPERTIES, jvm=jvm)
    kafka.sidecar_main = "tests.differential.java_sidecar"
    with kafka:
        kafka.wait_ready()
        admin = admin_of(kafka)  # what it has begun ends with it
        for future in admin.create_topics([NewTopic(n, p, 1) for n, p in (TOPICS | MORE_TOPICS).items()]).values():
            future.result(timeout=30)
        time.sleep(1)
        yield kafka


async def topic_ids(conn: BrokerConnection, names: list[str]) -> dict[str, bytes]:
    req = md.MetadataRequest(topics=[md.MetadataRequestTopic(name=n) for n in names])
    res = await conn.request(md, "Metadata", req)
    return {t.name: t.topic_id for t in res.topics}


def agreed(s: Step, ours: object, theirs: object) -> bool:
    """docs/reference/differences.md: a due target is computed by a timer here, in Kafka by the next heartbeat."""
    if s.verb not in ("describe", "list") or not isinstance(ours, tuple) or not isinstance(theirs, tuple):
        return False
    if s.verb == "list":
        return bool(ours[0] == theirs[0])
    head = slice(0, 2), slice(3, 4)
    return (
        theirs[2] == "Assigning"
        and ours[4] > theirs[4]
        and all(ours[h] == theirs[h] for h in head)
        and {m: v[:8] for m, v in ours[6].items()} == {m: v[:8] for m, v in theirs[6].items()}
    )


def repeated_static_join(ours: object, theirs: object) -> bool:
    """docs/reference/differences.md: a static member that joins once more is let in, or refused for what is looked at
    after that; at Kafka it is not. The script ends."""
    if not isinstance(ours, tuple) or not isinstance(theirs, tuple):
        return False
    if ours[0] not in (0, Code.INVALID_REGULAR_EXPRESSION) or theirs[0] != Code.UNRELEASED_INSTANCE_ID:
        return False
    return re.search(r"Static member (\S+) .* owned by \1 member", str(theirs[1])) is not None


class Difference(AssertionError):
    pass


async def until(check: Callable[[], Awaitable[bool]], limit_s: float) -> None:
    """Raises TimeoutError."""
    async with asyncio.timeout(limit_s):
        while not await check():
            await asyncio.sleep(0.05)


async def wait_for_topics(
    sides: Sequence[Side], conn: BrokerConnection, counts: dict[str, int], names: list[str]
) -> None:
    """Waits until both coordinators know the topics with their present partitions."""

    async def both_know_topics() -> bool:
        ids = await topic_ids(conn, list(counts))
        for side in sides:
            side.ids = ids
        return all(await asyncio.gather(*(side.knows(counts, names) for side in sides)))

    await until(both_know_topics, KNOWN_S)


async def matched(sides: list[Side]) -> None:
    """Waits until both coordinators have matched a group's patterns, which they do in the background: that is a new
    group epoch. Where the epochs stay apart, the steps that follow tell the difference."""

    async def same() -> bool:
        return len(set(await asyncio.gather(*(side.group_epoch() for side in sides)))) == 1

    with suppress(TimeoutError):
        await until(same, MATCHED_S)


def change_topic(admin: AdminClient, name: str, how: str, counts: dict[str, int]) -> None:
    """A topic that is not there is made, whatever is asked."""
    if how == "delete" and name in counts:
        for future in admin.delete_topics([name]).values():
            future.result(timeout=30)
        del counts[name]
    elif name not in counts:
        counts[name] = 3
        for future in admin.create_topics([NewTopic(name, 3, 1)]).values():
            future.result(timeout=30)
    else:
        counts[name] += 2
        for future in admin.create_partitions([NewPartitions(name, counts[name])]).values():
            future.result(timeout=30)


async def play(
    seed: int,
    ours: BrokerConnection,
    theirs: BrokerConnection,
    ids: dict[str, bytes],
    tell: bool,
    admin: AdminClient | None = None,
    older: bool = False,
) -> tuple[int, str]:
    """Number of steps, and why the script was not played to its end, if so. With an admin client: a script in which
    topics change. `older`: than the anchor is the broker. Raises Difference."""
    name = f"t-{seed}" if admin is not None else str(seed)
    sides = [Side(ours, f"managed-{name}", ids), Side(theirs, f"unmanag-{name}", ids)]
    steps = make(seed) if admin is None else make_topics(seed)
    counts: dict[str, int] = {}
    own: list[str] = []
    if admin is not None:
        own = [f"own-{seed}-a", f"own-{seed}-b"]
        for topic in own:
            await asyncio.to_thread(change_topic, admin, topic, "grow", counts)
        await wait_for_topics(sides, theirs, counts, own)
    matched_s = math.inf
    for n, s in enumerate(steps):
        if s.verb == "topic" and admin is not None:
            await asyncio.to_thread(change_topic, admin, s.options["name"], s.options["how"], counts)
            await wait_for_topics(sides, theirs, counts, own)
            continue
        before = await sides[1].described() if older and s.verb == "join" else None
        a, b = await asyncio.gather(*(side.run(s) for side in sides))
        if s.verb == "wait":
            await matched(sides)
        if tell:
            print(f"{n:3} {s}\n      sidecar {a}" + (f"\n      Kafka   {b}" if a != b else ""), flush=True)
        if "regex" in s.options:
            matched_s = min(matched_s, time.monotonic())
        if repeated_static_join(a, b):
            return n, "a static member joins once more"
        if a != b and not agreed(s, a, b) and not (older and harmless_difference(s, a, b)):
            if before is not None and (why := parts(before, s.options["assignor"], "names" in s.options, a, b)):
                return n, why
            if admin is not None and time.monotonic() - matched_s > MATCHED_ANEW_S:
                return n, "matched anew"  # by each coordinator at a time of its own
            trail = "\n".join(f"   {i:3} {t}" for i, t in enumerate(steps[: n + 1]))
            raise Difference(f"seed {seed}, step {n}, {s}\n sidecar {a}\n Kafka   {b}\n{trail if tell else ''}")
    return len(steps), ""


@dataclass(frozen=True)
class Play:
    """A family of scripts: what a script is, and who speaks its steps."""

    name: str
    option: str
    make: Callable[[int], list[Step]]
    side: type[ClassicSide]


CLASSIC = Play("c", "classic", make_classic, ClassicSide)
MIXED = Play("m", "mixed", make_mixed, MixedSide)


async def play_classic(
    what: Play, seed: int, ours: Pool, theirs: Pool, ids: dict[str, bytes], tell: bool, older: bool
) -> tuple[int, str]:
    """Like `play`, for the classic protocol: and why the script was not played to its end, if so."""
    name = f"{what.name}{seed}"
    sides = what.side(ours, f"managed-{name}", ids), what.side(theirs, f"unmanag-{name}", ids)
    for side in sides:
        side.older = older
    steps = what.make(seed)
    agreed_on: dict[int, object] = {}
    try:
        for n, s in enumerate(steps):
            for side in sides:
                side.send(n, s)
            same = await settle(n, s, *sides)
            if tell:
                for side, name in zip(sides, ("sidecar", "Kafka"), strict=True):
                    print(f"{n:3} {s} {name} {side.answers.get(n, 'waits')}", flush=True)
            if not same:
                a, b = (side.answers for side in sides)
                wrong = {i: (a.get(i, "waits"), b.get(i, "waits")) for i in a.keys() | b.keys() if a.get(i) != b.get(i)}
                told = "\n".join(f" {steps[i]}\n  sidecar {x}\n  Kafka   {y}" for i, (x, y) in wrong.items())
                trail = "\n".join(f"   {i:3} {steps[i]}: {agreed_on.get(i, '')}" for i in range(n + 1))
                raise Difference(f"seed {seed}, step {n}, {s}\n{told}\n{trail}")
            agreed_on.update(sides[1].answers)
            for side in sides:
                for i in [i for i in side.answers if i != n]:
                    del side.answers[i]
                side.answers.pop(n, None)
    except Parted as why:
        return n, str(why)
    finally:
        for side in sides:
            await side.end()
    return len(steps), ""


async def play_classics(
    kafka: LocalKafka, seeds: range, tell: bool = False, what: Play = CLASSIC
) -> tuple[int, list[str]]:
    left = iter(seeds)
    node, older = kafka.nodes[0], is_older(kafka.version)
    found: list[str] = []
    ended: Counter[str] = Counter()
    total = 0

    async def worker(warm_up: int) -> None:
        nonlocal total
        ours, theirs = Pool(node.sidecar_port), Pool(node.clients_port)
        conn = await BrokerConnection.open("127.0.0.1", node.clients_port, "diff", AT_MOST_S)
        ids = await topic_ids(conn, list(TOPICS))
        conn.close()
        with suppress(Difference):  # the first requests of a cold broker take long
            await play_classic(what, warm_up, ours, theirs, ids, False, older)
        for seed in left:
            try:
                steps, why = await play_classic(what, seed, ours, theirs, ids, tell, older)
                total += steps
                ended[why or "the whole script"] += 1
            except Difference as exc:
                found.append(f"{AGAIN} --{what.option} --seed {seed}\n{exc}")
        ours.close()
        theirs.close()

    await asyncio.gather(*(worker(-1 - i) for i in range(min(CLASSIC_AT_ONCE, len(seeds)))))
    print_endings(ended)
    return total, found


def print_endings(ended: Counter[str]) -> None:
    print("scripts by where they ended:", ", ".join(f"{why} {n:,}" for why, n in ended.most_common()))


PlayOne = Callable[[int, BrokerConnection, BrokerConnection, dict[str, bytes]], Awaitable[tuple[int, str]]]
"""(seed, sidecar, Kafka, topic ids) -> steps, and why the script was not played to its end. Raises Difference."""


async def play_many(kafka: LocalKafka, seeds: range, option: str, play_one: PlayOne) -> tuple[int, list[str]]:
    """Steps in all, and the differences. `option`: of the command that plays one of them again."""
    left = iter(seeds)
    node = kafka.nodes[0]
    found: list[str] = []
    ended: Counter[str] = Counter()
    total = 0

    async def worker() -> None:
        nonlocal total
        ours = await BrokerConnection.open("127.0.0.1", node.sidecar_port, "diff", AT_MOST_S)
        theirs = await BrokerConnection.open("127.0.0.1", node.clients_port, "diff", AT_MOST_S)
        ids = await topic_ids(theirs, list(TOPICS))
        for seed in left:
            try:
                steps, why = await play_one(seed, ours, theirs, ids)
                total += steps
                ended[why or "the whole script"] += 1
            except Difference as exc:
                found.append(f"{AGAIN}{option} --seed {seed}\n{exc}")
        ours.close()
        theirs.close()

    await asyncio.gather(*(worker() for _ in range(min(AT_ONCE, len(seeds)))))
    print_endings(ended)
    return total, found


def admin_of(kafka: LocalKafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka.internal, "log_level": 3})


async def play_all(kafka: LocalKafka, seeds: range, tell: bool = False, topics: bool = False) -> tuple[int, list[str]]:
    """Steps in all, and the differences."""
    admin, older = admin_of(kafka) if topics else None, is_older(kafka.version)
    return await play_many(
        kafka,
        seeds,
        " --topics" if topics else "",
        lambda seed, ours, theirs, ids: play(seed, ours, theirs, ids, tell, admin, older),
    )


def main() -> int:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--scripts", type=int, default=2_000)
    ap.add_argument("--kafka", default=KAFKA, help="the version of the broker")
    ap.add_argument("--first", type=int, default=0)
    ap.add_argument("--seed", type=int)
    ap.add_argument("--classic", action="store_true", help="scripts of the classic protocol")
    ap.add_argument("--mixed", action="store_true", help="scripts of groups of both protocols")
    ap.add_argument("--share", action="store_true", help="scripts of share groups")
    ap.add_argument("--streams", action="store_true", help="scripts of streams groups")
    ap.add_argument("--topics", action="store_true", help="scripts in which topics grow, go and come again")
    a = ap.parse_args()
    seeds = range(a.first, a.first + a.scripts) if a.seed is None else range(a.seed, a.seed + 1)
    with (
        tempfile.TemporaryDirectory(prefix="sidecar-diff-", ignore_cleanup_errors=True) as tmp,
        cluster(Path(tmp) / "run", a.kafka) as kafka,
    ):
        start = time.monotonic()
        if a.streams or a.share:
            from tests.differential.share_and_streams import SHARE, play_families, streams_of

            family = SHARE if a.share else streams_of(a.kafka)
            steps, found = asyncio.run(play_families(kafka, seeds, a.seed is not None, family))
        elif a.classic or a.mixed:
            what = MIXED if a.mixed else CLASSIC
            steps, found = asyncio.run(play_classics(kafka, seeds, a.seed is not None, what))
        else:
            steps, found = asyncio.run(play_all(kafka, seeds, a.seed is not None, a.topics))
        took = time.monotonic() - start
        if found:
            print(kafka.nodes[0].sidecar.tail(40) if kafka.nodes[0].sidecar else "")
    for text in found[:20]:
        print(text)
    print(f"seeds {seeds.start} to {seeds.stop - 1}: {steps:,} steps, {took:.0f} s, {len(found)} differences")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())


__all__ = ["Step", "cluster", "play_all"]
