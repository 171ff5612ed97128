"""The typed tables that one batch of gold leaves for the next. Internal to the fold: other versions may have other
tables, and whoever finds unknown ones makes gold anew from silver."""

from __future__ import annotations

from typing import Any

from sidecar.audit.columns import FLAG, INT, LONG, TEXT, Column, Table, by_name, many, record
from sidecar.audit.layers import NAMED, OWNED, PLACES

CARRIED_VERSION = 6
"""Rises when these tables change, or what is in them."""
REC = record(offset=LONG, ms=LONG, written_ms=LONG, why=TEXT)
TIMES = record(offset=LONG, ms=LONG, written_ms=LONG)
FIRST_LAST = record(offset=LONG, ms=LONG)
FROM = record(offset=LONG, ms=LONG, written_ms=LONG, why=TEXT, not_before=LONG, exact=FLAG, epoch=INT, topic=TEXT)
STATE = record(offset=LONG, type=TEXT, ms=LONG, written_ms=LONG)
REACH = record(reach=LONG, from_offset=LONG, member_id=TEXT, ms=LONG, written_ms=LONG)
WHO = record(offset=LONG, written_ms=LONG, member_id=TEXT, what=TEXT)
TARGET = record(offset=LONG, ms=LONG, written_ms=LONG, assignor=TEXT, moved=LONG, since=LONG)
HEAD = record(
    epoch=INT,
    revision=LONG,
    anew=FLAG,
    back=FLAG,
    began=REC,
    member_id=TEXT,
    cause=TEXT,
    members=INT,
    target=TARGET,
)
ACC = record(
    head_offset=LONG,
    there=FLAG,
    head=HEAD,
    live=LONG,
    who=WHO,
    p_who=record(offset=LONG, w=WHO),
    done=FLAG,
)
MEMBER_PAYLOAD = record(instance_id=TEXT, client_id=TEXT, client_host=TEXT, rack_id=TEXT, process_id=TEXT)
STALE = many(record(topic=TEXT, partitions=many(INT), generation=INT, holder=TEXT))


def _carried(name: str, doc: str, key: tuple[str, ...], **columns: Any) -> Table:
    """Any of these columns may be null but those of the key."""
    made = (Column(n, t, "", "" if n in key else "unknown") for n, t in columns.items())
    return Table("carried", name, doc, key, tuple(made))


_PLACE = {"state_partition": INT, "group_id": TEXT, "kind": TEXT, "topic_key": TEXT, "partition": INT}
_TASK = {"state_partition": INT, "group_id": TEXT, "topic_key": TEXT, "partition": INT}
_MEMBER = {"state_partition": INT, "group_id": TEXT, "member_id": TEXT}
_HOLDER = {**_MEMBER, "kind": TEXT}


def _lives(name: str, doc: str, payload: Any) -> Table:
    """Open rows of `steps.lives`."""
    return _carried(
        name,
        doc,
        ("state_partition", "group_id", "kind", "key_id"),
        state_partition=INT,
        group_id=TEXT,
        kind=TEXT,
        key_id=TEXT,
        state=TEXT,
        last_offset=LONG,
        last_revision=LONG,
        payload=payload,
        from_offset=LONG,
        from_ms=LONG,
        from_written_ms=LONG,
        from_why=TEXT,
        from_not_before_offset=LONG,
        from_exact=FLAG,
        unseen=LONG,
    )


CARRIED = by_name(
    (
        _carried(
            "read",
            "How far each state partition was read.",
            ("state_partition",),
            state_partition=INT,
            last_offset=LONG,
            first_hole_offset=LONG,
            without_record=LONG,
            longest_hole=LONG,
            first_repeat=LONG,
            last_sign=LONG,
            whole_from=LONG,
            whole_from_ms=LONG,
        ),
        _carried(
            "cuts",
            "Offsets that were never read, and when the first record behind them was written.",
            ("state_partition", "until_offset"),
            state_partition=INT,
            from_offset=LONG,
            until_offset=LONG,
            written_ms=LONG,
        ),
        _carried(
            "births",
            "Where a group began behind what was never read; nowhere yet, if it was there before.",
            ("state_partition", "group_id", "kind"),
            state_partition=INT,
            group_id=TEXT,
            kind=TEXT,
            offset=LONG,
        ),
        _carried(
            "holdings",
            "The last current assignment of each member of a group with epochs.",
            tuple(_HOLDER),
            **_HOLDER,
            offset=LONG,
            revision=LONG,
            member_epoch=INT,
            assigned=OWNED,
            pending=OWNED,
        ),
        _carried(
            "assignments",
            "Of each member of a classic group the assignment that counts, and those after it that wait.",
            (*_MEMBER, "offset"),
            **_MEMBER,
            offset=LONG,
            log_ms=LONG,
            written_ms=LONG,
            why=TEXT,
            revision=LONG,
            generation=INT,
            assigned=NAMED,
            whole_from=LONG,
            at_offset=LONG,
            waited=FLAG,
        ),
        _carried(
            "assigned_groups",
            "The last record of each classic group.",
            ("state_partition", "group_id"),
            state_partition=INT,
            group_id=TEXT,
            offset=LONG,
            revision=LONG,
            protocol_type=TEXT,
            assigned_generation=INT,
        ),
        _carried(
            "intervals",
            "Intervals that have not ended.",
            (*_PLACE, "member_id"),
            **_PLACE,
            member_id=TEXT,
            stretch_offset=LONG,
            f=FROM,
            st=STATE,
            unseen=LONG,
        ),
        _carried(
            "doubtful",
            "Beginnings while somebody else had not ended who has not ended yet.",
            (*_PLACE, "member_id", "s_offset"),
            **_PLACE,
            member_id=TEXT,
            s_offset=LONG,
            from_offset=LONG,
            topic=TEXT,
            ms=LONG,
            written_ms=LONG,
            first=FLAG,
            not_before=LONG,
            c=REACH,
            o=REACH,
        ),
        _carried(
            "places",
            "What went on longest among what has ended.",
            tuple(_PLACE),
            **_PLACE,
            topic=TEXT,
            c=REACH,
            o=REACH,
        ),
        _lives("members", "Members that are there.", MEMBER_PAYLOAD),
        _lives("static_members", "Holders of instance ids.", FLAG),
        _lives("ready", "Whether the topology of each streams group is ready.", FLAG),
        _lives("replicas", "How many standby replicas each streams group is to have.", FLAG),
        _carried(
            "holders",
            "How many members have each place that several may have, and since when.",
            tuple(_PLACE),
            **_PLACE,
            topic=TEXT,
            holders=INT,
            n=LONG,
            ms=LONG,
            written_ms=LONG,
        ),
        _carried(
            "stateful",
            "Subtopologies with state of each streams group.",
            tuple(_MEMBER),
            **_MEMBER,
            subtopologies=many(TEXT),
        ),
        _carried(
            "lacking",
            "Tasks that have fewer standbys than are wanted, and since when.",
            tuple(_TASK),
            **_TASK,
            from_offset=LONG,
            from_ms=LONG,
            from_written_ms=LONG,
        ),
        _carried(
            "wanted_topics",
            "Since when members of a share group subscribe to a topic.",
            ("state_partition", "group_id", "topic"),
            state_partition=INT,
            group_id=TEXT,
            topic=TEXT,
            n=LONG,
            log_ms=LONG,
            written_ms=LONG,
        ),
        _lives(
            "placeholders",
            "The owner's member in the broker's share group.",
            record(keeper=INT, topic_names=many(TEXT)),
        ),
        _carried(
            "initialised",
            "What the broker has initialised for each share group.",
            tuple(_MEMBER),
            **_MEMBER,
            initialised=PLACES,
        ),
        _carried(
            "subscribed",
            "What each member of a share group subscribes to.",
            tuple(_MEMBER),
            **_MEMBER,
            topic_names=many(TEXT),
        ),
        _carried(
            "stale_claims",
            "What members last claimed that was another's.",
            tuple(_MEMBER),
            **_MEMBER,
            offset=LONG,
            said=STALE,
        ),
        _carried(
            "claims",
            "The last claim of each state partition and of each producer.",
            ("state_partition", "from_offset"),
            state_partition=INT,
            claim=LONG,
            node_id=INT,
            address=TEXT,
            member_id=TEXT,
            generation=INT,
            producer_id=LONG,
            producer_epoch=INT,
            from_offset=LONG,
            from_ms=LONG,
            from_written_ms=LONG,
            from_why=TEXT,
            highest=INT,
            fenced=FLAG,
        ),
        _carried(
            "writes",
            "The last record under the last claim of each state partition.",
            ("state_partition",),
            state_partition=INT,
            claim=LONG,
            w=TIMES,
        ),
        _carried(
            "coverage",
            "What was read of each group so far.",
            ("state_partition", "group_id"),
            state_partition=INT,
            group_id=TEXT,
            f=FIRST_LAST,
            l=FIRST_LAST,
            records=LONG,
            missing=LONG,
            s=FIRST_LAST,
        ),
        _carried(
            "revisions",
            "The last revision of each key.",
            ("state_partition", "group_id", "kind", "sub_id"),
            state_partition=INT,
            group_id=TEXT,
            kind=TEXT,
            sub_id=TEXT,
            offset=LONG,
            revision=LONG,
        ),
        _carried(
            "people",
            "Who is a member, and which epoch it has reached.",
            ("state_partition", "group_id", "kind", "member_id"),
            state_partition=INT,
            group_id=TEXT,
            kind=TEXT,
            member_id=TEXT,
            member=FLAG,
            reached=INT,
        ),
        _carried(
            "target_members",
            "The last target of each member.",
            tuple(_HOLDER),
            **_HOLDER,
            offset=LONG,
            partitions=PLACES,
        ),
        _carried(
            "target_changes",
            "Changes of targets since the last one that is complete.",
            (*_HOLDER, "offset", "place"),
            **_HOLDER,
            offset=LONG,
            gain=INT,
            place=TEXT,
        ),
        _carried(
            "complete_targets",
            "The last complete target of each group.",
            ("state_partition", "group_id", "kind"),
            state_partition=INT,
            group_id=TEXT,
            kind=TEXT,
            offset=LONG,
        ),
        _carried(
            "classic_states",
            "The last state of each classic group.",
            ("state_partition", "group_id"),
            state_partition=INT,
            group_id=TEXT,
            offset=LONG,
            state=TEXT,
            acc=record(generation=INT, began=REC, head=LONG),
        ),
        _carried(
            "rebalances",
            "The last epoch of each group, and how far it has come.",
            ("state_partition", "group_id", "kind"),
            state_partition=INT,
            group_id=TEXT,
            kind=TEXT,
            acc=ACC,
        ),
    )
)
