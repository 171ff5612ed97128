"""The part of the page's data that belongs to one group: its members, partitions, intervals and rebalances."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any

from sidecar.audit.gold.completeness import Completeness
from sidecar.audit.page.kinds import FAULT, FREE, POSSIBLE, Finding, span
from sidecar.audit.page.lives import pack_intervals, pack_members, pack_rebalances, pack_unowned
from sidecar.audit.page.pack import NONE, Bar, Row, Texts, bar, merged, split_budget
from sidecar.audit.page.source import Budget, Source
from sidecar.audit.page.verdict import Coverage

Key = tuple[int, str]
Place = tuple[str, int, str, int]
"""Topic or `task` and subtopology, partition, topic id (empty unless one name had several), number of the lane."""
TABLES = ("intervals", "unowned", "rebalances", "members", "second_owners")
NAMING = ("stale_claims", "streams_not_ready", "streams_standby_coverage")
"""Other tables whose rows name a group."""


def key_of(r: Row) -> Key:
    return r.state_partition, r.group_id


def _name(r: Row) -> str:
    return str(r.topic or r.topic_key)


class Group:
    """A group on the page. `rows`: by table; `owners`: member id -> number, in the order of their joins; `clients`:
    member id -> its last row; `lanes`: bars by table and place; `places`: partition or task -> number; `alive`: spans
    of time with members.

    The topic's name identifies a partition, with the topic's id only if one name had several ids."""

    def __init__(self, number: int, rows: Mapping[str, list[Row]], until: int) -> None:
        self.number, self.rows = number, rows
        for name in ("members", "intervals", "unowned"):
            rows[name].sort(key=attrgetter("from_ms", "from_offset"))
        self.clients = {r.member_id: r for r in rows["members"]}
        members = dict.fromkeys(r.member_id for name in ("members", "intervals") for r in rows[name])
        self.owners = {member: n for n, member in enumerate(members)}
        placed = (r for name in ("intervals", "unowned", "second_owners") for r in rows[name] if r.topic_id)
        self._ids = Counter(name for name, _ in {(_name(r), r.topic_key) for r in placed})
        self.lanes = {"intervals": self._beside(rows["intervals"]), "unowned": defaultdict[Place, list[Bar]](list)}
        for r in rows["unowned"]:
            self.lanes["unowned"][self._key(r)].append(bar(r))
        keys = {*self.lanes["intervals"], *self.lanes["unowned"], *map(self._key, rows["second_owners"])}
        self.places: dict[Place, int] = {key: n for n, key in enumerate(sorted(keys))}
        self.names = [
            f"{name}-{p}{f' ({topic_id})' if topic_id else ''}{f' [{lane + 1}]' if lane else ''}"
            for name, p, topic_id, lane in self.places
        ]
        self.alive = union((r.from_ms, until if r.to_ms is None else r.to_ms) for r in rows["members"])

    def _beside(self, intervals: Sequence[Row]) -> dict[Place, list[Bar]]:
        """Returns the bars of each place. Where several members may own at once, each gets a lane that is free: in
        partitions of share groups, and standby and warm-up tasks."""
        lanes: dict[Place, list[Bar]] = {}
        for r in intervals:
            place = self._key(r)
            shared = r.kind == "share" or (r.kind == "streams" and r.topic != r.topic_key)
            while shared and place in lanes and lanes[place][-1].lasts(r.from_ms):
                place = (*place[:3], place[3] + 1)
            lanes.setdefault(place, []).append(bar(r))
        return lanes

    def _key(self, r: Row) -> Place:
        name, several = _name(r), r.topic_id and self._ids[_name(r)] > 1
        return f"task {name}" if r.kind == "streams" else name, r.partition, r.topic_key if several else "", 0

    def place(self, row: Row) -> int:
        return self.places[self._key(row)]

    def task(self, subtopology: str, partition: int) -> int:
        """The place of an active task."""
        return self.places.get((f"task {subtopology}", partition, "", 0), NONE)

    def owner(self, member: str) -> int:
        return self.owners.get(member, NONE)

    def called(self, member: str) -> str:
        """Returns a member's name on the page: its short label, and its client id if known."""
        if member not in self.owners:
            return member
        client = self.clients[member].client_id if member in self.clients else ""
        return f"m{self.owners[member] + 1} ({client or member})"


class Groups(dict[Key, Group]):
    """All groups, by state partition and id, in the order of their ids."""

    def __init__(self, source: Source, covered: Coverage, texts: Texts, budget: Budget, until: int) -> None:
        self._covered, self._texts, self._budget, self._until = covered, texts, budget, until
        self.left_out: list[str] = []
        tables = {name: source.rows(name) for name in (*TABLES, *NAMING)}
        tables["settings"] = [r for r in source.rows("setting_changes") if r.group_id]  # of no group: the brokers'
        keys = {key_of(r) for rows in tables.values() for r in rows} | covered.groups.keys()
        rows_of: dict[Key, dict[str, list[Row]]] = {k: {name: [] for name in TABLES} for k in keys}
        for name in TABLES:
            for r in tables[name]:
                rows_of[key_of(r)][name].append(r)
        ordered = sorted(keys, key=lambda k: (k[1], k[0]))
        super().__init__({key: Group(n, rows_of[key], until) for n, key in enumerate(ordered)})

    def rows(self, name: str) -> Iterator[tuple[Group, Row]]:
        return ((g, r) for g in self.values() for r in g.rows[name])

    def packed(self, coordinators: Sequence[dict[str, Any]], findings: Sequence[Finding]) -> list[dict[str, Any]]:
        """Returns the data of each group. Packs rebalances first: their reasons are required, those of intervals are
        optional and limited."""
        takeovers = {c["sp"]: c["takeovers"] for c in coordinators}
        epochs = [pack_rebalances(rows, self._texts) for rows in self._newest("rebalances")]
        members, drawn, free = self._newest("members"), self._bars("intervals"), self._bars("unowned")
        by_group = defaultdict[int, list[Finding]](list)
        for f in findings:
            by_group[f.group].append(f)
        return [
            {
                **self._head(key, g, by_group[n]),
                "takeovers": takeovers.get(key[0], NONE),
                "owners": self._owners(g),
                "places": [self._texts(name) for name in g.names],
                "lives": pack_members(members[n], g.owners, self._texts),
                "own": pack_intervals(drawn[n], g.owners, self._texts),
                "free": pack_unowned(free[n], g.owners),
                "epochs": epochs[n],
            }
            for n, (key, g) in enumerate(self.items())
        ]

    def _newest(self, name: str) -> list[list[Row]]:
        """Returns rows by group, in the order of the log; only the newest if there are too many."""
        by_group = [sorted(g.rows[name], key=attrgetter("from_offset")) for g in self.values()]
        kept = split_budget([len(r) for r in by_group], getattr(self._budget, name))
        lost = sum(map(len, by_group)) - sum(kept)
        if lost:
            self.left_out.append(f"{lost} older rows of {name}; the newest of each group are here.")
        return [r[len(r) - k :] for r, k in zip(by_group, kept, strict=True)]

    def _bars(self, name: str) -> list[list[list[Bar]]]:
        """Returns the bars of each partition of each group."""
        lanes = [[g.lanes[name].get(place, []) for place in g.places] for g in self.values()]
        granted = split_budget([sum(map(len, of)) for of in lanes], getattr(self._budget, name))
        out = []
        for (_, group_id), of, share in zip(self, lanes, granted, strict=True):
            bars, grain = merged(of, share, self._until)
            out.append(bars)
            if grain:
                before, now = sum(map(len, of)), sum(map(len, bars))
                self.left_out.append(
                    f"{group_id}: {before} rows of {name} are drawn as {now} bars; neighbours shorter than"
                    f" {span(grain)} became one."
                )
        return out

    def _owners(self, g: Group) -> dict[str, Any]:
        known = [g.clients.get(m) for m in g.owners]
        names = ("client_id", "instance_id", "process_id")
        return {"id": [self._texts(m) for m in g.owners]} | {
            name: [self._texts(getattr(r, name, None)) for r in known] for name in names
        }

    def _head(self, key: Key, g: Group, mine: list[Finding]) -> dict[str, Any]:
        """Returns the group's entry in the index. A group's first epoch is no rebalance."""
        turns, members = g.rows["rebalances"], g.rows["members"]
        settled = ((max(r.settled_ms - r.from_ms, 0), r.from_ms) for r in turns if r.settled_ms is not None)
        settle, settle_at = max(settled, default=(NONE, NONE))
        unowned, unowned_at = max(
            (((f.end or f.ms) - f.ms, f.ms) for f in mine if f.kind in FREE), default=(NONE, NONE)
        )
        covered = self._covered.of(key)
        known = covered.completeness if covered else Completeness()
        every = [*turns, *members, *g.rows["intervals"]]
        return {
            "id": key[1],
            "sp": key[0],
            "kinds": sorted({r.kind for r in every}),
            "from": min((r.from_ms for r in every), default=NONE),
            "partitions": len({place[:3] for place in g.places}),
            "members": sum(r.to_ms is None for r in members),
            "rebalances": sum(not r.anew for r in turns),
            "settle": settle,
            "settleAt": settle_at,
            "unowned": unowned,
            "unownedAt": unowned_at,
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
    first = max(bisect_right(spans, (begin, begin)) - 1, 0)
    parts = [(max(begin, a), min(end, b)) for a, b in spans[first : bisect_left(spans, (end, 0))]]
    return max((p for p in parts if p[1] > p[0]), key=lambda p: p[1] - p[0], default=None)
