"""The part of the page's data that belongs to one group: its members, partitions, intervals and rebalances."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sidecar.audit.gold.completeness import Completeness
from sidecar.audit.page.kinds import FAULT, FREE, NOTE, POSSIBLE, Finding, span
from sidecar.audit.page.lives import lives, pack_intervals, pack_rebalances, pack_unowned
from sidecar.audit.page.pack import NONE, Bar, Rows, Texts, merged, split_budget
from sidecar.audit.page.source import Budget, Source
from sidecar.audit.page.verdict import Coverage

Key = tuple[int, str]
Place = tuple[str, int, str, int]
"""Topic or `task` and subtopology, partition, topic id (empty unless one name had several), number of the lane."""
FOR_EVER = 1 << 62
TABLES = ("intervals", "unowned", "rebalances", "members", "second_owners", "stale_claims")


@dataclass
class Group:
    """A group on the page. `owners`: member id -> number, in the order of their joins. `places`: partition or task ->
    number. `alive`: spans of time with members.

    The topic's name identifies a partition, with the topic's id only if one name had several ids. Where several members
    may own at once, their intervals have different lanes (`beside`: row of the intervals -> lane)."""

    owners: dict[str, int] = field(default_factory=dict)
    clients: dict[str, tuple[str, str | None, str | None]] = field(default_factory=dict)
    places: dict[Place, int] = field(default_factory=dict)
    beside: dict[int, int] = field(default_factory=dict)
    ids: dict[str, set[str]] = field(default_factory=dict)
    rows: dict[str, list[int]] = field(default_factory=lambda: {t: [] for t in TABLES})
    alive: list[tuple[int, int]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)


class Groups:
    def __init__(self, source: Source, covered: Coverage, texts: Texts, budget: Budget, until: int) -> None:
        self._covered, self._texts, self._budget, self._until = covered, texts, budget, until
        self._tables = {t: source.rows(t) for t in TABLES} | {
            "intervals": source.holdings(),
            "unowned": source.unowned(),
        }
        self.left_out: list[str] = []
        named = [*self._tables.values(), *map(source.rows, ("streams_not_ready", "streams_standby_coverage"))]
        keys = {k for t in named for k in t.each("state_partition", "group_id")} | set(covered.groups)
        keys |= {k for k in source.rows("setting_changes").each("state_partition", "group_id") if k[1]}  # else brokers'
        self.keys: list[Key] = sorted(keys, key=lambda k: (k[1], k[0]))
        self.number = {key: n for n, key in enumerate(self.keys)}
        self._groups = [Group() for _ in self.keys]
        for name, table in self._tables.items():
            for n, key in enumerate(table.each("state_partition", "group_id")):
                self._groups[self.number[key]].rows[name].append(n)
        for g in self._groups:
            self._meet(g)

    def _meet(self, g: Group) -> None:
        """Numbers a group's members and partitions, and sets the spans of time in which it had members."""
        members, intervals = self._tables["members"], self._tables["intervals"]
        g.rows["members"].sort(key=lambda n: (members["from_ms"][n], members["from_offset"][n]))
        for n in g.rows["members"]:
            g.owners.setdefault(members["member_id"][n], len(g.owners))
            g.clients[members["member_id"][n]] = tuple(
                members[c][n] for c in ("client_id", "instance_id", "process_id")
            )
        g.rows["intervals"].sort(key=lambda n: (intervals["from_ms"][n], intervals["from_offset"][n]))
        for n in g.rows["intervals"]:
            g.owners.setdefault(intervals["member_id"][n], len(g.owners))
        placed = [(self._tables[name], n) for name in ("intervals", "unowned", "second_owners") for n in g.rows[name]]
        for t, n in placed:
            if t["topic_id"][n]:
                g.ids.setdefault(t["topic"][n] or t["topic_key"][n], set()).add(t["topic_key"][n])
        self._put_beside(g)
        g.places = {key: k for k, key in enumerate(sorted({self._key(g, t, n) for t, n in placed}))}
        g.names = [
            f"{name}-{p}{f' ({topic_id})' if topic_id else ''}{f' [{lane + 1}]' if lane else ''}"
            for name, p, topic_id, lane in g.places
        ]
        spans = [(members["from_ms"][n], members["to_ms"][n]) for n in g.rows["members"]]
        g.alive = union((begin, self._until if end is None else end) for begin, end in spans)

    def _put_beside(self, g: Group) -> None:
        """Gives lanes to places that several members may own at once: partitions of share groups, and standby and
        warm-up tasks."""
        t, ends = self._tables["intervals"], dict[Place, list[int]]()
        for n in g.rows["intervals"]:
            kind = t["kind"][n]
            if kind == "share" or (kind == "streams" and t["topic"][n] != t["topic_key"][n]):
                lanes = ends.setdefault(self._key(g, t, n), [])
                begin, end = t["from_ms"][n], FOR_EVER if t["to_ms"][n] is None else t["to_ms"][n]
                lane = next((k for k, until in enumerate(lanes) if until <= begin), len(lanes))
                lanes[lane : lane + 1] = [end]
                g.beside[n] = lane

    def _key(self, g: Group, t: Rows, n: int) -> Place:
        name = t["topic"][n] or t["topic_key"][n]
        several = bool(t["topic_id"][n]) and len(g.ids.get(name, ())) > 1
        lane = g.beside.get(n, 0) if t is self._tables["intervals"] else 0
        task = "task " if t["kind"][n] == "streams" else ""
        return f"{task}{name}", t["partition"][n], t["topic_key"][n] if several else "", lane

    def place(self, group: int, table: Rows, row: int) -> int:
        g = self._groups[group]
        return g.places[self._key(g, table, row)]

    def task(self, group: int, subtopology: str, partition: int) -> int:
        """The place of an active task."""
        return self._groups[group].places.get((f"task {subtopology}", partition, "", 0), NONE)

    def place_name(self, group: int, place: int) -> str:
        return self._groups[group].names[place]

    def owner(self, group: int, member: str) -> int:
        return self._groups[group].owners.get(member, NONE)

    def called(self, group: int, member: str) -> str:
        """Returns a member's name on the page: its short label, and its client id if known."""
        g = self._groups[group]
        if member not in g.owners:
            return member
        client = g.clients.get(member, ("", None, None))[0]
        return f"m{g.owners[member] + 1} ({client or member})"

    def unowned_findings(self) -> Iterable[Finding]:
        """Yields findings of partitions that were unowned while the group had members: an empty group's are unowned by
        right. For a share group, of partitions that no member had although one subscribed to them."""
        t, brief = self._tables["unowned"], 0
        for number, g in enumerate(self._groups):
            for n in g.rows["unowned"]:
                begin, end = t["from_ms"][n], t["to_ms"][n]
                shared = longest_shared(g.alive, begin, self._until if end is None else end)
                if shared is None:
                    continue
                share = t["kind"][n] == "share"
                if shared[1] - shared[0] < (self._budget.uncovered_ms if share else self._budget.unowned_ms):
                    brief += not share
                    continue
                place = self.place(number, t, n)
                name = self.place_name(number, place)
                condition = "a member subscribed to it" if share else "the group had members"
                text = f"{name} was nobody’s for {span(shared[1] - shared[0])} while {condition}"
                if end is None:
                    text += "; it still is"
                grave = NOTE if t["grade"][n] == "proven" else POSSIBLE
                if grave == POSSIBLE:
                    text += " (perhaps: records are missing)"
                sp, offset = t["state_partition"][n], t["from_offset"][n]
                yield Finding("uncovered" if share else "unowned", grave, *shared, offset, sp, text, number, place)
        if brief:
            least = span(self._budget.unowned_ms)
            self.left_out.append(
                f"{brief} times a partition was nobody’s for less than {least}: drawn, but not listed."
            )

    def packed(self, coordinators: Sequence[dict[str, Any]], findings: Sequence[Finding]) -> list[dict[str, Any]]:
        """Returns the data of each group. Packs rebalances first: their reasons are required, those of intervals are
        optional and limited."""
        takeovers = {c["sp"]: c["takeovers"] for c in coordinators}
        epochs = [pack_rebalances(self._tables["rebalances"], r, self._texts) for r in self._newest("rebalances")]
        members = self._newest("members")
        drawn = self._bars("intervals", self._budget.intervals)
        free = self._bars("unowned", self._budget.unowned)
        by_group: dict[int, list[Finding]] = {}
        for f in findings:
            by_group.setdefault(f.group, []).append(f)
        out = []
        for n, g in enumerate(self._groups):
            mine = by_group.get(n, [])
            out.append(
                {
                    **self._head(n, takeovers, mine),
                    "owners": self._owners(g),
                    "places": [self._texts(name) for name in g.names],
                    "lives": lives(self._tables["members"], members[n], g.owners, self._texts),
                    "own": pack_intervals(self._tables["intervals"], drawn[n], g.owners, self._texts),
                    "free": pack_unowned(self._tables["unowned"], free[n], g.owners),
                    "epochs": epochs[n],
                }
            )
        return out

    def _newest(self, name: str) -> list[list[int]]:
        """Returns row numbers by group, in the order of the log; only the newest if there are too many."""
        table, most = self._tables[name], getattr(self._budget, name)
        by_group = [sorted(g.rows[name], key=lambda n: table["from_offset"][n]) for g in self._groups]
        kept = split_budget([len(r) for r in by_group], most)
        lost = sum(map(len, by_group)) - sum(kept)
        if lost:
            self.left_out.append(f"{lost} older rows of {name}; the newest of each group are here.")
        return [r[len(r) - k :] for r, k in zip(by_group, kept, strict=True)]

    def _bars(self, name: str, most: int) -> list[list[list[Bar]]]:
        """Returns the bars of each partition of each group."""
        table = self._tables[name]
        lanes = [self._lanes(g, table, name) for g in self._groups]
        granted = split_budget([sum(map(len, of)) for of in lanes], most)
        out = []
        for key, of, share in zip(self.keys, lanes, granted, strict=True):
            before = sum(map(len, of))
            filled, grain = merged([lane for lane in of if lane], share, self._until)
            bars = iter(filled)
            out.append([next(bars) if lane else [] for lane in of])
            if grain:
                now = sum(map(len, out[-1]))
                self.left_out.append(
                    f"{key[1]}: {before} rows of {name} are drawn as {now} bars; neighbours shorter than"
                    f" {span(grain)} became one."
                )
        return out

    def _lanes(self, g: Group, table: Rows, name: str) -> list[list[Bar]]:
        lanes: list[list[Bar]] = [[] for _ in g.places]
        for n in g.rows[name]:
            lanes[g.places[self._key(g, table, n)]].append(Bar(table["from_ms"][n], table["to_ms"][n], n))
        for lane in lanes:
            lane.sort(key=lambda b: (b.begin, table["from_offset"][b.row]))
        return lanes

    def _owners(self, g: Group) -> dict[str, Any]:
        named = [(m, *g.clients.get(m, (None, None, None))) for m in g.owners]
        columns = enumerate(("id", "client", "instance", "process"))
        return {name: [self._texts(names[n]) for names in named] for n, name in columns}

    def _head(self, n: int, takeovers: dict[int, int], mine: list[Finding]) -> dict[str, Any]:
        """Returns the group's entry in the index. A group's first epoch is no rebalance."""
        (sp, name), g = self.keys[n], self._groups[n]
        r, m, i = (self._tables[t] for t in ("rebalances", "members", "intervals"))
        turns = g.rows["rebalances"]
        settle = [(max(r["settled_ms"][k] - r["from_ms"][k], 0), k) for k in turns if r["settled_ms"][k] is not None]
        longest = max(settle, default=(NONE, NONE))
        free = max((((f.end or f.ms) - f.ms, f.ms) for f in mine if f.kind in FREE), default=(NONE, NONE))
        covered = self._covered.of((sp, name))
        known = covered.completeness if covered else Completeness()
        every = [(t, k) for t, of in ((r, turns), (m, g.rows["members"]), (i, g.rows["intervals"])) for k in of]
        return {
            "id": name,
            "sp": sp,
            "kinds": sorted({t["kind"][k] for t, k in every}),
            "from": min((t["from_ms"][k] for t, k in every), default=NONE),
            "partitions": len({place[:3] for place in g.places}),
            "members": sum(m["to_ms"][k] is None for k in g.rows["members"]),
            "rebalances": sum(not r["anew"][k] for k in turns),
            "settle": longest[0],
            "settleAt": NONE if longest[1] == NONE else r["from_ms"][longest[1]],
            "unowned": free[0],
            "unownedAt": free[1],
            "takeovers": takeovers.get(sp, NONE),
            "faults": sum(f.grave == FAULT for f in mine),
            "possible": sum(f.grave == POSSIBLE for f in mine),
            "known": covered is not None,
            "missing": known.missing,
            "since": NONE if covered is None else covered.first_ms if known.since_ms is None else known.since_ms,
        }


def union(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    out: list[tuple[int, int]] = []
    for begin, end in sorted(spans):
        if out and begin <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((begin, end))
    return out


def longest_shared(spans: Sequence[tuple[int, int]], begin: int, end: int) -> tuple[int, int] | None:
    """Returns the longest part of `begin` to `end` within one of `spans`, which are in order; None if there is none."""
    best: tuple[int, int] | None = None
    for at in range(max(bisect_right(spans, (begin, begin)) - 1, 0), len(spans)):
        if spans[at][0] >= end:
            break
        part = (max(begin, spans[at][0]), min(end, spans[at][1]))
        if part[1] > part[0] and (best is None or part[1] - part[0] > best[1] - best[0]):
            best = part
    return best
