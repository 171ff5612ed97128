"""Folds a partition of the state topic, in offset order, into ownership intervals and overlaps: for questions about one
group. Pure. The tables of a lake come from gold/, on Spark.

A member owns what its current assignment holds, assigned or pending revocation, until a later record of that member
lacks it or removes the member. If two members own a partition at the same offset, that is an overlap; there must be
none.

A member of a classic group owns what the leader assigned to it, until the leader assigns anew or the member is removed.
All assignments of a generation count from the same moment.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from sidecar.core.classic.embedded import CONSUMER_TYPE, assigned
from sidecar.state.fold import UNFENCED, Claims

Place = tuple[str, str, int]
"""Group id, topic id in hex (or the name, of a classic group), partition."""


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
    stale: list[Stale] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)


Held = dict[Place, str]
"""What a member owns, with the names of the topics."""


@dataclass(slots=True)
class _Classic:
    """What the log has said of a classic group so far."""

    type: str | None = None
    assigned_generation: int = -1
    members: set[str] = field(default_factory=set)
    """Who was ever assigned something."""
    staged: dict[str, tuple[Any, Held, int]] = field(default_factory=dict)
    """Member id -> its next assignment, which counts from the group's next record on."""


class Fold:
    """Feed rows of one state partition in offset order to `add`; `result` is complete at any time."""

    def __init__(self, state_partition: int) -> None:
        self.p = state_partition
        self.result = Folded()
        self._open: dict[Place, dict[str, Interval]] = {}
        self._held: dict[tuple[str, str], Held] = {}
        self._classic: dict[str, _Classic] = {}
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
            self._owners.claim(epoch)
        elif kind == "member":
            if tomb:
                self._hold(row, member, {}, -1)
                self._clients.pop(member, None)
            else:
                self._clients[member] = body["client_id"]
        elif kind == "current":
            held: Held = {}
            for item in [] if tomb else [*body["assigned"], *body["pending"]]:
                for partition in item["partitions"]:
                    held[(row["group_id"], item["topic_id"], partition)] = item["topic_name"]
            self._hold(row, member, held, -1 if tomb else body["member_epoch"])
        elif kind == "classic_group":
            self._classic_group(row, body)
        elif kind == "classic_member":
            self._classic_member(row, body)
        elif kind == "classic_assignment":
            self._classic_assignment(row, body)

    # ---- classic groups -------------------------------------------------------------------------------------
    def _classic_group(self, row: Any, body: dict[str, Any]) -> None:
        group_id = row["group_id"]
        if row["tombstone"]:
            gone = self._classic.pop(group_id, _Classic())
            for member_id in sorted(gone.members):
                self._hold(row, (group_id, member_id), {}, -1)
            return
        group = self._classic.setdefault(group_id, _Classic())
        group.type, group.assigned_generation = body["protocol_type"], body["assigned_generation"]
        staged, group.staged = group.staged, {}
        for member_id, (why, held, _) in staged.items():
            self._release(why, (group_id, member_id), held)
        for member_id, (why, held, generation) in staged.items():
            self._hold(why, (group_id, member_id), held if group.type == CONSUMER_TYPE else {}, generation)

    def _classic_member(self, row: Any, body: dict[str, Any]) -> None:
        member = (row["group_id"], row["sub_id"])
        group = self._classic.setdefault(member[0], _Classic())
        if row["tombstone"]:
            group.staged.pop(member[1], None)
            self._hold(row, member, {}, -1)
            self._clients.pop(member, None)
            return
        self._clients[member] = body["client_id"]

    def _classic_assignment(self, row: Any, body: dict[str, Any]) -> None:
        """A new one of a generation that has its assignments already is a static member's that came back."""
        group_id, member_id = row["group_id"], row["sub_id"]
        group = self._classic.setdefault(group_id, _Classic())
        if row["tombstone"]:
            group.staged.pop(member_id, None)
            self._hold(row, (group_id, member_id), {}, -1)
            return
        group.members.add(member_id)
        given = assigned(bytes.fromhex(body["assignment"])) or {}
        held: Held = {(group_id, topic, p): topic for topic, partitions in given.items() for p in partitions}
        if body["generation"] > group.assigned_generation:
            group.staged[member_id] = (row, held, body["generation"])
        else:
            self._hold(row, (group_id, member_id), held if group.type == CONSUMER_TYPE else {}, body["generation"])

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

    def _release(self, row: Any, member: tuple[str, str], held: Held) -> None:
        """The member has no more than this."""
        before = self._held.get(member, {})
        for place in sorted(before.keys() - held.keys()):
            ended = self._open[place].pop(member[1])
            ended.to_offset, ended.to_ms, ended.to_why = row["offset"], row["time_ms"], row["why"]
            del before[place]

    def _hold(self, row: Any, member: tuple[str, str], held: Held, epoch: int) -> None:
        self._release(row, member, held)
        before = self._held.get(member, {})
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
