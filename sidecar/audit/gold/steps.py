"""First steps of all parts of gold: valid records, whole stretches of state partitions, and lives of keys."""

from __future__ import annotations

from collections.abc import Mapping

from sidecar.audit.gold.frames import Frame, numbers
from sidecar.audit.moments import LAST_MS
from sidecar.audit.tables.layers import FROM_KEY, SILVER, SILVER_TABLES
from sidecar.state.fold import UNFENCED

GROUP = "state_partition, group_id"
OF_KIND = f"{GROUP}, kind"
"""Columns of a group while it is of one kind."""
VOID = "(owner_epoch is not null and claimed_epoch is not null and owner_epoch <> claimed_epoch)"
ORDER = "order by offset"
EARLIER = "rows between unbounded preceding and 1 preceding"


def bounded(frame: Frame, name: str) -> Frame:
    """Returns a table of silver whose times and revisions can be computed with: in a record they may be any number.
    Times are clipped like the columns of timestamps. `rec`: the record's offset and times."""
    most = {"log_ms": LAST_MS, "written_ms": LAST_MS, "revision": REVISION_MAX}
    clipped = (
        f"case when {column} < 0 then 0 when {column} > {n} then {n} else {column} end as {column}"
        for column, n in most.items()
        if column in SILVER_TABLES[name].names
    )
    written = "written_ms" if "written_ms" in SILVER_TABLES[name].names else "null::bigint"
    rec = f"struct_pack(offset, ms := log_ms, written_ms := {written}) as rec"
    return frame.select(f"* replace ({', '.join(clipped)})").select(f"*, {rec}")


def valid(frame: Frame) -> Frame:
    """Returns the records without those of fenced coordinators, which change nothing."""
    return frame.where(f"not {VOID}")


def keyed(silver: Mapping[str, Frame]) -> Frame:
    """Returns every readable record with its key, without its contents; those of fenced coordinators with the
    reason."""
    selects = []
    for kind in [kind for kind, table in SILVER.items() if table.name in silver] or ["schema"]:
        void = "false" if kind in UNFENCED else VOID
        selects.append(
            f"""select state_partition, offset, rec, '{kind}' as kind, group_id,
                {FROM_KEY.get(kind, "''")} as sub_id, owner_epoch, claimed_epoch, revision, deleted, {void} as void,
                case when {void} then why end as why
                from {silver[SILVER[kind].name]}"""
        )
    return silver["schemas"].query(" union all ".join(selects))


def cuts(keys: Frame, new: Frame, before: Frame) -> Frame:
    """Returns all offsets that were never read, with `written_ms` of the first record behind them. `new`: those right
    before this batch."""
    return keys.query(f"""select c.* replace (coalesce(c.written_ms, f.written_ms) as written_ms) from (
                select *, false as is_new from {before} union all by name select *, true as is_new from {new}) c
            left join (select state_partition, arg_min(rec.written_ms, offset) as written_ms from {keys} group by all) f
            using (state_partition)""").computed()


def read(keys: Frame, corrupt: Frame, before: Frame, cuts: Frame) -> Frame:
    """Returns for each state partition how far it was read, its first offset without a record (null: there is none;
    `torn`: it is new), and the number of such offsets, in total and in a row, without those that were never read; and
    the rest of `before`. The search for holes looks at every offset, so it runs only where the count shows that there
    is one."""
    offsets = keys.query(f"""select state_partition, offset, true as is_new from {keys}
            union all select state_partition, offset, true from {corrupt}
            union all select state_partition, last_offset, false from {before}""")
    ends = offsets.query(f"""select state_partition, max(offset) as last_offset,
                last_offset - coalesce(max(offset) filter (where not is_new), -1) <> sum(is_new::int) as torn
            from {offsets} group by all""").computed()
    holes = offsets.query(f"""select state_partition, before + 1 as hole, offset, offset - before - 1 as length from (
                select *, lag(offset, 1, -1) over (partition by state_partition order by offset) as before
                from {offsets} semi join (select * from {ends} where torn) using (state_partition))
            where is_new and offset > before + 1""")
    behind = f"""select max(until_offset) from {cuts} c where c.state_partition = h.state_partition
        and c.until_offset between h.hole + 1 and h.offset"""
    holes = holes.query(f"select h.* replace (h.offset - coalesce(({behind}), h.hole) as length) from {holes} h")
    return holes.query(f"""select state_partition, e.last_offset,
                coalesce(b.first_hole_offset, h.hole) as first_hole_offset,
                coalesce(b.without_record, 0) + coalesce(h.without_record, 0) as without_record,
                greatest(b.longest_hole, h.longest_hole, 0) as longest_hole, b.first_repeat,
                coalesce(b.last_sign, -1) as last_sign,
                case when b.last_offset is null then 0 else b.whole_from end as whole_from, b.whole_from_ms,
                b.first_hole_offset is null and h.hole is not null as torn
            from {ends} e left join {before} b using (state_partition)
                left join (select state_partition, min(hole) as hole, sum(length)::bigint as without_record,
                max(length) as longest_hole from {holes} group by all) h using (state_partition)""").computed()


REVISION_MAX = 1 << 40
UNSURE = -1
"""Revision of a key's last value before offsets that were never read. Values behind them may belong to another life of
the key, so no revision follows this one."""
MISSING = f"""case
    when carried or b_revision = {UNSURE} then 0
    when b_live and revision is null then 0
    when b_live and revision > b_revision then revision - b_revision - 1
    when b_live then revision
    else coalesce(revision, 1) - 1 end"""
"""SQL of the number of values that are missing right before a record of their key. `b_live`: a value of the key came
before it. A revision that is not higher than that one's shows that a tombstone is missing as well."""
BEFORE = """coalesce(not lag(deleted) over w, false) as b_live, lag(revision) over w as b_revision,
    lag(offset) over w as b_offset"""
"""Columns of the record of the key before."""


def unsure(rows: Frame, cuts: Frame, revision: str) -> Frame:
    """Returns carried rows, with the revision UNSURE if offsets right behind them were never read."""
    return rows.query(f"""
        select * replace (case when state_partition in (select state_partition from {cuts} where is_new)
            then {UNSURE} else {revision} end as {revision}) from {rows}""")


def whole(before: str) -> str:
    """Returns SQL of whether everything was read from the record at the offset in this column to this one."""
    return f"coalesce(coalesce({before}, offset) >= whole_from, false)"


def adjacent(before: str) -> str:
    """Returns SQL of whether no value is missing between a record and the one of its key before, at the offset in this
    column. For a tombstone without a revision that is known only where everything was read."""
    return f"""case when revision is null then {whole(before)} when b_live then revision = b_revision + 1
        else revision = 1 end"""


def revisions(keys: Frame, before: Frame) -> Frame:
    """Returns for each record of a key how many values are `missing` right before it; whether it `repeats`, that is,
    directly follows a value of its key that was read; and whether it is the `latest`. `before`: the last revisions so
    far. Only the latest and those behind missing values get their key: a key is long, and most records need none."""
    name = f"{OF_KIND}, sub_id"
    rows = keys.query(f"""select {name}, offset, rec, revision, deleted, false as carried from {keys}
                where not void and kind not in ('schema', 'owner_claim')
            union all by name select *, false as deleted, true as carried from {before}""")
    known = numbers(name, "k", rows)
    return rows.query(f"""
        with a as (select *, {BEFORE}, lead(1) over w is null as latest
                from (select k, r.* exclude (group_id, kind, sub_id) from {rows} r join {known} using ({name}))
                window w as (partition by k {ORDER})),
            b as (select *, {MISSING} as missing from a)
            select b.state_partition, group_id, kind, sub_id, offset, rec, revision, deleted, latest, b_offset,
                missing, coalesce(not carried and b_live and revision = b_revision + 1, false) as repeats
            from b left join {known} n on b.k = n.k and (latest or missing > 0)""")


def stretches(records: Frame, read: Frame, cuts: Frame) -> Frame:
    """Returns the stretches in which state partitions are whole (tables/gold.py), from `whole_from` to before `until`.
    `records`: from `revisions`; `read`: from `read`, with the last stretch of each so far; `cuts`: from `cuts`."""
    marks = records.where("missing > 0 or repeats").select("state_partition, offset, b_offset, repeats, rec.ms as ms")
    marks = marks.query(f"""select * from {marks} union all by name
        select state_partition, until_offset - 1 as offset, false as repeats from {cuts} where is_new""")
    parts = read.query(f"""select r.* replace (least(first_repeat, first) as first_repeat,
                torn and coalesce(first_hole_offset < least(first_repeat, first), true) as torn)
            from {read} r left join (select state_partition, min(offset) as first from {marks} where repeats
                group by all) using (state_partition)""").computed()
    return marks.query(f"""
        with a as (select * from {marks}
                union all by name select state_partition, first_hole_offset as offset, false as repeats from {parts}
                    where torn
                union all by name select state_partition, last_sign as offset, false as repeats,
                    whole_from_ms as ms, whole_from as begin from {parts}),
            b as (select *, max(case when not repeats then offset end) over (partition by state_partition
                order by offset) as sign from a),
            c as (select state_partition, sign, min(since) as whole_from, arg_min_null(ms, since) as whole_from_ms
                from (select *, coalesce(begin, case when repeats and b_offset > sign then offset end) as since from b)
                group by all),
            d as (select *, lead(sign) over (partition by state_partition order by sign) as until from c)
            select p.* replace (sign as last_sign, d.whole_from as whole_from, d.whole_from_ms as whole_from_ms), until
            from d join {parts} p using (state_partition)
            where d.whole_from is not null or until is null""")


def unreadable(corrupt: Frame, was: Frame) -> Frame:
    """Returns for each key of a group the first and the last record that cannot be read. `was`: of the batches before.
    Kinds that are not known here say nothing of those that are."""
    return corrupt.query(f"""
        select {OF_KIND}, sub_id, min(first_offset) as first_offset,
                max(last_offset) as last_offset from (
                select *, offset as first_offset, offset as last_offset from {corrupt}
                    where kind in {tuple(SILVER.keys() - UNFENCED)}
                union all by name select * from {was})
            group by all""").computed()


KEY = f"{OF_KIND}, key_id"


def lives(rows: Frame) -> Frame:
    """Returns the lives of keys: from a value to the key's tombstone, or to a value with another `state`.

    `rows`: state_partition, group_id, kind, key_id, state, offset, rec, why, revision, deleted, payload (of which the
    last counts), whole_from, carried, and of carried rows from_exact, from_not_before_offset and unseen so far."""
    chain = rows.query(f"""with a as (select *, {BEFORE}, lag(state) over w as b_state
                from {rows} window w as (partition by {KEY} {ORDER})),
            b as (select *, not deleted and (not b_live or state is distinct from b_state) as begins,
                case when carried then unseen when begins then 0 else {MISSING} end as missing,
                case when carried then from_exact else {adjacent("b_offset")} end as exact,
                case when carried then from_not_before_offset when exact then offset - 1 when b_live then b_offset end
                    as not_before from a),
            c as (select *, last_value(case when begins then offset end ignore nulls) over w as no,
                lead(deleted or begins) over w as n_ends, lead(struct_pack(rec, why, exact, not_before)) over w as next
                from b window w as (partition by {KEY} {ORDER}))
            select * from c where not deleted""")
    return chain.query(f"""with a as (select {KEY}, no, arg_min(struct_pack(rec, why, exact, not_before), offset) as f,
                arg_max(struct_pack(offset, payload, revision, state), offset) as l,
                any_value(next) filter (where n_ends) as e, sum(missing)::bigint as unseen
                from {chain} group by {KEY}, no)
            select {KEY}, l.state, l.offset as last_offset, l.revision as last_revision, l.payload,
                f.rec as from_rec, f.why as from_why, f.not_before as from_not_before_offset, f.exact as from_exact,
                unseen, e.rec as to_rec, e.why as to_why, e.not_before as to_not_before_offset, e.exact as to_exact,
                e is null as open from a""")


def chain(new: str, old: str, records: Frame, was: Frame) -> Frame:
    """Values of records, each with the value before it. `n`: the offset, or -1 for state that the last batch left."""
    rows = records.query(f"""select {GROUP}, offset as n, rec, why, {new} from {records}
            union all by name select {GROUP}, -1 as n, {old} from {was}""")
    linked = rows.query(f"""select *, lag(value) over w as before, lead(1) over w is null as latest
        from {rows} window w as (partition by {GROUP}, member_id order by n)""")
    return linked.where("latest or value is distinct from before").computed()


def begun_or_ended(named: Frame) -> Frame:
    """Returns when the first member began to name something (`now` > 0), and when the last one ended it."""
    return named.query(f"""
        with a as (select {GROUP}, n, rec, why, unnest(value) as topic, 1 as gain from {named}
                union all select {GROUP}, n, rec, why, unnest(before), -1 from {named}),
            b as (select {GROUP}, topic, n, any_value(rec) as rec, any_value(why) as why, sum(gain) as net
                from a group by {GROUP}, topic, n),
            c as (select *, sum(net) over w as now, sum(net) over w - net as before from b
                window w as (partition by {GROUP}, topic order by n))
            select * from c where (now > 0) <> (before > 0)""").computed()
