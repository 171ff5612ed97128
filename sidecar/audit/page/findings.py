"""The findings, one table for all kinds, each with a time to zoom to."""

from __future__ import annotations

from typing import Any

from sidecar.audit.page.source import Budget

FAULT, POSSIBLE, NOTE = 0, 1, 2
"""Gravity of a finding: a fault that must not exist, a possible fault, or a note."""
KINDS = (
    ("overlap", "two owners", False),
    ("overlap?", "perhaps two owners", False),
    ("stale", "stale write", False),
    ("back", "epoch went back", False),
    ("unreadable", "unreadable record", False),
    ("outage", "coordinator away", True),
    ("claimed", "stale claim", False),
    ("setting", "setting changed", False),
    ("unowned", "unowned", True),
    ("uncovered", "nobody’s, of a share group", True),
    ("lacking", "too few standbys", True),
    ("unready", "topology not ready", True),
)
"""Key and name of each kind of finding, the gravest first; and whether the longest count most, and not the newest."""
MANY = 20
"""Partitions of a stale claim that are listed."""
FREE = """
    create table free as with u as (select *, ended(to_ms) as ends from unowned),
        a as (select u.*, coalesce(nth, 1) as first from u asof left join alive a on u.g = a.g and from_ms >= begin),
        b as (select a.*, unnest(range(first, nth + 1)) as nth from a asof join alive b on a.g = b.g and ends > begin)
    select *, stop - start as lasted from (select b.*, greatest(from_ms, begin) as start, least(ends, until) as stop
        from b join alive using (g, nth))
    where stop > start qualify row_number() over (partition by id order by stop - start desc, start) = 1
"""
"""Unowned time while the group had members, the longest part of each row: an empty group's is unowned by right. A row
meets only the spans from the last that began before it on: a group that comes and goes has as many of both."""
AT = 'ms, "offset", state_partition, g'
SINCE = 'from_ms as ms, from_offset as "offset", state_partition, g'
FOUND = (
    f"""select case grade when 'proven' then 'overlap' else 'overlap?' end as kind, gravity(grade, {FAULT}) as grave,
            {AT}, greatest(ended(to_ms), ms) as until, p as place, number(g, member_id) as owner, concat(name, ': ',
                called(g, member_id), ' began while ', called(g, other_member_id),
                case when grade <> 'proven' then ' perhaps' end, ' still owned it') as text
        from second_owners""",
    f"""select 'stale' as kind, {FAULT} as grave, {AT}, concat(
                case what when 'claim' then 'a claim of a fenced producer' else 'a record (' ||
                    concat_ws(' ', nullif(r.kind, ''), nullif(sub_id, '')) || ') of a fenced coordinator' end,
                ': owner epoch ', owner_epoch, ', the last claim was ' || claimed_epoch, '; it changes nothing',
                because(why)) as text
        from stale_writes r""",
    f"""select 'back' as kind, gravity(grade, {FAULT}) as grave, {SINCE}, concat(
                case r.kind when 'classic' then 'generation ' else 'epoch ' end, epoch,
                ' is not higher than the one before it', because(why), case when grade <> 'proven' then
                    ' (perhaps the group had gone: records are missing)' end) as text
        from rebalances r where went_back""",
    f"""select 'unreadable' as kind, {POSSIBLE} as grave, log_ms as {AT},
            coalesce(nullif(r.kind, ''), 'unknown kind') || ': ' || reason as text from unreadable r""",
    f"""select case r.kind when 'share' then 'uncovered' else 'unowned' end as kind, gravity(grade, {NOTE}) as grave,
            start as ms, from_offset as "offset", state_partition, g, stop as until, p as place,
            concat(name, ' was nobody’s for ', span(lasted), ' while ', case r.kind when 'share' then
                'a member subscribed to it' else 'the group had members' end,
                case when to_ms is null then '; it still is' end, perhaps(grade)) as text
        from free r where lasted >= case r.kind when 'share' then $uncovered_ms else $unowned_ms end""",
    f"""select 'lacking' as kind, {NOTE} as grave, {SINCE}, to_ms as until, (select p from places s
            where s.g = r.g and named = 'task ' || subtopology and s.partition = r.partition and lane = 0) as place,
            concat('task ', subtopology, '-', partition, ' had ', held, ' of ', wanted, ' standbys for ',
                span(ended(to_ms) - from_ms), case when to_ms is null then '; it still has' end,
                perhaps(grade)) as text
        from streams_standby_coverage r where ended(to_ms) - from_ms >= $lacking_ms""",
    f"""select 'unready' as kind, {NOTE} as grave, {SINCE}, to_ms as until, concat('the topology was not ready for ',
            span(greatest(ended(to_ms) - from_ms, 0)), ', so no task was assigned (', from_why, ')') as text
        from streams_not_ready""",
    f"""select 'outage' as kind, {NOTE} as grave, from_ms as ms, from_offset as "offset", state_partition,
            greatest(from_ms, to_ms) as until, concat('state partition ', state_partition,
                ' had no coordinator for at most ', span(at_most_ms),
                ', between claims ', former_claim, ' and ', claim, ': ', why) as text
        from outages""",
    f"""select 'claimed' as kind, {NOTE} as grave, {AT}, number(g, member_id) as owner,
            concat(called(g, member_id), ' said that it owned ', topic, ': ',
                array_to_string(partitions[:{MANY}], ', '), case when len(partitions) > {MANY} then ' and more' end,
                case when generation >= 0 then ' (got in generation ' || generation
                    else ' (it does not say in which generation' end, '); they were ',
                case holder when '' then 'unowned' else called(g, holder) || '’s' end) as text
        from stale_claims""",
    f"""select 'setting' as kind, {NOTE} as grave, {AT}, concat(case group_id when '' then 'brokers: ' end, name,
            case when value is null then ' removed' else ' = ' || value end, because(why)) as text
        from setting_changes""",
)


def findings(db: Any, budget: Budget, left_out: list[str]) -> list[list[Any]]:
    """Makes the table of findings, and `shown_findings` with no more than the budget of each kind. Returns key, name
    and number of each kind, and whether the longest come first."""
    least = {name: getattr(budget, name) for name in ("unowned_ms", "uncovered_ms", "lacking_ms")}
    db.execute(FREE)
    db.execute(f"create table findings as {' union all by name '.join(FOUND)}", least)
    keys, longest = [key for key, *_ in KINDS], tuple(key for key, _, by_length in KINDS if by_length)
    db.execute(f"""create table shown_findings as select *, list_position({keys}, kind) - 1 as k from findings
        qualify row_number() over (partition by kind order by case when kind in {longest} then
            coalesce(until, ms) - ms else ms end desc, ms desc) <= {budget.findings}""")
    ((brief, words),) = db.sql(f"""select count(*), span({budget.unowned_ms}) from free
        where kind <> 'share' and lasted < {budget.unowned_ms}""").fetchall()
    if brief:
        left_out.append(f"{brief} times a partition was nobody’s for less than {words}: drawn, but not listed.")
    counts = dict(db.sql("select kind, count(*) from findings group by all").fetchall())
    kinds = [[key, name, counts.get(key, 0), by_length] for key, name, by_length in KINDS]
    left_out += [
        f"{count - budget.findings} of {count} findings of the kind “{name}”;"
        f" the {'longest' if by_length else 'newest'} {budget.findings} are listed."
        for _, name, count, by_length in kinds
        if count > budget.findings
    ]
    return kinds
