"""Sidecars of an earlier commit and today's in one cluster."""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
from pathlib import Path

from sidecar.drill.drills.ground import Ground
from sidecar.drill.drills.sidecars import replace_one
from sidecar.drill.drills.spec import Drill, Mark
from sidecar.drill.processes import DrillError

ROOT = Path(__file__).resolve().parents[3]
AGO = "HEAD~50"
"""Where the project has no tag yet."""


def in_checkout() -> bool:
    """Whether this package is part of a checkout, and not installed."""
    return (ROOT / ".git").exists()


def _git(*args: str) -> bytes:
    done = subprocess.run(["git", "-C", str(ROOT), *args], capture_output=True, check=False)
    if done.returncode != 0:
        raise DrillError(f"git {args[0]} in {ROOT}: {done.stderr.decode().strip()}")
    return done.stdout


def earlier() -> str:
    """Return the commit to upgrade from where none is named: the last tag, or one of a while ago. Raises DrillError."""
    tags = _git("tag", "--merged", "HEAD", "--sort=-creatordate").decode().split()
    wanted = tags[0] if tags else AGO
    try:
        return _git("rev-parse", "--short", "--verify", f"{wanted}^{{commit}}").decode().strip()
    except DrillError:
        if _git("rev-parse", "--is-shallow-repository").strip() != b"true":
            raise
        text = f"this clone has no history, and so not {wanted}: git fetch --unshallow --tags, or name --earlier COMMIT"
        raise DrillError(text) from None


def checkout(commit: str, folder: Path) -> Path:
    """Unpack this commit and build its kernels, if that works; without them the sidecar runs in Python. Raises
    DrillError if there is no such commit."""
    tree = folder / f"sidecar-of-{commit}"
    if not tree.exists():
        with tarfile.open(fileobj=io.BytesIO(_git("archive", commit))) as packed:
            packed.extractall(tree, filter="data")
        (tree / "pyproject.toml").unlink(missing_ok=True)  # an older setuptools refuses it; setup.py is enough here
        build = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
        with (folder / f"build-of-{commit}.log").open("wb") as log:
            subprocess.run(build, cwd=tree, stdout=log, stderr=log, check=False)
    return tree


class RollingUpgrade(Drill):
    """One sidecar after the other becomes one of an earlier commit, then one after the other today's again."""

    name = "rolling-upgrade"
    needs_checkout = True

    commit = ""

    def prepare(self, ground: Ground, i: int) -> None:
        self.commit = self.commit or str(self.options.get("earlier") or earlier())
        self.tree = checkout(self.commit, ground.kafka.folder)

    def fault(self, ground: Ground, i: int) -> list[Mark]:
        marks = []
        for tree, what in ((self.tree, f"of {self.commit}"), (None, "of today")):
            for node in ground.kafka.nodes:
                marks.append(Mark.now(f"sidecar {node.node_id} becomes one {what}"))
                if tree is None:
                    ground.kafka.trees.pop(node.node_id, None)
                else:
                    ground.kafka.trees[node.node_id] = tree
                replace_one(self, ground, node)
            ground.settled(self.patience_s)
        return marks

    def heal(self, ground: Ground, i: int) -> None:
        """There is nothing to heal."""
