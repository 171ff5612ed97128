"""Where the drills take another version from: an earlier commit, and one of tomorrow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sidecar.drill.drills import rollback, upgrade
from sidecar.drill.processes import DrillError
from sidecar.state.schema import Schemas, StateError, published

PROGRAM = """
from sidecar.core.kinds import REGISTRY
from sidecar.state.codec import StateCodec, Stamp, latest
from sidecar.core.consumer.records import MemberRecord
import sidecar
print(sidecar.__file__)
print(latest(REGISTRY)["member"], latest(REGISTRY)["classic_group"])
record = MemberRecord("g", "m", None, None, "c", "/h", 30_000, ("a",), None, None, "joined")
print(StateCodec().encode(record, Stamp(1, 2), 3).value.hex())
"""


def git(folder: Path, *args: str) -> None:
    who = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
    subprocess.run(["git", "-C", str(folder), *who, *args], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    made = tmp_path / "whole"
    made.mkdir()
    git(made, "init", "-q")
    for n in range(3):
        git(made, "commit", "-q", "--allow-empty", "-m", f"c{n}")
    return made


def test_the_last_tag_is_the_version_before(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(repository, "tag", "v1", "HEAD~1")
    monkeypatch.setattr(upgrade, "ROOT", repository)
    found = upgrade.earlier()
    tagged = subprocess.run(["git", "-C", str(repository), "rev-parse", "v1"], capture_output=True, check=True)
    assert tagged.stdout.decode().startswith(found)


def test_a_clone_without_history_is_told_what_to_do(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shallow = tmp_path / "shallow"
    git(tmp_path, "clone", "-q", "--depth", "1", f"file://{repository}", str(shallow))
    monkeypatch.setattr(upgrade, "ROOT", shallow)
    with pytest.raises(DrillError, match="git fetch --unshallow"):
        upgrade.earlier()
    monkeypatch.setattr(upgrade, "ROOT", repository)
    with pytest.raises(DrillError, match="git rev-parse"):
        upgrade.earlier()  # all of its history is there, and it is too short


def test_tomorrows_version_runs_from_its_own_folder_and_writes_newer_schemas(tmp_path: Path) -> None:
    tree, prints = rollback.tomorrow(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tree, env={"PYTHONPATH": str(tree)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    where, schemas, value = done.stdout.splitlines()
    assert where.startswith(str(tree))
    assert not set(schemas.split()) & set(published())
    assert bytes.fromhex(value)[2:10] == prints["member"]
    with pytest.raises(StateError, match="unknown schema"):
        Schemas({}).decode(bytes.fromhex(value))
