"""Decoder of records as bytes (bronze) into typed Arrow tables (silver), one for each kind of record.

Values of one schema are read by column (columns.py). A value that cannot be read by column is read by fastavro,
which also decides what is damaged. A damaged record goes to the table `corrupt`, and decoding continues. A field that a
schema does not have is null; one that the table does not have is left out. So older and newer versions of a schema fit
in one table.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import BytesIO
from itertools import chain, count
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from fastavro import parse_schema, schemaless_reader

from sidecar.audit.decode.arrow import LONG, Unfit, dig, fitted, mapped
from sidecar.audit.decode.columns import Compiled
from sidecar.audit.decode.embedded import EMBEDDED
from sidecar.audit.moments import LAST_MS
from sidecar.audit.tables.columns import BYTES, TIME, Table, many
from sidecar.audit.tables.layers import CORRUPT, FROM_KEY, HEAD, PATHS, RENAMED, SILVER
from sidecar.state.codec import OWNER_CLAIM, SCHEMA
from sidecar.state.fold import claimed_epoch
from sidecar.state.schema import MARK, Schemas, StateError, published

BODY_AT = len(MARK) + 8
JOINED_ROWS, SLICE_ROWS, SLICE_BYTES = 16_384, 65_536, 16 << 20
"""Rows up to which small batches are joined, which costs a copy; and the most of a slice."""
FIRST, LAST, MILLI = (pa.scalar(n, LONG) for n in (0, LAST_MS, 1_000))
LONG_MAX = (1 << 63) - 1
NUMBER = "^-?[0-9]{1,18}$"
"""A number in a header that fits into a column."""
OF_BRONZE = ("state_partition", "offset", "log_ms", "log_time", "group_id")
"""Columns of silver that come from bronze as they are."""
FIELD_OF = {column: field for field, column in RENAMED.items()}
"""Field of a struct in silver -> its name in the schemas, if they differ."""
PAIRS = count()
"""Numbers for the names of records that replace maps: each record of a schema needs a name of its own."""
UNKNOWN_SCHEMA = "unknown schema"

UNSOUND = (StateError, Unfit, pa.ArrowException, KeyError, TypeError, ValueError, OverflowError)
"""Errors raised by a value that is damaged or does not fit into its table."""

Claims = Mapping[int, Sequence[tuple[int, int]]]
"""State partition -> (offset, owner epoch) of its claims, in the order of their offsets."""


def times(ms: Any) -> Any:
    """Returns Unix milliseconds as timestamps, clipped to the years 1970 to 9999."""
    clipped = pc.max_element_wise(ms, FIRST, skip_nulls=False)
    clipped = pc.min_element_wise(clipped, LAST, skip_nulls=False)
    return pc.multiply(clipped, MILLI).cast(TIME)


def claims_in(bronze: Any) -> list[tuple[int, int, int]]:
    """Returns partition, offset and owner epoch of each claim, as defined by sidecar.state.fold.PartitionFold."""
    mask = pc.and_(pc.fill_null(pc.equal(bronze["kind"], OWNER_CLAIM), False), pc.is_valid(bronze["value"]))
    claims = bronze.filter(mask)
    rows = zip(*(claims[n].to_pylist() for n in ("state_partition", "offset", "sub_id")), strict=True)
    return [(p, at, min(epoch, LONG_MAX)) for p, at, sub in rows if (epoch := claimed_epoch(sub)) is not None]


def schemas_in(bronze: Any) -> dict[str, str]:
    """Returns fingerprint -> text of each valid schema among the records."""
    mask = pc.and_(pc.fill_null(pc.equal(bronze["kind"], SCHEMA), False), pc.is_valid(bronze["value"]))
    known = Schemas.empty()
    for raw in bronze.filter(mask)["value"].to_pylist():
        try:
            known.learn(raw.decode())
        except (StateError, UnicodeDecodeError):
            continue  # the decoder adds it to the corrupt records
    return known.texts


def _bare(schema: Any) -> Any:
    """Returns the schema without logical types, so that a time stays a number even if no calendar has it. Maps become
    lists of pairs, which have the same encoding."""
    if isinstance(schema, dict) and schema.get("type") == "map":
        fields = [{"name": "name", "type": "string"}, {"name": "value", "type": _bare(schema["values"])}]
        return {"type": "array", "items": {"type": "record", "name": f"Pair{next(PAIRS)}", "fields": fields}}
    if isinstance(schema, dict):
        return {k: _bare(v) for k, v in schema.items() if k != "logicalType"}
    return [_bare(s) for s in schema] if isinstance(schema, list) else schema


class Decoder:
    """Decoder of batches of bronze records, in any order. `schemas`: fingerprint in hex -> JSON text, in addition to
    this version's own schemas."""

    def __init__(self, schemas: Mapping[str, str], claims: Claims) -> None:
        self.schemas = Schemas.empty()
        self._names: dict[str, str] = {}
        """Kind -> name of its schemas."""
        for name, text in published().items():
            self.schemas.learn(text)
            self._names[name.rsplit("-", 1)[0]] = json.loads(text)["name"]
        for text in schemas.values():
            self.schemas.learn(text)
        self._steps: dict[str, Compiled | None] = {}
        self._singles: dict[str, Any] = {}
        self._claims = {
            p: (pa.array([o for o, _ in rows], LONG), pa.array([None, *(e for _, e in rows)], LONG))
            for p, rows in claims.items()
        }

    def decode(self, bronze: Any) -> dict[str, Any]:
        """Returns table name -> its records, in the order of the batch; tables without records are left out."""
        tables: dict[str, Any] = {}
        lost: list[tuple[Any, str]] = []
        for kind, at in places_of(bronze["kind"]):
            table = SILVER.get(kind)
            if table is None:
                unknown = f"kind {kind!r} is not known here: a newer version may have written it"
                lost.append((at, "the key cannot be read" if kind is None else unknown))
                continue
            made, broken = _Kind(self, kind, table, bronze.take(at)).tables()
            lost += [(at.take(which), why) for which, why in broken]
            if made is not None:
                tables[table.name] = made
        corrupt = _corrupt(bronze, lost)
        return tables if corrupt is None else {**tables, CORRUPT.name: corrupt}

    def step(self, fingerprint: str) -> Compiled | None:
        """Returns the reader of that schema's values by column; None if they cannot be read by column."""
        if fingerprint not in self._steps:
            try:
                self._steps[fingerprint] = Compiled(_bare(json.loads(self.schemas.texts[fingerprint])))
            except (Unfit, KeyError, TypeError):
                self._steps[fingerprint] = None
        return self._steps[fingerprint]

    def single(self, value: bytes) -> Any:
        """Decodes one value with fastavro. Raises StateError."""
        fingerprint = value[len(MARK) : BODY_AT].hex()
        if fingerprint not in self._singles:
            self._singles[fingerprint] = parse_schema(_bare(json.loads(self.schemas.texts[fingerprint])))
        try:
            return schemaless_reader(BytesIO(value[BODY_AT:]), self._singles[fingerprint], None)
        except (EOFError, ValueError, IndexError, KeyError, TypeError, OverflowError, RecursionError) as exc:
            raise StateError(f"damaged value: {exc!r}") from exc

    def misfit(self, kind: str, fingerprint: str | None) -> str:
        """Returns why a value of this kind cannot have that schema; empty if it can."""
        if fingerprint is None:
            return "the value is not in Avro single-object encoding"
        text = self.schemas.texts.get(fingerprint)
        if text is None:
            return f"{UNKNOWN_SCHEMA} {fingerprint}"
        schema = json.loads(text)
        name = schema.get("name") if isinstance(schema, dict) else None
        return "" if name == self._names[kind] else f"a {kind} with the schema of {name}"

    def claimed(self, bronze: Any) -> Any:
        """Returns the owner epoch of the last claim before each record; null if there is none."""
        partitions, offsets = bronze["state_partition"], bronze["offset"]
        epochs = pa.nulls(len(offsets), LONG)
        for p in partitions.unique().to_pylist():
            if p in self._claims:
                at, claimed = self._claims[p]
                latest = claimed.take(pc.search_sorted(at, offsets, side="left"))
                epochs = pc.if_else(pc.equal(partitions, p), latest, epochs)
        return epochs


class _Kind:
    """The records of one kind in a slice of bronze, being decoded."""

    def __init__(self, decoder: Decoder, kind: str, table: Table, bronze: Any) -> None:
        self.decoder, self.kind, self.table, self.bronze = decoder, kind, table, bronze
        self.parts: list[tuple[Any, Any]] = []
        """Row numbers, and those rows' columns that do not come from bronze."""
        self.broken: list[tuple[Any, str]] = []
        """Row numbers, and why these rows cannot be read."""

    def tables(self) -> tuple[Any, list[tuple[Any, str]]]:
        """Returns the kind's silver rows (None if there are none), and which rows cannot be read and why."""
        value = self.bronze["value"]
        tombstones = where(value.is_null())
        if len(tombstones):
            self.parts.append((tombstones, headers_rows(self.bronze["headers"].take(tombstones), self._schema())))
        with_value = where(value.is_valid())
        if self.kind == SCHEMA:
            self._schemas(with_value)
        elif len(with_value):
            self._values(with_value)
        rows = [w for w, _ in self.parts]
        if not rows or not sum(map(len, rows)):
            return None, self.broken
        which, filled = pa.concat_arrays(rows), pa.concat_batches([b for _, b in self.parts])
        if len(self.parts) > 1:
            order = pc.sort_indices(which)
            which, filled = which.take(order), filled.take(order)
        return self._with_bronze(which, filled), self.broken

    def _with_bronze(self, which: Any, filled: Any) -> Any:
        b = self.bronze if len(which) == len(self.bronze) else self.bronze.take(which)
        columns = {n: b[n] for n in OF_BRONZE} | dict(zip(filled.schema.names, filled.columns, strict=True))
        columns["written_time"] = times(filled["written_ms"])
        columns["claimed_epoch"] = self.decoder.claimed(b)
        columns["deleted"] = b["value"].is_null()
        if self.kind in FROM_KEY:
            columns[FROM_KEY[self.kind]] = b["sub_id"]
        return pa.RecordBatch.from_pydict(columns, schema=self.table.arrow)

    def _schema(self) -> Any:
        """Returns the schema of the columns that do not come from bronze."""
        own = {*OF_BRONZE, FROM_KEY.get(self.kind), "written_time", "claimed_epoch", "deleted"}
        return pa.schema([f for f in self.table.arrow if f.name not in own])

    def _schemas(self, places: Any) -> None:
        rows, kept = [], []
        for i, raw in zip(places.to_pylist(), self.bronze["value"].take(places).to_pylist(), strict=True):
            try:
                text = raw.decode()
                Schemas.empty().learn(text)
            except (StateError, UnicodeDecodeError) as exc:
                self.broken.append((pa.array([i], LONG), str(exc)))
            else:
                rows.append({"why": "", "text": text})
                kept.append(i)
        if rows:
            self.parts.append((pa.array(kept, LONG), pa.RecordBatch.from_pylist(rows, schema=self._schema())))

    def _values(self, places: Any) -> None:
        for fingerprint, at in places_of(self.bronze["fingerprint"].take(places)):
            which = places.take(at)
            misfit = self.decoder.misfit(self.kind, fingerprint)
            if misfit:
                self.broken.append((which, misfit))
                continue
            step = self.decoder.step(fingerprint)
            left = which if step is None else self._by_column(which, step)
            self._singly(left)

    def _by_column(self, which: Any, step: Compiled) -> Any:
        """Reads values by column. Returns the row numbers of those that cannot be read by column."""
        bad, values = step.read(self.bronze["value"], which, BODY_AT)
        good = which.filter(pc.invert(bad))
        try:
            self.parts.append((good, self._columns(values)))
        except Unfit:
            return which
        return which.filter(bad)

    def _columns(self, values: Any) -> Any:
        rows, columns = len(values), []
        for f in (schema := self._schema()):
            inner = dig(values, PATHS[self.kind, f.name])
            embedded = EMBEDDED.get((self.kind, f.name))
            if inner is None:
                columns.append(pa.nulls(rows, f.type) if f.nullable else pa.array([""] * rows, f.type))
            elif embedded is None:
                column = fitted(inner, f.type, FIELD_OF)
                columns.append(column if f.nullable else pc.fill_null(column, ""))
            else:
                several = pa.types.is_list(inner.type)
                firsts = fitted(inner, many(BYTES) if several else BYTES, FIELD_OF)
                if several:  # a member's preferred protocol comes first
                    some = pc.greater(pc.list_value_length(firsts), 0)
                    begins = firsts.offsets.slice(0, len(firsts))
                    firsts = firsts.values.take(pc.if_else(some, begins, pa.scalar(None, pa.int32())))
                columns.append(mapped(firsts, embedded, f.type))
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _singly(self, which: Any) -> None:
        """Decodes values one by one. Nearly always all are sound, and one batch of rows is much cheaper: so the rows of
        a damaged one are halved until it is alone."""
        if not len(which):
            return
        try:
            values = pa.array([self.decoder.single(raw) for raw in self.bronze["value"].take(which).to_pylist()])
            self.parts.append((which, self._columns(values)))
        except UNSOUND as exc:
            if len(which) > 1:
                half = len(which) // 2
                self._singly(which[:half])
                self._singly(which[half:])
            else:
                why = str(exc) if isinstance(exc, StateError) else f"value of {self.kind} does not fit: {exc!r}"
                self.broken.append((which, why))


def headers_rows(headers: Any, schema: Any) -> Any:
    """Returns the columns of `schema` from the headers of tombstones. Of two headers with the same name the last one
    counts. Earlier versions wrote fewer: a missing number is null, a missing reason empty."""
    pairs = headers.values
    given = pa.MapArray.from_arrays(headers.offsets, pc.fill_null(pairs.field("name"), ""), pairs.field("value"))
    columns = {column: pc.map_lookup(given, pa.scalar(name), "last") for name, column in HEAD.items()}
    why = mapped(columns.pop("why"), lambda raw: raw.decode(errors="replace"), pa.string())
    made = {column: _numbers(texts) for column, texts in columns.items()} | {"why": pc.fill_null(why, "")}
    lacking = {f.name: pa.nulls(len(headers), f.type) for f in schema if f.name not in made}
    return pa.RecordBatch.from_pydict(made | lacking, schema=schema)


def _numbers(texts: Any) -> Any:
    """Returns numbers in decimal; null for what is none."""
    sound = pc.match_substring_regex(texts, NUMBER)
    return pc.if_else(sound, texts, None).cast(pa.string()).cast(LONG)


def places_of(values: Any) -> Iterator[tuple[Any, Any]]:
    """Yields each distinct value, None for null, and the places where it stands."""
    known = values.dictionary_encode(null_encoding="encode")
    for code, value in enumerate(known.dictionary.to_pylist()):
        yield value, where(pc.equal(known.indices, pa.scalar(code, pa.int32())))


def where(mask: Any) -> Any:
    return pc.indices_nonzero(mask).cast(LONG)


def in_sizes(batches: Iterable[Any]) -> Iterator[Any]:
    """Yields the rows of bronze in batches of a good size: each has a fixed cost of decoding, however few its rows, and
    a slice of a large one fits in the processor's cache."""
    waiting: list[Any] = []
    for batch in chain(batches, [None]):
        waiting += [] if batch is None else [batch]
        rows = sum(map(len, waiting))
        if rows >= JOINED_ROWS or (batch is None and rows):
            joined, waiting = pa.concat_batches(waiting), []
            each = max(1, joined["value"].nbytes // rows)
            step = max(1, min(SLICE_ROWS, SLICE_BYTES // each))
            yield from (joined.slice(begin, step) for begin in range(0, rows, step))


def _corrupt(bronze: Any, lost: Iterable[tuple[Any, str]]) -> Any:
    """Returns the unreadable records with the reasons, as rows of the table `corrupt`; None if there are none."""
    reasons = {i: why for which, why in lost for i in which.to_pylist()}
    if not reasons:
        return None
    part = bronze.take(pa.array(sorted(reasons), LONG))
    columns = {name: part[name] for name in CORRUPT.names if name != "reason"}
    columns["reason"] = pa.array([reasons[i] for i in sorted(reasons)], pa.string())
    return pa.RecordBatch.from_pydict(columns, schema=CORRUPT.arrow)
