"""Steps of a group's rebalances, from its records: joins and leaves, epochs that members reach, partitions that a
target moves, generations of classic groups. They form one sequence, from which epochs.py makes rebalances."""

from __future__ import annotations

from sidecar.audit.gold.batch import Batch
from sidecar.audit.gold.epochs import NOT_YET
from sidecar.audit.gold.frames import Frame
from sidecar.audit.gold.holdings import HOLDER
from sidecar.audit.gold.kinds import MODERN
from sidecar.audit.gold.steps import EARLIER, GROUP, OF_KIND, ORDER

TIMES = "rec.ms as ms, rec.written_ms as written_ms"
BEGUN = "struct_pack(rec, why)"
AIM = "struct_pack(rec, assignor, moved, since)"
AIM_OF_CLASSIC = "struct_pack(rec, assignor := protocol, moved, since := offset)"


def new_epochs(b: Batch) -> Frame:
    """Returns the group records, without those of streams groups that only change other facts in the same epoch."""
    groups = b.every("groups", lambda m: {m.kind: "epoch"})
    return groups.query(f"""select * exclude (carried, before) from (
                select *, lag(epoch) over (partition by {OF_KIND} {ORDER}) as before from (
                    select *, false as carried from {groups}
                    union all by name select {OF_KIND}, -1 as offset, acc.head.epoch as epoch, true as carried
                    from {b.was["rebalances"]}))
            where not carried and (kind <> 'streams' or deleted or epoch is distinct from before)""").computed()


def _people(b: Batch) -> Frame:
    """Returns the changes by each member's record: in the number of members (`came`), and from and to which epoch it
    moves."""
    current = b.every("current", lambda m: {m.kind: f"member_id, member_epoch, {m.steady} as steady"})
    members = b.every("members", lambda m: {m.kind: "member_id"})
    was = b.was["people"]
    record = f"{OF_KIND}, member_id, offset, rec, not deleted as there, false as carried"
    rows = current.query(f"""
        select {record}, 'c' as type, case when steady then member_epoch end as reached from {current}
            union all by name select {record}, 'm' as type from {members}
            union all by name select {record}, 'm' as type from (select *, 'classic' as kind
                from {b.valid("classic_members")})
            union all by name select {OF_KIND}, member_id, -1 as offset, 'm' as type, true as there, true as carried
                from {was} where member
            union all by name select {OF_KIND}, member_id, -2 as offset, 'c' as type, true as there, reached,
                true as carried from {was}""")
    chain = rows.query(f"""
        select *, coalesce(last_value(case when type = 'm' then there end ignore nulls) over earlier, false)
                    as b_there,
                last_value(case when type = 'c' then coalesce(reached, {NOT_YET}) end ignore nulls) over earlier
                    as b_reached
            from {rows} window earlier as (partition by {OF_KIND}, member_id {ORDER} {EARLIER})""")
    line = chain.query(f"""select {OF_KIND}, member_id, offset, rec, type, there, b_there, reached,
                case when type = 'm' then cast(there as int) - cast(b_there as int) else 0 end as came,
                case when b_there then nullif(b_reached, {NOT_YET}) end as from_epoch,
                case when type = 'c' and b_there then reached
                    when type = 'm' and there then nullif(b_reached, {NOT_YET}) end as to_epoch
            from {chain} where not carried""")
    left = rows.query(f"""select *, coalesce(m.there, false) as member, c.reached as reached from (
                select {OF_KIND}, member_id, arg_max(struct_pack(there), offset) filter (where type = 'm') as m,
                    arg_max(struct_pack(reached), offset) filter (where type = 'c') as c from {rows} group by all)
            where m.there or c.reached is not null""")
    b.carry("people", left)
    return line.computed()


MOVED = "not carried and partitions is distinct from b_partitions"


def _targets(b: Batch) -> Frame | None:
    """Returns the complete targets (type `t`), each with the number of partitions that it gives to another member. One
    behind a removed one moves all that it gives."""
    names = [m.tables + name for m in MODERN for name in ("targets", "target_members")]
    if b.idle(names, ("target_members", "target_changes", "complete_targets")):
        return None
    targets, was = b.every("targets", lambda m: {m.kind: "epoch, assignor"}).computed(), b.was["complete_targets"]
    changes = _changes(b)
    of = " and ".join(f"c.{name} = t.{name}" for name in OF_KIND.split(", "))
    changes = changes.query(f"""select c.*, t.offset as target from {changes} c asof left join {targets} t
            on {of} and c.offset < t.offset""").computed()
    b.carry("target_changes", changes.where("target is null"))
    latest = f"select {OF_KIND}, offset from {targets} union all by name select * from {was}"
    b.carry("complete_targets", was.query(f"select {OF_KIND}, max(offset) as offset from ({latest}) group by all"))
    return targets.query(f"""with gains as (select {OF_KIND}, target, member_id, place, sum(gain) as gain from {changes}
                where target is not null group by all),
            moves as (select {OF_KIND}, target as offset, count(distinct place) filter (where gain > 0) as moved
                from gains group by all),
            a as (select t.*, coalesce(moved, 0) as moved, coalesce(lag(t.offset) over
                    (partition by {OF_KIND} order by t.offset), l.offset, 0) as since
                from {targets} t left join moves using ({OF_KIND}, offset) left join {was} l using ({OF_KIND}))
            select {OF_KIND}, offset, 't' as type, rec, true as there, epoch, {AIM} as target
                from a where not deleted""")


def _changes(b: Batch) -> Frame:
    """Returns the changes of targets since the last complete one."""
    records = b.every("target_members", lambda m: {m.kind: f"member_id, {m.target} as partitions"})
    rows = records.query(f"""select {HOLDER}, offset, deleted, partitions, false as carried from {records}
            union all by name select *, false as deleted, true as carried from {b.was["target_members"]}""")
    chain = rows.query(f"""select *, lag(partitions) over w as b_partitions, lead(1) over w is null as latest
            from {rows} window w as (partition by {HOLDER} {ORDER})
            qualify latest or partitions is distinct from b_partitions""").computed()
    b.carry("target_members", chain.where("latest and not deleted"))
    return chain.query(f"""
        with a as (select {HOLDER}, offset, unnest(partitions) as t, 1 as gain from {chain} where {MOVED}
                union all select {HOLDER}, offset, unnest(b_partitions), -1 from {chain} where {MOVED}),
            b as (select {HOLDER}, offset, t.topic_id as topic_id, unnest(t.partitions) as partition, gain from a)
            select {HOLDER}, offset, sum(gain)::int as gain, concat(partition, '|', topic_id) as place from b
                group by {HOLDER}, offset, topic_id, partition having sum(gain) <> 0
            union all by name select * from {b.was["target_changes"]}""")


def _classic_steps(b: Batch, events: Frame) -> Frame | None:
    """Returns the steps of classic groups. A generation begins with the record that ends the join phase; its rebalance,
    with the PreparingRebalance before (epochs.py). `events`: of holdings; those of a record tell how many partitions it
    moves."""
    if b.idle(("classic_groups",), ("classic_states",)):
        return None
    moved = f"""select {GROUP}, offset, count(*) as moved from {events} where kind = 'classic' and type = 'a'
        group by all"""
    rows = b.db.query(f"""
        select {GROUP}, offset, rec, why, deleted, state, generation, assigned_generation, protocol, revision,
            false as carried from {b.valid("classic_groups")}
            union all by name select *, false as deleted, true as carried from {b.was["classic_states"]}""")
    chain = rows.query(f"""with a as (select *, lag(state) over w as b_state, lead(1) over w is null as latest,
                not carried and coalesce(state = 'PreparingRebalance', false) as prepares
                from {rows} window w as (partition by {GROUP} {ORDER}))
            select *, prepares and b_state is distinct from 'PreparingRebalance' as begins,
                last_value(case when deleted then struct_pack(e := null::int)
                    when not prepares then struct_pack(e := generation) end ignore nulls) over earlier as former
                from a window earlier as (partition by {GROUP} {ORDER} {EARLIER})""").computed()
    left = chain.select("* replace (case when prepares then former.e else generation end as generation)")
    b.carry("classic_states", left.where("latest and not deleted"))
    return chain.query(f"""with a as (select c.*, coalesce(m.moved, 0) as moved,
                not deleted and not prepares and former.e is distinct from generation as turns from {chain} c
                left join ({moved}) m using ({GROUP}, offset) where not carried)
            select {GROUP}, 'classic' as kind, offset, rec, type, not deleted as there, generation as epoch, revision,
                {BEGUN} as began, case when type = 't' then {AIM_OF_CLASSIC} end as target
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
    begun = f"""select {OF_KIND}, offset, 'g' as type, rec, not deleted as there, epoch, revision,
        {BEGUN} as began, null as target from {groups}"""
    others = [f for f in (_targets(b), _classic_steps(b, events)) if f is not None]
    steps = b.db.query(" union all by name ".join((begun, *(f"select * from {f}" for f in others)))).computed()
    rows = b.db.query(f"""
        select {OF_KIND}, offset, type, {TIMES}, there, reached as epoch, came, from_epoch, to_epoch, 1 as d from {line}
            union all by name select {OF_KIND}, offset, type, {TIMES}, there, epoch, 0 as came from {steps}
            union all by name select {OF_KIND}, -1 as offset, 'w' as type, acc.there as there, acc.head.epoch as epoch,
                acc.live as came from {was}
            union all by name select {OF_KIND}, -2 as offset, 'r' as type, reached as to_epoch, count(*) as d
                from {b.was["people"]} where member and reached is not null group by all""")
    details = b.db.query(f"""
        select {OF_KIND}, offset, type, member_id, b_there from {line} where type = 'm'
            union all by name select {OF_KIND}, offset, type, began, target, revision from {steps}
            union all by name select {OF_KIND}, -1 as offset, 'w' as type, acc from {was}""")
    return rows, details
