"""Reading by column gives what reading one by one gives, of every kind and version, whole or damaged."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from io import BytesIO
from typing import Any

import pyarrow as pa
import pytest
from fastavro import schemaless_writer

from sidecar.audit.decode import columns as decode_columns
from sidecar.audit.decode import decoder as decode
from sidecar.audit.decode.decoder import Decoder, claims_in, schemas_in
from sidecar.audit.source.bronze import keys_of
from sidecar.audit.tables.layers import CORRUPT, SILVER, SILVER_TABLES
from sidecar.core.consumer.records import CurrentRecord, GroupRecord, MemberState
from sidecar.state.codec import Stamp, StateCodec
from sidecar.state.keys import decode_key, encode_key
from sidecar.state.schema import MARK, Schemas, StateError, published
from tests.audit.lake.making import IDS, NAMES, T0, bronze, log
from tests.harness.tiers import seeds_of_run

CODEC = StateCodec()


@pytest.fixture(autouse=True, params=["compiled", "plain"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the compiled kernel, and as it is where there is none."""
    if request.param == "plain":
        monkeypatch.setattr(decode_columns, "columns", None)
    else:
        assert decode_columns.columns is not None, "it was not built"


def decoded(batch: Any, schemas: dict[str, str] | None = None) -> dict[str, list[dict[str, Any]]]:
    claims: dict[int, list[tuple[int, int]]] = {}
    for p, offset, epoch in claims_in(batch):
        claims.setdefault(p, []).append((offset, epoch))
    found = Decoder({**schemas_in(batch), **(schemas or {})}, claims).decode(batch)
    for name, rows in found.items():
        rows.validate(full=True)
        assert rows.schema == SILVER_TABLES[name].arrow
    return {name: rows.to_pylist() for name, rows in found.items()}


class Slow:
    """Every value is read by itself."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(decode.Decoder, "step", lambda self, fingerprint: None)


@pytest.mark.parametrize("seed", seeds_of_run(12))
def test_by_column_and_one_by_one_are_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = bronze(log(seed, 1500))
    fast = decoded(batch)
    Slow(monkeypatch)
    assert decoded(batch) == fast
    assert {t for t, rows in fast.items() if rows} == {t.name for t in SILVER.values()}
    assert sum(map(len, fast.values())) == 1500


@pytest.mark.parametrize("kernel", ["compiled"], indirect=True)
def test_all_values_are_really_read_by_column(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: Any) -> None:
        raise AssertionError("read by itself")

    monkeypatch.setattr(decode.Decoder, "single", never)
    decoded(bronze(log(1, 2000)))


@pytest.mark.parametrize("seed", seeds_of_run(6))
def test_damaged_values_are_judged_as_fastavro_judges_them(seed: int) -> None:
    r, entries = random.Random(seed), []
    for e in log(seed, 1200)[40:]:
        value = e.value
        if value is not None and len(value) > 12 and value[:2] == MARK and r.random() < 0.3:
            at = r.randrange(10, len(value))
            value = r.choice((value[:at], value[:at] + r.randbytes(1) + value[at + 1 :], value[:at] + b"\xff" * 12))
        entries.append(e._replace(value=value))
    batch = bronze(entries)
    found = decoded(batch)
    broken = {row["offset"] for row in found.get(CORRUPT.name, ())}
    good = {row["offset"]: row for t, rows in found.items() if t != CORRUPT.name for row in rows}
    assert len(broken) > 20 and len(broken) + len(good) == len(batch)
    read = Decoder({}, {}).single
    for row in batch.to_pylist():
        if row["value"] is None or row["kind"] == "schema":
            continue
        try:
            body = read(row["value"])
            said = {name: body[name] for name in HEADS_OF_ALL}
        except (StateError, KeyError):
            assert row["offset"] in broken
            continue
        if row["offset"] in good:
            assert {k: good[row["offset"]][k] for k in said} == said


HEADS_OF_ALL = ("why", "revision", "owner_epoch")


@pytest.mark.parametrize(
    "damaged", [None, b"", encode_key("member", "g", "m") + b"x", encode_key("member", "g", "m")[:-1], b"\2a\2\xff\2b"]
)
def test_keys_are_read_as_the_codec_reads_them(damaged: bytes | None) -> None:
    keys = [encode_key("member", "g", "ü"), damaged, encode_key("group", "g", "")]
    told: list[tuple[Any, ...]] = []
    for key in keys:
        try:
            told.append(tuple(decode_key(key or b"")))
        except (StateError, UnicodeDecodeError):
            told.append((None, None, None))
    assert list(zip(*(part.to_pylist() for part in keys_of(pa.array(keys, pa.binary()))), strict=True)) == told
    assert keys_of(pa.array(keys[:1], pa.binary()))[2].to_pylist() == ["ü"]


def test_the_codec_reads_the_same() -> None:
    entries = log(5, 800)
    rows = {row["offset"]: row for rows in decoded(bronze(entries)).values() for row in rows}
    schemas = Schemas({}, published())
    for offset, e in enumerate(entries):
        if e.value is not None and e.value[:2] == MARK:
            body, row = schemas.decode(e.value), rows[offset]
            assert row["written_time"] == body["time_ms"]
            for name in body.keys() & row.keys():
                if isinstance(body[name], (int, str, bool, type(None))):
                    assert row[name] == body[name], name


def test_what_a_current_record_says() -> None:
    r = CurrentRecord("g", "m1", 4, 3, MemberState.STABLE, {IDS[0]: {0: 4, 7: 2}}, {IDS[1]: {1: 3}}, NAMES, "w")
    (row,) = decoded(bronze([CODEC.encode(r, Stamp(9, T0 + 5), 2)]))["current"]
    assert row["assigned"][0]["topic"] == NAMES[IDS[0]]
    assert (row["assigned"][0]["partitions"], row["assigned"][0]["epochs"]) == ([0, 7], [4, 2])
    assert len(row["assigned"][0]["topic_id"]) == 22 and row["pending"][0]["partitions"] == [1]
    assert (row["member_id"], row["revision"], row["owner_epoch"], row["claimed_epoch"]) == ("m1", 2, 9, None)
    assert row["written_time"] == datetime.fromtimestamp((T0 + 5) / 1000, UTC)


def test_tombstones_say_what_their_headers_say_and_older_ones_say_less() -> None:
    new = CODEC.config("g", "x", None, T0 + 9, 7, "removed")
    old = new._replace(headers=(("why", b"removed"), ("owner_epoch", b"12")))
    bare = new._replace(headers=())
    rows = decoded(bronze([new, old, bare]))["settings"]
    assert [(r["why"], r["owner_epoch"], r["revision"], r["written_ms"]) for r in rows] == [
        ("removed", 0, 7, T0 + 9),
        ("removed", 12, None, None),
        ("", None, None, None),
    ]
    assert all(r["deleted"] and r["name"] == "x" and r["value"] is None for r in rows)


def test_the_claim_before_each_record() -> None:
    group = GroupRecord("g", 1, 2, "w")

    def write(epoch: int) -> Any:
        return CODEC.encode(group, Stamp(epoch, T0), 1)

    def claim(epoch: int) -> Any:
        return CODEC.claim(Stamp(epoch, T0), 1, "h:1", "s", 1, "w")

    proof = claim(8)._replace(key=encode_key("owner_claim", "", "-1"))
    batch = bronze([write(7), claim(7), write(7), claim(6), write(7), proof, write(6)])
    rows = decoded(batch)
    assert [r["claimed_epoch"] for r in rows["groups"]] == [None, 7, 6, 6]
    assert [r["claimed_epoch"] for r in rows["claims"]] == [None, 7, 6]
    other = bronze([write(7)], partition=4)
    assert Decoder({}, {3: [(0, 7)], 4: []}).decode(other)["groups"]["claimed_epoch"].to_pylist() == [None]


def test_what_cannot_be_read_is_kept_and_ends_nothing() -> None:
    good = CODEC.encode(GroupRecord("g", 1, 2, "w"), Stamp(7, T0), 1)
    assert good.value is not None
    entries = [
        good,
        (b"", good.value),
        (None, good.value),
        (b"\x7f", good.value),
        (encode_key("group", "g", "") + b"more", good.value),
        (b"\x02\xff\x00\x00", good.value),
        (encode_key("future", "g", "s"), good.value),
        (encode_key("group", "g", ""), b""),
        (encode_key("group", "g", ""), b"plain"),
        (encode_key("group", "g", ""), MARK + b"12345678" + b"1234"),
        (encode_key("group", "g", ""), good.value[:-1]),
        (encode_key("member", "g", "m"), good.value),
        (encode_key("schema", "", "00"), b"{not json"),
        (encode_key("schema", "", "00"), b"\xff"),
    ]
    found = decoded(bronze(entries))
    assert [r["offset"] for r in found["groups"]] == [0, 4]
    assert [(r["offset"], r["reason"].split(":")[0]) for r in found[CORRUPT.name]] == [
        (1, "the key cannot be read"),
        (2, "the key cannot be read"),
        (3, "the key cannot be read"),
        (5, "the key cannot be read"),
        (6, "kind 'future' is not known here"),
        (7, "the value is not in Avro single-object encoding"),
        (8, "the value is not in Avro single-object encoding"),
        (9, "unknown schema 3132333435363738"),
        (10, "damaged value"),
        (11, "a member with the schema of Group"),
        (12, "damaged schema"),
        (13, "'utf-8' codec can't decode byte 0xff in position 0"),
    ]
    assert found[CORRUPT.name][0]["value"] == good.value


# ---- versions of schemas ---------------------------------------------------------------------------------------------
def changed(name: str, **fields: Any) -> tuple[str, Any]:
    """A schema with other fields: None takes one away, else its type."""
    schema = json.loads(published()[name])
    schema["fields"] = [f for f in schema["fields"] if f["name"] not in fields]
    schema["fields"] += [{"name": n, "type": t} for n, t in fields.items() if t is not None]
    return json.dumps(schema), schema


def value_of(text: str, body: dict[str, Any]) -> bytes:
    schemas = Schemas.empty()
    raw = schemas.learn(text)
    out = BytesIO()
    schemaless_writer(out, schemas._readers[raw], body)
    return MARK + raw + out.getvalue()


HEADS = {"owner_epoch": 7, "time_ms": datetime.fromtimestamp(T0 / 1000, UTC), "revision": 1, "why": "w"}


def test_newer_and_older_versions_of_a_schema_go_into_one_table() -> None:
    newer, _ = changed("group-v1", members={"type": "map", "values": "int"}, more={"type": "array", "items": "string"})
    plain, _ = changed("group-v1", note=["null", "string"])
    older, _ = changed("group-v1", metadata_hash=None)
    key = encode_key("group", "g", "")
    body = {**HEADS, "epoch": 3, "metadata_hash": 9}
    values = [
        CODEC.encode(GroupRecord("g", 3, 9, "w"), Stamp(7, T0), 1).value,
        value_of(newer, {**body, "members": {"a": 1}, "more": ["x"]}),
        value_of(older, body),
        value_of(plain, {**body, "note": "n"}),
        CODEC.encode(GroupRecord("g", 3, 9, "w"), Stamp(7, T0), 1).value,
    ]
    texts = {}
    for text in (newer, older, plain):
        known = Schemas.empty()
        known.learn(text)
        texts.update(known.texts)
    rows = decoded(bronze([(key, v) for v in values]), texts)["groups"]
    assert [(r["offset"], r["epoch"], r["metadata_hash"]) for r in rows] == [
        (0, 3, 9),
        (1, 3, 9),
        (2, 3, None),
        (3, 3, 9),
        (4, 3, 9),
    ]


def test_versions_that_are_published_mix_in_one_stream() -> None:
    v1 = StateCodec(
        files={
            **published(),
            "member-v2": published()["member-v1"],
            "classic_group-v2": published()["classic_group-v1"],
        }
    )
    entries = [e for pair in zip(log(2, 900), log(2, 900, v1), strict=True) for e in pair]
    found = decoded(bronze(entries))
    assert CORRUPT.name not in found
    adopted = {r["adopted"] for r in found["classic_groups"] if not r["deleted"]}
    assert adopted == {None, True, False}
    assert any(r["protocol_names"] for r in found["members"])


def test_a_type_that_does_not_fit_is_corrupt() -> None:
    wide, _ = changed("group-v1", epoch="long")
    texts = Schemas.empty()
    texts.learn(wide)
    key = encode_key("group", "g", "")
    small, large = ({**HEADS, "metadata_hash": 9, "epoch": n} for n in (3, 1 << 40))
    found = decoded(bronze([(key, value_of(wide, small)), (key, value_of(wide, large))]), texts.texts)
    assert [r["epoch"] for r in found["groups"]] == [3]
    assert "does not fit" in found[CORRUPT.name][0]["reason"]


def test_times_that_no_calendar_has() -> None:
    batch = bronze([CODEC.encode(GroupRecord("g", 1, 2, "w"), Stamp(7, ms), 1) for ms in (-5, 1 << 60)], ms=-1)
    rows = decoded(batch)["groups"]
    assert [r["written_ms"] for r in rows] == [-5, 1 << 60]
    assert rows[0]["written_time"].year == 1970 and rows[1]["written_time"].year == 9999


def test_a_very_long_array_and_one_in_blocks() -> None:
    many = {IDS[0]: dict.fromkeys(range(5000), 1)}
    r = CurrentRecord("g", "m1", 4, 3, MemberState.STABLE, many, {}, NAMES, "w")
    e = CODEC.encode(r, Stamp(9, T0), 2)
    from sidecar.core.consumer.records import TargetMemberRecord

    wide = {bytes([i // 256, i % 256]) * 8: (i,) for i in range(600)}
    t = CODEC.encode(TargetMemberRecord("g", "m", wide, {}, "w"), Stamp(9, T0), 2)
    regex = CODEC.schemas.mark("regex") + b"\x02\x02\x02\x02w" + b"\x01\x04\x02a\x02\x02b\x00" + b"\x08\x02"
    found = decoded(bronze([e, t, (encode_key("regex", "g", "a.*"), regex)]))
    assert len(found["current"][0]["assigned"][0]["partitions"]) == 5000
    assert [p["partitions"] for p in found["target_members"][0]["partitions"]] == [[i] for i in range(600)]
    assert found["regexes"][0]["topics"] == ["a", "b"]


def test_a_map_with_a_default_and_a_type_named_like_its_pairs() -> None:
    """Symptom: a schema of a newer version ended each batch with fastavro's traceback."""
    pairs = [{"type": "record", "name": f"Pair{n}", "fields": [{"name": "x", "type": "int"}]} for n in range(500)]
    fields = [{"name": f"p{n}", "type": pair} for n, pair in enumerate(pairs)]
    fields.append({"name": "m", "type": {"type": "map", "values": "int"}, "default": {}})
    decoder = Decoder({}, {})
    name = decoder.schemas.learn(json.dumps({"type": "record", "name": "newer", "fields": fields})).hex()
    assert (decoder.step(name) is None) == (decode_columns.columns is None)
