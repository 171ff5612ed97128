"""Loading groups after a takeover in small steps: who waits, for how long, and in which order groups come."""

from __future__ import annotations

from collections.abc import Iterator

from sidecar.assign import BUILT_IN
from sidecar.core.consumer.config import ConsumerConfig
from sidecar.core.consumer.events import ConsumerHeartbeat, HeartbeatReply
from sidecar.core.kinds import REGISTRY
from sidecar.core.runtime.commands import Append, Claim, Command, Fence, Follow
from sidecar.core.runtime.effects import Reply
from sidecar.core.runtime.events import Answer, Event, ListGroups, ListReply
from sidecar.core.runtime.group_loader import AT_ONCE, load
from sidecar.core.runtime.owner import Owner
from sidecar.core.runtime.records import Record
from sidecar.core.runtime.service import Service
from sidecar.core.runtime.settings import ServiceSettings
from sidecar.core.runtime.shard import Shard
from sidecar.core.runtime.timers import DUE, SIFTED, Timers
from sidecar.core.runtime.turn import Computed, Now, Ports
from sidecar.core.vocabulary.errors import Code, InvariantError
from tests.core.world import Client, World, topic

CONFIG = ConsumerConfig()


class Log:
    """The log of these groups; counts each read of a record."""

    def __init__(self, records: list[Record]) -> None:
        self.of: dict[str, list[Record]] = {}
        for r in records:
            self.of.setdefault(r.group_id, []).append(r)
        self.read: list[str] = []
        self.damaged = ""

    def groups(self, partition: int) -> list[str]:
        return list(self.of)

    def size(self, partition: int, group_id: str) -> int:
        return len(self.of.get(group_id, ()))

    def records(self, partition: int, group_id: str) -> Iterator[Record | None]:
        yield None
        for r in REGISTRY.in_order(self.of[group_id]):
            if group_id == self.damaged:
                raise InvariantError("damaged")
            self.read.append(group_id)
            yield r


class NewOwner:
    """A sidecar that has taken the partition over and has loaded no group yet."""

    config = CONFIG

    def __init__(self, log: Log, hold_ms: int = 3_000, partitions: int = 1) -> None:
        self.at, self.log = 1_000, log
        ports = Ports({"consumer": BUILT_IN}, Computed(lambda kind, group_id: self.config))
        self.service = Service(1, partitions, REGISTRY, ports, log, ServiceSettings(hold_ms=hold_ms, load_at_once=8))
        self.replies: dict[int, Answer] = {}
        self.early: list[tuple[int, Event]] = []
        self.service.lease.extended(10**9)
        self.service.topics((topic(1, "t", 12),), self.now)

    @property
    def now(self) -> Now:
        return Now(self.at, self.at)

    @property
    def owner(self) -> Owner:
        return self.service.owners[0]

    def take_over(self) -> NewOwner:
        self.service.assigned([1] * len(self.service.owners), 1, {1}, self.now)
        self.drive()
        return self

    def drive(self) -> None:
        out: list[Command] = self.service.out
        while out:
            c = out.pop(0)
            if isinstance(c, Fence):
                self.service.owners[c.partition].lifecycle.fenced(c.attempt, 7, self.now)
            elif isinstance(c, Claim):
                self.service.owners[c.partition].lifecycle.claimed(c.attempt, 0, self.now)
            elif isinstance(c, Follow):
                self.service.owners[c.partition].replayed(c.attempt, self.now)
            elif isinstance(c, Append):
                self.service.owners[c.partition].committed(c.attempt, c.serial, self.now)
            elif isinstance(c, Reply):
                assert c.token not in self.replies
                self.replies[c.token] = c.answer

    def ask(self, token: int, event: Event) -> Answer | None:
        self.service.request(token, event, self.now)
        self.drive()
        return self.replies.get(token)

    def step(self) -> bool:
        more = self.owner.load_next(self.now)
        self.drive()
        return more

    def until_answered(self, token: int) -> int:
        """Returns the number of loading steps until the request is answered."""
        for steps in range(10_000):
            if token in self.replies:
                return steps
            self.step()
        raise AssertionError("it is never answered")

    def all(self) -> None:
        while self.step():
            pass


def written(**members: int) -> tuple[Log, dict[str, Client]]:
    """Returns the log of stable groups with this many members, and one client of each."""
    world = World(ConsumerConfig(assignor_offload_enable=False, assignment_interval_ms=0))
    world.topics(topic(1, "t", 12))
    one: dict[str, Client] = {}
    for group_id, count in members.items():
        clients = [Client(world, group_id, f"m{i}", ("t",)) for i in range(count)]
        for _ in range(4):
            for c in clients:
                c.heartbeat()
        one[group_id] = clients[0]
    return Log(world.compacted()), one


def beat(c: Client) -> ConsumerHeartbeat:
    return ConsumerHeartbeat(c.group_id, c.member_id, c.epoch)


def test_a_step_is_small_and_the_group_comes_whole() -> None:
    log, clients = written(g=50)
    s = NewOwner(log).take_over()
    assert s.ask(1, beat(clients["g"])) is None
    seen = 0
    while 1 not in s.replies:
        s.step()
        assert len(log.read) - seen <= 16
        seen = len(log.read)
        assert s.owner.shard is not None and ("g" in s.owner.shard.groups) == (seen == log.size(0, "g"))
    answer = s.replies[1]
    assert isinstance(answer, HeartbeatReply) and (answer.code, answer.member_epoch) == (Code.NONE, clients["g"].epoch)
    s.all()
    whole = Shard(REGISTRY, Ports({"consumer": BUILT_IN}, Computed(lambda kind, group_id: CONFIG)), s.owner.image)
    load(whole, "g", log.of["g"], s.now)
    shard = s.owner.shard
    assert shard is not None and vars_of(shard) == vars_of(whole)
    assert len(shard.timers) == len(whole.timers) >= 50 and s.service.tally.open == 0


def vars_of(shard: Shard) -> list[object]:
    group = shard.groups["g"]
    return [getattr(group, name) for name in ("epoch", "members", "owners", "assignment_epoch", "static_members")]


def test_a_small_group_is_loaded_with_its_first_request_and_waits_for_no_large_one() -> None:
    log, clients = written(large=60, small=2)
    s = NewOwner(log).take_over()
    s.step()
    assert s.ask(1, beat(clients["large"])) is None
    assert s.ask(2, beat(clients["small"])) is not None
    assert log.read.count("small") == log.size(0, "small")


def test_of_groups_that_somebody_waits_for_the_smaller_one_comes_first() -> None:
    log, clients = written(large=100, middle=10, idle=30)
    s = NewOwner(log).take_over()
    assert s.ask(1, beat(clients["large"])) is None
    for _ in range(3):
        s.step()
    assert s.ask(2, beat(clients["middle"])) is None
    assert s.until_answered(2) <= 8 and 1 not in s.replies
    s.until_answered(1)
    assert "idle" not in log.read, "nobody has asked for it yet"
    s.all()
    assert set(s.owner.shard.groups) == {"large", "middle", "idle"}  # type: ignore[union-attr]


def test_who_waits_is_answered_in_the_order_of_the_requests() -> None:
    log, clients = written(g=50)
    s = NewOwner(log).take_over()
    c = clients["g"]
    s.ask(1, beat(c))
    s.ask(2, ConsumerHeartbeat("g", c.member_id, -1))
    while s.owner.loader.queue.left:
        s.step()
    assert not s.replies
    assert s.ask(3, beat(c)) is None, "the group is there, but others have come before"
    s.all()
    assert [r.code for r in s.replies.values()] == [Code.NONE, Code.NONE, Code.UNKNOWN_MEMBER_ID]
    assert list(s.replies) == [1, 2, 3]


def test_who_waits_too_long_is_told_that_the_group_is_loading_and_nobody_is_forgotten() -> None:
    log, clients = written(g=50)
    s = NewOwner(log, hold_ms=300).take_over()
    s.ask(1, beat(clients["g"]))
    s.at += 200
    s.ask(2, beat(clients["g"]))
    s.at += 150
    s.service.wake(s.now)
    s.drive()
    assert list(s.replies) == [1] and s.replies[1].code == Code.COORDINATOR_LOAD_IN_PROGRESS
    s.all()
    assert s.replies[2].code == Code.NONE and s.service.tally.open == 0
    at_once = NewOwner(log, hold_ms=0).take_over()
    answer = at_once.ask(1, beat(clients["g"]))
    assert answer is not None and answer.code == Code.COORDINATOR_LOAD_IN_PROGRESS
    assert at_once.owner.loader.queue.next() == "g"


def test_requests_that_came_during_the_takeover_go_on_when_their_group_is_there() -> None:
    log, clients = written(g=50, h=2)
    s = NewOwner(log)
    s.service.assigned([1], 1, {1}, s.now)
    for token, group_id in ((1, "g"), (2, "h")):
        s.service.request(token, beat(clients[group_id]), s.now)
    s.service.request(3, ConsumerHeartbeat("new", "n", 0, rebalance_timeout_ms=1, topic_names=("t",), owned={}), s.now)
    s.drive()
    s.all()
    assert [s.replies[t].code for t in (1, 2)] == [Code.NONE] * 2 and s.owner.has("new")


def test_whoever_waits_when_the_partition_goes_away_is_sent_on() -> None:
    log, clients = written(g=50)
    s = NewOwner(log).take_over()
    s.ask(1, beat(clients["g"]))
    s.step()
    s.service.lost("a test")
    s.drive()
    assert s.replies[1].code == Code.NOT_COORDINATOR and s.service.tally.open == 0
    assert s.step() is False


def test_a_group_that_cannot_be_read_refuses_who_waits_and_the_others_go_on() -> None:
    log, clients = written(bad=50, good=50)
    log.damaged = "bad"
    s = NewOwner(log).take_over()
    s.ask(1, beat(clients["bad"]))
    s.ask(2, beat(clients["good"]))
    s.all()
    assert [s.replies[t].code for t in (1, 2)] == [Code.COORDINATOR_NOT_AVAILABLE, Code.NONE]
    assert s.owner.has("bad") and s.service.tally.open == 0


def test_a_list_of_groups_waits_until_all_are_loaded() -> None:
    log, _ = written(g=50, h=50)
    s = NewOwner(log).take_over()
    assert s.ask(1, ListGroups()) is None
    s.all()
    s.service.wake(s.now)
    s.drive()
    answer = s.replies[1]
    assert isinstance(answer, ListReply) and {g.group_id for g in answer.groups} == {"g", "h"}
    late = NewOwner(log, hold_ms=100).take_over()
    late.ask(1, ListGroups())
    late.at += 150
    late.service.wake(late.now)
    late.drive()
    assert late.replies[1].code == Code.COORDINATOR_LOAD_IN_PROGRESS and late.service.tally.open == 0


def test_requests_load_few_groups_before_the_driver_goes_on() -> None:
    """Symptom: after a takeover each request loaded its small group at once, 10,000 of them in one iteration of the
    loop."""
    log, clients = written(**{f"g{i}": 1 for i in range(3 * AT_ONCE)})
    s = NewOwner(log).take_over()
    for token, c in enumerate(clients.values(), 1):
        s.ask(token, ConsumerHeartbeat(c.group_id, c.member_id, c.epoch))
    assert len(s.replies) == len(s.owner.shard.groups) == AT_ONCE  # type: ignore[union-attr]
    s.step()
    assert s.ask(-1, ConsumerHeartbeat(list(clients)[-1], "m0", 1)) is None, "it must not overtake the one before"
    s.all()
    assert list(s.replies)[-1] == -1 and len(s.replies) == 3 * AT_ONCE + 1
    assert s.service.tally.open == 0


def test_many_timers_are_looked_at_in_parts() -> None:
    t = Timers()
    for i in range(3 * SIFTED):
        t.set(("session", str(i)), 10)
    for i in range(3 * SIFTED):
        t.set(("session", str(i)), 1_000)
    assert list(t.expired(20)) == [] and t.behind
    for _ in range(3):
        assert list(t.expired(20)) == []
    assert not t.behind and t.next_ms() == 1_000
    told = [key for key, _ in t.expired(2_000)]
    assert len(told) == DUE and t.behind
    while t.behind:
        told += [key for key, _ in t.expired(2_000)]
    assert len(set(told)) == len(told) == 3 * SIFTED and len(t) == 0


def test_timers_of_all_partitions_share_the_work_of_one_wake() -> None:
    """Symptom: 5,000 sessions that ended together were handled in one wake of 1.1 s, as the limit was that of each
    partition."""
    s = NewOwner(Log([]), partitions=3).take_over()
    timers = [o.shard.timers for o in s.service.owners if o.shard is not None]
    for each in timers:
        for i in range(2 * DUE):
            each.set(("session", "gone", str(i)), s.at)
    for wakes in range(1, 4):
        s.at += 1
        s.service.wake(s.now)
        assert sum(map(len, timers)) == (6 - wakes) * DUE
        assert s.service.rest_s(s.now, 1.0) < 0.01
    assert [len(each) for each in timers] == [DUE] * 3, "each partition has its turn"
    for _ in range(3):
        s.at += 1
        s.service.wake(s.now)
    assert not any(map(len, timers)) and s.service.rest_s(s.now, 1.0) == 1.0
