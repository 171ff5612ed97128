"""deploy/audit/pipeline, run by Spark's own command: its views are the tables of a lake of the same records."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset as ds
import pytest
import yaml

from sidecar.audit.lake.lake import Lake
from sidecar.audit.run.pipeline import audit
from sidecar.audit.tables.gold import GOLD
from sidecar.audit.tables.layers import SILVER_TABLES
from tests.audit.lake.test_pipeline import dump, played
from tests.audit.lake.without_spark import SPARK, run_here

pytestmark = pytest.mark.tier("all")


def test_the_pipeline_makes_the_tables_of_a_lake(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = root / "deploy/audit/pipeline"
    source = tmp_path / "dump.jsonl"
    dump(source, played(3, 80)[1])
    spec = yaml.safe_load((shipped / "spark-pipeline.yml").read_text())
    assert spec["configuration"]["spark.group_state.uri"].startswith("kafka://")
    spec["configuration"] = {"spark.group_state.uri": f"file://{source}", "spark.sql.session.timeZone": "UTC"}
    spec["storage"] = f"file://{tmp_path}/storage"
    (tmp_path / "spark-pipeline.yml").write_text(yaml.safe_dump(spec))
    (tmp_path / "tables.py").write_text((shipped / "tables.py").read_text())
    command = [str(Path(sys.executable).with_name("spark-pipelines")), "run"]
    env = {**os.environ, "PYTHONPATH": str(root), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env, timeout=280, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0 and "Run is COMPLETED" in said, said[-5000:]

    lake = Lake.at(tmp_path / "lake")
    run_here(monkeypatch)
    audit(SPARK, f"file://{source}", lake)
    for name, table in {**GOLD, **{f"silver_{n}": t for n, t in SILVER_TABLES.items()}}.items():
        view = ds.dataset(tmp_path / "spark-warehouse" / name, format="parquet", exclude_invalid_files=True)
        assert view.count_rows() == len(lake.read_arrow(table)), name
    columns = ["group_id", "topic", "partition", "member_id", "from_offset", "to_offset", "open"]
    made = ds.dataset(tmp_path / "spark-warehouse" / "intervals", format="parquet", exclude_invalid_files=True)
    wanted = lake.read_arrow(GOLD["intervals"], columns).to_pylist()
    assert wanted and sorted(made.to_table(columns).to_pylist(), key=str) == sorted(wanted, key=str)
