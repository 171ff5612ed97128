"""The drills take another version from an earlier commit, and make one of tomorrow."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sidecar.drill.drills import commands, rollback, upgrade
from sidecar.drill.drills.ground import Ground
from sidecar.drill.local import Broker
from sidecar.drill.processes import DrillError
from sidecar.process.version import package_version
from sidecar.state.schema import Schemas, StateError, published

PROGRAM = """
from importlib.metadata import entry_points
from sidecar.process.version import package_version
from sidecar.core.kinds import REGISTRY
from sidecar.state.codec import StateCodec, Stamp, latest
from sidecar.core.consumer.records import MemberRecord
import sidecar
print(sidecar.__file__)
print(latest(REGISTRY)["member"], latest(REGISTRY)["classic_group"], latest(REGISTRY)["of_tomorrow"])
record = MemberRecord("g", "m", None, None, "c", "/h", 30_000, ("a",), None, None, "joined")
print(StateCodec().encode(record, Stamp(1, 2), 3).value.hex())
print(package_version(), sorted(point.name for point in entry_points(group="kafka_group_sidecar.assignors")))
"""


ASSIGNORS = "kafka_group_sidecar.assignors"


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


class About(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        version = {"/about": self.server.tells}.get(self.path, "")  # type: ignore[attr-defined]
        self.send_response(200 if version else 404)
        self.end_headers()
        self.wfile.write(json.dumps({"version": version}).encode())

    def log_message(self, format: str, *args: object) -> None:
        """Writes nothing to stderr."""


@pytest.mark.parametrize(("tells", "told"), [("0.1.0+abc", "0.1.0+abc"), ("", commands.BEFORE_ABOUT)])
def test_a_sidecar_is_asked_which_version_it_is(tells: str, told: str) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), About) as server:
        server.tells = tells  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert commands.running_version(Broker(1, 0, 0, 0, 0, server.server_port, 0)) == told
        server.shutdown()


def test_an_upgrade_that_runs_the_same_code_throughout_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the cluster did not start the sidecars of another tree."""
    nodes, trees = [Broker(n, 0, 0, 0, 0, 0, 0) for n in (1, 2, 3)], dict[int, Path]()
    owned = {"active": [0]}
    kafka: Any = SimpleNamespace(nodes=nodes, trees=trees, owners=lambda node: owned, processes=list)
    ground = Ground(kafka, print)
    monkeypatch.setattr(ground, "settled", lambda patience_s: 0.0)
    monkeypatch.setattr(upgrade, "replace_one", lambda drill, ground, node: None)
    drill = upgrade.RollingUpgrade()
    drill.commit, drill.tree = "abc", Path("of-abc")

    def what_is_set(node: Broker) -> str:
        return "7+abc" if node.node_id in trees else package_version()

    for told, ok in ((what_is_set, True), (lambda node: package_version(), False)):
        monkeypatch.setattr(upgrade, "running_version", told)
        drill.fault(ground, 0)
        assert drill.findings[-1].ok is ok, drill.findings


def test_the_last_tag_is_the_version_before(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(repository, "tag", "v1", "HEAD~1")
    monkeypatch.setattr(upgrade, "ROOT", repository)
    found = upgrade.earlier()
    tagged = subprocess.run(["git", "-C", str(repository), "rev-parse", "v1"], capture_output=True, check=True)
    assert tagged.stdout.decode().startswith(found)


def test_without_a_tag_it_is_the_commit_before_the_last_new_schema(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = repository / "sidecar" / "state" / "schemas"
    folder.mkdir(parents=True)
    for name, text in (("a-v1", "1"), ("a-v2", "1"), ("a-v1", "2")):  # the last one changes a schema that was there
        (folder / f"{name}.avsc").write_text(text)
        git(repository, "add", ".")
        git(repository, "commit", "-q", "-m", name)
    monkeypatch.setattr(upgrade, "ROOT", repository)
    wanted = subprocess.run(["git", "-C", str(repository), "rev-parse", "HEAD~2"], capture_output=True, check=True)
    assert wanted.stdout.decode().startswith(upgrade.earlier())


def test_an_earlier_version_tells_its_commit_and_that_it_runs_in_python(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = '[project]\nversion = "7.0"\n[project.entry-points."of.something"]\none = "m:f"\n'
    (repository / "pyproject.toml").write_text(project)
    (repository / "setup.py").write_text("raise SystemExit(1)")
    git(repository, "add", ".")
    git(repository, "commit", "-q", "-m", "a kernel that does not compile")
    monkeypatch.setattr(upgrade, "ROOT", repository)
    said: list[str] = []
    tree = upgrade.checkout("HEAD", tmp_path, said.append)
    assert len(said) == 1 and "its sidecars run in Python" in said[0]
    ask = "from importlib.metadata import *; p, = entry_points(group='of.something')"
    program = f"{ask}; print(version('kafka-group-sidecar'), p.name)"
    done = subprocess.run([sys.executable, "-c", program], cwd=tree, env={"PYTHONPATH": str(tree)}, capture_output=True)
    assert done.stdout.decode().split() == ["7.0+HEAD", "one"], done.stderr


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


@pytest.mark.tier("test")
def test_tomorrows_version_runs_from_its_own_folder_and_writes_newer_schemas(tmp_path: Path) -> None:
    tree, prints = rollback.tomorrow(tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tree, env={"PYTHONPATH": str(tree)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    where, schemas, value, told = done.stdout.splitlines()
    assert told == f"{package_version()}+of-tomorrow {sorted(p.name for p in entry_points(group=ASSIGNORS))}"
    assert where.startswith(str(tree))
    assert not set(schemas.split()) & set(published())
    assert bytes.fromhex(value)[2:10] == prints["member"]
    with pytest.raises(StateError, match="unknown schema"):
        Schemas({}).decode(bytes.fromhex(value))
