"""Rebalances: each group epoch, or generation of a classic group, from its first record until all members reach it.

The records of a group form one sequence (rebalances.py), without their contents. Running sums over it count the members
and, for each epoch by itself, those that have reached it: an upgraded group has members in its first epoch before the
record that begins it.
"""

from __future__ import annotations

from sidecar.audit.gold.batch import Batch
from sidecar.audit.gold.frames import Frame, by_number, numbers, pack

GROUP = "state_partition, group_id, kind"
NOT_YET = -1
"""No epoch, in columns where null means no row."""
TIMES_OF_AIM = pack("offset = t.offset, ms = t.ms, written_ms = t.written_ms")
TIMES_OF_LAST = pack("offset = c.offset, ms = c.ms, written_ms = c.written_ms")


def epochs(b: Batch, rows: Frame, details: Frame) -> Frame:
    """Returns the rebalances of all epochs that were open before or are new. They are proven only where everything is
    known: otherwise there may have been a member without any record left. `rows` and `details`: from rebalances.py."""
    groups = numbers(GROUP, "g", rows)
    found = _grouped(_counted(_numbered(rows, groups)), _numbered(details, groups), groups).computed()
    b.carry("rebalances", _carried(found))
    return _as_rebalances(found)


def _numbered(rows: Frame, groups: Frame) -> Frame:
    """Returns the rows with a number `g` of the group, and `nth` of the place in its sequence: a classic group's record
    may be there as `p`, as `g` and as `t`, in this order."""
    place = "offset * 4 + case type when 'p' then 1 when 'g' then 2 when 't' then 3 else 0 end"
    return by_number(rows, groups, GROUP, "g").select(f"{place} as nth, *").computed()


def _counted(rows: Frame) -> Frame:
    """Returns records that begin an epoch or may end it, and those of members that join and leave. `now`: the group's
    epoch; `live`: number of members; `n`: place of the record that began the epoch, null before the first; `complete`:
    all members have reached the epoch."""
    # Each change of the number of members in an epoch is a row of that epoch; a record of a member that reaches the
    # epoch it names is that row itself. `settled`: how many members have reached the epoch that the record names.
    # Running sums are of doubles: those of integers have 128 bits and take twice the time.
    counts = "type in ('c', 'g') and epoch is not null"
    kept = "g, nth, type, offset, ms, written_ms, there, epoch, came"
    settled = rows.query(f"""with a as (select {kept}, epoch as at_epoch,
                    case when from_epoch is distinct from to_epoch and to_epoch is not null then d else 0 end as d
                    from {rows} where {counts}
                union all select g, nth, null, null, null, null, null, null, 0, from_epoch, -1 from {rows}
                    where from_epoch is distinct from to_epoch and from_epoch is not null
                union all select g, nth, null, null, null, null, null, null, 0, to_epoch, d from {rows}
                    where from_epoch is distinct from to_epoch and to_epoch is not null and not ({counts})),
            b as (select {kept}, (sum(d::double) over (partition by g, at_epoch order by nth
                    rows between unbounded preceding and current row))::bigint as settled from a)
            select * from b where type is not null
            union all select {kept}, null from {rows} where not ({counts}) and type not in ('c', 'r')""")
    numbered = settled.query(f"""select *, type = 'g' or (type = 'w' and there) as heads,
                last_value(case when type = 'g' or (type = 'w' and there) then nth end ignore nulls) over w as n,
                (sum(came::double) over w)::bigint as live,
                last_value(case when type in ('g', 'w') then case when there then epoch else {NOT_YET} end end
                    ignore nulls) over w as now,
                lead(1) over w is null as latest
            from {settled}
            window w as (partition by g order by nth rows between unbounded preceding and current row)""")
    few = numbered.query(f"""
        select * from (select *, coalesce(live > 0 and settled = live
                and ((type = 'c' and epoch = now) or (type = 'g' and there)), false) as complete from {numbered})
            where heads or complete or latest or type in ('m', 'p', 't', 'w')""")
    return few.query(f"""
        select *, last_value(case when type in ('m', 'w') then nth end ignore nulls) over w as who_at,
                last_value(case when type in ('p', 'w') then nth end ignore nulls) over w as prepared_at,
                lag(case when heads or type = 'w' then nth end ignore nulls) over w as former_at
            from {few}
            window w as (partition by g order by nth rows between unbounded preceding and current row)""").computed()


HEAD = """struct_pack(epoch := epoch, revision := revision, anew := anew,
    back := coalesce(not anew and epoch <= former_epoch, false), began := began,
    member_id := case when theirs then m.member_id end, cause := case when theirs then m.what else 'other' end,
    members := cast(live as int), target := null)"""
KEPT = pack(
    "epoch = h.head.epoch, revision = h.head.revision, anew = h.head.anew, back = h.head.back,"
    " began = h.head.began, member_id = h.head.member_id,"
    " cause = h.head.cause, members = h.head.members, target = target"
)


def _people(few: Frame, details: Frame) -> tuple[Frame, Frame]:
    """Returns causes of epochs, by the place in a group's sequence (`nth`): the member that joined, changed or left
    there; the start of a classic group's rebalance, and the last such member before it."""
    who = few.query(f"""select g, nth, case when f.type = 'w' then s.acc.who else struct_pack(offset := f.offset,
                written_ms := f.written_ms, member_id := s.member_id, what := case when not f.there then 'left'
                when s.b_there then 'changed' else 'joined' end) end as who
            from {few} f join {details} s using (g, nth) where f.type in ('m', 'w')""").computed()
    prepared = few.query(f"""select f.g, f.nth, case when f.type = 'w' then s.acc.p_who
                else struct_pack(offset := f.offset, w := w.who) end as p_who
            from {few} f join {details} s using (g, nth)
                left join {who} w on f.g = w.g and f.who_at = w.nth where f.type in ('p', 'w')""")
    return who, prepared.computed()


def _began(few: Frame, details: Frame, groups: Frame, who: Frame, prepared: Frame) -> Frame:
    """Returns the records that began epochs, with the member that caused each."""
    return few.query(f"""with a as (select h.*, s.acc, s.began, coalesce(s.acc.head.revision, s.revision) as revision,
                    case when p.p_who.offset = s.began.offset and n.kind = 'classic'
                    then p.p_who.w else w.who end as m
                from {few} h join {details} s using (g, nth) join {groups} n using (g)
                    left join {who} w on h.g = w.g and h.who_at = w.nth
                    left join {prepared} p on h.g = p.g and h.prepared_at = p.nth where h.heads),
            b as (select h.*, not coalesce(f.there, false) or coalesce(h.revision <= lag(h.revision) over w, false)
                    as anew,
                lag(h.epoch) over w as former_epoch, coalesce(m.written_ms = h.began.written_ms
                    and m.offset > coalesce(case when f.type = 'w' then fs.acc.head_offset else f.offset end, -1),
                    false) as theirs
                from a h left join {few} f on h.g = f.g and h.former_at = f.nth
                    left join {details} fs on f.type = 'w' and h.g = fs.g and h.former_at = fs.nth
                window w as (partition by h.g order by h.nth))
            select g, nth, struct_pack(offset := offset, there := there, head := coalesce(acc.head, {HEAD}),
                done := coalesce(acc.done, false), at := coalesce(acc.head_offset, offset)) as h from b""")


def _grouped(few: Frame, details: Frame, groups: Frame) -> Frame:
    """Returns a row per epoch: for the record that began it, or for what the last batch carried of it."""
    who, prepared = _people(few, details)
    marks = few.query(f"""select g, n as head_at, max(nth) as last_at,
                min(nth) filter (where type = 't' and epoch = now) as target_at,
                min(nth) filter (where complete) as complete_at
            from {few} group by all""")
    began = _began(few, details, groups, who, prepared)
    return few.query(f"""
        with a as (select m.*, b.h, t.target as t, case when c.nth is not null then {TIMES_OF_LAST} end as s,
                lead(b.h.offset) over w as n_offset, lead(1) over w is null as latest
            from {marks} m left join {began} b on m.g = b.g and m.head_at = b.nth
                left join {details} t on m.g = t.g and m.target_at = t.nth
                left join {few} c on m.g = c.g and m.complete_at = c.nth
            window w as (partition by m.g order by m.head_at nulls first))
            select {GROUP}, a.*, coalesce(h.head.target, t) as target, case when kind = 'classic' then
                (case when t is not null then {TIMES_OF_AIM} end) else s end as done,
            l.live, w.who, p.p_who, o.acc.head_offset as w_offset
            from a join {groups} n using (g)
            left join {few} l on a.latest and a.g = l.g and a.last_at = l.nth
            left join {who} w on l.g = w.g and l.who_at = w.nth
            left join {prepared} p on l.g = p.g and l.prepared_at = p.nth
            left join (select g, acc from {details} where type = 'w') o on a.g = o.g""")


def _as_rebalances(found: Frame) -> Frame:
    return found.query(f"""
        with a as (select {GROUP}, unnest(h.head), target as aim, done, n_offset,
                n_offset is not null and done is null as superseded,
                n_offset is null and done is null as open from {found} where h.there and not h.done)
            select *, back as went_back, began.offset as from_offset, began.ms as from_ms,
                began.written_ms as from_written_ms, began.why as why, aim.offset as target_offset,
                aim.ms as target_ms, aim.written_ms as target_written_ms, aim.assignor as assignor,
                aim.moved as partitions_moved, done.offset as settled_offset, done.ms as settled_ms,
                done.written_ms as settled_written_ms, coalesce(done.offset, n_offset) as until_offset,
                case when anew then began.offset else least(began.offset, aim.since) end as since_offset from a""")


def _carried(found: Frame) -> Frame:
    return found.query(f"""
        select {GROUP}, struct_pack(head_offset := coalesce(h.at, w_offset), there := coalesce(h.there, false),
                head := case when h.there then {KEPT} end, live := live, who := who, p_who := p_who,
                done := h.done or done is not null) as acc
            from {found} where latest and (h.there or live <> 0 or (kind = 'classic' and p_who is not null)
                or who.offset > coalesce(h.at, w_offset, -1))""")


NEVER = 9223372036854775807
"""Birth of a group that existed before a part of the log was lost: which of its members left then is unknown."""


def births(b: Batch, groups: Frame) -> Frame:
    """Returns the offset from which everything of a group was read, although a part of its state partition was not.
    `groups`: records of those with epochs.

    Compaction keeps the last record of each key, so it leaves every current member visible. Offsets that were never
    read hide members, and members that left, without any record behind them. So the number of a group's members, and
    whether all have settled, is known only for a group that began later: its own record has revision 1, and the turn
    that wrote that record was read as a whole."""
    lost = b.cuts.query(f"select distinct state_partition from {b.cuts} where is_new and from_offset > 0")
    records = f"""select {GROUP}, revision, deleted, offset, written_ms from {groups} union all by name
        select *, 'classic' as kind from {b.valid("classic_groups")}"""
    return lost.query(f"""with old as (select {GROUP}, offset from {b.was["births"]}
                where offset = {NEVER} or state_partition not in {lost}
            union all select {GROUP}, {NEVER} from (
                select {GROUP} from {b.was["people"]} union select {GROUP} from {b.was["rebalances"]})
                where state_partition in {lost}),
            last as (select state_partition, max(until_offset) as until_offset,
                arg_max(written_ms, until_offset) as written_ms from {b.cuts} group by all),
            new as (select {GROUP}, offset from ({records}) r join last c using (state_partition)
                where offset >= until_offset and r.written_ms <> c.written_ms and revision = 1 and not deleted)
            select {GROUP}, case when max(offset) = {NEVER} then {NEVER} else min(offset) end as offset
            from (select * from old union all select * from new) group by all""").computed()
