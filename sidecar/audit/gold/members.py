"""Members and holders of instance ids, from record to record; settings and stale claims of partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sidecar.audit.gold.frames import Frame, kinds, pack
from sidecar.audit.gold.kinds import CLASSIC, HEAD, MODERN
from sidecar.audit.gold.steps import chain, valid
from sidecar.state.keys import ROSTER

FIELDS = "instance_id, client_id, client_host, rack_id, process_id, keeper, topic_names"
"""Columns that describe a key; null of a kind that has no such column."""
STATIC_MEMBER, PLACEHOLDER, READY, REPLICAS = "static_member", "placeholder", "ready", "replicas"
"""Kinds of keys beside members, whose kind is that of their group: holder of an instance id; member that the owner has
in the broker's share group of the same name; whether a streams group's topology is ready; its number of standbys."""
STANDBYS = (
    "try_cast(list_filter(assignment_configs, lambda c: c.name = 'num.standby.replicas')[1].value as int)::varchar"
)


class Lives(NamedTuple):
    """Records of keys whose lives gold tells: their table in silver, and SQL of columns of `steps.lives`."""

    table: str
    kind: str
    key_id: str
    state: str
    fields: str = ""


LIVES = (
    *(Lives(modern.tables + "members", kind, "member_id", "''", modern.member) for kind, modern in MODERN.items()),
    Lives("classic_members", CLASSIC, "member_id", "''", "instance_id, client_id, client_host, rack_id"),
    Lives("static_members", STATIC_MEMBER, "instance_id", "member_id"),
    Lives("share_placeholders", PLACEHOLDER, "''", "member_id", "keeper, topic_names"),
    Lives("streams_groups", READY, "''", "case when validated_topology_epoch < 0 then 'not ready' else 'ready' end"),
    Lives("streams_groups", REPLICAS, "''", STANDBYS),
)


def records(silver: Mapping[str, Frame], was: Frame) -> Frame:
    """Returns the valid records of all keys that have lives, without their payload. `was`: the open lives of the last
    batch."""
    acc = pack("from_offset, from_ms, from_written_ms, from_why, from_not_before_offset, from_exact, unseen")
    selects = [
        f"""select state_partition, group_id, kind, key_id, state, last_offset as offset, null as log_ms,
            null as written_ms, null as why, last_revision as revision, false as deleted, true as carried,
            {acc} as acc, unnest(payload) from {was}"""
    ]
    for of in LIVES:
        if of.table in silver:
            selects.append(
                f"""select state_partition, group_id, '{of.kind}' as kind, {of.key_id} as key_id, {of.state} as state,
                    {HEAD}, false as carried{", " * bool(of.fields)}{of.fields} from {valid(silver[of.table])}"""
            )
    return was.query(" union all by name ".join(selects))


TOLD = {
    "members": ((*MODERN, CLASSIC), "true", "key_id as member_id, unnest(payload)"),
    "static_member_history": ((STATIC_MEMBER,), "true", "key_id as instance_id, state as member_id"),
    "share_placeholder_history": ((PLACEHOLDER,), "true", "state as member_id, unnest(payload)"),
    "streams_not_ready": ((READY,), "state = 'not ready'", "state"),
    "streams_standby_replicas": ((REPLICAS,), "state is not null", "state as num_standby_replicas"),
}
"""Table of lives -> kinds of its keys, which lives, and its columns beside those of all."""


def told(lives: Frame) -> dict[str, Frame]:
    """Returns the tables of lives that have rows."""
    there = kinds(lives)
    # A tuple of one has no form of SQL, so each list of kinds has an empty one.
    return {
        name: lives.where(f"kind in {(*of, '')} and {which}").select(f"* exclude (state), {columns}")
        for name, (of, which, columns) in TOLD.items()
        if not there.isdisjoint(of)
    }


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


def settings(records: Frame) -> Frame:
    """Returns changes of settings, without the sidecars' own entries in the roster."""
    set_by_people = records.where(f"group_id <> '' or name not like '%{ROSTER}'")
    return set_by_people.select("state_partition, group_id, offset, log_ms as ms, written_ms, name, value, why")


def stale_claims(records: Frame, was: Frame) -> Frame:
    """Returns a classic member's stale claims, each time that they change: a record that only repeats them was written
    for another reason."""
    claims = "case when len(stale_claims) > 0 then stale_claims end"
    new, old = f"member_id, client_id, {claims} as value", "member_id, null as client_id, said as value"
    return chain(new, old, records, was)


def as_stale_claims(claims: Frame) -> Frame:
    return claims.where("n >= 0 and value is not null and value is distinct from before").select(
        """state_partition, group_id, n as offset, log_ms as ms, written_ms, member_id, client_id,
            unnest(value, max_depth := 2)"""
    )
