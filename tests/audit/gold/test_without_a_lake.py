"""`sidecar owner` and `sidecar history`, which read the topic, name the same owners as the lake, for every kind of
group."""

from __future__ import annotations

import random
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import duckdb
import pytest

from sidecar.audit.ask.query import OWNERSHIP
from sidecar.audit.decode.decoder import Decoder, claims_in, schemas_in
from sidecar.audit.gold.fold import fold
from sidecar.audit.gold.frames import database
from sidecar.audit.history.fold import Interval
from sidecar.audit.history.group_history import History, history
from sidecar.audit.history.topic import Raw, RecordsRead
from sidecar.audit.tables.gold import GOLD
from sidecar.cli.history import _at
from sidecar.core.runtime.records import Record, Tombstone, key_of, single
from sidecar.core.streams.records import CurrentRecord, MemberRecord, MemberState
from sidecar.core.streams.tasks import NOTHING_ASSIGNED, AssignedTasks
from sidecar.state.codec import Encoded, Stamp, StateCodec
from sidecar.state.keys import decode_key
from tests.audit.gold.harness import Tables, gold, read, rows_of, untimed
from tests.audit.gold.rows import Log
from tests.audit.lake.making import T0, bronze
from tests.core.mixed_actors import make
from tests.core.share.test_random_share import Run as RandomShare
from tests.core.streams.test_random_streams import Run as RandomStreams
from tests.core.test_random_mixed import one_event
from tests.harness.tiers import Seeds

EVENTS, SEEDS = 300, 40
ROLES = {"active": "", "standby": "standby ", "warmup": "warm-up "}


def written(log: Iterable[Record]) -> tuple[list[Encoded], StateCodec]:
    """The records as an owner writes them, with the revisions of their keys, behind the schemas and its claim."""
    codec, stamp, revisions = StateCodec(), Stamp(7, T0), Counter[Any]()
    made = [*codec.schema_records(), codec.claim(stamp, 1, "h:1", str(uuid.UUID(int=1)), 1, "assigned")]
    for record in single(log):
        revisions[key_of(record)] += 1
        made.append(codec.encode(record, stamp, revisions[key_of(record)]))
        if isinstance(record, Tombstone):
            del revisions[key_of(record)]
    return made, codec


def from_the_topic(log: Iterable[Record]) -> History:
    entries, codec = written(log)
    taken = RecordsRead(3, schemas=codec.schemas)
    for offset, e in enumerate(entries):
        key = decode_key(e.key)
        if key.kind != "schema":
            headers = {name: value.decode() for name, value in e.headers}
            taken.records.append(Raw(offset, T0 + offset, key, e.value, headers))
    return history("g", taken.rows())


def from_a_lake(log: Iterable[Record]) -> Tables:
    batch = bronze(written(log)[0])
    claims: dict[int, list[tuple[int, int]]] = {}
    for p, offset, epoch in claims_in(batch):
        claims.setdefault(p, []).append((offset, epoch))
    silver = Decoder(schemas_in(batch), claims).decode(batch)
    with database() as db:
        made = fold(db, {name: db.rows(rows) for name, rows in silver.items()}, {}, {})
        return {name: untimed(read(frame)).to_pylist() for name, frame in made.gold.items()}


def ownership_rows(found: Tables, since: int = 0, until: int = 1 << 62) -> list[dict[str, Any]]:
    """Returns the rows of `sidecar audit ownership`."""
    given = {"since": since, "until": until, "topic": None, "partition": None, "group": "g"}
    with duckdb.connect() as db:
        for name, table in GOLD.items():
            db.register(name, rows_of(table, found.get(name, [])))
        answer = db.execute(OWNERSHIP, given)
        names = [column[0] for column in answer.description]
        return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]


def as_people_write_it(row: dict[str, Any]) -> str:
    """Returns the partition, or the task, of a row of the lake's, whose topic names the subtopology and the role of a
    task."""
    word, _, rest = row["topic"].partition(" ")
    if word != "task":
        return f"{row['topic']}-{row['partition']}"
    subtopology, _, role = rest.partition(" ")
    return f"{ROLES[role or 'active']}{subtopology}_{row['partition']}"


def share(seed: int) -> Sequence[Record]:
    run = RandomShare(random.Random(seed))
    for _ in range(EVENTS):
        run.event()
    return run.world.log


def streams(seed: int) -> Sequence[Record]:
    run = RandomStreams(random.Random(seed))
    for _ in range(EVENTS):
        run.event()
    return run.world.log


def consumer_and_classic(seed: int) -> Sequence[Record]:
    mixed = make(seed)
    for _ in range(EVENTS):
        one_event(mixed)
        mixed.sleep(200)
    return mixed.world.log


@pytest.mark.tier("test")
@pytest.mark.parametrize("kind", [share, streams, consumer_and_classic])
def test_the_topic_and_the_lake_tell_the_same_owners(kind: Any, seeds: Seeds) -> None:
    for seed in seeds.of(SEEDS):
        the_same_owners(kind, seed)


def the_same_owners(kind: Any, seed: int) -> None:
    log = kind(seed)
    told, found = from_the_topic(log), from_a_lake(log)
    lake = ownership_rows(found)
    assert {
        (i.place, i.member_id, i.member_epoch, i.from_ms, i.exact, i.from_why, i.to_ms, i.to_why, ended(i))
        for i in told.intervals
    } == {
        (as_people_write_it(r), r["member_id"], r["epoch"], r["from_ms"], r["from_exact"], r["from_why"], *end(r))
        for r in lake
    }
    moments = [at_ms for r in lake for at_ms in (r["from_ms"], r["from_ms"] - 1, r["to_ms"]) if at_ms is not None]
    for at_ms in random.Random(seed).sample(moments, min(20, len(moments))):
        owner = Counter((r["partition"], r["member"], r["client"]) for r in _at(told, at_ms, None))
        then = [r for r in lake if r["from_ms"] <= at_ms and (r["to_ms"] is None or r["to_ms"] > at_ms)]
        assert owner == Counter((as_people_write_it(r), r["member_id"], r["client_id"]) for r in then)
    assert not second_owners(told) and not found["second_owners"]


def end(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["to_ms"], row["to_why"], row["to_exact"]


def ended(i: Interval) -> bool | None:
    return None if i.to_ms is None else i.to_exact


def second_owners(told: History) -> list[tuple[str, str]]:
    return [(e.who, e.detail) for e in told.events if e.what in ("TWO OWNERS", "perhaps two owners")]


def test_a_second_holder_of_a_task_is_told_by_both_and_one_of_a_shared_partition_by_none() -> None:
    """m2 is given what m1 has, which is in the same process. m3 has it as a standby, which it may."""
    active, standby = AssignedTasks(active={"0": {1: 2}}), AssignedTasks(standby={"0": (1,)})
    process = {"m1": "p", "m2": "p", "m3": "q"}
    log: list[Record] = [MemberRecord("g", m, None, None, m, "/h", 1, 1, p) for m, p in process.items()]
    for m, tasks in (("m1", active), ("m3", standby), ("m2", active)):
        log.append(CurrentRecord("g", m, 2, 1, MemberState.STABLE, tasks, NOTHING_ASSIGNED))
    told, found = from_the_topic(log), from_a_lake(log)
    assert second_owners(told) == [("m2", "0_1, also m1's"), ("m2", "process p: 0_1, also m1's")]
    assert {(r["member_id"], r["topic_key"], r["partition"], r["other_member_id"]) for r in found["second_owners"]} == {
        ("m2", "0", 1, "m1"),
        ("m2", "0 in process p", 1, "m1"),
    }
    assert [(r["partition"], r["member"]) for r in _at(told, T0 + 1_000, "0_1")] == [
        ("0_1", "m1"),
        ("0_1", "m2"),
        ("standby 0_1", "m3"),
    ], "the three are beside one another, and go by the name of the task"


@pytest.mark.tier("test")
def test_a_member_has_one_client_id_also_when_its_group_changes_the_protocol() -> None:
    """Symptom: the lake named the client id of before the change for what the member had then, the topic the latest."""
    log = Log()
    log.claim(1)
    log.joins("g", "m", client_id="before")
    log.classic("g", "STABLE", 1, 1)
    log.assign("g", "m", 1, [0])
    for kind in ("classic_assignment", "classic_member"):
        log.put(kind, "g", "m", gone=True)
    log.put("classic_group", "g", gone=True)
    log.member("g", "m", client_id="after")
    log.current("g", "m", 1, [1])
    assert {(r["partition"], r["client_id"]) for r in ownership_rows(gold(log.rows))} == {(0, "after"), (1, "after")}
