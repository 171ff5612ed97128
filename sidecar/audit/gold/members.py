"""Members and holders of instance ids, from record to record; settings and stale claims of partitions."""

from __future__ import annotations

from typing import NamedTuple

from sidecar.audit.gold.frames import Frame, computed, pack, sql
from sidecar.audit.gold.holdings import MEMBER
from sidecar.audit.gold.kinds import HEAD
from sidecar.audit.gold.steps import ORDER, lives
from sidecar.state.keys import ROSTER

CARRIED = f"""select state_partition, group_id, kind, key_id, state, last_offset as offset, null as log_ms,
        null as written_ms, null as why, last_revision as revision, false as deleted, payload, null, true,
        {pack("from_offset, from_ms, from_written_ms, from_why, from_not_before_offset, from_exact, unseen")}
    from {{was}}"""
"""SQL of the open rows of the last batch, in the columns of `_columns`."""


def members(modern: Frame, classic: Frame, was: Frame) -> Frame:
    """Returns lives of members of all kinds of groups. `modern`: records with their `kind` and the payload; `was`: the
    open lives of the last batch."""
    payload = pack("instance_id, client_id, client_host, rack_id, process_id = null")
    rows = sql(
        f"""select {_columns("kind", "member_id", "''", "payload")} from {{modern}}
            union all select {_columns("'classic'", "member_id", "''", payload)} from {{classic}}
            union all {CARRIED}""",
        modern=modern,
        classic=classic,
        was=was,
    )
    return lives(rows)


class Columns(NamedTuple):
    """SQL of one kind of record: the columns of `steps.lives` that differ."""

    kind: str
    key_id: str
    state: str
    payload: str = "true"


PLACEHOLDERS = Columns("'share'", "''", "member_id", pack("keeper, topic_names"))
"""The member that the owner has in the broker's share group of the same name."""
READY = Columns("'streams'", "''", "case when validated_topology_epoch < 0 then 'not ready' else 'ready' end")
"""Whether the topology of a streams group is ready."""
REPLICAS = Columns(
    "'streams'", "''", "list_filter(assignment_configs, lambda c: c.name = 'num.standby.replicas')[1].value"
)
"""Number of standby tasks that a streams group wants for each active one."""
STATIC_MEMBERS = Columns("'static_member'", "instance_id", "member_id")
"""The member that holds an instance id."""


def states(columns: Columns, records: Frame, was: Frame) -> Frame:
    """Returns lives of each state. `was`: the open lives of the last batch."""
    rows = sql(f"select {_columns(*columns)} from {{records}} union all {CARRIED}", records=records, was=was)
    return lives(rows)


def _columns(kind: str, key_id: str, state: str, payload: str) -> str:
    return f"""state_partition, group_id, {kind} as kind, {key_id} as key_id, {state} as state, {HEAD},
        {payload} as payload, whole_from, false as carried, null as acc"""


def topologies(records: Frame) -> Frame:
    """Returns topologies of streams groups. The topic has a record only of each change."""
    internal = "list_transform(flatten(list_transform(subtopologies, lambda s: {})), lambda t: t.name)".format(
        "s.repartition_source_topics || s.changelog_topics"
    )
    return records.where("not deleted").select(
        f"""state_partition, group_id, offset, log_ms as ms, written_ms, epoch, partial, why,
            list_transform(subtopologies, lambda s: s.subtopology) as subtopologies,
            list_sort(list_distinct({internal})) as internal_topics"""
    )


def as_members(rows: Frame) -> Frame:
    return rows.select("*, key_id as member_id, unnest(payload)")


def as_static(rows: Frame) -> Frame:
    return rows.select("*, key_id as instance_id, state as member_id")


def settings(records: Frame) -> Frame:
    """Returns changes of settings, without the sidecars' own entries in the roster."""
    set_by_people = records.where(f"group_id <> '' or name not like '%{ROSTER}'")
    return set_by_people.select("state_partition, group_id, offset, log_ms as ms, written_ms, name, value, why")


class StaleClaims(NamedTuple):
    added: Frame
    last: Frame


def stale_claims(records: Frame, was: Frame) -> StaleClaims:
    """Returns stale claims, each once: a member's record that only repeats them was written for another reason."""
    rows = sql(
        f"""select state_partition, group_id, member_id, {HEAD}, client_id,
                case when len(stale_claims) > 0 then stale_claims end as said, false as carried from {{records}}
            union all select state_partition, group_id, member_id, offset, null, null, null, null, false, null,
                said, true from {{was}}""",
        records=records,
        was=was,
    )
    every = sql(
        f"""select *, lag(said) over w as before, lead(1) over w is null as latest
            from {{rows}} window w as (partition by {MEMBER} {ORDER})""",
        rows=rows,
    )
    chain = computed(every.where("latest or said is not null"))
    added = sql(
        """select state_partition, group_id, offset, log_ms as ms, written_ms, member_id, client_id,
                unnest(said, max_depth := 2)
            from {chain} where not carried and said is not null and said is distinct from before""",
        chain=chain,
    )
    last = sql(
        """select state_partition, group_id, member_id, offset, said from {chain}
            where latest and said is not null""",
        chain=chain,
    )
    return StaleClaims(added, last)
