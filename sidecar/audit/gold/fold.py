"""The fold: the new records of a batch, and what the last batch left, to rows of gold. A task folds one or more state
partitions.

For any cutting of the log into batches (by offset, per state partition), all rows that were `added` and the `open` ones
of the last batch are those that one single batch gives.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from sidecar.audit.gold import coordinators, epochs, ownership, rebalances, shares
from sidecar.audit.gold.batch import Batch, Frames
from sidecar.audit.gold.classic import classic
from sidecar.audit.gold.frames import Database, Frame
from sidecar.audit.gold.holders import holders, lacking, standbys_wanted
from sidecar.audit.gold.holdings import HOLDER, MEMBER, modern
from sidecar.audit.gold.kinds import CLASSIC, CONSUMER, PROCESS, SHARE, TASKS
from sidecar.audit.gold.members import members
from sidecar.audit.gold.shares import NO_MEMBER
from sidecar.audit.gold.steps import GROUP, cuts, keyed, read, revisions, stretches, unreadable, unsure
from sidecar.audit.tables.layers import ROLES
from sidecar.state.fold import HOLDING

REVISED = {"holdings": "revision", "assignments": "revision", "assigned_groups": "revision", "lives": "last_revision"}
"""Tables that carry the last revision of a key, and the column."""
OWNED = (CONSUMER, CLASSIC)
ACTIVE = "active"
COVERED = (ACTIVE, "standby")
SEVERAL = (SHARE, "standby", "warmup")
"""Kinds of holdings that several members may have at once."""
Cuts = Mapping[int, tuple[int, int]]
CUT = pa.schema([("state_partition", pa.int32()), ("from_offset", pa.int64()), ("until_offset", pa.int64())])


def fold(db: Database, silver: Frames, carried: Frames, cut: Cuts | None = None) -> Batch:
    """`silver`: the new rows of a batch, by table; `carried`: what the last batch left, nothing at first; `cut`: of
    state partitions, the offsets right before these rows that were never read. A table that is not there is an empty
    one: leave out those without rows, for what needs no query takes no time."""
    b = Batch(db, silver, carried)
    del silver  # it would keep the records in memory to the end (see below)
    _partitions(b, cut or {})
    for name in REVISED.keys() & b.was.keys():
        b.was[name] = unsure(b.was[name], b.cuts, REVISED[name])
    if "streams_current" in b.silver:
        b.silver["streams_current"] = _in_processes(b).computed()
    events = _holdings(b).computed()
    members(b)
    standbys = None if b.idle(("streams_topologies",), ("stateful",)) else standbys_wanted(b)
    groups = rebalances.new_epochs(b)
    b.born = epochs.births(b, groups)
    b.carry("births", b.born)
    steps = rebalances.sequence(b, groups, events)
    b.silver = {}  # nothing below reads records, which take the most memory
    b.add("rebalances", epochs.epochs(b, *steps))
    _owners(b, events, standbys)
    return b


def _partitions(b: Batch, new: Cuts) -> None:
    """Folds the tables about state partitions, and finds where each partition is whole."""
    corrupt = b.silver["corrupt"]
    b.unreadable = unreadable(corrupt, b.was["unreadable"])
    b.carry("unreadable", b.unreadable)
    if "corrupt" in b.silver:
        b.add("unreadable", corrupt)
    keys = keyed(b.silver).computed()
    revised = revisions(keys, b.was["revisions"]).computed()
    b.carry("revisions", revised.where("latest and not deleted and revision is not null"))
    rows = [{"state_partition": p, "from_offset": begin, "until_offset": end} for p, (begin, end) in new.items()]
    b.cuts = cuts(keys, b.db.rows(pa.Table.from_pylist(rows, schema=CUT)), b.was["cuts"])
    b.carry("cuts", b.cuts)
    seen = read(keys, corrupt, b.was["read"], b.cuts)
    last = stretches(revised, seen, b.cuts).computed()
    b.carry("read", last.where("until is null"))
    b.whole = last.where("whole_from is not null").select("state_partition, whole_from, until").computed()
    claims = coordinators.claims(b.silver["claims"], keys, b.was["claims"])
    b.add("coordinators", claims.where("not already_ended"))
    b.carry("claims", claims.where("newest or open").select("* replace (now as highest)"))
    b.add("outages", coordinators.outages(claims))
    b.add("stale_writes", coordinators.stale_writes(keys, claims))
    per_group = coordinators.coverage(keys, corrupt, revised, b.was["coverage"]).computed()
    b.add("coverage", coordinators.as_coverage(per_group, last, b.cuts))
    b.carry("coverage", per_group)


def _in_processes(b: Batch) -> Frame:
    """Returns current assignments of streams members, each with the member's process by its last record before."""
    return b.db.query(f"""select c.*, m.process_id from {b.silver["streams_current"]} c asof left join (
                select {MEMBER}, offset, process_id from {b.valid("streams_members")}
                union all select {GROUP}, key_id, last_offset, payload.process_id
                    from {b.was["lives"]} where kind = 'streams') m
            using ({MEMBER}, offset)""")


def _holdings(b: Batch) -> Frame:
    """Returns the events of holdings in groups of all kinds."""
    events = modern(b)
    every = [events]
    if not b.idle(("classic_assignments", "classic_groups"), ("assignments", "assigned_groups")):
        every.append(classic(b))
    if not b.idle(("share_placeholders", "share_members"), ("initialised", "subscribed")):
        every.append(shares.wanted(b, events))
    return b.db.query(" union all by name ".join(f"select * from {frame}" for frame in every))


def _owners(b: Batch, events: Frame, standbys: Frame | None) -> None:
    """Folds the tables about owners, from events of holdings."""
    intervals, overlaps, unowned, kinds = ownership.owned(b, events)
    last = b.db.query(f"""select {HOLDER}, member_epoch as epoch, offset from {b.carried["holdings"]}
            union all select {MEMBER}, 'classic', generation, offset
                from {b.carried.get("assignments", b.was["assignments"])} where at_offset is not null""")
    ended = last.query(f"""select i.* replace (coalesce(last_epoch, epoch) as last_epoch)
            from {intervals} i left join {last} e using ({HOLDER})""")
    unsure_members = last.query(f"""select e.* from {last} e join {b.unreadable} u
            on e.state_partition = u.state_partition and e.group_id = u.group_id and e.member_id = u.sub_id
                and u.kind in {HOLDING} and u.last_offset > e.offset""")
    second = as_places(overlaps.where(f"kind in {(*OWNED, ACTIVE, PROCESS)}"))
    b.add("second_owners", ownership.doubted(second, b.cuts, unsure_members))
    b.add("intervals", ended.where(f"kind in {OWNED}"))
    b.add("unowned", as_places(unowned.where(f"kind in {(*OWNED, ACTIVE)}")))
    if not b.idle((), ("holders",)) or not kinds.isdisjoint(SEVERAL):
        several = intervals.where(f"kind in {SEVERAL} and member_id <> '{NO_MEMBER}'")
        b.add("holders", as_places(holders(b, several)))
    if SHARE in kinds:
        b.add("share_holdings", ended.where(f"kind = '{SHARE}' and member_id <> '{NO_MEMBER}'"))
        b.add("share_coverage", shares.as_coverage(unowned))
    if not kinds.isdisjoint(TASKS):
        tasks = ended.where(f"kind in {ROLES}")
        of_tasks = "*, topic_key as subtopology, kind as role, nullif(topic, '') as process_id"
        b.add("streams_tasks", tasks.select(of_tasks))
        if standbys is not None:
            b.add("streams_standby_coverage", lacking(b, intervals.where(f"kind in {COVERED}"), standbys))


def as_places(rows: Frame) -> Frame:
    """A task is a place of a streams group."""
    return rows.select(
        f"""* replace (case when kind in {TASKS} then 'streams' else kind end as kind,
            case when kind in {TASKS} then topic_key else topic end as topic)"""
    )
