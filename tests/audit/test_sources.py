"""Sources that cannot be read say so: each wrong file, option or checkpoint is an AuditError that says what to do."""

from __future__ import annotations

import gzip
import pickle
from datetime import date
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.datasource import GreaterThan, LessThanOrEqual
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StructType

from sidecar.audit.errors import AuditError, Misused
from sidecar.audit.source.records import RecordsReader, RecordsStream, Wanted
from sidecar.audit.source.uri import open_source
from tests.audit.lake.making import bronze, dump, log

ENTRIES = log(3, 40)


@pytest.fixture
def line(tmp_path: Path) -> str:
    """The first line of a dump."""
    dump([bronze(ENTRIES, 0)], tmp_path / "whole.jsonl.gz")
    return gzip.decompress((tmp_path / "whole.jsonl.gz").read_bytes()).splitlines()[0].decode()


# ---- dumps ----------------------------------------------------------------------------------------------------------
def test_a_dump_that_is_no_gzip_or_was_cut_short(tmp_path: Path, line: str) -> None:
    whole = (tmp_path / "whole.jsonl.gz").read_bytes()
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 0xFF
    for content in (whole[: len(whole) // 2], line.encode(), bytes(damaged)):
        (file := tmp_path / "bad.jsonl.gz").write_bytes(content)
        with pytest.raises(AuditError, match=r"bad\.jsonl\.gz, .*line \d+: "):
            open_source(f"file://{file}").bounds()


@pytest.mark.parametrize(
    ("valid", "wrong"),
    [
        ('"partition":0', '"partition":3000000000'),
        ('"partition":0', '"partition":-1'),
        ('"offset":0', '"offset":-1'),
        ('"offset":0', '"offset":9223372036854775807'),
        ('"time_ms":1', '"time_ms":9999999'),
        ('"create"', '"CreateTime"'),
        ('"key":"', '"key":"?'),
    ],
)
def test_a_record_of_a_dump_that_cannot_be(valid: str, wrong: str, tmp_path: Path, line: str) -> None:
    assert valid in line
    (tmp_path / "bad.jsonl").write_text(f"{line}\n{line.replace(valid, wrong)}\n")
    with pytest.raises(AuditError, match=r"bad\.jsonl, line 2: "):
        open_source(f"file://{tmp_path}/bad.jsonl").bounds()


def test_text_of_a_dump_that_is_no_utf_8(tmp_path: Path, line: str) -> None:
    (tmp_path / "bad.jsonl").write_bytes(line.replace('"create"', '"\udcff"').encode(errors="surrogateescape"))
    with pytest.raises(AuditError, match=r"bad\.jsonl, line 1: "):
        open_source(f"file://{tmp_path}/bad.jsonl").bounds()


def test_a_dump_that_is_being_written_is_not_read_yet(tmp_path: Path, line: str) -> None:
    (tmp_path / ".part-next.jsonl.gz").write_bytes(b"\x1f\x8b")  # as `sidecar state dump` names it
    (tmp_path / "folder.json").mkdir()
    assert open_source(f"file://{tmp_path}").bounds() == {0: (0, len(ENTRIES))}


# ---- Parquet files --------------------------------------------------------------------------------------------------
@cache
def all_rows() -> pa.Table:
    return pa.Table.from_batches([bronze(ENTRIES, 0), bronze(ENTRIES, 3)])


def put(path: Path, rows: pa.Table | None = None, **options: object) -> Path:
    """Writes rows of bronze as a Parquet file. Returns its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(all_rows() if rows is None else rows, path, **options)
    return path.parent


def read(folder: Path, ranges: dict[int, tuple[int, int]] | None = None) -> pa.Table:
    source = open_source(f"parquet://{folder}")
    splits = pickle.loads(pickle.dumps(source.splits(ranges or source.bounds())))
    return pa.Table.from_batches([batch for split in splits for batch in split()], all_rows().schema)


def test_only_names_below_the_folder_are_hidden(tmp_path: Path) -> None:
    folder = put(tmp_path / "_export/.x/a.parquet")
    put(folder / "_temporary/b.parquet")
    put(folder / ".c.parquet")
    assert read(folder).equals(all_rows())


def test_columns_in_names_of_folders_and_types_of_other_tools(tmp_path: Path) -> None:
    element = pa.struct([("name", pa.large_string()), ("value", pa.large_binary())])
    kinds = {"offset": pa.int32(), "value": pa.large_binary(), "headers": pa.large_list(pa.field("element", element))}
    for p in (0, 3):
        theirs = all_rows().filter(pa.compute.equal(all_rows()["state_partition"], p))
        rows = theirs.drop_columns(["day", "state_partition"])
        rows = rows.cast(pa.schema([f.with_type(kinds.get(f.name, f.type)) for f in rows.schema]))
        put(tmp_path / f"copy=1/day=2025-10-09/state_partition={p}/a.parquet", rows, row_group_size=7)
    assert read(tmp_path).equals(all_rows())


@pytest.mark.parametrize("write_statistics", [True, False])
def test_a_range_is_read_without_the_other_row_groups(write_statistics: bool, tmp_path: Path) -> None:
    put(tmp_path / "a.parquet", row_group_size=10, write_statistics=write_statistics)
    source = open_source(f"parquet://{tmp_path}")
    assert source.bounds() == {0: (0, 40), 3: (0, 40)}
    (split,) = source.splits({3: (15, 18)})
    assert len(pickle.loads(pickle.dumps(split)).args[1]) == 1
    assert [(r["state_partition"], r["offset"]) for b in split() for r in b.to_pylist()] == [
        (3, 15),
        (3, 16),
        (3, 17),
    ]


def test_a_file_that_is_no_copy(tmp_path: Path) -> None:
    (damaged := tmp_path / "damaged/a.parquet").parent.mkdir()
    damaged.write_bytes(b"PAR1")
    lacking = put(tmp_path / "lacking/a.parquet", all_rows().drop_columns(["value"]))
    named = put(tmp_path / "named/state_partition=x/a.parquet").parent
    for folder, why in ((damaged, "cannot be read"), (lacking, "no column value"), (named, "cannot be read")):
        with pytest.raises(AuditError, match=rf"a\.parquet .*{why}"):
            open_source(f"parquet://{folder}").bounds()


@pytest.mark.parametrize("column", ["state_partition", "offset", "log_ms", "twice"])
def test_a_file_with_a_null_or_a_column_twice(column: str, tmp_path: Path) -> None:
    rows = all_rows()
    if column == "twice":
        rows = pa.Table.from_arrays([*rows.columns, rows["offset"]], [*rows.column_names, "offset"])
    else:
        at = rows.column_names.index(column)
        rows = rows.set_column(at, column, pa.array([None, *rows[column].to_pylist()[1:]], rows.schema.field(at).type))
    source = open_source(f"parquet://{put(tmp_path / 'a.parquet', rows)}")
    with pytest.raises(AuditError, match=r"a\.parquet cannot be read: "):
        [list(split()) for split in source.splits(source.bounds())]


def test_a_folder_of_no_day(tmp_path: Path) -> None:
    """Symptom: its files were left out, without a word."""
    named = put(tmp_path / "day=x/a.parquet", all_rows().drop_columns(["day"])).parent
    with pytest.raises(AuditError, match=r"a\.parquet cannot be read: .*'x'"):
        open_source(f"parquet://{named}").bounds()


@pytest.mark.parametrize(
    ("scheme", "why"),
    [
        ("delta", "neither a lake nor a Delta table"),
        ("parquet", r"in \.parquet"),
        ("file", r"in \.jsonl, .*ndjson\.gz"),
    ],
)
def test_a_folder_without_files(scheme: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "dump.txt").touch()
    source = open_source(f"{scheme}://{tmp_path}")
    for read in (source.bounds, lambda: source.splits({0: (0, 1)})):
        with pytest.raises(AuditError, match=why):
            read()


@pytest.mark.parametrize(("value", "day"), [(1 << 62, date(9999, 12, 31)), (-5, date(1970, 1, 1))])
def test_a_time_beyond_all_days(value: int, day: date) -> None:
    """A filter is clipped as the days of bronze are."""
    wanted = Wanted()
    for f in (LessThanOrEqual(("log_ms",), value), GreaterThan(("log_ms",), value)):
        wanted.add(f)
    assert wanted.days() == (day, day)


def test_days_without_a_filter_leave_out_nothing() -> None:
    assert Wanted().days() == (date(1970, 1, 1), date(9999, 12, 31))


# ---- options --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "option",
    [
        "max_record=5",
        "Max_records=5",
        "starting_offset={}",
        "startingOffsets=latest",
        "fail_on_data_loss=false",
        "new_incarnation=yes",
        "rows_per_task=0",
        "records_per_task=0",
        "memory_per_task=2 gigs",
        "memory_per_task=2'",
        "memory_per_task=1KB",
    ],
)
def test_an_option_that_there_is_not_or_with_a_value_that_cannot_be(option: str, tmp_path: Path) -> None:
    name, _, value = option.partition("=")
    with pytest.raises(Misused, match=f"option {name} (here: there are .*max_records|is)"):
        open_source(f"file://{tmp_path}", {name: value})


def test_options_that_can_be(tmp_path: Path) -> None:
    sizes = ("2GB", "1.5 gb", "512MiB")
    for size in sizes:
        open_source(f"file://{tmp_path}", {"memory_per_task": size, "new_incarnation": "True", "kafka.client.id": "me"})


def test_a_batch_of_spark_takes_no_option_of_a_stream(tmp_path: Path) -> None:
    options = {"uri": f"file://{tmp_path}", "max_records": "5"}
    assert RecordsStream(options, StructType()).getDefaultReadLimit() == ReadMaxRows(5)
    with pytest.raises(Misused, match="there is no option max_records here"):
        RecordsReader(options, StructType()).partitions()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("latest", "is earliest, or"),
        ('{"0": 40.9}', "is earliest, or"),
        ('{"0": -4}', "is earliest, or"),
        ('{"7": 4}', "partition 7, but that is none of 0"),
        ('{"0": 41}', "partition 0, but that ends at 40"),
    ],
)
def test_starting_offsets_that_cannot_be(text: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(Misused, match=why):
        stream(tmp_path, 40, starting_offsets=text).initialOffset()


# ---- streams --------------------------------------------------------------------------------------------------------
def stream(folder: Path, records: int, partition: int = 0, **options: str) -> RecordsStream:
    """Returns a stream over a source with so many records."""
    dump([bronze(ENTRIES[:records], partition)], folder / "stream.jsonl")
    return RecordsStream({"uri": f"file://{folder}/stream.jsonl", **options}, StructType())


def offset(**following: int) -> dict[str, object]:
    return {"topic": "", "next": {p.removeprefix("p"): n for p, n in following.items()}}


@pytest.mark.parametrize(("records", "partition"), [(20, 0), (40, 1)])
def test_a_source_that_ends_before_the_checkpoint(records: int, partition: int, tmp_path: Path) -> None:
    """The stream ends with an error, also if it planned the batch before the source was cut short."""
    said = r"partition 0 ends at \d+, .* 30; .*set fail_on_data_loss to false.*new checkpoint"
    careful = stream(tmp_path, records, partition)
    with pytest.raises(AuditError, match=said):
        careful.latestOffset(offset(p0=30), ReadAllAvailable())
    with pytest.raises(AuditError, match=said):
        careful.partitions(offset(p0=10), offset(p0=30))
    with pytest.raises(AuditError, match=said):
        careful.partitions(offset(p0=30), offset(p0=30))


def test_a_stream_goes_on_at_the_end_if_it_may_lose_records(tmp_path: Path) -> None:
    lossy = stream(tmp_path, 20, fail_on_data_loss="False")
    assert lossy.latestOffset(offset(p0=30, p1=5), ReadAllAvailable()) == offset(p0=20, p1=5)
    assert not lossy.partitions(offset(p0=30, p1=5), offset(p0=20, p1=9))
    (part,) = stream(tmp_path, 40, fail_on_data_loss="false").partitions(offset(p0=20), offset(p0=50))
    assert [offset for rows in part.value() for offset in rows["offset"].to_pylist()] == list(range(20, 40))


def test_a_stream_of_what_there_is_now_ends(tmp_path: Path) -> None:
    read = stream(tmp_path, 20)
    read.prepareForTriggerAvailableNow()
    stream(tmp_path, 40)
    assert read.latestOffset(offset(p0=5), ReadMaxRows(10)) == offset(p0=15)
    assert read.latestOffset(offset(p0=15), ReadMaxRows(10)) == offset(p0=20)
    assert read.latestOffset(offset(p0=20), ReadMaxRows(10)) == offset(p0=20)
