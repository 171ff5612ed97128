"""Input of a batch of gold: the new rows of silver's batch of the same number.

Maintenance merges the files of earlier batches. If gold is made anew after that, its first batch takes all of them at
once. That is refused if offsets were lost between two of those batches: the records before the loss and after it must
not be folded as one sequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain

from sidecar.audit.errors import Refused
from sidecar.audit.ingest.batch import refill, rewritten
from sidecar.audit.lake.batch import Batch, Ranges
from sidecar.audit.lake.files import FileInfo, batch_of
from sidecar.audit.lake.lake import Lake
from sidecar.audit.tables.gold import GOLD
from sidecar.audit.tables.layers import SILVER_TABLES


@dataclass(frozen=True)
class GoldInput:
    """Input of a batch of gold. `cuts`: for each state partition, offsets right before these rows that were never
    read."""

    batch: int
    silver: Mapping[str, list[FileInfo]]
    cuts: Ranges


def gold_input(lake: Lake, n: int) -> GoldInput:
    """Returns the input of gold's next batch. `n`: its number, unless it takes several batches at once. Raises
    Refused."""
    merged = n == 0 and has_merged_batches(lake)
    if merged:
        begun = max(lake.committed(table) for table in GOLD.values())
        n = lake.last_batch() if begun < 0 else begun  # a batch that a crash interrupted keeps its input
        batches = lake.batches()[: n + 1]
        cuts = _begins(lake, batches)
    else:
        batches = [lake.batch(n)]
        cuts = batches[0].cuts(lake.batch(n - 1))
    silver = {
        name: [f for f in lake.files(table, None if merged else n) if f.rows and (batch_of(f.path) or 0) <= n]
        for name, table in SILVER_TABLES.items()
    }
    for name, files in silver.items():
        rows, wanted = sum(f.rows for f in files), sum(batch.counts.get(name, 0) for batch in batches)
        if rows != wanted:
            raise Refused(f"{rewritten(lake, n, f'silver.{name}', rows, wanted)} {anew(lake)}")
    return GoldInput(n, silver, cuts)


def anew(lake: Lake) -> str:
    """Returns what to do if gold cannot be continued. Raises Refused if it cannot be made anew either."""
    if has_merged_batches(lake):
        _begins(lake, lake.batches())
    return (
        f"Remove {lake.root / 'gold'} and {lake.root / '_carried'}, and run again: gold is made anew from silver, and"
        " nothing is lost."
    )


def has_merged_batches(lake: Lake) -> bool:
    """Returns whether maintenance has merged files or records of several batches."""
    files = (f for table in SILVER_TABLES.values() for f in lake.files(table))
    return bool(lake.packed) or any(batch_of(f.path) is None for f in files)


def _begins(lake: Lake, batches: Iterable[Batch]) -> Ranges:
    """Returns the offsets before the start of reading in each state partition. Raises Refused if later ones were
    lost."""
    begins: Ranges = {}
    for p, (begin, end) in chain.from_iterable(batch.lost.items() for batch in batches):
        if begin:
            raise Refused(
                f"gold of {lake.root} cannot be made anew: batches were put together between which records were"
                f" lost. {refill(lake)}"
            )
        begins[p] = (begin, end)
    return begins
