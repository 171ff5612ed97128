"""Gold as Iceberg tables in a catalog of pyiceberg, which name the lake's own Parquet files: nothing is copied.

A table changes in one snapshot, from the files that the catalog names to those that the lake names. So whoever dies is
followed by one who does the rest, and there is nothing to remember. The catalog refuses a snapshot whose parent is not
the one that was read, and pyiceberg must not try again: of two that publish at once, one fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sidecar.audit.ask.query import at_one_batch
from sidecar.audit.errors import AuditError
from sidecar.audit.lake.files import FileInfo
from sidecar.audit.lake.lake import Lake
from sidecar.audit.lake.storage import file_system, uri_of
from sidecar.audit.tables.columns import Table
from sidecar.audit.tables.gold import GOLD

NAMESPACE = "group_state"
BATCH = "group-state-audit.batch"
"""In the summary of a snapshot: the batch whose files it names."""
ONCE = {"commit.retry.num-retries": "0"}


def publish(lake: Lake, catalog: Any) -> int:
    """Returns how many tables were changed. Raises AuditError."""
    from pyiceberg.exceptions import CommitFailedException

    catalog.create_namespace_if_not_exists(NAMESPACE)
    # Read before the lake is, so that nothing newer is ever replaced.
    tables = {name: _table(catalog, table) for name, table in GOLD.items()}
    batch, files = at_one_batch(lake, lambda: (lake.done(GOLD.values()), {n: lake.files(t) for n, t in GOLD.items()}))
    summary = {BATCH: str(batch)}
    try:
        return sum(_replaced(tables[name], wanted, summary) for name, wanted in files.items())
    except CommitFailedException as exc:
        raise AuditError(f"somebody else publishes to this catalog ({exc}): publish again") from exc


def _table(catalog: Any, table: Table) -> Any:
    """Returns the table, and makes it if it is missing. Files lack the columns of folders, so none is required."""
    from pyiceberg.exceptions import NoSuchTableError

    name = f"{NAMESPACE}.{table.name}"
    schema = pa.schema([f.with_nullable(True) for f in table.arrow])
    try:
        made = catalog.load_table(name)
    except NoSuchTableError:
        with catalog.create_table_transaction(name, schema, properties=ONCE) as making:
            with making.update_spec() as spec:
                for column in table.by:
                    spec.add_identity(column)
            # The files know no ids of columns.
            mapping = making.table_metadata.schema().name_mapping.model_dump_json()
            making.set_properties({"schema.name-mapping.default": mapping})
        return catalog.load_table(name)
    if set(schema.names) - set(made.schema().column_names):  # of a version before
        with made.update_schema() as changed:
            changed.union_by_name(schema)
    return made


def _replaced(table: Any, files: Iterable[FileInfo], summary: Mapping[str, str]) -> bool:
    """Whether there was anything to do."""
    wanted = {uri_of(f.path): f for f in files}
    known = {task.file.file_path: task.file for task in table.scan().plan_files()}
    if known.keys() == wanted.keys():
        return False
    changed = table.transaction()
    with changed, changed.update_snapshot(snapshot_properties=summary).overwrite() as snapshot:
        for path in known.keys() - wanted.keys():
            snapshot.delete_data_file(known[path])
        for path in wanted.keys() - known.keys():
            snapshot.append_data_file(_data_file(table, path, wanted[path]))
    return True


def _data_file(table: Any, uri: str, file: FileInfo) -> Any:
    from pyiceberg.io import pyarrow as files
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    schema, (store, name) = table.schema(), file_system(file.path)
    with pq.ParquetFile(name, filesystem=store) as parquet:
        statistics = files.data_file_statistics_from_parquet_metadata(
            parquet.metadata,
            files.compute_statistics_plan(schema, table.properties),
            files.parquet_path_to_id_mapping(schema),
        )
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=uri,
        file_format=FileFormat.PARQUET,
        partition=Record(*(value == "true" for _, value in file.partition)),  # gold has no folders but open=…
        file_size_in_bytes=file.size,
        spec_id=table.spec().spec_id,
        **statistics.to_serialized_dict(),
    )
