"""Plain dumps of the state topic: a file, or a folder of files, one JSON object to a line, `.gz` or not.

    {"partition": 7, "offset": 42, "time_ms": 1760000000000, "time_type": "create",
     "key": "base64", "value": "base64, or null", "headers": [["why", "base64"]]}

Needs nothing that `pip install kafka-group-sidecar[audit]` adds.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Annotated, Any, Literal

import msgspec

from sidecar.audit.errors import AuditError

ENDINGS = (".jsonl", ".json", ".ndjson", ".jsonl.gz", ".json.gz", ".ndjson.gz")
TimeType = Literal["create", "append"] | None
TIME_TYPES: tuple[TimeType, ...] = (None, "create", "append")
"""Names of the timestamp types, at the Kafka client's numbers for them."""
PartitionNumber = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
Offset = Annotated[int, msgspec.Meta(ge=0, lt=(1 << 63) - 1)]
Long = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class DumpRecord(msgspec.Struct, gc=False):
    """A record, one line of a dump; msgspec reads and writes its bytes as base64."""

    partition: PartitionNumber
    offset: Offset
    time_ms: Long
    time_type: TimeType
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] = []


def record_of(message: Any) -> DumpRecord:
    """Returns the record that the Kafka client has received."""
    m, (kind, ms) = message, message.timestamp()
    return DumpRecord(m.partition(), m.offset(), ms, TIME_TYPES[kind], m.key(), m.value(), m.headers() or [])


def files_below(path: Path, endings: tuple[str, ...], hidden: tuple[str, ...] = (".",)) -> list[Path]:
    """Returns a folder's files with these endings in the order of their names, or the file itself. Names below the
    folder that begin with one of `hidden` are left out: such a file may be half written. Raises AuditError if there is
    no file."""
    if path.is_file():
        return [path]
    files = sorted(
        p
        for p in path.rglob("*")
        if p.name.endswith(endings)
        and p.is_file()
        and not any(part.startswith(hidden) for part in p.relative_to(path).parts)
    )
    if not files:
        raise AuditError(f"{path} has no file to read: none whose name ends in {', '.join(endings)}")
    return files


def open_dump(path: Path) -> IO[bytes]:
    """Opens a dump for writing, compressed if the name ends in .gz."""
    return gzip.open(path, "wb") if path.name.endswith(".gz") else path.open("wb")  # type: ignore[return-value]


def records_of(file: Path) -> Iterator[DumpRecord]:
    """Yields the records of one file. Raises AuditError, which names the first invalid line."""
    decoder = msgspec.json.Decoder(DumpRecord)
    number = 0
    try:
        with gzip.open(file) if file.name.endswith(".gz") else file.open("rb") as lines:
            for line in lines:
                number += 1
                yield decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise AuditError(f"{file}, line {number}: {exc}") from exc
    except (EOFError, OSError, zlib.error) as exc:  # of gzip, or of the file system
        raise AuditError(f"{file}, after line {number}: {exc}. If it is not whole, copy or dump it again") from exc


def read_dump(path: Path) -> Iterator[DumpRecord]:
    """Yields all records. Raises AuditError, which names the first invalid line."""
    for file in files_below(path, ENDINGS):
        yield from records_of(file)
