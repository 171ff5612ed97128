"""An audit of one state partition, record by record, in plain Python: what the gold layer must say of a log of which
nothing is missing. Written from the description of the tables; it knows nothing of how gold is made.

Rows are those of silver, each with its `table`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
UNFENCED = ("claims", "schemas", "settings")
EVER = 1 << 62


def at(prefix: str, row: Row | None) -> Row:
    return {f"{prefix}{n}": None if row is None else row[c] for n, c in TIMES}


TIMES = (("offset", "offset"), ("ms", "log_ms"), ("written_ms", "written_ms"))


@dataclass
class Classic:
    """A classic group, as far as assignments go."""

    type: str | None = None
    assigned: int = -1
    waiting: dict[str, Row] = field(default_factory=dict)
    holders: set[str] = field(default_factory=set)
    generation: int | None = None
    state: str | None = None
    prepared: tuple[Row, Row | None] | None = None
    """The record that began the rebalance, and the membership record that came before it."""


@dataclass
class Consumer:
    former_target: set[tuple[Any, str]] = field(default_factory=set)
    targets: dict[str, set[Any]] = field(default_factory=dict)
    reached: dict[str, int | None] = field(default_factory=dict)


@dataclass
class Line:
    """Live members and the rebalance under way, for groups of all kinds."""

    live: set[str] = field(default_factory=set)
    who: Row | None = None
    rebalance: Row | None = None
    head: Row | None = None
    """The last record that began an epoch, or ended the group."""
    epoch: int | None = None
    """The last one that began since the group did."""


class Replay:
    def __init__(self, partition: int) -> None:
        self.p = partition
        self.tables: dict[str, list[Row]] = defaultdict(list)
        self.held: dict[Any, dict[Any, Row]] = defaultdict(dict)
        """(Group, kind, member) -> (topic key, partition) -> interval."""
        self.classic: dict[str, Classic] = defaultdict(Classic)
        self.consumer: dict[tuple[str, str], Consumer] = defaultdict(Consumer)
        """By group and kind, of those with epochs."""
        self.processes: dict[Any, str | None] = {}
        """Process ids of members of streams groups."""
        self.initialised: dict[str, set[Any]] = defaultdict(set)
        """(Topic id, topic, partition) of share groups."""
        self.subscribed: dict[str, dict[str, list[str]]] = defaultdict(dict)
        self.since: dict[Any, Row] = {}
        """Group and topic -> the record since which a member of a share group subscribes to it."""
        self.replicas: dict[Any, Row] = {}
        self.stateful: dict[str, set[str]] = {}
        """Subtopologies of streams groups."""
        self.lacking: dict[Any, Row] = {}
        """Group and task -> the open row."""
        self.wanted: dict[Any, Row] = {}
        """Group and place -> since when somebody should have it."""
        self.spans: list[tuple[str, Any, Row, Row | None]] = []
        """The spans that have ended: group, place, first and last record."""
        self.lines: dict[tuple[str, str], Line] = defaultdict(Line)
        self.members: dict[Any, Row] = {}
        self.static: dict[Any, Row] = {}
        self.ready: dict[Any, Row] = {}
        self.placeholders: dict[Any, Row] = {}
        self.claims: dict[Any, list[Any]] = {}
        self.claim: Row | None = None
        self.last_write: Row | None = None
        self.highest: dict[int, int] = {}
        self.group_rows: dict[str, list[Row]] = defaultdict(list)
        self.last: Row | None = None

    def add(self, row: Row) -> None:
        table = row["table"]
        self.last = row
        self.group_rows[""].append(row)
        if row["group_id"]:
            self.group_rows[row["group_id"]].append(row)
        epoch, claimed = row["owner_epoch"], row["claimed_epoch"]
        if table not in UNFENCED and None not in (epoch, claimed) and epoch != claimed:
            self.stale(row, "record")
            return
        if table not in UNFENCED and epoch is not None and epoch == claimed:
            self.last_write = row
        getattr(self, f"_{table}", lambda r: None)(row)
        if table.startswith("streams_"):
            self._standbys(row)

    def stale(self, row: Row, what: str) -> None:
        self.tables["stale_writes"].append({"offset": row["offset"], "what": what, "group_id": row["group_id"]})

    # ---- holdings --------------------------------------------------------------------------------------------
    def _hold(self, row: Row, kind: str, member_id: str, held: dict[Any, Row], release: bool = True) -> None:
        """`held`: (topic key, partition) -> topic, epoch and whether it is only pending. `row`: since when."""
        mine = self.held[row["group_id"], kind, member_id]
        for place in [p for p in mine if p not in held]:
            mine.pop(place).update(at("to_", row), to_why=row["why"], open=False)
        if release and not held:
            return
        for place, what in held.items():
            if place not in mine:
                mine[place] = {
                    "group_id": row["group_id"],
                    "kind": kind,
                    "topic_key": place[0],
                    "partition": place[1],
                    "topic": what["topic"],
                    "member_id": member_id,
                    **at("from_", row),
                    "from_why": what["why"],
                    **at("to_", None),
                    "to_why": None,
                    "open": True,
                    "first_epoch": what["epoch"],
                    "revoking_from_offset": None,
                }
                self.tables["intervals"].append(mine[place])
            if not what["pending"]:
                mine[place]["revoking_from_offset"] = None
            elif mine[place]["revoking_from_offset"] is None:
                mine[place]["revoking_from_offset"] = row["offset"]
            mine[place]["last_epoch"] = what["epoch"]

    def _has(self, row: Row, kind: str, lists: Any) -> None:
        """`lists`: whether pending, topic key, topic and partitions."""
        held: dict[Any, Row] = {}
        for pending, key, topic, partitions in sorted(lists, key=lambda t: not t[0]):
            for p in partitions:
                held[key, p] = {"topic": topic, "epoch": row["member_epoch"], "pending": pending, "why": row["why"]}
        self._hold(row, kind, row["member_id"], held)

    def _current(self, row: Row) -> None:
        held = _in(row, "assigned", "pending")
        self._has(row, "consumer", [(n == "pending", t["topic_id"], t["topic"], t["partitions"]) for n, t in held])
        self._reaches(row, "consumer", row["state"] == "STABLE" and not row["pending"])

    def _share_current(self, row: Row) -> None:
        held = _in(row, "assigned")
        self._has(row, "share", [(False, t["topic_id"], t["topic"], t["partitions"]) for _, t in held])
        self._reaches(row, "share", True)

    def _streams_current(self, row: Row) -> None:
        process, every = self.processes.get((row["group_id"], row["member_id"])), []
        for role in ("active", "standby", "warmup"):
            lists = [
                (n != role, t["subtopology"], process, t["partitions"]) for n, t in _in(row, role, f"pending_{role}")
            ]
            self._has(row, role, lists)
            every += [(pending, f"{key} in process {process}", "", ps) for pending, key, _, ps in lists if process]
        self._has(row, "process", every)
        pending = any(row[f"pending_{role}"] for role in ("active", "standby", "warmup"))
        self._reaches(row, "streams", row["state"] == "STABLE" and not pending)

    def _reaches(self, row: Row, kind: str, all_of_it: bool) -> None:
        group, member_id = self.consumer[row["group_id"], kind], row["member_id"]
        steady = not row["deleted"] and all_of_it
        group.reached[member_id] = row["member_epoch"] if steady else None
        if steady:
            self._settle(row, kind, row["member_epoch"])

    def _settle(self, row: Row, kind: str, epoch: int) -> None:
        line, group = self.lines[row["group_id"], kind], self.consumer[row["group_id"], kind]
        now = line.rebalance
        if now is None or not now["open"] or now["epoch"] != epoch or not line.live:
            return
        if all(group.reached.get(m) == now["epoch"] for m in line.live):
            now.update(settled_offset=row["offset"], open=False)

    def _classic_assignments(self, row: Row) -> None:
        group, member_id = self.classic[row["group_id"]], row["member_id"]
        group.waiting.pop(member_id, None)
        if row["deleted"]:
            self._hold(row, "classic", member_id, {})
            return
        group.holders.add(member_id)
        if row["generation"] > group.assigned:
            group.waiting[member_id] = row
        else:
            self._hold(row, "classic", member_id, self._given(group, row))

    def _given(self, group: Classic, row: Row) -> dict[Any, Row]:
        if group.type != "consumer":
            return {}
        what = {"epoch": row["generation"], "pending": False, "why": row["why"]}
        return {(t["topic"], p): {"topic": t["topic"], **what} for t in row["assigned"] or [] for p in t["partitions"]}

    def _classic_groups(self, row: Row) -> None:
        group = self.classic[row["group_id"]]
        if row["deleted"]:
            for m in group.holders:
                self._hold(row, "classic", m, {})
            del self.classic[row["group_id"]]
            self._end_epoch(row, "classic")
            line = self.lines[row["group_id"], "classic"]
            line.head, line.epoch = row, None
            return
        group.type, group.assigned = row["protocol_type"], row["assigned_generation"]
        waiting, group.waiting = group.waiting, {}
        new = 0
        for m, w in waiting.items():
            held = self._given(group, w)
            new += len(held.keys() - self.held[row["group_id"], "classic", m].keys())
            stamp = {**w, **{c: row[c] for _, c in TIMES}}
            mine = self.held[row["group_id"], "classic", m]
            for place in [p for p in mine if p not in held]:
                mine.pop(place).update(at("to_", row), to_why=w["why"], open=False)
            self._hold(stamp, "classic", m, held, release=False)
        self._generation(row, group, new)

    def _generation(self, row: Row, group: Classic, new: int) -> None:
        line = self.lines[row["group_id"], "classic"]
        if row["state"] == "PreparingRebalance":
            if group.state != row["state"]:
                group.prepared = (row, line.who)
        elif row["generation"] != group.generation:
            began = (row, line.who)
            after = -1 if line.head is None else line.head["offset"]
            if group.prepared is not None and group.prepared[0]["offset"] > after:
                began = group.prepared
            self._begin_epoch(row, "classic", row["generation"], *began)
            group.generation = row["generation"]
        group.state = row["state"]
        now = line.rebalance
        if row["state"] == "Stable" and row["assigned_generation"] == row["generation"] and now and now["open"]:
            now.update(
                target_offset=row["offset"],
                assignor=row["protocol"],
                partitions_moved=new,
                settled_offset=row["offset"],
                open=False,
            )

    # ---- epochs ----------------------------------------------------------------------------------------------
    def _begin_epoch(self, row: Row, kind: str, epoch: int, began: Row, who: Row | None) -> None:
        line = self.lines[row["group_id"], kind]
        self._end_epoch(row, kind)
        after = -1 if line.head is None else line.head["offset"]
        theirs = who is not None and who["offset"] > after and who["written_ms"] == began["written_ms"]
        line.rebalance = {
            "group_id": row["group_id"],
            "kind": kind,
            "epoch": epoch,
            "anew": line.head is None or line.head["deleted"],
            "went_back": line.epoch is not None and epoch <= line.epoch,
            **at("from_", began),
            "why": began["why"],
            "cause": who["what"] if theirs and who else "other",
            "member_id": who["member_id"] if theirs and who else None,
            "members": len(line.live),
            "target_offset": None,
            "assignor": None,
            "partitions_moved": None,
            "settled_offset": None,
            "superseded": False,
            "open": True,
        }
        line.head, line.epoch = row, epoch
        self.tables["rebalances"].append(line.rebalance)

    def _end_epoch(self, row: Row, kind: str) -> None:
        now = self.lines[row["group_id"], kind].rebalance
        if now is not None and now["open"]:
            now.update(open=False, superseded=True)
        self.lines[row["group_id"], kind].rebalance = None

    def _groups(self, row: Row, kind: str = "consumer") -> None:
        line = self.lines[row["group_id"], kind]
        if row["deleted"]:
            self._end_epoch(row, kind)
            line.head, line.epoch = row, None
        else:
            self._begin_epoch(row, kind, row["epoch"], row, line.who)
            self._settle(row, kind, row["epoch"])

    def _share_groups(self, row: Row) -> None:
        self._groups(row, "share")

    def _streams_groups(self, row: Row) -> None:
        """Reads a streams group's record, which also has changes other than the epoch."""
        if row["deleted"] or row["epoch"] != self.lines[row["group_id"], "streams"].epoch:
            self._groups(row, "streams")
        said = {c["name"]: c["value"] for c in row["assignment_configs"] or []}
        replicas = said.get("num.standby.replicas", "none")
        fields = {"member_id": replicas, "num_standby_replicas": replicas}
        self._life(row, self.replicas, row["group_id"], "streams_standby_replicas", fields, replicas)
        ready = None if row["deleted"] else "not ready" if row["validated_topology_epoch"] < 0 else "ready"
        self._life(row, self.ready, row["group_id"], "streams_ready", {"member_id": ready}, ready)

    def _standbys(self, row: Row) -> None:
        """Notes which tasks of the group have fewer standbys than they should have after this row."""
        group_id = row["group_id"]
        said = self.replicas.get(group_id, {}).get("member_id", "none")
        others = len({p for (g, _), p in self.processes.items() if g == group_id and p is not None}) - 1
        wanted = max(min(0 if said == "none" else int(said), others), 0)
        tasks: dict[str, list[Any]] = {"active": [], "standby": []}
        for (g, kind, _), held in self.held.items():
            if g == group_id and kind in tasks:
                tasks[kind] += held
        had = {task: tasks["standby"].count(task) for task in tasks["active"]}
        now = {t: n for t, n in had.items() if t[0] in self.stateful.get(group_id, ()) and n < wanted}
        for key in [k for k in self.lacking if k[0] == group_id]:
            if (self.lacking[key]["wanted"], self.lacking[key]["held"]) != (wanted, now.get(key[1])):
                self.lacking.pop(key).update(at("to_", row), open=False)
        for task in now:
            if (group_id, task) not in self.lacking:
                self.lacking[group_id, task] = {
                    "group_id": group_id,
                    "subtopology": task[0],
                    "partition": task[1],
                    "wanted": wanted,
                    "held": now[task],
                    **at("from_", row),
                    **at("to_", None),
                    "grade": "proven",
                    "open": True,
                }
                self.tables["streams_standby_coverage"].append(self.lacking[group_id, task])

    def _streams_topologies(self, row: Row) -> None:
        self.stateful[row["group_id"]] = {s["subtopology"] for s in row["subtopologies"] or [] if s["changelog_topics"]}
        if not row["deleted"]:
            parts = row["subtopologies"]
            topics = {t["name"] for s in parts for t in (*s["repartition_source_topics"], *s["changelog_topics"])}
            self.tables["streams_topology_changes"].append(
                {
                    "group_id": row["group_id"],
                    **at("", row),
                    **{c: row[c] for c in ("epoch", "partial", "why")},
                    "subtopologies": [s["subtopology"] for s in parts],
                    "internal_topics": sorted(topics),
                }
            )

    def _target_members(self, row: Row, kind: str = "consumer", of: str = "partitions", key: str = "topic_id") -> None:
        places = {(t[key], p) for t in row[of] or [] for p in t["partitions"]}
        self.consumer[row["group_id"], kind].targets[row["member_id"]] = places

    def _share_target_members(self, row: Row) -> None:
        self._target_members(row, "share")

    def _streams_target_members(self, row: Row) -> None:
        self._target_members(row, "streams", "active", "subtopology")

    def _share_targets(self, row: Row) -> None:
        self._targets(row, "share")

    def _streams_targets(self, row: Row) -> None:
        self._targets(row, "streams")

    def _targets(self, row: Row, kind: str = "consumer") -> None:
        if row["deleted"]:  # all that the next target gives is given anew
            self.consumer[row["group_id"], kind].former_target = set()
            return
        group, now = self.consumer[row["group_id"], kind], self.lines[row["group_id"], kind].rebalance
        target = {(place, m) for m, places in group.targets.items() for place in places}
        moved = {place for place, _ in target - group.former_target}
        group.former_target = target
        if now is not None and row["epoch"] == now["epoch"] and now["target_offset"] is None:
            now.update(target_offset=row["offset"], assignor=row["assignor"], partitions_moved=len(moved))

    # ---- members ---------------------------------------------------------------------------------------------
    def _members(self, row: Row) -> None:
        if row["deleted"]:
            self._hold(row, "consumer", row["member_id"], {})
        self._member(row, "consumer")

    def _share_members(self, row: Row) -> None:
        names = self.subscribed[row["group_id"]]
        if row["deleted"]:
            self._hold(row, "share", row["member_id"], {})
        names[row["member_id"]] = row["topic_names"] or []
        named = {n for of_member in names.values() for n in of_member}
        for key in [k for k in self.since if k[0] == row["group_id"] and k[1] not in named]:
            del self.since[key]
        for topic in named:
            self.since.setdefault((row["group_id"], topic), row)
        self._want(row)
        self._member(row, "share")

    def _share_placeholders(self, row: Row) -> None:
        shown = [] if row["deleted"] else row["initialised"]
        said = {n: row[n] for n in ("member_id", "keeper", "topic_names")}
        self._life(row, self.placeholders, row["group_id"], "share_placeholder_history", said)
        if not row["deleted"]:
            self.placeholders[row["group_id"]].update(said)
        before = {(t, p) for t, _, p in self.initialised[row["group_id"]]}
        for t in shown:
            for p in [p for p in t["partitions"] if (t["topic_id"], p) not in before]:
                since = self.since.get((row["group_id"], t["topic"]))
                self.tables["share_initialised"].append(
                    {
                        "group_id": row["group_id"],
                        **{n: t[n] for n in ("topic_id", "topic")},
                        "partition": p,
                        **at("subscribed_", since),
                        **at("", row),
                        "after_ms": since and row["log_ms"] - since["log_ms"],
                        "grade": "proven",
                    }
                )
        self.initialised[row["group_id"]] = {(t["topic_id"], t["topic"], p) for t in shown for p in t["partitions"]}
        self._want(row)

    def _want(self, row: Row) -> None:
        """Opens and closes spans in which initialised, subscribed partitions need an owner."""
        group_id = row["group_id"]
        named = {n for names in self.subscribed[group_id].values() for n in names}
        now = {(t, name, p) for t, name, p in self.initialised[group_id] if name in named}
        for group, place in [k for k in self.wanted if k[0] == group_id and k[1] not in now]:
            self.spans.append((group, place, self.wanted.pop((group, place)), row))
        for place in now:
            self.wanted.setdefault((group_id, place), row)

    def _streams_members(self, row: Row) -> None:
        if row["deleted"]:
            for kind in ("active", "standby", "warmup", "process"):
                self._hold(row, kind, row["member_id"], {})
        self.processes[row["group_id"], row["member_id"]] = row["process_id"]
        self._member(row, "streams")

    def _classic_members(self, row: Row) -> None:
        if row["deleted"]:
            group = self.classic[row["group_id"]]
            group.waiting.pop(row["member_id"], None)
            self._hold(row, "classic", row["member_id"], {})
        self._member(row, "classic")
        said = [] if row["deleted"] else row["stale_claims"]
        if said and said != self.claims.get((row["group_id"], row["member_id"])):
            for c in said:
                self.tables["stale_claims"].append({"offset": row["offset"], "member_id": row["member_id"], **c})
        self.claims[row["group_id"], row["member_id"]] = said

    def _member(self, row: Row, kind: str) -> None:
        line, key = self.lines[row["group_id"], kind], (row["group_id"], kind, row["member_id"])
        what = "left" if row["deleted"] else "changed" if row["member_id"] in line.live else "joined"
        line.who = {**row, "what": what}
        (line.live.discard if row["deleted"] else line.live.add)(row["member_id"])
        self._life(row, self.members, key, "members", {"kind": kind, "member_id": row["member_id"]})
        if not row["deleted"]:
            self.members[key].update(
                {c: row.get(c) for c in ("instance_id", "client_id", "client_host", "rack_id", "process_id")}
            )

    def _life(
        self, row: Row, lives: dict[Any, Row], key: Any, table: str, fields: Row, state: str | None = None
    ) -> None:
        """Begin it, go on with it, or end it."""
        now, state = lives.get(key), state or row.get("member_id")
        if now is not None and (row["deleted"] or now["member_id"] != state):
            lives.pop(key).update(at("to_", row), to_why=row["why"], open=False)
        if not row["deleted"] and key not in lives:
            begun = {**at("from_", row), "from_why": row["why"], **at("to_", None), "to_why": None, "open": True}
            lives[key] = {"group_id": row["group_id"], **fields, **begun}
            self.tables[table].append(lives[key])

    def _static_members(self, row: Row) -> None:
        key = (row["group_id"], row["instance_id"])
        fields = {"instance_id": row["instance_id"], "member_id": row["member_id"]}
        self._life(row, self.static, key, "static_member_history", fields)

    def _settings(self, row: Row) -> None:
        if row["group_id"] or not row["name"].endswith("/sidecar.member"):
            self.tables["setting_changes"].append({c: row[c] for c in ("offset", "group_id", "name", "value", "why")})

    # ---- coordinators ----------------------------------------------------------------------------------------
    def _claims(self, row: Row) -> None:
        if row["deleted"] or not row["claim"].isdigit():
            return
        producer, epoch = row["producer_id"], row["producer_epoch"]
        fenced = epoch < self.highest.get(producer, -1)
        self.highest[producer] = max(epoch, self.highest.get(producer, -1))
        if fenced:
            self.stale(row, "claim")
        if self.claim is not None:
            self.claim.update(at("to_", row), open=False)
            former = self.last_write
            assert former is not None
            if row["why"] != "fence renewed":
                self.tables["outages"].append(
                    {
                        "former_claim": self.claim["claim"],
                        "claim": row["owner_epoch"],
                        **at("from_", former),
                        **at("to_", row),
                        "at_most_ms": row["log_ms"] - former["log_ms"],
                        "why": row["why"],
                    }
                )
        self.claim = {
            "claim": row["owner_epoch"],
            "fenced": fenced,
            **at("from_", row),
            **at("to_", None),
            "open": True,
        }
        self.last_write = row
        self.tables["coordinators"].append(self.claim)

    # ---- the end ---------------------------------------------------------------------------------------------
    def finish(self) -> dict[str, list[Row]]:
        places: dict[Any, list[Row]] = defaultdict(list)
        for i in self.tables["intervals"]:
            places[i["group_id"], i["kind"], i["topic_key"], i["partition"]].append(i)
        for owners in places.values():
            owners.sort(key=lambda i: (i["from_offset"], i["member_id"]))
            if owners[0]["kind"] in ("consumer", "classic", "active", "process"):
                self._compare(owners)
        for group_id, place, begin, end in [*self.spans, *((*k, row, None) for k, row in self.wanted.items())]:
            topic_id, topic, p = place
            self._cover(group_id, (topic_id, topic, p), begin, end, places[group_id, "share", topic_id, p])
        for (group_id, kind, key, p), owners in places.items():
            if owners and kind in ("share", "standby", "warmup"):
                self._count(group_id, kind, key, p, owners)
        self._by_kind()
        for group_id, rows in self.group_rows.items():
            self.tables["coverage"].append(
                {
                    "scope": "group" if group_id else "partition",
                    "group_id": group_id,
                    "first_offset": rows[0]["offset"],
                    "last_offset": rows[-1]["offset"],
                    "records": len(rows),
                    "missing": 0,
                    "first_hole_offset": None,
                }
            )
        return {t: [{"state_partition": self.p, **r} for r in rows] for t, rows in self.tables.items()}

    def _count(self, group_id: str, kind: str, key: str, partition: int, owners: list[Row]) -> None:
        """From one record that changes the number of holders to the next."""
        changes: dict[int, int] = defaultdict(int)
        times: dict[int, Row] = {}
        for i in owners:
            for prefix, d in (("from_", 1), ("to_", -1)):
                if (n := i[f"{prefix}offset"]) is not None:
                    changes[n] += d
                    times[n] = {c: i[f"{prefix}{c}"] for c, _ in TIMES}
        points, had = [n for n in sorted(changes) if changes[n]], 0
        for n, then in zip(points, [*points[1:], None], strict=True):
            had += changes[n]
            if had:
                self.tables["holders"].append(
                    {
                        "group_id": group_id,
                        "kind": "share" if kind == "share" else "streams",
                        "topic_key": key,
                        "topic": max(i["topic"] for i in owners) if kind == "share" else key,
                        "partition": partition,
                        "role": kind,
                        "holders": had,
                        **{f"from_{c}": v for c, v in times[n].items()},
                        **{f"to_{c}": None if then is None else times[then][c] for c, _ in TIMES},
                        "grade": "proven",
                        "open": then is None,
                    }
                )

    def _compare(self, owners: list[Row]) -> None:
        """Compares all intervals of one partition."""
        for n, now in enumerate(owners):
            before = [(EVER if b["open"] else b["to_offset"], b["from_offset"], b["member_id"], b) for b in owners[:n]]
            place = {c: now[c] for c in ("group_id", "kind", "topic_key", "partition")}
            if not before:
                continue
            reach, _, _, other = max(before, key=lambda b: b[:3])
            if place["kind"] in ("active", "process"):
                place["kind"] = "streams"
            if reach > now["from_offset"]:
                self.tables["second_owners"].append(
                    {
                        **place,
                        "member_id": now["member_id"],
                        "offset": now["from_offset"],
                        "other_member_id": other["member_id"],
                        "other_from_offset": other["from_offset"],
                        "grade": "proven",
                        "open": other["open"],
                    }
                )
            elif reach < now["from_offset"]:
                self._unowned(place, other, now)
        if owners and not any(i["open"] for i in owners):
            place["kind"] = "streams" if now["kind"] in ("active", "process") else now["kind"]
            self._unowned(place, max(owners, key=lambda i: (i["to_offset"], i["from_offset"], i["member_id"])), None)

    def _cover(self, group_id: str, place: Any, begin: Row, end: Row | None, owners: list[Row]) -> None:
        """One span in which somebody should have had it. `owners`: in the order in which they began."""
        at, ms, former, until = begin["offset"], begin["log_ms"], None, EVER if end is None else end["offset"]
        named = dict(zip(("topic_id", "topic", "partition"), place, strict=True)) | {"group_id": group_id}

        def add_gap(then: Row) -> None:
            gap = {**named, "former_member_id": former, "from_offset": at, "from_ms": ms, "grade": "proven"}
            self.tables["share_coverage"].append({**gap, "open": then["to_offset"] is None, **then})

        for i in owners:
            if i["from_offset"] < until and (i["open"] or i["to_offset"] > at):
                if i["from_offset"] > at:
                    add_gap({"member_id": i["member_id"], "to_offset": i["from_offset"], "to_ms": i["from_ms"]})
                if i["open"] or i["to_offset"] >= until:
                    return
                at, ms, former = i["to_offset"], i["to_ms"], i["member_id"]
        add_gap({"member_id": None, "to_offset": end and end["offset"], "to_ms": end and end["log_ms"]})

    def _by_kind(self) -> None:
        """Tasks and what share groups have stand in tables of their own."""
        every, self.tables["intervals"] = self.tables["intervals"], []
        for i in every:
            kind = i["kind"]
            if kind == "share":
                gone, more = ("kind", "topic_key", "revoking_from_offset"), {"topic_id": i["topic_key"]}
                self.tables["share_holdings"].append(_without(i, gone) | more)
            elif kind in ("active", "standby", "warmup"):
                more = {"subtopology": i["topic_key"], "role": kind, "process_id": i["topic"]}
                self.tables["streams_tasks"].append(_without(i, ("kind", "topic_key", "topic")) | more)
            elif kind != "process":
                self.tables["intervals"].append(i)
        for r in self.tables.pop("streams_standby_replicas", []):
            if r["member_id"] != "none":
                told = _without(r, ("member_id",)) | {"num_standby_replicas": int(r["num_standby_replicas"])}
                self.tables["streams_standby_replicas"].append(told)
        for r in self.tables.pop("streams_ready", []):
            if r["member_id"] == "not ready":
                self.tables["streams_not_ready"].append(_without(r, ("member_id",)))

    def _unowned(self, place: Row, former: Row, then: Row | None) -> None:
        if former["kind"] == "process":
            return
        self.tables["unowned"].append(
            {
                **place,
                "former_member_id": former["member_id"],
                "from_offset": former["to_offset"],
                "from_ms": former["to_ms"],
                "member_id": then and then["member_id"],
                "to_offset": then and then["from_offset"],
                "to_ms": then and then["from_ms"],
                "grade": "proven",
                "open": then is None,
            }
        )


def _in(row: Row, *names: str) -> list[tuple[str, Row]]:
    return [(name, t) for name in names for t in row[name] or []]


def _without(row: Row, names: tuple[str, ...]) -> Row:
    return {n: v for n, v in row.items() if n not in names}


def replay(rows: list[Row]) -> dict[str, list[Row]]:
    """Returns gold's tables, computed from the rows of all state partitions."""
    folds: dict[int, Replay] = {}
    for row in sorted(rows, key=lambda r: (r["state_partition"], r["offset"])):
        p = row["state_partition"]
        folds.setdefault(p, Replay(p)).add(row)
    found: dict[str, list[Row]] = defaultdict(list)
    for one in folds.values():
        for table, made in one.finish().items():
            found[table] += made
    return found
