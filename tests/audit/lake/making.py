"""Records of every kind, as the sidecar writes them, and rows of bronze made of them."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from sidecar.audit.source.bronze import bronze_batch
from sidecar.audit.source.dump import DumpRecord, open_dump
from sidecar.core.classic import records as classic
from sidecar.core.classic.embedded import assignment, plain_subscription
from sidecar.core.consumer import records as consumer
from sidecar.core.runtime.records import Tombstone
from sidecar.core.share import records as share
from sidecar.core.streams import records as streams
from sidecar.core.streams.tasks import AssignedTasks, Tasks
from sidecar.core.streams.topology import Subtopology, TopicInfo, Topology
from sidecar.state.codec import Encoded, Stamp, StateCodec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T0 = 1_760_000_000_000
NAMES = {uuid.UUID(int=(i * 0x9E3779B97F4A7C15F39CC0605CEDC835) % (1 << 128)).bytes: f"topic-{i}" for i in range(30)}
IDS = list(NAMES)
TEXTS = ("", "a", "größe", "x" * 70, "😀", "why: 3 members", "with\nlines")


def _places(r: random.Random) -> dict[bytes, tuple[int, ...]]:
    return {t: tuple(r.sample(range(200_000), r.randrange(9))) for t in r.sample(IDS, r.randrange(4))}


def _epochs(r: random.Random) -> dict[bytes, dict[int, int]]:
    return {t: {p: r.randrange(-1, 1 << 20) for p in ps} for t, ps in _places(r).items()}


def _maybe(r: random.Random) -> str | None:
    return r.choice((None, *TEXTS))


def _protocols(r: random.Random) -> tuple[tuple[str, bytes], ...]:
    said = [plain_subscription(r.sample(TEXTS[1:], r.randrange(3))), b"", b"\0\1\0", r.randbytes(12)]
    return tuple((r.choice(("range", "coop")), r.choice(said)) for _ in range(r.randrange(3)))


def any_record(r: random.Random, group: str) -> Any:
    m, why = f"member-{r.randrange(5)}", r.choice(TEXTS)
    traits = consumer.ClassicTraits(r.randrange(1 << 31), _protocols(r))
    claims = tuple(
        classic.StaleClaim(r.choice(TEXTS), tuple(range(r.randrange(3))), -1, m) for _ in range(r.randrange(3))
    )
    assigned = r.choice((b"", b"\0", r.randbytes(9), assignment(1, [("a", (0, 1)), ("b", (7,))])))
    state = r.choice(list(consumer.MemberState))
    return r.choice(
        (
            lambda: consumer.GroupRecord(group, r.randrange(1 << 31), r.randrange(-(1 << 62), 1 << 62), why),
            lambda: consumer.MemberRecord(
                group,
                m,
                _maybe(r),
                _maybe(r),
                r.choice(TEXTS),
                "h",
                5,
                TEXTS[: r.randrange(6)],
                _maybe(r),
                _maybe(r),
                why,
                r.choice((None, traits)),
            ),
            lambda: consumer.StaticMemberRecord(group, "i1", m, why),
            lambda: consumer.TargetMetadataRecord(group, 4, r.randrange(1 << 50), "uniform", why),
            lambda: consumer.TargetMemberRecord(group, m, _places(r), NAMES, why),
            lambda: consumer.CurrentRecord(group, m, 3, 2, state, _epochs(r), _epochs(r), NAMES, why),
            lambda: consumer.RegexRecord(group, "a.*", TEXTS[: r.randrange(5)], 4, T0, why),
            lambda: classic.GroupRecord(
                group, classic.State.STABLE, 3, _maybe(r), _maybe(r), _maybe(r), -1, T0, why, bool(r.randrange(2))
            ),
            lambda: classic.MemberRecord(
                group, m, _maybe(r), "c", "h", 10, 20, _protocols(r), bool(r.randrange(2)), 3, claims, why
            ),
            lambda: classic.AssignmentRecord(group, m, 7, assigned, why),
            lambda: Tombstone(r.choice(("current", "member", "classic_group", "regex")), group, m, why),
            *_of_share(r, group, m, why),
            *_of_streams(r, group, m, why),
        )
    )()


def _of_share(r: random.Random, group: str, m: str, why: str) -> Sequence[Callable[[], Any]]:
    return (
        lambda: share.GroupRecord(group, r.randrange(1 << 31), r.randrange(-(1 << 62), 1 << 62), why),
        lambda: share.MemberRecord(group, m, _maybe(r), "c", "h", TEXTS[: r.randrange(6)], why),
        lambda: share.TargetMetadataRecord(group, 4, r.randrange(1 << 50), "simple", why),
        lambda: share.TargetMemberRecord(group, m, _places(r), NAMES, why),
        lambda: share.CurrentRecord(group, m, 3, 2, _places(r), NAMES, why),
        lambda: share.PlaceholderRecord(group, m, 1, TEXTS[: r.randrange(6)], T0, _places(r), NAMES, why),
    )


def _of_streams(r: random.Random, group: str, m: str, why: str) -> Sequence[Callable[[], Any]]:
    def tasks() -> dict[str, tuple[int, ...]]:
        return {str(s): tuple(r.sample(range(200), r.randrange(5))) for s in range(r.randrange(3))}

    def held() -> AssignedTasks:
        return AssignedTasks({s: dict.fromkeys(ps, 3) for s, ps in tasks().items()}, tasks(), tasks())

    def internal() -> tuple[TopicInfo, ...]:
        return tuple(TopicInfo(t, r.randrange(9), 1, (("a", "b"),) * r.randrange(3)) for t in TEXTS[: r.randrange(3)])

    pairs = dict(r.sample((("rack", "a"), ("zone", "größe"), ("", "")), r.randrange(4)))
    sub = tuple(Subtopology(str(s), TEXTS[: r.randrange(4)], (), internal(), internal()) for s in range(r.randrange(3)))
    state = r.choice(list(streams.MemberState))
    return (
        lambda: streams.GroupRecord(group, 4, r.randrange(1 << 62), r.randrange(-1, 9), pairs, T0, 2, _maybe(r), why),
        lambda: streams.TopologyRecord(group, Topology(r.randrange(9), sub), bool(r.randrange(2)), why),
        lambda: streams.MemberRecord(
            group, m, _maybe(r), _maybe(r), "c", "h", 5, 1, "p", r.choice((None, ("h", 9))), pairs, why
        ),
        lambda: streams.TargetMetadataRecord(group, 4, r.randrange(1 << 50), "sticky", why),
        lambda: streams.TargetMemberRecord(group, m, Tasks(tasks(), tasks(), tasks()), why),
        lambda: streams.CurrentRecord(group, m, 3, 2, state, held(), held(), why),
    )


def log(seed: int, count: int, codec: StateCodec | None = None, groups: Sequence[str] = ("g",)) -> list[Encoded]:
    """A partition of the state topic: schemas, a claim, then anything, with claims and settings between."""
    codec, r = codec or StateCodec(), random.Random(seed)
    epoch = 5 << 16
    out = [*codec.schema_records(), codec.claim(Stamp(epoch, T0), 1, "h:1", "s-1", 4, "took over")]
    while len(out) < count:
        stamp = Stamp(epoch, T0 + len(out))
        dice = r.random()
        if dice < 0.01:
            epoch += 1
            out.append(codec.claim(Stamp(epoch, T0 + len(out)), 2, "h:2", "s-2", 5, "took over"))
        elif dice < 0.05:
            value = r.choice((None, "50000"))
            out.append(codec.config(r.choice(("", "g")), "consumer.session.timeout.ms", value, stamp.time_ms, 3, "set"))
        else:
            out.append(codec.encode(any_record(r, r.choice(groups)), stamp, r.randrange(1, 1 << 40)))
    return out[:count]


def bronze(entries: Sequence[Any], partition: int = 3, first: int = 0, ms: int = T0) -> Any:
    """Rows of bronze; an entry is an `Encoded`, or (key, value)."""
    rows = [e if isinstance(e, Encoded) else Encoded(*e) for e in entries]
    return bronze_batch(
        [
            DumpRecord(partition, first + i, ms + i, "create", e.key, e.value, list(e.headers))
            for i, e in enumerate(rows)
        ]
    )


def dump(batches: Iterable[Any], path: Path) -> int:
    """Writes bronze rows as a plain dump. Returns how many."""
    written = 0
    with open_dump(path) as f:
        for batch in batches:
            names = ("state_partition", "offset", "log_ms", "log_time_type", "key", "value", "headers")
            for p, offset, ms, kind, key, value, headers in zip(*(batch[n].to_pylist() for n in names), strict=True):
                pairs = [(h["name"], h["value"]) for h in headers]
                f.write(msgspec.json.encode(DumpRecord(p, offset, ms, kind, key, value, pairs)) + b"\n")
                written += 1
    return written


def records(spark: SparkSession, uri: str, options: Mapping[str, str] | None = None) -> DataFrame:
    """The rows of bronze from any source."""
    from sidecar.audit.source.records import GroupStateRecords

    spark.dataSource.register(GroupStateRecords)
    return spark.read.format(GroupStateRecords.name()).options(uri=uri, **(options or {})).load()
