"""Who came to hold which partition by which record, and who lost it: events of (group, member, place).

An event's `type`: `a` assigned, `p` only pending revocation, `x` gone, `k` still held, but records before are missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sidecar.audit.gold.steps import MISSING, ORDER, adjacent, done, quick, sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MEMBER = "state_partition, group_id, member_id"


class Held(NamedTuple):
    """`last`: what the next batch must know of each member."""

    events: DataFrame
    last: DataFrame


def keys(column: str, topic: str) -> str:
    """The places in this column, as text: partition, then topic."""
    return f"flatten(transform({column}, t -> transform(t.partitions, p -> concat(p, '|', t.{topic}))))"


def marked(mark: str, keys: str) -> str:
    return f"transform({keys}, k -> concat('{mark}', k))"


COLUMNS = """state_partition, group_id, '{kind}' as kind, substring(e.k, instr(e.k, '|') + 1) as topic_key,
    cast(substring(e.k, 2, instr(e.k, '|') - 2) as int) as partition, e.topic, member_id, left(e.k, 1) as type,
    offset, log_ms as ms, written_ms, why, adjacent as exact,
    case when adjacent then offset - 1 else b_offset end as not_before, missing, epoch, b_epoch"""


def consumer(current: DataFrame, members: DataFrame, last: DataFrame) -> Held:
    """`current`: valid records with `whole_from`; `members`: tombstones of members, who hold nothing from then on;
    `last`: what the last batch left. Holdings are compared only where a record differs from the one before."""
    rows = sql(
        f"""select {MEMBER}, offset, log_ms, written_ms, why, revision, deleted, member_epoch, assigned, pending,
                whole_from, false as carried from {{current}}
            union all select {MEMBER}, offset, log_ms, written_ms, why, null, true, null, null, null, whole_from, false
                from {{members}}
            union all select {MEMBER}, offset, null, null, null, revision, false, member_epoch, assigned, pending,
                null, true from {{last}}""",
        current=current,
        members=members,
        last=last,
    )
    changed = f"""not carried and (not ({adjacent("b_raw_offset")}) or not b_live or not (assigned <=> b_assigned
        and pending <=> b_pending))"""
    found = sql(
        f"""with a as (select *,
                coalesce(not lag(deleted) over w, false) as b_live, lag(revision) over w as b_revision,
                lag(offset) over w as b_raw_offset, lag(member_epoch) over w as b_raw_epoch,
                lag(assigned) over w as b_assigned, lag(pending) over w as b_pending, lead(1) over w is null as latest
                from {{rows}} window w as (partition by {quick(MEMBER)} {ORDER}))
            select *, {MISSING} as missing, {adjacent("b_raw_offset")} as adjacent, member_epoch as epoch,
                case when b_live then b_raw_offset end as b_offset, case when b_live then b_raw_epoch end as b_epoch,
                {changed} as changed
            from a where latest or {changed}""",
        rows=rows,
    )
    chain = done(found)
    events = sql(
        f"""with a as (select {MEMBER}, offset, log_ms, written_ms, why, adjacent, b_offset, missing, epoch, b_epoch,
                assigned.topic_id as ids, assigned.topic as names, pending.topic_id as p_ids, pending.topic as p_names,
                b_assigned.topic_id as b_ids, b_assigned.topic as b_names, b_pending.topic_id as bp_ids,
                b_pending.topic as bp_names,
                coalesce({keys("assigned", "topic_id")}, array()) as ka,
                coalesce({keys("pending", "topic_id")}, array()) as kp,
                coalesce(case when b_live then {keys("b_assigned", "topic_id")} end, array()) as ba,
                coalesce(case when b_live then {keys("b_pending", "topic_id")} end, array()) as bp
                from {{chain}} where changed),
            b as (select *, concat(coalesce(ids, array()), coalesce(p_ids, array()), coalesce(b_ids, array()),
                    coalesce(bp_ids, array())) as t_ids,
                concat(coalesce(names, array()), coalesce(p_names, array()), coalesce(b_names, array()),
                    coalesce(bp_names, array())) as t_names,
                array_distinct(concat(ka, kp)) as k, array_distinct(concat(ba, bp)) as bk,
                concat({marked("a", "ka")}, {marked("p", "array_except(kp, ka)")}) as s,
                concat({marked("a", "ba")}, {marked("p", "array_except(bp, ba)")}) as bs from a),
            c as (select *, concat(array_except(s, bs), {marked("x", "array_except(bk, k)")},
                case when adjacent then array() else {marked("k", "array_intersect(k, bk)")} end) as es from b),
            d as (select *, explode(transform(es, k -> struct(k,
                element_at(t_names, cast(array_position(t_ids, substring(k, instr(k, '|') + 1)) as int)) as topic)))
                as e from c)
            select {COLUMNS.format(kind="consumer")} from d""",
        chain=chain,
    )
    left = sql(
        f"""select {MEMBER}, offset, revision, member_epoch, assigned, pending from {{chain}}
            where latest and not deleted""",
        chain=chain,
    )
    return Held(events, left)
