"""The compiled reader of Avro values: whatever the bytes are, it stays in them, and a bad value leaves nothing."""

from __future__ import annotations

import random
from array import array
from io import BytesIO
from typing import Any

import pyarrow as pa
import pytest
from fastavro import parse_schema, schemaless_reader, schemaless_writer

from sidecar.audit.decode.arrow import Unfit
from sidecar.audit.decode.columns import Compiled
from sidecar.native._columns import columns
from tests.harness.tiers import seeds_of_run

SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "all",
    "fields": [
        {"name": "n", "type": "long"},
        {"name": "flag", "type": "boolean"},
        {"name": "text", "type": ["null", "string"]},
        {"name": "id", "type": {"type": "fixed", "name": "id", "size": 4}},
        {
            "name": "lists",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "inner",
                    "fields": [
                        {"name": "raw", "type": "bytes"},
                        {"name": "ns", "type": {"type": "array", "items": "int"}},
                    ],
                },
            },
        },
    ],
}
PARSED = parse_schema(SCHEMA)


def value(rng: random.Random) -> dict[str, Any]:
    return {
        "n": rng.choice([0, -1, 63, -65, (1 << 63) - 1, -(1 << 63), rng.getrandbits(40)]),
        "flag": rng.random() < 0.5,
        "text": rng.choice([None, "", "ü" * rng.randrange(9)]),
        "id": rng.randbytes(4),
        "lists": [
            {
                "raw": rng.randbytes(rng.randrange(300)),
                "ns": [rng.randrange(-999, 999) for _ in range(rng.randrange(5))],
            }
            for _ in range(rng.randrange(4))
        ],
    }


def encoded(one: dict[str, Any]) -> bytes:
    out = BytesIO()
    schemaless_writer(out, PARSED, one)
    return out.getvalue()


def read(values: list[bytes], skip: int = 0) -> tuple[list[bool], dict[str, Any]]:
    found = pa.array(values, pa.binary())
    bad, rows = Compiled(SCHEMA).read(found, pa.arange(0, len(values), 1), skip)
    return bad.to_pylist(), dict(zip(rows.type.names, rows.flatten(), strict=True))


@pytest.mark.parametrize("seed", seeds_of_run(20))
def test_what_it_reads_is_what_was_written_and_a_bad_value_leaves_nothing(seed: int) -> None:
    rng = random.Random(seed)
    whole = [value(rng) for _ in range(200)]
    raws = []
    for one in whole:
        damaged = bytearray(encoded(one))
        for _ in range(rng.choice([0, 0, 1, 3])):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        raws.append(bytes(damaged[: rng.choice([len(damaged), rng.randrange(len(damaged) + 1)])]))
    bad, node = read(raws)
    good: list[Any] = []
    for flag, raw in zip(bad, raws, strict=True):
        try:
            told = schemaless_reader(BytesIO(raw), PARSED, None)
        except (EOFError, ValueError, IndexError, OverflowError):
            continue  # also a text that is not UTF-8, which is found when the whole column is looked at
        if not flag:
            good.append(told)
    numbers = node["n"].to_pylist()
    assert len(numbers) == bad.count(False)
    if len(good) == len(numbers):
        assert numbers == [g["n"] for g in good]
        assert node["flag"].to_pylist() == [g["flag"] for g in good]
        assert node["id"].to_pylist() == [g["id"] for g in good]
        assert node["lists"].value_lengths().to_pylist() == [len(g["lists"]) for g in good]


def test_blocks_and_what_is_skipped() -> None:
    two = {"n": 5, "flag": True, "text": "x", "id": b"abcd", "lists": []}
    raw = encoded(two)
    assert raw.endswith(b"\0")
    item = b"\2a\2\6\0"  # one byte, then one number
    blocks = raw[:-1] + b"\1" + bytes([2 * len(item)]) + item + b"\2" + item + b"\0"
    bad, node = read([b"XX" + blocks, b"X"], skip=2)
    assert bad == [False, True]
    lists = node["lists"]
    assert lists.value_lengths().to_pylist() == [2]
    assert [item["ns"] for item in lists.to_pylist()[0]] == [[3], [3]]


def test_a_value_that_is_cut_off_anywhere_is_bad() -> None:
    """A cut value is bad whatever follows it in the column, and no byte of another value is read with it."""
    one = {"n": 5, "flag": True, "text": "some text", "id": b"abcd", "lists": []}
    raw = encoded(one)
    cuts = [raw[:cut] for cut in range(len(raw))]
    for values in ([x for cut in cuts for x in (cut, raw)], [*cuts, raw]):
        bad, node = read(values)
        assert bad == [value != raw for value in values]
        assert node["n"].to_pylist() == [5] * bad.count(False)


@pytest.mark.parametrize("last", ["string", {"type": "fixed", "name": "f", "size": 4}, "bytes"])
def test_nor_is_anything_read_behind_a_value_that_ends_with_bytes(last: Any) -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "n", "type": "long"}, {"name": "last", "type": last}]}
    out = BytesIO()
    schemaless_writer(out, parse_schema(schema), {"n": 5, "last": "text" if last == "string" else b"text"})
    raw = out.getvalue()
    values = [x for cut in range(len(raw)) for x in (raw[:cut], raw)]
    bad, _ = Compiled(schema).read(pa.array(values, pa.binary()), pa.arange(0, len(values), 1), 0)
    assert bad.to_pylist() == [value != raw for value in values]


@pytest.mark.parametrize(
    "schema",
    [
        ["null", "long", "string"],
        {"type": "array", "items": {"type": "record", "name": "nothing", "fields": []}},
        {"type": "record", "name": "r", "fields": [{"name": "again", "type": ["null", "r"]}]},
        "double",
    ],
)
def test_a_schema_that_it_cannot_read_is_said_to_be_one(schema: Any) -> None:
    with pytest.raises(Unfit):
        Compiled(schema)


@pytest.mark.parametrize(
    ("program", "offsets", "which"),
    [
        ([], [0, 1], [0]),
        ([7, 0], [0, 1], [0]),
        ([5, 2, 0, 0], [0, 1], [0]),
        ([0, 0, 0, 0], [0, 1], [0]),
        ([4, 2, 0, 0], [0, 1], [0]),
        ([0, 0], [0, 1], [1]),
        ([0, 0], [0, 1], [-1]),
        ([0, 0], [0, 9], [0]),
        ([0, 0], [1, 0], [0]),
    ],
)
def test_what_makes_no_sense_is_refused(program: list[int], offsets: list[int], which: list[int]) -> None:
    with pytest.raises(ValueError, match=r"program|outside"):
        columns(array("i", program).tobytes(), b"\0", array("i", offsets), 0, array("q", which), 0)


def test_a_short_schema_of_many_types_is_not_compiled() -> None:
    """Each type names the next one twice: 30 levels are two thousand million types."""
    schema: Any = {"type": "record", "name": "r30", "fields": [{"name": "x", "type": "int"}]}
    for n in range(29, -1, -1):
        fields = [{"name": "a", "type": schema}, {"name": "b", "type": f"r{n + 1}"}]
        schema = {"type": "record", "name": f"r{n}", "fields": fields}
    wide: Any = {"type": "record", "name": "w8", "fields": [{"name": "x", "type": "int"}]}
    for n in range(7, -1, -1):
        others = [{"name": f"f{i}", "type": f"w{n + 1}"} for i in range(20)]
        wide = {"type": "record", "name": f"w{n}", "fields": [{"name": "a", "type": wide}, *others]}
    for one in (schema, wide):
        with pytest.raises(Unfit, match="types within types"):
            Compiled(one)
