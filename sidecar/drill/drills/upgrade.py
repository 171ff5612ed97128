"""Sidecars of an earlier commit and of today in one cluster."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from sidecar.drill.drills.commands import find_well, running_version
from sidecar.drill.drills.ground import Ground
from sidecar.drill.drills.sidecars import replace_one
from sidecar.drill.drills.spec import Drill, Mark
from sidecar.drill.local import Broker
from sidecar.drill.processes import DrillError
from sidecar.process.version import PACKAGE, package_version

ROOT = Path(__file__).resolve().parents[3]
OWNS_S = 30.0
"""Seconds in which a sidecar must own partitions after its start."""
SCHEMAS = "sidecar/state/schemas/*.avsc"


def in_checkout() -> bool:
    """Return whether this package is part of a checkout, and not installed."""
    return (ROOT / ".git").exists()


def _git(*args: str) -> bytes:
    done = subprocess.run(["git", "-C", str(ROOT), *args], capture_output=True, check=False)
    if done.returncode != 0:
        raise DrillError(f"git {args[0]} in {ROOT}: {done.stderr.decode().strip()}")
    return done.stdout


def earlier() -> str:
    """Return the default commit to upgrade from: the last tag, or without tags the commit before the last new schema of
    a record. Raises DrillError."""
    tags = _git("tag", "--merged", "HEAD", "--sort=-creatordate").decode().split()
    wanted = tags[0] if tags else _git("log", "-1", "--format=%H^", "--diff-filter=A", "--", SCHEMAS).decode().strip()
    try:
        return _git("rev-parse", "--short", "--verify", f"{wanted}^{{commit}}").decode().strip()
    except DrillError:
        if _git("rev-parse", "--is-shallow-repository").strip() != b"true":
            raise
    raise DrillError("this clone has no history: git fetch --unshallow --tags, or name --earlier COMMIT")


def has_history() -> bool:
    """Return whether there is an earlier version to upgrade from."""
    try:
        return bool(earlier())
    except DrillError:
        return False


def has_commit(commit: str) -> bool:
    try:
        return bool(_git("rev-parse", "--verify", f"{commit}^{{commit}}"))
    except DrillError:
        return False


def checkout(commit: str, folder: Path, say: Callable[[str], None] = print) -> Path:
    """Unpack this commit and build its kernels; return its folder. If the build fails, `say` gets a line: the sidecars
    run in Python. Raises DrillError if there is no such commit."""
    tree = folder / f"sidecar-of-{commit}"
    if not tree.exists():
        with tarfile.open(fileobj=io.BytesIO(_git("archive", commit))) as packed:
            packed.extractall(tree, filter="data")
        project = tomllib.loads((tree / "pyproject.toml").read_text())["project"]
        (tree / "pyproject.toml").unlink()  # an older setuptools refuses it; setup.py is enough here
        log = folder / f"build-of-{commit}.log"
        build = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
        with log.open("wb") as out:
            done = subprocess.run(build, cwd=tree, stdout=out, stderr=out, check=False)
        if done.returncode != 0:
            say(f"the kernels of {commit} cannot be built: its sidecars run in Python; {log}")
        as_installed(tree, f"{project['version']}+{commit}", project.get("entry-points", {}))
    return tree


def as_installed(tree: Path, version: str, entry_points: Mapping[str, Mapping[str, str]]) -> None:
    """Write the metadata of a package, as pip does. A process that runs the tree finds it before that of the installed
    package, and so shows this version in /about: only the tree's own code can."""
    info = tree / f"{PACKAGE.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: {version}\n")
    points = (
        f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in names.items()) for group, names in entry_points.items()
    )
    (info / "entry_points.txt").write_text("\n".join(points))


def of_today(ground: Ground) -> int:
    """Return the number of sidecars with the version of this package."""
    return sum(running_version(n) == package_version() for n in ground.kafka.nodes)


def owns(ground: Ground, node: Broker) -> bool:
    """Return whether this sidecar owns partitions, by its own report."""
    return bool((ground.kafka.owners(node) or {}).get("active"))


class RollingUpgrade(Drill):
    """One sidecar after the other becomes one of an earlier commit, then one after the other today's again. Each owns
    partitions beside the others. The first broker's sidecar is two processes."""

    name = "rolling-upgrade"
    needs_checkout = True

    commit = ""

    def prepare(self, ground: Ground, i: int) -> None:
        k = ground.kafka
        self.commit = self.commit or str(self.options.get("earlier") or earlier())
        self.tree = checkout(self.commit, k.folder, ground.report)
        k.halved.add(k.nodes[0].node_id)
        replace_one(self, ground, k.nodes[0])
        ground.settled(self.patience_s)

    def fault(self, ground: Ground, i: int) -> list[Mark]:
        marks, nodes, seen = [], ground.kafka.nodes, []
        for tree, what in ((self.tree, f"of {self.commit}"), (None, "of today")):
            for node in nodes:
                marks.append(Mark.now(f"sidecar {node.node_id} becomes one {what}"))
                if tree is None:
                    ground.kafka.trees.pop(node.node_id, None)
                else:
                    ground.kafka.trees[node.node_id] = tree
                replace_one(self, ground, node)
                ground.wait(f"sidecar {node.node_id} owns partitions {what}", partial(owns, ground, node), OWNS_S)
                seen.append(len(nodes) - of_today(ground))
            ground.settled(self.patience_s)
        steps = list(range(1, len(nodes) + 1))
        self.find(f"sidecars of {self.commit} after each step", seen, seen == [*steps, *reversed(steps[:-1]), 0])
        return marks

    def heal(self, ground: Ground, i: int) -> None:
        find_well(self, ground, "after the upgrade")
        first = ground.kafka.nodes[0]
        ground.kafka.halved.discard(first.node_id)
        replace_one(self, ground, first)
