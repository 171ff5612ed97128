"""One partition of `__group_state`: its groups, their timers, the one way in and the one way back (`replay`).

A handler returns records and a reply. The records change the state through `replay`, live and on a rebuild
alike; whoever runs the shard appends them and holds the reply back until they are committed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from sidecar.assign.spec import Assignor
from sidecar.core.consumer.group import ConsumerGroup
from sidecar.core.consumer.heartbeat import heartbeat, regex_resolved
from sidecar.core.consumer.members import arm_rebalance, arm_session, on_timer
from sidecar.core.consumer.offsets import check_commit, check_fetch
from sidecar.core.consumer.target import assignor_done
from sidecar.core.errors import Code, CoordinatorError
from sidecar.core.events import (
    AssignorDone,
    CheckReply,
    CommitCheck,
    ConsumerHeartbeat,
    Effects,
    FetchCheck,
    GroupConfig,
    HeartbeatReply,
    RegexResolved,
)
from sidecar.core.records import Kind, Record, Tombstone
from sidecar.core.timers import Timers
from sidecar.core.topics import TopicImage

LOAD_ORDER = (
    Kind.GROUP,
    Kind.REGEX,
    Kind.MEMBER,
    Kind.STATIC_MEMBER,
    Kind.TARGET_METADATA,
    Kind.TARGET_MEMBER,
    Kind.CURRENT,
)


@dataclass(slots=True)
class Now:
    """`mono_ms` drives timers, `wall_ms` is written down. Nobody changes one."""

    mono_ms: int
    wall_ms: int


@dataclass(slots=True)
class Turn:
    """What one event may see and do."""

    shard: Shard
    now: Now
    fx: Effects = field(default_factory=Effects)

    @property
    def image(self) -> TopicImage:
        return self.shard.image

    @property
    def groups(self) -> dict[str, ConsumerGroup]:
        return self.shard.groups

    @property
    def timers(self) -> Timers:
        return self.shard.timers

    @property
    def assignors(self) -> Mapping[str, Assignor]:
        return self.shard.assignors

    @property
    def regexes_in_flight(self) -> set[str]:
        return self.shard.regexes_in_flight

    def config(self, group_id: str) -> GroupConfig:
        return self.shard.config(group_id)

    def adopt(self, group: ConsumerGroup) -> None:
        self.shard.groups.setdefault(group.group_id, group)

    def write(self, record: Record) -> None:
        self.fx.records.append(record)
        self.shard.replay(record)

    def next_run(self) -> int:
        self.shard.runs += 1
        return self.shard.runs


class Shard:
    """Groups whose id hashes to one partition."""

    def __init__(self, assignors: Mapping[str, Assignor], config: Callable[[str], GroupConfig]) -> None:
        self.assignors = assignors
        self.config = config
        self.image = TopicImage()
        self.groups: dict[str, ConsumerGroup] = {}
        self.timers = Timers()
        self.regexes_in_flight: set[str] = set()
        self.runs = 0

    # ---- in ---------------------------------------------------------------------------------------------
    def heartbeat(self, hb: ConsumerHeartbeat, now: Now) -> tuple[HeartbeatReply, Effects]:
        turn = Turn(self, now)
        try:
            return heartbeat(turn, hb), turn.fx
        except CoordinatorError as exc:
            return HeartbeatReply(exc.code, exc.message), turn.fx

    def check(self, c: CommitCheck | FetchCheck, now: Now) -> CheckReply:
        turn = Turn(self, now)
        return check_commit(turn, c) if isinstance(c, CommitCheck) else check_fetch(turn, c)

    def regex_resolved(self, event: RegexResolved, now: Now) -> Effects:
        turn = Turn(self, now)
        regex_resolved(turn, event)
        return turn.fx

    def assignor_done(self, event: AssignorDone, now: Now) -> Effects:
        turn = Turn(self, now)
        assignor_done(turn, event)
        return turn.fx

    def delete(self, group_id: str, now: Now) -> tuple[Code, Effects]:
        """DeleteGroups: only without members (KIP-229). The group's record goes last."""
        turn = Turn(self, now)
        group = self.groups.get(group_id)
        if group is None:
            return Code.GROUP_ID_NOT_FOUND, turn.fx
        if group.members:
            return Code.NON_EMPTY_GROUP, turn.fx
        why = "group deleted"
        for regex in list(group.regexes):
            turn.write(Tombstone(Kind.REGEX, group_id, regex, why))
        for member_id in list(group.target):
            turn.write(Tombstone(Kind.TARGET_MEMBER, group_id, member_id, why))
        turn.write(Tombstone(Kind.TARGET_METADATA, group_id, "", why))
        turn.write(Tombstone(Kind.GROUP, group_id, "", why))
        self.timers.cancel(("assign", group_id))
        self.timers.cancel(("run", group_id))
        turn.fx.log("group deleted", group_id=group_id)
        return Code.NONE, turn.fx

    def tick(self, now: Now) -> Effects:
        """Run every timer that is due."""
        turn = Turn(self, now)
        for key, tag in self.timers.expired(now.mono_ms):
            on_timer(turn, key, tag)
        return turn.fx

    def touch(self, group_id: str, member_id: str, now: Now) -> None:
        """A steady heartbeat whose reply was remembered: only the session moves."""
        self.timers.set(("session", group_id, member_id), now.mono_ms + self.config(group_id).session_timeout_ms)

    def topics_changed(self, image: TopicImage, changed: frozenset[str]) -> None:
        """Groups that subscribe to one of `changed` look at their metadata hash on their next heartbeat."""
        self.image = image
        for group in self.groups.values():
            if not group.metadata_due and not changed.isdisjoint(group.subscribed_topics()):
                group.metadata_due = True
            if group.regexes or group.metadata_due:
                group.revision += 1

    # ---- rebuild ----------------------------------------------------------------------------------------
    def replay(self, record: Record) -> None:
        """The only place where hard state changes."""
        group = self.groups.get(record.group_id)
        if isinstance(record, Tombstone) and record.kind is Kind.GROUP:
            self.groups.pop(record.group_id, None)
            return
        if group is None:
            if isinstance(record, Tombstone):
                return
            group = self.groups[record.group_id] = ConsumerGroup(record.group_id)
        group.replay(record)

    def load(self, group_id: str, records: Iterable[Record], now: Now) -> None:
        """Build one group from the last value of each of its keys; sessions start anew with full time."""
        for record in sorted(records, key=lambda r: LOAD_ORDER.index(r.kind)):
            self.replay(record)
        group = self.groups.get(group_id)
        if group is None:
            return
        turn = Turn(self, now)
        for member in group.members.values():
            arm_session(turn, group_id, member.member_id)
            arm_rebalance(turn, group_id, member)
        if group.epoch > group.assignment_epoch:
            self.timers.set(("assign", group_id), now.mono_ms + self.config(group_id).assignment_interval_ms)
