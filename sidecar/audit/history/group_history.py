"""One group's history in words, from its records. Pure.

Ownership comes from the audit's fold; all other events come from single records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sidecar.audit.history.fold import Fold, Interval
from sidecar.audit.history.topic import Row
from sidecar.core.kinds import REGISTRY
from sidecar.core.runtime.records import Role
from sidecar.state.codec import CONFIG, OWNER_CLAIM


@dataclass(frozen=True, slots=True)
class Event:
    """An event. `ms`: Unix time of its record; `who`: a member, an instance or a sidecar, empty for the whole group."""

    ms: int
    offset: int
    what: str
    who: str = ""
    detail: str = ""
    why: str = ""


@dataclass
class History:
    """A group's history. `missing`: values of its keys that compaction removed; `complete_ms`: the time from which none
    is missing, None: from the beginning."""

    group_id: str
    events: list[Event] = field(default_factory=list)
    missing: int = 0
    complete_ms: int | None = None
    unreadable: int = 0
    intervals: list[Interval] = field(default_factory=list)


def history(group_id: str, rows: Iterable[Row]) -> History:
    """Returns a group's history. `rows`: of its partition, in the order of the log; other groups' rows are skipped."""
    result, fold = History(group_id), Fold()
    maker = _EventMaker(group_id, result.events)
    for row in rows:
        if row["group_id"] not in ("", group_id):
            continue
        if "problem" in row:
            result.unreadable += 1
            fold.unreadable(row)
            maker.add(row, "a record that cannot be read", "", row["problem"])
        elif fold.add(row):
            maker.record(row)
        else:
            epoch = f"owner epoch {row['owner_epoch']}"
            maker.add(row, "a write of a fenced owner, which counts for nothing", "", epoch)
    result.missing, result.complete_ms = fold.missing, fold.complete_ms
    for interval in fold.intervals:
        interval.client_id = fold.clients.get(interval.member_id, "")  # the latest one, as in the lake
    result.intervals = [i for i in fold.intervals if i.listed]
    result.events += _moves(result.intervals)
    for o in fold.overlaps:
        what, more = ("TWO OWNERS", "") if o.proven else ("perhaps two owners", ", or records are missing")
        detail = f"{o.second.place}, also {o.first}'s{more}"
        result.events.append(Event(o.time_ms, o.offset, what, o.second.member_id, detail))
    result.events.sort(key=lambda e: e.offset)
    return result


def _moves(intervals: Sequence[Interval]) -> list[Event]:
    """Returns an event for all that a member got with one record, and one for all that it gave up."""
    moved: dict[tuple[int, int, str, str, str], list[Interval]] = {}
    for i in intervals:
        moved.setdefault((i.from_ms, i.from_offset, "owns", i.member_id, i.from_why), []).append(i)
        if i.to_offset is not None:
            end = (i.to_ms or 0, i.to_offset, "owns no more", i.member_id, i.to_why or "")
            moved.setdefault(end, []).append(i)
    events = []
    for (ms, offset, what, member_id, why), of_member in moved.items():
        places = " ".join(i.place for i in sorted(of_member, key=lambda i: (i.topic, i.partition)))
        events.append(Event(ms, offset, what, member_id, places, why))
    return events


class _EventMaker:
    """Makes events of records with the `history` functions of their kind. `_last`: the last value of each key."""

    def __init__(self, group_id: str, events: list[Event]) -> None:
        self._group_id = group_id
        self._events = events
        self._last: dict[tuple[str, str], Mapping[str, Any]] = {}
        self._targets = 0

    def add(self, row: Row, what: str, who: str = "", detail: str = "") -> None:
        self._events.append(Event(row["time_ms"], row["offset"], what, who, detail, row["why"]))

    def record(self, row: Row) -> None:
        key = (row["kind"], row["sub_id"])
        body, last = row["body"], self._last.pop(key, None)
        if row["kind"] == OWNER_CLAIM and body is not None:
            self.add(row, "coordinator", f"sidecar {body['node_id']}", f"{body['address']}, took over")
        elif row["kind"] == CONFIG and row["group_id"] == self._group_id:
            self.add(row, "setting", row["sub_id"], "removed" if body is None else f"= {body['value']}")
        elif row["kind"] in REGISTRY.records:
            self._of_kind(row, body, last)
        if body is not None:
            self._last[key] = body

    def _of_kind(self, row: Row, body: Any, last: Any) -> None:
        of = REGISTRY.records[row["kind"]]
        changed, role = "", of.record.role
        if role is Role.TARGET:
            self._targets += body is not None
        elif role is Role.TARGET_EPOCH:
            changed, self._targets = f", changes {self._targets} members", 0
        elif role is Role.GROUP and body is None:
            self._targets = 0  # a classic group has assignments, and no record of their epoch
        notes = of.kind.inspect.history.get(row["kind"])
        for note in () if notes is None else notes(row["sub_id"], body, last):
            self.add(row, note.what, note.who, note.detail + changed)
