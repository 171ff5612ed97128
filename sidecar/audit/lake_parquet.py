"""Tables of the lake as plain Parquet: a folder for each batch, and a manifest beside, which counts.

    silver/current/batch=00000003/b00000003-….parquet
    silver/current/_batches/00000003.json       {"files": […], "gone": […]}

A batch is written in a folder of its own, which gets its name by one rename; then its manifest is written. Readers read
what the manifests name, so they never see a batch that is not complete. Maintenance puts a checkpoint in the place of
all manifests so far, `00000003.checkpoint.json`: the files that count after batch 3, in the same form.
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
from typing import Any

from sidecar.audit.columns import Table
from sidecar.audit.errors import AuditError
from sidecar.audit.lake_files import MERGED, FileInfo, Target, batch_name

MANIFESTS = "_batches"
STAGED = "_staged-"
CHECKPOINT = ".checkpoint"
CHECKPOINT_EVERY = 10
"""So many manifests: whoever reads a table reads all of them from the last checkpoint on."""
Manifest = tuple[int, Path]


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
        return found[-1][0] if found else -1

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
        if len(self._manifests(table)) > CHECKPOINT_EVERY:
            self.pack(table)
        return True

    def files(self, table: Table) -> list[FileInfo]:
        """With paths that can be opened."""
        folder = self.folder(table)
        return [replace(f, path=str(folder / f.path)) for f in self.listed(table)]

    def place(self, table: Table, file: FileInfo) -> Path:
        """Where a file lies whose path is as the manifests have it."""
        return self.folder(table) / file.path

    def open_files(self, table: Table) -> list[FileInfo]:
        """With paths as the manifests have them."""
        return [f for f in self.listed(table) if f.open]

    def merging(self, table: Table) -> Target:
        """Where files go that take the place of several."""
        return Target(table, str(self.folder(table) / f"batch=merged-{uuid.uuid4().hex[:12]}"), MERGED)

    def swap(self, target: Target, files: Sequence[FileInfo], gone: Sequence[FileInfo]) -> None:
        """In one step, the same rows in other files."""
        below = Path(target.folder).name
        self._checkpoint(target.table, [replace(f, path=f"{below}/{f.path}") for f in files], {f.path for f in gone})

    def pack(self, table: Table) -> None:
        """One manifest in the place of all."""
        if len(self._manifests(table)) > 1:
            self._checkpoint(table, (), set())

    def _checkpoint(self, table: Table, more: Sequence[FileInfo], gone: set[str]) -> None:
        manifests = self._manifests(table)
        files = [f for f in self.listed(table) if f.path not in gone]
        folder, number = self.folder(table) / MANIFESTS, manifests[-1][0]
        path = folder / f"{number:08d}{CHECKPOINT}.json"
        put_json(path, {"files": [asdict(f) for f in (*files, *more)], "gone": []})
        for old in folder.glob("*.json"):  # readers begin with the latest checkpoint
            if old != path and int(old.name[:8]) <= number:
                old.unlink(missing_ok=True)

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
        for path in sorted(self.folder(table).rglob("*=*"), reverse=True):
            if path.is_dir() and not any(path.iterdir()):
                path.rmdir()
        return removed

    def _manifests(self, table: Table) -> list[Manifest]:
        """Those that count, with their numbers: from the last checkpoint on."""
        found: list[Manifest] = []
        # Of a batch the manifest comes first, and then a checkpoint, which has it.
        paths = (self.folder(table) / MANIFESTS).glob("*.json")
        for path in sorted(paths, key=lambda p: (p.name[:8], CHECKPOINT in p.name)):
            if CHECKPOINT in path.name:
                found.clear()
            found.append((int(path.name[:8]), path))
        return found

    def listed(self, table: Table) -> list[FileInfo]:
        """With paths as the manifests have them."""
        while True:
            manifests = self._manifests(table)
            try:
                said = [read_json(path) for _, path in manifests]
            except FileNotFoundError:
                if self._manifests(table) == manifests:  # else a checkpoint has come in between
                    raise
                continue
            # A folder is not listed at one moment: a checkpoint that comes meanwhile may be left out, with what it
            # takes the place of.
            if self._manifests(table) == manifests:
                return _applied(said)


def _applied(manifests: Sequence[dict[str, Any]]) -> list[FileInfo]:
    found: dict[str, FileInfo] = {}
    for said in manifests:
        for name in said["gone"]:
            found.pop(name, None)
        found.update((f["path"], FileInfo.of(f)) for f in said["files"])
    return [found[name] for name in sorted(found)]


def read_json(path: Path) -> Any:
    """Raises AuditError if it is damaged, and FileNotFoundError."""
    try:
        return json.loads(path.read_text())
    except ValueError as exc:
        raise AuditError(f"{path} is damaged ({exc}): put it back from a backup, or fill another lake") from exc


def put_json(path: Path, said: object) -> None:
    """Write the file whole or not at all, and so that it outlives a crash of the machine."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    with beside.open("w") as f:
        json.dump(said, f, indent=1, sort_keys=True)
        f.flush()
        os.fsync(f.fileno())
    os.replace(beside, path)
