"""The tables of bronze and silver: the topic's records as bytes, and decoded by kind. Gold: gold.py.

Bronze is the topic itself. Partition and offset identify a record, so writing it twice changes nothing. All other
tables can be made from bronze again. Silver has a table for each kind of record, with the fields of the newest schema
of its values (sidecar/state/schemas): a field that an older version does not have is null.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sidecar.audit.tables.columns import BYTES, DATE, FLAG, INT, LONG, TEXT, TIME, Column, Table, by_name, many, record
from sidecar.state.schema import published

KEY = ("state_partition", "offset")
RECORD = (
    Column("state_partition", INT, "Partition of the state topic. A group has all its records in one."),
    Column("offset", LONG, "Of the record in its partition."),
    Column("log_ms", LONG, "Timestamp of the record, Unix ms: by its writer's clock, or the broker's."),
    Column("log_time", TIME, "The same."),
)
IN_KEYS = (
    Column("kind", TEXT, "Kind of the record, from its key.", "the key cannot be read"),
    Column("group_id", TEXT, "From the key; empty where the record is no group's.", "the key cannot be read"),
    Column("sub_id", TEXT, "From the key.", "the key cannot be read"),
)
GONE = "a tombstone"
CONTENT = (Column("key", BYTES, "The key itself.", "there was none"), Column("value", BYTES, "The value itself.", GONE))
BRONZE = Table(
    "bronze",
    "records",
    "Every record of the state topic that was read, as it was.",
    KEY,
    (
        Column("day", DATE, "Of `log_time`, in UTC."),
        *RECORD,
        Column("log_time_type", TEXT, "`create`: by its writer's clock; `append`: by the broker's.", "unknown"),
        *IN_KEYS,
        *CONTENT,
        Column("headers", many(record(name=TEXT, value=BYTES)), "The headers, in their order."),
        Column("fingerprint", TEXT, "Of the value's schema (CRC-64-AVRO, hex).", "the value names none"),
    ),
    by=("day", "state_partition"),
)

COMMON = (
    *RECORD,
    Column("written_ms", LONG, "By the writer's clock, Unix ms.", "a tombstone of an earlier version"),
    Column("written_time", TIME, "The same.", "a tombstone of an earlier version"),
    Column("group_id", TEXT, "The group; empty where the record is no group's."),
    Column("owner_epoch", LONG, "Fence of the writer.", "the record names none"),
    Column("claimed_epoch", LONG, "Owner epoch of the last claim before this record.", "no claim is known"),
    Column("revision", LONG, "Rises by one with each record of its key.", "a tombstone of an earlier version"),
    Column("deleted", FLAG, "A tombstone: all columns behind `why` are null but those that are in its key."),
    Column("why", TEXT, "What made it be written."),
)
ROLES = ("active", "standby", "warmup")
HEAD = {"why": "why", "owner_epoch": "owner_epoch", "time_ms": "written_ms", "revision": "revision"}
"""Field of all values, and header of all tombstones -> column."""
RENAMED = {"assignment_epoch": "epoch", "topic_name": "topic", "subtopology_id": "subtopology"}
"""Field of a schema -> its name in the tables. All others keep theirs."""
KINDS = {
    "group": ("groups", ""),
    "member": ("members", "member_id"),
    "static_member": ("static_members", "instance_id"),
    "target_metadata": ("targets", ""),
    "target_member": ("target_members", "member_id"),
    "current": ("current", "member_id"),
    "regex": ("regexes", "regex"),
    "config": ("settings", "name"),
    "owner_claim": ("claims", "claim"),
    "classic_group": ("classic_groups", ""),
    "classic_member": ("classic_members", "member_id"),
    "classic_assignment": ("classic_assignments", "member_id"),
    "share_group": ("share_groups", ""),
    "share_member": ("share_members", "member_id"),
    "share_target_metadata": ("share_targets", ""),
    "share_target_member": ("share_target_members", "member_id"),
    "share_current": ("share_current", "member_id"),
    "share_placeholder": ("share_placeholders", ""),
    "streams_group": ("streams_groups", ""),
    "streams_topology": ("streams_topologies", ""),
    "streams_member": ("streams_members", "member_id"),
    "streams_target_metadata": ("streams_targets", ""),
    "streams_target_member": ("streams_target_members", "member_id"),
    "streams_current": ("streams_current", "member_id"),
}
"""Kind of record -> its table, and the column that the key's sub id fills."""
FROM_KEY = {kind: column for kind, (_, column) in KINDS.items() if column} | {"schema": "fingerprint"}
IN_KEY = {
    "member_id": "The member.",
    "instance_id": "The instance id.",
    "regex": "The pattern.",
    "name": "Name of the setting.",
    "claim": "The owner epoch that the key names; one of -1 is a proof and claims nothing.",
}
NAMED = many(record(topic=TEXT, partitions=many(INT)))
SPEAKS_CLASSIC = ("Of a member that speaks the classic protocol.", "it does not")
INSTEAD: Mapping[tuple[str, str], tuple[tuple[Column, tuple[str, ...]], ...]] = {
    ("member", "classic"): (
        (Column("session_timeout_ms", INT, *SPEAKS_CLASSIC), ("classic", "session_timeout_ms")),
        (Column("protocol_names", many(TEXT), *SPEAKS_CLASSIC), ("classic", "protocols", "name")),
    ),
    ("classic_member", "protocols"): (
        (Column("protocol_names", many(TEXT), "In the member's order of preference.", GONE), ("protocols", "name")),
        (Column("topic_names", many(TEXT), "What it subscribes to.", "it is no consumer"), ("protocols", "metadata")),
        (Column("rack_id", TEXT, "Its rack.", "it names none"), ("protocols", "metadata")),
    ),
    ("owner_claim", "cluster_id"): (),  # existing lakes have files without this column
    ("classic_assignment", "assignment"): (
        (Column("assigned", NAMED, "The partitions.", "these bytes are no assignment of a consumer"), ("assignment",)),
        (Column("assignment_bytes", INT, "How many bytes the leader sent.", GONE), ("assignment",)),
    ),
}
"""Kind and field -> the columns that replace it, each with its path in the value."""
DOCS = {
    "active": "Its active tasks.",
    "assigned": "What it may own.",
    "assignor": "Which assignor.",
    "client_host": "Where it connects from.",
    "client_id": "Its client id.",
    "client_tags": "Its tags.",
    "epoch": "Epoch of the group, of its target assignment, or of its topology.",
    "generation": "Generation of the sidecars' own group.",
    "instance_id": "Of a static member.",
    "member_epoch": "Member epoch.",
    "member_id": "The member that holds it.",
    "names_version": "Of the list of topics in which they were looked up.",
    "partitions": "The partitions.",
    "pending": "What it must give up and has not yet given up.",
    "pending_active": "Active tasks that it must give up and has not yet.",
    "pending_standby": "Standby tasks that it must give up and has not yet.",
    "pending_warmup": "Warm-up tasks that it must give up and has not yet.",
    "previous_epoch": "The one before.",
    "producer_epoch": "Of its fence.",
    "producer_id": "Of its fence.",
    "rack_id": "Its rack.",
    "rebalance_timeout_ms": "How long it may take to give partitions up, or to join again.",
    "resolved_ms": "When, Unix ms.",
    "server_assignor": "The assignor that it asks for.",
    "session_timeout_ms": "Its session.",
    "standby": "Its standby tasks.",
    "state": "STABLE, UNREVOKED_PARTITIONS or UNRELEASED_PARTITIONS; of a streams group with TASKS.",
    "subtopologies": "As its members sent it.",
    "topic_names": "What it subscribes to by name.",
    "topic_regex": "What it subscribes to by pattern.",
    "topics": "The topics.",
    "warmup": "Its warm-up tasks.",
}
"""Descriptions of fields that have none in their schema: a published schema never changes."""
NULLS = {
    "instance_id": "a dynamic member",
    "topic_regex": "no pattern",
    "server_assignor": "it leaves that to the group",
    "shutdown_member": "nobody has",
}
"""Reasons why a nullable field is null; for all others the reason is "there is none"."""


def _type(schema: Any, named: dict[str, Any]) -> Any:
    """Returns the tables' type for an Avro type: a topic id is text as Kafka's tools show it, a map a list of pairs."""
    if isinstance(schema, list):
        return _type(next(s for s in schema if s != "null"), named)
    if isinstance(schema, str):
        return SIMPLE_AVRO[schema] if schema in SIMPLE_AVRO else named[schema]
    if schema["type"] == "array":
        return many(_type(schema["items"], named))
    if schema["type"] == "map":
        return many(record(name=TEXT, value=_type(schema["values"], named)))
    if schema["type"] == "fixed":
        named[schema["name"]] = TEXT
    elif schema["type"] == "record":
        parts = {RENAMED.get(f["name"], f["name"]): _type(f["type"], named) for f in schema["fields"]}
        named[schema["name"]] = record(**parts)
    else:
        return _type(schema["type"], named)
    return named[schema["name"]]


SIMPLE_AVRO = {"int": INT, "long": LONG, "string": TEXT, "boolean": FLAG}


FieldColumn = tuple[Column, tuple[str, ...]]
"""A column, and its path in the value."""


def _columns(kind: str, fields: Sequence[Any]) -> Iterator[FieldColumn]:
    named: dict[str, Any] = {}
    for f in fields:
        name = RENAMED.get(f["name"], f["name"])
        if (kind, f["name"]) in INSTEAD:
            yield from INSTEAD[kind, f["name"]]
        elif name not in HEAD:
            null = NULLS.get(name, "there is none") if isinstance(f["type"], list) else GONE
            yield Column(name, _type(f["type"], named), f.get("doc") or DOCS[name], null), (f["name"],)


def _silver(kind: str) -> Table:
    """Returns the table of a kind, from the newest schema of its values, and fills PATHS."""
    versions = (name for name in published() if name.rsplit("-", 1)[0] == kind)
    schema = json.loads(published()[max(versions, key=lambda name: int(name.rsplit("-v", 1)[1]))])
    name, sub_id = KINDS[kind]
    from_key = (Column(sub_id, TEXT, IN_KEY[sub_id]),) if sub_id else ()
    columns = list(_columns(kind, schema["fields"]))
    PATHS.update({(kind, column.name): path for column, path in columns})
    PATHS.update({(kind, column): (field,) for field, column in HEAD.items()})
    return Table("silver", name, schema["doc"], KEY, (*COMMON, *from_key, *(column for column, _ in columns)))


PATHS: dict[tuple[str, str], tuple[str, ...]] = {}
"""Kind and column -> the column's path in the value."""
SCHEMAS = Table(
    "silver",
    "schemas",
    "Schemas of values.",
    KEY,
    (*COMMON, Column("fingerprint", TEXT, "CRC-64-AVRO, hex."), Column("text", TEXT, "The schema, JSON.", GONE)),
)
SILVER: dict[str, Table] = {kind: _silver(kind) for kind in KINDS} | {"schema": SCHEMAS}
"""Kind of record -> its table."""
OWNED = SILVER["current"].arrow.field("assigned").type
"""Type of owned partitions. `topic`: its name when the record was written, empty if unknown; `epochs`: the epoch in
which each partition was assigned."""
PLACES = SILVER["target_member"].arrow.field("partitions").type

CORRUPT = Table(
    "silver",
    "corrupt",
    "Records that cannot be read, or whose kind is not known here.",
    KEY,
    (*RECORD, *IN_KEYS, Column("reason", TEXT, "Why it cannot be read."), *CONTENT),
)
SILVER_TABLES = by_name((*SILVER.values(), CORRUPT))
