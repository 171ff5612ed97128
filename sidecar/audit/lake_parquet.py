"""Tables of the lake as plain Parquet: a folder for each batch, and a manifest beside, which counts.

    silver/current/batch=00000003/b00000003-….parquet
    silver/current/_batches/00000003.json       {"files": […], "gone": […]}

A batch is written in a folder of its own, which gets its name by one rename; then its manifest is written. Readers read
what the manifests name, so they never see a batch that is not complete.
"""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from sidecar.audit.columns import Table
from sidecar.audit.lake_files import FileInfo, Target, batch_name

MANIFESTS = "_batches"
STAGED = "_staged-"


class ParquetTables:
    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, table: Table) -> Path:
        return self.root / table.layer / table.name

    def create(self, table: Table) -> None:
        (self.folder(table) / MANIFESTS).mkdir(parents=True, exist_ok=True)

    def target(self, table: Table, batch: int) -> Target:
        staged = self.folder(table) / f"{STAGED}{batch:08d}-{uuid.uuid4().hex[:12]}"
        return Target(table, str(staged), batch_name(batch))

    def committed(self, table: Table) -> int:
        """Number of the last batch; -1: none."""
        found = self._manifests(table)
        return int(found[-1].stem) if found else -1

    def commit(self, target: Target, files: Sequence[FileInfo], batch: int, gone: Sequence[FileInfo] = ()) -> bool:
        """False: this batch was committed before, and nothing was done."""
        table = target.table
        self.create(table)
        if self.committed(table) >= batch:
            shutil.rmtree(target.folder, ignore_errors=True)
            return False
        name = f"batch={batch:08d}"
        final = self.folder(table) / name
        shutil.rmtree(final, ignore_errors=True)  # renamed by an attempt that died before it wrote the manifest
        if files:
            named = {f.path for f in files}
            for path in Path(target.folder).rglob("*.parquet"):
                if str(path.relative_to(target.folder)) not in named:
                    path.unlink()  # of a task that was tried again
            os.rename(target.folder, final)
        said = {
            "files": [asdict(replace(f, path=f"{name}/{f.path}")) for f in files],
            "gone": [f.path for f in gone],
        }
        put_json(self.folder(table) / MANIFESTS / f"{batch:08d}.json", said)
        return True

    def files(self, table: Table) -> list[FileInfo]:
        """With paths that can be opened."""
        folder = self.folder(table)
        return [replace(f, path=str(folder / f.path)) for f in self._listed(table)]

    def open_files(self, table: Table) -> list[FileInfo]:
        """With paths as the manifests have them."""
        return [f for f in self._listed(table) if f.open]

    def sweep(self, table: Table, batch: int) -> None:
        """Remove what a broken attempt at this batch has left."""
        for path in self.folder(table).glob(f"{STAGED}{batch:08d}-*"):
            shutil.rmtree(path, ignore_errors=True)

    def vacuum(self, table: Table, hours: int) -> list[str]:
        """Remove files that the manifests do not name, once they are so old; return which."""
        kept, before = {f.path for f in self.files(table)}, time.time() - hours * 3600
        removed = []
        for path in self.folder(table).rglob("*.parquet"):
            if str(path) not in kept and path.stat().st_mtime <= before:
                path.unlink()
                removed.append(str(path))
        return removed

    def _manifests(self, table: Table) -> list[Path]:
        return sorted((self.folder(table) / MANIFESTS).glob("*.json"))

    def _listed(self, table: Table) -> list[FileInfo]:
        found: dict[str, FileInfo] = {}
        for path in self._manifests(table):
            said = json.loads(path.read_text())
            for name in said["gone"]:
                found.pop(name, None)
            found.update((f["path"], FileInfo.of(f)) for f in said["files"])
        return [found[name] for name in sorted(found)]


def put_json(path: Path, said: object) -> None:
    """Write the file whole or not at all, and so that it outlives a crash of the machine."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    with beside.open("w") as f:
        json.dump(said, f, indent=1, sort_keys=True)
        f.flush()
        os.fsync(f.fileno())
    os.replace(beside, path)
