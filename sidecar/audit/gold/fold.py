"""The fold: the new records of a batch, and what the last batch left, to rows of gold. A task folds one or more state
partitions.

For any cutting of the log into batches (by offset, per state partition), all rows that were `added` and the `open` ones
of the last batch are those that one single batch gives.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from sidecar.audit.gold import coordinators, epochs, holders, holdings, members, ownership, rebalances, shares
from sidecar.audit.gold.carried import CARRIED
from sidecar.audit.gold.classic import classic
from sidecar.audit.gold.frames import Database, Frame, pack, shape
from sidecar.audit.gold.kinds import CLASSIC, CONSUMER, MODERN, PROCESS, SHARE, TASKS, Modern, every, in_processes
from sidecar.audit.gold.shares import NO_MEMBER
from sidecar.audit.gold.steps import (
    before_cuts,
    bounded,
    cuts,
    graded,
    graded_before,
    keyed,
    left,
    lives,
    read,
    revisions,
    stretches,
    unreadable,
    unsure,
    valid,
)
from sidecar.audit.tables.columns import Table
from sidecar.audit.tables.gold import GOLD
from sidecar.audit.tables.layers import ROLES, SILVER_TABLES
from sidecar.state.fold import HOLDING

Frames = Mapping[str, Frame]
REVISED = {"holdings": "revision", "assignments": "revision", "assigned_groups": "revision", "lives": "last_revision"}
"""Tables that carry the last revision of a key, and the column."""
ENDS = {
    "holders": "to_offset",
    "rebalances": "until_offset",
    "share_coverage": "to_offset",
    "share_initialised": "offset",
    "streams_standby_coverage": "to_offset",
    "unowned": "to_offset",
}
"""Tables that tell of everybody in a group, and the column of the offset up to which they do."""
OWNED = (CONSUMER, CLASSIC)
ACTIVE = "active"
COVERED = (ACTIVE, "standby")
SEVERAL = (SHARE, "standby", "warmup")
"""Kinds of holdings that several members may have at once."""
FENCE = ", owner_epoch, claimed_epoch"
Cuts = Mapping[int, tuple[int, int]]
CUT = pa.schema([("state_partition", pa.int32()), ("from_offset", pa.int64()), ("until_offset", pa.int64())])


@dataclass
class Folded:
    """By name of the table."""

    gold: dict[str, Frame] = field(default_factory=dict)
    """Rows that will never change, and the `open` ones, which those of the next batch replace."""
    carried: dict[str, Frame] = field(default_factory=dict)
    """Tables for the next batch (carried.py)."""


class _Tables(dict[str, Frame]):
    """A table that is not there is an empty one, made when it is asked for."""

    def __init__(self, db: Database, known: Mapping[str, Table], frames: Frames) -> None:
        super().__init__(frames)
        self.db, self.known = db, known

    def __missing__(self, name: str) -> Frame:
        self[name] = self.db.empty(self.known[name])
        return self[name]


def _held(kind: str, modern: Modern) -> list[tuple[str, str]]:
    """A record says what a member holds of each kind."""
    return [
        (of, f"{FENCE}, member_id, member_epoch, {assigned} as assigned, {pending} as pending")
        for of, (assigned, pending) in modern.held.items()
    ]


class _Fold:
    def __init__(self, db: Database, silver: Frames, carried: Frames) -> None:
        self.there = {*silver, *(f"carried {name}" for name in carried)}
        self.db = db
        self.silver = _Tables(db, SILVER_TABLES, {name: bounded(frame, name) for name, frame in silver.items()})
        self.was = _Tables(db, CARRIED, carried)
        self.out = Folded()
        self.standbys: Frame | None = None
        """From `standbys_wanted`; None if no task has standbys."""

    def idle(self, silver: Sequence[str], carried: Sequence[str]) -> bool:
        """None of these tables is there, so nothing comes of them."""
        return self.there.isdisjoint({*silver, *(f"carried {name}" for name in carried)})

    def carry(self, name: str, frame: Frame) -> None:
        self.out.carried[name] = shape(frame, CARRIED[name])

    def add(self, name: str, frame: Frame) -> None:
        if name in ENDS:
            frame = graded_before(frame, self.unreadable, ENDS[name], "first_offset", "state_partition, group_id")
        self.out.gold[name] = shape(frame, GOLD[name])

    def fold(self, cut: Cuts) -> None:
        self.unreadable = unreadable(self.silver["corrupt"], self.was["unreadable"])
        self.carry("unreadable", self.unreadable)
        self.partitions(cut)
        for name, revision in REVISED.items():
            self.was[name] = unsure(self.was[name], self.cuts, revision)
        if "streams_current" in self.silver:
            current, people = self.silver["streams_current"], valid(self.silver["streams_members"])
            self.silver["streams_current"] = in_processes(current, people, self.was["lives"]).computed()
        self.holdings()
        self.people()
        self.rebalances()
        self.owners()

    # ---- state partitions -------------------------------------------------------------------------------------------
    def partitions(self, cut: Cuts) -> None:
        """Folds the tables about state partitions, and finds where each partition is whole."""
        keys = keyed(self.db, self.silver).computed()
        revised = revisions(keys, self.was["revisions"]).computed()
        self.cuts = self.never_read(keys, cut)
        seen = read(keys, self.silver["corrupt"], self.was["read"], self.cuts)
        last = stretches(revised, seen, self.was["read"], self.cuts).computed()
        self.carry("read", last.where("until is null"))
        claims = coordinators.claims(self.silver["claims"], keys, self.was["claims"])
        self.add("coordinators", claims.where("not already_ended"))
        self.carry("claims", claims.where("newest or open").select("* exclude (highest), now as highest"))
        self.add("outages", coordinators.outages(claims))
        self.add("stale_writes", coordinators.stale_writes(keys, claims))
        per_group = coordinators.coverage(keys, self.silver["corrupt"], revised, self.was["coverage"]).computed()
        self.add("coverage", coordinators.as_coverage(per_group, last, self.cuts))
        self.carry("coverage", per_group)
        self.carry("revisions", revised.where("latest and not deleted and revision is not null"))
        if "corrupt" in self.there:
            self.add("unreadable", self.silver["corrupt"])
        self.whole = last.where("whole_from is not null").select("state_partition, whole_from, until").computed()

    def never_read(self, keys: Frame, new: Cuts) -> Frame:
        """Returns the offsets that were never read."""
        rows = [{"state_partition": p, "from_offset": a, "until_offset": b} for p, (a, b) in new.items()]
        table = pa.Table.from_pylist(rows, schema=CUT)
        result = cuts(keys, self.db.rows(table), self.was["cuts"])
        self.carry("cuts", result)
        return result

    # ---- groups -----------------------------------------------------------------------------------------------------
    def of(self, name: str) -> Frame:
        """Valid records of this table, with the begin of the stretch without gaps that they are in."""
        return self.whole_of(valid(self.silver[name]))

    def whole_of(self, records: Frame) -> Frame:
        rows = records.query(f"""select r.*, whole_from from {records} r
                left join (select state_partition as sp, whole_from, until from {self.whole}) w
                    on sp = r.state_partition and offset >= whole_from and (until is null or offset < until)""")
        if self.idle(("corrupt",), ("unreadable",)):
            return rows
        return rows.query(f"""
            select r.* replace (case when first_offset < offset then null else whole_from end as whole_from)
                from {rows} r left join (select state_partition, group_id, min(first_offset) as first_offset
                    from {self.unreadable} group by state_partition, group_id) u using (state_partition, group_id)""")

    def every(self, name: str, columns: Callable[[Modern], str]) -> Frame:
        """Valid records of all kinds of groups with epochs."""
        return valid(every(self.silver, name, lambda kind, modern: [(kind, f"{FENCE}{columns(modern)}")]))

    def holdings(self) -> None:
        tombstone = "deleted"
        current = every(self.silver, "current", _held)
        removed = every(self.silver, "members", lambda kind, m: [(of, f"{FENCE}, member_id") for of in m.held])
        modern = holdings.modern(
            self.whole_of(valid(current)), self.whole_of(valid(removed).where(tombstone)), self.was["holdings"]
        )
        self.carry("holdings", modern.last)
        assignments, events = self.was["assignments"], modern.events
        if not self.idle(("classic_assignments", "classic_groups"), ("assignments", "assigned_groups")):
            of_classic = classic(
                self.of("classic_assignments"),
                self.of("classic_members").where(tombstone),
                self.of("classic_groups"),
                self.was,
            )
            assignments = of_classic.last
            events = events.query(f"select * from {events} union all select * from {of_classic.events}")
            self.carry("assignments", assignments)
            self.carry("assigned_groups", of_classic.groups)
        if not self.idle(("share_placeholders", "share_members"), ("initialised", "subscribed")):
            wanted = shares.wanted(
                valid(self.silver["share_placeholders"]),
                valid(self.silver["share_members"]),
                modern.events,
                self.was,
            )
            made = graded(wanted.made, self.whole, "since_offset", "offset")
            self.add("share_initialised", before_cuts(made, self.cuts, "offset"))
            self.carry("wanted_topics", wanted.topics)
            events = events.query(f"select * from {events} union all by name select * from {wanted.events}")
            self.carry("initialised", wanted.initialised)
            self.carry("subscribed", wanted.subscribed)
        self.events = events.computed()
        self.epochs = modern.last.query(f"""
            select state_partition, group_id, kind, member_id, member_epoch as epoch, offset from {modern.last}
                union all select state_partition, group_id, 'classic', member_id, generation, offset from {assignments}
                    where at_offset is not null""")

    def people(self) -> None:
        """Folds the tables about members and other keys that have lives, and about settings."""
        records = self.whole_of(members.records(self.silver, self.was["lives"]))
        keys = lives(records.select(f"*, {pack(members.FIELDS)} as payload")).computed()
        self.carry("lives", keys.where("open"))
        for name, rows in members.told(keys).items():
            self.add(name, rows)
        if "settings" in self.there:
            self.add("setting_changes", members.settings(self.silver["settings"]))
        if not self.idle(("classic_members",), ("stale_claims",)):
            claims = members.stale_claims(valid(self.silver["classic_members"]), self.was["stale_claims"])
            self.add("stale_claims", members.as_stale_claims(claims))
            self.carry("stale_claims", left(claims, "said"))
        if not self.idle(("streams_topologies",), ("stateful",)):
            topologies = valid(self.silver["streams_topologies"])
            self.add("streams_topology_changes", members.topologies(topologies))
            parts = holders.stateful(topologies, self.was["stateful"])
            self.carry("stateful", left(parts, "subtopologies"))
            groups, people = valid(self.silver["streams_groups"]), valid(self.silver["streams_members"])
            self.standbys = holders.standbys_wanted(groups, people, parts, self.was)

    def rebalances(self) -> None:
        line = rebalances.people(
            self.every("current", lambda m: f", member_id, member_epoch, {m.steady} as steady"),
            self.every("members", lambda m: ", member_id"),
            valid(self.silver["classic_members"]),
            self.was["people"],
        )
        groups = rebalances.new_epochs(self.every("groups", lambda m: ", epoch"), self.was["rebalances"]).computed()
        targets, moved = self.targets()
        sequence = rebalances.sequence(line, groups, targets, moved, self.classic_steps(), self.was["rebalances"])
        rows = epochs.epochs(sequence.rows, sequence.details).computed()
        self.born = epochs.births(groups, valid(self.silver["classic_groups"]), self.cuts, self.was)
        self.carry("births", self.born)
        proven = epochs.as_rebalances(rows, self.whole)
        self.add("rebalances", epochs.graded_by_births(proven, self.born, self.cuts))
        self.carry("people", line.people)
        self.carry("rebalances", epochs.carried(rows))

    def targets(self) -> tuple[Frame | None, Frame | None]:
        """Returns the complete targets, and how many partitions each moved."""
        named = [m.tables + name for m in MODERN.values() for name in ("targets", "target_members")]
        if self.idle(named, ("target_members", "target_changes", "complete_targets")):
            return None, None
        targets = self.every("targets", lambda m: ", epoch, assignor").computed()
        records = self.every("target_members", lambda m: f", member_id, {m.target} as partitions")
        moved = rebalances.moves(records, targets, self.was)
        self.carry("target_members", moved.last)
        self.carry("target_changes", moved.pending)
        self.carry("complete_targets", moved.latest)
        return targets, moved.targets

    def classic_steps(self) -> Frame | None:
        if self.idle(("classic_groups",), ("classic_states",)):
            return None
        given = self.events.query(f"""select state_partition, group_id, offset, count(*) as moved from {self.events}
                where kind = 'classic' and type = 'a' group by state_partition, group_id, offset""")
        steps = rebalances.classic_steps(valid(self.silver["classic_groups"]), given, self.was["classic_states"])
        self.carry("classic_states", steps.last)
        return steps.rows.computed()

    # ---- owners -----------------------------------------------------------------------------------------------------
    def owners(self) -> None:
        """Folds the tables about owners, from events of holdings."""
        whole, cuts = self.whole, self.cuts
        owned = ownership.owned(self.events, self.was["intervals"], self.was["doubtful"], self.was["places"], whole)
        ended = owned.intervals.query(f"""
            select i.* exclude (last_epoch), coalesce(last_epoch, epoch) as last_epoch from {owned.intervals} i
                left join {self.epochs} e using (state_partition, group_id, kind, member_id)""")
        unsure_members = self.epochs.query(f"""select e.* from {self.epochs} e join {self.unreadable} u
                on e.state_partition = u.state_partition and e.group_id = u.group_id and e.member_id = u.sub_id
                    and u.kind in {HOLDING} and u.last_offset > e.offset""")
        overlaps = ownership.doubted(owned.overlaps, cuts, unsure_members)
        self.add("intervals", ended.where(f"kind in {OWNED}"))
        self.add("second_owners", as_places(overlaps.where(f"kind in {(*OWNED, ACTIVE, PROCESS)}")))
        unowned = as_places(owned.unowned.where(f"kind in {(*OWNED, ACTIVE)}"))
        self.add("unowned", epochs.graded_by_births(unowned, self.born, cuts))
        kinds = owned.kinds
        self.carry("intervals", owned.intervals.where("open"))
        self.carry("doubtful", owned.doubtful)
        self.carry("places", owned.places)
        several = owned.intervals.where(f"kind in {SEVERAL} and member_id <> '{NO_MEMBER}'")
        if not self.idle((), ("holders",)) or not kinds.isdisjoint(SEVERAL):
            counts = holders.counted(several, self.was["holders"])
            self.carry("holders", holders.carried(counts))
            known = before_cuts(graded(counts, whole, "from_offset", "to_offset"), cuts, "to_offset")
            self.add("holders", as_places(holders.as_holders(known)))
        if SHARE in kinds:
            self.add("share_holdings", ended.where(f"kind = '{SHARE}' and member_id <> '{NO_MEMBER}'"))
            self.add("share_coverage", shares.coverage(owned.unowned, cuts))
        if not kinds.isdisjoint(TASKS):
            tasks = ended.where(f"kind in {ROLES}")
            self.add(
                "streams_tasks",
                tasks.select("*, topic_key as subtopology, kind as role, nullif(topic, '') as process_id"),
            )
            if self.standbys is not None:
                tasks = owned.intervals.where(f"kind in {COVERED}")
                short = holders.lacking(tasks, self.standbys, self.was["read"], self.was["lacking"])
                self.carry("lacking", short.where("open"))
                known = before_cuts(graded(short, whole, "from_offset", "to_offset"), cuts, "to_offset")
                self.add("streams_standby_coverage", known)


def as_places(rows: Frame) -> Frame:
    """A task is a place of a streams group."""
    return rows.select(
        f"""* replace (case when kind in {TASKS} then 'streams' else kind end as kind,
            case when kind in {TASKS} then topic_key else topic end as topic)"""
    )


def fold(db: Database, silver: Frames, carried: Frames, cut: Cuts | None = None) -> Folded:
    """`silver`: the new rows of a batch, by table; `carried`: what the last batch left, nothing at first; `cut`: of
    state partitions, the offsets right before these rows that were never read. A table that is not there is an empty
    one: leave out those without rows, for what needs no query takes no time."""
    one = _Fold(db, silver, carried)
    one.fold(cut or {})
    return one.out
