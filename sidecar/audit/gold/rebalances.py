"""Rebalances: each group epoch, or generation of a classic group, from the record that began it until all have come.

The records of a group stand in one line, without what they hold, so that running sums tell how many members there are
and, for each epoch by itself, how many of them have reached it: an upgraded group has members in its first epoch before
the record that begins it.
"""

from __future__ import annotations

from typing import NamedTuple

from sidecar.audit.gold.frames import Frame, done, pack, sql
from sidecar.audit.gold.holdings import MEMBER
from sidecar.audit.gold.steps import ORDER, graded

GROUP = "state_partition, group_id, kind"
REC = pack("offset, ms, written_ms, why")
NOT_YET = -1
"""Stands for no epoch where null says that there is nothing."""
LOGGED = pack("offset, ms = log_ms, written_ms, why")


class Line(NamedTuple):
    """`rows`: types `m` member came or went, `c` a current assignment, `g` the group, `t` a target of an epoch."""

    rows: Frame
    reached: Frame
    """How many members the last batch left in each epoch."""
    people: Frame
    """Of each member whether it is one, and which epoch it has reached."""


def people(current: Frame, members: Frame, classic_members: Frame, was: Frame) -> Line:
    """What each record of a member changes: how many there are, and from and to which epoch it has come. `was`: what
    the last batch left of each member."""
    rows = sql(
        f"""select state_partition, group_id, 'consumer' as kind, member_id, offset, log_ms, written_ms, 'c' as type,
                not deleted as there, case when not deleted and state = 'STABLE' and len(pending) = 0
                    then member_epoch end as reached, false as carried from {{current}}
            union all select state_partition, group_id, 'consumer', member_id, offset, log_ms, written_ms, 'm',
                not deleted, null, false from {{members}}
            union all select state_partition, group_id, 'classic', member_id, offset, log_ms, written_ms, 'm',
                not deleted, null, false from {{classic_members}}
            union all select {GROUP}, member_id, -1, null, null, 'm', true, null, true from {{was}} where member
            union all select {GROUP}, member_id, -2, null, null, 'c', true, reached, true from {{was}}""",
        current=current,
        members=members,
        classic_members=classic_members,
        was=was,
    )
    chain = sql(
        f"""select *, coalesce(last_value(case when type = 'm' then there end ignore nulls) over earlier, false)
                    as b_there,
                last_value(case when type = 'c' then coalesce(reached, {NOT_YET}) end ignore nulls) over earlier
                    as b_reached
            from {{rows}} window earlier as (partition by {GROUP}, member_id {ORDER}
                rows between unbounded preceding and 1 preceding)""",
        rows=rows,
    )
    line = sql(
        f"""select {GROUP}, member_id, offset, log_ms, written_ms, type, there, b_there, reached,
                case when type = 'm' then cast(there as int) - cast(b_there as int) else 0 end as came,
                case when b_there then nullif(b_reached, {NOT_YET}) end as from_epoch,
                case when type = 'c' and b_there then reached
                    when type = 'm' and there then nullif(b_reached, {NOT_YET}) end as to_epoch
            from {{chain}} where not carried""",
        chain=chain,
    )
    reached = sql(
        f"""select {GROUP}, reached as epoch, count(*) as members from {{was}} where member and reached is not null
            group by {GROUP}, reached""",
        was=was,
    )
    left = sql(
        f"""select {GROUP}, member_id, coalesce(m.there, false) as member, c.reached from (
                select {GROUP}, member_id, arg_max(struct_pack(there := there), offset) filter (where type = 'm') as m,
                    arg_max(struct_pack(reached := reached), offset) filter (where type = 'c') as c
                    from {{rows}} group by {GROUP}, member_id)
            where m.there or c.reached is not null""",
        rows=rows,
    )
    return Line(done(line), reached, left)


MOVED = "not carried and partitions is distinct from b_partitions"


class Moves(NamedTuple):
    targets: Frame
    """Of each target that is complete: how many partitions it gives to somebody else, `since` the one before it."""
    last: Frame
    pending: Frame
    """Changes since the last complete target."""
    latest: Frame
    """The last complete target of each group."""


def moves(target_members: Frame, targets: Frame, was: Frame, pending: Frame, before: Frame) -> Moves:
    """Of consumer groups. `before`: the last complete target of each so far."""
    rows = sql(
        f"""select {MEMBER}, offset, deleted, partitions, false as carried from {{target_members}}
            union all select {MEMBER}, offset, false, partitions, true from {{was}}""",
        target_members=target_members,
        was=was,
    )
    chain = done(
        sql(
            f"""select *, lag(partitions) over w as b_partitions, lead(1) over w is null as latest
                from {{rows}} window w as (partition by {MEMBER} {ORDER})""",
            rows=rows,
        ).where("latest or partitions is distinct from b_partitions")
    )
    changes = sql(
        f"""with a as (select {MEMBER}, offset, unnest(partitions) as t, 1 as gain from {{chain}} where {MOVED}
                union all select {MEMBER}, offset, unnest(b_partitions), -1 from {{chain}} where {MOVED}),
            b as (select {MEMBER}, offset, t.topic_id as topic_id, unnest(t.partitions) as partition, gain from a)
            select {MEMBER}, offset, sum(gain)::int as gain, concat(partition, '|', topic_id) as place from b
                group by {MEMBER}, offset, topic_id, partition having sum(gain) <> 0
            union all select {MEMBER}, offset, gain, place from {{pending}}""",
        chain=chain,
        pending=pending,
    )
    numbered = sql(
        f"""select *, coalesce(sum(is_target) over (partition by state_partition, group_id order by offset
                    rows between unbounded preceding and 1 preceding), 0)::bigint as n from (
                select {MEMBER}, offset, gain, place, 0 as is_target from {{changes}}
                union all select state_partition, group_id, null, offset, 0, null, 1 from {{targets}}
                    where not deleted)""",
        changes=changes,
        targets=targets,
    )
    numbered = done(numbered)
    counted = sql(
        """with a as (select state_partition, group_id, n, member_id, place, sum(gain) as net,
                    max(case when is_target = 1 then offset end) as target
                from {numbered} group by state_partition, group_id, n, member_id, place),
            b as (select state_partition, group_id, n, max(target) as target_offset,
                    count(distinct case when net > 0 then place end) as moved from a group by 1, 2, 3)
            select b.state_partition, b.group_id, target_offset, moved, coalesce(lag(target_offset) over
                    (partition by b.state_partition, b.group_id order by n), l.offset, 0) as since
                from b left join {before} l on b.state_partition = l.state_partition and b.group_id = l.group_id
                where target_offset is not null""",
        numbered=numbered,
        before=before,
    )
    latest = sql(
        """select state_partition, group_id, max(offset) as offset from (
                select state_partition, group_id, offset, deleted from {targets}
                union all select state_partition, group_id, offset, false from {before})
            group by state_partition, group_id having not arg_max(deleted, offset)""",
        targets=targets,
        before=before,
    )
    left = sql(f"select {MEMBER}, offset, partitions from {{chain}} where latest and not deleted", chain=chain)
    waiting = sql(
        f"""select {MEMBER}, offset, gain, place from {{numbered}} c anti join (
                select state_partition, group_id, max(offset) as last from {{numbered}} where is_target = 1
                group by state_partition, group_id) t
                on c.state_partition = t.state_partition and c.group_id = t.group_id and c.offset < t.last
            where is_target = 0""",
        numbered=numbered,
    )
    return Moves(counted, left, waiting, latest)


class Steps(NamedTuple):
    rows: Frame
    """`p` a rebalance of a classic group began, `g` a generation, or the group went, `t` its assignments are there."""
    last: Frame


def classic_steps(groups: Frame, moved: Frame, was: Frame) -> Steps:
    """`moved`: how many partitions came to somebody by each record. A generation begins with the record that ends the
    join phase; its rebalance began with the PreparingRebalance before it."""
    one = "state_partition, group_id"
    rows = sql(
        f"""select {one}, offset, log_ms as ms, written_ms, why, deleted, state, generation, assigned_generation,
            protocol,
                null as acc from {{groups}}
            union all select {one}, offset, null, null, null, false, state, null, null, null, acc from {{was}}""",
        groups=groups,
        was=was,
    )
    chain = sql(
        f"""with a as (select *, coalesce(state = 'PreparingRebalance', false) as prepares,
                {REC} as rec, lag(state) over w as b_state
                from {{rows}} window w as (partition by {one} {ORDER})),
            b as (select *, prepares and acc is null and b_state is distinct from 'PreparingRebalance' as begins,
                last_value(case when acc is not null then struct_pack(e := acc.generation)
                    when deleted then struct_pack(e := null::int)
                    when not prepares then struct_pack(e := generation) end ignore nulls) over earlier as former
                from a window earlier as (partition by {one} {ORDER} rows between unbounded preceding
                    and 1 preceding)),
            c as (select *, acc is null and not deleted and not prepares and former.e is distinct from generation as turns
                from b),
            d as (select *, last_value(case when acc is not null then acc.began when begins then rec end
                ignore nulls) over w as prep,
                max(case when acc is not null then acc.head when turns or deleted then offset end) over w as head,
                max(case when acc is not null then acc.head when turns or deleted then offset end) over earlier
                    as b_head, lead(1) over w is null as latest
                from c window w as (partition by {one} {ORDER}), earlier as (partition by {one} {ORDER}
                    rows between unbounded preceding and 1 preceding))
            select * from d""",
        rows=rows,
    )
    chain = done(chain)
    made = sql(
        f"""with a as (select c.*, coalesce(m.moved, 0) as moved from {{chain}} c left join {{moved}} m
                on c.state_partition = m.state_partition and c.group_id = m.group_id and c.offset = m.offset
                where acc is null)
            select {one}, 'classic' as kind, offset, ms as log_ms, written_ms, why, type, not deleted as there,
                generation as epoch, case when type = 'g' then case when prep.offset > coalesce(b_head, -1) then prep
                    else rec end end as began,
                case when type = 't' then {pack("offset, ms, written_ms, assignor = protocol, moved, since = offset")} end as target
            from (select *, unnest(list_filter([case when begins then 'p' end, case when turns or deleted then 'g' end,
                case when state = 'Stable' and assigned_generation = generation then 't' end],
                lambda x: x is not null)) as type from a)""",
        chain=chain,
        moved=moved,
    )
    left = sql(
        f"""select {one}, offset, state, struct_pack(generation := coalesce(case when acc is null and not prepares then generation
                end, acc.generation, former.e), began := prep, head := head) as acc
            from {{chain}} where latest and not deleted""",
        chain=chain,
    )
    return Steps(made, left)


def rebalances(
    line: Line,
    groups: Frame,
    targets: Frame | None,
    moved: Frame | None,
    classic: Frame | None,
    was: Frame,
) -> Frame:
    """`classic`: of `classic_steps`; `was`: what the last batch left. None: there is nothing of the kind."""
    frames = {"line": line.rows, "reached": line.reached, "groups": groups, "was": was}
    no = "0 as came, null as from_epoch, null as to_epoch, 0 as d"
    rows = f"""select {GROUP}, offset, type, log_ms as ms, written_ms, there, reached as epoch, came, from_epoch, to_epoch,
                1 as d from {{line}}
            union all select state_partition, group_id, 'consumer', offset, 'g', log_ms, written_ms, not deleted, epoch,
                {no} from {{groups}}
            union all select {GROUP}, -1, 'w', null, null, acc.there, acc.head.epoch, acc.live, null, null, 0 from {{was}}
            union all select {GROUP}, -2, 'r', null, null, true, null, 0, null, epoch, members from {{reached}}"""
    said = f"""select {GROUP}, offset, type, member_id, b_there, null as began, null as target, null as acc from {{line}}
                where type = 'm'
            union all select state_partition, group_id, 'consumer', offset, 'g', null, null, {LOGGED}, null, null
                from {{groups}}
            union all select {GROUP}, -1, 'w', null, null, null, null, acc from {{was}}"""
    if targets is not None and moved is not None:
        frames |= {"targets": targets, "moved": moved}
        rows += f"""
            union all select state_partition, group_id, 'consumer', offset, 't', log_ms, written_ms, true, epoch, {no}
                from {{targets}} where not deleted"""
        said += f"""
            union all select t.state_partition, t.group_id, 'consumer', t.offset, 't', null, null, null,
                {pack("offset = t.offset, ms = log_ms, written_ms, assignor, moved, since")}, null
                from {{targets}} t left join {{moved}} m on t.state_partition = m.state_partition
                    and t.group_id = m.group_id and t.offset = m.target_offset where not deleted"""
    if classic is not None:
        frames["classic"] = classic
        rows += f"""
            union all select {GROUP}, offset, type, log_ms, written_ms, there, epoch, {no} from {{classic}}"""
        said += f"""
            union all select {GROUP}, offset, type, null, null, began, target, null from {{classic}}"""
    told = sql(rows, **frames)
    groups = done(sql(f"select row_number() over () as g, * from (select distinct {GROUP} from {{rows}})", rows=told))
    return _grouped(_counted(_numbered(told, groups)), _numbered(sql(said, **frames), groups), groups)


def _numbered(rows: Frame, groups: Frame) -> Frame:
    """With a number `g` for the group, and one for the place in its line, `nth`: a record of a classic group may be there
    as `p`, as `g` and as `t`, in this order. Windows over numbers take half the time."""
    return done(
        sql(
            f"""select g, offset * 4 + case type when 'p' then 1 when 'g' then 2 when 't' then 3 else 0 end as nth,
                    r.* exclude ({GROUP})
                from {{rows}} r join {{groups}} n on r.state_partition = n.state_partition and r.group_id = n.group_id
                    and r.kind = n.kind""",
            rows=rows,
            groups=groups,
        )
    )


def _counted(rows: Frame) -> Frame:
    """Records that begin something or may end it, and those of members who come and go. `now`: the group's epoch;
    `live`: how many members there are; `n` counts epochs; `complete`: all members have reached the epoch."""
    # A turn is sorted into its epoch without the record that made it, and a member's record that reaches no epoch makes
    # only turns. `settled`: how many members have reached the epoch that the record names.
    counts = "type in ('c', 'g') and epoch is not null"
    kept = "g, nth, type, offset, ms, written_ms, there, epoch, came"
    settled = sql(
        f"""with a as (select {kept}, epoch as at_epoch, 0 as d from {{rows}} where {counts}
                union all select g, nth, null, null, null, null, null, null, 0, from_epoch, -1 from {{rows}}
                    where from_epoch is distinct from to_epoch and from_epoch is not null
                union all select g, nth, null, null, null, null, null, null, 0, to_epoch, d from {{rows}}
                    where from_epoch is distinct from to_epoch and to_epoch is not null),
            b as (select {kept}, sum(d) over (partition by g, at_epoch order by nth)::bigint as settled from a)
            select * from b where type is not null
            union all select {kept}, null from {{rows}} where not ({counts}) and type not in ('c', 'r')""",
        rows=rows,
    )
    numbered = sql(
        f"""select *, type = 'g' or (type = 'w' and there) as heads,
                (sum(cast(type = 'g' or (type = 'w' and there) as int)) over w)::bigint as n,
                (sum(came) over w)::bigint as live,
                last_value(case when type in ('g', 'w') then case when there then epoch else {NOT_YET} end end
                    ignore nulls) over w as now,
                lead(1) over w is null as latest
            from {{rows}} window w as (partition by g order by nth rows between unbounded preceding and current row)""",
        rows=settled,
    )
    few = sql(
        """select * from (select *, coalesce(live > 0 and settled = live
                and ((type = 'c' and epoch = now) or (type = 'g' and there)), false) as complete from {rows})
            where heads or complete or latest or type in ('m', 'p', 't', 'w')""",
        rows=numbered,
    )
    return done(
        sql(
            """select *, last_value(case when type in ('m', 'w') then nth end ignore nulls) over w as who_at,
                last_value(case when type in ('p', 'w') then nth end ignore nulls) over w as prepared_at,
                lag(case when heads or type = 'w' then nth end ignore nulls) over w as former_at
            from {few} window w as (partition by g order by nth rows between unbounded preceding and current row)""",
            few=few,
        )
    )


HEAD = """struct_pack(epoch := epoch, anew := not coalesce(former_there, false), began := began,
    member_id := case when theirs then m.member_id end, cause := case when theirs then m.what else 'other' end,
    members := cast(live as int), target := null)"""
KEPT = pack(
    "epoch = h.head.epoch, anew = h.head.anew, began = h.head.began, member_id = h.head.member_id,"
    " cause = h.head.cause, members = h.head.members, target = target"
)


def _grouped(few: Frame, said: Frame, groups: Frame) -> Frame:
    """A row per head: the record that began the epoch, or what the last batch left of it; `n` is 0 before the first."""
    who = done(
        sql(
            """select f.g, f.nth, case when f.type = 'w' then s.acc.who else struct_pack(offset := f.offset,
                    written_ms := f.written_ms, member_id := s.member_id, what := case when not f.there then 'left'
                    when s.b_there then 'changed' else 'joined' end) end as who
                from {few} f join {said} s on f.g = s.g and f.nth = s.nth where f.type in ('m', 'w')""",
            few=few,
            said=said,
        )
    )
    prepared = done(
        sql(
            """select f.g, f.nth, case when f.type = 'w' then s.acc.p_who
                    else struct_pack(offset := f.offset, w := w.who) end as p_who
                from {few} f join {said} s on f.g = s.g and f.nth = s.nth
                    left join {who} w on f.g = w.g and f.who_at = w.nth where f.type in ('p', 'w')""",
            few=few,
            said=said,
            who=who,
        )
    )
    # Heads are numbered from 1, and what comes before the first is of number 0.
    marks = sql(
        """select g, n, max(nth) filter (where heads) as head_at, max(nth) as last_at,
                min(nth) filter (where type = 't' and epoch = now) as target_at,
                min(nth) filter (where complete) as complete_at
            from {few} group by g, n""",
        few=few,
    )
    began = sql(
        f"""with a as (select h.*, s.acc, s.began, case when p.p_who.offset = s.began.offset and n.kind = 'classic'
                    then p.p_who.w else w.who end as m
                from {{few}} h join {{said}} s on h.g = s.g and h.nth = s.nth join {{groups}} n on h.g = n.g
                    left join {{who}} w on h.g = w.g and h.who_at = w.nth
                    left join {{prepared}} p on h.g = p.g and h.prepared_at = p.nth where h.heads),
            b as (select h.*, f.there as former_there, coalesce(m.written_ms = h.began.written_ms
                    and m.offset > coalesce(case when f.type = 'w' then fs.acc.head_offset else f.offset end, -1), false)
                    as theirs
                from a h left join {{few}} f on h.g = f.g and h.former_at = f.nth
                    left join {{said}} fs on f.type = 'w' and h.g = fs.g and h.former_at = fs.nth)
            select g, nth, struct_pack(offset := offset, there := there, head := coalesce(acc.head, {HEAD}),
                done := coalesce(acc.done, false), at := coalesce(acc.head_offset, offset)) as h from b""",
        few=few,
        said=said,
        groups=groups,
        who=who,
        prepared=prepared,
    )
    return sql(
        f"""with a as (select m.*, b.h, t.target as t, case when c.nth is not null then
                    {pack("offset = c.offset, ms = c.ms, written_ms = c.written_ms")} end as s,
                    lead(b.h.offset) over w as n_offset, lead(1) over w is null as latest
                from {{marks}} m left join {{began}} b on m.g = b.g and m.head_at = b.nth
                    left join {{said}} t on m.g = t.g and m.target_at = t.nth
                    left join {{few}} c on m.g = c.g and m.complete_at = c.nth
                window w as (partition by m.g order by m.n))
            select {GROUP}, a.*, coalesce(h.head.target, t) as target, case when kind = 'classic' then
                    (case when t is not null then {pack("offset = t.offset, ms = t.ms, written_ms = t.written_ms")} end)
                    else s end as done,
                l.live, w.who, p.p_who, o.acc.head_offset as w_offset
            from a join {{groups}} n on a.g = n.g
                left join {{few}} l on a.latest and a.g = l.g and a.last_at = l.nth
                left join {{who}} w on l.g = w.g and l.who_at = w.nth
                left join {{prepared}} p on l.g = p.g and l.prepared_at = p.nth
                left join (select g, acc from {{said}} where type = 'w') o on a.g = o.g""",
        few=few,
        said=said,
        groups=groups,
        marks=marks,
        began=began,
        who=who,
        prepared=prepared,
    )


def as_rebalances(found: Frame, whole: Frame) -> Frame:
    """Of all epochs that were open before or are new. They are proven only where everything is known: otherwise there
    may have been a member of whom nothing is left."""
    rows = sql(
        f"""with a as (select {GROUP}, h.head.epoch, h.head.anew, h.head.began, h.head.cause, h.head.member_id,
                h.head.members, target as aim, done, n_offset, n_offset is not null and done is null as superseded,
                n_offset is null and done is null as open from {{found}} where h.there and not h.done)
            select state_partition, group_id, kind, epoch, anew, began.offset as from_offset, began.ms as from_ms,
                began.written_ms as from_written_ms, began.why, cause, member_id, members,
                aim.offset as target_offset, aim.ms as target_ms, aim.written_ms as target_written_ms,
                aim.assignor, aim.moved as partitions_moved, done.offset as settled_offset,
                done.ms as settled_ms, done.written_ms as settled_written_ms, superseded, open,
                coalesce(done.offset, n_offset) as until_offset,
                case when anew then began.offset else least(began.offset, aim.since) end as since_offset from a""",
        found=found,
    )
    return graded(rows, whole, "since_offset", "until_offset")


def left(found: Frame) -> Frame:
    return sql(
        f"""select {GROUP}, struct_pack(head_offset := coalesce(h.at, w_offset), there := coalesce(h.there, false),
                head := case when h.there then {KEPT} end, live := live, who := who, p_who := p_who,
                done := h.done or done is not null) as acc
            from {{found}} where latest and (h.there or live <> 0 or (kind = 'classic' and p_who is not null)
                or who.offset > coalesce(h.at, w_offset, -1))""",
        found=found,
    )
