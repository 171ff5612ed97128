"""What must hold after every event. `folds` hold what the log alone says: each record applied as it is appended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sidecar.core.consumer.events import HeartbeatReply
from sidecar.core.consumer.group import ConsumerGroup
from sidecar.core.consumer.records import CurrentRecord, Kind, MemberRecord
from sidecar.core.effects import TOUCH_MS
from sidecar.core.errors import InvariantError
from sidecar.core.kinds import REGISTRY
from sidecar.core.owner import Owner
from sidecar.core.records import Record, Tombstone
from sidecar.core.shard import Shard
from sidecar.core.turn import Computed, Ports
from tests.sim.front import Ask, Granted
from tests.sim.log import Log, Writer
from tests.sim.world import GROUPS, LEASE_MS, TICK_MS, Violation, World

MemberKey = tuple[str, str]
"""Group and member id."""
COMPARED = (
    "epoch",
    "metadata_hash",
    "members",
    "static_members",
    "assignment_epoch",
    "assignor",
    "regexes",
    "owners",
    "assignment_timestamp_ms",
)


class Claimant(Protocol):
    """A client, as far as it may own partitions."""

    @property
    def group_id(self) -> str: ...
    @property
    def member_id(self) -> str: ...
    @property
    def epoch(self) -> int: ...
    @property
    def gone(self) -> bool: ...
    def partitions(self) -> set[tuple[bytes, int]]: ...


class Checks:
    def __init__(self, world: World) -> None:
        self.world = world
        ports = Ports(world.assignors, Computed(lambda kind, group_id: world.config))
        self.folds = [Shard(REGISTRY, ports) for _ in world.logs]
        self.clients: Sequence[Claimant] = ()
        self._epochs: dict[str, int] = {}
        """The highest epoch of each group that there is."""
        self._reached: dict[MemberKey, int] = {}
        """The highest epoch that the log has had of a member."""
        self._removed: dict[MemberKey, tuple[int, Writer]] = {}
        """When a member was removed, and by whom."""
        self._changed: dict[str, tuple[int, Writer]] = {}
        """When the log has last had a record of a group, and of whom."""
        world.on_append = self._appended

    def group(self, group_id: str) -> ConsumerGroup | None:
        """As the log says."""
        found = self.folds[self.world.partition_of(group_id)].groups.get(group_id)
        assert found is None or isinstance(found, ConsumerGroup)
        return found

    # ---- the log --------------------------------------------------------------------------------------------
    def _appended(self, log: Log, record: Record, epoch: int) -> None:
        if epoch < log.claimed:
            if log.fencing:
                raise Violation(f"a fenced writer's record is in the log: epoch {epoch} after claim {log.claimed}")
            return
        group_id = record.group_id
        try:
            self.folds[self.world.partition_of(group_id)].replay(record)
        except InvariantError as exc:
            raise Violation(f"in the log: {exc}") from exc
        self._note(record, log.writers[epoch])
        group = self.group(group_id)
        if group is None:
            self._epochs.pop(group_id, None)
            return
        if group.epoch < self._epochs.get(group_id, 0):
            raise Violation(f"the epoch of {group_id} went back from {self._epochs[group_id]} to {group.epoch}")
        self._epochs[group_id] = group.epoch
        if group.assignment_epoch > group.epoch:
            raise Violation(f"the target of {group_id} is of an epoch that is not yet")
        self.no_two_owners(group_id)

    def _note(self, record: Record, writer: Writer) -> None:
        when = (self.world.sched.now, writer)
        self._changed[record.group_id] = when
        key = (record.group_id, record.sub_id)
        if isinstance(record, MemberRecord):
            self._removed.pop(key, None)
        elif isinstance(record, CurrentRecord):
            self._reached[key] = max(record.member_epoch, self._reached.get(key, 0))
        elif isinstance(record, Tombstone) and record.kind is Kind.MEMBER:
            self._removed[key] = when

    # ---- clients --------------------------------------------------------------------------------------------
    def no_two_owners(self, group_id: str) -> None:
        """No partition is with two members that the group knows at their present epochs."""
        group = self.group(group_id)
        seen: dict[tuple[bytes, int], str] = {}
        for c in self.clients:
            if c.gone or c.epoch <= 0 or c.group_id != group_id:
                continue
            member = group.members.get(c.member_id) if group is not None else None
            if member is None or c.epoch not in (member.member_epoch, member.previous_epoch):
                continue
            for place in c.partitions():
                if place in seen:
                    raise Violation(f"{place[0].hex()[-2:]}-{place[1]} has two owners, {seen[place]} and {c.member_id}")
                seen[place] = c.member_id

    # ---- answers --------------------------------------------------------------------------------------------
    def answered(self, ask: Ask, answer: HeartbeatReply, writer: Writer, lease_end_ms: int) -> None:
        """The coordinator of this process tells a member that all is well."""
        key = (ask.hb.group_id, answer.member_id or "")
        if answer.member_epoch > self._reached.get(key, 0):
            raise Violation(f"a reply before its records were committed: {key} is told epoch {answer.member_epoch}")
        when, remover = self._removed.get(key, (ask.taken_ms, writer))
        if when < ask.taken_ms and (remover == writer or self.world.sched.now >= lease_end_ms):
            raise Violation(f"{key} was removed at {when}, asked at {ask.taken_ms}, and is told that all is well")

    def answered_under_grant(self, granted: Granted, writer: Writer, lease_end_ms: int) -> None:
        """A front answers a member in the place of the coordinator, of this process."""
        now, hb = self.world.sched.now, granted.hb
        group_id, key = hb.group_id, (hb.group_id, hb.member_id)
        slack_ms = self.world.link_ms + TICK_MS
        changed, changer = self._changed.get(group_id, (0, writer))
        if changer != writer:
            if changed > granted.given_ms and now >= lease_end_ms:
                raise Violation(f"{key} is answered under a grant {now - lease_end_ms} ms after the end of the lease")
            return
        removed, _ = self._removed.get(key, (now, writer))
        if removed + slack_ms < now:
            raise Violation(f"{key} is answered under a grant {now - removed} ms after it was removed")
        if granted.given_ms < changed < now - slack_ms:
            raise Violation(f"{key} is answered under a grant {now - changed} ms after {group_id} changed")

    # ---- the live state -------------------------------------------------------------------------------------
    def sessions(self, shard: Shard, since_ms: int) -> None:
        """Every member has a session that ends, and none that is longer than it should be: an owner gives back no more
        time than it has been there (`since_ms`)."""
        deadline_of, now = shard.timers.deadline, self.world.sched.now
        latest = now + self.world.config.session_timeout_ms + TOUCH_MS + now - since_ms
        for group_id, group in shard.groups.items():
            assert isinstance(group, ConsumerGroup)
            for member_id in group.members:
                deadline = deadline_of(("session", group_id, member_id))
                if deadline is None:
                    raise Violation(f"{member_id} has no session timer: it would live for ever")
                if deadline > latest:
                    raise Violation(f"the session of {member_id} ends only in {deadline - now} ms")

    def same(self, owner: Owner) -> None:
        """Live state and the fold of the log are one."""
        assert owner.shard is not None
        for group_id in GROUPS:
            if group_id in owner.undecoded or self.world.partition_of(group_id) != owner.partition:
                continue
            live, folded = owner.shard.groups.get(group_id), self.group(group_id)
            if (live is None) != (folded is None):
                raise Violation(f"{group_id} is in the live state or in the log, not in both")
            if live is not None and folded is not None:
                assert isinstance(live, ConsumerGroup)
                self._same(live, folded)

    def _same(self, live: ConsumerGroup, folded: ConsumerGroup) -> None:
        for name in COMPARED:
            if getattr(live, name) != getattr(folded, name):
                raise Violation(f"{name}: live {getattr(live, name)!r}, in the log {getattr(folded, name)!r}")
        for member_id in {*live.target, *folded.target}:
            if live.target.of(member_id) != folded.target.of(member_id):
                raise Violation(f"target of {member_id} differs from the log's")
        stray = {m for m in live.target if live.target.of(m)} - live.members.keys()
        if stray:
            raise Violation(f"a target for {stray}, who are no members")


def lease_end(proved_ms: int) -> int:
    return proved_ms + LEASE_MS
