"""Members of a classic group as they are in the wild: most do what they should, some do not, and coordinators change.
What they are told is held against what the protocol promises (test_random_classic.py)."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace

from sidecar.core.classic.config import ClassicConfig
from sidecar.core.classic.embedded import assigned, assignment
from sidecar.core.classic.events import (
    ClassicHeartbeat,
    JoinReply,
    LeaveGroup,
    LeaveReply,
    Leaving,
    SyncGroup,
    SyncReply,
)
from sidecar.core.classic.group import ClassicGroup
from sidecar.core.classic.records import State
from sidecar.core.classic.soft_state import ClassicSoft
from sidecar.core.runtime.effects import Effects
from sidecar.core.runtime.events import Answer, Event
from sidecar.core.runtime.member_limits import MemberLimits
from sidecar.core.runtime.records import Record
from sidecar.core.runtime.shard import Shard
from sidecar.core.vocabulary.errors import Code
from sidecar.state.codec import Stamp, StateCodec
from sidecar.state.keys import decode_key
from tests.core.classic_client import ClassicClient, subscription
from tests.core.world import World

GROUP = "g"
SLOWEST_MS, DELAY_MS = 40_000, 3_000
"""The longest rebalance timeout of a member, and the initial delay."""
BOUND_MS = SLOWEST_MS + DELAY_MS + 1_000
"""No request waits longer than that."""
STRIDE = 100
"""Each SyncGroup of a leader gives partitions of a hundred of its own: so one sees by whom something was assigned."""
FORBIDDEN = (0, 1)
"""Partitions that followers assign, although only the leader may."""
ASK_AGAIN = (
    Code.NOT_COORDINATOR,
    Code.COORDINATOR_LOAD_IN_PROGRESS,
    Code.GROUP_MAX_SIZE_REACHED,
    Code.REBALANCE_IN_PROGRESS,
)


class ClassicWorld(World):
    """No request is answered twice, and every record passes the codec before a takeover."""

    codec = StateCodec()
    full: float = 0.0
    """The probability that members may not take more memory."""
    luck: random.Random

    def __post_init__(self) -> None:
        super().__post_init__()
        self.answered: set[int] = set()

    def empty(self, lease_ms: int = 0) -> Shard:
        shard = super().empty(lease_ms)
        limits = MemberLimits()
        held = lambda: limits.members_bytes if self.full and self.luck.random() < self.full else 0  # noqa: E731
        shard._turn.ports = replace(shard._turn.ports, limits=replace(limits, held=held))
        return shard

    def fills(self, seed: int) -> None:
        """Lets the memory of all groups be full now and then, in one of three seeds."""
        self.full, self.luck = (0.2 if seed % 3 == 2 else 0.0), random.Random(seed)

    def apply(self, fx: Effects) -> None:
        for r in fx.replies:
            assert r.token not in self.answered, "a request is answered once"
            self.answered.add(r.token)
        super().apply(fx)

    def compacted(self) -> list[Record]:
        encoded = [self.codec.encode(r, Stamp(1, 1), 0) for r in super().compacted()]
        return [self.codec.decode(decode_key(e.key), e.value)[0] for e in encoded if e.value is not None]

    def replayed(self) -> Shard:
        """A shard from the whole log, record by record, as the live one was made."""
        shard = self.empty()
        for r in self.log:
            shard.replay(r)
        return shard

    @property
    def classic_group(self) -> ClassicGroup | None:
        found = self.shard.groups.get(GROUP)
        assert found is None or isinstance(found, ClassicGroup)
        return found


@dataclass
class Actor:
    """One client. `wants` is what it does next when it is asked to act: join, sync, beat; doze, which is to send
    heartbeats without having synced; or nothing, if it only made one odd request."""

    me: ClassicClient
    wants: str = "join"
    token: int = 0
    since_ms: int = 0
    to_assign: tuple[str, ...] = ()
    """The members, if it leads."""
    places: frozenset[int] = frozenset()
    dead: bool = False
    """The client has ended."""


def root(member_id: str) -> str:
    """A static member by its instance id, whatever its member id is now."""
    return member_id.partition("-")[0] if member_id.startswith("i") else member_id


@dataclass
class Crowd:
    """All clients of one group, and checks of the answers that they get."""

    world: ClassicWorld
    rng: random.Random
    faults: float = 1.0
    """Factor for the probability of each fault."""
    sloth: bool = False
    """The next leader does not sync, but sends heartbeats all the same."""
    actors: list[Actor] = field(default_factory=list)
    made: Counter[str] = field(default_factory=Counter)
    number: int = 0
    syncs: int = 0
    newest: int = -1
    """The highest generation in any answer."""
    announced: dict[int, tuple[str, str | None]] = field(default_factory=dict)
    """Generation -> leader and protocol."""
    given: dict[int, dict[int, str]] = field(default_factory=dict)
    """Generation -> partition -> whose it is."""
    waiting: dict[int, tuple[Actor, Event, int]] = field(default_factory=dict)
    """Token -> who waits, for the answer to what, since when."""

    # ---- clients -------------------------------------------------------------------------------------------
    def add_client(self) -> None:
        rng = self.rng
        self.number += 1
        version = rng.choice((0, 3, 4, 5, 8, 9, 9, 9))
        static = version >= 5 and rng.random() < 0.4
        instance = f"i{rng.randint(1, 4)}" if static else None
        me = ClassicClient(f"m{self.number}", GROUP, version, instance, made=self.made)
        me.session_ms = rng.choice((6_000, 10_000, 20_000))
        me.rebalance_ms = rng.choice((10_000, 20_000, SLOWEST_MS))
        me.protocols = self.protocols(Actor(me))
        self.actors.append(Actor(me))

    def protocols(self, a: Actor) -> tuple[tuple[str, bytes], ...]:
        names = self.rng.choice((("range",), ("range", "coop"), ("coop", "range"), ("range", "range", "x")))
        owned = {"t": sorted(a.places)} if a.places and self.rng.random() < 0.8 else {}
        said = subscription(["t"], owned, a.me.generation, self.rng.choice((1, 2, 3)))
        return tuple((name, said) for name in names)

    # ---- what they do --------------------------------------------------------------------------------------
    def send(self, a: Actor, event: Event) -> None:
        """Sends a request. The answer comes now, later, or never if its records are lost."""
        at = len(self.world.log)
        token = self.world.request(event)
        self.waiting[token] = (a, event, self.world.now_ms)
        a.token = token
        if len(self.world.log) > at and self.rng.random() < 0.03 * self.faults:
            self.world.lose()
            self.takeover()
        else:
            self.deliver()

    def act(self, a: Actor) -> None:
        """Sends the next request that a client should send."""
        if a.token in self.waiting or a.dead:
            return
        if a.wants == "join":
            self.send(a, a.me.join())
        elif a.wants == "sync" and not (a.to_assign and self.sloth):
            self.send(a, a.me.sync(self.assign(a) if a.to_assign else {}))
        elif a.wants == "sync":
            a.wants, self.sloth = "doze", False
        elif a.wants == "beat" and self.rng.random() < 0.1:
            self.send(a, a.me.commit())
        else:
            self.send(a, a.me.beat())

    def assign(self, a: Actor) -> dict[str, bytes]:
        """Each member gets a partition or two of a hundred that nobody was given before; one may be forgotten."""
        self.syncs += 1
        parts = iter(range(self.syncs * STRIDE, (self.syncs + 1) * STRIDE))
        members = [m for m in a.to_assign if self.rng.random() < 0.97]
        return {m: assignment(3, [("t", tuple(next(parts) for _ in range(self.rng.randint(0, 2))))]) for m in members}

    def misbehave(self, a: Actor) -> None:
        rng, me = self.rng, a.me
        other = rng.choice(self.actors).me
        odd = replace(me, generation=me.generation + rng.choice((-1, 0, 1)), made=self.made)
        if rng.random() < 0.3:
            odd.member_id = rng.choice((other.member_id, me.member_id, "nobody-1", ""))
        if rng.random() < 0.2:
            odd.instance_id = rng.choice((other.instance_id, None, "i9"))
        stranger = Actor(odd, wants="nothing")
        what = rng.randrange(7)
        if what == 0:
            odd.protocols = rng.choice((self.protocols(a), (("other", b""),), ()))
            self.send(stranger, odd.join())
        elif what == 1:
            leads = self.world.classic_group is not None and self.world.classic_group.leader == odd.member_id
            self.send(stranger, odd.sync({} if leads else {a.me.member_id: assignment(3, [("t", FORBIDDEN)])}))
        elif what == 2:
            self.send(stranger, odd.beat())
        elif what == 3:
            self.send(stranger, odd.commit(transactional=rng.random() < 0.5))
        elif what == 4 and me.instance_id is not None:
            self.send(stranger, LeaveGroup(GROUP, (Leaving("", me.instance_id, None), Leaving("", "i9", None))))
        elif what == 5 and a.wants == "sync":
            a.wants = "doze"  # it never syncs
        elif not a.dead and a.token in self.waiting:
            again = a.me.join() if a.wants == "join" else a.me.sync({})
            if a.wants == "join" or not a.to_assign:  # its connection broke, and it asks again
                self.send(a, again)

    def leave(self, a: Actor) -> None:
        self.actors.remove(a)
        if a.me.member_id and not a.dead:
            self.send(Actor(a.me, wants="nothing"), a.me.leave())

    def restart(self, a: Actor) -> None:
        """The client starts again without a member id."""
        self.actors.remove(a)
        fresh = replace(a.me, member_id="", generation=-1, leads=False, made=self.made)
        self.actors.append(Actor(fresh))

    def takeover(self) -> None:
        """Waiting clients get NOT_COORDINATOR and ask the next owner."""
        self.world.replies.clear()
        self.world.shard = self.world.rebuilt()
        for a, _, _ in self.waiting.values():
            if self.rng.random() < 0.7:
                a.wants = "join" if a.wants == "sync" else a.wants
        self.waiting.clear()

    # ---- what they hear ------------------------------------------------------------------------------------
    def deliver(self) -> None:
        replies, self.world.replies = self.world.replies, {}
        joined = set()
        for token, reply in replies.items():
            a, event, _ = self.waiting.pop(token)
            answer = reply.answer
            if isinstance(answer, JoinReply) and not answer.code:
                joined.add(answer.generation)
                self.check_join(answer)
            elif isinstance(answer, SyncReply) and not answer.code:
                self.check_sync(event, answer)
            elif isinstance(event, ClassicHeartbeat) and not answer.code:
                self.check_member(event)
            if a.token == token:
                self.apply_reply(a, answer)
        assert len(joined) <= 1, "one event answers for one generation"

    def apply_reply(self, a: Actor, answer: Answer) -> None:
        if isinstance(answer, JoinReply):
            a.me.joined(answer)
            if not answer.code:
                a.wants = "sync" if a.wants != "nothing" else "nothing"
                a.to_assign = () if answer.skip_assignment else tuple(m.member_id for m in answer.members)
        elif isinstance(answer, SyncReply):
            a.me.synced(answer)
            if not answer.code:
                a.wants = "beat" if a.wants != "nothing" else "nothing"
                a.places = frozenset((assigned(answer.assignment) or {}).get("t", ()))
        elif isinstance(answer, LeaveReply):
            return
        self.trouble(a, answer.code)

    def trouble(self, a: Actor, code: Code) -> None:
        if a.wants == "nothing" or not code:
            return
        a.me.refused(code)
        a.wants = "join"
        if code == Code.FENCED_INSTANCE_ID:
            a.dead = True  # somebody else has its instance id
        elif code == Code.INCONSISTENT_GROUP_PROTOCOL:
            group = self.world.classic_group
            others = () if group is None else group.members.values()
            assert any("range" not in dict(m.protocols) for m in others), "the others support what this client names"
            a.me.protocols = (("range", subscription(["t"])),)
        elif code not in (*ASK_AGAIN, Code.UNKNOWN_MEMBER_ID, Code.MEMBER_ID_REQUIRED, Code.ILLEGAL_GENERATION):
            raise AssertionError(f"{a.me.name} was told {code.name}")

    # ---- what was promised ---------------------------------------------------------------------------------
    def check_join(self, reply: JoinReply) -> None:
        assert reply.generation >= self.newest, "generations never go back"
        self.newest = reply.generation
        known = self.announced.setdefault(reply.generation, (root(reply.leader), reply.protocol))
        assert known == (root(reply.leader), reply.protocol), "all members of a generation hear the same of it"
        if reply.members:
            assert reply.leader == reply.member_id, "only the leader hears who is there"
            group = self.world.classic_group
            assert group is not None and {m.member_id for m in reply.members} == group.members.keys()

    def check_member(self, e: SyncGroup | ClassicHeartbeat) -> ClassicGroup:
        group = self.world.classic_group
        assert group is not None and e.generation == group.generation, "nobody goes on in an older generation"
        assert e.member_id in group.members and group.state is not State.PREPARING
        assert e.instance_id is None or group.static[e.instance_id] == e.member_id
        return group

    def check_sync(self, e: Event, reply: SyncReply) -> None:
        assert isinstance(e, SyncGroup)
        group = self.check_member(e)
        assert group.state is State.STABLE
        holders = self.given.setdefault(group.generation, {})
        for p in (assigned(reply.assignment) or {}).get("t", ()):
            assert p not in FORBIDDEN, "only the leader assigns"
            assert holders.setdefault(p, root(e.member_id)) == root(e.member_id), "a partition is given once"
        assert len({p // STRIDE for p in holders}) <= 1, "one SyncGroup of the leader decides for a generation"

    def check(self) -> None:
        """After every event."""
        for a, _, since in self.waiting.values():
            assert self.world.now_ms - since <= BOUND_MS, f"{a.me.name} waits for an answer for ever"
        group = self.world.classic_group
        if group is None:
            return
        soft = self.world.shard.soft[GROUP]
        assert isinstance(soft, ClassicSoft)
        assert (group.state is State.EMPTY) <= (not group.members)
        assert (group.state in (State.COMPLETING, State.STABLE)) <= (group.leader in group.members)
        assert group.assignments.keys() <= group.members.keys()
        assert group.static == {m.instance_id: m.member_id for m in group.members.values() if m.instance_id}
        assert group.supported == Counter(n for m in group.members.values() for n in dict(m.protocols))
        assert soft.joins.keys() <= group.members.keys() and soft.syncs.keys() <= group.members.keys()
        assert (not soft.joins) or group.state is State.PREPARING
        assert (not soft.syncs) or group.state is State.COMPLETING
        waiting = {*soft.joins.values(), *soft.syncs.values()}
        assert waiting == self.waiting.keys(), "who waits for an answer will get one"

    def same_after_a_rebuild(self) -> None:
        group = self.world.classic_group
        for shard in (self.world.rebuilt(), self.world.replayed()):
            made = shard.groups.get(GROUP)
            assert (made is None) == (group is None)
            assert group is None or made == group


def make(seed: int) -> Crowd:
    rng = random.Random(seed)
    world = ClassicWorld()
    world.fills(seed)
    world.classic = ClassicConfig(
        initial_rebalance_delay_ms=rng.choice((0, DELAY_MS)),
        max_size=rng.choice((3, 100, 100, 100)),
        new_member_join_timeout_ms=rng.choice((300_000, 15_000)),
        stale_claims=rng.choice(("report", "strip")),
    )
    return Crowd(world, rng, rng.choice((0.1, 0.3, 1.0)))
