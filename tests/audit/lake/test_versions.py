"""Writers of two versions take turns: a schema is read by batches long after the one that it came with."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sidecar.audit.ask import query
from sidecar.audit.lake.lake import Lake
from sidecar.audit.run.pipeline import audit
from sidecar.audit.run.verdict import verdict
from sidecar.audit.tables.layers import BRONZE
from sidecar.coordinator.statelog.encoder import Encoder
from sidecar.core.runtime.records import Key, Record, Tombstone
from sidecar.state.codec import SCHEMA, Encoded, Stamp, StateCodec
from sidecar.state.keys import encode_key
from sidecar.state.schema import KEY_SCHEMA, published
from tests.audit.lake.test_ingest import contents
from tests.audit.lake.test_pipeline import EPOCH, T0, gold_of, played
from tests.audit.lake.topics import Topics
from tests.audit.lake.without_spark import SPARK

pytestmark = pytest.mark.usefixtures("without_spark")
MORE = (
    {"name": "more", "type": {"type": "array", "items": "string"}, "default": []},
    {"name": "note", "type": ["null", "string"], "default": None},
)
BATCHES = 3


class Newer(StateCodec):
    """A codec of a later version: each value has two more fields, under a schema that this version does not know."""

    def __init__(self) -> None:
        files = {}
        for name, text in published().items():
            schema = json.loads(text)
            if name != KEY_SCHEMA:
                schema["fields"] += MORE
            files[name] = json.dumps(schema)
        super().__init__(files=files)

    def encode(self, r: Record, stamp: Stamp, revision: int) -> Encoded:
        if isinstance(r, Tombstone):
            return super().encode(r, stamp, revision)
        body: dict[str, Any] = r.body()  # type: ignore[attr-defined]
        return Encoded(encode_key(r.kind, r.group_id, r.sub_id), self._value(r.kind, stamp, revision, r.why, body))


def older() -> StateCodec:
    """Version 1 of the schemas that have two."""
    known = published()
    return StateCodec(
        files={**known, "member-v2": known["member-v1"], "classic_group-v2": known["classic_group-v1"]},
    )


def in_turns() -> list[Encoded]:
    """A log of five terms: newer, older, newer, older, newer. Who takes over writes the schemas that are not there
    yet, as a sidecar does."""
    records = played(5, 240)[0].world.log
    out: list[Encoded] = []
    there: set[bytes] = set()
    revisions: dict[Key, int] = {}
    turns = (Newer(), older()) * 2 + (Newer(),)
    for n, codec in enumerate(turns):
        ms = T0 + 1_000 * n
        schemas = [e for e in codec.schema_records() if e.key not in there]
        there |= {e.key for e in schemas}
        claim = codec.claim(Stamp(EPOCH + n, ms), n, "h:1", f"s-{n}", 4, "took over")
        part = records[len(records) * n // len(turns) : len(records) * (n + 1) // len(turns)]
        out += [*schemas, claim, *Encoder(codec, EPOCH + n, revisions).encode(part, ms)]
    return out


def fingerprints(rows: list[dict[str, Any]]) -> tuple[set[str], set[str]]:
    """Returns the fingerprints of the values, and those of the schemas that are there."""
    values = {r["fingerprint"] for r in rows if r["fingerprint"]}
    return values, {r["sub_id"] for r in rows if r["kind"] == SCHEMA}


@pytest.mark.tier("all")
def test_schemas_of_former_batches_are_known(topics: Topics, tmp_path: Path) -> None:
    uri, entries = topics.create("versions", 1), in_turns()
    lake = Lake.at(tmp_path / "runs")
    for n in range(BATCHES):
        begin, end = (len(entries) * at // BATCHES for at in (n, n + 1))
        topics.write("versions", {0: entries[begin:end]}, T0 + begin)
        assert audit(SPARK, uri, lake).records == end - begin
    whole = Lake.at(tmp_path / "whole")
    audit(SPARK, uri, whole)
    wanted, told = contents(whole), gold_of(whole)
    assert not wanted["corrupt"] and len(wanted["records"]) == len(entries)
    assert told["intervals"] and told["rebalances"] and len(told["coordinators"]) == 5
    assert lake.last_batch() == BATCHES - 1
    assert contents(lake) == wanted and gold_of(lake) == told
    last = BATCHES - 1
    assert verdict(lake) == replace(verdict(whole), gold_batch=last, last_batch=last)
    assert verdict(lake).complete and query.broken(lake) == {}
    for n in range(1, BATCHES):
        part = wanted[BRONZE.name][len(entries) * n // BATCHES : len(entries) * (n + 1) // BATCHES]
        values, schemas = fingerprints(part)
        new = {f for f in values if f in Newer().schemas.texts}
        assert new and values - new, "both versions have written in each batch"
        assert not schemas & new, "the newer schemas were in the first batch only"
