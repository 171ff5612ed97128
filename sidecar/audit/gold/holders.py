"""Number of members that hold the same place, where several may: sharing degree of a share group's partitions, standby
and warm-up tasks of a streams group."""

from __future__ import annotations

from sidecar.audit.gold.frames import Frame, computed, sql

PLACE = "state_partition, group_id, kind, topic_key, partition"


def counted(intervals: Frame, was: Frame) -> Frame:
    """Returns a row from each change of the number to the next; none where it is 0. `intervals`: all that have ended in
    this batch or are open; `was`: the last batch's numbers, which count all that began until then."""
    return computed(
        sql(
            f"""with a as (select {PLACE}, i.topic, from_offset as n, from_ms as ms, from_written_ms as written_ms,
                        1 as d from {{intervals}} i left join {{was}} w using ({PLACE})
                        where from_offset > coalesce(w.n, -1)
                    union all select {PLACE}, topic, to_offset, to_ms, to_written_ms, -1 from {{intervals}}
                        where not open
                    union all select {PLACE}, topic, n, ms, written_ms, holders from {{was}}),
                b as (select {PLACE}, n, max(topic) as topic, any_value(ms) as ms, any_value(written_ms) as written_ms,
                    sum(d) as d from a group by {PLACE}, n having sum(d) <> 0),
                c as (select *, sum(d) over w as holders, lead(n) over w as to_offset, lead(ms) over w as to_ms,
                    lead(written_ms) over w as to_written_ms from b
                    window w as (partition by {PLACE} order by n))
                select {PLACE}, topic, holders::int as holders, n as from_offset, ms as from_ms,
                    written_ms as from_written_ms, to_offset, to_ms, to_written_ms, to_offset is null as open
                    from c where holders > 0""",
            intervals=intervals,
            was=was,
        )
    )


def carried(counts: Frame) -> Frame:
    return counts.where("open").select("*, from_offset as n, from_ms as ms, from_written_ms as written_ms")


def as_holders(rows: Frame) -> Frame:
    """Returns rows with the table's columns. A task is a place of a streams group, whose topic is its subtopology."""
    return rows.select(
        """* replace (case when kind = 'share' then kind else 'streams' end as kind,
                case when kind = 'share' then topic else topic_key end as topic),
            case when kind = 'share' then topic_key end as topic_id, kind as role"""
    )
