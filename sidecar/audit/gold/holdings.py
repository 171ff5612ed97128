"""Events of holdings: a record gives a partition or task to a member, or takes it. One per (group, member, place).

The kind of an event is that of its group; for a task its role, or `process` (kinds.py). A task's topic is its
subtopology, and instead of the topic's name it has the process of the member.

An event's `type`: `a` assigned, `p` only pending revocation, `x` gone, `k` still held, but records before are missing.
"""

from __future__ import annotations

from sidecar.audit.gold.batch import Batch
from sidecar.audit.gold.frames import Frame
from sidecar.audit.gold.steps import BEFORE, GROUP, MISSING, OF_KIND, ORDER, adjacent

MEMBER = f"{GROUP}, member_id"
HOLDER = f"{MEMBER}, kind"
PLACE = f"{OF_KIND}, topic_key, partition"
LISTS = ("assigned", "pending")
CHANGE = f"{HOLDER}, offset, rec, why, adjacent, b_offset, missing, epoch, b_epoch"
"""Columns of a record that changes holdings, besides its LISTS of places, and with `b_` those before it. `b_offset` and
`b_epoch` are of the record before it, null if that was a tombstone."""


def modern(b: Batch) -> Frame:
    """Returns events in groups with epochs. A member that is removed holds nothing from then on. Holdings are compared
    only where a record differs from the one before."""
    current = b.every(
        "current",
        lambda m: {
            kind: f"member_id, member_epoch, {assigned} as assigned, {pending} as pending"
            for kind, (assigned, pending) in m.held.items()
        },
    )
    removed = b.every("members", lambda m: dict.fromkeys(m.held, "member_id")).where("deleted")
    rows = current.query(f"""
        select *, false as carried from {b.whole_of(current)}
            union all by name select * exclude (revision), false as carried from {b.whole_of(removed)}
            union all by name select *, false as deleted, true as carried from {b.was["holdings"]}""")
    changed = f"""not carried and (not ({adjacent("b_offset")}) or not b_live
        or assigned is distinct from b_assigned or pending is distinct from b_pending)"""
    of_value = ", ".join(f"case when b_live then b_{c} end as b_{c}" for c in ("offset", "epoch", *LISTS))
    chain = rows.query(f"""with a as (select *, {BEFORE}, lag(member_epoch) over w as b_epoch,
                lag(assigned) over w as b_assigned, lag(pending) over w as b_pending, lead(1) over w is null as latest
                from {rows} window w as (partition by {HOLDER} {ORDER}))
            select * replace ({of_value}), {MISSING} as missing, {adjacent("b_offset")} as adjacent,
                member_epoch as epoch, {changed} as changed
            from a where latest or {changed}""").computed()
    b.carry("holdings", chain.where("latest and not deleted"))
    return events(chain.where("changed"), "topic_id")


def events(changes: Frame, key: str) -> Frame:
    """Returns the events of changes. `key`: the field of a place that identifies its topic. A place is in one or more
    of the four lists, each a bit: 1 and 2 are assigned and pending, 4 and 8 the same before."""
    lists = (*LISTS, *(f"b_{name}" for name in LISTS))
    columns = f"row_number() over () as r, {CHANGE}, {', '.join(lists)}"
    numbered = changes.select(columns).computed()
    parts = " union all ".join(
        f"select r, unnest({name}) as t, {1 << i} as bit from {numbered}" for i, name in enumerate(lists)
    )
    return numbered.query(f"""with parts as ({parts}),
            places as (select r, t.{key} as topic_key, t.topic as topic, unnest(t.partitions) as partition, bit
                from parts),
            a as (select r, topic_key, partition, arg_min(topic, bit) as topic, bit_or(bit) as bits
                from places group by r, topic_key, partition),
            b as (select *, case when bits & 1 > 0 then 'a' when bits & 2 > 0 then 'p' end as now,
                case when bits & 4 > 0 then 'a' when bits & 8 > 0 then 'p' end as before from a),
            c as (select b.*, {", ".join(f"n.{c.strip()}" for c in CHANGE.split(","))}
                from b join {numbered} n on b.r = n.r where now is distinct from before or not adjacent)
            select {PLACE}, topic, member_id,
                unnest(list_filter([case when now is null then 'x' when now is distinct from before then now end,
                    case when now is not null and before is not null and not adjacent then 'k' end],
                    lambda x: x is not null)) as type,
                offset, rec, why, adjacent as exact,
                case when adjacent then offset - 1 else b_offset end as not_before, missing, epoch, b_epoch
            from c""")
