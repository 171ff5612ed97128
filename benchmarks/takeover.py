"""A sidecar with large state: what a cold restart, a kill of the owner and the renewal of fences cost its clients.

    make bench NAME=takeover [ARGS="--groups 1000 --members 100000 --partitions 50000"]

The records of settled consumer groups are written into `__group_state` by the product's own codec. Then real sidecar
processes beside two brokers load them. Members of some groups heartbeat; the other members are silent. `first`: from
the kill (or the start) to the first accepted heartbeat of such a member, of a few groups; `worst stop`: the longest
that the event loop of the heir was held up, by its own metric, as the bucket that it lies in; `of its own`: without the
time in which it waited for a processor.

Beside it the same broker loads native groups of the same size: Kafka's own classes write their records into
`__consumer_offsets`, and the broker is restarted. Both cold restarts count from the start of the process.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

from benchmarks.beats import EPOCH, Beats, member_id, rss_mb
from benchmarks.common import finish, median
from benchmarks.native_groups import native
from sidecar.core.consumer.records import (
    CurrentRecord,
    GroupRecord,
    MemberRecord,
    MemberState,
    TargetMemberRecord,
    TargetMetadataRecord,
)
from sidecar.core.runtime.records import Record
from sidecar.core.vocabulary.placement import partition_for
from sidecar.core.vocabulary.topics import TopicImage
from sidecar.drill.local import JVM_FAST, Broker, LocalKafka
from sidecar.state.codec import OWNER_CLAIM, Stamp, StateCodec
from sidecar.state.keys import decode_key

STATE, SHARDS, TOPIC = "__group_state", 50, "bench-large"
TOPIC_ID = b"\7" * 16
RENEW_MS = 20_000
PROBED = 12
ENV = {
    "SIDECAR_GROUPS__INCLUDE": '["large.*"]',
    "SIDECAR_LOOP_PROBE_MS": "2",
    "SIDECAR_LOG__LEVEL": "info",
    "SIDECAR_STATE__FENCE_INTERVAL_MS": str(RENEW_MS),
    "SIDECAR_CONSUMER__SESSION_TIMEOUT_MS": "600000",
    "SIDECAR_CONSUMER__MAX_SESSION_TIMEOUT_MS": "600000",
    "SIDECAR_CONSUMER__MAX_HEARTBEAT_INTERVAL_MS": "60000",
}
PROPERTIES = {"group.consumer.max.session.timeout.ms": "600000", "group.consumer.session.timeout.ms": "600000"}


CLIENT_ID, CLIENT_HOST = "bench", "/127.0.0.1"
"""As the members of the benchmarks say and have it: of one that comes as another client, a heartbeat is a record."""


@dataclass(frozen=True)
class Size:
    """Members and partitions are spread evenly over the groups."""

    groups: int
    members: int
    partitions: int

    def names(self) -> list[str]:
        return [f"large-{i:05d}" for i in range(self.groups)]

    def members_of(self, index: int) -> int:
        return self.members // self.groups + (index < self.members % self.groups)

    def partitions_of(self, index: int) -> int:
        return self.partitions // self.groups + (index < self.partitions % self.groups)


def records_of(group: str, members: int, partitions: int) -> Iterator[Record]:
    """A settled group. Its topic does not exist, so that no broker has to hold its partitions; the hash says so."""
    names = {TOPIC_ID: TOPIC}
    yield GroupRecord(group, EPOCH, TopicImage().hash_of(frozenset({TOPIC})), "joined")
    for i in range(members):
        m = member_id(i)
        yield MemberRecord(group, m, None, None, CLIENT_ID, CLIENT_HOST, 300_000, (TOPIC,), None, None, "joined")
        own = tuple(range(i, partitions, members))
        yield TargetMemberRecord(group, m, {TOPIC_ID: own} if own else {}, names, "target")
        held = {TOPIC_ID: dict.fromkeys(own, EPOCH)} if own else {}
        yield CurrentRecord(group, m, EPOCH, EPOCH - 1, MemberState.STABLE, held, {}, names, "reached")
    yield TargetMetadataRecord(group, EPOCH, int(time.time() * 1000), "uniform", "target")


def fill(bootstrap: str, size: Size) -> tuple[int, int]:
    """Returns records and bytes."""
    codec, stamp = StateCodec(), Stamp(1 << 16, int(time.time() * 1000))
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "queue.buffering.max.messages": 500_000})
    count = total = 0
    claim = codec.claim(stamp, 0, "bench:1", "bench", 1, "what the bench writes is its own")
    for p in range(SHARDS):
        for e in [*codec.schema_records(), claim]:
            producer.produce(STATE, key=e.key, value=e.value, partition=p)
    for i, group in enumerate(size.names()):
        p = partition_for(group, SHARDS)
        for r in records_of(group, size.members_of(i), size.partitions_of(i)):
            e = codec.encode(r, stamp, 1)
            producer.produce(STATE, key=e.key, value=e.value, partition=p)
            count, total = count + 1, total + len(e.key) + len(e.value or b"")
        while len(producer) > 100_000:
            producer.poll(0.1)
    left = producer.flush(120)
    assert left == 0, f"{left} records were not written"
    return count, total


def claims(bootstrap: str) -> int:
    """Returns the number of claims in the state topic."""
    options = {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False}
    consumer = Consumer({**options, "enable.partition.eof": True, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(STATE, p, OFFSET_BEGINNING) for p in range(SHARDS)])
    ended, found = 0, 0
    while ended < SHARDS:
        for m in consumer.consume(5_000, 5.0):
            key = m.key()
            if (error := m.error()) is not None:
                if error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                ended += 1
            elif isinstance(key, bytes) and m.value() is not None and decode_key(key).kind == OWNER_CLAIM:
                found += 1
    consumer.close()
    return found


# ---- the loop of a sidecar ----------------------------------------------------------------------------------------
def lags(node: Broker, metric: str = "lag") -> dict[float, float]:
    """Upper bound in ms -> how many waits were no longer than that; from the sidecar's metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{node.admin_port}/metrics", timeout=5) as res:
        text = res.read().decode()
    rows = re.findall(rf'sidecar_loop_{metric}_seconds_bucket\{{le="([^"]+)"\}} (\S+)', text)
    return {float(le) * 1000: float(n) for le, n in rows}


def as_soon_as_it_tells(node: Broker, metric: str) -> dict[float, float]:
    """The same of a sidecar that starts: its admin address comes a second later, while it reads the state topic."""
    until = time.monotonic() + 30
    while True:
        try:
            return lags(node, metric)
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def worst_ms(before: dict[float, float], after: dict[float, float]) -> float:
    """The bucket of the longest wait between two looks."""
    passed = {le: n - before.get(le, 0.0) for le, n in after.items()}
    everything = passed[float("inf")]
    return next(le for le in sorted(passed) if passed[le] == everything)


def busy_ends(node: Broker, seconds: float = 2.0, timeout_s: float = 300.0) -> float:
    """Wait until the sidecar is idle again: so its groups are loaded. Returns when that was, monotonic."""
    assert node.sidecar is not None
    process = psutil.Process(node.sidecar.worker_pid)
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        before, at = sum(process.cpu_times()[:2]), time.monotonic()
        time.sleep(seconds)
        if sum(process.cpu_times()[:2]) - before < 0.25 * seconds:
            return at
    raise TimeoutError("the sidecar is never idle")


# ---- the run ------------------------------------------------------------------------------------------------------
def sidecars(kafka: LocalKafka, size: Size) -> dict[str, object]:
    """Cold restart, kill, renewal."""
    figures: dict[str, object] = {}
    kafka.wait_ready()
    figures["load_average"] = round(os.getloadavg()[0], 1)
    for node in kafka.nodes:
        assert node.sidecar is not None
        node.sidecar.stop()
    began = time.monotonic()
    count, total = fill(kafka.internal, size)
    print(f"{count:,} records, {total >> 20} MB, written in {time.monotonic() - began:.1f} s", flush=True)
    figures["records"], figures["state_mb"] = count, total >> 20

    bootstrap = ",".join(f"127.0.0.1:{n.sidecar_port}" for n in kafka.nodes)
    started = time.monotonic()
    for node in kafka.nodes:
        kafka.start_sidecar(node)
    spread = size.names()[:: max(1, size.groups // PROBED)][:PROBED]
    before, busy = (as_soon_as_it_tells(kafka.nodes[0], metric) for metric in ("lag", "busy"))
    firsts = asyncio.run(Beats(bootstrap).first(spread, started, 90))
    kafka.wait_ready(300)
    figures["cold_ready_s"] = round(time.monotonic() - started, 2)
    figures["cold_first_heartbeat_s"] = [round(firsts[0], 2), round(median(firsts), 2), round(firsts[-1], 2)]
    loaded = max(busy_ends(n) for n in kafka.nodes) - started
    figures["cold_idle_again_s"] = round(loaded, 1)
    figures["cold_worst_stop_ms"] = worst_ms(before, lags(kafka.nodes[0]))
    figures["cold_worst_stop_of_its_own_ms"] = worst_ms(busy, lags(kafka.nodes[0], "busy"))
    figures["rss_mb_each"] = [rss_mb(n.sidecar) for n in kafka.nodes]
    print(f"cold restart: {figures}", flush=True)

    victim, heir = kafka.nodes
    view = kafka.owners(victim)
    assert view is not None
    lost = [g for g in size.names() if view["owners"][partition_for(g, SHARDS)] == victim.node_id]
    sample = lost[:: max(1, len(lost) // PROBED)][:PROBED]
    before, busy = lags(heir), lags(heir, "busy")
    assert victim.sidecar is not None
    killed = time.monotonic()
    victim.sidecar.kill()
    beats = Beats(f"127.0.0.1:{heir.sidecar_port}")
    firsts = asyncio.run(beats.first(sample, killed, 120))
    loaded = busy_ends(heir) - killed
    after = lags(heir)
    figures["kill_groups"] = len(lost)
    figures["kill_first_heartbeat_s"] = [round(firsts[0], 2), round(median(firsts), 2), round(firsts[-1], 2)]
    figures["kill_idle_again_s"] = round(loaded, 1)
    figures["kill_worst_stop_ms"] = worst_ms(before, after)
    figures["kill_worst_stop_of_its_own_ms"] = worst_ms(busy, lags(heir, "busy"))
    figures["heir_rss_mb"] = rss_mb(heir.sidecar)
    print(
        f"kill: {len(lost)} groups, first heartbeats {firsts[0]:.2f}-{firsts[-1]:.2f} s, errors {beats.errors}, "
        f"worst stop {figures['kill_worst_stop_ms']} ms",
        flush=True,
    )

    claims_before, before, busy = claims(kafka.internal), lags(heir), lags(heir, "busy")
    time.sleep(RENEW_MS / 1000 + 2)
    after = lags(heir)
    figures["renewals"] = claims(kafka.internal) - claims_before
    figures["renewal_worst_stop_ms"] = worst_ms(before, after)
    figures["renewal_worst_stop_of_its_own_ms"] = worst_ms(busy, lags(heir, "busy"))
    print(f"renewal: {figures['renewals']} fences, worst stop {figures['renewal_worst_stop_ms']} ms", flush=True)
    return figures


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--groups", type=int, default=1_000)
    p.add_argument("--members", type=int, default=100_000)
    p.add_argument("--partitions", type=int, default=50_000)
    p.add_argument("--no-native", action="store_true", help="leave Kafka's own groups out")
    args = p.parse_args()
    size = Size(args.groups, args.members, args.partitions)
    figures: dict[str, object] = {"bench": "takeover", "groups": size.groups, "members": size.members}
    figures["partitions"] = size.partitions
    with tempfile.TemporaryDirectory(prefix="sidecar-bench-") as tmp:
        properties = {**PROPERTIES, "log.segment.bytes": "1073741824"}
        with LocalKafka(Path(tmp) / "run", brokers=2, properties=properties, sidecar_env=ENV, jvm=JVM_FAST) as kafka:
            figures |= sidecars(kafka, size)
    if not args.no_native:
        figures |= native(size.groups, size.members, size.partitions, PROPERTIES, member_id, EPOCH)
        ours, theirs = figures["cold_first_heartbeat_s"], figures["kafka_cold_first_heartbeat_s"]
        assert isinstance(ours, list) and isinstance(theirs, list)
        figures["ratio_cold_first_heartbeat"] = round(ours[1] / theirs[1], 2)
    finish(figures)


if __name__ == "__main__":
    main()
