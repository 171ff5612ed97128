"""Number of members that hold the same place, where several may: sharing degree of a share group's partitions, standby
and warm-up tasks of a streams group; and tasks with state that have fewer standbys than their group wants.

A group wants `num.standby.replicas`, as its epochs took the setting over, but no more than it has other processes than
that of the active task: no assignor can place more.
"""

from __future__ import annotations

from sidecar.audit.gold.batch import Batch
from sidecar.audit.gold.frames import Frame
from sidecar.audit.gold.holdings import PLACE as HELD
from sidecar.audit.gold.members import REPLICAS, STANDBYS
from sidecar.audit.gold.shares import PLACE
from sidecar.audit.gold.steps import GROUP, begun_or_ended, chain

STATEFUL = "list_transform(list_filter(subtopologies, lambda s: len(s.changelog_topics) > 0), lambda s: s.subtopology)"


def holders(b: Batch, intervals: Frame) -> Frame:
    """Returns a row from each change of the number to the next; none where it is 0. `intervals`: all that have ended in
    this batch or are open. The last batch's numbers count all that began until then."""
    was = b.was["holders"]
    counts = intervals.query(f"""
        with a as (select {HELD}, i.topic, i.from_rec as rec, 1 as d from {intervals} i left join {was} w using ({HELD})
                    where i.from_rec.offset > coalesce(w.from_rec.offset, -1)
                union all select {HELD}, topic, to_rec, -1 from {intervals} where not open
                union all select {HELD}, topic, from_rec, holders from {was}),
            b as (select {HELD}, max(topic) as topic, any_value(rec) as from_rec, sum(d) as d
                from a group by {HELD}, rec.offset having sum(d) <> 0)
            select *, to_rec is null as open from (
                select *, sum(d) over w as holders, lead(from_rec) over w as to_rec from b
                window w as (partition by {HELD} order by from_rec.offset)) where holders > 0""").computed()
    b.carry("holders", counts.where("open"))
    return counts.select("*, case when kind = 'share' then topic_key end as topic_id, kind as role")


def topologies(b: Batch) -> Frame:
    """Makes the table of topologies, of which the topic has a record only for each change. Returns each change of the
    list of subtopologies with state."""
    records = b.valid("streams_topologies")
    internal = """list_transform(flatten(list_transform(subtopologies,
        lambda s: s.repartition_source_topics || s.changelog_topics)), lambda t: t.name)"""
    b.add(
        "streams_topology_changes",
        records.where("not deleted").select(
            f"""* replace (list_transform(subtopologies, lambda s: s.subtopology) as subtopologies),
                list_sort(list_distinct({internal})) as internal_topics"""
        ),
    )
    return b.changes("stateful", records, STATEFUL, "'' as member_id")


def standbys_wanted(b: Batch) -> Frame:
    """From which record `n` on how many standbys each task of the subtopologies with state should have; -1: from
    before."""
    subtopologies, was = topologies(b), b.was["lives"]
    state, of_replicas = f"'' as member_id, {STANDBYS} as value", was.where(f"kind = '{REPLICAS}'")
    replicas = chain(state, "'' as member_id, state as value", b.valid("streams_groups"), of_replicas)
    process, people = "member_id, case when not deleted then [process_id] end as value", was.where("kind = 'streams'")
    carried = "key_id as member_id, [payload.process_id] as value"
    processes = begun_or_ended(chain(process, carried, b.valid("streams_members"), people))
    return replicas.query(f"""
        with a as (select {GROUP}, n, rec, coalesce(value::int, 0) as replicas, null as stateful, 0 as more
                    from {replicas}
                union all select {GROUP}, n, rec, null, coalesce(value, []), 0 from {subtopologies}
                union all select {GROUP}, n, rec, null, null, case when now > 0 then 1 else -1 end from {processes}),
            b as (select {GROUP}, n, any_value(rec) as rec, any_value(replicas) as r, any_value(stateful) as s,
                sum(more) as more from a group by {GROUP}, n),
            c as (select {GROUP}, n, rec, coalesce(last_value(s ignore nulls) over w, []) as stateful,
                greatest(least(coalesce(last_value(r ignore nulls) over w, 0), sum(more) over w - 1), 0) as wanted
                from b window w as (partition by {GROUP} order by n))
            select * from c qualify (wanted, stateful) is distinct from lag((wanted, stateful))
                over (partition by {GROUP} order by n)""").computed()


def lacking(b: Batch, intervals: Frame, turns: Frame) -> Frame:
    """A row for each time in which a member had a task as active and fewer standbys than `wanted` were `held`.
    `intervals`: all that have ended in this batch or are open; what began before this batch is at -1 here. `turns`:
    from `standbys_wanted`."""
    read = b.was["read"]
    rows = intervals.query(f"""
        with a as (select {PLACE}, case when from_rec.offset > coalesce(last_offset, -1) then from_rec.offset
                    else -1 end as n, from_rec as rec, kind, 1 as d, null as standbys
                    from {intervals} left join {read} using (state_partition)
                union all select {PLACE}, to_rec.offset, to_rec, kind, -1, null from {intervals} where not open
                union all select {PLACE}, n, rec, '', 0, list_contains(stateful, topic_key)::int * wanted
                    from (select distinct {PLACE} from {intervals}) join {turns} using ({GROUP})),
            b as (select {PLACE}, n, any_value(rec) as rec, max(standbys) as standbys,
                coalesce(sum(d) filter (where kind = 'active'), 0) as a,
                coalesce(sum(d) filter (where kind = 'standby'), 0) as s from a group by {PLACE}, n),
            c as (select {PLACE}, n, rec, sum(a) over w > 0 as had, sum(s) over w as held,
                last_value(standbys ignore nulls) over w as wanted
                from b window w as (partition by {PLACE} order by n)),
            d as (select *, case when had and held < wanted then (wanted, held) end as lack from c
                qualify lack is distinct from lag(lack) over (partition by {PLACE} order by n))
            select *, lead(rec) over w as to_rec from d window w as (partition by {PLACE} order by n)""")
    short = rows.query(f"""select r.*, topic_key as subtopology, to_rec is null as open,
                case when n < 0 then w.from_rec else r.rec end as from_rec
            from {rows} r left join {b.was["lacking"]} w using ({PLACE}) where lack is not null""").computed()
    b.carry("lacking", short.where("open"))
    return short
