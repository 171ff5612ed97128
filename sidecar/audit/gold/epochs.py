"""Rebalances: each group epoch, or generation of a classic group, from its first record until all members reach it.

The records of a group form one sequence (rebalances.py), without their contents. Running sums over it count the members
and, for each epoch by itself, those that have reached it: an upgraded group has members in its first epoch before the
record that begins it.
"""

from __future__ import annotations

from sidecar.audit.gold.batch import Batch
from sidecar.audit.gold.frames import Frame, by_number, numbers
from sidecar.audit.gold.steps import OF_KIND

NOT_YET = -1
"""No epoch, in columns where null means no row."""


def epochs(b: Batch, rows: Frame, details: Frame) -> Frame:
    """Returns the rebalances of all epochs that were open before or are new. They are proven only where everything is
    known: otherwise there may have been a member without any record left. `rows` and `details`: from rebalances.py."""
    groups = numbers(OF_KIND, "g", rows)
    few = _counted(_numbered(rows, groups)).computed()
    told = _told(few, _numbered(details, groups)).computed()
    found = _grouped(few, told, _began(told, groups), groups).computed()
    b.carry("rebalances", _carried(found))
    return _as_rebalances(found)


def _numbered(rows: Frame, groups: Frame) -> Frame:
    """Returns the rows with a number `g` of the group, and `nth` of the place in its sequence: a classic group's record
    may be there as `p`, as `g` and as `t`, in this order."""
    place = "offset * 4 + case type when 'p' then 1 when 'g' then 2 when 't' then 3 else 0 end"
    return by_number(rows, groups, OF_KIND, "g").select(f"{place} as nth, *").computed()


def _counted(rows: Frame) -> Frame:
    """Returns records that begin an epoch or may end it, and those of members that join and leave. `now`: the group's
    epoch; `live`: number of members; `n`: place of the record that began the epoch, null before the first; `complete`:
    all members have reached the epoch; `who_at`, `prepared_at`, `former_at`: places of what _told joins."""
    # Each change of the number of members in an epoch is a row of that epoch; a record of a member that reaches the
    # epoch it names is that row itself. `settled`: how many members have reached the epoch that the record names.
    # Running sums are of doubles: those of integers have 128 bits and take twice the time. A struct of the record's
    # times would take a quarter more, so only the few records that are left get one.
    counts = "type in ('c', 'g') and epoch is not null"
    kept = "g, nth, type, offset, ms, written_ms, there, epoch, came"
    settled = rows.query(f"""with a as (select {kept}, epoch as at_epoch,
                    case when from_epoch is distinct from to_epoch and to_epoch is not null then d else 0 end as d
                    from {rows} where {counts}
                union all by name select g, nth, from_epoch as at_epoch, -1 as d from {rows}
                    where from_epoch is distinct from to_epoch and from_epoch is not null
                union all by name select g, nth, to_epoch as at_epoch, d from {rows}
                    where from_epoch is distinct from to_epoch and to_epoch is not null and not ({counts}))
            select {kept}, (sum(d::double) over (partition by g, at_epoch order by nth
                    rows between unbounded preceding and current row))::bigint as settled
                from a qualify type is not null
            union all by name select {kept} from {rows} where not ({counts}) and type not in ('c', 'r')""")
    numbered = settled.query(f"""select *, type = 'g' or (type = 'w' and there) as heads,
                last_value(case when type = 'g' or (type = 'w' and there) then nth end ignore nulls) over w as n,
                (sum(came::double) over w)::bigint as live,
                last_value(case when type in ('g', 'w') then case when there then epoch else {NOT_YET} end end
                    ignore nulls) over w as now,
                last_value(case when type in ('m', 'w') then nth end ignore nulls) over w as who_at,
                last_value(case when type in ('p', 'w') then nth end ignore nulls) over w as prepared_at,
                lag(case when type in ('g', 'w') then nth end ignore nulls) over w as former_at,
                lead(1) over w is null as latest
            from {settled}
            window w as (partition by g order by nth rows between unbounded preceding and current row)""")
    return numbered.query(f"""
        select *, struct_pack(offset, ms, written_ms) as rec from (select *, coalesce(live > 0 and settled = live
                and ((type = 'c' and epoch = now) or (type = 'g' and there)), false) as complete from {numbered})
            where heads or complete or latest or type in ('m', 'p', 't', 'w')""")


def _told(few: Frame, details: Frame) -> Frame:
    """Returns the records that begin epochs or complete targets, and each group's last one, with their contents. `who`:
    the last member that joined, changed or left; `p_who`: the last start of a classic group's rebalance, and the last
    such member before it; `former`: the epoch before, or that the last batch carried. Windows over these structs take
    twice the time."""
    who = few.query(f"""select g, nth, case type when 'w' then acc.who else struct_pack(rec, member_id,
                what := case when not there then 'left' when b_there then 'changed' else 'joined' end) end as who
            from {few} join {details} using (g, nth, type) where type in ('m', 'w')""").computed()
    prepared = few.query(f"""select g, f.nth, case type when 'w' then acc.p_who else struct_pack(began, w := who) end
                as p_who from {few} f join {details} d using (g, nth, type)
                left join {who} w on f.g = w.g and who_at = w.nth where type in ('p', 'w')""")
    return few.query(f"""select f.*, d.* exclude (g, nth, type), who, p_who, w_offset, case when b.nth is not null
                then struct_pack(b.there, at := case b.type when 'w' then w_offset else b.offset end) end as former
            from {few} f left join {details} d using (g, nth, type)
                left join {who} w on f.g = w.g and f.who_at = w.nth
                left join {prepared} p on f.g = p.g and f.prepared_at = p.nth
                left join {few} b on f.g = b.g and f.former_at = b.nth
                left join (select g, acc.head_offset as w_offset from {details} where type = 'w') o on f.g = o.g
            where f.heads or f.latest or f.type = 't'""")


HEAD = """struct_pack(epoch, revision, anew, back := coalesce(not anew and epoch <= former_epoch, false), began,
    member_id := case when theirs then m.member_id end, cause := case when theirs then m.what else 'other' end,
    members := cast(live as int), target := null)"""


def _began(told: Frame, groups: Frame) -> Frame:
    """Returns the records that began epochs, with the member that caused each. A generation that was prepared began
    with the record that says so."""
    prepared = "kind = 'classic' and p_who.began.rec.offset > coalesce(former.at, -1)"
    return told.query(f"""with p as (select *, coalesce({prepared}, false) as prepared
                from {told} join {groups} using (g) where heads),
            a as (select * replace (coalesce(acc.head.revision, revision) as revision,
                    case when prepared then p_who.began else began end as began),
                    case when prepared then p_who.w else who end as m from p),
            b as (select *, not coalesce(former.there, false) or coalesce(revision <= lag(revision) over w, false)
                    as anew, lag(epoch) over w as former_epoch,
                coalesce(m.rec.written_ms = began.rec.written_ms and m.rec.offset > coalesce(former.at, -1), false)
                    as theirs
                from a window w as (partition by g order by nth))
            select g, nth, struct_pack(offset, there, head := coalesce(acc.head, {HEAD}),
                done := coalesce(acc.done, false), at := coalesce(acc.head_offset, offset)) as h from b""")


def _grouped(few: Frame, told: Frame, began: Frame, groups: Frame) -> Frame:
    """Returns a row per epoch: for the record that began it, or for what the last batch carried of it."""
    marks = few.query(f"""select g, n as head_at, max(nth) as last_at,
                min(nth) filter (where type = 't' and epoch = now) as target_at,
                min(nth) filter (where complete) as complete_at
            from {few} group by all""")
    return few.query(f"""
        with a as (select m.*, b.h, t.target as t, c.rec as s, lead(b.h.offset) over w as n_offset,
                lead(1) over w is null as latest
            from {marks} m left join {began} b on m.g = b.g and m.head_at = b.nth
                left join {told} t on m.g = t.g and m.target_at = t.nth
                left join {few} c on m.g = c.g and m.complete_at = c.nth
            window w as (partition by m.g order by m.head_at nulls first))
            select {OF_KIND}, a.*, coalesce(h.head.target, t) as target,
                case when kind = 'classic' then t.rec else s end as done, l.live, l.who, l.p_who, l.w_offset
            from a join {groups} n using (g)
            left join {told} l on a.latest and a.g = l.g and a.last_at = l.nth""")


def _as_rebalances(found: Frame) -> Frame:
    return found.query(f"""
        with a as (select {OF_KIND}, unnest(h.head), target as aim, done, n_offset,
                n_offset is not null and done is null as superseded,
                n_offset is null and done is null as open from {found} where h.there and not h.done)
            select *, back as went_back, began.rec as from_rec, began.why as why, aim.rec as target_rec,
                aim.assignor as assignor, aim.moved as partitions_moved, done as settled_rec,
                coalesce(done.offset, n_offset) as until_offset,
                case when anew then began.rec.offset else least(began.rec.offset, aim.since) end as since_offset
            from a""")


def _carried(found: Frame) -> Frame:
    return found.query(f"""
        select {OF_KIND}, struct_pack(head_offset := coalesce(h.at, w_offset), there := coalesce(h.there, false),
                head := case when h.there then struct_update(h.head, target := target) end, live, who, p_who,
                done := h.done or done is not null) as acc
            from {found} where latest and (h.there or live <> 0 or (kind = 'classic' and p_who is not null)
                or who.rec.offset > coalesce(h.at, w_offset, -1))""")


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
    records = f"""select {OF_KIND}, revision, deleted, offset, rec from {groups} union all by name
        select *, 'classic' as kind from {b.valid("classic_groups")}"""
    return lost.query(f"""with old as (select {OF_KIND}, offset from {b.was["births"]}
                where offset = {NEVER} or state_partition not in {lost}
            union all select {OF_KIND}, {NEVER} from (
                select {OF_KIND} from {b.was["people"]} union select {OF_KIND} from {b.was["rebalances"]})
                where state_partition in {lost}),
            last as (select state_partition, max(until_offset) as until_offset,
                arg_max(written_ms, until_offset) as written_ms from {b.cuts} group by all),
            new as (select {OF_KIND}, offset from ({records}) r join last c using (state_partition)
                where offset >= until_offset and r.rec.written_ms <> c.written_ms and revision = 1 and not deleted)
            select {OF_KIND}, case when max(offset) = {NEVER} then {NEVER} else min(offset) end as offset
            from (select * from old union all select * from new) group by all""").computed()
