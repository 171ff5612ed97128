"""Folds a partition of the state topic, in offset order, into ownership intervals, overlaps, owners and epochs. Pure.

A member owns what its current assignment holds, assigned or pending revocation, until a later record of that member
lacks it or removes the member. If two members own a partition at the same offset, that is an overlap; there must be
none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from sidecar.state.fold import UNFENCED, Claims

Place = tuple[str, str, int]
"""Group id, topic id in hex, partition."""


@dataclass(slots=True)
class Interval:
    """A member owned a partition from one record to another; `to_*` is None while it still does."""

    group_id: str
    topic: str
    partition: int
    member_id: str
    client_id: str
    member_epoch: int
    state_partition: int
    from_offset: int
    from_ms: int
    from_why: str
    to_offset: int | None = None
    to_ms: int | None = None
    to_why: str | None = None


@dataclass(slots=True)
class Overlap:
    """Two members owned a partition at the same offset. There must be none."""

    group_id: str
    topic: str
    partition: int
    first: str
    second: str
    state_partition: int
    offset: int
    time_ms: int


@dataclass(slots=True)
class Claim:
    """A sidecar owned a state partition from this record until the next claim."""

    state_partition: int
    owner_epoch: int
    node_id: int
    address: str
    offset: int
    from_ms: int
    why: str
    to_ms: int | None = None


@dataclass(slots=True)
class Epoch:
    """A group's epoch rose, and why."""

    group_id: str
    epoch: int
    state_partition: int
    offset: int
    time_ms: int
    why: str


@dataclass(slots=True)
class Setting:
    """A setting of a group, or of the brokers, was changed. `value` is None if it was removed."""

    group_id: str
    name: str
    value: str | None
    state_partition: int
    offset: int
    time_ms: int
    why: str


@dataclass(slots=True)
class Stale:
    """A record has a lower owner epoch than a claim before it, so fencing failed. There must be none."""

    state_partition: int
    offset: int
    owner_epoch: int
    claimed_epoch: int


@dataclass(slots=True)
class Gap:
    """Compaction removed values of a key before the audit could read them; `missing` says how many."""

    state_partition: int
    kind: str
    group_id: str
    sub_id: str
    offset: int
    missing: int


@dataclass(slots=True)
class Folded:
    intervals: list[Interval] = field(default_factory=list)
    overlaps: list[Overlap] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    epochs: list[Epoch] = field(default_factory=list)
    stale: list[Stale] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    settings: list[Setting] = field(default_factory=list)

    def rows(self) -> Iterator[tuple[str, str]]:
        """Yield (table, row as JSON)."""
        for table in ("intervals", "overlaps", "claims", "epochs", "stale", "gaps", "settings"):
            for row in getattr(self, table):
                yield table, json.dumps(asdict(row))


class Fold:
    """Feed rows of one state partition in offset order to `add`; `result` is complete at any time."""

    def __init__(self, state_partition: int) -> None:
        self.p = state_partition
        self.result = Folded()
        self._open: dict[Place, dict[str, Interval]] = {}
        self._held: dict[tuple[str, str], dict[Place, str]] = {}
        self._clients: dict[tuple[str, str], str] = {}
        self._revisions: dict[tuple[str, str, str], int] = {}
        self._owners = Claims()

    def add(self, row: Any) -> None:
        kind, tomb = row["kind"], row["tombstone"]
        epoch = row["owner_epoch"]
        if epoch is not None and kind not in UNFENCED and not self._owners.admits(epoch):
            self.result.stale.append(Stale(self.p, row["offset"], epoch, self._owners.claimed))
            return  # void, as it also is for a coordinator that replays the topic
        self._count(row)
        body = json.loads(row["body"]) if row["body"] and kind != "schema" else {}
        member = (row["group_id"], row["sub_id"])
        if kind == "owner_claim" and not tomb:
            self._claim(row, body)
        elif kind == "member":
            if tomb:
                self._hold(row, member, {}, -1)
                self._clients.pop(member, None)
            else:
                self._clients[member] = body["client_id"]
        elif kind == "current":
            held: dict[Place, str] = {}
            for item in [] if tomb else [*body["assigned"], *body["pending"]]:
                for partition in item["partitions"]:
                    held[(row["group_id"], item["topic_id"], partition)] = item["topic_name"]
            self._hold(row, member, held, -1 if tomb else body["member_epoch"])
        elif kind == "config":
            value = None if tomb else body["value"]
            self.result.settings.append(
                Setting(row["group_id"], row["sub_id"], value, self.p, row["offset"], row["time_ms"], row["why"])
            )
        elif kind == "group" and not tomb:
            self.result.epochs.append(
                Epoch(row["group_id"], body["epoch"], self.p, row["offset"], row["time_ms"], row["why"])
            )

    def _count(self, row: Any) -> None:
        key = (row["kind"], row["group_id"], row["sub_id"])
        if row["tombstone"]:
            self._revisions.pop(key, None)
        elif row["revision"] is not None:
            before = self._revisions.get(key, 0)
            if row["revision"] > before + 1:
                missing = row["revision"] - before - 1
                self.result.gaps.append(Gap(self.p, *key, row["offset"], missing))
            self._revisions[key] = row["revision"]

    def _claim(self, row: Any, body: dict[str, Any]) -> None:
        if self.result.claims:
            self.result.claims[-1].to_ms = row["time_ms"]
        epoch = row["owner_epoch"]
        self._owners.claim(epoch)
        self.result.claims.append(
            Claim(self.p, epoch, body["node_id"], body["address"], row["offset"], row["time_ms"], row["why"])
        )

    def _hold(self, row: Any, member: tuple[str, str], held: dict[Place, str], epoch: int) -> None:
        before = self._held.get(member, {})
        for place in sorted(before.keys() - held.keys()):
            ended = self._open[place].pop(member[1])
            ended.to_offset, ended.to_ms, ended.to_why = row["offset"], row["time_ms"], row["why"]
        for place in sorted(held.keys() - before.keys()):
            topic = held[place] or before.get(place, "") or place[1]
            owners = self._open.setdefault(place, {})
            for other in owners:
                self.result.overlaps.append(
                    Overlap(member[0], topic, place[2], other, member[1], self.p, row["offset"], row["time_ms"])
                )
            interval = Interval(
                member[0],
                topic,
                place[2],
                member[1],
                self._clients.get(member, ""),
                epoch,
                self.p,
                row["offset"],
                row["time_ms"],
                row["why"],
            )
            owners[member[1]] = interval
            self.result.intervals.append(interval)
        if held:
            self._held[member] = held
        else:
            self._held.pop(member, None)


def fold_partition(rows: Iterable[Any]) -> Iterator[tuple[str, str]]:
    """Fold the rows of whole state partitions, each in offset order, and yield (table, row as JSON)."""
    folds: dict[int, Fold] = {}
    for row in rows:
        p = row["partition"]
        fold = folds.get(p)
        if fold is None:
            fold = folds[p] = Fold(p)
        fold.add(row)
    for fold in folds.values():
        yield from fold.result.rows()
