"""Share groups at one broker, as far as a placeholder member needs them: members, epochs, and the share state of the
topics that they subscribe to, which the broker initialises in its own time.

The cluster has one share coordinator, and what it keeps is `SimCluster.share_state`: that survives everything.
That a group has initialised a partition is a record of the group, behind that. Source: GroupMetadataManager and
GroupCoordinatorService, the methods whose names have `share`; assignments are by turns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tests.whole.broker.codes import Err, Refused

if TYPE_CHECKING:
    from tests.whole.broker.offsets import GroupShard

LEAVES = -1
INITIALISING_MS = (5.0, 400.0)
AWAY_AGAIN_MS = 1_000.0
"""Milliseconds after which a share coordinator that was away is asked again."""


@dataclass(frozen=True, slots=True)
class ShareMember:
    """`assigned`: partitions by topic id, as of its epoch: it has another assignment from its next heartbeat on."""

    topics: tuple[str, ...]
    epoch: int
    previous: int = -1
    assigned: dict[bytes, list[int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredShare:
    """The whole group, as one record. `initialised`: partitions by topic id."""

    epoch: int = 0
    members: dict[str, ShareMember] = field(default_factory=dict)
    initialised: dict[bytes, frozenset[int]] = field(default_factory=dict)


class ShareGroups:
    """The share groups of one shard."""

    def __init__(self, shard: GroupShard) -> None:
        self._shard = shard
        self._node = shard.node
        self.groups: dict[str, StoredShare] = {}
        self._initialising: dict[str, set[tuple[bytes, int]]] = {}

    def begin(self) -> None:
        for group_id, group in self.groups.items():
            for member_id in group.members:
                self._lives(group_id, member_id)
            self._initialise(group_id)

    def _write(self, group_id: str, group: StoredShare) -> None:
        self.groups[group_id] = group
        self._shard.write([(("share", group_id), group)], lambda code: None)

    # ---- members ------------------------------------------------------------------------------------------------
    def heartbeat(self, group_id: str, member_id: str, epoch: int, topics: list[str] | None) -> tuple[int, bool]:
        """The member's epoch, and whether it is to be told its assignment. Raises Refused."""
        if group_id in self._shard.groups:
            raise Refused(Err.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a share group.")
        group = self.groups.get(group_id)
        if group is None and epoch != 0:
            raise Refused(Err.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        group = group or StoredShare()
        member = group.members.get(member_id)
        if member is None and epoch != 0:
            raise Refused(Err.UNKNOWN_MEMBER_ID)
        if epoch == LEAVES:
            self._remove(group_id, member_id)
            return LEAVES, False
        if member is not None and epoch not in (0, member.epoch, member.previous):
            raise Refused(Err.FENCED_MEMBER_EPOCH)
        self._lives(group_id, member_id)
        if epoch == 0 and not topics:
            raise Refused(Err.INVALID_REQUEST, "SubscribedTopicNames must be set in first request.")
        wanted = tuple(sorted(set(topics))) if topics is not None else member.topics if member is not None else ()
        changed = member is None or member.topics != wanted
        group = replace(group, epoch=group.epoch + changed)
        behind = member is None or member.epoch != group.epoch
        if behind:
            now = ShareMember(wanted, group.epoch, -1 if member is None else member.epoch)
            members = {**group.members, member_id: now}
            members[member_id] = replace(now, assigned=self._by_turns(replace(group, members=members), member_id))
            self._write(group_id, replace(group, members=members))
        self._initialise(group_id)
        return group.epoch, behind or epoch == 0 or topics is not None

    def _lives(self, group_id: str, member_id: str) -> None:
        session_ms = self._node.settings.number("group.share.session.timeout.ms")
        self._shard.timer(("share", group_id, member_id), session_ms, lambda: self._remove(group_id, member_id))

    def _remove(self, group_id: str, member_id: str) -> None:
        group = self.groups[group_id]
        members = {m: member for m, member in group.members.items() if m != member_id}
        self._shard.cancel(("share", group_id, member_id))
        self._write(group_id, replace(group, epoch=group.epoch + 1, members=members))

    def _by_turns(self, group: StoredShare, member_id: str) -> dict[bytes, list[int]]:
        """Returns this member's part of the initialised partitions of its topics, which it shares with the others."""
        image = self._node.image
        found: dict[bytes, list[int]] = {}
        for topic_id, partitions in sorted(group.initialised.items()):
            t = image.by_id(topic_id)
            takers = [m for m, member in sorted(group.members.items()) if t is not None and t.name in member.topics]
            mine = [p for p in sorted(partitions) if takers and takers[p % len(takers)] == member_id]
            if mine:
                found[topic_id] = mine
        return found

    # ---- share state ----------------------------------------------------------------------------------------------
    def _initialise(self, group_id: str) -> None:
        """Ask the share coordinator for what is not initialised, once at a time."""
        group = self.groups.get(group_id)
        under_way = self._initialising.setdefault(group_id, set())
        if group is None:
            return
        wanted: set[tuple[bytes, int]] = set()
        for name in sorted({name for m in group.members.values() for name in m.topics}):
            t = self._node.image.topics.get(name)
            if t is not None:
                done = group.initialised.get(t.topic_id, frozenset())
                wanted |= {(t.topic_id, p) for p in range(len(t.partitions)) if p not in done}
        wanted -= under_way
        if wanted:
            under_way |= wanted
            self._node.later(self._node.cluster.draw(INITIALISING_MS), self._ask(group_id, wanted))

    def _ask(self, group_id: str, wanted: set[tuple[bytes, int]]) -> Callable[[], None]:
        def ask() -> None:
            cluster = self._node.cluster
            if self._shard.closed:
                return
            if cluster.share_coordinator_away:
                self._node.later(AWAY_AGAIN_MS, ask)
                return
            cluster.share_state |= {(group_id, topic_id, p) for topic_id, p in wanted}
            self._initialising[group_id] -= wanted
            group = self.groups[group_id]
            known = dict(group.initialised)
            for topic_id, p in wanted:
                known[topic_id] = known.get(topic_id, frozenset()) | {p}
            self._write(group_id, replace(group, epoch=group.epoch + 1, initialised=known))

        return ask
