"""Intervals, overlaps and unowned time, from events of holdings. The caller drops overlaps where several members may
hold a place, as in a share group.

Two members own a place at the same time if one begins before the other has ended. Each beginning is compared only with
the earlier interval that lasts longest. So a window over the place's intervals, in the order of their beginnings, finds
every overlap without comparing pairs. Where records are missing, an interval falls into stretches in which ownership is
certain: only these prove an overlap.
"""

from __future__ import annotations

from sidecar.audit.gold.batch import Batch
from sidecar.audit.gold.frames import Frame, by_number, kinds, numbers
from sidecar.audit.gold.holdings import PLACE
from sidecar.audit.gold.steps import EARLIER

EVER = 9223372036854775807
"""Offset of an end that has not come yet."""
STATE = "struct_pack(type, rec)"
IN_ORDER = "order by phase, s_offset, member_id, asked desc"
BEFORE = f"partition by p {IN_ORDER} {EARLIER}"
"""Window over all earlier beginnings at a place, first those that the last batch carried."""
FROM = "struct_pack(rec, why, not_before, exact, epoch, topic)"
END = "struct_pack(offset := {0}.reach, ms := {0}.ms, written_ms := {0}.written_ms)"
INTERVAL = """*, f.rec as from_rec, f.why as from_why, f.not_before as from_not_before_offset, f.exact as from_exact,
    case when st.type = 'p' then st.rec end as revoking_from_rec, f.epoch as first_epoch"""
"""Columns of an interval in the tables, from its beginning and its last state."""


def owned(b: Batch, events: Frame) -> tuple[Frame, Frame, Frame, set[str]]:
    """Returns the intervals that have ended in this batch or are open, overlaps, unowned time, and the kinds of
    holdings in all of these."""
    keyed = (events, b.was["intervals"], b.was["doubtful"], b.was["places"])
    known = numbers(PLACE, "p", *keyed)
    events, was, doubtful, places = (by_number(frame, known, PLACE, "p") for frame in keyed)
    marked = _marked(events, was)
    stretches = _intervals(marked, was).computed()
    rows, before = _compared(_stretches(stretches, marked).computed(), doubtful, places)
    left = _longest(rows).computed()
    intervals = _named(stretches.select(INTERVAL), known)
    b.carry("intervals", intervals.where("open"))
    b.carry("doubtful", _named(_doubtful(rows, before), known))
    b.carry("places", _named(left, known))
    return intervals, _named(_overlaps(before), known), _named(_unowned(before, left), known), kinds(known)


def _named(rows: Frame, places: Frame) -> Frame:
    return rows.query(f"""
        select n.* exclude (p), case when n.kind in ('consumer', 'share') then n.topic_key end as topic_id,
            r.* exclude (p) from {rows} r join {places} n using (p)""")


def _marked(events: Frame, was: Frame) -> Frame:
    """Marks events. `begins`: whether an interval begins; `no` identifies it: the offset at which the one before ended,
    -1 for the first. A count would do; last_value is four times as fast."""
    rows = events.query(f"""select * from {events} union all by name
            select p, member_id, 's' as type, stretch_offset as offset, 0 as missing from {was}""")
    return rows.query(f"""select *, type in ('a', 'p', 's') and coalesce(lag(type) over w, 'x') = 'x' as begins,
                coalesce(last_value(case when type = 'x' then offset end ignore nulls) over earlier, -1) as no
            from {rows} window w as (partition by p, member_id order by offset),
                earlier as (partition by p, member_id order by offset {EARLIER})""").computed()


def _intervals(marked: Frame, was: Frame) -> Frame:
    """Returns intervals with their beginning (`f`), last state (`st`), whether records are missing in between (`torn`),
    and the offset of the first event in this batch, or of what the last batch carried (`s_offset`). Nearly every
    interval is a beginning and an end with nothing in between, so this is a join and no group."""
    begins = marked.query(f"""
        select p, member_id, no, offset as s_offset, topic, false as carried, {FROM} as f, {STATE} as st,
                0 as unseen from {marked} where begins and type <> 's'
            union all by name select p, member_id, -1 as no, stretch_offset as s_offset, f.topic as topic,
                true as carried, f, st, unseen from {was}""")
    between = marked.query(f"""select p, member_id, no, arg_max({STATE}, offset) filter (where type <> 'k') as st,
                max(offset) filter (where type = 'k') as torn_at, sum(missing) filter (where type = 'k') as missing
            from {marked} where not begins and type <> 'x' group by all""")
    return begins.query(f"""select b.* exclude (st, unseen), coalesce(i.st, b.st) as st, i.torn_at is not null as torn,
                coalesce(i.torn_at, s_offset) as stretch_offset,
                (b.unseen + coalesce(i.missing, 0))::bigint as unseen,
                e.rec as to_rec, e.why as to_why, e.not_before as to_not_before_offset, e.exact as to_exact,
                e.b_epoch as last_epoch, e.type is null as open
            from {begins} b
                left join {between} i using (p, member_id, no)
                left join (select * from {marked} where type = 'x') e using (p, member_id, no)""")


def _stretches(intervals: Frame, marked: Frame) -> Frame:
    """Returns stretches of certain ownership. `reach`: the last offset at which it is certain; `end_offset`: the first
    at which it is certainly over. An interval that is not torn is one stretch."""
    first = """p, member_id, no, f.rec.offset as from_offset, s_offset, topic, f.rec as rec, carried, true as first,
        f.not_before as not_before, to_rec, to_not_before_offset"""
    torn = intervals.query(f"""with a as (select {first}, null as n_not_before from {intervals} where torn
                union all select k.p, k.member_id, k.no, i.f.rec.offset, k.offset, k.topic, k.rec, false, false,
                    null, to_rec, to_not_before_offset, k.not_before
                    from {marked} k join {intervals} i using (p, member_id, no) where k.type = 'k')
            select * exclude (n_not_before) replace (lead(rec, 1, to_rec) over w as to_rec,
                lead(n_not_before, 1, to_not_before_offset) over w as to_not_before_offset)
                from a window w as (partition by p, member_id, no order by s_offset)""")
    return intervals.query(f"""
        select p, member_id, from_offset, s_offset, topic, rec, carried, first, not_before, to_rec,
                case when to_rec is null then {EVER} else greatest(to_not_before_offset, s_offset) end as reach
            from (select {first} from {intervals} where not torn union all select * from {torn})""")


def _compared(stretches: Frame, doubtful: Frame, places: Frame) -> tuple[Frame, Frame]:
    """Returns the stretches of each place in the order of their beginnings; and those that are new or doubtful with the
    earlier one that lasts longest, certainly (`pc`) and possibly (`po`)."""
    of_end = "from_offset, member_id, ms := to_rec.ms, written_ms := to_rec.written_ms"
    rows = stretches.query(f"""select p, member_id, from_offset, s_offset, topic, rec, first, not_before,
                case when carried then 0 else 2 end as phase, not carried as asked, struct_pack(reach, {of_end}) as c,
                struct_pack(reach := coalesce(to_rec.offset, {EVER}), {of_end}) as o,
                null as was_c, null as was_o from {stretches}
            union all by name select * exclude (c, o), 0 as phase, true as asked, c as was_c, o as was_o
                from {doubtful}
            union all by name select p, '' as member_id, -1 as s_offset, topic, 1 as phase, false as asked, c, o
                from {places}""")
    kept = "p, member_id, from_offset, s_offset, topic, rec, first, not_before, asked, c, o"
    # Where each began only after the one before had ended, that one lasted longest: no further comparison is needed.
    near = rows.query(f"""select {kept}, lag(c) over w as pc, lag(o) over w as po, asked and phase = 0 as was_doubtful
            from {rows} window w as (partition by p {IN_ORDER})""").computed()
    shared = near.query(f"select distinct p from {near} where po.reach > s_offset or was_doubtful").computed()
    before = near.query(f"""select {kept}, pc, po from {near} anti join {shared} using (p) where asked
            union all select {kept}, pc, po from (
                select *, greatest(max(c) over w, was_c) as pc, greatest(max(o) over w, was_o) as po
                from {rows} semi join {shared} using (p) window w as ({BEFORE}))
            where asked""").computed()
    return rows, before


def _longest(rows: Frame) -> Frame:
    return rows.query(f"""select p, max(topic) as topic, max(case when c.reach < {EVER} then c end) as c,
                max(case when o.reach < {EVER} then o end) as o, coalesce(max(o.reach) = {EVER}, false) as owned
            from {rows} group by p""")


def _doubtful(rows: Frame, before: Frame) -> Frame:
    """Returns doubtful beginnings with the longest lasting earlier stretch that has ended. Few places have any."""
    return rows.query(f"""
        with a as (select * from {rows} semi join (select p from {before} where po.reach = {EVER}) using (p)),
            b as (select *, greatest(max(o) over w, was_o) as po,
                greatest(max(case when c.reach < {EVER} then c end) over w, was_c) as ended_c,
                greatest(max(case when o.reach < {EVER} then o end) over w, was_o) as ended_o
                from a window w as ({BEFORE}))
            select p, member_id, from_offset, s_offset, topic, rec, first, not_before, ended_c as c, ended_o as o
                from b where asked and po.reach = {EVER}""")


def _overlaps(before: Frame) -> Frame:
    return before.query(f"""with a as (select *, pc.reach >= s_offset and pc.member_id <> member_id as proven,
                first and po.reach > coalesce(not_before, -1) + 1 and po.member_id <> member_id as possible
                from {before}),
            b as (select *, case when proven then pc else po end as other from a where proven or possible)
            select p, topic, member_id, from_offset, other.member_id as other_member_id,
                other.from_offset as other_from_offset, rec,
                case when proven then 'proven' else 'possible' end as grade, po.reach = {EVER} as open from b""")


def doubted(overlaps: Frame, cuts: Frame, unsure: Frame) -> Frame:
    """Grades overlaps as possible across offsets that were never read, and behind the last record of an other member
    who is `unsure`: there it may have given the place up."""
    return overlaps.query(f"""
        select o.* replace (case when exists (select 1 from {cuts} c where c.state_partition = o.state_partition
                and o.other_from_offset < c.until_offset and c.until_offset <= o.rec.offset)
            or exists (select 1 from {unsure} u where u.state_partition = o.state_partition and u.group_id = o.group_id
                and u.member_id = o.other_member_id and u.offset < o.rec.offset)
            then 'possible' else grade end as grade) from {overlaps} o""")


def _unowned(before: Frame, places: Frame) -> Frame:
    """Returns unowned time. It is proven only where everything is known (`owned`): otherwise a member without any
    record left may have had the place."""
    return before.query(f"""
        select p, topic, po.member_id as former_member_id, {END.format("po")} as from_rec, member_id, rec as to_rec,
                case when not_before >= po.reach then not_before end as to_not_before_offset, false as open
                from {before} where first and po.reach < s_offset
            union all select p, topic, o.member_id, {END.format("o")}, null, null, null, true from {places}
                where not owned and o is not null""")
