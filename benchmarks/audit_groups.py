"""Groups for the audit's benchmark: what the coordinator writes for one, write by write, for as long as anybody asks.

A generator gives the records of one write, or None where the group has come to rest.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sidecar.core.classic import records as classic
from sidecar.core.classic.embedded import assignment, plain_subscription
from sidecar.core.consumer.records import (
    CurrentRecord,
    GroupRecord,
    Kind,
    MemberRecord,
    MemberState,
    RegexRecord,
    StaticMemberRecord,
    TargetMemberRecord,
    TargetMetadataRecord,
)
from sidecar.core.runtime.records import Epochs, Tombstone


class Setting(NamedTuple):
    """A setting of the group. It is no record of the group's owner."""

    group_id: str
    name: str
    value: str


Write = list[Any]
"""Records, and settings."""
TOGETHER = 16
"""Heartbeats of so many members end up in one write."""


def _uuid(rng: random.Random) -> uuid.UUID:
    return uuid.UUID(int=rng.getrandbits(128), version=4)


@dataclass
class Member:
    member_id: str
    instance_id: str | None
    epoch: int = 0
    previous: int = 0
    held: dict[int, int] = field(default_factory=dict)
    """Place -> the epoch in which it was assigned."""
    assigned: Epochs = field(default_factory=dict)
    """The same, as records have it."""
    target: list[int] = field(default_factory=list)


class Consumers:
    """A consumer group. A place is a partition of one of its topics, by a number of its own."""

    def __init__(self, rng: random.Random, group_id: str, size: int, now_ms: int) -> None:
        self.rng, self.group_id, self.size, self.now_ms = rng, group_id, size, now_ms
        self.topics = [(_uuid(rng).bytes, f"{group_id}.topic-{i}") for i in range(rng.randrange(1, 4))]
        self.names = dict(self.topics)
        self.topic_names = tuple(self.names.values())
        per_topic = max(1, int(size * rng.uniform(1.2, 3.0)) // len(self.topics))
        self.places = [(t, p) for t, _ in self.topics for p in range(per_topic)]
        self.static = rng.random() < 0.1
        self.regex = f"{group_id}\\..*" if rng.random() < 0.05 else None
        self.begin_anew()

    def begin_anew(self) -> None:
        self.epoch = 0
        self.members: dict[str, Member] = {}
        self.free = list(range(len(self.places)))
        self.owner: dict[int, str] = {}

    def by_topic(self, places: Iterable[int]) -> dict[bytes, list[int]]:
        found: dict[bytes, list[int]] = {}
        for n in sorted(places):
            t, p = self.places[n]
            found.setdefault(t, []).append(p)
        return found

    # ---- who is there ---------------------------------------------------------------------------------------------
    def bump(self, why: str) -> GroupRecord:
        self.epoch += 1
        return GroupRecord(self.group_id, self.epoch, 0x5DEECE66D ^ len(self.places), why)

    def join(self) -> Write:
        n = self.rng.randrange(100_000)
        m = Member(str(_uuid(self.rng)), f"instance-{n:05d}-{len(self.members)}" if self.static else None)
        self.members[m.member_id] = m
        records: Write = [self.member_record(m, "joined")]
        if m.instance_id is not None:
            records.append(StaticMemberRecord(self.group_id, m.instance_id, m.member_id, "joined"))
        return [*records, self.bump(f"{self.group_id}-client joined")]

    def member_record(self, m: Member, why: str) -> MemberRecord:
        fields = (m.instance_id, f"rack-{self.rng.randrange(3)}", f"{self.group_id}-client", "/10.4.17.23")
        topics = () if self.regex else self.topic_names
        return MemberRecord(self.group_id, m.member_id, *fields, 300_000, topics, self.regex, None, why)

    def leave(self, members: list[Member], why: str) -> Write:
        records: Write = []
        for m in members:
            for kind in (Kind.CURRENT, Kind.TARGET_MEMBER, Kind.MEMBER):
                records.append(Tombstone(kind, self.group_id, m.member_id, why))
            if m.instance_id is not None:
                records.append(Tombstone(Kind.STATIC_MEMBER, self.group_id, m.instance_id, why))
            for place in m.held:
                del self.owner[place]
            self.free += m.target
            del self.members[m.member_id]
        return [*records, self.bump(", ".join(f"{self.group_id}-client: {why}" for _ in members[:3]))]

    def end(self) -> Write:
        why = "the group was deleted"
        kinds = [(Kind.TARGET_METADATA, ""), *([(Kind.REGEX, self.regex)] if self.regex else []), (Kind.GROUP, "")]
        self.begin_anew()
        return [Tombstone(kind, self.group_id, sub_id, why) for kind, sub_id in kinds]

    # ---- who shall have what --------------------------------------------------------------------------------------
    def assign(self) -> Write:
        """As evenly as possible, and with as few moves as that takes."""
        least, extra = divmod(len(self.places), len(self.members))
        changed: dict[str, Member] = {}
        wanted: list[tuple[Member, int]] = []
        for m in self.members.values():
            most = least + (extra > 0 and len(m.target) > least)
            extra -= most > least
            while len(m.target) > most:
                self.free.append(m.target.pop())
                changed[m.member_id] = m
            if len(m.target) < least or (len(m.target) == least and most == least):
                wanted.append((m, least))
        for m, count in wanted:
            more = count + (extra > 0)
            extra -= more > count
            while len(m.target) < more:
                m.target.append(self.free.pop())
                changed[m.member_id] = m
        why = f"target of epoch {self.epoch}"
        targets: Write = [
            TargetMemberRecord(
                self.group_id, m.member_id, {t: tuple(ps) for t, ps in self.by_topic(m.target).items()}, self.names, why
            )
            for m in changed.values()
        ]
        return [*targets, TargetMetadataRecord(self.group_id, self.epoch, self.now_ms + self.epoch, "uniform", why)]

    # ---- how they get there ---------------------------------------------------------------------------------------
    def current(self, m: Member, state: MemberState, pending: Epochs, why: str) -> CurrentRecord:
        return CurrentRecord(
            self.group_id, m.member_id, m.epoch, m.previous, state, m.assigned, pending, self.names, why
        )

    def revoke(self, m: Member, revoked: list[int]) -> CurrentRecord:
        kept = {n: e for n, e in m.held.items() if n not in revoked}
        pending = self.epochs({n: m.held[n] for n in revoked})
        m.assigned = self.epochs(kept)
        return self.current(m, MemberState.UNREVOKED_PARTITIONS, pending, f"must revoke for epoch {self.epoch}")

    def reach(self, m: Member) -> CurrentRecord:
        """Takes the target's partitions that are free, and gives up what is not in the target."""
        target = set(m.target)
        before = m.held
        m.held = {n: e for n, e in before.items() if n in target}
        for n in before.keys() - target:
            del self.owner[n]
        for n in target - before.keys():
            if n not in self.owner:
                self.owner[n], m.held[n] = m.member_id, self.epoch
        if m.held.keys() != before.keys():
            m.assigned = self.epochs(m.held)
        if m.epoch != self.epoch:
            m.previous, m.epoch = m.epoch, self.epoch
        if len(m.held) == len(target):
            return self.current(m, MemberState.STABLE, {}, f"reached epoch {self.epoch}")
        return self.current(m, MemberState.UNRELEASED_PARTITIONS, {}, f"reconciling to epoch {self.epoch}")

    def epochs(self, held: dict[int, int]) -> dict[bytes, dict[int, int]]:
        found: dict[bytes, dict[int, int]] = {}
        for n in sorted(held):
            t, p = self.places[n]
            found.setdefault(t, {})[p] = held[n]
        return found

    def reconcile(self) -> Iterator[CurrentRecord]:
        """Heartbeats in any order; then those come again that had to wait for each other."""
        members = list(self.members.values())
        self.rng.shuffle(members)
        losers, waiting = [], []
        for m in members:
            target = set(m.target)
            revoked = [n for n in m.held if n not in target]
            if revoked:
                losers.append(m)
                yield self.revoke(m, revoked)
                continue
            yield self.reach(m)
            if len(m.held) < len(target):
                waiting.append(m)
        for m in losers:
            yield self.reach(m)
            if len(m.held) < len(m.target):
                waiting.append(m)
        for m in waiting:
            yield self.reach(m)


def _together(records: Iterable[Any]) -> Iterator[Write]:
    write: Write = []
    for r in records:
        write.append(r)
        if len(write) == TOGETHER:
            yield write
            write = []
    if write:
        yield write


def consumer_group(rng: random.Random, group_id: str, size: int, now_ms: int) -> Iterator[Write | None]:
    group = Consumers(rng, group_id, size, now_ms)
    if rng.random() < 0.1:
        yield [Setting(group_id, "consumer.session.timeout.ms", str(rng.randrange(45_000, 60_000)))]
    while True:
        yield from _comes_up(group)
        lives = rng.randrange(20, 400)
        for n in range(lives):
            k = max(1, size // 50)
            dice = rng.random()
            if dice < 0.08:
                m = rng.choice(list(group.members.values()))
                yield [group.member_record(m, "details changed")]
                yield None
                continue
            leaves = dice < 0.85 or len(group.members) > size * 6 // 5
            if leaves and (left := rng.sample(list(group.members.values()), min(k, len(group.members) - 1))):
                yield group.leave(left, "left" if dice < 0.6 else "session timed out")
            if dice < 0.68 or not leaves or len(group.members) <= size // 2:
                for _ in range(k):
                    yield group.join()
            yield group.assign()
            yield from _together(group.reconcile())
            if group.regex and n % 20 == 0:
                yield [RegexRecord(group_id, group.regex, group.topic_names, n, now_ms, "topics changed")]
            yield None
        yield group.leave(list(group.members.values()), "left")
        yield group.end()
        yield None


def _comes_up(group: Consumers) -> Iterator[Write | None]:
    """Members join one after the other, faster than the group rebalances."""
    if group.regex:
        yield [RegexRecord(group.group_id, group.regex, group.topic_names, 0, group.now_ms, "resolved")]
    wave = max(1, group.size // 2)
    while len(group.members) < group.size:
        for _ in range(min(wave, group.size - len(group.members))):
            yield group.join()
        yield group.assign()
        yield from _together(group.reconcile())
    yield None


# ---- classic groups -------------------------------------------------------------------------------------------------
class Classics:
    """A classic group whose leader deals its topics out in runs."""

    def __init__(self, rng: random.Random, group_id: str, size: int, now_ms: int) -> None:
        self.rng, self.group_id, self.size, self.now_ms = rng, group_id, size, now_ms
        self.type = "connect" if rng.random() < 0.1 else "consumer"
        self.eager = rng.random() < 0.5
        self.topic, self.partitions = f"{group_id}.topic", int(size * rng.uniform(1.2, 3.0))
        self.generation, self.known = 0, -1
        self.members: dict[str, bytes | None] = {}
        """Member -> its assignment."""

    def state(self, state: classic.State, why: str) -> classic.GroupRecord:
        chosen = state in (classic.State.COMPLETING, classic.State.STABLE)
        named = ("range", next(iter(self.members))) if chosen else (None, None)
        since_ms = self.now_ms + self.generation
        g, n = self.group_id, self.generation
        return classic.GroupRecord(g, state, n, self.type, named[0], named[1], self.known, since_ms, why)

    def member(self, member_id: str, why: str) -> classic.MemberRecord:
        subscription = plain_subscription([self.topic])
        protocols = (
            (("range", subscription),)
            if self.eager
            else (("cooperative-sticky", subscription), ("range", subscription))
        )
        about = (None, f"{self.group_id}-client", "/10.4.17.23", 45_000, 300_000, protocols, True, self.generation)
        return classic.MemberRecord(self.group_id, member_id, *about, (), why)

    def rebalance(self, joins: int, leaves: int) -> Iterator[Write]:
        why = f"{leaves} left, {joins} joined"
        for m in self.rng.sample(list(self.members), min(leaves, len(self.members) - 1) if self.members else 0):
            held = self.members.pop(m)
            tombstones = [Tombstone(classic.Kind.ASSIGNMENT, self.group_id, m, "left")] if held is not None else []
            yield [*tombstones, Tombstone(classic.Kind.MEMBER, self.group_id, m, "left")]
        yield [self.state(classic.State.PREPARING, why)]
        again = [] if self.eager else list(self.members)
        new = [f"{self.group_id}-client-{_uuid(self.rng)}" for _ in range(joins)]
        self.members |= dict.fromkeys(new)
        yield from _together(self.member(m, "joined" if m in new else "joined again") for m in (*again, *new))
        self.generation += 1
        yield [self.state(classic.State.COMPLETING, "all have joined")]
        why = f"assigned in generation {self.generation}"
        given: Write = []
        each, extra = divmod(self.partitions, len(self.members))
        at = 0
        for i, (m, held) in enumerate(self.members.items()):
            end = at + each + (i < extra)
            now = assignment(1, [(self.topic, tuple(range(at, end)))] if end > at else [])
            at = end
            if now != held:
                self.members[m] = now
                given.append(classic.AssignmentRecord(self.group_id, m, self.generation, now, why))
        self.known = self.generation
        yield [*given, self.state(classic.State.STABLE, why)]


def classic_group(rng: random.Random, group_id: str, size: int, now_ms: int) -> Iterator[Write | None]:
    group = Classics(rng, group_id, size, now_ms)
    yield [group.state(classic.State.EMPTY, "the first member")]
    yield from group.rebalance(max(1, size // 2), 0)
    while True:
        yield None
        joins = rng.randrange(3) if len(group.members) < size * 3 // 2 else 0
        leaves = rng.randrange(3) if len(group.members) > 2 else 0
        yield from group.rebalance(joins or (0 if leaves else 1), leaves)
