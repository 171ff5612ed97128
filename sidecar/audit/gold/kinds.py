"""Differences between the kinds of groups that have epochs: their tables in silver, and the columns of these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sidecar.audit.tables.layers import ROLES

HEAD = "offset, rec, why, revision, deleted"
CLASSIC, CONSUMER, SHARE, STREAMS, PROCESS = "classic", "consumer", "share", "streams", "process"
TASKS = (*ROLES, PROCESS)
"""Holdings of a streams group. One member holds a task in each role, and one process holds a task once, in any role."""


@dataclass(frozen=True)
class Modern:
    """A kind of group with epochs. `tables`: prefix of its tables in silver. The others are SQL of its records.
    `member`: columns that describe a member. `steady`: whether a member has all of its target. `target`: the partitions
    or tasks of the target. `held`: by kind of holding, the assigned ones and those that the member must give up."""

    kind: str
    tables: str
    member: str
    steady: str
    target: str
    held: Mapping[str, tuple[str, str]]


def _places(column: str, key: str = "t.subtopology", topic: str = "coalesce(process_id, '')") -> str:
    """Places in one form: tasks are topic partitions, with the process in the place of the topic's name."""
    return (
        f"list_transform({column}, lambda t: struct_pack(topic_id := {key}, topic := {topic},"
        " partitions := t.partitions, epochs := null::int[]))"
    )


def _in_process(prefix: str) -> str:
    """Tasks of all roles, by process. Null where the process is unknown."""
    every = ", ".join(_places(f"{prefix}{role}", "concat(t.subtopology, ' in process ', process_id)") for role in ROLES)
    return f"case when process_id is not null then flatten([{every}]) end"


MODERN = (
    Modern(
        CONSUMER,
        "",
        "instance_id, client_id, client_host, rack_id",
        "state = 'STABLE' and len(pending) = 0",
        "partitions",
        {CONSUMER: ("assigned", "pending")},
    ),
    Modern(
        SHARE,
        "share_",
        "client_id, client_host, rack_id",
        "true",
        "partitions",
        {SHARE: (_places("assigned", "t.topic_id", "t.topic"), "null")},
    ),
    Modern(
        STREAMS,
        "streams_",
        "instance_id, client_id, client_host, rack_id, process_id",
        "state = 'STABLE' and len(pending_active) + len(pending_standby) + len(pending_warmup) = 0",
        "list_transform(active, lambda t: struct_pack(topic_id := t.subtopology, topic := '',"
        " partitions := t.partitions))",
        {role: (_places(role), _places(f"pending_{role}")) for role in ROLES}
        | {PROCESS: (_in_process(""), _in_process("pending_"))},
    ),
)
