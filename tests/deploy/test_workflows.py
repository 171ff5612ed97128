"""GitHub's workflows without GitHub: what they run is there, and the wheels are those that docs/operate/deploy.md
names."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.test_compose import pinned

PINNED = re.compile(r"[\w.-]+/[\w./-]+@(v\d+\.\d+\.\d+|[0-9a-f]{40})")
PYTHONS = ("cp311", "cp312", "cp313", "cp314")


def workflow(root: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.load((root / f".github/workflows/{name}.yml").read_text(), yaml.BaseLoader)
    return found


def steps(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in found["jobs"].values() for step in job["steps"]]


def test_each_has_few_rights_and_exact_versions(root: Path) -> None:
    files = sorted((root / ".github/workflows").iterdir())
    assert [f.stem for f in files] == ["tests", "vulnerabilities", "wheels"]
    for file in files:
        found = workflow(root, file.stem)
        assert found["permissions"] == {"contents": "read"}
        for step in steps(found):
            assert "uses" not in step or PINNED.fullmatch(step["uses"]), step
        for job in found["jobs"].values():
            assert not job["runs-on"].endswith("latest")
            assert "container" not in job or pinned(re.sub("-[a-z]+$", "", job["container"]["image"]))
    assert not PINNED.fullmatch("actions/checkout@v4") and not PINNED.fullmatch("actions/checkout@main")


def test_the_tests_are_run_as_ci_runs_them(root: Path) -> None:
    found = workflow(root, "tests")
    assert ".ci/run" in [step.get("run") for step in steps(found)]
    assert os.access(root / ".ci/run", os.X_OK)
    (job,) = found["jobs"].values()
    assert "--privileged" in job["container"]["options"]  # else the units and the full disk cannot be tried


NEEDED = ("cc", "chromium", "go", "javac", "mvn", "node", "promtool", "systemd-analyze")
"""Programs that tests of tier `all` start, beside those of the image."""


def test_what_the_tests_need_is_installed(root: Path) -> None:
    """Symptom: the shard `rest` could not pass on a machine without Node.js and a compiler of Java."""
    text = (root / ".ci/run").read_text()
    assert {p for p in NEEDED if f"command -v {p} >/dev/null" in text} == set(NEEDED)
    assert "github.event_name" in workflow(root, "tests")["concurrency"]["group"]  # a push ends no night


def test_wheels_are_built_when_what_they_are_made_of_changes(root: Path) -> None:
    on = workflow(root, "wheels")["on"]
    for event in ("push", "pull_request"):
        assert {"setup.py", "pyproject.toml", "sidecar/native/**"} <= set(on[event]["paths"])
    for path in on["push"]["paths"]:
        assert (root / path.removesuffix("/**")).exists(), path


def test_only_the_job_that_publishes_may_and_only_on_tags(root: Path) -> None:
    jobs = workflow(root, "wheels")["jobs"]
    able = [name for name, job in jobs.items() if "id-token" in job.get("permissions", {})]
    assert able == ["publish"]
    assert jobs["publish"]["if"] == "startsWith(github.ref, 'refs/tags/v')"
    assert set(jobs["publish"]["needs"]) == set(jobs) - {"publish"}
    for tool in re.findall(r"grep -o '\^(\w+)==", (root / ".github/workflows/wheels.yml").read_text()):
        assert re.search(rf"^{tool}==[0-9.]+ ", (root / "requirements/dev.lock").read_text(), re.M), tool


def identifiers(root: Path, platform: str) -> set[str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("CIBW_")}
    command = [sys.executable, "-m", "cibuildwheel", "--print-build-identifiers", "--platform", platform, str(root)]
    return set(subprocess.run(command, capture_output=True, text=True, check=True, env=env).stdout.split())


@pytest.mark.parametrize(
    ("platform", "machines"),
    [
        (
            "linux",
            ("manylinux_x86_64", "manylinux_aarch64", "musllinux_x86_64", "musllinux_aarch64"),
        ),
        ("macos", ("macosx_arm64",)),
    ],
)
def test_the_wheels_are_those_that_are_meant(root: Path, platform: str, machines: tuple[str, ...]) -> None:
    assert identifiers(root, platform) == {f"{python}-{machine}" for python in PYTHONS for machine in machines}


def test_the_page_and_the_machines_are_those_of_the_wheels(root: Path) -> None:
    settings = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["cibuildwheel"]
    assert settings["linux"]["archs"] == ["x86_64", "aarch64"] and settings["macos"]["archs"] == ["arm64"]
    page = (root / "docs/operate/deploy.md").read_text()
    assert "Linux with glibc (x86_64, aarch64) and macOS (arm64)" in page
    machines = workflow(root, "wheels")["jobs"]["wheels"]["strategy"]["matrix"]["os"]
    assert len(machines) == 3 and not any("intel" in name for name in machines)
