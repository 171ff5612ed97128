"""From events of holdings to intervals, overlaps and unowned time.

Two members own a place at the same time if one begins before the other has ended. For each that begins it is enough to
know which of those before it goes on longest, so a window over the place's intervals, in the order in which they began,
finds every overlap without looking at pairs. Where records are missing, an interval falls into stretches in which it
certainly held: only these prove an overlap.
"""

from __future__ import annotations

from typing import NamedTuple

from sidecar.audit.gold.frames import Frame, done, pack, sql
from sidecar.audit.gold.steps import graded

PLACE = "state_partition, group_id, kind, topic_key, partition"
SAME_PLACE = " and ".join(f"r.{column} = n.{column}" for column in PLACE.split(", "))
EVER = 9223372036854775807
"""Offset of an end that is not there yet."""
GONE = pack("offset, ms, written_ms, why, not_before, exact, b_epoch")
STATE = pack("offset, type, ms, written_ms")
EARLIER = """partition by p order by phase, s_offset, member_id, asked desc
    rows between unbounded preceding and 1 preceding"""
"""In the order in which they began: first what the last batch left."""
FROM = pack("offset, ms, written_ms, why, not_before, exact, epoch, topic")


class Owned(NamedTuple):
    intervals: Frame
    """All that have ended in this batch or are open; of these also what the next batch must know."""
    overlaps: Frame
    unowned: Frame
    doubtful: Frame
    """Beginnings at which somebody else had not ended who has not ended yet: who went on longest is to be seen."""
    places: Frame
    """Of each place what went on longest among what has ended."""


def owned(events: Frame, was: Frame, doubtful: Frame, places: Frame, whole: Frame) -> Owned:
    """`was`: intervals that the last batch left open; `doubtful` and `places`: what else it left."""
    known = _numbers(events, was, doubtful, places)
    marked = _marked(*(_numbered(frame, known) for frame in (events, was)))
    intervals = done(_intervals(marked))
    rows, before = _compared(done(_stretches(marked)), *(_numbered(frame, known) for frame in (doubtful, places)))
    left = done(_longest(rows))
    unowned = _named(_unowned(before, left), known)
    return Owned(
        _named(intervals, known),
        _named(_overlaps(before), known),
        graded(unowned, whole, "from_offset", "to_offset"),
        _named(_doubtful(rows, before), known),
        _named(left, known),
    )


def _numbers(*frames: Frame) -> Frame:
    """A number `p` for each place in any of these: windows sort by it, and its key comes back at the end."""
    named = {f"f{i}": frame for i, frame in enumerate(frames)}
    every = " union ".join(f"select {PLACE} from {{{name}}}" for name in named)
    return done(sql(f"select row_number() over () as p, * from ({every})", **named))


def _numbered(rows: Frame, places: Frame) -> Frame:
    return sql(
        f"""select n.p, r.* exclude ({PLACE}) from {{rows}} r join {{places}} n on {SAME_PLACE}""",
        rows=rows,
        places=places,
    )


def _named(rows: Frame, places: Frame) -> Frame:
    return sql(
        """select n.* exclude (p), case when n.kind = 'consumer' then n.topic_key end as topic_id, r.* exclude (p)
            from {rows} r join {places} n on r.p = n.p""",
        rows=rows,
        places=places,
    )


def _marked(events: Frame, was: Frame) -> Frame:
    """`begins`: an interval does, with what is known of its begin (`f`); `no` counts the ends of intervals before; `st`
    is how it was held then."""
    rows = sql(
        """select p, member_id, type, offset, not_before, exact, missing, b_epoch, ms, written_ms, why, epoch,
                topic, null as f, null as st, 0 as unseen, false as carried
                from {events}
            union all select p, member_id, 's', stretch_offset, null, null, 0, null, null, null, null, null, null,
                f, st, unseen, true from {was}""",
        events=events,
        was=was,
    )
    marked = sql(
        f"""with a as (select *, type in ('a', 'p', 's') and coalesce(lag(type) over w, 'x') = 'x' as begins,
                coalesce(count(*) filter (where type = 'x') over earlier, 0) as no
                from {{rows}} window w as (partition by p, member_id order by offset),
                    earlier as (partition by p, member_id order by offset
                        rows between unbounded preceding and 1 preceding))
            select * exclude (f, st, epoch), case when carried then f when begins then {FROM} end as f,
                case when carried then st else {STATE} end as st
            from a""",
        rows=rows,
    )
    return done(marked)


def _intervals(marked: Frame) -> Frame:
    return sql(
        f"""with a as (select p, member_id, no, arg_min(f, offset) filter (where begins) as f,
                arg_max(st, offset) filter (where type in ('a', 'p', 's')) as st,
                any_value({GONE}) filter (where type = 'x') as e,
                max(case when begins or type = 'k' then offset end) as stretch_offset,
                sum(unseen + case when type = 'k' then missing else 0 end)::bigint as unseen
                from {{marked}} group by p, member_id, no)
            select p, member_id, f, st, stretch_offset, unseen, f.topic as topic,
                f.offset as from_offset, f.ms as from_ms, f.written_ms as from_written_ms, f.why as from_why,
                f.not_before as from_not_before_offset, f.exact as from_exact,
                e.offset as to_offset, e.ms as to_ms, e.written_ms as to_written_ms, e.why as to_why,
                e.not_before as to_not_before_offset, e.exact as to_exact,
                case when st.type = 'p' then st.offset end as revoking_from_offset,
                case when st.type = 'p' then st.ms end as revoking_from_ms,
                case when st.type = 'p' then st.written_ms end as revoking_from_written_ms,
                f.epoch as first_epoch, e.b_epoch as last_epoch, e is null as open from a""",
        marked=marked,
    )


def _stretches(marked: Frame) -> Frame:
    """`reach`: the last offset at which it certainly held; `end_offset`: the first at which it certainly was over."""
    return sql(
        f"""with a as (select * from {{marked}} where begins or type in ('x', 'k')),
            b as (select *, lead(offset) over w as n_offset, lead(not_before) over w as n_not_before,
                lead(ms) over w as n_ms, lead(written_ms) over w as n_written_ms,
                last_value(case when begins then f.offset end ignore nulls) over w as from_offset
                from a window w as (partition by p, member_id order by offset))
            select p, member_id, from_offset, offset as s_offset, coalesce(topic, f.topic) as topic, ms,
                written_ms, carried, type <> 'k' as first, f.not_before as not_before,
                case when n_offset is null then {EVER} else greatest(n_not_before, offset) end as reach,
                coalesce(n_offset, {EVER}) as end_offset, n_ms as end_ms, n_written_ms as end_written_ms
            from b where type <> 'x'""",
        marked=marked,
    )


def _compared(stretches: Frame, doubtful: Frame, places: Frame) -> tuple[Frame, Frame]:
    """All that hold a place in the order in which they began; and of those that are new or doubtful what went on
    longest before, certainly (`pc`) and possibly (`po`)."""
    rows = sql(
        f"""select p, member_id, from_offset, s_offset, topic, ms, written_ms, first, not_before,
                case when carried then 0 else 2 end as phase, not carried as asked,
                {pack("reach, from_offset, member_id, ms = end_ms, written_ms = end_written_ms")} as c,
                {pack("reach = end_offset, from_offset, member_id, ms = end_ms, written_ms = end_written_ms")} as o,
                null as was_c, null as was_o from {{stretches}}
            union all select p, member_id, from_offset, s_offset, topic, ms, written_ms, first, not_before,
                0, true, null, null, c, o from {{doubtful}}
            union all select p, '', -1, -1, topic, null, null, false, null, 1, false, c, o, null, null
                from {{places}}""",
        stretches=stretches,
        doubtful=doubtful,
        places=places,
    )
    before = sql(
        f"""select p, member_id, from_offset, s_offset, topic, ms, written_ms, first, not_before, asked, c, o,
                greatest(max(c) over w, was_c) as pc, greatest(max(o) over w, was_o) as po
            from {{rows}} window w as ({EARLIER})""",
        rows=rows,
    ).where("asked")
    return rows, done(before)


def _longest(rows: Frame) -> Frame:
    return sql(
        f"""select p, max(topic) as topic, max(case when c.reach < {EVER} then c end) as c,
                max(case when o.reach < {EVER} then o end) as o, coalesce(max(o.reach) = {EVER}, false) as owned
            from {{rows}} group by p""",
        rows=rows,
    )


def _doubtful(rows: Frame, before: Frame) -> Frame:
    """With what went on longest among what has ended. Few places have any."""
    return sql(
        f"""with a as (select r.* from {{rows}} r semi join (select p from {{before}} where po.reach = {EVER}) b
                    on r.p = b.p),
            b as (select *, greatest(max(o) over w, was_o) as po,
                greatest(max(case when c.reach < {EVER} then c end) over w, was_c) as ended_c,
                greatest(max(case when o.reach < {EVER} then o end) over w, was_o) as ended_o
                from a window w as ({EARLIER}))
            select p, member_id, from_offset, s_offset, topic, ms, written_ms, first, not_before,
                ended_c as c, ended_o as o from b where asked and po.reach = {EVER}""",
        rows=rows,
        before=before,
    )


def _overlaps(before: Frame) -> Frame:
    return sql(
        f"""with a as (select *, pc.reach >= s_offset and pc.member_id <> member_id as proven,
                first and po.reach > coalesce(not_before, -1) + 1 and po.member_id <> member_id as possible
                from {{before}}),
            b as (select *, case when proven then pc else po end as other from a where proven or possible)
            select p, topic, member_id, from_offset, other.member_id as other_member_id,
                other.from_offset as other_from_offset, s_offset as offset, ms, written_ms,
                case when proven then 'proven' else 'possible' end as grade, po.reach = {EVER} as open from b""",
        before=before,
    )


def _unowned(before: Frame, places: Frame) -> Frame:
    """It is proven only where everything is known: otherwise somebody may have had it of whom nothing is left."""
    return sql(
        """select p, topic, po.member_id as former_member_id, po.reach as from_offset, po.ms as from_ms,
                po.written_ms as from_written_ms, member_id, s_offset as to_offset, ms as to_ms,
                written_ms as to_written_ms, case when not_before >= po.reach then not_before end
                    as to_not_before_offset, false as open
                from {before} where first and po.reach < s_offset
            union all select p, topic, o.member_id, o.reach, o.ms, o.written_ms, null, null, null, null, null,
                true from {places} where not owned and o is not null""",
        before=before,
        places=places,
    )
