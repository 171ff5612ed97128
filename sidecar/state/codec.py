"""The coordinator's records to and from key and value bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from sidecar.assign.layout import TopicArrays
from sidecar.core.classic.records import AssignmentRecord, MemberRecord
from sidecar.core.classic.records import Kind as Classic
from sidecar.core.consumer.records import CurrentRecord, Kind
from sidecar.core.kinds import REGISTRY
from sidecar.core.modern.target_table import MemberTable
from sidecar.core.runtime.records import Epochs, Key, Record, RecordKind, Tombstone
from sidecar.core.runtime.registry import Registry
from sidecar.native import avro, avro_owned, avro_partitions
from sidecar.state.keys import StateKey, encode_key
from sidecar.state.schema import Schemas, StateError

OWNER_CLAIM = "owner_claim"
SCHEMA = "schema"
CONFIG = "config"
OWN_KINDS = {OWNER_CLAIM: "owner_claim-v2", CONFIG: "config-v1"}
"""Records that belong to no group's state, with their newest schemas."""
RECORD_BYTES = 64
"""Upper bound, in bytes, of a Kafka record's fields beside key and value, or of a header's beside name and value."""


@dataclass(frozen=True, slots=True)
class Stamp:
    """Owner epoch and time of a write."""

    owner_epoch: int
    time_ms: int


class Encoded(NamedTuple):
    """One Kafka record. `value` None is a tombstone; its reason then stands in `headers`."""

    key: bytes
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()

    @property
    def size(self) -> int:
        """Bytes that it takes in a batch, at most."""
        size = RECORD_BYTES + len(self.key) + len(self.value or b"")
        return size + sum(RECORD_BYTES + len(name) + len(value) for name, value in self.headers)


@dataclass(frozen=True, slots=True)
class EncodedTargets:
    """Targets of `members`, encoded ahead of their commit. `revisions`: those in the encoded values."""

    members: tuple[str, ...]
    values: dict[str, Encoded]
    revisions: dict[Key, int]


def latest(registry: Registry) -> dict[str, str]:
    """Returns the schema with which each kind of record is written."""
    return {**{name: row.record.schema for name, row in registry.records.items()}, **OWN_KINDS}


def _of_tombstone(why: str, stamp: Stamp, revision: int) -> tuple[tuple[str, bytes], ...]:
    """Returns a tombstone's headers: the fields that begin a value."""
    fields = {"why": why, "owner_epoch": stamp.owner_epoch, "time_ms": stamp.time_ms, "revision": revision}
    return tuple((name, str(value).encode()) for name, value in fields.items())


class StateCodec:
    """Encodes and decodes records. It keeps the schemas; everything else is in the arguments."""

    def __init__(self, registry: Registry = REGISTRY, files: Mapping[str, str] | None = None) -> None:
        self.registry = registry
        self.schemas = Schemas(latest(registry), files)
        self._names: Mapping[bytes, str] = {}
        self._heads: dict[bytes, bytes] = {}
        self._layout_heads: WeakKeyDictionary[TopicArrays, tuple[bytes, ...]] = WeakKeyDictionary()

    def encode(self, r: Record, stamp: Stamp, revision: int) -> Encoded:
        key = encode_key(r.kind, r.group_id, r.sub_id)
        if isinstance(r, CurrentRecord):
            return Encoded(key, self._current(r, stamp, revision))
        if isinstance(r, MemberRecord) and not r.stale_claims:
            return Encoded(key, self._classic_member(r, stamp, revision))
        if isinstance(r, AssignmentRecord):
            head = self._head(Classic.ASSIGNMENT, stamp, revision, r.why)
            return Encoded(key, avro(head, r.generation, len(r.assignment), r.assignment))
        if isinstance(r, Tombstone):
            return Encoded(key, None, _of_tombstone(r.why, stamp, revision))
        row = self.registry.records[r.kind].record
        assert isinstance(r, row.cls)
        return Encoded(key, self._value(r.kind, stamp, revision, r.why, r.body()))

    def _current(self, r: CurrentRecord, stamp: Stamp, revision: int) -> bytes:
        """Encodes the most frequent record, for hundreds of topics at times; the same bytes as fastavro's."""
        heads = self._heads_for(r.names, r.assigned, r.pending)
        head = avro(self._head(Kind.CURRENT, stamp, revision, r.why), r.member_epoch, r.previous_epoch, str(r.state))
        return avro_owned(r.pending, heads, avro_owned(r.assigned, heads, head))

    def _classic_member(self, r: MemberRecord, stamp: Stamp, revision: int) -> bytes:
        """Encodes a classic member; a rebalance of a large group writes thousands. The same bytes as fastavro's."""
        protocols: list[int | str | bytes] = [len(r.protocols)] if r.protocols else []
        for name, metadata in r.protocols:
            protocols += (name, len(metadata), metadata)
        return avro(
            self.schemas.mark(Classic.MEMBER),
            stamp.owner_epoch,
            stamp.time_ms,
            revision,
            r.why,
            *((0,) if r.instance_id is None else (1, r.instance_id)),
            r.client_id,
            r.client_host,
            r.session_timeout_ms,
            r.rebalance_timeout_ms,
            *protocols,
            0,
            b"\1" if r.id_told else b"\0",
            r.generation,
            0,
        )

    def _heads_for(self, names: Mapping[bytes, str], *parts: Epochs) -> dict[bytes, bytes]:
        """Returns the encoded id and name of each topic of `parts`; kept as long as `names` is the same object."""
        if names is not self._names:
            self._names, self._heads = names, {}
        heads = self._heads
        for part in parts:
            for t in part:
                if t not in heads:  # not a difference of key sets: that walks through the larger one
                    heads[t] = avro(t, names.get(t, ""))
        return heads

    def _head(self, kind: str, stamp: Stamp, revision: int, why: str) -> bytes:
        """Returns the bytes that begin every value of a kind."""
        return avro(self.schemas.mark(kind), stamp.owner_epoch, stamp.time_ms, revision, why)

    def _value(self, kind: str, stamp: Stamp, revision: int, why: str, body: Mapping[str, Any]) -> bytes:
        head = {"owner_epoch": stamp.owner_epoch, "time_ms": stamp.time_ms, "revision": revision, "why": why}
        return self.schemas.encode(kind, {**head, **body})

    def targets(
        self,
        kind: str,
        group_id: str,
        table: Any,
        members: Sequence[str],
        why: str,
        stamp: Stamp,
        revisions: Mapping[Key, int],
    ) -> EncodedTargets:
        """Returns values of many members' targets, records of this kind: straight from the arrays of a MemberTable, the
        same bytes as one by one; of another table, one by one."""
        if not isinstance(table, MemberTable):
            made = EncodedTargets(tuple(members), {}, {})
            for member_id in members:
                key = (str(kind), group_id, member_id)
                revision = made.revisions[key] = revisions.get(key, 0) + 1
                made.values[member_id] = self.encode(table.member(group_id, member_id, why), stamp, revision)
            return made
        layout = table.layout
        heads = self._layout_heads.get(layout.arrays)
        if heads is None:
            heads = self._layout_heads[layout.arrays] = tuple(avro(t.id, t.name) for t in layout.topics)
        out = EncodedTargets(tuple(members), {}, {})
        for member_id in members:
            key = (str(kind), group_id, member_id)
            revision = revisions.get(key, 0) + 1
            head = self._head(kind, stamp, revision, why)
            at = table.index[member_id]
            value = avro_partitions(table.csr, table.parts, layout.off, heads, at, head)
            out.values[member_id] = Encoded(encode_key(*key), value)
            out.revisions[key] = revision
        return out

    def claim(
        self,
        stamp: Stamp,
        node_id: int,
        address: str,
        member_id: str,
        generation: int,
        why: str,
        cluster_id: str | None = None,
    ) -> Encoded:
        """Returns an owner claim. Each owner epoch has its own key, so compaction keeps the history of owners."""
        body = {
            "node_id": node_id,
            "address": address,
            "member_id": member_id,
            "generation": generation,
            "producer_id": stamp.owner_epoch >> 16,
            "producer_epoch": stamp.owner_epoch & 0xFFFF,
            "cluster_id": cluster_id,
        }
        key = encode_key(OWNER_CLAIM, "", f"{stamp.owner_epoch:020d}")
        return Encoded(key, self._value(OWNER_CLAIM, stamp, 1, why, body))

    def claimed_by(self, value: bytes) -> tuple[int, str]:
        """Returns node id and member id of a claim. Raises StateError."""
        body = self.schemas.decode(value)
        try:
            return int(body["node_id"]), str(body["member_id"])
        except (KeyError, ValueError, TypeError) as exc:
            raise StateError(f"value of a claim does not fit: {exc!r}") from exc

    def claimed_as(self, value: bytes) -> tuple[int, str, int]:
        """Returns node id, member id and generation of a claim. Raises StateError."""
        body = self.schemas.decode(value)
        try:
            return int(body["node_id"]), str(body["member_id"]), int(body["generation"])
        except (KeyError, ValueError, TypeError) as exc:
            raise StateError(f"value of a claim does not fit: {exc!r}") from exc

    def claimed_in(self, value: bytes) -> str:
        """Returns the id of the owner's cluster, that of its broker; "" if the claim has none. Raises StateError."""
        return str(self.schemas.decode(value).get("cluster_id") or "")

    def claimed_when(self, value: bytes) -> tuple[int, int]:
        """Returns node id and time of a claim, Unix milliseconds. Raises StateError."""
        body = self.schemas.decode(value)
        try:
            return int(body["node_id"]), round(body["time_ms"].timestamp() * 1000)
        except (KeyError, ValueError, TypeError, AttributeError) as exc:
            raise StateError(f"value of a claim does not fit: {exc!r}") from exc

    def config(self, group_id: str, name: str, value: str | None, time_ms: int, revision: int, why: str) -> Encoded:
        """Returns the record of a setting; None removes it. It is not fenced, as any sidecar may write it."""
        if value is None:
            return Encoded(encode_key(CONFIG, group_id, name), None, _of_tombstone(why, Stamp(0, time_ms), revision))
        body = self._value(CONFIG, Stamp(0, time_ms), revision, why, {"value": value})
        return Encoded(encode_key(CONFIG, group_id, name), body)

    def config_body(self, value: bytes) -> dict[str, Any]:
        """Returns the fields of a setting's value. Raises StateError."""
        return self.schemas.decode(value, CONFIG)

    def config_value(self, value: bytes) -> tuple[str, int]:
        """Returns the setting and its revision. Raises StateError."""
        body = self.config_body(value)
        return body["value"], body["revision"]

    def next_revision(self, value: bytes | None) -> int:
        """Returns the revision for the setting after this one; None: there is none. A setting that cannot be read may
        be overwritten. The audit finds missing records by their revisions."""
        try:
            return 1 if value is None else self.config_value(value)[1] + 1
        except StateError:
            return 1

    def schema_records(self) -> list[Encoded]:
        return [Encoded(encode_key(SCHEMA, "", fp), text.encode()) for fp, text in sorted(self.schemas.texts.items())]

    def decode(self, key: StateKey, value: bytes | None) -> tuple[Record, int]:
        """Returns the record and its revision. Raises StateError, also for a kind that this version does not know."""
        row = self.registry.records.get(key.kind)
        if row is None:
            raise StateError(f"no kind of record is called {key.kind!r}: a newer version may have written it")
        if value is None:
            return Tombstone(row.record.name, key.group_id, key.sub_id), 0
        body = self.schemas.decode(value, row.record.name)
        return _record(row.record, key, body), int(body["revision"])

    def decode_with_body(self, key: StateKey, value: bytes) -> tuple[Record, Mapping[str, Any]]:
        """Returns the record of a known kind and the fields of its value. Raises StateError."""
        of = self.registry.records[key.kind].record
        body = self.schemas.decode(value, of.name)
        return _record(of, key, body), body


def _record(of: RecordKind, key: StateKey, body: Mapping[str, Any]) -> Record:
    try:
        return of.cls.of(key.group_id, key.sub_id, body)
    except (KeyError, ValueError, TypeError) as exc:
        raise StateError(f"value of {key.kind} does not fit: {exc!r}") from exc


def owner_epoch_of(value: bytes) -> int:
    """Returns the owner epoch of an encoded value: the first field of every schema but that of the schemas
    themselves."""
    n = shift = 0
    for x in value[10:20]:
        n |= (x & 0x7F) << shift
        shift += 7
        if x < 128:
            break
    return (n >> 1) ^ -(n & 1)
