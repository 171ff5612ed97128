"""The typed tables that one batch of gold leaves for the next. Internal to the fold: other versions may have other
tables, and whoever finds unknown ones makes gold anew from silver."""

from __future__ import annotations

from typing import Any

from sidecar.audit.tables.columns import FLAG, INT, LONG, TEXT, Column, Table, by_name, many, record
from sidecar.audit.tables.layers import NAMED, OWNED, PLACES

CARRIED_VERSION = 10
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
    epoch=INT, revision=LONG, anew=FLAG, back=FLAG, began=REC, member_id=TEXT, cause=TEXT, members=INT, target=TARGET
)
ACC = record(head_offset=LONG, there=FLAG, head=HEAD, live=LONG, who=WHO, p_who=record(offset=LONG, w=WHO), done=FLAG)
PAYLOAD = record(
    instance_id=TEXT,
    client_id=TEXT,
    client_host=TEXT,
    rack_id=TEXT,
    process_id=TEXT,
    keeper=INT,
    topic_names=many(TEXT),
)
STALE = many(record(topic=TEXT, partitions=many(INT), generation=INT, holder=TEXT))


_NAMED = {
    INT: "state_partition partition member_epoch generation assigned_generation node_id producer_epoch highest holders"
    " reached gain",
    TEXT: "group_id kind key_id sub_id member_id topic topic_key place address state protocol_type why from_why",
    FLAG: "from_exact first fenced member waited",
}
TYPES = {name: kind for kind, names in _NAMED.items() for name in names.split()}
"""Type of each column that is not LONG, by its name."""
GROUP = "state_partition group_id"
MEMBER, KIND_OF_GROUP = f"{GROUP} member_id", f"{GROUP} kind"
HOLDER, PLACE, TASK = f"{MEMBER} kind", f"{GROUP} kind topic_key partition", f"{GROUP} topic_key partition"


def _carried(name: str, columns: str, **others: Any) -> Table:
    """`columns`: names, with spaces between; `others`: columns of other types. Any may be null."""
    types = {n: TYPES.get(n, LONG) for n in columns.split()} | others
    return Table("carried", name, "", (), tuple(Column(n, t, "", "unknown") for n, t in types.items()))


CARRIED = by_name(
    (
        # How far each state partition was read.
        _carried(
            "read",
            "state_partition last_offset first_hole_offset without_record longest_hole first_repeat last_sign"
            " whole_from whole_from_ms",
        ),
        # Offsets that were never read, and when the first record behind them was written.
        _carried("cuts", "state_partition until_offset from_offset written_ms"),
        # Where a group began behind what was never read; nowhere yet, if it was there before.
        _carried("births", f"{KIND_OF_GROUP} offset"),
        # The last current assignment of each member of a group with epochs.
        _carried("holdings", f"{HOLDER} offset revision member_epoch", assigned=OWNED, pending=OWNED),
        # Of each member of a classic group the assignment that counts, and those after it that wait.
        _carried(
            "assignments",
            f"{MEMBER} offset log_ms written_ms why revision generation whole_from at_offset waited",
            assigned=NAMED,
        ),
        # The last record of each classic group.
        _carried("assigned_groups", f"{GROUP} offset revision protocol_type assigned_generation"),
        # Intervals that have not ended.
        _carried("intervals", f"{PLACE} member_id stretch_offset unseen", f=FROM, st=STATE),
        # Beginnings while somebody else had not ended who has not ended yet.
        _carried(
            "doubtful", f"{PLACE} member_id s_offset from_offset topic ms written_ms first not_before", c=REACH, o=REACH
        ),
        # The interval of each place that went on longest, of those that have ended.
        _carried("places", f"{PLACE} topic", c=REACH, o=REACH),
        # Lives that have not ended: of members, holders of instance ids, and others (members.py).
        _carried(
            "lives",
            f"{KIND_OF_GROUP} key_id state last_offset last_revision from_offset from_ms from_written_ms"
            " from_why from_not_before_offset from_exact unseen",
            payload=PAYLOAD,
        ),
        # How many members have each place that several may have, and since when.
        _carried("holders", f"{PLACE} topic holders n ms written_ms"),
        # Subtopologies with state of each streams group.
        _carried("stateful", MEMBER, subtopologies=many(TEXT)),
        # Tasks that have fewer standbys than are wanted, and since when.
        _carried("lacking", f"{TASK} from_offset from_ms from_written_ms"),
        # Since when members of a share group subscribe to a topic.
        _carried("wanted_topics", f"{GROUP} topic n log_ms written_ms"),
        # Partitions that the broker has initialised for each share group.
        _carried("initialised", MEMBER, initialised=PLACES),
        # Topics to which each member of a share group subscribes.
        _carried("subscribed", MEMBER, topic_names=many(TEXT)),
        # Last claims of members to what was another's.
        _carried("stale_claims", MEMBER, said=STALE),
        # The last claim of each state partition and of each producer, and the last record under it.
        _carried(
            "claims",
            "state_partition from_offset claim node_id address member_id generation producer_id producer_epoch"
            " from_ms from_written_ms from_why highest fenced",
            w=TIMES,
        ),
        # Records of each group that were read so far.
        _carried("coverage", f"{GROUP} records missing", f=FIRST_LAST, l=FIRST_LAST, s=FIRST_LAST),
        # The first and the last record of each key of a group that cannot be read.
        _carried("unreadable", f"{KIND_OF_GROUP} sub_id first_offset last_offset"),
        # The last revision of each key.
        _carried("revisions", f"{KIND_OF_GROUP} sub_id offset revision"),
        # Members, and the epochs that they have reached.
        _carried("people", f"{KIND_OF_GROUP} member_id member reached"),
        # The last target of each member.
        _carried("target_members", f"{HOLDER} offset", partitions=PLACES),
        # Changes of targets since the last one that is complete.
        _carried("target_changes", f"{HOLDER} offset place gain"),
        # Where the last target of each group was complete, or removed.
        _carried("complete_targets", f"{KIND_OF_GROUP} offset"),
        # The last state of each classic group.
        _carried("classic_states", f"{GROUP} offset state", acc=record(generation=INT, began=REC, head=LONG)),
        # The last epoch of each group, and how far it has come.
        _carried("rebalances", KIND_OF_GROUP, acc=ACC),
    )
)
