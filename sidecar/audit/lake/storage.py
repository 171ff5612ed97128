"""Storage of a lake: a local folder, or a folder of an object store by its URI, such as s3://BUCKET/FOLDER.

Object stores are read and written through delta-rs, whose environment variables configure them: AWS_*, AZURE_*,
GOOGLE_*. Tables are committed by Delta's protocol alone. All other files are written whole, under a name of their own.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

import pyarrow.fs as pafs
from deltalake.fs import DeltaStorageHandler

from sidecar.audit.errors import AuditError

SCHEMES = ("s3", "s3a", "abfs", "abfss", "gs", "az")
FORMS = "FOLDER, s3://BUCKET/FOLDER, abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/FOLDER or gs://BUCKET/FOLDER"
URI = re.compile(r"([A-Za-z][\w+.-]*):/")
REFUSED = "%#?\\"
"""Characters that no lake's folder has: delta-rs decodes `%`, and tools that take URIs end a path at `#` or `?`."""


class ObjectFolder(PurePosixPath):
    """A file or a folder of an object store by its URI, with the methods of `Path` that a lake needs."""

    def __str__(self) -> str:
        return super().__str__().replace(":/", "://", 1)

    def is_file(self) -> bool:
        store, path = file_system(self)
        return bool(store.get_file_info(path).type == pafs.FileType.File)

    def is_dir(self) -> bool:
        return any(self.glob("*"))

    def read_text(self) -> str:
        store, path = file_system(self)
        with store.open_input_stream(path) as f:
            return bytes(f.read()).decode()

    def write_text(self, text: str) -> None:
        store, path = file_system(self)
        content = text.encode()
        # Only from its buffer Arrow gives a file of Python bytes, which is all that delta-rs takes.
        with store.open_output_stream(path, buffer_size=len(content) + 1) as f:
            f.write(content)

    def glob(self, pattern: str) -> Iterator[ObjectFolder]:
        """Yields this folder's entries that match. A store has no folders, only names with slashes."""
        store, path = file_system(self)
        infos = store.get_file_info(pafs.FileSelector(path, recursive=True, allow_not_found=True))
        files = (str(info.path) for info in infos if info.type == pafs.FileType.File)
        names = {file.removeprefix(f"{path}/").split("/")[0] for file in files}
        yield from (self / name for name in sorted(names) if fnmatch(name, pattern))

    def unlink(self, missing_ok: bool = False) -> None:
        store, path = file_system(self)
        if not missing_ok or self.is_file():
            store.delete_file(path)


Folder = Path | ObjectFolder


@lru_cache
def _store(root: str) -> Any:
    return pafs.PyFileSystem(DeltaStorageHandler(root))


def file_system(path: str | Folder) -> tuple[Any, str]:
    """Returns the file system of a path or URI, and the name there. Tasks on other machines get the same one."""
    text = os.fspath(path)
    if "://" not in text:
        return pafs.LocalFileSystem(), text
    parts = urlsplit(text)
    return _store(f"{parts.scheme}://{parts.netloc}"), parts.path.strip("/")


def is_remote(path: str | Folder) -> bool:
    return "://" in os.fspath(path)


def folder_at(uri: str) -> Folder:
    """Returns a lake's folder: delta://FOLDER and file://FOLDER are FOLDER. Raises AuditError with the valid forms."""
    text = re.sub("^(delta|file)://", "", uri)
    scheme = URI.match(text)
    if scheme is not None and not (scheme[1] in SCHEMES and urlsplit(text).netloc):
        raise AuditError(f"{uri!r} is no folder of a lake: {FORMS}")
    folder = Path(text).absolute() if scheme is None else ObjectFolder(text)
    if set(REFUSED) & set(str(folder)):
        raise AuditError(f"{folder} is no folder of a lake: its path must have none of {' '.join(REFUSED)}")
    return folder


def uri_of(path: str | Folder) -> str:
    """Returns the URI of a lake's file or folder. Nothing is percent-encoded: Hadoop would not decode it."""
    return os.fspath(path) if is_remote(path) else f"file://{os.fspath(path)}"


def remove_all(folder: Folder) -> None:
    """Removes the folder with its content, if it exists."""
    if isinstance(folder, Path):
        shutil.rmtree(folder, ignore_errors=True)
    else:
        store, path = file_system(folder)
        store.delete_dir(path)


def read_json(path: Folder) -> Any:
    """Reads a JSON file. Raises AuditError if it is damaged, FileNotFoundError if it does not exist."""
    try:
        return json.loads(path.read_text())
    except ValueError as exc:
        raise AuditError(f"{path} is damaged ({exc}): put it back from a backup, or fill another lake") from exc


def put_json(path: Folder, content: object) -> None:
    """Writes the file whole or not at all, and durably: it survives a crash of the machine."""
    text = json.dumps(content, indent=1, sort_keys=True)
    if isinstance(path, ObjectFolder):
        path.write_text(text)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    with beside.open("w") as f:
        f.write(text)
        f.flush()
        os.fsync(f.fileno())
    os.replace(beside, path)
