"""The tables of gold, and what must hold of their rows.

`from` is the first record that shows something, `to` the first that shows it gone. Compaction may have taken records
before either, so each has a bound beside it: `from_not_before_offset` is the last offset at which it certainly was not
so, `to_not_before_offset` the last at which it certainly still was. Nothing was taken in between if the end is `exact`.

The revisions of a member's own records show what it owned, and since when: the values of a key count up by one,
so a gap in them is a value that is missing. That somebody did not own, or that nobody else was there, needs more, for
compaction leaves nothing of a key that was ended, but offsets without a record. Transactions leave such offsets too,
so they prove nothing by themselves. But compaction leaves one record of a key: where two records that follow each
other are there, both of one key, it had not come to the second of them, and from there on everything is known. A
state partition is `whole` from its begin to the first offset without a record, or for good if such a pair comes before
that offset; and from the second record of such a pair on. It ends where a revision tells of a missing value: the pair
must come after that. A statement that covers only what is whole is `proven`.

What a record says that cannot be read is unknown. If it is a member's last assignment, the member owns something for
certain only until the record before. From there on no statement on absence is `proven` in its group. Records of kinds
that are not known here have no such effect: a newer version writes them beside those that are.

This holds if records are read before they can be compacted or were compacted before the first was read. A reader that
compaction overtakes later finds offsets without a record behind the last one that it had read. What was carried to
there may have ended without a trace, so it counts as if the offsets before were never read.

Times that end in `ms` are Unix ms. `written` is the writer's clock, the others are the timestamps of the log.
"""

from __future__ import annotations

from sidecar.audit.tables.columns import FLAG, INT, LONG, TEXT, TIME, Column, Table, by_name, many
from sidecar.audit.tables.gold_columns import (
    EPOCHS,
    GRADE,
    KIND,
    LIFE,
    OPEN,
    OPEN_END,
    PLACE,
    REVOKING,
    SHARED,
    STATE_PARTITION,
    at,
    gold_table,
    group_table,
)
from sidecar.audit.tables.layers import CORRUPT, KEY

PLACE_KEY = ("state_partition", "group_id", "kind", "topic_key", "partition")

TABLES = (
    group_table(
        "intervals",
        "A member of a consumer or classic group owned a partition, as assigned or as pending revocation.",
        (*PLACE_KEY, "member_id", "from_offset"),
        *PLACE,
        Column("member_id", TEXT, "The member."),
        *LIFE,
        *REVOKING,
        Column("first_epoch", INT, "Member epoch in which it began; of a classic member, the generation."),
        Column("last_epoch", INT, "The last member epoch, or generation, in which a record shows it."),
    ),
    group_table(
        "second_owners",
        "A member began to own a partition, or to have an active task, that another one still had. Or it began to have"
        " a task that another member of its process still had, in any role: its `topic` then names the process. There"
        " must be no proven one. Of several former owners the row names the one that went on longest. Not of share"
        " groups.",
        (*PLACE_KEY, "member_id", "offset"),
        *PLACE,
        Column("member_id", TEXT, "Who began."),
        Column("from_offset", LONG, "Begin of its interval."),
        Column("other_member_id", TEXT, "Who still owned it."),
        Column("other_from_offset", LONG, "Begin of that one's interval."),
        *at("", "The record at which both owned it."),
        GRADE,
        OPEN,
    ),
    group_table(
        "unowned",
        "Nobody owned a partition, or had an active task, that somebody had owned, also while the group was empty or"
        " did not want it. Of share groups: `share_coverage`.",
        (*PLACE_KEY, "from_offset"),
        *PLACE,
        Column("former_member_id", TEXT, "Who had it last."),
        *at("from_", "The record that shows it free."),
        Column("member_id", TEXT, "Who got it.", OPEN_END),
        *at("to_", "The first record that shows it owned again.", OPEN_END),
        Column("to_not_before_offset", LONG, "The last offset at which it was free.", OPEN_END + "; unknown"),
        GRADE,
        OPEN,
    ),
    group_table(
        "share_holdings",
        "A member of a share group had a partition; others may have had it, too.",
        ("state_partition", "group_id", "topic_id", "partition", "member_id", "from_offset"),
        *SHARED,
        Column("member_id", TEXT, "The member."),
        *LIFE,
        *EPOCHS,
    ),
    group_table(
        "share_coverage",
        "Nobody had a partition of a share group that the broker had initialised and to whose topic a member"
        " subscribed. So is each at first, for as long as it takes to assign it.",
        ("state_partition", "group_id", "topic_id", "partition", "from_offset"),
        *SHARED,
        Column("former_member_id", TEXT, "Who had it last.", "it was not wanted before"),
        *at("from_", "The record since which somebody should have it."),
        Column("member_id", TEXT, "Who got it.", OPEN_END + "; it was not wanted any more"),
        *at("to_", "The record that ended it.", OPEN_END),
        Column("to_not_before_offset", LONG, "The last offset at which nobody had it.", OPEN_END + "; unknown"),
        GRADE,
        OPEN,
    ),
    group_table(
        "share_placeholder_history",
        "The owner of a share group was this member of the broker's share group of the same name, which keeps the share"
        " state.",
        ("state_partition", "group_id", "member_id", "from_offset"),
        Column("member_id", TEXT, "The member's id at the broker."),
        Column("keeper", INT, "Node id of the broker that coordinated that group, at last."),
        Column("topic_names", many(TEXT), "What the member subscribed to there, at last."),
        *LIFE,
    ),
    group_table(
        "share_initialised",
        "The broker had initialised a partition for a share group, as the owner wrote down. Of partitions for which it"
        " never did, no record tells.",
        ("state_partition", "group_id", "topic_id", "partition", "offset"),
        *SHARED,
        *at("subscribed_", "The record since which a member subscribed to the topic.", "nobody did"),
        *at("", "The record that shows it initialised."),
        Column("after_ms", LONG, "Between both, by the timestamps of the log.", "nobody subscribed to it"),
        GRADE,
    ),
    group_table(
        "holders",
        "So many members had a partition of a share group, or a task of a streams group as a standby or to warm it up."
        " While nobody had it there is no row.",
        ("state_partition", "group_id", "kind", "topic_key", "partition", "role", "from_offset"),
        *PLACE,
        Column("role", TEXT, "Of a task `standby` or `warmup`; `share` of a partition."),
        Column("holders", INT, "How many members."),
        *at("from_", "The record since which."),
        *at("to_", "The record since which there are more or fewer.", OPEN_END),
        GRADE,
        OPEN,
    ),
    group_table(
        "streams_tasks",
        "A member of a streams group had a task, as assigned or as pending revocation.",
        ("state_partition", "group_id", "subtopology", "partition", "role", "member_id", "from_offset"),
        Column("subtopology", TEXT, "Subtopology of the task."),
        Column("partition", INT, "Partition of the task."),
        Column("role", TEXT, "`active`, `standby` or `warmup`."),
        Column("member_id", TEXT, "The member."),
        Column("process_id", TEXT, "The Streams instance that it was a thread of.", "no record before tells it"),
        *LIFE,
        *REVOKING,
        *EPOCHS,
    ),
    group_table(
        "streams_not_ready",
        "The topology of a streams group was not ready at its last epoch, so that no tasks were assigned. The reason is"
        " in no record: members are told it.",
        ("state_partition", "group_id", "from_offset"),
        *LIFE,
    ),
    group_table(
        "streams_standby_replicas",
        "So many standby tasks were wanted of each task with state, as the group's epochs took the setting over.",
        ("state_partition", "group_id", "from_offset"),
        Column("num_standby_replicas", INT, "The setting `streams.num.standby.replicas` in force."),
        *LIFE,
    ),
    group_table(
        "streams_standby_coverage",
        "A member had a task with state as active, and fewer members had it as a standby than were wanted. So is each"
        " at first, for as long as it takes to assign it. That a standby has restored the state is in no record.",
        ("state_partition", "group_id", "subtopology", "partition", "from_offset"),
        Column("subtopology", TEXT, "Subtopology of the task."),
        Column("partition", INT, "Partition of the task."),
        Column(
            "wanted",
            INT,
            "`num_standby_replicas`; or as many as there are processes beside that of the active task, if they are"
            " fewer: no process has a task twice.",
        ),
        Column("held", INT, "So many had it as a standby, also those that must give it up."),
        *at("from_", "The record since which."),
        *at("to_", "The record since which there are enough, or one of both numbers is another.", OPEN_END),
        GRADE,
        OPEN,
    ),
    group_table(
        "streams_topology_changes",
        "A streams group got a topology. Who asked the broker for internal topics is in no record: clients ask on their"
        " own connections.",
        KEY,
        *at("", "The record."),
        Column("epoch", INT, "Topology epoch."),
        Column("subtopologies", many(TEXT), "Their ids."),
        Column("internal_topics", many(TEXT), "Repartition and changelog topics that it needs, in order."),
        Column("partial", FLAG, "Taken over from a broker, which says nothing of copartition groups."),
        Column("why", TEXT, "Why the record was written: which member brought it."),
    ),
    group_table(
        "rebalances",
        "A group epoch, or a generation of a classic group.",
        ("state_partition", "group_id", "kind", "from_offset"),
        KIND,
        Column("epoch", INT, "Group epoch, or generation."),
        Column("anew", FLAG, "The first since the group, of this kind, came into being; or the first that is known."),
        Column(
            "went_back",
            FLAG,
            "Its epoch is not higher than that of the one before, and the group had not gone. There must be no proven"
            " one: of a possible one, the record that removed the group may be missing.",
        ),
        *at("from_", "The record that began it; in a classic group that of PreparingRebalance."),
        Column("why", TEXT, "Why that was written."),
        Column("cause", TEXT, "`joined`, `changed` or `left`: what the member did; `other`: it was no member."),
        Column("member_id", TEXT, "The member whose record came with it.", "it was no member"),
        Column("members", INT, "Members at that time; in a classic group, when the join phase ended."),
        *at("target_", "The record that completed the target assignment of this epoch.", "none, or before it"),
        Column("assignor", TEXT, "By which assignor; in a classic group, the protocol.", "there was no target"),
        Column(
            "partitions_moved",
            LONG,
            "Partitions, or active tasks, given to whom the target before had not given them; all, if it was removed.",
            "there was no target",
        ),
        *at(
            "settled_",
            "The first record of the epoch, or of a member that came to it, at which every member had reached it.",
            "it was not, or not yet",
        ),
        Column("superseded", FLAG, "The next epoch came, or the group went, before all had reached this one."),
        GRADE,
        OPEN,
    ),
    group_table(
        "members",
        "Somebody was a member of a group.",
        ("state_partition", "group_id", "kind", "member_id", "from_offset"),
        KIND,
        Column("member_id", TEXT, "The member."),
        Column("instance_id", TEXT, "Of a static member.", "a dynamic member"),
        Column("client_id", TEXT, "Its client id, as it said last."),
        Column("client_host", TEXT, "Where it connected from last."),
        Column("rack_id", TEXT, "Its rack.", "it names none"),
        Column(
            "process_id", TEXT, "Of a streams member, the instance that it is a thread of.", "another kind of group"
        ),
        *LIFE,
    ),
    group_table(
        "static_member_history",
        "A member held an instance id (KIP-345); of consumer groups.",
        ("state_partition", "group_id", "instance_id", "from_offset"),
        Column("instance_id", TEXT, "The instance id."),
        Column("member_id", TEXT, "The member that held it."),
        *LIFE,
    ),
    gold_table(
        "coordinators",
        "A sidecar was the coordinator of a state partition, until the next claim.",
        ("state_partition", "from_offset"),
        STATE_PARTITION,
        Column("claim", LONG, "The owner epoch that was claimed."),
        Column("node_id", INT, "Broker that the owner stands beside."),
        Column("address", TEXT, "Where clients reach it."),
        Column("member_id", TEXT, "Its member id in the sidecars' own group."),
        Column("generation", INT, "Generation of the sidecars' own group."),
        Column("producer_id", LONG, "Of its fence."),
        Column("producer_epoch", INT, "Of its fence."),
        Column("fenced", FLAG, "The same producer had claimed with a higher epoch: it should have been kept out."),
        *at("from_", "The claim."),
        Column("from_why", TEXT, "Why it was made."),
        *at("to_", "The next claim.", OPEN_END),
        OPEN,
    ),
    gold_table(
        "outages",
        "From the last record of a coordinator to the claim of the next: it was away for no longer than that.",
        ("state_partition", "to_offset"),
        STATE_PARTITION,
        Column("former_claim", LONG, "Owner epoch of the former coordinator."),
        Column("claim", LONG, "Owner epoch of the next."),
        *at("from_", "The last record of the former one that is there."),
        *at("to_", "The claim of the next."),
        Column("at_most_ms", LONG, "Between both, by the timestamps of the log."),
        Column(
            "why",
            TEXT,
            "Why the next one took over, as its claim says: `moved from sidecar N`, which is alive; `sidecar N is"
            " gone`; `sidecar N has joined anew`, so it was gone between; `assigned`: it did not know who had the"
            " partition before.",
        ),
    ),
    gold_table(
        "stale_writes",
        "A record of a fenced coordinator: another one had claimed the state partition before. It changes nothing."
        " There must be none.",
        KEY,
        STATE_PARTITION,
        *at("", "The record."),
        Column("group_id", TEXT, "The group; empty of a claim."),
        Column("what", TEXT, "`record`; or `claim`: a claim of a fenced producer."),
        Column("kind", TEXT, "Kind of the record."),
        Column("sub_id", TEXT, "From its key."),
        Column("owner_epoch", LONG, "Fence of the writer."),
        Column("claimed_epoch", LONG, "Owner epoch of the last claim before it.", "none is known"),
        Column("why", TEXT, "What made it be written."),
    ),
    group_table(
        "setting_changes",
        "A setting of a group, or of the brokers where the group id is empty, was set or removed.",
        KEY,
        *at("", "The record."),
        Column("name", TEXT, "The setting."),
        Column("value", TEXT, "Its value.", "it was removed"),
        Column("why", TEXT, "What made it be written."),
    ),
    group_table(
        "stale_claims",
        "A member of a classic group said that it owned partitions which were another's (KIP-792).",
        (*KEY, "topic", "generation", "holder"),
        *at("", "The record."),
        Column("member_id", TEXT, "The member."),
        Column("client_id", TEXT, "Its client id."),
        Column("topic", TEXT, "The topic."),
        Column("partitions", many(INT), "The partitions."),
        Column("generation", INT, "In which it got them; -1: its client does not say."),
        Column("holder", TEXT, "Who owned them; empty: they were unowned."),
    ),
    gold_table(
        "coverage",
        "What was read of a state partition, or of a group, and what is known to be missing.",
        ("state_partition", "scope", "group_id"),
        STATE_PARTITION,
        Column("scope", TEXT, "`partition` or `group`."),
        Column("group_id", TEXT, "The group; empty: what is of no group, or the whole partition."),
        *at("first_", "Of the first record.")[:3],
        *at("last_", "Of the last record.")[:3],
        Column("records", LONG, "How many there were."),
        Column("missing", LONG, "Values that are missing, as far as revisions tell."),
        *at("complete_since_", "The last record before which a value is missing.", "none is missing")[:3],
        Column(
            "read_from_offset",
            LONG,
            "Where reading the state partition began; above 0, what was before is not known: the topic began there, or"
            " the run was told to begin there.",
        ),
        Column("lost", LONG, "Offsets behind that which were gone from the topic before they could be read."),
        Column(
            "first_hole_offset",
            LONG,
            "The first offset of the state partition without a record: never read, removed by compaction, or taken by a"
            " transaction.",
            "there is none",
        ),
        Column("without_record", LONG, "Offsets of the state partition that could be read and have no record."),
        Column("longest_hole", LONG, "The most of them in a row. A transaction that was committed leaves 1."),
        Column("whole_from_offset", LONG, "Since there everything is known.", "no such offset is known"),
        Column("whole_from_ms", LONG, "Timestamp of the record there.", "it is 0; no such offset is known"),
        Column("whole_from_time", TIME, "The same.", "it is 0; no such offset is known"),
        OPEN,
    ),
    Table(
        "gold",
        "unreadable",
        "Records that cannot be read, or whose kind is not known here.",
        CORRUPT.key,
        CORRUPT.columns[:8],
    ),
)
GOLD = by_name(TABLES)

_LIVES = (
    *("intervals", "members", "static_member_history"),
    *("share_holdings", "share_placeholder_history"),
    *("streams_tasks", "streams_not_ready", "streams_standby_replicas"),
)
_HELD = {"intervals": "i.kind", "share_holdings": "'share'", "streams_tasks": "'streams'"}
_FREE = ("unowned", "share_coverage", "holders", "streams_standby_coverage")


def _lives(check: str, sentence: str, where: str) -> dict[str, tuple[str, str]]:
    return {f"{check}_{t}": (sentence, f"select * from {t} where {where}") for t in _LIVES}


def once(table: Table, named: str = "") -> tuple[str, str]:
    """`named`: the table in the query, if not by its name."""
    key = ", ".join("`offset`" if n == "offset" and not named else f'"{n}"' if named else n for n in table.key)
    return f"No two rows have the same {', '.join(table.key)}.", (
        f"select {key} from {named or table.name} group by {key} having count(*) > 1"
    )


INVARIANTS: dict[str, tuple[str, str]] = {
    "one_owner": (
        "No partition and no active task has two owners, and no task is twice in one process.",
        "select * from second_owners where grade = 'proven'",
    ),
    "no_stale_writes": ("No fenced coordinator writes.", "select * from stale_writes"),
    **_lives("order", "Nothing ends before it began.", "from_offset >= to_offset"),
    **_lives(
        "bounds",
        "The bounds contain begin and end.",
        "from_not_before_offset >= from_offset or to_not_before_offset < from_offset"
        " or to_not_before_offset >= to_offset",
    ),
    **_lives(
        "exact",
        "An exact end has no room in its bounds.",
        "(from_exact and from_not_before_offset <> from_offset - 1)"
        " or (to_exact and to_not_before_offset <> to_offset - 1)",
    ),
    **_lives("open", "What is open has no end.", "open <> (to_offset is null)"),
    **{
        "known_members" + (table != "intervals") * f"_{table}": (
            "Whoever owns a partition or has a task is a member.",
            f"select i.* from {table} i left anti join members m on i.state_partition = m.state_partition"
            f" and i.group_id = m.group_id and {kind} = m.kind and i.member_id = m.member_id",
        )
        for table, kind in _HELD.items()
    },
    "initialised_after_subscribed": (
        "A partition is initialised after a member has subscribed to it.",
        "select * from share_initialised where subscribed_offset >= `offset`",
    ),
    "settled_after_target": (
        "Nobody reaches an epoch that has no target yet.",
        "select * from rebalances where grade = 'proven' and settled_offset is not null"
        " and not anew and (target_offset is null or settled_offset < target_offset or target_offset < from_offset)",
    ),
    "epochs_rise": (
        "The epoch of a group goes back only if the group began anew.",
        "select * from rebalances where went_back and grade = 'proven'",
    ),
    **{
        f"{t}_order": ("Nothing ends before it began.", f"select * from {t} where from_offset >= to_offset")
        for t in _FREE
    },
    **{f"once_{name}": once(table) for name, table in GOLD.items()},
}
"""Name -> a sentence, and a query over the tables of gold that gives the rows for which it does not hold."""
