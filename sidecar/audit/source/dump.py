"""Plain dumps of the state topic: a file, or a folder of files, one JSON object to a line, `.gz` or not.

    {"partition": 7, "offset": 42, "time_ms": 1760000000000, "time_type": "create",
     "key": "base64", "value": "base64, or null", "headers": [["why", "base64"]]}

Needs nothing that `pip install kafka-group-sidecar[audit]` adds.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec

from sidecar.audit.errors import AuditError

ENDINGS = (".jsonl", ".json", ".ndjson", ".jsonl.gz", ".json.gz", ".ndjson.gz")
TIME_TYPES = (None, "create", "append")
"""Names of the timestamp types, at the Kafka client's numbers for them."""


class DumpRecord(msgspec.Struct):
    """A record, one line of a dump; msgspec reads and writes its bytes as base64."""

    partition: int
    offset: int
    time_ms: int
    time_type: str | None
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] = []


def dump_files(path: Path) -> list[Path]:
    """Returns a folder's dump files in the order of their names, or the file itself."""
    if path.is_file():
        return [path]
    return sorted(p for p in path.rglob("*") if p.name.endswith(ENDINGS))


def dump_lines(path: Path) -> Iterator[bytes]:
    with gzip.open(path) if path.name.endswith(".gz") else path.open("rb") as f:
        yield from f


def open_dump(path: Path) -> IO[bytes]:
    """Opens a dump for writing, compressed if the name ends in .gz."""
    return gzip.open(path, "wb") if path.name.endswith(".gz") else path.open("wb")  # type: ignore[return-value]


def read_dump(path: Path) -> Iterator[DumpRecord]:
    """Yields all records. Raises AuditError, which names the first invalid line."""
    decoder = msgspec.json.Decoder(DumpRecord)
    for file in dump_files(path):
        for number, line in enumerate(dump_lines(file), 1):
            try:
                yield decoder.decode(line)
            except msgspec.DecodeError as exc:
                raise AuditError(f"{file}, line {number}: {exc}") from exc
