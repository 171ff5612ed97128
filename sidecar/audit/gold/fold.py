"""The fold: the new records of a batch, and what the last batch left, to rows of gold. Only DataFrames: the executors
compute and write, nothing comes to the driver.

For any cutting of the log into batches (by offset, per state partition), all rows that were `added` and the `open` ones
of the last batch are those that one single batch gives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sidecar.audit.gold import coordinators, holdings, members, ownership, rebalances
from sidecar.audit.gold.carried import CARRIED
from sidecar.audit.gold.classic import classic
from sidecar.audit.gold.steps import done, empty, keyed, read, revisions, shape, sql, stretches, valid
from sidecar.audit.gold.tables import GOLD
from sidecar.audit.layers import SILVER_TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sidecar.audit.columns import Table

Frames = Mapping[str, "DataFrame"]


@dataclass
class Folded:
    """By name of the table."""

    added: dict[str, DataFrame] = field(default_factory=dict)
    """Rows that will never change."""
    open: dict[str, DataFrame] = field(default_factory=dict)
    """Rows that those of the next batch replace."""
    carried: dict[str, DataFrame] = field(default_factory=dict)
    """What the next batch must know. Write it and read it again, or the plans of all batches add up."""


class _Tables(dict[str, "DataFrame"]):
    """A table that is not there is an empty one, made when it is asked for."""

    def __init__(self, known: Mapping[str, Table], there: Frames, some: DataFrame) -> None:
        super().__init__(there)
        self.known, self.some = known, some

    def __missing__(self, name: str) -> DataFrame:
        return empty(self.some, self.known[name])


class _Fold:
    def __init__(self, silver: Frames, carried: Frames, large: bool) -> None:
        some = next(iter(silver.values()))
        if not large:
            # Of few rows, a task for each file takes longer than they do.
            silver, carried = ({name: df.coalesce(1) for name, df in fs.items()} for fs in (silver, carried))
        self.silver = _Tables(SILVER_TABLES, silver, some)
        self.was = _Tables(CARRIED, carried, some)
        self.out = Folded()
        # Each question needs a few columns of all records. Those of many are read anew, from files that have columns;
        # of few, the plans would cost more.
        self.keys = keyed(silver) if large else done(keyed(silver).coalesce(1))
        self.revisions = done(revisions(self.keys, self.was["revisions"]))
        here = read(self.keys, self.silver["corrupt"], self.was["read"])
        whole = done(stretches(self.revisions, here, self.was["read"]))
        self.carry("read", whole.where("until is null"))
        self.whole = whole.where("whole_from is not null").hint("broadcast")
        self.last = whole

    def idle(self, silver: Sequence[str], carried: Sequence[str]) -> bool:
        """None of these tables is there."""
        return self.silver.keys().isdisjoint(silver) and self.was.keys().isdisjoint(carried)

    def nothing(self, added: Sequence[str], carried: Sequence[str]) -> None:
        """There are no rows in these tables: nothing is planned for them."""
        for name in added:
            self.out.added[name] = empty(self.keys, GOLD[name])
            if GOLD[name].open:
                self.out.open[name] = self.out.added[name]
        for name in carried:
            self.out.carried[name] = empty(self.keys, CARRIED[name])

    def carry(self, name: str, df: DataFrame) -> None:
        self.out.carried[name] = shape(df, CARRIED[name])

    def add(self, name: str, df: DataFrame) -> None:
        """Rows that have ended and rows that have not."""
        table = GOLD[name]
        shaped = shape(df, table)
        if table.open:
            self.out.added[name] = shaped.where("not open")
            self.out.open[name] = shaped.where("open")
        else:
            self.out.added[name] = shaped

    def of(self, name: str) -> DataFrame:
        """Valid records of this kind, with the begin of the stretch without gaps that they are in."""
        return sql(
            """select r.*, whole_from from {records} r
                left join (select state_partition as sp, whole_from, until from {whole}) w
                    on sp = r.state_partition and offset >= whole_from and (until is null or offset < until)""",
            records=valid(self.silver[name]),
            whole=self.whole,
        )

    def ownership(self) -> None:
        gone = "deleted"
        consumer = holdings.consumer(self.of("current"), self.of("members").where(gone), self.was["holdings"])
        self.carry("holdings", consumer.last)
        assignments, events = self.was["assignments"], consumer.events
        if self.idle(("classic_assignments", "classic_groups"), ("assignments", "assigned_groups")):
            self.nothing((), ("assignments", "assigned_groups"))
        else:
            of_classic = classic(
                self.of("classic_assignments"),
                self.of("classic_members").where(gone),
                self.of("classic_groups"),
                assignments,
                self.was["assigned_groups"],
            )
            assignments, events = of_classic.last, events.unionAll(of_classic.events)
            self.carry("assignments", assignments)
            self.carry("assigned_groups", of_classic.groups)
        self.events = done(events)
        owned = ownership.together(self.events, self.was["intervals"])
        intervals = done(owned.intervals)
        epochs = sql(
            """select state_partition, group_id, 'consumer' as kind, member_id, member_epoch as epoch from {c}
                union all select state_partition, group_id, 'classic', member_id, generation from {a}
                    where at_offset is not null""",
            c=consumer.last,
            a=assignments,
        )
        self.add(
            "intervals",
            sql(
                """select i.* except (last_epoch), coalesce(last_epoch, epoch) as last_epoch from {ended} i
                    left join {epochs} using (state_partition, group_id, kind, member_id)""",
                ended=intervals,
                epochs=epochs,
            ),
        )
        self.carry("intervals", intervals.where("open"))
        self.contested(owned.stretches)

    def contested(self, stretches: DataFrame) -> None:
        found = ownership.compare(done(stretches), self.was["doubtful"], self.was["places"], self.whole)
        self.add("second_owners", found.overlaps)
        self.add("unowned", found.unowned)
        self.carry("doubtful", found.doubtful)
        self.carry("places", found.places)

    def people(self) -> None:
        found = done(members.members(self.of("members"), self.of("classic_members"), self.was["members"]))
        self.add("members", members.as_members(found))
        self.carry("members", found.where("open"))
        if self.idle(("static_members",), ("static_members",)):
            self.nothing(("static_member_history",), ("static_members",))
        else:
            held = done(members.static_members(self.of("static_members"), self.was["static_members"]))
            self.add("static_member_history", members.as_static(held))
            self.carry("static_members", held.where("open"))
        if self.idle(("settings",), ()):
            self.nothing(("setting_changes",), ())
        else:
            self.add("setting_changes", members.settings(self.silver["settings"]))
        if self.idle(("classic_members",), ("stale_claims",)):
            self.nothing(("stale_claims",), ("stale_claims",))
        else:
            told = members.Told(valid(self.silver["classic_members"]), self.was["stale_claims"])
            self.add("stale_claims", told.added)
            self.carry("stale_claims", told.last)

    def coordinators(self) -> None:
        claims = done(coordinators.claims(self.silver["claims"], self.was["claims"]))
        self.add("coordinators", claims.where("not told_already"))
        self.carry("claims", claims.where("newest or open").selectExpr("* except (highest)", "now as highest"))
        writes = coordinators.outages(self.keys, claims, self.was["writes"])
        self.add("outages", writes.outages)
        self.carry("writes", writes.last)
        self.add("stale_writes", coordinators.stale_writes(self.keys, claims))
        covered = coordinators.coverage(self.keys, self.silver["corrupt"], self.revisions, self.was["coverage"])
        per_group = done(covered)
        self.add("coverage", coordinators.as_coverage(per_group, self.last))
        self.carry("coverage", per_group)
        self.carry("revisions", self.revisions.where("latest and not deleted and revision is not null"))
        if self.idle(("corrupt",), ()):
            self.nothing(("unreadable",), ())
        else:
            self.add("unreadable", self.silver["corrupt"])

    def rebalances(self) -> None:
        line = rebalances.people(
            valid(self.silver["current"]),
            valid(self.silver["members"]),
            valid(self.silver["classic_members"]),
            self.was["people"],
        )
        targets, moved = self.targets()
        found = rebalances.rebalances(
            line, valid(self.silver["groups"]), targets, moved, self.classic_steps(), self.was["rebalances"]
        )
        kept = done(found)
        self.add("rebalances", rebalances.as_rebalances(kept, self.whole))
        self.carry("people", line.people)
        self.carry("rebalances", rebalances.left(kept))

    def targets(self) -> tuple[DataFrame | None, DataFrame | None]:
        """Those that are complete, and how much each moved."""
        if self.idle(("targets", "target_members"), ("target_members", "target_changes")):
            self.nothing((), ("target_members", "target_changes"))
            return None, None
        targets = valid(self.silver["targets"])
        records = valid(self.silver["target_members"])
        moved = rebalances.moves(records, targets, self.was["target_members"], self.was["target_changes"])
        self.carry("target_members", moved.last)
        self.carry("target_changes", moved.pending)
        return targets, moved.targets

    def classic_steps(self) -> DataFrame | None:
        if self.idle(("classic_groups",), ("classic_states",)):
            self.nothing((), ("classic_states",))
            return None
        given = sql(
            """select state_partition, group_id, offset, count(*) as moved from {events}
                where kind = 'classic' and type = 'a' group by state_partition, group_id, offset""",
            events=self.events,
        )
        steps = rebalances.classic_steps(valid(self.silver["classic_groups"]), given, self.was["classic_states"])
        self.carry("classic_states", steps.last)
        return steps.rows


def fold(silver: Frames, carried: Frames, large: bool = False) -> Folded:
    """`silver`: the new rows of a batch, by table; `carried`: what the last batch left, nothing at first. A table that
    is not there is an empty one: leave out those without rows, for what needs no plan takes no time. `large`: all keys
    together are not to be held at once."""
    from pyspark import inheritable_thread_target

    one = _Fold(silver, carried, large)

    def beside() -> None:
        one.people()
        one.coordinators()

    # Most of the time goes into plans, each made by one thread; what does not wait for the other goes beside it.
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(inheritable_thread_target(one.keys.sparkSession)(beside))
        one.ownership()
        one.rebalances()
        other.result()
    return one.out
