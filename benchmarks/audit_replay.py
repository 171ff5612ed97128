"""Audits the state topic in plain Python: which member owned which partition of which topic, from when to when.

    python -m benchmarks.audit_replay FOLDER-OR-BOOTSTRAP OUT.parquet

It is what Spark's gold is compared with, so it shares no code with it, and none with the coordinator either: it reads
keys and values by what schemas/README.md says of them, values with fastavro and the schemas that stand in the topic,
and it follows what docs/use/audit.md says of owning. One process on one core; the last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from io import BytesIO
from pathlib import Path
from struct import unpack_from
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from fastavro import parse_schema, schemaless_reader

Place = tuple[str, int]
"""Topic and partition."""
Holder = tuple[str, str, str]
"""Group, kind of group, and member."""
Headers = dict[str, bytes]
Record = tuple[int, bytes, bytes | None, Headers]
"""Offset, key, value (None: a tombstone), headers."""
UNFENCED = ("owner_claim", "schema", "config")
COLUMNS = ("state_partition", "group_id", "kind", "topic", "partition", "member_id", "from_offset", "to_offset")
TYPES = (pa.int32(), pa.string(), pa.string(), pa.string(), pa.int32(), pa.string(), pa.int64(), pa.int64())


# ---- bytes ----------------------------------------------------------------------------------------------------------
def key_of(raw: bytes) -> list[str]:
    """Three Avro strings: kind, group id, sub id."""
    found, at = [], 0
    for _ in range(3):
        n = shift = 0
        while True:
            x = raw[at]
            at += 1
            n |= (x & 127) << shift
            shift += 7
            if x < 128:
                break
        n >>= 1
        found.append(raw[at : at + n].decode())
        at += n
    return found


def plain(schema: Any) -> Any:
    """Without logical types: a time stays the number that it is."""
    if isinstance(schema, dict):
        return {k: plain(v) for k, v in schema.items() if k != "logicalType"}
    return [plain(s) for s in schema] if isinstance(schema, list) else schema


def assigned_places(raw: bytes) -> list[Place]:
    """Decodes Kafka's ConsumerProtocolAssignment: a version, then topics with their partitions."""
    found: list[Place] = []
    if not raw:
        return found
    (count,) = unpack_from(">i", raw, 2)
    at = 6
    for _ in range(count):
        (n,) = unpack_from(">h", raw, at)
        topic = raw[at + 2 : at + 2 + n].decode()
        at += 2 + n
        (n,) = unpack_from(">i", raw, at)
        found += [(topic, p) for p in unpack_from(f">{n}i", raw, at + 4)]
        at += 4 + 4 * n
    return found


# ---- one state partition --------------------------------------------------------------------------------------------
class ClassicGroup:
    def __init__(self) -> None:
        self.consumers, self.known = False, -1
        self.waiting: dict[str, list[Place]] = {}
        """Assignments of a generation whose group record has not been read yet."""
        self.members: set[str] = set()


class Replay:
    def __init__(self, number: int) -> None:
        self.number = number
        self.schemas: dict[bytes, Any] = {}
        self.claimed: int | None = None
        self.held: dict[Holder, dict[Place, int]] = {}
        """Since which offset."""
        self.owners: dict[tuple[str, str, Place], int] = {}
        """The number of members that own each place now."""
        self.classic: dict[str, ClassicGroup] = {}
        self.intervals: list[tuple[int, str, str, str, int, str, int, int | None]] = []
        self.records = self.stale = self.second_owners = 0

    def add(self, offset: int, key: bytes, value: bytes | None, headers: Headers) -> None:
        self.records += 1
        kind, group, sub = key_of(key)
        if kind == "schema":
            if value is not None:
                self.schemas[bytes.fromhex(sub)] = parse_schema(plain(json.loads(value)))
            return
        body = None if value is None else self.decoded(value)
        epoch = int(headers["owner_epoch"]) if body is None else body["owner_epoch"]
        if kind == "owner_claim":
            if value is not None and sub.isdigit():
                self.claimed = int(sub)
        elif kind not in UNFENCED and self.claimed is not None and epoch != self.claimed:
            self.stale += 1
        elif kind == "current":
            self.current(offset, group, sub, body)
        elif kind == "member" and body is None:
            self.release(offset, (group, "consumer", sub))
        elif kind.startswith("classic_"):
            getattr(self, kind)(offset, group, sub, body)

    def decoded(self, value: bytes) -> dict[str, Any]:
        if value[:2] != b"\xc3\x01":
            raise ValueError("a value is not in single-object encoding")
        body = schemaless_reader(BytesIO(value[10:]), self.schemas[value[2:10]], None)
        assert isinstance(body, dict)
        return body

    def current(self, offset: int, group: str, member: str, body: Any) -> None:
        places: list[Place] = []
        if body is not None:
            for part in (body["assigned"], body["pending"]):
                for t in part:
                    topic = t["topic_name"]
                    places += [(topic, p) for p in t["partitions"]]
        self.hold(offset, (group, "consumer", member), places)

    def classic_assignment(self, offset: int, group_id: str, member: str, body: Any) -> None:
        group = self.classic.setdefault(group_id, ClassicGroup())
        group.waiting.pop(member, None)
        if body is None:
            self.release(offset, (group_id, "classic", member))
            return
        group.members.add(member)
        if body["generation"] > group.known:
            group.waiting[member] = assigned_places(body["assignment"])
        else:
            places = assigned_places(body["assignment"]) if group.consumers else []
            self.hold(offset, (group_id, "classic", member), places)

    def classic_member(self, offset: int, group_id: str, member: str, body: Any) -> None:
        if body is None:
            if group_id in self.classic:
                self.classic[group_id].waiting.pop(member, None)
            self.release(offset, (group_id, "classic", member))

    def classic_group(self, offset: int, group_id: str, _: str, body: Any) -> None:
        group = self.classic.setdefault(group_id, ClassicGroup())
        if body is None:
            for member in group.members:
                self.release(offset, (group_id, "classic", member))
            del self.classic[group_id]
            return
        group.consumers, group.known = body["protocol_type"] == "consumer", body["assigned_generation"]
        assigned = [(m, set(ps) if group.consumers else set()) for m, ps in group.waiting.items()]
        group.waiting = {}
        for member, now in assigned:
            holder = (group_id, "classic", member)
            self.end(offset, holder, [p for p in self.held.get(holder, ()) if p not in now])
        for member, now in assigned:
            holder = (group_id, "classic", member)
            self.begin(offset, holder, now - self.held.get(holder, {}).keys())

    # ---- owning ---------------------------------------------------------------------------------------------------
    def hold(self, offset: int, holder: Holder, places: list[Place]) -> None:
        now = set(places)
        before = self.held.get(holder, {}).keys()
        if now != before:
            self.end(offset, holder, list(before - now))
            self.begin(offset, holder, now - before)

    def release(self, offset: int, holder: Holder) -> None:
        self.end(offset, holder, list(self.held.get(holder, ())))

    def end(self, offset: int, holder: Holder, places: Iterable[Place]) -> None:
        group, kind, member = holder
        for place in places:
            since = self.held[holder].pop(place)
            self.owners[group, kind, place] -= 1
            self.intervals.append((self.number, group, kind, *place, member, since, offset))
        if holder in self.held and not self.held[holder]:
            del self.held[holder]

    def begin(self, offset: int, holder: Holder, places: Iterable[Place]) -> None:
        group, kind, _ = holder
        for place in places:
            others = self.owners.get((group, kind, place), 0)
            self.second_owners += others > 0
            self.owners[group, kind, place] = others + 1
            self.held.setdefault(holder, {})[place] = offset

    def finish(self) -> Iterator[tuple[Any, ...]]:
        yield from self.intervals
        for (group, kind, member), places in self.held.items():
            for place, since in places.items():
                yield (self.number, group, kind, *place, member, since, None)


# ---- where records come from ----------------------------------------------------------------------------------------
def of_files(folder: Path) -> Iterator[tuple[int, list[Record]]]:
    """State partition by state partition, in the order of the offsets."""
    found: dict[int, list[Path]] = {}
    for path in folder.rglob("*.parquet"):
        found.setdefault(int(path.parent.name.partition("=")[2]), []).append(path)
    for p, paths in sorted(found.items()):
        parts = [pq.ParquetFile(f).read(["offset", "key", "value", "headers"]) for f in paths]
        for rows in sorted(parts, key=lambda t: int(t["offset"][0].as_py())):
            deleted = rows["value"].is_null()
            tombstones = rows.filter(deleted)
            pairs = zip(tombstones["offset"].to_pylist(), tombstones["headers"].to_pylist(), strict=True)
            headers = {offset: {h["name"]: h["value"] for h in hs} for offset, hs in pairs}
            none: Headers = {}
            columns = (rows[n].to_pylist() for n in ("offset", "key", "value"))
            yield p, [(o, k, v, headers.get(o, none)) for o, k, v in zip(*columns, strict=True)]


def of_topic(bootstrap: str, topic: str = "__group_state") -> Iterator[tuple[int, list[Record]]]:
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

    options = {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False}
    consumer = Consumer({**options, "enable.partition.eof": True, "isolation.level": "read_committed"})
    count = len(consumer.list_topics(topic, 30).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(count)])
    ended = 0
    while ended < count:
        found: dict[int, list[Record]] = {}
        for m in consumer.consume(10_000, 1.0):
            if (error := m.error()) is not None:
                if error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                ended += 1
                continue
            message: Any = m
            record = (message.offset(), message.key(), message.value(), dict(message.headers() or ()))
            found.setdefault(message.partition(), []).append(record)
        yield from found.items()
    consumer.close()


def written(path: Path, replays: Iterable[Replay]) -> int:
    rows = [row for r in replays for row in r.finish()]
    columns = list(zip(*rows, strict=True)) or [()] * len(COLUMNS)
    table = pa.table({n: pa.array(c, t) for n, t, c in zip(COLUMNS, TYPES, columns, strict=True)})
    pq.write_table(table, path)
    return len(rows)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("source")
    p.add_argument("out", type=Path)
    args = p.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    replays: dict[int, Replay] = {}
    begin, spent, last = time.monotonic(), 0.0, 0
    for number, records in of_files(Path(args.source)) if Path(args.source).is_dir() else of_topic(args.source):
        at = time.monotonic()
        replay = replays.setdefault(number, Replay(number))
        for r in records:
            replay.add(*r)
        spent += time.monotonic() - at
        done = sum(r.records for r in replays.values())
        if done - last >= 1_000_000:
            print(f"replay: {done:,} records in {time.monotonic() - begin:.1f} s", file=sys.stderr, flush=True)
            last = done
    seconds, records_read = time.monotonic() - begin, sum(r.records for r in replays.values())
    figures = {
        "records": records_read,
        "seconds": round(seconds, 2),
        "records_per_s": round(records_read / max(seconds, 1e-9)),
        "without_reading_records_per_s": round(records_read / max(spent, 1e-9)),
        "intervals": written(args.out, replays.values()),
        "second_owners": sum(r.second_owners for r in replays.values()),
        "stale_writes": sum(r.stale for r in replays.values()),
    }
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
