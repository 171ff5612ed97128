"""Members and holders of instance ids, from record to record; settings and stale claims of partitions."""

from __future__ import annotations

from typing import NamedTuple

from sidecar.audit.gold.batch import Batch
from sidecar.audit.gold.frames import Frame, kinds
from sidecar.audit.gold.kinds import CLASSIC, HEAD, MODERN
from sidecar.audit.gold.steps import GROUP, lives
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
    *(Lives(modern.tables + "members", modern.kind, "member_id", "''", modern.member) for modern in MODERN),
    Lives("classic_members", CLASSIC, "member_id", "''", "instance_id, client_id, client_host, rack_id"),
    Lives("static_members", STATIC_MEMBER, "instance_id", "member_id"),
    Lives("share_placeholders", PLACEHOLDER, "''", "member_id", "keeper, topic_names"),
    Lives("streams_groups", READY, "''", "case when validated_topology_epoch < 0 then 'not ready' else 'ready' end"),
    Lives("streams_groups", REPLICAS, "''", STANDBYS),
)


TOLD = {
    "members": ((*(modern.kind for modern in MODERN), CLASSIC), "true", "key_id as member_id, unnest(payload)"),
    "static_member_history": ((STATIC_MEMBER,), "true", "key_id as instance_id, state as member_id"),
    "share_placeholder_history": ((PLACEHOLDER,), "true", "state as member_id, unnest(payload)"),
    "streams_not_ready": ((READY,), "state = 'not ready'", "state"),
    "streams_standby_replicas": ((REPLICAS,), "state is not null", "state as num_standby_replicas"),
}
"""Table of lives -> kinds of its keys, which lives, and its columns beside those of all."""


def members(b: Batch) -> None:
    """Makes the tables of members and other keys that have lives, of settings, and of stale claims."""
    keys = lives(b.whole_of(_records(b)).select(f"*, struct_pack({FIELDS}) as payload")).computed()
    b.carry("lives", keys.where("open"))
    there = kinds(keys)
    for name, (of, which, columns) in TOLD.items():
        if not there.isdisjoint(of):
            b.add(name, keys.where(f"kind in {of} and {which}").select(f"* exclude (state), {columns}"))
    if "settings" in b.silver:
        # The sidecars' own entries in the roster are no settings.
        rows = b.silver["settings"].where(f"group_id <> '' or name not like '%{ROSTER}'")
        b.add("setting_changes", rows)
    if not b.idle(("classic_members",), ("stale_claims",)):
        _stale_claims(b)


def _records(b: Batch) -> Frame:
    """Returns the valid records of all keys that have lives, without their payload, and the open lives of the last
    batch."""
    was = b.was["lives"]
    selects = [
        f"""select * exclude (payload), last_offset as offset, from_rec as rec, from_why as why,
            last_revision as revision, false as deleted, true as carried, unnest(payload) from {was}"""
    ]
    for of in LIVES:
        if of.table in b.silver:
            selects.append(
                f"""select {GROUP}, '{of.kind}' as kind, {of.key_id} as key_id, {of.state} as state,
                    {HEAD}, false as carried{", " * bool(of.fields)}{of.fields} from {b.valid(of.table)}"""
            )
    return was.query(" union all by name ".join(selects))


def _stale_claims(b: Batch) -> None:
    """Makes the table of a classic member's stale claims, each time that they change: a record that only repeats them
    was written for another reason."""
    value = "case when len(stale_claims) > 0 then stale_claims end"
    claims = b.changes("stale_claims", b.valid("classic_members"), value, "member_id, client_id")
    changed = claims.where("n >= 0 and value is not null and value is distinct from before")
    b.add("stale_claims", changed.select("*, unnest(value, max_depth := 2)"))
