"""Differences between the kinds of groups that have epochs: their tables in silver, and the columns of these."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sidecar.audit.gold.frames import Frame
from sidecar.audit.tables.layers import ROLES

HEAD = "offset, log_ms, written_ms, why, revision, deleted"
CLASSIC, CONSUMER, SHARE, STREAMS, PROCESS = "classic", "consumer", "share", "streams", "process"
TASKS = (*ROLES, PROCESS)
"""Holdings of a streams group. One member holds a task in each role, and one process holds a task once, in any role."""


@dataclass(frozen=True)
class Modern:
    """A kind of group with epochs. `tables`: prefix of its tables in silver. The others are SQL of its records.
    `member`: columns that describe a member. `steady`: whether a member has all of its target. `target`: the partitions
    or tasks of the target. `held`: by kind of holding, the assigned ones and those that the member must give up."""

    tables: str
    member: str
    steady: str
    target: str
    held: Mapping[str, tuple[str, str]]


def _tasks(column: str, key: str = "t.subtopology") -> str:
    """Tasks in the form of topic partitions, with the process in the place of the topic's name."""
    return (
        f"list_transform({column}, lambda t: struct_pack(topic_id := {key}, topic := coalesce(process_id, ''),"
        " partitions := t.partitions, epochs := null::int[]))"
    )


def _in_process(prefix: str) -> str:
    """Tasks of all roles, by process. Null where the process is unknown."""
    every = ", ".join(_tasks(f"{prefix}{role}", "concat(t.subtopology, ' in process ', process_id)") for role in ROLES)
    return f"case when process_id is not null then flatten([{every}]) end"


MODERN: Mapping[str, Modern] = {
    CONSUMER: Modern(
        "",
        "instance_id, client_id, client_host, rack_id",
        "state = 'STABLE' and len(pending) = 0",
        "partitions",
        {CONSUMER: ("assigned", "pending")},
    ),
    SHARE: Modern(
        "share_",
        "client_id, client_host, rack_id",
        "true",
        "partitions",
        {
            SHARE: (
                "list_transform(assigned, lambda t: struct_pack(topic_id := t.topic_id, topic := t.topic,"
                " partitions := t.partitions, epochs := null::int[]))",
                "null",
            )
        },
    ),
    STREAMS: Modern(
        "streams_",
        "instance_id, client_id, client_host, rack_id, process_id",
        "state = 'STABLE' and len(pending_active) + len(pending_standby) + len(pending_warmup) = 0",
        "list_transform(active, lambda t: struct_pack(topic_id := t.subtopology, topic := '',"
        " partitions := t.partitions))",
        {role: (_tasks(role), _tasks(f"pending_{role}")) for role in ROLES}
        | {PROCESS: (_in_process(""), _in_process("pending_"))},
    ),
}


def every(tables: Mapping[str, Frame], name: str, columns: Callable[[str, Modern], list[tuple[str, str]]]) -> Frame:
    """Returns the records of all kinds. `columns`: for a kind of group, the rows that each record makes, as pairs of a
    kind of holding and more columns. Tables that do not exist take no time."""
    kinds = [kind for kind, modern in MODERN.items() if modern.tables + name in tables] or [CONSUMER]
    frames = {kind: tables[MODERN[kind].tables + name] for kind in kinds}
    selects = [
        f"select state_partition, group_id, '{of}' as kind, {HEAD}{more} from {frame}"
        for kind, frame in frames.items()
        for of, more in columns(kind, MODERN[kind])
    ]
    return frames[kinds[0]].query(" union all ".join(selects))


def in_processes(current: Frame, members: Frame, was: Frame) -> Frame:
    """Current assignments of streams members, each with the member's process by its last record before. `was`: lives
    that the last batch left open."""
    return current.query(f"""select c.*, m.process_id from {current} c asof left join (
                select state_partition, group_id, member_id, offset, process_id from {members}
                union all select state_partition, group_id, key_id, last_offset, payload.process_id from {was}
                    where kind = 'streams') m
            on c.state_partition = m.state_partition and c.group_id = m.group_id and c.member_id = m.member_id
                and c.offset >= m.offset""")
