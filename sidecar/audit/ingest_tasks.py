"""What executors do for a batch: write bronze, then make silver of what was written. Only counts go to the driver."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sidecar.audit.decode import Decoder, claims_in, schemas_in
from sidecar.audit.lake_files import FileInfo, TableWriter, Target, typed
from sidecar.audit.layers import BRONZE
from sidecar.audit.source_uri import Split, with_folders

READ_AT_ONCE = 65_536
DECODED_AT_ONCE = 16_384
"""Smaller batches are put together, which costs a copy."""


class BronzeWriter:
    """Writes records and collects what the driver must know of them: claims, schemas, and which offsets there were."""

    def __init__(self, target: Target, skip: Mapping[int, int]) -> None:
        """`skip`: offset of each partition below which the lake has everything."""
        self.writer, self.skip = TableWriter(target), skip
        self.claims: list[tuple[int, int, int]] = []
        self.schemas: dict[str, str] = {}
        self.seen: dict[int, int] = {}

    def write(self, batch: Any) -> None:
        p, offset = batch["state_partition"], batch["offset"]
        for one in p.unique().to_pylist():
            below = self.skip.get(one, 0)
            if below:
                kept = pc.or_(pc.not_equal(p, one), pc.greater_equal(offset, below))
                if not pc.all(kept).as_py():
                    self.write(batch.filter(kept))
                    return
        for row in pa.table({"p": p, "o": offset}).group_by("p").aggregate([("o", "max")]).to_pylist():
            self.seen[row["p"]] = max(self.seen.get(row["p"], 0), row["o_max"] + 1)
        self.claims += claims_in(batch)
        self.schemas.update(schemas_in(batch))
        self.writer.write(batch)

    def close(self) -> list[str]:
        said = {"claims": self.claims, "schemas": self.schemas, "seen": list(self.seen.items())}
        files = [json.dumps({"file": json.loads(f.to_json())}) for f in self.writer.close()]
        return [*files, json.dumps({"facts": said})]


def bronze_of_splits(splits: Sequence[Split], target: Target, skip: Mapping[int, int], ids: Iterator[int]) -> list[str]:
    """Reads and writes the splits of these numbers: the records never go through the JVM."""
    writer = BronzeWriter(target, skip)
    for i in ids:
        for batch in splits[i].batches():
            writer.write(batch)
    return writer.close()


def bronze_of_rows(target: Target, skip: Mapping[int, int], batches: Iterator[Any]) -> list[str]:
    """Writes rows of bronze, as a stream gives them."""
    writer = BronzeWriter(target, skip)
    for batch in batches:
        if len(batch):
            writer.write(typed(batch, BRONZE))
    return writer.close()


def silver_of_files(
    parts: Sequence[Sequence[FileInfo]],
    targets: Mapping[str, Target],
    schemas: Mapping[str, str],
    claims: Mapping[int, Sequence[tuple[int, int]]],
    ids: Iterator[int],
) -> list[str]:
    """Decodes the bronze files of the parts of these numbers. `targets`: of the tables that are still wanted."""
    decoder = Decoder(schemas, claims)
    writers = {name: TableWriter(target) for name, target in targets.items()}
    for batch in _enough(_rows(f) for i in ids for f in parts[i]):
        for name, rows in decoder.decode(batch).items():
            if name in writers:
                writers[name].write(rows)
    told = []
    for name, writer in writers.items():
        told += [json.dumps({"table": name, "file": json.loads(f.to_json())}) for f in writer.close()]
    return told


def _rows(file: FileInfo) -> Iterator[Any]:
    values = dict(file.partition)
    with pq.ParquetFile(file.path) as opened:
        for raw in opened.iter_batches(READ_AT_ONCE):
            yield typed(with_folders(raw, values), BRONZE)


def _enough(files: Iterable[Iterable[Any]]) -> Iterator[Any]:
    """Rows of small files together: decoding takes its time for each batch, however few rows it has."""
    waiting: list[Any] = []
    for batch in chain.from_iterable(files):
        waiting.append(batch)
        if sum(map(len, waiting)) >= DECODED_AT_ONCE:
            yield pa.concat_batches(waiting)
            waiting = []
    if waiting:
        yield pa.concat_batches(waiting)
