"""Steps of a group's rebalances, from its records: joins and leaves, epochs that members reach, partitions that a
target moves, generations of classic groups. They form one sequence, from which epochs.py makes rebalances."""

from __future__ import annotations

from sidecar.audit.gold.batch import Batch
from sidecar.audit.gold.epochs import GROUP, NOT_YET
from sidecar.audit.gold.frames import Frame, pack
from sidecar.audit.gold.holdings import HOLDER
from sidecar.audit.gold.kinds import MODERN
from sidecar.audit.gold.steps import EARLIER, ORDER

REC = pack("offset, ms, written_ms, why")
LOGGED = pack("offset, ms = log_ms, written_ms, why")
AIM = pack("offset, ms = log_ms, written_ms, assignor, moved, since")
AIM_OF_CLASSIC = pack("offset, ms, written_ms, assignor = protocol, moved, since = offset")


def new_epochs(b: Batch) -> Frame:
    """Returns the group records, without those of streams groups that only change other facts in the same epoch."""
    groups = b.every("groups", lambda m: {m.kind: "epoch"})
    return groups.query(f"""select * exclude (carried, before) from (
                select *, lag(epoch) over (partition by {GROUP} {ORDER}) as before from (
                    select *, false as carried from {groups} union all by name
                    select {GROUP}, -1 as offset, acc.head.epoch as epoch, true as carried from {b.was["rebalances"]}))
            where not carried and (kind <> 'streams' or deleted or epoch is distinct from before)""").computed()


def _people(b: Batch) -> Frame:
    """Returns the changes by each member's record: in the number of members (`came`), and from and to which epoch it
    moves."""
    current = b.every("current", lambda m: {m.kind: f"member_id, member_epoch, {m.steady} as steady"})
    members = b.every("members", lambda m: {m.kind: "member_id"})
    was = b.was["people"]
    record = f"{GROUP}, member_id, offset, log_ms, written_ms, not deleted as there, false as carried"
    rows = current.query(f"""
        select {record}, 'c' as type, case when steady then member_epoch end as reached from {current}
            union all by name select {record}, 'm' as type from {members}
            union all by name select {record}, 'm' as type from (select *, 'classic' as kind
                from {b.valid("classic_members")})
            union all by name select {GROUP}, member_id, -1 as offset, 'm' as type, true as there, true as carried
                from {was} where member
            union all by name select {GROUP}, member_id, -2 as offset, 'c' as type, true as there, reached,
                true as carried from {was}""")
    chain = rows.query(f"""
        select *, coalesce(last_value(case when type = 'm' then there end ignore nulls) over earlier, false)
                    as b_there,
                last_value(case when type = 'c' then coalesce(reached, {NOT_YET}) end ignore nulls) over earlier
                    as b_reached
            from {rows} window earlier as (partition by {GROUP}, member_id {ORDER} {EARLIER})""")
    line = chain.query(f"""select {GROUP}, member_id, offset, log_ms, written_ms, type, there, b_there, reached,
                case when type = 'm' then cast(there as int) - cast(b_there as int) else 0 end as came,
                case when b_there then nullif(b_reached, {NOT_YET}) end as from_epoch,
                case when type = 'c' and b_there then reached
                    when type = 'm' and there then nullif(b_reached, {NOT_YET}) end as to_epoch
            from {chain} where not carried""")
    b.carry(
        "people",
        rows.query(f"""select *, coalesce(m.there, false) as member, c.reached as reached from (
                select {GROUP}, member_id, arg_max(struct_pack(there := there), offset) filter (where type = 'm') as m,
                    arg_max(struct_pack(reached := reached), offset) filter (where type = 'c') as c
                    from {rows} group by all)
            where m.there or c.reached is not null"""),
    )
    return line.computed()


MOVED = "not carried and partitions is distinct from b_partitions"


def _targets(b: Batch) -> Frame | None:
    """Returns the complete targets (type `t`), each with the number of partitions that it gives to another member. One
    behind a removed one moves all that it gives."""
    names = [m.tables + name for m in MODERN for name in ("targets", "target_members")]
    if b.idle(names, ("target_members", "target_changes", "complete_targets")):
        return None
    targets = b.every("targets", lambda m: {m.kind: "epoch, assignor"}).computed()
    moved = _moved(_changes(b, targets), b.was["complete_targets"])
    latest = f"select {GROUP}, offset from {targets} union all by name select * from {b.was['complete_targets']}"
    b.carry("complete_targets", b.db.query(f"select {GROUP}, max(offset) as offset from ({latest}) group by all"))
    return targets.query(f"""select {GROUP}, offset, 't' as type, log_ms, written_ms, true as there, epoch,
            {AIM} as target from {targets} left join {moved} using ({GROUP}, offset) where not deleted""")


def _changes(b: Batch, targets: Frame) -> Frame:
    """Returns the changes since the last complete target, and the targets. `n`: number of complete targets before."""
    records = b.every("target_members", lambda m: {m.kind: f"member_id, {m.target} as partitions"})
    rows = records.query(f"""select {HOLDER}, offset, deleted, partitions, false as carried from {records}
            union all by name select *, false as deleted, true as carried from {b.was["target_members"]}""")
    chain = (
        rows.query(f"""select *, lag(partitions) over w as b_partitions, lead(1) over w is null as latest
            from {rows} window w as (partition by {HOLDER} {ORDER})""")
        .where("latest or partitions is distinct from b_partitions")
        .computed()
    )
    b.carry("target_members", chain.where("latest and not deleted"))
    changes = chain.query(f"""
        with a as (select {HOLDER}, offset, unnest(partitions) as t, 1 as gain from {chain} where {MOVED}
                union all select {HOLDER}, offset, unnest(b_partitions), -1 from {chain} where {MOVED}),
            b as (select {HOLDER}, offset, t.topic_id as topic_id, unnest(t.partitions) as partition, gain from a)
            select {HOLDER}, offset, sum(gain)::int as gain, concat(partition, '|', topic_id) as place from b
                group by {HOLDER}, offset, topic_id, partition having sum(gain) <> 0
            union all by name select * from {b.was["target_changes"]}""")
    numbered = changes.query(f"""select *, coalesce(sum(is_target) over (partition by {GROUP} order by offset
                {EARLIER}), 0)::bigint as n from (
            select *, 0 as is_target from {changes}
            union all by name select {GROUP}, offset, 0 as gain, 1 as is_target from {targets})""").computed()
    last = f"select {GROUP}, max(offset) as last from {targets} group by all"
    pending = f"{numbered} left join ({last}) using ({GROUP}) where is_target = 0 and offset >= coalesce(last, 0)"
    b.carry("target_changes", numbered.query(f"select * from {pending}"))
    return numbered


def _moved(changes: Frame, before: Frame) -> Frame:
    """Returns the moves of complete targets. `n` of a change: number of complete targets before it."""
    return changes.query(f"""with a as (select {GROUP}, n, member_id, place, sum(gain) as net,
                    max(case when is_target = 1 then offset end) as target
                from {changes} group by all),
            b as (select {GROUP}, n, max(target) as target_offset,
                    count(distinct case when net > 0 then place end) as moved from a group by all)
            select {GROUP}, target_offset as offset, moved, coalesce(lag(target_offset) over
                    (partition by {GROUP} order by n), l.offset, 0) as since
                from b left join {before} l using ({GROUP})
                where target_offset is not null""")


def _classic_steps(b: Batch, events: Frame) -> Frame | None:
    """Returns the steps of classic groups. A generation begins with the record that ends the join phase; its rebalance,
    with the PreparingRebalance before. `events`: of holdings; those of a record tell how many partitions it moves."""
    if b.idle(("classic_groups",), ("classic_states",)):
        return None
    one = "state_partition, group_id"
    moved = f"""select {one}, offset, count(*) as moved from {events} where kind = 'classic' and type = 'a'
        group by all"""
    rows = b.db.query(f"""
        select {one}, offset, log_ms as ms, written_ms, why, deleted, state, generation, assigned_generation,
            protocol, revision from {b.valid("classic_groups")}
            union all by name select *, false as deleted from {b.was["classic_states"]}""")
    chain = rows.query(f"""with a as (select *, coalesce(state = 'PreparingRebalance', false) as prepares,
                {REC} as rec, lag(state) over w as b_state
                from {rows} window w as (partition by {one} {ORDER})),
            b as (select *, prepares and acc is null and b_state is distinct from 'PreparingRebalance' as begins,
                last_value(case when acc is not null then struct_pack(e := acc.generation)
                    when deleted then struct_pack(e := null::int)
                    when not prepares then struct_pack(e := generation) end ignore nulls) over earlier as former
                from a window earlier as (partition by {one} {ORDER} {EARLIER})),
            c as (select *, acc is null and not deleted and not prepares and former.e is distinct from generation
                    as turns from b)
            select *, last_value(case when acc is not null then acc.began when begins then rec end
                ignore nulls) over w as prep,
                max(case when acc is not null then acc.head when turns or deleted then offset end) over w as head,
                max(case when acc is not null then acc.head when turns or deleted then offset end) over earlier
                    as b_head, lead(1) over w is null as latest
                from c window w as (partition by {one} {ORDER}),
                    earlier as (partition by {one} {ORDER} {EARLIER})""").computed()
    b.carry(
        "classic_states",
        chain.query(f"""
        select {one}, offset, state, struct_pack(generation := coalesce(case when acc is null and not prepares
                then generation end, acc.generation, former.e), began := prep, head := head) as acc
            from {chain} where latest and not deleted"""),
    )
    return chain.query(f"""with a as (select c.*, coalesce(m.moved, 0) as moved from {chain} c
                left join ({moved}) m using ({one}, offset) where acc is null)
            select {one}, 'classic' as kind, offset, ms as log_ms, written_ms, type, not deleted as there,
                generation as epoch, revision,
                case when type = 'g' then case when prep.offset > coalesce(b_head, -1) then prep
                    else rec end end as began,
                case when type = 't' then {AIM_OF_CLASSIC} end as target
            from (select *, unnest(list_filter([case when begins then 'p' end, case when turns or deleted then 'g' end,
                case when state = 'Stable' and assigned_generation = generation then 't' end],
                lambda x: x is not null)) as type from a)""")


def sequence(b: Batch, groups: Frame, events: Frame) -> tuple[Frame, Frame]:
    """Returns all records of groups in one sequence: columns for counting, and more of some. `groups`: from
    `new_epochs`; `events`: of holdings.

    Types: `m` a member joined or left, `c` a current assignment, `p` a classic group's rebalance began, `g` an epoch or
    generation began or the group was removed, `t` its target, or the generation's assignments, are complete; `w` and
    `r` were carried by the last batch."""
    line, was = _people(b), b.was["rebalances"]
    begun = f"""select {GROUP}, offset, 'g' as type, log_ms, written_ms, not deleted as there, epoch, {LOGGED} as began,
        null as target, revision from {groups}"""
    others = [f"select * from {f}" for f in (_targets(b), _classic_steps(b, events)) if f is not None]
    steps = b.db.query(" union all by name ".join((begun, *others))).computed()
    rows = b.db.query(f"""
        select {GROUP}, offset, type, log_ms as ms, written_ms, there, reached as epoch, came, from_epoch, to_epoch,
                1 as d from {line}
            union all by name select {GROUP}, offset, type, log_ms as ms, written_ms, there, epoch, 0 as came
                from {steps}
            union all by name select {GROUP}, -1 as offset, 'w' as type, acc.there as there, acc.head.epoch as epoch,
                acc.live as came from {was}
            union all by name select {GROUP}, -2 as offset, 'r' as type, reached as to_epoch, count(*) as d
                from {b.was["people"]} where member and reached is not null group by all""")
    details = b.db.query(f"""
        select {GROUP}, offset, type, member_id, b_there from {line} where type = 'm'
            union all by name select {GROUP}, offset, type, began, target, revision from {steps}
            union all by name select {GROUP}, -1 as offset, 'w' as type, acc from {was}""")
    return rows, details
