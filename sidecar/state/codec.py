"""The coordinator's records to and from key and value bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from sidecar.assign.layout import TopicArrays
from sidecar.core.consumer.table import Table
from sidecar.core.records import (
    CurrentRecord,
    Epochs,
    GroupRecord,
    Kind,
    MemberRecord,
    MemberState,
    Partitions,
    Record,
    RegexRecord,
    StaticMemberRecord,
    TargetMemberRecord,
    TargetMetadataRecord,
    Tombstone,
)
from sidecar.native import avro, avro_owned, avro_partitions
from sidecar.state.keys import StateKey, encode_key
from sidecar.state.schema import Schemas

OWNER_CLAIM = "owner_claim"
SCHEMA = "schema"
CONFIG = "config"


@dataclass(frozen=True, slots=True)
class Stamp:
    """Who writes, and when."""

    owner_epoch: int
    time_ms: int


class Encoded(NamedTuple):
    """One Kafka record. `value` None is a tombstone; its reason then stands in `headers`."""

    key: bytes
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


RevisionKey = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class EncodedTargets:
    """Targets of `members`, encoded ahead of their commit; `revisions` are the ones that they carry."""

    members: tuple[str, ...]
    values: dict[str, Encoded]
    revisions: dict[RevisionKey, int]


def _targets(parts: Partitions, names: Mapping[bytes, str]) -> list[dict[str, Any]]:
    return [{"topic_id": t, "topic_name": names.get(t, ""), "partitions": list(ps)} for t, ps in parts.items()]


def _epochs(items: list[dict[str, Any]]) -> dict[bytes, dict[int, int]]:
    return {i["topic_id"]: dict(zip(i["partitions"], i["epochs"], strict=True)) for i in items}


def _names(*lists: list[dict[str, Any]]) -> dict[bytes, str]:
    return {i["topic_id"]: i["topic_name"] for items in lists for i in items}


def _body(r: Record) -> dict[str, Any]:
    if isinstance(r, GroupRecord):
        return {"epoch": r.epoch, "metadata_hash": r.metadata_hash}
    if isinstance(r, MemberRecord):
        names = ("instance_id", "rack_id", "client_id", "client_host", "rebalance_timeout_ms", "topic_regex")
        body = {n: getattr(r, n) for n in names}
        return {**body, "topic_names": list(r.topic_names), "server_assignor": r.server_assignor}
    if isinstance(r, StaticMemberRecord):
        return {"member_id": r.member_id}
    if isinstance(r, TargetMetadataRecord):
        return {
            "assignment_epoch": r.assignment_epoch,
            "assignment_timestamp_ms": r.assignment_timestamp_ms,
            "assignor": r.assignor,
        }
    if isinstance(r, TargetMemberRecord):
        return {"partitions": _targets(r.partitions, r.names)}
    if isinstance(r, RegexRecord):
        return {"topics": list(r.topics), "names_version": r.names_version, "resolved_ms": r.resolved_ms}
    raise TypeError(f"no value for {r}")


class StateCodec:
    """Keeps the schemas; everything else is in the arguments."""

    def __init__(self) -> None:
        self.schemas = Schemas()
        self._names: Mapping[bytes, str] = {}
        self._heads: dict[bytes, bytes] = {}
        self._layout_heads: WeakKeyDictionary[TopicArrays, tuple[bytes, ...]] = WeakKeyDictionary()

    def encode(self, r: Record, stamp: Stamp, revision: int) -> Encoded:
        if isinstance(r, CurrentRecord):
            return Encoded(encode_key(r.kind, r.group_id, r.sub_id), self._current(r, stamp, revision))
        if isinstance(r, Tombstone):
            headers = (("why", r.why.encode()), ("owner_epoch", str(stamp.owner_epoch).encode()))
            return Encoded(encode_key(r.kind, r.group_id, r.sub_id), None, headers)
        return self._encode(r.kind, r.group_id, r.sub_id, stamp, revision, r.why, _body(r))

    def _current(self, r: CurrentRecord, stamp: Stamp, revision: int) -> bytes:
        """The record written most often, for hundreds of topics at times; the same bytes as fastavro's."""
        heads = self._heads_for(r.names, r.assigned, r.pending)
        head = avro(self._head(Kind.CURRENT, stamp, revision, r.why), r.member_epoch, r.previous_epoch, str(r.state))
        return avro_owned(r.pending, heads, avro_owned(r.assigned, heads, head))

    def _heads_for(self, names: Mapping[bytes, str], *parts: Epochs) -> dict[bytes, bytes]:
        """How each topic of `parts` begins; kept as long as `names` is the same object."""
        if names is not self._names:
            self._names, self._heads = names, {}
        heads = self._heads
        for part in parts:
            for t in part:
                if t not in heads:  # not a difference of key sets: that walks through the larger one
                    heads[t] = avro(t, names.get(t, ""))
        return heads

    def _head(self, kind: Kind, stamp: Stamp, revision: int, why: str) -> bytes:
        """What every value of a kind begins with."""
        return avro(self.schemas.mark(kind), stamp.owner_epoch, stamp.time_ms, revision, why)

    def _encode(
        self, kind: str, group_id: str, sub_id: str, stamp: Stamp, revision: int, why: str, body: dict[str, Any]
    ) -> Encoded:
        head = {"owner_epoch": stamp.owner_epoch, "time_ms": stamp.time_ms, "revision": revision, "why": why}
        return Encoded(encode_key(kind, group_id, sub_id), self.schemas.encode(kind, {**head, **body}))

    def targets(
        self,
        group_id: str,
        table: Table,
        members: Sequence[str],
        why: str,
        stamp: Stamp,
        revisions: Mapping[RevisionKey, int],
    ) -> EncodedTargets:
        """`target_member` values of many members, straight from the table's arrays; the same bytes as one by one."""
        layout = table.layout
        heads = self._layout_heads.get(layout.arrays)
        if heads is None:
            heads = self._layout_heads[layout.arrays] = tuple(avro(t.id, t.name) for t in layout.topics)
        out = EncodedTargets(tuple(members), {}, {})
        for member_id in members:
            key = (str(Kind.TARGET_MEMBER), group_id, member_id)
            revision = revisions.get(key, 0) + 1
            head = self._head(Kind.TARGET_MEMBER, stamp, revision, why)
            at = table.index[member_id]
            value = avro_partitions(table.csr, table.parts, layout.off, heads, at, head)
            out.values[member_id] = Encoded(encode_key(*key), value)
            out.revisions[key] = revision
        return out

    def claim(self, stamp: Stamp, node_id: int, address: str, member_id: str, generation: int, why: str) -> Encoded:
        """Owner claim; one key for each owner epoch, so that compaction keeps the history of owners."""
        body = {
            "node_id": node_id,
            "address": address,
            "member_id": member_id,
            "generation": generation,
            "producer_id": stamp.owner_epoch >> 16,
            "producer_epoch": stamp.owner_epoch & 0xFFFF,
        }
        return self._encode(OWNER_CLAIM, "", f"{stamp.owner_epoch:020d}", stamp, 1, why, body)

    def config(self, group_id: str, name: str, value: str | None, time_ms: int, revision: int, why: str) -> Encoded:
        """A setting; None removes it. Not fenced: it does not come from the owner."""
        if value is None:
            return Encoded(encode_key(CONFIG, group_id, name), None, (("why", why.encode()),))
        return self._encode(CONFIG, group_id, name, Stamp(0, time_ms), revision, why, {"value": value})

    def config_value(self, value: bytes) -> tuple[str, int]:
        """The setting and its revision. Raises StateError."""
        body = self.schemas.decode(value)
        return str(body["value"]), int(body["revision"])

    def schema_records(self) -> list[Encoded]:
        return [Encoded(encode_key(SCHEMA, "", fp), text.encode()) for fp, text in sorted(self.schemas.texts.items())]

    def decode(self, key: StateKey, value: bytes | None) -> tuple[Record, int]:
        """Record and its revision. Raises StateError."""
        if value is None:
            return Tombstone(Kind(key.kind), key.group_id, key.sub_id), 0
        b = self.schemas.decode(value)
        return _record(key, b), int(b["revision"])


def owner_epoch_of(value: bytes) -> int:
    """Owner epoch of an encoded value: the first field of every schema but that of the schemas themselves."""
    n = shift = 0
    for x in value[10:20]:
        n |= (x & 0x7F) << shift
        shift += 7
        if x < 128:
            break
    return (n >> 1) ^ -(n & 1)


def _record(key: StateKey, b: dict[str, Any]) -> Record:
    g, sub, why = key.group_id, key.sub_id, b["why"]
    if key.kind == Kind.GROUP:
        return GroupRecord(g, b["epoch"], b["metadata_hash"], why)
    if key.kind == Kind.MEMBER:
        names = tuple(b["topic_names"])
        return MemberRecord(
            g,
            sub,
            b["instance_id"],
            b["rack_id"],
            b["client_id"],
            b["client_host"],
            b["rebalance_timeout_ms"],
            names,
            b["topic_regex"],
            b["server_assignor"],
            why,
        )
    if key.kind == Kind.STATIC_MEMBER:
        return StaticMemberRecord(g, sub, b["member_id"], why)
    if key.kind == Kind.TARGET_METADATA:
        return TargetMetadataRecord(g, b["assignment_epoch"], b["assignment_timestamp_ms"], b["assignor"], why)
    if key.kind == Kind.TARGET_MEMBER:
        parts = {i["topic_id"]: tuple(i["partitions"]) for i in b["partitions"]}
        return TargetMemberRecord(g, sub, parts, _names(b["partitions"]), why)
    if key.kind == Kind.CURRENT:
        names_by_id = _names(b["assigned"], b["pending"])
        state = MemberState(b["state"])
        assigned, pending = _epochs(b["assigned"]), _epochs(b["pending"])
        return CurrentRecord(g, sub, b["member_epoch"], b["previous_epoch"], state, assigned, pending, names_by_id, why)
    return RegexRecord(g, sub, tuple(b["topics"]), b["names_version"], b["resolved_ms"], why)
