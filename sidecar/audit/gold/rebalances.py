"""Rebalances: each group epoch, or generation of a classic group, from the record that began it until all have come.

The records of a group stand in one line, without what they hold, so that running sums tell how many members there are
and, for each epoch by itself, how many of them have reached it: an upgraded group has members in its first epoch before
the record that begins it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sidecar.audit.gold.holdings import MEMBER, keys
from sidecar.audit.gold.steps import ORDER, done, graded, quick, sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

GROUP = "state_partition, group_id, kind"
REC = "struct<offset: bigint, ms: bigint, written_ms: bigint, why: string>"
WHO = "struct<offset: bigint, written_ms: bigint, member_id: string, what: string>"
TARGET = "struct<offset: bigint, ms: bigint, written_ms: bigint, assignor: string, moved: bigint>"
TIMES = "struct<offset: bigint, ms: bigint, written_ms: bigint>"


class Line(NamedTuple):
    """`rows`: types `m` member came or went, `c` a current assignment, `g` the group, `t` a target of an epoch."""

    rows: DataFrame
    reached: DataFrame
    """How many members the last batch left in each epoch."""
    people: DataFrame
    """Of each member whether it is one, and which epoch it has reached."""


def people(current: DataFrame, members: DataFrame, classic_members: DataFrame, was: DataFrame) -> Line:
    """What each record of a member changes: how many there are, and from and to which epoch it has come. `was`: what
    the last batch left of each member."""
    rows = sql(
        f"""select state_partition, group_id, 'consumer' as kind, member_id, offset, log_ms, written_ms, 'c' as type,
                not deleted as there, case when not deleted and state = 'STABLE' and size(pending) = 0
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
        f"""with a as (select *, coalesce(last(case when type = 'm' then there end, true) over earlier,
            false) as b_there,
                last(case when type = 'c' then struct(reached) end, true) over earlier as b_reached
                from {{rows}} window earlier as (partition by
                    {quick(GROUP + ", member_id")} {ORDER} rows between unbounded preceding
                        and 1 preceding))
            select * from a""",
        rows=rows,
    )
    line = sql(
        f"""select {GROUP}, member_id, offset, log_ms, written_ms, type, there, b_there,
                case when type = 'm' then cast(there as int) - cast(b_there as int) else 0 end as came, reached,
                case when b_there then b_reached.reached end as from_epoch,
                case when type = 'c' and b_there then reached when type = 'm' and there then b_reached.reached end
                    as to_epoch
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
                select {GROUP}, member_id, max(case when type = 'm' then struct(offset, there) end) as m,
                    max(case when type = 'c' then struct(offset, reached) end) as c
                    from {{rows}} group by {GROUP}, member_id)
            where m.there or c.reached is not null""",
        rows=rows,
    )
    return Line(line, reached, left)


class Moves(NamedTuple):
    targets: DataFrame
    """Of each target that is complete: how many partitions it gives to somebody else."""
    last: DataFrame
    pending: DataFrame
    """Changes since the last complete target."""


def moves(target_members: DataFrame, targets: DataFrame, was: DataFrame, pending: DataFrame) -> Moves:
    """Of consumer groups."""
    rows = sql(
        f"""select {MEMBER}, offset, deleted, partitions, false as carried from {{target_members}}
            union all select {MEMBER}, offset, false, partitions, true from {{was}}""",
        target_members=target_members,
        was=was,
    )
    chain = done(
        sql(
            f"""select *, lag(partitions) over w as b_partitions, lead(1) over w is null as latest
                from {{rows}} window w as (partition by {quick(MEMBER)} {ORDER})""",
            rows=rows,
        ).where("latest or not partitions <=> b_partitions")
    )
    changes = sql(
        f"""with a as (select {MEMBER}, offset, coalesce({keys("partitions", "topic_id")}, array()) as k,
                coalesce({keys("b_partitions", "topic_id")}, array()) as bk from {{chain}}
                where not carried and not partitions <=> b_partitions)
            select {MEMBER}, offset, 1 as gain, explode(array_except(k, bk)) as place from a
            union all select {MEMBER}, offset, -1, explode(array_except(bk, k)) from a
            union all select {MEMBER}, offset, gain, place from {{pending}}""",
        chain=chain,
        pending=pending,
    )
    numbered = sql(
        f"""select *, coalesce(sum(is_target) over (partition by state_partition, group_id order by offset
                    rows between unbounded preceding and 1 preceding), 0) as n from (
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
            select state_partition, group_id, target_offset, moved from b where target_offset is not null""",
        numbered=numbered,
    )
    left = sql(f"select {MEMBER}, offset, partitions from {{chain}} where latest and not deleted", chain=chain)
    waiting = sql(
        f"""select {MEMBER}, offset, gain, place from {{numbered}} c left anti join (
                select state_partition, group_id, max(offset) as last from {{numbered}} where is_target = 1
                group by state_partition, group_id) t
                on c.state_partition = t.state_partition and c.group_id = t.group_id and c.offset < t.last
            where is_target = 0""",
        numbered=numbered,
    )
    return Moves(counted, left, waiting)


class Steps(NamedTuple):
    rows: DataFrame
    """`p` a rebalance of a classic group began, `g` a generation, or the group went, `t` its assignments are there."""
    last: DataFrame


def classic_steps(groups: DataFrame, moved: DataFrame, was: DataFrame) -> Steps:
    """`moved`: how many partitions came to somebody by each record. A generation begins with the record that ends the
    join phase; its rebalance began with the PreparingRebalance before it."""
    one = "state_partition, group_id"
    rows = sql(
        f"""select {one}, offset, log_ms as ms, written_ms, why, deleted, state, generation, assigned_generation,
            protocol,
                cast(null as {ACC_CLASSIC}) as acc from {{groups}}
            union all select {one}, offset, null, null, null, false, state, null, null, null, acc from {{was}}""",
        groups=groups,
        was=was,
    )
    chain = sql(
        f"""with a as (select *, state <=> 'PreparingRebalance' as prepares,
                struct(offset, ms, written_ms, why) as rec, lag(state) over w as b_state
                from {{rows}} window w as (partition by {one} {ORDER})),
            b as (select *, prepares and acc is null and not b_state <=> 'PreparingRebalance' as begins,
                last(case when acc is not null then struct(acc.generation as e) when deleted then struct(null as e)
                    when not prepares then struct(generation as e) end, true) over earlier as former
                from a window earlier as (partition by {one} {ORDER} rows between unbounded preceding
                    and 1 preceding)),
            c as (select *, acc is null and not deleted and not prepares and not former.e <=> generation as turns
                from b),
            d as (select *, last(case when acc is not null then acc.began when begins then rec end,
                true) over w as prep,
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
        f"""with a as (select c.*, coalesce(m.moved, 0L) as moved from {{chain}} c left join {{moved}} m
                on c.state_partition = m.state_partition and c.group_id = m.group_id and c.offset = m.offset
                where acc is null)
            select {one}, 'classic' as kind, offset, ms as log_ms, written_ms, why, e.type, not deleted as there,
                generation as epoch, case when e.type = 'g' then case when prep.offset > coalesce(b_head, -1) then prep
                    else rec end end as began,
                case when e.type = 't' then struct(offset, ms, written_ms, protocol as assignor, moved) end as target
            from (select *, explode(filter(array(
                case when begins then struct('p' as type) end, case when turns or deleted then struct('g' as type) end,
                case when state = 'Stable' and assigned_generation = generation then struct('t' as type) end),
                x -> x is not null)) as e from a)""",
        chain=chain,
        moved=moved,
    )
    left = sql(
        f"""select {one}, offset, state, struct(coalesce(case when acc is null and not prepares then generation end,
                acc.generation, former.e) as generation, prep as began, head) as acc
            from {{chain}} where latest and not deleted""",
        chain=chain,
    )
    return Steps(made, left)


ACC_CLASSIC = f"struct<generation: int, began: {REC}, head: bigint>"
HEAD = f"""struct<epoch: int, anew: boolean, began: {REC}, member_id: string, cause: string, members: int,
    target: {TARGET}>"""
ACC = f"""struct<head_offset: bigint, there: boolean, head: {HEAD}, live: bigint, who: {WHO},
    p_who: struct<offset: bigint, w: {WHO}>, done: boolean>"""


def rebalances(
    line: Line,
    groups: DataFrame,
    targets: DataFrame | None,
    moved: DataFrame | None,
    classic: DataFrame | None,
    was: DataFrame,
) -> DataFrame:
    """`classic`: of `classic_steps`; `was`: what the last batch left. None: there is nothing of the kind."""
    frames = {"line": line.rows, "reached": line.reached, "groups": groups, "was": was}
    no = "null as member_id, 0 as came, null as reached, cast(null as array<struct<e: int, d: bigint>>) as turns"
    turns = """case when not from_epoch <=> to_epoch then filter(array(struct(from_epoch as e, -1L as d),
        struct(to_epoch as e, 1L as d)), x -> x.e is not null) end as turns"""
    rows = f"""select {GROUP}, offset, log_ms as ms, written_ms, cast(null as string) as why, type, there, b_there,
                cast(null as int) as epoch, case when type = 'm' then member_id end as member_id, came, reached,
                {turns}, cast(null as {REC}) as began, cast(null as {TARGET}) as target, cast(null as {ACC}) as acc
                from {{line}}
            union all select state_partition, group_id, 'consumer', offset, log_ms, written_ms, why, 'g', not deleted,
                true, epoch, {no}, struct(offset, log_ms, written_ms, why), null, null from {{groups}}
            union all select {GROUP}, -1, null, null, null, 'w', there, true, acc.head.epoch, {no}, null, null, acc
                from (select *, acc.there as there from {{was}})
            union all select {GROUP}, -2, null, null, null, 'r', true, true, null, null, 0, null,
                array(struct(epoch as e, members as d)), null, null, null from {{reached}}"""
    if targets is not None and moved is not None:
        frames |= {"targets": targets, "moved": moved}
        rows += f"""
            union all select t.state_partition, t.group_id, 'consumer', t.offset, log_ms, written_ms, null, 't', true,
                true, epoch, {no}, null, struct(t.offset, log_ms, written_ms, assignor, moved), null
                from {{targets}} t left join {{moved}} m on t.state_partition = m.state_partition
                    and t.group_id = m.group_id and t.offset = m.target_offset where not deleted"""
    if classic is not None:
        frames["classic"] = classic
        rows += f"""
            union all select {GROUP}, offset, log_ms, written_ms, why, type, there, true, epoch, {no}, began, target,
                null from {{classic}}"""
    return _grouped(_counted(sql(rows, **frames)))


def _counted(rows: DataFrame) -> DataFrame:
    """`now`: the group's epoch; `live`: how many members there are; `settled`: how many of them have reached the epoch
    that the record names."""
    # Both windows below are over one group: its records are brought together once. A turn is sorted into its epoch
    # without the record that made it, and a member's record that reaches no epoch makes only turns.
    placed = rows.repartition("state_partition", "group_id", "kind")
    kept = "type, ms, written_ms, why, there, b_there, epoch, member_id, came, reached, began, target, acc"
    reached = sql(
        f"""with a as (select {GROUP}, offset, turns, case when type = 'g' then epoch when type = 'c' then reached end
                    as said,
                case when type = 'r' or (type = 'c' and reached is null) then null else struct({kept}) end as rec
                from {{rows}}),
            b as (select {GROUP}, offset, inline(concat(
                    case when rec is null then array() else array(struct(said as at_epoch, 0L as d, rec)) end,
                    coalesce(transform(turns, x -> struct(x.e as at_epoch, x.d as d, null as rec)), array()))) from a)
            select {GROUP}, offset, settled, rec.* from (select {GROUP}, offset, rec,
                sum(d) over (partition by {GROUP}, at_epoch order by offset) as settled from b)
            where rec is not null""",
        rows=placed,
    )
    every = f"partition by {GROUP} order by offset, type"
    counted = sql(
        f"""select *, type = 'g' or (type = 'w' and there) as heads,
                sum(cast(type = 'g' or (type = 'w' and there) as int)) over w as n,
                sum(came + coalesce(acc.live, 0)) over w as live,
                last(case when type in ('g', 'w') then struct(case when there then epoch end as e) end, true) over w
                    as now,
                last(case when type = 'g' then struct(offset, there) when type = 'w'
                    then struct(acc.head_offset as offset, there) end, true) over earlier as former,
                last(case when type = 'm' then struct(offset, written_ms, member_id,
                    case when not there then 'left' when b_there then 'changed' else 'joined' end as what)
                    when type = 'w' then acc.who end, true) over w as who,
                lead(1) over w is null as latest
            from {{rows}}
            window w as ({every}), earlier as ({every} rows between unbounded preceding and 1 preceding)""",
        rows=reached,
    )
    # Most records have only been counted. From here on, those count that begin something or may end it.
    return sql(
        f"""select *, last(case when type = 'p' then struct(offset, who as w) when type = 'w' then acc.p_who end, true)
                over ({every}) as p_who
            from (select *, coalesce(live > 0 and settled = live
                    and ((type = 'c' and reached = now.e) or (type = 'g' and there)), false) as complete from {{rows}})
            where heads or complete or latest or type in ('p', 't', 'w')""",
        rows=counted,
    )


def _grouped(counted: DataFrame) -> DataFrame:
    """A row per head: the record that began the epoch, or what the last batch left of it; `n` is 0 before the first."""
    heads = sql(
        f"""with a as (select *, case when kind = 'classic' and p_who.offset = began.offset then p_who.w else who end
                as m from {{counted}}),
            b as (select *, m.written_ms = began.written_ms and m.offset > coalesce(former.offset, -1) as theirs from a)
            select {GROUP}, n,
                min(case when heads then struct(offset, there, coalesce(acc.head, struct(epoch,
                    not coalesce(former.there, false) as anew, began, case when theirs
                        then m.member_id end as member_id,
                    case when theirs then m.what else 'other' end as cause, cast(live as int) as members,
                    cast(null as {TARGET}) as target)) as head, coalesce(acc.done, false) as done,
                    coalesce(acc.head_offset, offset) as at) end) as h,
                min(case when type = 't' and epoch = now.e then target end) as t,
                min(case when complete then struct(offset, ms, written_ms) end) as s,
                max(struct(offset, type, live, who, p_who)) as l,
                max(case when type = 'w' then acc.head_offset end) as w_offset
            from b group by {GROUP}, n""",
        counted=counted,
    )
    return sql(
        f"""select *, lead(h.offset) over w as n_offset, lead(1) over w is null as latest,
                coalesce(h.head.target, t) as target, case when kind = 'classic' then
                    (case when t is not null then struct(t.offset, t.ms, t.written_ms) end) else s end as done
            from {{heads}} window w as (partition by {GROUP} order by n)""",
        heads=heads,
    )


def as_rebalances(found: DataFrame, whole: DataFrame) -> DataFrame:
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
                coalesce(done.offset, n_offset) as until_offset from a""",
        found=found,
    )
    return graded(rows, whole, "from_offset", "until_offset")


def left(found: DataFrame) -> DataFrame:
    return sql(
        f"""select {GROUP}, struct(coalesce(h.at, w_offset) as head_offset, coalesce(h.there, false) as there,
                case when h.there then named_struct('epoch', h.head.epoch, 'anew', h.head.anew, 'began', h.head.began,
                    'member_id', h.head.member_id, 'cause', h.head.cause, 'members', h.head.members,
                    'target', target) end as head,
                l.live, l.who, l.p_who, h.done or done is not null as done) as acc
            from {{found}} where latest and (h.there or l.live <> 0 or (kind = 'classic' and l.p_who is not null))""",
        found=found,
    )
