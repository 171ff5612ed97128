"""Random members, faults, owners and a broker that initialises share state when it likes; what must hold of a share
group after every event."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from sidecar.core.runtime.effects import Effects
from sidecar.core.runtime.records import Partitions, Tombstone
from sidecar.core.share.config import ShareConfig
from sidecar.core.share.events import Operation, ShareAdmin, ShareAdministered
from sidecar.core.share.group import ShareGroup, assignable, union
from sidecar.core.share.records import CurrentRecord, Kind
from sidecar.core.vocabulary.errors import Code
from tests.core.share.world import Client, World, topic
from tests.harness.seeds import alone, hold
from tests.harness.tiers import Seeds

SEEDS = 200
EVENTS = 200
TOPICS = ("t0", "t1", "t2")
Place = tuple[bytes, int]


def places(parts: Partitions) -> set[Place]:
    return {(t, p) for t, ps in parts.items() for p in ps}


def as_partitions(found: set[Place]) -> dict[bytes, tuple[int, ...]]:
    return {t: tuple(sorted(p for u, p in found if u == t)) for t in sorted({t for t, _ in found})}


@dataclass
class Keeper:
    """The broker's share group `g`, and the share state."""

    world: World
    rng: random.Random
    state: set[Place] = field(default_factory=set)
    inside: bool = False
    """A placeholder member is in the group."""
    away: bool = False
    """The share coordinator."""
    stale: bool = False
    """The record may say more than there is: the placeholder member was thrown out, and an administrator came."""

    def step(self) -> None:
        """Initialises some partitions, if it can, and reports initialised ones: some of them or all."""
        held = self.world.held.get("g")
        if held is None:
            if self.inside and "g" in self.world.leaving:
                self.inside = False
                self.world.has_left("g")
            return
        self.inside = True
        topics = [self.world.shard.image.by_name[n] for n in held.topic_names if n in self.world.shard.image.by_name]
        shown = {(t.id, p) for t in topics for p in range(t.partitions)}
        missing = sorted(shown - self.state)
        if not self.away and missing:
            self.state |= set(self.rng.sample(missing, self.rng.randint(1, len(missing))))
        there = sorted(shown & self.state)
        whole = self.rng.random() < 0.7
        seen = set(there if whole else self.rng.sample(there, self.rng.randint(0, len(there))))
        self.stale = self.stale and not whole
        self.world.initialised("g", as_partitions(seen), whole)

    def finish(self) -> None:
        """Initialises and reports all partitions."""
        self.away = False
        for _ in range(8):
            self.step()
        held = self.world.held.get("g")
        if held is not None:
            ids = {
                self.world.shard.image.by_name[n].id for n in held.topic_names if n in self.world.shard.image.by_name
            }
            there = {(t, p) for t, p in self.state if t in ids}
            self.world.initialised("g", as_partitions(there), whole=True)
            self.stale = False

    def administer(self) -> None:
        """Refused while a member is in the group, as the broker does."""
        reply = self.world.ask(ShareAdmin("g", Operation.DELETE))
        if not reply.code and not self.inside and "g" in self.world.shard.groups:
            self.state -= set(self.rng.sample(sorted(self.state), len(self.state) // 2))
            self.world.ask(ShareAdministered("g", Operation.DELETE, "random"))

    def expire(self) -> None:
        """Plays a long absence of all sidecars: the placeholder member is thrown out, and an administrator deletes half
        of the state."""
        self.inside, self.stale = False, True
        self.state -= set(self.rng.sample(sorted(self.state), len(self.state) // 2))


@dataclass
class Run:
    rng: random.Random
    world: World = field(init=False)
    keeper: Keeper = field(init=False)
    clients: list[Client] = field(default_factory=list)
    counts: list[int] = field(default_factory=lambda: [4, 2, 1])
    made: int = 0
    epoch: int = 0
    member_epochs: dict[str, int] = field(default_factory=dict)
    assigned: dict[str, set[Place]] = field(default_factory=dict)
    """As the records say."""

    def __post_init__(self) -> None:
        rng = self.rng
        self.world = World(
            ShareConfig(
                join_wait_ms=rng.choice((0, 500)),
                assignment_interval_ms=rng.choice((0, 1000)),
                assignor_offload_enable=rng.random() < 0.5,
            )
        )
        self.world.applied = self.listen
        self.keeper = Keeper(self.world, rng)
        self.grow()

    def grow(self) -> None:
        self.world.topics(*(topic(i + 1, n, c) for i, (n, c) in enumerate(zip(TOPICS, self.counts, strict=True)) if c))

    # ---- events -------------------------------------------------------------------------------------------
    def event(self) -> None:
        what = self.rng.random()
        if what < 0.1 and len(self.clients) < 7:
            self.made += 1
            names = tuple(self.rng.sample(TOPICS, self.rng.randint(1, 3)))
            self.clients.append(Client(self.world, "g", f"m{self.made}", names))
        elif what < 0.3:
            self.once()
        elif what < 0.45:
            self.keeper.step()
        elif what < 0.52:
            self.world.finish("injected" if self.rng.random() < 0.1 else "")
        elif what < 0.54:
            self.world.sleep(self.rng.randint(1_000, 60_000), 500)
        elif self.clients:
            self.rng.choice(self.clients).send()
        self.world.sleep(self.rng.randint(1, 300), 50)

    def once(self) -> None:
        kind = self.rng.randrange(10)
        client = self.rng.choice(self.clients) if self.clients else None
        if kind == 0:
            i = self.rng.randrange(3)
            self.counts[i] = self.rng.choice((0, self.counts[i] + 1, self.counts[i] + 2))
            self.grow()
        elif kind == 1:
            self.takeover(self.rng.random() < 0.3)
        elif kind == 2:
            self.keeper.administer()
        elif kind == 3:
            self.keeper.away = not self.keeper.away
        elif kind == 4:
            if "g" in self.world.held:
                self.world.refused("g", Code.GROUP_AUTHORIZATION_FAILED)
        elif client is None:
            return
        elif kind == 5:
            self.clients.remove(client)
            if client.epoch:
                client.leave()
        elif kind == 6:
            self.clients.remove(client)  # dies without a word: its session will end
        elif kind == 7:
            client.send()
            client.lose()
        elif kind == 8:
            self.world.dying = True
            client.send()
            client.lose()
            self.takeover(expired=False)
        else:
            client.names = tuple(self.rng.sample(TOPICS, self.rng.randint(1, 3)))
            client.full = True

    def takeover(self, expired: bool) -> None:
        self.world.takeover()
        for c in self.clients:
            if c.token:
                c.lose()
        if expired:
            self.keeper.expire()
        self.world.sleep(1, 1)

    # ---- invariants ---------------------------------------------------------------------------------------
    def listen(self, fx: Effects) -> None:
        for r in fx.records:
            if isinstance(r, CurrentRecord):
                self.check_assigned(r)
            elif isinstance(r, Tombstone) and r.kind is Kind.CURRENT:
                self.assigned.pop(r.sub_id, None)
        for c in self.clients:
            unheard, reply = c.unheard, c.take_reply()
            if reply is not None:
                assert reply.code != Code.FENCED_MEMBER_EPOCH or unheard > 1, "it has missed one answer at most"
                self.check_answer(c)

    def check_assigned(self, r: CurrentRecord) -> None:
        """Checks that a member gets initialised partitions only. It may keep others for a while that no longer are."""
        more = places(r.assigned) - self.assigned.get(r.member_id, set())
        self.assigned[r.member_id] = places(r.assigned)
        image = self.world.shard.image
        group = self.world.group("g")
        assert more <= places(group.assignable(image)), "assigned what is not initialised"
        assert self.keeper.stale or more <= self.keeper.state, "assigned what the broker has no state of"
        topics = {image.by_id[t].name for t, _ in more}
        assert topics <= set(group.members[r.member_id].topic_names), "assigned what it does not subscribe to"

    def check_answer(self, c: Client) -> None:
        assert not c.died_of, f"{c.member_id} ends by {c.died_of.name}"
        if not c.epoch:
            self.member_epochs.pop(c.member_id, None)
            return
        assert c.epoch >= self.member_epochs.get(c.member_id, 0), "a member's epoch went back"
        self.member_epochs[c.member_id] = c.epoch

    def check(self) -> None:
        if "g" not in self.world.shard.groups:
            return
        group = self.world.group("g")
        assert group.epoch >= self.epoch, "the group epoch went back"
        self.epoch = group.epoch
        assert group.assignment_epoch <= group.epoch
        for m in group.members.values():
            assert m.member_epoch <= group.epoch
        if group.placeholder is not None and not group.members:
            assert not group.placeholder.initialised, "nobody watches over what was seen"
        exists = any(n in self.world.shard.image.by_name for n in group.subscribed_topics())
        assert "g" in self.world.held or not exists, "nobody has the share state initialised"
        assert group.members or "g" not in self.world.held, "the placeholder member does not leave"
        known = assignable(group.initialised, group.subscribed_topics(), self.world.shard.image)
        assert group.assignable(self.world.shard.image) == known
        assert group.differs(self.world.shard.image) == (
            union(map(group.target.of, group.target)) != {t: set(ps) for t, ps in known.items()}
        )

    def stop_faults(self) -> None:
        """Ends all faults and runs the group until it has converged."""
        self.keeper.away = False
        for _ in range(20):
            self.keeper.finish()
            for c in self.clients:
                c.send()
                self.world.finish()
                self.check()
            self.world.sleep(3_000, 500)
            self.world.finish()
            self.check()
        if not self.clients:
            assert not self.keeper.inside, "the placeholder member is in the broker's group for ever"
            return
        group, image = self.world.group("g"), self.world.shard.image
        for c in self.clients:
            assert c.partitions() == places(group.members[c.member_id].assigned), "it was not told of all"
        named = {n for c in self.clients for n in c.names}
        wanted = {(t.id, p) for n in named if (t := image.by_name.get(n)) for p in range(t.partitions)}
        assert set(group.members) == {c.member_id for c in self.clients}
        assert set().union(*(c.partitions() for c in self.clients)) == wanted, "nobody has a partition"
        assert group.epoch == group.assignment_epoch and not group.differs(image)
        self.balanced(wanted)

    def balanced(self, wanted: set[Place]) -> None:
        """Checks that members of one subscription have equally many partitions, but for one."""
        if len({frozenset(c.names) for c in self.clients}) == 1:
            sizes = [len(c.partitions()) for c in self.clients]
            assert max(sizes) - min(sizes) <= 1, sizes


def same_state(a: ShareGroup, b: ShareGroup) -> None:
    for name in ("epoch", "metadata_hash", "members", "assignment_epoch", "assignment_timestamp_ms", "assignor"):
        assert getattr(a, name) == getattr(b, name), name
    assert {m: a.target.of(m) for m in a.target} == {m: b.target.of(m) for m in b.target}
    assert a.initialised == b.initialised and a.held_bytes == b.held_bytes


def random_share(seed: int) -> None:
    run = Run(random.Random(seed))
    for _ in range(EVENTS):
        run.event()
        run.check()
    run.stop_faults()
    rebuilt = run.world.rebuilt()
    for group_id in run.world.shard.groups:
        other = rebuilt.groups[group_id]
        assert isinstance(other, ShareGroup)
        same_state(run.world.group(group_id), other)


def test_random_share(seeds: Seeds) -> None:
    hold(random_share, seeds.of(SEEDS), alone("tests/core/share/test_random_share.py::test_random_share"))
