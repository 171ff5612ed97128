"""What executors do for a batch: write bronze, then make silver of what was written. Only counts go to the driver."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sidecar.audit.decode import Decoder, claims_in, schemas_in
from sidecar.audit.lake_files import FileInfo, TableWriter, Target, typed
from sidecar.audit.layers import BRONZE
from sidecar.audit.source_uri import ParquetFile, Split, with_folders

TOLD_DDL = "told string"
"""Each row is JSON: a file that was written, or what a later step must know of the records."""
DECODED_AT_ONCE = 65_536


def told(rows: Iterable[object]) -> Any:
    return pa.RecordBatch.from_pydict({"told": pa.array([json.dumps(r) for r in rows], pa.string())})


def chosen(ids: Iterable[Any], things: Sequence[Any]) -> Iterator[Any]:
    """The things whose numbers this task was given."""
    for batch in ids:
        for i in batch.column(0).to_pylist():
            yield things[i]


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

    def close(self) -> Any:
        said = {"claims": self.claims, "schemas": self.schemas, "seen": list(self.seen.items())}
        return told([*({"file": json.loads(f.to_json())} for f in self.writer.close()), {"facts": said}])


def bronze_of_splits(splits: Sequence[Split], target: Target, skip: Mapping[int, int], ids: Any) -> Iterator[Any]:
    """For mapInArrow over the numbers of splits: the records never go through the JVM."""
    writer = BronzeWriter(target, skip)
    for split in chosen(ids, splits):
        for batch in split.batches():
            writer.write(batch)
    yield writer.close()


def bronze_of_rows(target: Target, skip: Mapping[int, int], batches: Any) -> Iterator[Any]:
    """For mapInArrow over rows of bronze, as a stream gives them."""
    writer = BronzeWriter(target, skip)
    for batch in batches:
        if len(batch):
            writer.write(typed(batch, BRONZE))
    yield writer.close()


def silver_of_files(
    parts: Sequence[Sequence[FileInfo]],
    targets: Mapping[str, Target],
    schemas: Mapping[str, str],
    claims: Mapping[int, Sequence[tuple[int, int]]],
    ids: Any,
) -> Iterator[Any]:
    """For mapInArrow over the numbers of parts: decode bronze files. `targets`: of the tables that are still wanted."""
    decoder = Decoder(schemas, claims)
    writers = {name: TableWriter(target) for name, target in targets.items()}
    for part in chosen(ids, parts):
        for f in part:
            file = ParquetFile(f.path, dict(f.partition))
            with pq.ParquetFile(file.path) as opened:
                for raw in opened.iter_batches(DECODED_AT_ONCE):
                    batch = typed(with_folders(raw, file.values), BRONZE)
                    for name, rows in decoder.decode(batch).items():
                        if name in writers:
                            writers[name].write(rows)
    for name, writer in writers.items():
        yield told({"table": name, "file": json.loads(f.to_json())} for f in writer.close())
