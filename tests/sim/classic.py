"""A member of the classic protocol as the Java client and librdkafka are: it joins, syncs and beats, assigns if it
leads, joins again when it is told to, and forgets who it was when nobody knows it. An eager one gives up what it has
before it joins; a cooperative one goes on with it, says so, and gives up what it is no longer assigned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from sidecar.core.classic.embedded import CONSUMER_TYPE, Owned, assigned
from sidecar.core.classic.events import (
    ClassicHeartbeat,
    JoinedMember,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    Leaving,
    Protocols,
    SyncGroup,
    SyncReply,
)
from sidecar.core.consumer.offsets import ZERO_ID
from sidecar.core.runtime.events import Answer, Event
from sidecar.core.runtime.offset_checks import CommitCheck
from sidecar.core.vocabulary.errors import Code
from sidecar.wire.generated import consumer_protocol_subscription as cs
from tests.sim.leader import share, topics_of
from tests.sim.peer import Peer, Place
from tests.sim.world import TOPIC_IDS

COOPERATIVE = "cooperative-sticky"
STATIC_SINCE, NAMES_SINCE = 5, 7
"""Versions of JoinGroup: it may carry an instance id; clients of about that age name the protocol when they sync."""


@dataclass(kw_only=True, eq=False)
class ClassicMember(Peer):
    name: str
    names: tuple[str, ...]
    strategies: tuple[str, ...]
    """Names of its assignors; the member is cooperative if all of them are."""
    version: int = 9
    metadata_version: int = 3
    session_ms: int = 6_000
    rebalance_ms: int = 8_000
    join_patience_ms: int = 11_000
    sync_patience_ms: int = 5_000
    keeps: bool = False
    """Whether the client keeps its partitions when the answer to SyncGroup is REBALANCE_IN_PROGRESS, as clients before
    KAFKA-13419 do."""
    wants: str = "join"
    leads: bool = False
    protocol: str | None = None
    joined_members: tuple[JoinedMember, ...] = ()
    """The members, if it leads and is to assign."""
    seen: Mapping[str, int] | None = None
    """Partitions of the group's topics when it assigned, if it leads."""
    owned: Owned = field(default_factory=dict)
    held_since: int = -1
    committed: bool = False
    """The last request was a commit, which in a consumer group does not extend the session: a heartbeat comes next."""
    beaten_ms: int = 0
    """The time at which a heartbeat was answered last: nothing else moves its session in every case."""

    @property
    def cooperative(self) -> bool:
        return all(s == COOPERATIVE for s in self.strategies)

    @property
    def only_heartbeats(self) -> bool:
        return self.wants == "beat" and self.beaten_ms > max(self.held_ms, self.world.now - 2_000)

    @property
    def held(self) -> int | None:
        return self.held_since

    def partitions(self) -> set[Place]:
        """A group that was downgraded may know an assignment of what a static member subscribed to before."""
        return {(TOPIC_IDS[t], p) for t, ps in self.owned.items() for p in ps if t in TOPIC_IDS}

    def drop_partitions(self) -> None:
        self.owned, self.held_since = {}, -1

    # ---- what it says ----------------------------------------------------------------------------------------
    def send_next(self) -> None:
        if self.leaving:
            self._leave()
        elif self.wants == "join" or (self.leads and self.seen is not None and self.seen != self._counts(self.seen)):
            self._join()
        elif self.wants == "sync" and self.world.now >= self.busy_until:
            self._sync()
        elif self.wants == "beat" and self.world.rng.random() < 0.15 and not self.committed:
            self._commit()
        else:
            self.committed = False
            self.ask(ClassicHeartbeat(self.group_id, self.member_id, self.instance_id, self.epoch), self._beaten)

    def answer_lost(self) -> None:
        """A member that waits for its assignment when the connection breaks joins again."""
        if self.wants == "sync":
            self.wants = "join"

    def _join(self) -> None:
        self.wants, self.seen = "join", None
        if not self.cooperative:
            self.drop_partitions()
        self.world.ids += 1
        event = JoinGroup(
            self.group_id,
            self.member_id,
            self.instance_id,
            CONSUMER_TYPE,
            self._protocols(),
            self.session_ms,
            self.rebalance_ms if self.version else self.session_ms,
            None,
            self.name,
            "",
            self.version,
            f"u{self.world.ids}",
        )
        self.ask(event, self._joined, self.join_patience_ms)

    def _protocols(self) -> Protocols:
        owned = tuple(self.owned.items()) if self.cooperative else ()
        said = _subscription(self.names, owned, self.held_since, self.metadata_version)
        return tuple((s, said) for s in self.strategies)

    def _sync(self) -> None:
        given: dict[str, bytes] = {}
        if self.joined_members:
            topics = topics_of(self.joined_members)
            self.seen = self._counts(topics)
            given = share(self.joined_members, self.seen, self.protocol == COOPERATIVE)
        names = self.version >= NAMES_SINCE
        event = SyncGroup(
            self.group_id,
            self.member_id,
            self.instance_id,
            self.epoch,
            CONSUMER_TYPE if names else None,
            self.protocol if names else None,
            tuple(given.items()),
        )
        self.ask(event, self._synced, self.sync_patience_ms)

    def _commit(self) -> None:
        places = tuple((t, ZERO_ID, p) for t, ps in self.owned.items() for p in ps)
        event = CommitCheck(self.group_id, self.member_id, self.epoch, self.instance_id, self.version, False, places)
        self.committed = True
        self.ask(event, self._beaten)

    def _leave(self) -> None:
        """Static members do not say it; an administrator may, who names the instance id alone."""
        if not self.member_id or (self.instance_id is not None and self.leaving == -2):
            self.ended = True
            return
        member_id = "" if self.instance_id is not None else self.member_id
        self.ask(LeaveGroup(self.group_id, (Leaving(member_id, self.instance_id, None),)), self._left)

    def _counts(self, names: Mapping[str, int] | frozenset[str]) -> dict[str, int]:
        return {t.name: t.partitions for t in self.world.topics if t.name in names} | {
            n: 0 for n in names if not any(t.name == n for t in self.world.topics)
        }

    # ---- what it hears ---------------------------------------------------------------------------------------
    def _joined(self, event: Event, reply: Answer) -> None:
        assert isinstance(reply, JoinReply)
        if self.leaving:
            return
        if reply.code == Code.MEMBER_ID_REQUIRED:
            self.member_id = reply.member_id
            if self.world.rng.random() < 0.4:  # others come with their next poll
                self.schedule_send()
            return
        if reply.code == Code.INCONSISTENT_GROUP_PROTOCOL and self.world.config.migration_policy == "disabled":
            self.ended = True
            return
        if reply.code:
            self._refused(reply.code)
            return
        self.member_id, self.epoch, self.protocol = reply.member_id, reply.generation, reply.protocol
        self.leads = reply.leader == reply.member_id
        self.joined_members = () if reply.skip_assignment else reply.members
        self.wants = "sync"
        if self.world.strikes(0.1):
            self.busy_until = self.world.now + self.world.rng.choice((500, 2_000, 30_000))
        self.schedule_send()

    def _synced(self, event: Event, reply: Answer) -> None:
        assert isinstance(reply, SyncReply)
        if self.leaving:
            return
        if reply.code:
            if reply.code == Code.REBALANCE_IN_PROGRESS and not self.keeps:
                self.drop_partitions()
            self._refused(reply.code)
            return
        given = assigned(reply.assignment)
        assert given is not None
        revoked = {(t, p) for t, ps in self.owned.items() for p in ps if p not in given.get(t, ())}
        self.owned, self.held_since, self.wants = given, self.epoch, "beat"
        self.held_ms = self.world.now
        if revoked or not set(given) <= set(self.names):
            self.wants = "join"
            self.schedule_send()
        self.check(self.group_id)

    def _beaten(self, event: Event, reply: Answer) -> None:
        if reply.code:
            self._refused(reply.code)
        elif isinstance(event, ClassicHeartbeat):
            self.beaten_ms = self.world.now

    def _left(self, event: Event, reply: Answer) -> None:
        self.ended = True

    def _refused(self, code: Code) -> None:
        if code == Code.FENCED_INSTANCE_ID:
            self.ended = True
        if code in (Code.UNKNOWN_MEMBER_ID, Code.ILLEGAL_GENERATION):
            self.epoch = -1
            self.drop_partitions()
        if code == Code.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        self.wants, self.leads = "join", False
        if self.world.rng.random() < 0.5:
            self.schedule_send()


@lru_cache(maxsize=4_096)
def _subscription(
    names: tuple[str, ...], owned: tuple[tuple[str, tuple[int, ...]], ...], generation: int, version: int
) -> bytes:
    parts = [cs.TopicPartition(t, list(ps)) for t, ps in owned]
    said = cs.ConsumerProtocolSubscription(list(names), None, parts, generation)
    return version.to_bytes(2, "big") + said.encode(version)
