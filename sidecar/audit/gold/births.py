"""Groups of which everything was read, although the log was not read from its start, or a part of it was lost.

Compaction keeps the last record of each key, so it leaves every current member visible. Offsets that were never read
hide members, and members that left, without any record behind them. So the number of a group's members, and whether all
have settled, is known only for a group that began later: its own record has revision 1, and the turn that wrote that
record was read as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping

from sidecar.audit.gold.frames import Frame, computed, sql

NEVER = 9223372036854775807
"""Birth of a group that existed before a part of the log was lost: which of its members left then is unknown."""


def births(groups: Frame, classic: Frame, cuts: Frame, was: Mapping[str, Frame]) -> Frame:
    """Returns the offset from which everything of a group was read. `groups` and `classic`: records; `was`: carried
    tables of the last batch."""
    lost = sql("select distinct state_partition from {cuts} where is_new and from_offset > 0", cuts=cuts)
    born = "offset, written_ms from {{{}}} where revision = 1 and not deleted"
    records = f"""select state_partition, group_id, kind, {born.format("groups")} union all
        select state_partition, group_id, 'classic', {born.format("classic")}"""
    return computed(
        sql(
            f"""with old as (select state_partition, group_id, kind, offset from {{births}}
                    where offset = {NEVER} or state_partition not in (select state_partition from {{lost}})
                union all select state_partition, group_id, kind, {NEVER} from (
                    select state_partition, group_id, kind from {{people}}
                    union select state_partition, group_id, kind from {{rebalances}})
                    where state_partition in (select state_partition from {{lost}})),
                last as (select state_partition, max(until_offset) as until_offset,
                    arg_max(written_ms, until_offset) as written_ms from {{cuts}} group by state_partition),
                new as (select r.* exclude (written_ms) from ({records}) r join last c
                    on r.state_partition = c.state_partition and r.offset >= c.until_offset
                        and r.written_ms <> c.written_ms)
                select state_partition, group_id, kind,
                    case when max(offset) = {NEVER} then {NEVER} else min(offset) end as offset
                from (select * from old union all select * from new) group by state_partition, group_id, kind""",
            births=was["births"],
            people=was["people"],
            rebalances=was["rebalances"],
            lost=lost,
            cuts=cuts,
            groups=groups,
            classic=classic,
        )
    )


def graded_by_births(rebalances: Frame, births: Frame, cuts: Frame) -> Frame:
    """Grades rebalances behind unread offsets as possible, unless their group was born behind those offsets."""
    return sql(
        """select r.* replace (case when r.from_offset >= c.begin and r.from_offset < coalesce(b.offset, c.never)
                then 'possible' else grade end as grade)
            from {rebalances} r
            left join (select state_partition, min(until_offset) as begin, 9223372036854775807 as never
                from {cuts} group by state_partition) c on r.state_partition = c.state_partition
            left join {births} b on r.state_partition = b.state_partition and r.group_id = b.group_id
                and r.kind = b.kind""",
        rebalances=rebalances,
        births=births,
        cuts=cuts,
    )
