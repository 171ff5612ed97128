"""Records of all kinds of groups in one partition: those without tables make no rows of others, and no findings."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from sidecar.audit.decode import Decoder, claims_in, schemas_in
from sidecar.audit.gold.fold import fold
from sidecar.audit.gold.frames import database
from sidecar.audit.layers import NO_TABLE
from sidecar.core.runtime.records import Record, single
from sidecar.state.codec import Stamp, StateCodec
from tests.audit.gold.harness import Tables, read, untimed
from tests.audit.lake.making import T0, bronze
from tests.core.share.world import Client as ShareClient
from tests.core.share.world import World as ShareWorld
from tests.core.streams.world import Client as StreamsClient
from tests.core.streams.world import World as StreamsWorld
from tests.core.test_stories import GROUP, Story
from tests.core.world import topic, topic_id

LINES = ("topics a=4", "m1 join names=a", "m1 heartbeat", "m2 join names=a", "m1 heartbeat owned=a:0,1", "m2 heartbeat")
PER_PARTITION = ("coverage",)
"""Tables that count records, whatever they say."""


def consumers() -> list[Record]:
    story = Story()
    for line in LINES:
        story.run(line)
    return list(single(story.world.log))


def share_and_streams() -> list[Record]:
    share, streams = ShareWorld(), StreamsWorld()
    share.topics(topic(1, "a", 4))
    ShareClient(share, "share", "m1", ("a",)).heartbeat()
    share.initialised("share", {topic_id(1): (0, 1)})
    ShareClient(share, "share", "m2", ("a",)).heartbeat()
    streams.topics(**{"in": 2, "app_r": 2, "app_c": 2})
    client = StreamsClient(streams, "m1", group_id="streams")
    client.heartbeat()
    client.leave()
    return list(single([*share.log, *streams.log]))


def gold_of(records: Sequence[Record]) -> tuple[Tables, list[Any]]:
    codec = StateCodec()
    owner = codec.claim(Stamp(7, T0), 1, "h:1", str(uuid.UUID(int=1)), 1, "took over")
    batch = bronze([*codec.schema_records(), owner, *(codec.encode(r, Stamp(7, T0), 1) for r in records)])
    claims: dict[int, list[tuple[int, int]]] = {}
    for p, offset, epoch in claims_in(batch):
        claims.setdefault(p, []).append((offset, epoch))
    silver = Decoder(schemas_in(batch), claims).decode(batch)
    with database() as db:
        made = fold(db, {name: db.rows(rows) for name, rows in silver.items()}, {}, {})
        found = {name: untimed(read(frame)).to_pylist() for name, frame in made.gold.items()}
    return found, silver["corrupt"].to_pylist() if "corrupt" in silver else []


def test_records_without_tables_make_no_rows_of_others_and_no_findings() -> None:
    """Symptom: each record of a share group was one that could not be read."""
    others = share_and_streams()
    alone, nothing = gold_of(consumers())
    found, left = gold_of([*consumers(), *others])
    assert not nothing and len(left) == len(others)
    assert {row["reason"] for row in left} == {f"{NO_TABLE} {str(r.kind)!r}" for r in others}
    assert {row["group_id"] for rows in alone.values() for row in rows if "group_id" in row} >= {GROUP}
    for name, rows in found.items():
        if name not in PER_PARTITION:
            assert rows == alone.get(name, []), name
