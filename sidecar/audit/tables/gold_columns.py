"""Columns that several tables of gold have."""

from __future__ import annotations

from sidecar.audit.tables.columns import FLAG, INT, LONG, TEXT, TIME, Column, Table
from sidecar.audit.tables.layers import RECORD

OPEN = Column("open", FLAG, "It has not ended, or may change yet; a later batch replaces the row.")
STATE_PARTITION = RECORD[0]
GROUP = (STATE_PARTITION, Column("group_id", TEXT, "The group."))
KIND = Column("kind", TEXT, "Of the group: `consumer`, `classic`, `share` or `streams`.")
PLACE = (
    KIND,
    Column(
        "topic_key",
        TEXT,
        "Names the topic: its id in a consumer group, its name in a classic one; of a task of a streams group its"
        " subtopology.",
    ),
    Column("topic_id", TEXT, "Id of the topic (base64).", "a classic group, which knows names only; a task"),
    Column("topic", TEXT, "Name of the topic, or the subtopology; empty if it was not known."),
    Column("partition", INT, "Partition of the topic, or of the task."),
)
GRADE = Column("grade", TEXT, "`proven`; or `possible`: records may be missing that said otherwise.")
EARLIER = "a tombstone of an earlier version"
OPEN_END = "it has not ended"


def at(prefix: str, doc: str, null: str = "") -> tuple[Column, ...]:
    """Returns the columns of a record's offset and times, which are one column in the fold (steps.bounded)."""
    unwritten, rec = "; ".join(filter(None, (null, EARLIER))), f"{prefix}rec"
    return (
        Column(f"{prefix}offset", LONG, doc, null, f"{rec}.offset"),
        Column(f"{prefix}ms", LONG, "Its timestamp.", null, f"{rec}.ms"),
        Column(f"{prefix}time", TIME, "The same.", null, f"{rec}.ms"),
        Column(f"{prefix}written_ms", LONG, "When its writer says it wrote it.", unwritten, f"{rec}.written_ms"),
        Column(f"{prefix}written_time", TIME, "The same.", unwritten, f"{rec}.written_ms"),
    )


LIFE = (
    *at("from_", "The first record that shows it."),
    Column("from_why", TEXT, "Why that was written."),
    Column("from_not_before_offset", LONG, "The last offset at which it was not so.", "nothing earlier is known"),
    Column("from_exact", FLAG, "It began with that record: none is missing before it."),
    *at("to_", "The first record that shows it gone.", OPEN_END),
    Column("to_why", TEXT, "Why that was written.", OPEN_END),
    Column("to_not_before_offset", LONG, "The last offset at which it certainly still was so.", OPEN_END),
    Column("to_exact", FLAG, "It ended with that record.", OPEN_END),
    Column("unseen", LONG, "Values of its key in between that are missing."),
    OPEN,
)


def gold_table(name: str, doc: str, key: tuple[str, ...], *columns: Column) -> Table:
    return Table("gold", name, doc, key, columns, by=("open",) if OPEN in columns else ())


def group_table(name: str, doc: str, key: tuple[str, ...], *columns: Column) -> Table:
    """Returns a table whose rows are about groups."""
    return gold_table(name, doc, key, *GROUP, *columns)


EPOCHS = (
    Column("first_epoch", INT, "Member epoch in which it began."),
    Column("last_epoch", INT, "The last member epoch in which a record shows it."),
)
SHARED = (
    Column("topic_id", TEXT, "Id of the topic (base64)."),
    Column("topic", TEXT, "Name of the topic; empty if it was not known."),
    Column("partition", INT, "Partition of the topic."),
)
REVOKING = at("revoking_from_", "The record since which it only had to give it up.", "it has not had to")
