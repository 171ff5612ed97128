"""Input of a batch of gold: the new rows of silver's batch of the same number.

Maintenance merges the files of earlier batches. If gold is made anew after that, its first batch takes all of them at
once. That is refused if offsets were lost between two of those batches: the records before the loss and after it must
not be folded as one sequence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sidecar.audit.errors import AuditError
from sidecar.audit.ingest.batch import recorded
from sidecar.audit.lake.files import FileInfo, batch_of
from sidecar.audit.lake.lake import Lake
from sidecar.audit.lake.storage import read_json
from sidecar.audit.source.ranges import Ranges
from sidecar.audit.tables.gold import GOLD
from sidecar.audit.tables.layers import SILVER_TABLES


@dataclass(frozen=True)
class GoldInput:
    """Input of a batch of gold. `cuts`: for each state partition, offsets right before these rows that were never read;
    `first`: no earlier batch has left carried tables."""

    batch: int
    silver: Mapping[str, list[FileInfo]]
    cuts: Ranges
    first: bool


def gold_input(lake: Lake, n: int) -> GoldInput:
    """Returns the input of gold's next batch. `n`: its number, unless it takes several batches at once. Raises
    AuditError."""
    if n == 0 and has_merged_batches(lake):
        begun = max(lake.committed(table) for table in GOLD.values())
        n = lake.last_batch() if begun < 0 else begun  # a batch that a crash interrupted keeps its input
        silver = {
            name: [f for f in lake.files(table) if (batch_of(f.path) or 0) <= n and f.rows]
            for name, table in SILVER_TABLES.items()
        }
        return GoldInput(n, silver, _begins(lake, n), True)
    silver = {name: [f for f in lake.files(table, n) if f.rows] for name, table in SILVER_TABLES.items()}
    return GoldInput(n, silver, recorded(lake, n).cuts(recorded(lake, n - 1)), n == 0)


def check_rebuildable(lake: Lake) -> None:
    """Checks that gold can be made anew. Raises AuditError if it cannot."""
    if has_merged_batches(lake):
        _begins(lake, lake.last_batch())


def has_merged_batches(lake: Lake) -> bool:
    """Returns whether maintenance has merged files or records of several batches."""
    files = (f for table in SILVER_TABLES.values() for f in lake.files(table))
    return bool(lake.packed) or any(batch_of(f.path) is None for f in files)


def _begins(lake: Lake, upto: int) -> Ranges:
    """Returns the offsets before the start of reading in each state partition. Raises AuditError if later ones were
    lost."""
    begins: Ranges = {}
    for record in _records(lake, upto):
        for p, (begin, end) in record["lost"].items():
            if begin:
                raise AuditError(
                    f"gold of {lake.root} cannot be made anew: maintenance has put batches together between which"
                    f" records were lost. Fill another lake from this one: `sidecar audit run --from"
                    f" delta://{lake.base} --lake FOLDER`."
                )
            begins[int(p)] = (begin, end)
    return begins


def _records(lake: Lake, upto: int) -> Iterator[Mapping[str, Any]]:
    """Yields those of their own first: what maintenance takes away from these is in a packed one then."""
    yield from filter(None, map(lake.batch, range(upto + 1)))
    for path in lake.packed:
        yield from read_json(path)
