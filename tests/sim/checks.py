"""Invariants that are checked after every event. `folds` hold what the log alone says: each record applied as it is
appended."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol

from sidecar.core.classic.events import ClassicHeartbeat, JoinGroup, LeaveGroup
from sidecar.core.classic.group import ClassicGroup
from sidecar.core.classic.records import Kind as ClassicKind
from sidecar.core.classic.records import MemberRecord as ClassicMemberRecord
from sidecar.core.classic.soft_state import ClassicSoft
from sidecar.core.consumer.events import ConsumerHeartbeat, HeartbeatReply
from sidecar.core.consumer.group import ConsumerGroup
from sidecar.core.consumer.records import CurrentRecord, Kind, MemberRecord
from sidecar.core.kinds import REGISTRY
from sidecar.core.runtime.effects import TOUCH_MS
from sidecar.core.runtime.events import Answer, DeleteGroup, Event
from sidecar.core.runtime.owner import Owner
from sidecar.core.runtime.records import Record, Tombstone
from sidecar.core.runtime.shard import Shard
from sidecar.core.runtime.turn import Computed, Ports
from sidecar.core.vocabulary.errors import Code, InvariantError
from tests.sim.check_classic import Generations
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
    "classic_members",
)
COMPARED_CLASSIC = (
    "state",
    "generation",
    "type",
    "protocol",
    "leader",
    "assigned_generation",
    "since_ms",
    "members",
    "assignments",
    "static",
    "supported",
)
AS_A_MEMBER = ((ClassicHeartbeat, Code.REBALANCE_IN_PROGRESS), (JoinGroup, Code.MEMBER_ID_REQUIRED))
"""Codes that only a member gets."""
MEMBERS = (Kind.MEMBER, ClassicKind.MEMBER)


class Claimant(Protocol):
    """A client, as far as it may own partitions."""

    @property
    def group_id(self) -> str: ...
    @property
    def member_id(self) -> str: ...
    @property
    def epoch(self) -> int: ...
    @property
    def held(self) -> int | None: ...
    @property
    def held_ms(self) -> int: ...
    @property
    def ended(self) -> bool: ...
    def partitions(self) -> set[tuple[bytes, int]]: ...


class Checks:
    def __init__(self, world: World) -> None:
        self.world = world
        ports = Ports({"consumer": world.assignors}, Computed(world.settings))
        self.folds = [Shard(REGISTRY, ports) for _ in world.logs]
        self.clients: Sequence[Claimant] = ()
        self.generations = Generations(world, self.group)
        self._epochs: dict[str, int] = {}
        """The highest epoch, or generation, of each group that there is."""
        self._reached: dict[MemberKey, int] = {}
        """The highest epoch that the log has had of a member."""
        self._removed: dict[MemberKey, tuple[int, Writer]] = {}
        """The time at which a member was removed, and the owner that removed it."""
        self._removed_kind: dict[MemberKey, str] = {}
        """The kind of that tombstone."""
        self._changed: dict[str, tuple[int, Writer]] = {}
        """The time of the log's last record of a group, and the owner that wrote it."""
        self._back: dict[MemberKey, int] = {}
        """The time at which a removed member came back."""
        self._batch: dict[str, None] = {}
        """Groups of the batch that is being appended."""
        world.on_append, world.on_batch = self._appended, self._batch_written

    def group(self, group_id: str) -> Any:
        """Returns the group from the log: a consumer group, a classic one or None."""
        return self.folds[self.world.partition_of(group_id)].groups.get(group_id)

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
        writer = log.writers[epoch]
        self._note(record, writer)
        self.generations.note(record, writer, epoch)
        self._batch[group_id] = None
        if self.generations.begins_anew(record):
            self._epochs.pop(group_id, None)

    def _note(self, record: Record, writer: Writer) -> None:
        when = (self.world.sched.now, writer)
        self._changed[record.group_id] = when
        key = (record.group_id, record.sub_id)
        if isinstance(record, MemberRecord | ClassicMemberRecord):
            removed, _ = self._removed.pop(key, when)
            same_kind = self._removed_kind.pop(key, None) == record.kind
            if removed < when[0] or same_kind:  # else the group becomes one of another kind
                self._back[key] = when[0]
        elif isinstance(record, CurrentRecord):
            self._reached[key] = max(record.member_epoch, self._reached.get(key, 0))
        elif isinstance(record, Tombstone) and record.kind in MEMBERS:
            self._removed[key], self._removed_kind[key] = when, record.kind

    def _batch_written(self) -> None:
        """A complete batch is in the log: half of one counts for nobody."""
        batch, self._batch = self._batch, {}
        for group_id in batch:
            group = self.group(group_id)
            if group is None:
                continue
            epoch = group.epoch if isinstance(group, ConsumerGroup) else group.generation
            if epoch < self._epochs.get(group_id, 0):
                raise Violation(f"the epoch of {group_id} went back from {self._epochs[group_id]} to {epoch}")
            self._epochs[group_id] = epoch
            self.generations.batch_written(group_id)
            if isinstance(group, ConsumerGroup) and group.assignment_epoch > epoch:
                raise Violation(f"the target of {group_id} is of an epoch that is not yet")
            self.no_two_owners(group_id)

    # ---- clients --------------------------------------------------------------------------------------------
    def no_two_owners(self, group_id: str) -> None:
        """No partition is with two members that the group knows at their present epochs."""
        group = self.group(group_id)
        if group is None:
            return
        seen: dict[tuple[bytes, int], str] = {}
        for c in self.clients:
            if c.ended or c.epoch <= 0 or c.group_id != group_id or not self._valid(c, group):
                continue
            for place in c.partitions():
                if place in seen:
                    raise Violation(f"{place[0].hex()[-2:]}-{place[1]} has two owners, {seen[place]} and {c.member_id}")
                seen[place] = c.member_id

    def _valid(self, c: Claimant, group: ConsumerGroup | ClassicGroup) -> bool:
        """Whether the group would let this member commit. Of the classic protocol, it also must have been given what
        it has in the last assignment, or in the one before while it waits for its own: one that missed a generation,
        or was removed and is back under its id, may not know yet that its partitions are somebody else's (KIP-792)."""
        if c.held is not None and (
            c.held < self.generations.floor(c.group_id) or c.held_ms < self._back.get((c.group_id, c.member_id), 0)
        ):
            return False
        if isinstance(group, ClassicGroup):
            return c.epoch == group.generation and c.member_id in group.members
        member = group.members.get(c.member_id)
        return member is not None and c.epoch in (member.member_epoch, member.previous_epoch)

    # ---- answers --------------------------------------------------------------------------------------------
    def answered(self, ask: Ask, answer: Answer, writer: Writer, lease_end_ms: int) -> None:
        """The coordinator of this process tells a member that all is well."""
        key = key_of(ask.event, answer)
        if isinstance(answer, HeartbeatReply) and answer.member_epoch > self._reached.get(key, 0):
            raise Violation(f"a reply before its records were committed: {key} is told epoch {answer.member_epoch}")
        when, remover = self._removed.get(key, (ask.taken_ms, writer))
        if when < ask.taken_ms and (remover == writer or self.world.sched.now >= lease_end_ms):
            raise Violation(f"{key} was removed at {when}, asked at {ask.taken_ms}, and is told that all is well")
        self.generations.answered(ask, answer, key[1], writer, lease_end_ms)

    def answered_under_grant(self, granted: Granted, writer: Writer, lease_end_ms: int) -> None:
        """A front answers a member in the place of the coordinator, of this process."""
        now, group_id = self.world.sched.now, granted.event.group_id
        key = (group_id, granted.member_id)
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
    def sessions(self, shard: Shard, since_ms: int, loading: Collection[str]) -> None:
        """Every member has a session that ends, and none that is longer than it should be: an owner gives back no more
        time than it has been there (`since_ms`). Those of groups that are being loaded are yet to come."""
        deadline_of, now = shard.timers.deadline, self.world.sched.now
        more_ms = now + TOUCH_MS + now - since_ms
        for group_id, group in shard.groups.items():
            if group_id in loading:
                continue
            if isinstance(group, ClassicGroup):
                self._classic_sessions(shard, group, more_ms)
                continue
            assert isinstance(group, ConsumerGroup)
            latest = more_ms + self.world.config.session_timeout_ms
            for member_id, member in group.members.items():
                deadline = deadline_of(("session", group_id, member_id))
                if deadline is None:
                    raise Violation(f"{member_id} has no session timer: it would live for ever")
                of_its_own = 0 if member.classic is None else member.classic.session_timeout_ms
                if deadline > latest and deadline > more_ms + of_its_own:
                    raise Violation(f"the session of {member_id} ends only in {deadline - now} ms")

    def _classic_sessions(self, shard: Shard, group: ClassicGroup, more_ms: int) -> None:
        """A member whose answer waits needs none: the phase that it waits for ends."""
        soft: Any = shard.soft[group.group_id]
        assert isinstance(soft, ClassicSoft)
        for member_id, member in group.members.items():
            deadline = shard.timers.deadline(("classic_session", group.group_id, member_id))
            if deadline is None:
                if member_id not in soft.joins and member_id not in soft.syncs:
                    raise Violation(f"{member_id} has no session timer: it would live for ever")
                continue
            new = self.world.classic.new_member_join_timeout_ms if member_id in soft.new else 0
            if deadline > more_ms + max(member.session_timeout_ms, new):
                raise Violation(f"the session of {member_id} ends only in {deadline - self.world.sched.now} ms")

    def same(self, owner: Owner) -> None:
        """Live state and the fold of the log are one."""
        assert owner.shard is not None
        for group_id in GROUPS:
            if group_id in owner.loader.queue.left or self.world.partition_of(group_id) != owner.partition:
                continue
            live, folded = owner.shard.groups.get(group_id), self.group(group_id)
            if (live is None) != (folded is None):
                raise Violation(f"{group_id} is in the live state or in the log, not in both")
            if live is not None:
                if type(live) is not type(folded):
                    raise Violation(f"{group_id}: live a {live.kind} group, in the log a {folded.kind} group")
                same_group(live, folded)


def same_group(live: Any, folded: Any) -> None:
    """Asserts that the coordinator's group equals the one from the log."""
    consumer = isinstance(live, ConsumerGroup)
    for name in COMPARED if consumer else COMPARED_CLASSIC:
        if getattr(live, name) != getattr(folded, name):
            raise Violation(f"{name}: live {getattr(live, name)!r}, in the log {getattr(folded, name)!r}")
    if not consumer:
        return
    for member_id in {*live.target, *folded.target}:
        if live.target.of(member_id) != folded.target.of(member_id):
            raise Violation(f"target of {member_id} differs from the log's")
    stray = {m for m in live.target if live.target.of(m)} - live.members.keys()
    if stray:
        raise Violation(f"a target for {stray}, who are no members")


def key_of(event: Event, answer: Answer) -> MemberKey:
    """Returns group and member id of an answer."""
    return event.group_id, getattr(answer, "member_id", "") or getattr(event, "member_id", "")


def as_a_member(event: Event, answer: Answer) -> bool:
    """Whether somebody is answered as a member that stays, or will be one."""
    if isinstance(event, LeaveGroup | DeleteGroup) or (isinstance(event, ConsumerHeartbeat) and event.member_epoch < 0):
        return False
    return not answer.code or (type(event), answer.code) in AS_A_MEMBER


def lease_end(proved_ms: int) -> int:
    return proved_ms + LEASE_MS
