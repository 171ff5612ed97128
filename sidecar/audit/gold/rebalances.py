"""Steps of a group's rebalances, from its records: joins and leaves, epochs that members reach, partitions that a
target moves, generations of classic groups. They form one sequence, from which epochs.py makes rebalances."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sidecar.audit.gold.epochs import GROUP, NOT_YET
from sidecar.audit.gold.frames import Frame, pack
from sidecar.audit.gold.holdings import HOLDER
from sidecar.audit.gold.steps import ORDER

REC = pack("offset, ms, written_ms, why")
LOGGED = pack("offset, ms = log_ms, written_ms, why")
AIM = pack("offset = t.offset, ms = log_ms, written_ms, assignor, moved, since")
AIM_OF_CLASSIC = pack("offset, ms, written_ms, assignor = protocol, moved, since = offset")


def new_epochs(groups: Frame, was: Frame) -> Frame:
    """Returns the group records, without those of streams groups that only change other facts in the same epoch.
    `was`: carried by the last batch."""
    return groups.query(f"""select * exclude (carried, before) from (
                select *, lag(epoch) over (partition by {GROUP} {ORDER}) as before from (
                    select *, false as carried from {groups} union all by name
                    select {GROUP}, -1 as offset, acc.head.epoch as epoch, true as carried from {was}))
            where not carried and (kind <> 'streams' or deleted or epoch is distinct from before)""")


class Line(NamedTuple):
    rows: Frame
    reached: Frame
    """Number of members in each epoch at the end of the last batch."""
    people: Frame
    """Each member id, with whether it is a member now and which epoch it has reached."""


def people(current: Frame, members: Frame, classic_members: Frame, was: Frame) -> Line:
    """Returns the changes by each member's record: in the number of members (`came`), and from and to which epoch it
    moves. `was`: carried by the last batch for each member."""
    rows = current.query(f"""select {GROUP}, member_id, offset, log_ms, written_ms, 'c' as type, not deleted as there,
                case when not deleted and steady then member_epoch end as reached, false as carried from {current}
            union all select {GROUP}, member_id, offset, log_ms, written_ms, 'm', not deleted, null, false
                from {members}
            union all select state_partition, group_id, 'classic', member_id, offset, log_ms, written_ms, 'm',
                not deleted, null, false from {classic_members}
            union all select {GROUP}, member_id, -1, null, null, 'm', true, null, true from {was} where member
            union all select {GROUP}, member_id, -2, null, null, 'c', true, reached, true from {was}""")
    chain = rows.query(f"""
        select *, coalesce(last_value(case when type = 'm' then there end ignore nulls) over earlier, false)
                    as b_there,
                last_value(case when type = 'c' then coalesce(reached, {NOT_YET}) end ignore nulls) over earlier
                    as b_reached
            from {rows} window earlier as (partition by {GROUP}, member_id {ORDER}
                rows between unbounded preceding and 1 preceding)""")
    line = chain.query(f"""select {GROUP}, member_id, offset, log_ms, written_ms, type, there, b_there, reached,
                case when type = 'm' then cast(there as int) - cast(b_there as int) else 0 end as came,
                case when b_there then nullif(b_reached, {NOT_YET}) end as from_epoch,
                case when type = 'c' and b_there then reached
                    when type = 'm' and there then nullif(b_reached, {NOT_YET}) end as to_epoch
            from {chain} where not carried""")
    reached = was.query(f"""
        select {GROUP}, reached as epoch, count(*) as members from {was} where member and reached is not null
            group by {GROUP}, reached""")
    left = rows.query(f"""select {GROUP}, member_id, coalesce(m.there, false) as member, c.reached from (
                select {GROUP}, member_id, arg_max(struct_pack(there := there), offset) filter (where type = 'm') as m,
                    arg_max(struct_pack(reached := reached), offset) filter (where type = 'c') as c
                    from {rows} group by {GROUP}, member_id)
            where m.there or c.reached is not null""")
    return Line(line.computed(), reached, left)


MOVED = "not carried and partitions is distinct from b_partitions"


class Moves(NamedTuple):
    targets: Frame
    """For each complete target the number of partitions that it gives to another member; `since`: offset at which the
    one before it was complete, or removed."""
    last: Frame
    pending: Frame
    """Changes since the last complete target."""
    latest: Frame
    """The last target of each group, complete or removed."""


def moves(target_members: Frame, targets: Frame, was: Mapping[str, Frame]) -> Moves:
    """Returns the moves of targets: one behind a removed one moves all that it gives. `was`: carried by the last
    batch."""
    rows = target_members.query(f"""select {HOLDER}, offset, deleted, partitions, false as carried from {target_members}
            union all select {HOLDER}, offset, false, partitions, true from {was["target_members"]}""")
    chain = (
        rows.query(f"""select *, lag(partitions) over w as b_partitions, lead(1) over w is null as latest
            from {rows} window w as (partition by {HOLDER} {ORDER})""")
        .where("latest or partitions is distinct from b_partitions")
        .computed()
    )
    changes = chain.query(f"""
        with a as (select {HOLDER}, offset, unnest(partitions) as t, 1 as gain from {chain} where {MOVED}
                union all select {HOLDER}, offset, unnest(b_partitions), -1 from {chain} where {MOVED}),
            b as (select {HOLDER}, offset, t.topic_id as topic_id, unnest(t.partitions) as partition, gain from a)
            select {HOLDER}, offset, sum(gain)::int as gain, concat(partition, '|', topic_id) as place from b
                group by {HOLDER}, offset, topic_id, partition having sum(gain) <> 0
            union all select {HOLDER}, offset, gain, place from {was["target_changes"]}""")
    numbered = changes.query(f"""select *, coalesce(sum(is_target) over (partition by {GROUP} order by offset
                rows between unbounded preceding and 1 preceding), 0)::bigint as n from (
            select {HOLDER}, offset, gain, place, 0 as is_target from {changes}
            union all select state_partition, group_id, null, kind, offset, 0, null, 1 from {targets})""").computed()
    left = chain.query(f"select {HOLDER}, offset, partitions from {chain} where latest and not deleted")
    waiting = numbered.query(f"""select {HOLDER}, offset, gain, place from {numbered} c anti join (
                select {GROUP}, max(offset) as last from {numbered} where is_target = 1 group by {GROUP}) t
                on c.state_partition = t.state_partition and c.group_id = t.group_id and c.kind = t.kind
                    and c.offset < t.last
            where is_target = 0""")
    before = was["complete_targets"]
    latest = targets.query(f"""select {GROUP}, max(offset) as offset from (
                select {GROUP}, offset from {targets} union all select {GROUP}, offset from {before})
            group by {GROUP}""")
    return Moves(_moved(numbered, before), left, waiting, latest)


def _moved(changes: Frame, before: Frame) -> Frame:
    """Returns the moves of complete targets. `n` of a change: number of complete targets before it."""
    return changes.query(f"""with a as (select {GROUP}, n, member_id, place, sum(gain) as net,
                    max(case when is_target = 1 then offset end) as target
                from {changes} group by {GROUP}, n, member_id, place),
            b as (select {GROUP}, n, max(target) as target_offset,
                    count(distinct case when net > 0 then place end) as moved from a group by {GROUP}, n)
            select {GROUP}, target_offset, moved, coalesce(lag(target_offset) over (partition by {GROUP} order by n),
                    l.offset, 0) as since
                from b left join {before} l using ({GROUP})
                where target_offset is not null""")


class Steps(NamedTuple):
    rows: Frame
    """Types: `p` a classic group's rebalance began, `g` a generation began or the group was removed, `t` the
    generation's assignments are complete."""
    last: Frame


def classic_steps(groups: Frame, moved: Frame, was: Frame) -> Steps:
    """Returns the steps of classic groups. `moved`: number of partitions that each record gives to a member. A
    generation begins with the record that ends the join phase; its rebalance, with the PreparingRebalance before."""
    one = "state_partition, group_id"
    rows = groups.query(f"""
        select {one}, offset, log_ms as ms, written_ms, why, deleted, state, generation, assigned_generation,
            protocol, revision, null as acc from {groups}
            union all select {one}, offset, null, null, null, false, state, null, null, null, null, acc from {was}""")
    chain = rows.query(f"""with a as (select *, coalesce(state = 'PreparingRebalance', false) as prepares,
                {REC} as rec, lag(state) over w as b_state
                from {rows} window w as (partition by {one} {ORDER})),
            b as (select *, prepares and acc is null and b_state is distinct from 'PreparingRebalance' as begins,
                last_value(case when acc is not null then struct_pack(e := acc.generation)
                    when deleted then struct_pack(e := null::int)
                    when not prepares then struct_pack(e := generation) end ignore nulls) over earlier as former
                from a window earlier as (partition by {one} {ORDER} rows between unbounded preceding
                    and 1 preceding)),
            c as (select *, acc is null and not deleted and not prepares and former.e is distinct from generation
                    as turns from b)
            select *, last_value(case when acc is not null then acc.began when begins then rec end
                ignore nulls) over w as prep,
                max(case when acc is not null then acc.head when turns or deleted then offset end) over w as head,
                max(case when acc is not null then acc.head when turns or deleted then offset end) over earlier
                    as b_head, lead(1) over w is null as latest
                from c window w as (partition by {one} {ORDER}), earlier as (partition by {one} {ORDER}
                    rows between unbounded preceding and 1 preceding)""").computed()
    made = chain.query(f"""with a as (select c.*, coalesce(m.moved, 0) as moved from {chain} c left join {moved} m
                on c.state_partition = m.state_partition and c.group_id = m.group_id and c.offset = m.offset
                where acc is null)
            select {one}, 'classic' as kind, offset, ms as log_ms, written_ms, why, type, not deleted as there,
                generation as epoch, revision,
                case when type = 'g' then case when prep.offset > coalesce(b_head, -1) then prep
                    else rec end end as began,
                case when type = 't' then {AIM_OF_CLASSIC} end as target
            from (select *, unnest(list_filter([case when begins then 'p' end, case when turns or deleted then 'g' end,
                case when state = 'Stable' and assigned_generation = generation then 't' end],
                lambda x: x is not null)) as type from a)""")
    left = chain.query(f"""
        select {one}, offset, state, struct_pack(generation := coalesce(case when acc is null and not prepares
                then generation end, acc.generation, former.e), began := prep, head := head) as acc
            from {chain} where latest and not deleted""")
    return Steps(made, left)


class GroupSequence(NamedTuple):
    """All records of groups in one sequence: columns for counting (`rows`), and more of some (`details`).

    Types: `m` a member joined or left, `c` a current assignment, `p` a classic group's rebalance began, `g` an epoch
    began or the group was removed, `t` an epoch's target is complete; `w` and `r` were carried by the last batch."""

    rows: Frame
    details: Frame


def sequence(
    line: Line, groups: Frame, targets: Frame | None, moved: Frame | None, classic: Frame | None, was: Frame
) -> GroupSequence:
    """Joins all records in one sequence. `classic`: from `classic_steps`; `was`: carried by the last batch. None where
    there are no such records."""
    no = "0 as came, null as from_epoch, null as to_epoch, 0 as d"
    rows = f"""select {GROUP}, offset, type, log_ms as ms, written_ms, there, reached as epoch, came, from_epoch,
                to_epoch, 1 as d from {line.rows}
            union all select {GROUP}, offset, 'g', log_ms, written_ms, not deleted, epoch, {no} from {groups}
            union all select {GROUP}, -1, 'w', null, null, acc.there, acc.head.epoch, acc.live, null, null, 0
                from {was}
            union all select {GROUP}, -2, 'r', null, null, true, null, 0, null, epoch, members from {line.reached}"""
    details = f"""select {GROUP}, offset, type, member_id, b_there, null as began, null as target, null as acc,
                null as revision from {line.rows} where type = 'm'
            union all select {GROUP}, offset, 'g', null, null, {LOGGED}, null, null, revision from {groups}
            union all select {GROUP}, -1, 'w', null, null, null, null, acc, null from {was}"""
    if targets is not None and moved is not None:
        rows += f"""
            union all select {GROUP}, offset, 't', log_ms, written_ms, true, epoch, {no} from {targets}
                where not deleted"""
        details += f"""
            union all select t.state_partition, t.group_id, t.kind, t.offset, 't', null, null, null, {AIM}, null,
                null
                from {targets} t left join {moved} m on t.state_partition = m.state_partition
                    and t.group_id = m.group_id and t.kind = m.kind and t.offset = m.target_offset
                    where not deleted"""
    if classic is not None:
        rows += f"""
            union all select {GROUP}, offset, type, log_ms, written_ms, there, epoch, {no} from {classic}"""
        details += f"""
            union all select {GROUP}, offset, type, null, null, began, target, null, revision from {classic}"""
    return GroupSequence(was.query(rows), was.query(details))
