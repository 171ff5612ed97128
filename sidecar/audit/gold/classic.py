"""Events of holdings (holdings.py) in classic groups.

An assignment of a generation that the group's record does not have yet waits. It counts from the group's next record
on, as all of that generation do; any other counts at once. If the group is removed before that record, it never counts.
Nor does it if offsets before that record were never read: the member may have got another assignment there, or left.
Only consumers own partitions. A member that is removed, or whose group is removed, holds nothing.
"""

from __future__ import annotations

from sidecar.audit.gold.batch import Batch
from sidecar.audit.gold.frames import Frame
from sidecar.audit.gold.holdings import MEMBER, events
from sidecar.audit.gold.steps import BEFORE, EARLIER, GROUP, MISSING, ORDER, UNSURE, adjacent, whole
from sidecar.audit.lake.files import duck_type
from sidecar.audit.tables.layers import NAMED

PENDING = duck_type(NAMED)


def classic(b: Batch) -> Frame:
    """Returns events in classic groups."""
    line = _line(b).computed()
    heads = _heads(line)
    counted = _counted(line, heads).computed()
    b.carry("assignments", _last(counted, heads))
    b.carry("assigned_groups", heads.where("not deleted and latest"))
    return _events(counted, heads)


def _heads(line: Frame) -> Frame:
    return line.query(f"""select *, lead(1) over (partition by {GROUP} order by n) is null as latest,
                coalesce(revision = case when g is null or g.deleted then 1 else g.revision + 1 end, false)
                    as adjacent
            from {line} where is_group""")


def _line(b: Batch) -> Frame:
    """Returns all records of a group in one sequence. `n`: number of the group's own records so far; `life`: how often
    it was removed before; `g`: its last record before."""
    of_group = "revision, deleted, protocol_type, assigned_generation"
    of_member = f"{MEMBER}, offset, rec, why, whole_from"
    assignments, members, groups = (
        b.whole_of(b.valid(f"classic_{name}")) for name in ("assignments", "members", "groups")
    )
    rows = b.db.query(f"""
        select {of_member}, revision, deleted, generation, assigned, false as is_group, false as waited,
                null as at_offset from {assignments}
            union all by name select {of_member}, deleted, false as is_group, false as waited from {members}
                where deleted
            union all by name select *, '' as member_id, true as is_group from (
                select {GROUP}, {of_group}, offset, rec, why, whole_from from {groups}
                union all by name select *, false as deleted from {b.was["assigned_groups"]})
            union all by name select *, false as deleted, false as is_group from {b.was["assignments"]}
                where at_offset is not null or revision is distinct from {UNSURE}""")
    return rows.query(f"""select *, sum(cast(is_group as int)) over w as n,
                coalesce(sum(cast(is_group and deleted as int)) over earlier, 0) as life,
                last_value(case when is_group then struct_pack({of_group}) end ignore nulls) over earlier as g
            from {rows} window w as (partition by {GROUP} {ORDER}),
                earlier as (partition by {GROUP} {ORDER} {EARLIER})""")


def _counted(line: Frame, heads: Frame) -> Frame:
    """Returns for each assignment the offset from which it counts, if it does (`since`), and whether nothing is missing
    before it (`sure`). `breaks`: number of places so far where a value is missing."""
    chain = line.query(f"""with a as (select *, at_offset is not null as carried,
                lead(1) over (partition by {MEMBER}, n {ORDER}) is null as final,
                case when not g.deleted and g.revision is distinct from {UNSURE} then g.assigned_generation else -1 end
                    as known, {BEFORE}
                from {line} where not is_group window w as (partition by {MEMBER} {ORDER}))
            select *, {MISSING} as missing, {adjacent("b_offset")} as adjacent,
                not carried and not deleted and generation > known as waits,
                {whole("b_offset")} as whole from a""")
    return chain.query(f"""
        with a as (select *, case when waits then h.protocol_type else g.protocol_type end as type,
                lag(waits or waited, 1, false) over w as after_waiting,
                sum(cast(not carried and not adjacent as int)) over w as breaks
                from {chain} left join (select {GROUP}, n - 1 as n,
                    struct_pack(offset, rec, deleted, adjacent, protocol_type) as h from {heads}) using ({GROUP}, n)
                window w as (partition by {MEMBER}, life {ORDER})),
            b as (select *, case when carried then at_offset when not waits then offset
                    when final and not h.deleted then h.offset end as since,
                case when waits then h.adjacent when deleted then whole or not after_waiting else whole end as sure
                from a)
            select *, max(case when since is not null then offset end) over (partition by {MEMBER}) as counts_offset,
                case when carried or type is not distinct from 'consumer' then assigned end as held from b""")


def _events(counted: Frame, heads: Frame) -> Frame:
    chain = counted.query(f"""
        select *, lag(held) over w as b_held, lag(deleted) over w as b_deleted,
            lag(since) over w as b_since, lag(generation) over w as b_generation,
            coalesce(lag(breaks) over w, 0) = breaks and sure as unbroken, lead(1) over w is null as latest
            from {counted} where since is not null
            window w as (partition by {MEMBER}, life order by since)""").computed()
    changes = chain.query(f"""with a as (select {MEMBER}, 'classic' as kind, since as offset,
                case when waits then h.rec else rec end as rec, why,
                coalesce(unbroken, false) as adjacent, case when not b_deleted then b_since end as b_offset, missing,
                generation as epoch, case when not b_deleted then b_generation end as b_epoch, held as assigned,
                case when not b_deleted then b_held end as b_assigned from {chain} where not carried
            union all select c.state_partition, c.group_id, c.member_id, 'classic', h.offset, h.rec, h.why,
                coalesce(c.since >= h.whole_from, false), c.since, 0, null, c.generation, null, c.held
                from {chain} c join {heads} h using ({GROUP}, life) where h.deleted and c.latest and not c.deleted)
            select *, null::{PENDING} as pending, null::{PENDING} as b_pending from a""")
    return events(changes, "topic")


def _last(counted: Frame, heads: Frame) -> Frame:
    """Returns the carried assignments of groups that exist: those that count, and those after them."""
    return counted.query(f"""select {MEMBER}, offset, rec, why, revision, generation,
                case when since is null then assigned else held end as assigned, whole_from,
                since as at_offset, waits or waited as waited
            from {counted} anti join (select * from {heads} where deleted) using ({GROUP}, life)
            where not deleted and (counts_offset is null or offset >= counts_offset)
                and (since is not null or h is null)""")
