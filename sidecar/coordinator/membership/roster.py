"""The roster: the members of the owners' group that are sidecars.

Any client that may READ a group at a broker can join it with any metadata. So a sidecar writes its SidecarInfo into the
state topic, under the member id that the broker gave it, before it joins. Only a client that may write that topic can
do that, and such a client decides everything anyway. A member counts as a sidecar if it has such a record. The record
counts, and not the member's metadata in the group, because a stranger can send metadata in another member's name.

The record is a setting of brokers that no broker has (`1/MEMBER/sidecar.member` for node 1), which needs no fence and
which every version passes over. It goes into any partition that takes it. Writing it removes the records of the node's
former members. A sidecar that leaves in order adds the time to its record.

A sidecar of a version before this one writes no such record. Its metadata alone count while its node has no record and
owns a partition, or has claimed one within a day, as each owner does every hour (`state.fence_interval_ms`). So a fleet
can be upgraded one by one. Once a node has a record, its metadata alone do not count any more, until that record says
that the sidecar has left: then an older version may take its place within a quarter of an hour, and stays by its
claims. So a fleet can be rolled back one by one. Metadata alone never count for a node whose sidecar was killed
(docs/operate/security.md)."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from sidecar.coordinator.clock import wall_ms
from sidecar.coordinator.membership.owners_protocol import Assignment, OwnPatterns, SidecarInfo
from sidecar.coordinator.statelog.tail import StateLog
from sidecar.coordinator.statelog.write_errors import WriteLost
from sidecar.core.vocabulary.cache import BoundedCache
from sidecar.kafka.net import ConnectionLost
from sidecar.link.ports import Logger
from sidecar.state.codec import Encoded
from sidecar.state.keys import ROSTER
from sidecar.state.schema import StateError

READ_S = 1.0
"""Seconds that the leader waits for the record of a member without one: it may be on its way to this sidecar's tail."""
CLAIMED_LATELY_MS = 86_400_000
LEFT_LATELY_MS = 900_000
"""Time after a sidecar has left in order in which one of an older version may take its place."""
NEVER_LEFT = 1 << 62
"""The leaving time of a sidecar that has not left."""
ENROL_S, ENROL_TRIES = 1.0, 3
"""Seconds that a partition may take to append the record; partitions that are tried before the group is asked anew."""
REPORT_S = 60.0
"""Seconds between two log lines about the same trouble."""
Append = Callable[[int, list[Encoded]], Awaitable[None]]
"""Appends records to a partition without a fence, and returns when the tail has read them. Raises WriteLost."""
REMEDY = (
    "a client uses the sidecars' own group: see that nobody else may Read it (sidecar doctor); a sidecar of a version "
    "before this one must be running when the others are upgraded"
)

NOT_READ = "none: it counts when the leader of the group has read its record; if it stays so, see its /readyz"


class Members(Protocol):
    """The roster as owners_group.py uses it."""

    async def enrol(self, member_id: str, info: SidecarInfo, present: Callable[[], Awaitable[set[str]]]) -> None:
        """Writes this sidecar's record and returns when it is written. `present()`: the ids of the group's members,
        asked only if the node has other records. Raises ConnectionLost, and the errors of `present`."""

    async def sidecars(self, members: Mapping[str, bytes]) -> dict[str, SidecarInfo]:
        """Returns the members that are sidecars: the state topic has a record of each. `members`: id -> metadata."""

    async def left(self, member_id: str, info: SidecarInfo) -> None:
        """Records that this member has left. Returns when that is written, or when it cannot be written soon."""

    async def update(self, member_id: str, info: SidecarInfo, why: str) -> None:
        """Rewrites the record of this member. Returns when that is written, or when it cannot be written soon."""

    def info_of(self, member_id: str) -> SidecarInfo | None:
        """Returns this member's record in the state topic; None if it has none."""

    def enrolled(self, member_id: str) -> bool: ...

    def report_leader(self, member_id: str) -> None:
        """Logs that this member, which is no sidecar, led the group."""

    async def surely_none(self, member_id: str, metadata: bytes) -> bool:
        """Returns whether this member is surely no sidecar: the tail has read all records, and none makes it one."""

    def due(self, what: str) -> bool:
        """Returns whether trouble of this name may be logged again; True at most once in REPORT_S."""


class Roster:
    """The roster of the state topic. `all_read()`: whether the tail has read all that was written before the call."""

    def __init__(self, state: StateLog, append: Append, all_read: Callable[[], Awaitable[bool]], log: Logger) -> None:
        self.came_late: Callable[[], None] = lambda: None
        """Called when the record of a member has come that counted as a stranger without it."""
        self._state = state
        self._append = append
        self._all_read = all_read
        self._log = log
        self._news = asyncio.Event()
        self._strangers: set[str] = set()
        """Members whose records have not come within READ_S."""
        self._failed_appends = 0
        """Failed appends so far: by this number the search for a partition that takes a record begins later."""
        self._reported_s: dict[str, float] = {}
        self._claimed = BoundedCache(make=state.codec.claimed_when)
        self._seen = BoundedCache[str, bool]()
        """Member ids whose records this sidecar has read."""

    def record_read(self) -> None:
        """Called by the tail when it has read a member's record."""
        self._news.set()
        if self._strangers & self._records().keys():
            self._strangers -= self._records().keys()
            self.came_late()

    async def enrol(self, member_id: str, info: SidecarInfo, present: Callable[[], Awaitable[set[str]]]) -> None:
        former = {m for m, s in self._records().items() if s.node_id == info.node_id}
        gone = former - await present() - {member_id} if former - {member_id} else set()
        problem = ""
        for _ in range(ENROL_TRIES):
            p = (info.node_id + self._failed_appends) % len(self._state.partitions)
            try:
                await self._append(p, [self._record(p, _name(info.node_id, member_id), info)])
                await self._remove({_name(info.node_id, m) for m in gone})
                return
            except WriteLost as exc:
                problem, self._failed_appends = str(exc), self._failed_appends + 1
        if self.due("enrol"):
            self._log.warning(
                "the others cannot be told who this sidecar is; it owns nothing until then", problem=problem
            )
        raise ConnectionLost(f"this sidecar could not tell the others who it is: {problem}")

    async def _remove(self, names: set[str]) -> None:
        """Removes the records of these names. Raises WriteLost."""
        for p, part in enumerate(self._state.partitions):
            if known := sorted(names & part.configs.get("", {}).keys()):
                await self._append(p, [self._record(p, name, None) for name in known])

    async def left(self, member_id: str, info: SidecarInfo) -> None:
        await self.update(member_id, replace(info, left_ms=wall_ms()), "left")

    async def update(self, member_id: str, info: SidecarInfo, why: str) -> None:
        name = _name(info.node_id, member_id)
        for p, part in enumerate(self._state.partitions):
            if name in part.configs.get("", {}):
                try:
                    await self._append(p, [self._record(p, name, info, why)])
                except WriteLost as exc:
                    self._log.warning("the others cannot be told of this sidecar", what=why, problem=str(exc))

    def gave_up(self, member_id: str, generation: int) -> bool:
        """Returns whether this member has recorded that it answers for no partition that the owner map of that
        generation gives to others."""
        records = self._records()
        info = records.get(member_id)
        return (info is not None and info.gave_up >= generation) or any(member_id in s.former for s in records.values())

    def _record(self, partition: int, name: str, info: SidecarInfo | None, why: str = "joined") -> Encoded:
        """Returns the next record of this name; `info` None: the record that removes it."""
        codec, last = self._state.codec, self._state.partitions[partition].configs.get("", {}).get(name)
        value = None if info is None else json.dumps(info.as_dict(), separators=(",", ":"))
        return codec.config("", name, value, wall_ms(), codec.next_revision(last), why)

    def info_of(self, member_id: str) -> SidecarInfo | None:
        return self._records().get(member_id)

    def enrolled(self, member_id: str) -> bool:
        info = self._records().get(member_id)
        return info is not None and not info.left_ms

    def report_leader(self, member_id: str) -> None:
        if member_id in self._seen or any(member_id in info.former for info in self._records().values()):
            self._log.info("a former member led the owners' group; it is removed", leader=member_id)
        elif self.due("leader"):
            self._log.error("a stranger led the owners' group; it is removed", leader=member_id, remedy=REMEDY)

    async def sidecars(self, members: Mapping[str, bytes]) -> dict[str, SidecarInfo]:
        self._strangers &= members.keys()
        counted = self._counted(members)
        if members.keys() - counted.keys() - self._strangers:
            counted = await self._waited_for(members)
            self._strangers |= members.keys() - counted.keys()
        if self._strangers and self.due("stranger"):
            await self._report(min(self._strangers))
            counted = self._counted(members)
        return counted

    async def _report(self, member_id: str) -> None:
        """Logs an unknown member: as a stranger only if the tail has read all, since its record may be unread."""
        try:
            async with asyncio.timeout(READ_S):
                known = await self._all_read()
        except TimeoutError:
            known = False
        if not known:
            self._log.warning("a member of the owners' group is not known yet", member_id=member_id, remedy=NOT_READ)
        elif member_id in self._strangers:
            self._log.error("a member of the owners' group is no sidecar", member_id=member_id, remedy=REMEDY)

    def due(self, what: str) -> bool:
        due = time.monotonic() >= self._reported_s.get(what, 0.0)
        if due:
            self._reported_s[what] = time.monotonic() + REPORT_S
        return due

    async def surely_none(self, member_id: str, metadata: bytes) -> bool:
        members = {member_id: metadata}
        if await self._waited_for(members) or not await self._all_read():
            return False
        return not self._counted(members)

    async def _waited_for(self, members: Mapping[str, bytes]) -> dict[str, SidecarInfo]:
        try:
            async with asyncio.timeout(READ_S):
                while members.keys() - (counted := self._counted(members)).keys() - self._strangers:
                    self._news.clear()
                    await self._news.wait()
                return counted
        except TimeoutError:
            return self._counted(members)

    def _counted(self, members: Mapping[str, bytes]) -> dict[str, SidecarInfo]:
        """Returns the members that count as sidecars, by the records read so far."""
        records = self._records()
        counted = {m: info for m in members if (info := records.get(m)) is not None and not info.left_ms}
        older = self._nodes_of_older_versions(records.values()) if members.keys() - counted.keys() else set()
        for member_id in members.keys() - counted.keys() if older else ():
            try:
                info = SidecarInfo.decode(members[member_id])
            except ValueError:
                continue
            if info.node_id in older:
                counted[member_id] = info
        return counted

    def _nodes_of_older_versions(self, records: Collection[SidecarInfo]) -> set[int]:
        """Returns the nodes whose sidecars count by their metadata alone, since they may be of an older version."""
        left: dict[int, int] = {}
        for info in records:
            left[info.node_id] = max(left.get(info.node_id, 0), info.left_ms or NEVER_LEFT)
        now_ms = wall_ms()
        nodes = {node for node, left_ms in left.items() if now_ms - LEFT_LATELY_MS < left_ms < NEVER_LEFT}
        return nodes | {node for node, when_ms in self._claims(now_ms) if when_ms > left.get(node, 0)}

    def _claims(self, now_ms: int) -> Iterator[tuple[int, int]]:
        """Yields node and time of each partition's last claim, and of earlier claims not older than a day."""
        for part in self._state.partitions:
            for i, value in enumerate(reversed(part.claims.values())):
                try:
                    node, when_ms = self._claimed[value]
                except StateError:
                    continue
                if i > 0 and when_ms < now_ms - CLAIMED_LATELY_MS:  # the last claim is the present owner's, of any age
                    break
                yield node, when_ms

    def _records(self) -> dict[str, SidecarInfo]:
        """Returns the records that can be read: member id -> its info."""
        records: dict[str, SidecarInfo] = {}
        for part in self._state.partitions:
            for name, raw in part.configs.get("", {}).items():
                if name.endswith(ROSTER):
                    try:
                        info = SidecarInfo.decode(self._state.codec.config_value(raw)[0].encode())
                        records[member_id := name.removeprefix(f"{info.node_id}/").removesuffix(ROSTER)] = info
                        self._seen[member_id] = True
                    except (StateError, ValueError) as exc:
                        self._log.error("a sidecar's record cannot be read", name=name, error=repr(exc))
        return records


def _name(node_id: int, member_id: str) -> str:
    return f"{node_id}/{member_id}{ROSTER}"


def assignment_of(
    sidecars: Mapping[str, SidecarInfo], owners: Callable[[set[int]], Sequence[int]], log: Logger
) -> bytes:
    """Returns the encoded owner map for these sidecars. `owners(nodes)`: the owner of each partition, among `nodes`."""
    alive: dict[int, tuple[str, str, int]] = {}
    started: dict[int, int] = {}
    for member_id, info in sorted(sidecars.items()):
        node = info.node_id
        if node in alive:
            log.warning("two sidecars with one node id; the one that was started last counts", node_id=node)
            if info.started_ms < started[node]:
                continue
        alive[node], started[node] = (member_id, info.host, info.port), info.started_ms
    by_node = {node: sidecars[member_id] for node, (member_id, _, _) in alive.items()}
    patterns: dict[int, OwnPatterns] = {node: info.patterns for node, info in by_node.items() if info.patterns}
    ports = {node: info.peer_port for node, info in by_node.items()}
    kinds = {node: info.kinds for node, info in by_node.items()}
    return Assignment(0, tuple(owners(set(alive))), alive, patterns, ports, kinds).encode()
