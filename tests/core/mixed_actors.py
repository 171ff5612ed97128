"""Members of both protocols in one group, as their clients are, with coordinators that change and lose what they wrote.
What they own is held against what they were promised (test_random_mixed.py)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from sidecar.core.classic.config import ClassicConfig
from sidecar.core.classic.embedded import assigned, assignment
from sidecar.core.classic.embedded import subscription as read
from sidecar.core.classic.events import JoinedMember, JoinReply, SyncReply
from sidecar.core.classic.group import ClassicGroup
from sidecar.core.consumer.config import ConsumerConfig
from sidecar.core.consumer.events import ConsumerHeartbeat, HeartbeatReply
from sidecar.core.consumer.group import ConsumerGroup
from sidecar.core.runtime.events import Answer, DeleteGroup, Event
from sidecar.core.vocabulary.errors import Code
from tests.core.classic_actors import ClassicWorld
from tests.core.classic_client import ClassicClient, subscription
from tests.core.world import Client, topic, topic_id

GROUP, TOPIC = "g", "t"
POLICIES = ("bidirectional", "bidirectional", "upgrade", "downgrade", "disabled")


class LostError(Exception):
    """The coordinator lost what it wrote for this request, and so nobody is answered."""


class MixedWorld(ClassicWorld):
    loses: float = 0.0
    """The probability that a write is lost."""
    rng: random.Random

    def send(self, hb: ConsumerHeartbeat) -> HeartbeatReply:
        at = len(self.log)
        token = self.request(hb)
        if len(self.log) > at and self.rng.random() < self.loses:
            raise LostError
        answer = self.replies.pop(token).answer
        assert isinstance(answer, HeartbeatReply)
        return answer

    @property
    def now_is(self) -> ConsumerGroup | ClassicGroup | None:
        found = self.shard.groups.get(GROUP)
        assert found is None or isinstance(found, ConsumerGroup | ClassicGroup)
        return found

    def known_as(self, member_id: str) -> bool:
        return member_id in self.member_ids(GROUP)


@dataclass
class Old:
    """A client of the classic protocol. Eager, it gives up everything before it joins; cooperative, what it must when
    it has been told."""

    me: ClassicClient
    cooperative: bool
    wants: str = "join"
    token: int = 0
    to_assign: tuple[JoinedMember, ...] = ()
    places: frozenset[int] = frozenset()
    seen: int = 0
    """Number of partitions at its last sync."""

    def ready(self) -> None:
        owned = {TOPIC: sorted(self.places)} if self.places else {}
        name = "coop" if self.cooperative else "range"
        self.me.protocols = ((name, subscription([TOPIC], owned, self.me.generation)), ("other", subscription([TOPIC])))

    def lose_all(self) -> None:
        self.places, self.wants = frozenset(), "join"

    def apply_reply(self, answer: Answer) -> None:
        code = answer.code
        if isinstance(answer, JoinReply):
            self.me.joined(answer)
            if not code:
                self.to_assign = () if answer.skip_assignment else answer.members
                self.wants = "sync"
        elif isinstance(answer, SyncReply):
            self.me.synced(answer)
            if not code:
                now = frozenset((assigned(answer.assignment) or {}).get(TOPIC, ()))
                self.wants = "join" if self.cooperative and self.places - now else "beat"
                self.places = now
        else:
            self.me.refused(code)
        if code in (Code.REBALANCE_IN_PROGRESS, Code.MEMBER_ID_REQUIRED):
            self.wants = "join"
            if not self.cooperative:
                self.places = frozenset()
        elif code:
            self.lose_all()


def shares(heard: tuple[JoinedMember, ...], partitions: int) -> dict[str, set[int]]:
    """As a cooperative assignor: who has something keeps its share of it, and what others claim is given to nobody yet.
    Without claims, as an eager one."""
    share = -(-partitions // len(heard))
    given: dict[str, set[int]] = {}
    claimed: set[int] = set()
    for m in heard:
        said = read(m.metadata)
        mine = [p for p in (said.owned.get(TOPIC, ()) if said else ()) if p not in claimed]
        claimed.update(mine)
        given[m.member_id] = set(mine[:share])
    free = [p for p in range(partitions) if p not in claimed]
    for m in heard:
        while free and len(given[m.member_id]) < share:
            given[m.member_id].add(free.pop())
    return given


@dataclass
class Mixed:
    """All clients of one group."""

    world: MixedWorld
    rng: random.Random
    cooperative: bool
    partitions: int = 5
    old: list[Old] = field(default_factory=list)
    new: list[Client] = field(default_factory=list)
    made: Counter[str] = field(default_factory=Counter)
    number: int = 0
    waiting: dict[int, Old] = field(default_factory=dict)
    """Token -> who waits for its answer."""

    # ---- clients come and go -------------------------------------------------------------------------------
    def add_client(self) -> None:
        """An instance id is of one client at a time."""
        rng = self.rng
        self.number += 1
        taken = {o.me.instance_id for o in self.old} | {n.instance_id for n in self.new}
        free = [i for i in ("i1", "i2", "i3") if i not in taken]
        instance = rng.choice(free) if free and rng.random() < 0.4 else None
        if rng.random() < 0.5:
            version = 9 if instance else rng.choice((3, 9))
            self.old.append(self.fresh(ClassicClient(f"m{self.number}", GROUP, version, instance, made=self.made)))
        else:
            self.new.append(Client(self.world, GROUP, f"c{self.number}", (TOPIC,), None, instance))

    def fresh(self, me: ClassicClient) -> Old:
        me.session_ms, me.rebalance_ms = self.rng.choice((10_000, 20_000)), self.rng.choice((10_000, 30_000))
        return Old(me, self.cooperative)

    def leaves(self) -> None:
        if self.new and self.rng.random() < 0.6:
            n = self.new.pop(self.rng.randrange(len(self.new)))
            if n.epoch > 0:
                static = n.instance_id is not None and self.rng.random() < 0.5
                self.unless_lost(lambda: n.leave(-2 if static else -1))
        elif self.old:
            o = self.old.pop(self.rng.randrange(len(self.old)))
            if o.me.member_id and o.token not in self.waiting:
                self.send(replace_places(o), o.me.leave())

    def kill_client(self) -> None:
        """A member is killed: it sends no LeaveGroup."""
        crowd: list[Old] | list[Client] = self.rng.choice((self.old, self.new))
        if crowd:
            crowd.pop(self.rng.randrange(len(crowd)))

    def restarts(self) -> None:
        """A static member, perhaps with the other protocol; or a client that is rolled out anew."""
        static_old = [o for o in self.old if o.me.instance_id]
        static_new = [n for n in self.new if n.instance_id]
        self.number += 1
        if static_old and self.rng.random() < 0.5:
            o = self.rng.choice(static_old)
            self.old.remove(o)
            instance = o.me.instance_id
        elif static_new:
            n = self.rng.choice(static_new)
            self.new.remove(n)
            instance = n.instance_id
            if n.epoch > 0:
                self.unless_lost(lambda: n.leave(-2))
        else:
            return
        if self.rng.random() < 0.5:
            self.old.append(self.fresh(ClassicClient(f"m{self.number}", GROUP, 9, instance, made=self.made)))
        else:
            self.new.append(Client(self.world, GROUP, f"c{self.number}", (TOPIC,), None, instance))

    # ---- what they do --------------------------------------------------------------------------------------
    def unless_lost(self, act: object) -> None:
        try:
            assert callable(act)
            act()
        except LostError:
            self.world.lose()
            self.takeover()
        self.deliver()

    def acts(self, n: Client) -> None:
        self.unless_lost(n.heartbeat)

    def act(self, o: Old) -> None:
        if o.token in self.waiting:
            return
        if o.wants == "join" or (o.wants == "beat" and o.me.leads and o.seen != self.partitions):
            o.ready()
            self.send(o, self.unique(o))
        elif o.wants == "sync":
            o.seen = self.partitions
            given: Mapping[str, bytes] = {}
            if o.to_assign:
                mine = shares(o.to_assign, self.partitions)
                given = {m: assignment(3, [(TOPIC, tuple(sorted(ps)))]) for m, ps in mine.items()}
            self.send(o, o.me.sync(given))
        else:
            self.send(o, o.me.beat())

    def unique(self, o: Old) -> Event:
        event = o.me.join()
        event.new_id = f"{o.me.name}-{event.new_id}"
        return event

    def send(self, o: Old, event: Event) -> None:
        at = len(self.world.log)
        o.token = self.world.request(event)
        self.waiting[o.token] = o
        if len(self.world.log) > at and self.rng.random() < self.world.loses:
            self.world.lose()
            self.takeover()
        else:
            self.deliver()

    def deliver(self) -> None:
        replies, self.world.replies = self.world.replies, {}
        for token, reply in replies.items():
            o = self.waiting.pop(token, None)
            if o is not None and o.token == token:
                o.apply_reply(reply.answer)

    def takeover(self) -> None:
        self.world.replies.clear()
        self.world.running.clear()
        self.world.asked.clear()
        self.world.shard = self.world.rebuilt()
        for o in self.waiting.values():
            if o.wants == "sync" and self.rng.random() < 0.7:
                o.wants = "join"
        self.waiting.clear()

    def grows(self) -> None:
        self.partitions += 1
        self.world.topics(topic(1, TOPIC, self.partitions))

    def sleep(self, ms: int) -> None:
        until = self.world.now_ms + ms
        while self.world.now_ms < until:
            self.world.sleep(min(500, until - self.world.now_ms), 500)
            self.deliver()
            self.find_out()

    def find_out(self) -> None:
        """A client that was silent, or late, for too long knows it by its own clock.

        A static member that was late for a generation stays in the group, as at Kafka.
        """
        group = self.world.now_is
        for o in self.old:
            waits = o.token in self.waiting
            missed = isinstance(group, ClassicGroup) and not waits and o.me.generation < group.generation
            if o.me.member_id and (missed or not self.world.known_as(o.me.member_id)):
                o.places = frozenset()
        for n in self.new:
            if n.epoch and not self.world.known_as(n.member_id):
                n.epoch, n.owned = 0, {}

    def delete(self) -> None:
        self.world.ask(DeleteGroup(GROUP))

    # ---- what was promised ---------------------------------------------------------------------------------
    def check(self) -> None:
        owners: dict[int, str] = {}
        for o in self.old:
            for p in o.places:
                assert owners.setdefault(p, o.me.name) == o.me.name, f"{p} is of {owners[p]} and {o.me.name}"
        for n in self.new:
            for p in n.owned.get(topic_id(1), ()):
                assert owners.setdefault(p, n.member_id) == n.member_id, f"{p} is of {owners[p]} and {n.member_id}"
        group = self.world.now_is
        if isinstance(group, ConsumerGroup):
            classic = [m for m in group.members.values() if m.classic is not None]
            assert group.classic_members == len(classic)
            known = Counter(name for m in classic if m.classic for name in dict(m.classic.protocols))
            assert group.classic_protocols == known
            assert all(m.member_epoch <= group.epoch for m in group.members.values())
            held = {m.instance_id: m.member_id for m in group.members.values() if m.instance_id}
            assert group.static_members == held
        elif group is not None:
            given = [(assigned(a) or {}).get(TOPIC, ()) for a in group.assignments.values()]
            assert len({p for ps in given for p in ps}) == sum(map(len, given))
            assert group.assignments.keys() <= group.members.keys()


def replace_places(o: Old) -> Old:
    """One that leaves owns nothing any more."""
    return replace(o, places=frozenset())


def make(seed: int) -> Mixed:
    rng = random.Random(seed)
    world = MixedWorld(
        ConsumerConfig(
            join_wait_ms=0,
            assignment_interval_ms=rng.choice((0, 1000)),
            assignor_offload_enable=rng.random() < 0.5,
            assignors=rng.choice((("uniform", "range"), ("range",))),
            migration_policy=rng.choice(POLICIES),
        ),
        ClassicConfig(initial_rebalance_delay_ms=rng.choice((0, 3_000))),
    )
    world.fills(seed)
    world.rng, world.loses = rng, rng.choice((0.0, 0.01, 0.05))
    mixed = Mixed(world, rng, rng.random() < 0.5)
    world.topics(topic(1, TOPIC, mixed.partitions))
    return mixed
