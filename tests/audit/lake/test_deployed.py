"""The examples of deploy/audit do what they say: spark-submit, cron, Airflow, Kubernetes."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from sidecar.audit.lake.lake import Lake
from sidecar.cli.main import app
from tests.audit.lake.making import bronze, dump
from tests.audit.lake.test_pipeline import played

pytestmark = pytest.mark.tier("all")


def test_spark_submit(root: Path, tmp_path: Path) -> None:
    dump([bronze(played(4, 60)[1], 0)], tmp_path / "a.jsonl")
    submit = Path(sys.executable).with_name("spark-submit")
    words = ["run", "--from", f"file://{tmp_path}/a.jsonl", "--lake", str(tmp_path / "lake")]
    command = [str(submit), "--master", "local[1]", "--driver-memory", "512m", "deploy/audit/submit.py", *words]
    env = {**os.environ, "PYTHONPATH": str(root), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, env=env, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert Lake.at(tmp_path / "lake").last_batch() == 0 and "Every record is there" in done.stdout


def cron_lines(root: Path) -> list[str]:
    lines = (root / "deploy/audit/crontab").read_text().splitlines()
    return [line.split(maxsplit=6)[6] for line in lines if re.match(r"[0-9*]", line)]


@pytest.mark.parametrize("code", [0, 1, 4])
def test_cron_mails_only_what_was_found(root: Path, tmp_path: Path, code: int) -> None:
    (sidecar := tmp_path / "sidecar").write_text(f"#!/bin/sh\necho said $2\nexit {code}\n")
    sidecar.chmod(0o755)
    lines = cron_lines(root)
    assert len(lines) == 2 and not any("%" in line for line in lines), "% is a line feed to cron"
    for line in lines:
        command = line.replace("/opt/audit/bin/sidecar", str(sidecar))
        printed = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False).stdout
        assert (printed == "") == (code == 0)
        assert code == 0 or (f"exit code {code}" in printed and "said" in printed)
        words = shlex.split(line.partition("sidecar ")[2].partition(" 2>")[0])
        assert CliRunner().invoke(app, [*words, "--help"]).exit_code == 0


def test_the_dag_is_loaded(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a stand-in for Airflow, which is too large to install for this: it takes the words that are used here."""
    tasks: dict[str, dict[str, Any]] = {}
    after: list[tuple[str, list[str]]] = []

    class DAG:
        def __init__(self, *, dag_id: str, schedule: str, start_date: Any, **more: Any) -> None:
            assert more.keys() <= {"catchup", "max_active_runs", "default_args"} and more["max_active_runs"] == 1

        def __enter__(self) -> DAG:
            return self

        def __exit__(self, *args: object) -> None:
            pass

    class BashOperator:
        def __init__(self, *, task_id: str, bash_command: str, **more: Any) -> None:
            assert more.keys() <= {"skip_on_exit_code", "trigger_rule"}
            self.task_id = task_id
            tasks[task_id] = {"command": bash_command, **more}

        def __rshift__(self, others: list[BashOperator]) -> None:
            after.append((self.task_id, [o.task_id for o in others]))

    for name, content in (
        ("airflow", {}),
        ("airflow.sdk", {"DAG": DAG}),
        ("airflow.providers", {}),
        ("airflow.providers.standard", {}),
        ("airflow.providers.standard.operators", {}),
        ("airflow.providers.standard.operators.bash", {"BashOperator": BashOperator}),
    ):
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    spec = importlib.util.spec_from_file_location("airflow_dag", root / "deploy/audit/airflow_dag.py")
    assert spec is not None and spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    assert after == [("audit", ["check", "report", "maintain"])]
    assert tasks["audit"]["skip_on_exit_code"] == 4 and tasks["report"]["trigger_rule"] == "all_done"
    for task in tasks.values():
        words = shlex.split(task["command"])
        assert words[0] == "sidecar" and CliRunner().invoke(app, [*words[1:], "--help"]).exit_code == 0


def test_the_manifest_starts_a_command_that_there_is(root: Path) -> None:
    claim, deployment = yaml.safe_load_all((root / "deploy/audit/kubernetes.yaml").read_text())
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert CliRunner().invoke(app, ["audit", *container["args"], "--help"]).exit_code == 0
    assert deployment["spec"]["replicas"] == 1 and deployment["spec"]["strategy"] == {"type": "Recreate"}
    assert {m["name"] for m in container["volumeMounts"]} == {v["name"] for v in pod["volumes"]}
    named = pod["volumes"][0]["persistentVolumeClaim"]["claimName"]
    assert named == claim["metadata"]["name"]
