"""A group's last rebalances, from the records of the state topic as they come: members that joined or left,
assignments, when the group came to rest. Any sidecar has them; one that starts has those whose records the topic still
has.

A record costs only a look at its key: values are kept as bytes, and decoded when a view needs them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Generator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sidecar.core.runtime.inspect import Heading, Inspect
from sidecar.core.runtime.records import Role
from sidecar.state.codec import StateCodec
from sidecar.state.keys import StateKey
from sidecar.state.schema import StateError

NAMES_MAX = 20
"""Members that a step keeps by name; the others are counted."""
CHANGES_MAX = 20_000
"""Changes of assignments that are kept, of all groups together. Older steps do not show how many partitions moved."""
CHANGES_BYTES, VALUE_MAX = 32 << 20, 64 << 10
"""Bytes of the changes that are kept, and of one change. A step with a larger change does not show how many partitions
moved: clients choose the size of what they assign."""
NAME_MAX = 300
"""Characters of a member id that are kept."""
TOUCHED_MAX = 50_000
"""Groups with new records that are remembered; beyond that, any group counts as changed."""
STEPS_MAX = 100_000
"""Steps of all groups together; beyond that, the oldest are forgotten. With their values they take about 40 MB."""
STEPS = 4
"""Steps that one rebalance may have: the times that a classic group writes its state, as a rule at most."""
Json = dict[str, Any]
Slices = Generator[None, None, Any]


@dataclass(slots=True)
class MemberCount:
    """The number of some members, and the names of the first ones."""

    count: int = 0
    names: list[str] = field(default_factory=list)

    def add(self, name: str) -> None:
        self.count += 1
        if len(self.names) < NAMES_MAX:
            self.names.append(name[:NAME_MAX])


@dataclass(slots=True)
class Step:
    """The records of a group from one value of the group itself to the next one."""

    kind: str
    value: bytes
    joined: MemberCount | None
    left: MemberCount | None
    target: bytes | None = None
    last: bytes | None = None
    """The last value of a member's current assignment."""
    changes: list[tuple[bytes | None, bytes]] | None = None
    """Changes of members' target assignments: value before, value after."""
    forgotten: bool = False
    """Whether some changes were dropped, so that moved partitions cannot be counted."""
    moved: int | None = None


@dataclass(slots=True)
class _Group:
    steps: list[Step] = field(default_factory=list)
    """The last steps, the oldest first. A list, because an empty deque takes ten times the memory, and there may be one
    for each deleted group."""
    joined: MemberCount | None = None
    left: MemberCount | None = None
    dropped: int = 0
    """Steps of this group that were removed, but are still in `_order`."""


class RebalanceHistory:
    def __init__(self, kept: int, codec: StateCodec) -> None:
        self._kept = kept
        self._codec = codec
        self._roles = {name: row.record.role for name, row in codec.registry.records.items()}
        self._kinds = {(row.kind.name, row.record.role): name for name, row in codec.registry.records.items()}
        self.kinds: Collection[str] = frozenset(self._roles)
        self._groups: dict[str, _Group] = {}
        self._changed: deque[tuple[Step, int]] = deque()
        """The changes that are kept, the oldest first: step of each, and its size in bytes."""
        self._changes_bytes = 0
        self._order: deque[_Group] = deque()
        """The group of each step, the oldest step first."""
        self._ended: tuple[str, str] | None = None
        """Id and kind of the group of the last record, if that ended it. If the group's next value is of another kind,
        it has changed its protocol, and its rebalances stay."""
        self._touched: set[str] | None = None
        """Groups with records since the last `take_touched`; None: it may be any."""

    def note(self, key: StateKey, before: bytes | None, value: bytes | None) -> None:
        """Takes in a record: `value` replaces `before`."""
        if self._touched is not None:
            self._touched.add(key.group_id)
            if len(self._touched) > TOUCHED_MAX:
                self._touched = None
        if self._kept:
            self._note(key, before, value)

    def take_touched(self) -> set[str] | None:
        """Returns the groups with records since the last call; None: it may be any."""
        touched, self._touched = self._touched, set()
        return touched

    def _note(self, key: StateKey, before: bytes | None, value: bytes | None) -> None:
        kind, role = key.kind, self._roles[key.kind]
        if self._ended is not None and self._ended[0] != key.group_id:
            _forget_steps(self._groups.pop(self._ended[0]))
            self._ended = None
        if role is Role.GROUP:
            self._group(key.group_id, kind, value)
            return
        group = self._groups.get(key.group_id)
        if group is None:
            if value is None:
                return  # the rest of a group that is gone
            group = self._groups[key.group_id] = _Group()
        if role is Role.MEMBER:
            if value is None:
                group.left = group.left or MemberCount()
                group.left.add(key.sub_id)
            elif before is None:
                group.joined = group.joined or MemberCount()
                group.joined.add(key.sub_id)
        elif value is not None and group.steps and self._ended is None:
            step = group.steps[-1]
            if role is Role.TARGET:
                self._change(step, before, value)
            elif role is Role.TARGET_EPOCH:
                step.target = value
            elif role is Role.CURRENT and len(value) <= VALUE_MAX:
                step.last = value

    def _group(self, group_id: str, kind: str, value: bytes | None) -> None:
        group = self._groups.get(group_id)
        if value is None:
            if group is not None:
                self._ended = (group_id, kind)
            return
        if group is None:
            group = self._groups[group_id] = _Group()
        if self._ended is not None:
            if self._ended[1] == kind:
                _forget_steps(group)
            else:
                group.joined, group.left = _changed(group.joined, group.left)
            self._ended = None
        if len(group.steps) == self._kept * STEPS:
            del group.steps[0]
            group.dropped += 1
        group.steps.append(Step(kind, value, group.joined, group.left))
        group.joined = group.left = None
        self._order.append(group)
        if len(self._order) > STEPS_MAX:
            oldest = self._order.popleft()
            if oldest.dropped:
                oldest.dropped -= 1
            else:
                del oldest.steps[0]

    def _change(self, step: Step, before: bytes | None, value: bytes) -> None:
        if step.forgotten:
            return
        size = len(before or b"") + len(value)
        if size > VALUE_MAX:
            step.changes, step.forgotten = None, True
            return
        if step.changes is None:
            step.changes = []
        step.changes.append((before, value))
        self._changed.append((step, size))
        self._changes_bytes += size
        while len(self._changed) > CHANGES_MAX or self._changes_bytes > CHANGES_BYTES:
            oldest, size = self._changed.popleft()
            self._changes_bytes -= size
            if oldest.changes:  # changes that have been counted are not needed
                oldest.changes, oldest.forgotten = None, True

    # ---- for people ---------------------------------------------------------------------------------------
    def of(self, group_id: str) -> Slices:
        """Returns the last rebalances, the newest first, in small steps."""
        group = self._groups.get(group_id)
        rebalances: list[Json] = []
        kind, before = "", None
        for step in () if group is None else tuple(group.steps):
            yield
            body = self._read(step, Role.GROUP, step.value)
            if body is None:
                continue
            inspect = self._inspect(step)
            heading = inspect.heading(body)
            if not rebalances or step.kind != kind or inspect.begins(before, heading):
                rebalances.append(_rebalance_json(step, body))
            else:
                for name, these in (("joined", step.joined), ("left", step.left)):
                    rebalances[-1][name] = _joined(rebalances[-1][name], these)
            kind, before, now = step.kind, heading, rebalances[-1]
            now["epoch"] = heading.epoch
            if heading.state:
                _by_state(now, heading, inspect, _ms(body["time_ms"]))
            else:
                self._by_members(rebalances, step)
            if step.changes:
                yield from self._count(step, inspect)
            if step.forgotten:
                now["moved"] = None
            elif step.moved is not None and now["moved"] is not None:
                now["moved"] += step.moved
        yield
        return rebalances[: -self._kept - 1 : -1]

    def _inspect(self, step: Step) -> Inspect:
        return self._codec.registry.records[step.kind].kind.inspect

    def _by_members(self, rebalances: list[Json], step: Step) -> None:
        """Fills in when a rebalance was assigned and when its members came to rest, if group records have no state."""
        target, last = self._read(step, Role.TARGET_EPOCH, step.target), self._read(step, Role.CURRENT, step.last)
        if target is not None:
            for rebalance in rebalances:  # the assignor may have run while the group went on
                if rebalance["epoch"] == target["assignment_epoch"]:
                    rebalance["assigned_ms"] = rebalance["assigned_ms"] or _ms(target["time_ms"])
        if last is not None:
            rebalances[-1]["settled_ms"] = _ms(last["time_ms"])

    def _count(self, step: Step, inspect: Inspect) -> Slices:
        """Counts the partitions or tasks of members' targets that their previous targets did not have."""
        moved, changes = 0, step.changes or []
        counted = len(changes)
        for change in changes[:counted]:
            yield
            bodies = (self._read(step, Role.TARGET, value) for value in change)
            had, has = (set() if body is None else inspect.places(body) for body in bodies)
            moved += len(has - had)
        step.moved = (step.moved or 0) + moved
        del changes[:counted]

    def _read(self, step: Step, role: Role, value: bytes | None) -> Json | None:
        kind = self._codec.registry.records[step.kind].kind.name
        try:
            return None if value is None else self._codec.schemas.decode(value, self._kinds[kind, role])
        except StateError:
            return None


def _forget_steps(group: _Group) -> None:
    """Removes the steps of a group that is gone; members that have joined since are another group's of that name."""
    group.dropped += len(group.steps)
    group.steps.clear()
    group.left = None


def _changed(joined: MemberCount | None, left: MemberCount | None) -> tuple[MemberCount | None, MemberCount | None]:
    """Returns the members that joined or left while a group changed its protocol: those that stay have new records."""
    joined, left = joined or MemberCount(), left or MemberCount()
    stay = {*joined.names} & {*left.names}
    more = joined.count - left.count
    return _others(joined, stay, max(more, 0)), _others(left, stay, max(-more, 0))


def _others(members: MemberCount, stay: set[str], count: int) -> MemberCount | None:
    names = [name for name in members.names if name not in stay]
    return MemberCount(count, names[:count]) if count else None


def _rebalance_json(step: Step, body: Json) -> Json:
    crowds = {"joined": _joined(None, step.joined), "left": _joined(None, step.left)}
    return {"at_ms": _ms(body["time_ms"]), "why": body["why"], **crowds, "moved": 0} | UNSETTLED


UNSETTLED: Json = {"assigned_ms": None, "settled_ms": None}


def _by_state(rebalance: Json, heading: Heading, inspect: Inspect, at_ms: int) -> None:
    rebalance["state"] = heading.state
    if heading.state in inspect.at_rest:
        rebalance["settled_ms"] = at_ms
        rebalance["assigned_ms"] = None if heading.state == EMPTY else at_ms


EMPTY = "Empty"


def _joined(known: Json | None, these: MemberCount | None) -> Json:
    names = [] if known is None else known["names"]
    count = 0 if known is None else known["count"]
    if these is None:
        return {"count": count, "names": names}
    return {"count": count + these.count, "names": (names + these.names)[:NAMES_MAX]}


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)
