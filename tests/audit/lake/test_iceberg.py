"""Gold in an Iceberg catalog: the lake's rows after each batch, whoever dies or publishes beside."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sidecar.audit.ask import iceberg
from sidecar.audit.ask.iceberg import BATCH, publish
from sidecar.audit.errors import AuditError
from sidecar.audit.lake.lake import Lake
from sidecar.audit.run.maintain import maintain
from sidecar.audit.run.pipeline import audit
from sidecar.audit.tables.gold import GOLD
from tests.audit.lake.test_pipeline import dump, gold_of, played
from tests.audit.lake.without_spark import SPARK

pytestmark = [pytest.mark.tier("all"), pytest.mark.usefixtures("without_spark")]
ENTRIES = played(3, 80)[1]
CUTS = (len(ENTRIES) // 2, len(ENTRIES) * 3 // 4, len(ENTRIES))


@pytest.fixture
def catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """One in a file, by its name in pyiceberg's configuration, which a process reads when it begins."""
    from pyiceberg.catalog import load_catalog

    (tmp_path / "warehouse").mkdir()
    options = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/warehouse"}
    for name, value in options.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__MINE__{name.upper()}", value)
    return load_catalog("mine", **options)


def filled(lake: Lake, count: int) -> None:
    source = Path(lake.base).parent / "dump.jsonl"
    dump(source, ENTRIES[:count])
    audit(SPARK, f"file://{source}", lake)


def published(catalog: Any) -> dict[str, list[Any]]:
    return {n: sorted(catalog.load_table(f"group_state.{n}").scan().to_arrow().to_pylist(), key=str) for n in GOLD}


def wanted(lake: Lake) -> dict[str, list[Any]]:
    return {n: sorted(lake.read_arrow(t).to_pylist(), key=str) for n, t in GOLD.items()}


def snapshots(catalog: Any, name: str = "intervals") -> list[Any]:
    return [s.summary[BATCH] for s in catalog.load_table(f"group_state.{name}").snapshots()]


def test_the_tables_are_golds_after_each_batch(tmp_path: Path, catalog: Any) -> None:
    lake = Lake.at(tmp_path / "lake")
    for cut in CUTS:
        filled(lake, cut)
        assert publish(lake, catalog) > 0
        assert published(catalog) == wanted(lake)
        assert publish(lake, catalog) == 0, "what is there is not published again"
    assert snapshots(catalog) == ["1", "2"], "in each snapshot the open rows of the one before are replaced"
    rows = catalog.load_table("group_state.intervals").scan(row_filter="open = true").to_arrow()
    assert len(rows) == sum(r["open"] for r in gold_of(lake)["intervals"]) > 0
    assert not list((tmp_path / "warehouse").rglob("*.parquet")), "no row is copied"


def test_by_the_command_and_after_maintenance(tmp_path: Path, catalog: Any) -> None:
    lake = Lake.at(tmp_path / "lake")
    for cut in CUTS:
        filled(lake, cut)
    for _ in range(2):
        done = command(lake, "mine")
        assert done.returncode == 0 and "tables of mine were changed" in done.stdout, done.stderr
        assert published(catalog) == wanted(lake)
        maintain(lake, 0)  # other files, so there is something to do again
    done = command(lake, "another")
    assert done.returncode == 2 and done.stderr.startswith("--catalog another: ")


def ahead_of(catalog: Any, folder: Path) -> Lake:
    """A lake with a batch that the catalog lacks."""
    lake = Lake.at(folder / "lake")
    filled(lake, CUTS[0])
    publish(lake, catalog)
    filled(lake, CUTS[2])
    return lake


def command(lake: Lake, catalog: str) -> subprocess.CompletedProcess[str]:
    words = ["audit", "publish", "--lake", str(lake.base), "--catalog", catalog]
    program = [sys.executable, "-m", "sidecar.cli.main", *words]
    return subprocess.run(program, capture_output=True, text=True, check=False, timeout=120)


def test_who_dies_between_two_tables_is_followed_by_one_who_does_the_rest(
    tmp_path: Path, catalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = ahead_of(catalog, tmp_path)
    made, real = list[Any](), iceberg._data_file

    def dies_at_the_fourth_file(*args: Any) -> Any:
        if len(made) == 3:
            raise KeyboardInterrupt
        made.append(args)
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(iceberg, "_data_file", dies_at_the_fourth_file)
        with pytest.raises(KeyboardInterrupt):
            publish(lake, catalog)
    assert published(catalog) != wanted(lake)
    publish(lake, catalog)
    assert published(catalog) == wanted(lake) and snapshots(catalog, "coverage") == ["0", "1"]


def test_of_two_at_once_one_fails_and_no_row_is_there_twice(
    tmp_path: Path, catalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = ahead_of(catalog, tmp_path)
    real = iceberg._data_file

    def overtaken(*args: Any) -> Any:
        monkeypatch.setattr(iceberg, "_data_file", real)
        publish(lake, catalog)
        return real(*args)

    monkeypatch.setattr(iceberg, "_data_file", overtaken)
    with pytest.raises(AuditError, match="publish again"):
        publish(lake, catalog)
    assert published(catalog) == wanted(lake) and publish(lake, catalog) == 0


def test_a_column_that_an_earlier_version_lacked_is_added(
    tmp_path: Path, catalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake.at(tmp_path / "lake")
    filled(lake, CUTS[0])
    publish(lake, catalog)
    with catalog.load_table("group_state.coverage").update_schema() as earlier:
        earlier.delete_column("missing")
    filled(lake, CUTS[1])
    publish(lake, catalog)
    assert published(catalog) == wanted(lake)
