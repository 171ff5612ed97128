"""Coordinators of state partitions: claims, outages between one's last record and the next one's claim, records of
fenced coordinators; and the coverage of each partition and group."""

from __future__ import annotations

from sidecar.audit.gold.frames import Frame
from sidecar.audit.gold.steps import EARLIER, GROUP
from sidecar.core.runtime.commands import RENEWED
from sidecar.state.fold import UNFENCED

CLAIM_FIELDS = "node_id, address, member_id, generation, producer_id, producer_epoch"


def claims(records: Frame, keys: Frame, was: Frame) -> Frame:
    """Returns claims, each with the last record under it. A claim counts from its record to the next claim, whatever
    its number: numbers may come again. It is `fenced` if the same producer has claimed with a higher epoch before.
    `was`: the last claim of each partition, and the highest epoch of each producer."""
    rows = records.query(f"""
        with a as (select state_partition, owner_epoch as claim, {CLAIM_FIELDS}, offset as from_offset,
                rec as from_rec, why as from_why, rec as w, false as carried, false as was_fenced
                from {records} where not deleted and length(claim) <= 20 and regexp_full_match(claim, '[0-9]+')
            union all by name select * exclude (fenced), true as carried, fenced as was_fenced from {was}),
            b as (select *, max(coalesce(highest, producer_epoch)) over (producer {EARLIER}) as before,
                max(coalesce(highest, producer_epoch)) over producer as now,
                lead(from_rec) over w as to_rec, lag(claim) over w as former,
                carried and coalesce(lead(carried) over w, false) as already_ended,
                lead(1) over producer is null as newest
                from a window w as (partition by state_partition order by from_offset),
                    producer as (partition by state_partition, producer_id order by from_offset))
            select *, coalesce(before > producer_epoch, false) or was_fenced as fenced,
                to_rec is null as open from b""").computed()
    last = keys.query(f"""select k.state_partition, from_offset, arg_max(rec, offset) as w
            from {keys} k join {rows} c on k.state_partition = c.state_partition and k.owner_epoch = c.claim
                and offset > from_offset and (offset < to_rec.offset or open)
            where k.owner_epoch = claimed_epoch and kind not in {UNFENCED} group by k.state_partition, from_offset""")
    return rows.query(f"""select c.* replace (coalesce(l.w, c.w) as w), lag(coalesce(l.w, c.w))
                over (partition by c.state_partition order by c.from_offset) as former_w
            from {rows} c left join {last} l using (state_partition, from_offset)""").computed()


def outages(claims_now: Frame) -> Frame:
    """Returns outages before claims; a claim with which the owner only renews its fence has none."""
    return claims_now.query(f"""
        select state_partition, former as former_claim, claim, former_w as from_rec, from_rec as to_rec,
                from_rec.ms - former_w.ms as at_most_ms, from_why as why
            from {claims_now} where not carried and former_w is not null and from_why <> '{RENEWED}'""")


def stale_writes(keys: Frame, claims_now: Frame) -> Frame:
    return keys.query(f"""
        select state_partition, rec, group_id, 'record' as what, kind, sub_id, owner_epoch, claimed_epoch, why
                from {keys} where void
            union all select state_partition, from_rec, '', 'claim', 'owner_claim',
                lpad(cast(claim as string), 20, '0'), claim, former, from_why
                from {claims_now} where fenced and not carried""")


def coverage(keys: Frame, corrupt: Frame, revisions: Frame, was: Frame) -> Frame:
    """Returns the coverage of each group. `revisions`: from steps.py."""
    read = "arg_min(rec, offset) as f, arg_max(rec, offset) as l, count(*) as records"
    return keys.query(f"""select {GROUP}, min(f) as f, max(l) as l, sum(records) as records,
                coalesce(sum(missing), 0) as missing, max(s) as s from (
                select {GROUP}, {read} from {keys} group by all
                union all by name select state_partition, '' as group_id, {read} from {corrupt} group by all
                union all by name select {GROUP}, sum(missing) as missing,
                    arg_max(rec, offset) as s from {revisions} where missing > 0 group by all
                union all by name select * from {was})
            group by all""")


def as_coverage(per_group: Frame, stretches: Frame, cuts: Frame) -> Frame:
    """Returns the coverage of groups and of state partitions, as the table has both."""
    last = stretches.query(f"""
        select l.*, coalesce(read_from_offset, 0) as read_from_offset,
                coalesce(lost, 0) as lost
            from {stretches} l left join (select state_partition,
                max(case when from_offset = 0 then until_offset end) as read_from_offset,
                sum(case when from_offset > 0 then until_offset - from_offset end)::bigint as lost
                from {cuts} group by all) using (state_partition)
            where until is null""")
    return per_group.query(f"""with a as (select 'group' as scope, * from {per_group} where group_id <> ''
            union all select 'partition', state_partition, '', min(f), max(l), sum(records), sum(missing), max(s)
                from {per_group} group by state_partition)
            select *, f as first_rec, l as last_rec, s as complete_since_rec, whole_from as whole_from_offset,
                true as open
            from a join {last} using (state_partition)""")
