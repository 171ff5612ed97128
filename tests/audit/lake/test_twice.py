"""A record that a copy has twice is one record: by whatever way it comes, and however the copy is cut into files."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from sidecar.audit.ask import query
from sidecar.audit.errors import Refused
from sidecar.audit.gold.frames import database
from sidecar.audit.ingest import tasks
from sidecar.audit.lake.files import in_duckdb
from sidecar.audit.lake.lake import Lake
from sidecar.audit.run.pipeline import audit, to_do
from sidecar.audit.run.verdict import verdict
from sidecar.audit.tables.gold import INVARIANTS
from sidecar.audit.tables.layers import BRONZE
from tests.audit.lake.making import bronze, dump
from tests.audit.lake.test_killed import contents
from tests.audit.lake.test_pipeline import gold_of, played
from tests.audit.lake.without_spark import SPARK

pytestmark = pytest.mark.usefixtures("without_spark")
_, ENTRIES = played(3, 40)
HALF = len(ENTRIES) // 2


@pytest.fixture
def once(tmp_path: Path) -> Lake:
    lake = Lake.at(tmp_path / "once")
    dump([bronze(ENTRIES, 0), bronze(ENTRIES, 1)], tmp_path / "once.jsonl")
    audit(SPARK, f"file://{tmp_path}/once.jsonl", lake)
    return lake


@pytest.mark.parametrize(
    "how",
    [
        "dumps that overlap",
        *(
            pytest.param(h, marks=pytest.mark.tier("all"))
            for h in ("each line twice", "a folder to which it was appended again")
        ),
    ],
)
def test_what_a_copy_has_twice_is_there_once(how: str, once: Lake, tmp_path: Path) -> None:
    source = tmp_path / "copy"
    source.mkdir()
    uri = f"file://{source}"
    if how == "each line twice":
        every = bronze([e for e in ENTRIES for _ in (1, 2)], 0)
        offsets = [n for n in range(len(ENTRIES)) for _ in (1, 2)]
        columns = {n: every[n] for n in every.schema.names} | {
            "offset": offsets,
            "log_ms": [bronze([ENTRIES[0]])["log_ms"][0].as_py() + n for n in offsets],
        }
        dump([type(every).from_pydict(columns, schema=every.schema), bronze(ENTRIES, 1)], source / "a.jsonl")
    elif how == "dumps that overlap":
        dump([bronze(ENTRIES[: HALF + 9], 0), bronze(ENTRIES, 1)], source / "a.jsonl")
        dump([bronze(ENTRIES[HALF:], 0, HALF, ms=bronze(ENTRIES)["log_ms"][HALF].as_py())], source / "b.jsonl")
    else:
        uri = f"parquet://{source}"
        for n, f in enumerate(once.files(BRONZE)):
            folders = "/".join(f"{name}={value}" for name, value in f.partition)
            for copy in ("a", "b"):
                (source / folders).mkdir(parents=True, exist_ok=True)
                shutil.copy(f.path, source / folders / f"{copy}{n}.parquet")
    lake = Lake.at(tmp_path / "lake")
    done = audit(SPARK, uri, lake)
    assert done.records == 2 * len(ENTRIES) and contents(lake) == contents(once) and gold_of(lake) == gold_of(once)
    assert verdict(lake).complete and query.broken(lake) == {} and to_do(uri, lake) == 0
    seen = {f.path for f in lake.files(BRONZE)}
    assert {str(p) for p in Path(lake.root / "bronze").rglob("*.parquet")} == seen, "the first copies are swept away"


def test_two_records_of_one_offset_that_differ_are_refused_and_named(tmp_path: Path) -> None:
    source, lake = tmp_path / "dump.jsonl", Lake.at(tmp_path / "lake")
    dump([bronze(ENTRIES, 7), bronze(ENTRIES[20:21], 7, 21)], source)
    with pytest.raises(Refused, match="two records of state partition 7 have the offset 21, and they differ"):
        audit(SPARK, f"file://{source}", lake)
    dump([bronze(ENTRIES, 7)], source)
    assert audit(SPARK, f"file://{source}", lake).records == len(ENTRIES), "it can be mended"


def test_a_rewrite_has_its_share_of_memory_and_the_executors_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (spill := tmp_path / "spill").mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{spill},/no/such")
    seen = list[Any]()
    limits = "select current_setting('memory_limit'), parse_dirpath(current_setting('temp_directory'))"

    def opened(db: Any, *args: Any) -> str:
        seen.extend(db.execute(limits).fetchall())
        return in_duckdb(db, *args)

    monkeypatch.setattr(tasks, "in_duckdb", opened)
    dump([bronze(ENTRIES[:9]), bronze(ENTRIES[:9])], tmp_path / "twice.jsonl")
    audit(SPARK, f"file://{tmp_path}/twice.jsonl", Lake.at(tmp_path / "lake"))
    with database() as db:
        assert seen == db.connection.execute(limits).fetchall() and seen[0][1] == str(spill)


def test_a_row_that_is_there_twice_is_found_by_the_check(once: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {name for name in INVARIANTS if name.startswith("once_")} >= {"once_intervals", "once_coverage"}
    assert query.broken(once) == {}
    real = Lake.files

    def twice(self: Lake, table: object, batch: int | None = None) -> object:
        return real(self, table, batch) * 2  # type: ignore[arg-type]

    monkeypatch.setattr(Lake, "files", twice)
    found = query.broken(once)
    assert {"once_intervals", "once_members", "once_bronze_records", "once_silver_current"} <= set(found)
