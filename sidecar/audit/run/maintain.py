"""Keeps a lake small: a batch leaves files in each table, and whoever reads them opens each.

Delta's own compaction makes few files of many, in one transaction for each table, and its vacuum removes what no reader
needs when it is old enough. What is recorded of former batches goes into one file. Batches go on meanwhile. It may be
killed at any point: what it had not made visible does not count, and is removed like all that is old. It needs no
Spark.
"""

from __future__ import annotations

import uuid
from dataclasses import asdict, dataclass, replace

from sidecar.audit.lake.lake import RETENTION_HOURS, Lake
from sidecar.audit.lake.storage import put_json
from sidecar.audit.tables.gold import GOLD
from sidecar.audit.tables.layers import BRONZE, SILVER_TABLES

TABLES = (BRONZE, *SILVER_TABLES.values(), *GOLD.values())
FULL_BYTES = 64 << 20
"""A file of this size is left as it is, and files are put together up to it."""


@dataclass
class Maintained:
    """`merged` small files became `into`; `removed`: files that no reader needed; `packed`: records of batches."""

    merged: int = 0
    into: int = 0
    removed: int = 0
    packed: int = 0

    def __str__(self) -> str:
        return (
            f"{self.merged:,} small files became {self.into:,}; {self.removed:,} files that nobody needs were removed;"
            f" {self.packed:,} records of batches were packed"
        )


def maintain(lake: Lake, hours: int = RETENTION_HOURS) -> Maintained:
    """`hours`: how long what was replaced is kept for readers that have begun with it, and what is not visible for
    writers that have not ended. Raises AuditError."""
    lake.require()
    report = Maintained()
    for incarnation in range(lake.incarnation + 1):
        one = Lake.at(lake.base, incarnation)
        # The last batch that nobody has to find by its number any more: gold was made of it.
        over = min(one.last_batch(), one.done(GOLD.values()))
        for table in TABLES if over >= 0 else ():
            merged, into = one.compact(table, over, FULL_BYTES)
            report.merged, report.into = report.merged + merged, report.into + into
            report.removed += len(one.vacuum(table, hours))
        report.packed += _pack_records(one, over - 1)
    return report


def _pack_records(lake: Lake, below: int) -> int:
    """Puts the records of batches below this number into one file, without what only the next batch needs, and removes
    those of attempts. The last two stay: of them the next batch is made.

    The file has a name of its own, and only what went into it is removed. So two may do this at once: a record may be
    in two files, and is always in one."""
    old = [p for p in lake.records.glob("*.json") if p.name[:8].isdigit() and int(p.name[:8]) < below]
    own, packed = [p for p in old if p.stem.isdigit()], lake.packed
    if own or len(packed) > 1:
        try:
            kept = [asdict(replace(b, position={}, claims={}, schemas={})) for b in lake.batches() if b.number < below]
        except FileNotFoundError:  # another maintenance was faster
            return 0
        put_json(lake.records / f"packed-{uuid.uuid4().hex[:12]}.json", kept)
        old += packed
    for path in old:
        path.unlink(missing_ok=True)
    return len(own)
