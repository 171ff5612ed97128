"""The state topic of many groups over a week, made once and kept as Parquet files with bronze's columns.

Groups join, rebalance, lose members and begin anew as the coordinator does it, and the product's own encoder makes the
bytes: revisions rise by one, a partition is given up before somebody else gets it, and the state partitions change
their owners now and then. `parquet://FOLDER` reads what is made here; `load` writes it into a real topic.
"""

from __future__ import annotations

import heapq
import json
import multiprocessing
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.audit_groups import Setting, Write, classic_group, consumer_group
from sidecar.audit.lake.files import TableWriter, Target
from sidecar.audit.source.bronze import bronze_batch
from sidecar.audit.source.dump import DumpRecord
from sidecar.audit.tables.layers import BRONZE
from sidecar.coordinator.statelog.encoder import Encoder
from sidecar.core.runtime.records import Key
from sidecar.core.vocabulary.placement import partition_for
from sidecar.state.codec import Encoded, Stamp, StateCodec

SHARDS = 50
T0 = 1_760_000_000_000
WEEK_MS = 7 * 86_400_000
TAKEOVERS = 12
"""Takeovers of each state partition in the week."""
AT_ONCE = 3
"""Groups of one state partition that rebalance at the same time."""
ROWS = 65_536
VERSION = 1
"""Rises when other records are made, so that what was kept is not taken for them."""


@dataclass(frozen=True)
class Shape:
    """The log to make. `members`: the number of the largest group."""

    records: int
    groups: int = 1_000
    members: int = 10_000
    seed: int = 1

    def name(self) -> str:
        return f"v{VERSION}-{self.records}-{self.groups}-{self.members}-{self.seed}"


@dataclass(frozen=True)
class Plan:
    """One group. `weight`: its share of the records, beside those of the others."""

    group_id: str
    size: int
    weight: float
    classic: bool


def plans(shape: Shape) -> list[Plan]:
    """One group in ten is classic. The largest group gets as many records as it takes to come up and to rebalance."""
    rng = random.Random(shape.seed)
    found = []
    for i in range(1, shape.groups):
        size = min(80, 2 + int(rng.lognormvariate(2.0, 0.7)))
        found.append(Plan(f"team-{i % 37:02d}.app-{i:05d}", size, size * rng.uniform(0.5, 1.5), i % 10 == 0))
    total = sum(p.weight for p in found) or 1.0
    share = min(0.5, max(0.05, 4.5 * shape.members / shape.records))
    return [Plan("team-00.large", shape.members, total * share / (1 - share), False), *found]


def quotas(shape: Shape, all_plans: list[Plan]) -> dict[int, int]:
    """Returns how many records each state partition gets; together as many as were asked for."""
    weights = Counter[int]()
    for p in all_plans:
        weights[partition_for(p.group_id, SHARDS)] += p.weight  # type: ignore[assignment]
    total = sum(weights.values())
    counts = {p: int(shape.records * w / total) for p, w in sorted(weights.items())}
    counts[max(counts, key=lambda p: counts[p])] += shape.records - sum(counts.values())
    return counts


class Partition:
    """One state partition, record by record."""

    def __init__(self, shape: Shape, number: int, quota: int, all_plans: list[Plan], folder: str) -> None:
        self.number, self.quota = number, quota
        self.rng = random.Random(f"{shape.seed}/{number}")
        self.codec = StateCodec()
        self.writer = TableWriter(Target(BRONZE, folder, f"p{number:02d}-"))
        self.revisions: dict[Key, int] = {}
        self.rows: list[tuple[int, Encoded]] = []
        self.made = self.bytes = 0
        self.ms = T0 + self.rng.randrange(60_000)
        self.claims = 0
        self.encoder = self._claim()
        self.plans = [p for p in all_plans if partition_for(p.group_id, SHARDS) == number]

    def _claim(self) -> Encoder:
        """The next owner: its node, and a producer epoch higher than all before."""
        self.claims += 1
        node = 1 + (self.number + self.claims) % 3
        stamp = Stamp(((1_000 + self.number) << 16) | self.claims, self.ms)
        first = self.codec.schema_records() if self.claims == 1 else []
        claim = self.codec.claim(
            stamp, node, f"broker-{node}:9192", f"sidecar-{node}-1f0c", 10 + self.claims, "took over"
        )
        self._add([*first, claim])
        return Encoder(self.codec, stamp.owner_epoch, self.revisions)

    def _add(self, entries: list[Encoded]) -> None:
        self.rows += [(self.ms, e) for e in entries]
        self.made += len(entries)
        if len(self.rows) >= ROWS:
            self._flush()

    def _flush(self) -> None:
        """Cut at the quota: a log may end in the middle of anything."""
        first = self.made - len(self.rows)
        rows = self.rows[: max(0, self.quota - first)]
        self.rows = []
        if rows:
            entries = [e for _, e in rows]
            self.bytes += sum(len(e.key) + len(e.value or b"") for e in entries)
            records = [
                DumpRecord(self.number, first + i, ms, "create", e.key, e.value, list(e.headers))
                for i, (ms, e) in enumerate(rows)
            ]
            self.writer.write(bronze_batch(records))

    def _write(self, records: Write) -> None:
        plain = [r for r in records if not isinstance(r, Setting)]
        self._add(self.encoder.encode(plain, self.ms))
        for s in records:
            if isinstance(s, Setting):
                key = ("config", s.group_id, s.name)
                self.revisions[key] = revision = self.revisions.get(key, 0) + 1
                self._add([self.codec.config(s.group_id, s.name, s.value, self.ms, revision, "set by ops")])

    def fill(self) -> dict[str, int]:
        """The group that is furthest behind its share comes next, until it rests."""
        lines = [self._line(p) for p in self.plans]
        done = [0] * len(lines)
        behind = [(0.0, i) for i in range(len(lines))]
        active: list[int] = []
        takeover = self.quota // TAKEOVERS + 1
        while self.made < self.quota:
            while len(active) < AT_ONCE and behind:
                active.append(heapq.heappop(behind)[1])
            at = self.rng.randrange(len(active))
            i = active[at]
            before, records = self.made, next(lines[i])
            if records is None:
                active.pop(at)
                heapq.heappush(behind, (done[i] / self.plans[i].weight, i))
                self.ms = max(self.ms, T0 + WEEK_MS * self.made // self.quota + self.rng.randrange(1_000))
                continue
            self._write(records)
            done[i] += self.made - before
            self.ms += self.rng.randrange(30)
            if self.made >= takeover * self.claims:
                self.ms += self.rng.randrange(300, 5_000)
                self.encoder = self._claim()
        self._flush()
        files = self.writer.close()
        return {"records": sum(f.rows for f in files), "bytes": self.bytes, "claims": self.claims}

    def _line(self, plan: Plan) -> Iterator[Write | None]:
        rng = random.Random(self.rng.random())
        return (classic_group if plan.classic else consumer_group)(rng, plan.group_id, plan.size, T0)


def _filled(shape: Shape, number: int, quota: int, folder: str) -> dict[str, int]:
    return Partition(shape, number, quota, plans(shape), folder).fill()


def dataset(shape: Shape, base: Path, cores: int) -> Path:
    """The folder with these records, which are made if they are not there."""
    folder = base / shape.name()
    if (folder / "about.json").exists():
        return folder
    making = folder.with_name(f"{folder.name}.making")
    shutil.rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    counts = quotas(shape, plans(shape))
    largest_first = sorted(counts, key=lambda p: -counts[p])
    with ProcessPoolExecutor(cores, multiprocessing.get_context("spawn")) as pool:
        tasks = [pool.submit(_filled, shape, p, counts[p], str(making)) for p in largest_first]
        counters = [t.result() for t in tasks]
    totals = Counter[str]()
    for one in counters:
        totals.update(one)
    assert totals["records"] == shape.records, totals
    (making / "about.json").write_text(json.dumps({**asdict(shape), **totals}))
    shutil.rmtree(folder, ignore_errors=True)
    making.rename(folder)
    return folder


def files_of(folder: Path) -> dict[int, list[Path]]:
    """State partition -> its files, in the order of their days."""
    found: dict[int, list[Path]] = {}
    for path in sorted(folder.rglob("*.parquet")):
        found.setdefault(int(path.parent.name.partition("=")[2]), []).append(path)
    return found


def load(folder: Path, bootstrap: str, topic: str) -> int:
    """Write the records into a new topic, each at the offset that it has in the files. Returns how many."""
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    config = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
    for future in admin.create_topics([NewTopic(topic, SHARDS, 1, config=config)]).values():
        future.result(timeout=30)
    settings = {"enable.idempotence": True, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000}
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 3, **settings})
    count = 0
    for p, paths in sorted(files_of(folder).items()):
        rows = pa.concat_tables(
            [pq.ParquetFile(f).read(["offset", "log_ms", "key", "value", "headers"]) for f in paths]
        )
        rows = rows.sort_by("offset")
        assert pc.max(rows["offset"]).as_py() == len(rows) - 1, f"state partition {p} has holes"
        headers = [[(h["name"], h["value"]) for h in hs] if hs else None for hs in rows["headers"].to_pylist()]
        columns = (rows[n].to_pylist() for n in ("log_ms", "key", "value"))
        for ms, key, value, pairs in zip(*columns, headers, strict=True):
            if not count % 10_000:
                while len(producer) > 500_000:
                    producer.poll(0.1)
            producer.produce(topic, key=key, value=value, partition=p, timestamp=ms, headers=pairs)
            count += 1
            if not count % 1_000:
                producer.poll(0)
    left = producer.flush(300)
    assert left == 0, f"{left} records were not written"
    return count
