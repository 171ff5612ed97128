"""The typed tables that one batch of gold leaves for the next. Internal to the fold: other versions may have other
tables, and whoever finds unknown ones makes gold anew from silver."""

from __future__ import annotations

from typing import Any

from sidecar.audit.tables.columns import FLAG, INT, LONG, TEXT, Column, Table, many, record
from sidecar.audit.tables.layers import NAMED, OWNED, PLACES

CARRIED_VERSION = 11
"""Rises when these tables change, or what is in them."""
_REC = record(offset=LONG, ms=LONG, written_ms=LONG)
_NAMED = {
    _REC: "rec from_rec w f l s",
    INT: "state_partition partition member_epoch generation assigned_generation node_id producer_epoch highest holders"
    " reached gain keeper epoch members",
    TEXT: "group_id kind key_id sub_id member_id topic topic_key place address state protocol_type why from_why"
    " instance_id client_id client_host rack_id process_id what assignor cause type holder",
    FLAG: "from_exact first fenced member waited exact anew back there done",
    many(TEXT): "subtopologies topic_names",
    OWNED: "assigned pending",
    PLACES: "initialised partitions",
}
_TYPES = {name: kind for kind, names in _NAMED.items() for name in names.split()}
"""Type of each column, and field of a struct, that is not LONG, by its name."""


def _struct(names: str, **others: Any) -> Any:
    """Returns the type of a struct. `others`: fields of other types."""
    return record(**{name: others.get(name, _TYPES.get(name, LONG)) for name in names.split()})


_BEGAN, _WHO = _struct("rec why"), _struct("rec member_id what")
_TARGET = _struct("rec assignor moved since")
_HEAD = _struct("epoch revision anew back began member_id cause members target", began=_BEGAN, target=_TARGET)
_P_WHO = _struct("began w", began=_BEGAN, w=_WHO)
_TYPES |= {
    "c": _struct("reach from_offset member_id ms written_ms"),
    "o": _struct("reach from_offset member_id ms written_ms"),
    "payload": _struct("instance_id client_id client_host rack_id process_id keeper topic_names"),
    "said": many(_struct("topic partitions generation holder", partitions=many(INT))),
    "st": _struct("type rec"),
}
_OTHERS = {
    "assignments": {"assigned": NAMED},
    "intervals": {"f": _struct("rec why not_before exact epoch topic")},
    "rebalances": {"acc": _struct("head_offset there head live who p_who done", head=_HEAD, who=_WHO, p_who=_P_WHO)},
}
"""Table -> columns whose type is another one there."""
_GROUP = "state_partition group_id"
_MEMBER, _KIND_OF_GROUP = f"{_GROUP} member_id", f"{_GROUP} kind"
_HOLDER, _PLACE, _TASK = f"{_MEMBER} kind", f"{_GROUP} kind topic_key partition", f"{_GROUP} topic_key partition"
_COLUMNS = {
    # How far each state partition was read.
    "read": "state_partition last_offset first_hole_offset without_record longest_hole first_repeat last_sign"
    " whole_from whole_from_ms",
    # Offsets that were never read, and when the first record behind them was written.
    "cuts": "state_partition until_offset from_offset written_ms",
    # Where a group began behind what was never read; nowhere yet, if it was there before.
    "births": f"{_KIND_OF_GROUP} offset",
    # The last current assignment of each member of a group with epochs.
    "holdings": f"{_HOLDER} offset revision member_epoch assigned pending",
    # Of each member of a classic group the assignment that counts, and those after it that wait.
    "assignments": f"{_MEMBER} offset rec why revision generation whole_from at_offset waited assigned",
    # The last record of each classic group.
    "assigned_groups": f"{_GROUP} offset revision protocol_type assigned_generation",
    # Intervals that have not ended.
    "intervals": f"{_PLACE} member_id stretch_offset unseen f st",
    # Beginnings while somebody else had not ended who has not ended yet.
    "doubtful": f"{_PLACE} member_id s_offset from_offset topic rec first not_before c o",
    # The interval of each place that went on longest, of those that have ended.
    "places": f"{_PLACE} topic c o",
    # Lives that have not ended: of members, holders of instance ids, and others (members.py).
    "lives": f"{_KIND_OF_GROUP} key_id state last_offset last_revision from_rec from_why from_not_before_offset"
    " from_exact unseen payload",
    # How many members have each place that several may have, and since when.
    "holders": f"{_PLACE} topic holders from_rec",
    # Subtopologies with state of each streams group.
    "stateful": f"{_MEMBER} subtopologies",
    # Tasks that have fewer standbys than are wanted, and since when.
    "lacking": f"{_TASK} from_rec",
    # Since when members of a share group subscribe to a topic.
    "wanted_topics": f"{_GROUP} topic n rec",
    # Partitions that the broker has initialised for each share group.
    "initialised": f"{_MEMBER} initialised",
    # Topics to which each member of a share group subscribes.
    "subscribed": f"{_MEMBER} topic_names",
    # Last claims of members to what was another's.
    "stale_claims": f"{_MEMBER} said",
    # The last claim of each state partition and of each producer, and the last record under it.
    "claims": "state_partition from_offset claim node_id address member_id generation producer_id producer_epoch"
    " from_rec from_why highest fenced w",
    # Records of each group that were read so far.
    "coverage": f"{_GROUP} records missing f l s",
    # The first and the last record of each key of a group that cannot be read.
    "unreadable": f"{_KIND_OF_GROUP} sub_id first_offset last_offset",
    # The last revision of each key.
    "revisions": f"{_KIND_OF_GROUP} sub_id offset revision",
    # Members, and the epochs that they have reached.
    "people": f"{_KIND_OF_GROUP} member_id member reached",
    # The last target of each member.
    "target_members": f"{_HOLDER} offset partitions",
    # Changes of targets since the last one that is complete.
    "target_changes": f"{_HOLDER} offset place gain",
    # Where the last target of each group was complete, or removed.
    "complete_targets": f"{_KIND_OF_GROUP} offset",
    # The last state of each classic group.
    "classic_states": f"{_GROUP} offset state generation",
    # The last epoch of each group, and how far it has come.
    "rebalances": f"{_KIND_OF_GROUP} acc",
}
"""Table -> its columns, any of which may be null."""


def _table(name: str, columns: str) -> Table:
    types = _TYPES | _OTHERS.get(name, {})
    return Table("carried", name, "", (), tuple(Column(c, types.get(c, LONG), "", "unknown") for c in columns.split()))


CARRIED = {name: _table(name, columns) for name, columns in _COLUMNS.items()}
