"""Every kind of record has a table of silver, and records of each kind of group make rows of gold."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from sidecar.audit.decode.decoder import Decoder, claims_in, schemas_in
from sidecar.audit.gold.fold import fold
from sidecar.audit.gold.frames import database
from sidecar.audit.tables.layers import SILVER
from sidecar.core.kinds import REGISTRY
from sidecar.core.runtime.records import Record, single
from sidecar.state.codec import Stamp, StateCodec
from tests.audit.gold.harness import Tables, read, untimed
from tests.audit.lake.making import T0, bronze
from tests.core.share.world import Client as ShareClient
from tests.core.share.world import World as ShareWorld
from tests.core.streams.world import Client as StreamsClient
from tests.core.streams.world import World as StreamsWorld
from tests.core.test_stories import Story
from tests.core.world import topic, topic_id

LINES = ("topics a=4", "m1 join names=a", "m1 heartbeat", "m2 join names=a", "m1 heartbeat owned=a:0,1", "m2 heartbeat")


def consumers() -> list[Record]:
    story = Story()
    for line in LINES:
        story.run(line)
    return list(single(story.world.log))


def share_and_streams() -> list[Record]:
    share, streams = ShareWorld(), StreamsWorld()
    share.topics(topic(1, "a", 4))
    member = ShareClient(share, "share", "m1", ("a",))
    member.heartbeat()
    share.initialised("share", {topic_id(1): (0, 1)})
    share.sleep(5_000)
    member.heartbeat()
    streams.topics(**{"in": 2, "app_r": 2, "app_c": 2})
    client = StreamsClient(streams, "m1", group_id="streams", process_id="p1")
    client.heartbeat()
    client.heartbeat()
    return list(single([*share.log, *streams.log]))


def gold_of(records: Sequence[Record]) -> Tables:
    codec = StateCodec()
    owner = codec.claim(Stamp(7, T0), 1, "h:1", str(uuid.UUID(int=1)), 1, "took over")
    batch = bronze([*codec.schema_records(), owner, *(codec.encode(r, Stamp(7, T0), 1) for r in records)])
    claims: dict[int, list[tuple[int, int]]] = {}
    for p, offset, epoch in claims_in(batch):
        claims.setdefault(p, []).append((offset, epoch))
    silver = Decoder(schemas_in(batch), claims).decode(batch)
    assert "corrupt" not in silver
    with database() as db:
        made = fold(db, {name: db.rows(rows) for name, rows in silver.items()}, {}, {})
        return {name: untimed(read(frame)).to_pylist() for name, frame in made.gold.items()}


def test_every_kind_of_record_has_a_table() -> None:
    assert set(REGISTRY.records) <= set(SILVER)


def test_records_of_all_kinds_make_rows() -> None:
    """Symptom: each record of a share group was one that could not be read."""
    found = gold_of([*consumers(), *share_and_streams()])
    assert {r["kind"] for r in found["members"]} == {"consumer", "share", "streams"}
    assert {r["kind"] for r in found["rebalances"]} == {"consumer", "share", "streams"}
    held = {(r["topic"], r["partition"], r["member_id"], r["open"]) for r in found["share_holdings"]}
    assert held == {("a", 0, "m1", True), ("a", 1, "m1", True)}
    tasks = {(r["subtopology"], r["partition"], r["role"], r["process_id"]) for r in found["streams_tasks"]}
    assert tasks == {(s, p, "active", "p1") for s in "01" for p in (0, 1)}
    assert {r["kind"] for r in found["intervals"]} == {"consumer"}
