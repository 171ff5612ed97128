"""A shard with a clock of its own, and members that behave as clients do."""

from __future__ import annotations

from dataclasses import dataclass, field

from sidecar.assign import BUILT_IN
from sidecar.assign.spec import Assignor
from sidecar.core.classic.config import CLASSIC, ClassicConfig
from sidecar.core.consumer.config import ConsumerConfig
from sidecar.core.consumer.events import ConsumerHeartbeat, HeartbeatReply
from sidecar.core.consumer.group import ConsumerGroup
from sidecar.core.consumer.regexes import RegexResolved, ResolveRegex
from sidecar.core.kinds import REGISTRY
from sidecar.core.modern.target_assignment import RunAssignor
from sidecar.core.runtime.effects import Count, Effects, Log, Observe, Reply
from sidecar.core.runtime.events import NO_TOKEN, Event
from sidecar.core.runtime.records import Partitions, Record, single
from sidecar.core.runtime.shard import Shard
from sidecar.core.runtime.topic_lookup import LookFirst, TopicsSeen
from sidecar.core.runtime.turn import Computed, Now, Ports
from sidecar.core.vocabulary.errors import Code
from sidecar.core.vocabulary.topic_regex import resolve
from sidecar.core.vocabulary.topics import Topic
from tests.core.one_shard import OneShard
from tests.harness.endings import Endings


def topic_id(n: int) -> bytes:
    return bytes(15) + bytes([n])


def topic(n: int, name: str, partitions: int, rack: str = "") -> Topic:
    return Topic(topic_id(n), name, ((rack,) if rack else (),) * partitions)


@dataclass
class World(OneShard):
    config: ConsumerConfig = field(
        default_factory=lambda: ConsumerConfig(assignor_offload_enable=False, join_wait_ms=0)
    )
    classic: ClassicConfig = field(default_factory=ClassicConfig)
    now_ms: int = 1_000_000
    skew_ms: int = 0
    """By how much the wall clock is wrong."""
    asks_access: bool = False
    assignors: dict[str, Assignor] = field(default_factory=lambda: dict(BUILT_IN))

    def __post_init__(self) -> None:
        self.shard = self.empty()
        self.log: list[Record] = []
        self.last = 0
        self.token = NO_TOKEN
        self.replies: dict[int, Reply] = {}
        self.asked: list[ResolveRegex] = []
        self.looks: list[LookFirst] = []
        self.sees = True
        """A look at topics takes no time; False: it ends with `see`."""
        self.running: list[RunAssignor] = []
        self.notes: list[Log | Count | Observe] = []
        """Notes for the log and the metrics; a reader takes them out."""
        self.endings = Endings(self._code_of_empty_shard)

    def empty(self, lease_ms: int = 0) -> Shard:
        config = Computed(lambda kind, group_id: self.classic if kind == CLASSIC else self.config)
        ports = Ports({"consumer": self.assignors}, config, lambda: self.asks_access)
        image = self.shard.image if hasattr(self, "shard") else None
        return Shard(REGISTRY, ports, image, self.now_ms + lease_ms if lease_ms else 0)

    def _code_of_empty_shard(self, event: Event) -> Code:
        """Returns the error code of a coordinator without groups."""
        replies = self.empty().handle(event, 1, self.now).replies
        return replies[0].answer.code if replies else Code.NONE

    @property
    def now(self) -> Now:
        return Now(self.now_ms, self.now_ms + self.skew_ms)

    def topics(self, *topics: Topic) -> None:
        image, changed = self.shard.image.next(topics)
        self.apply(self.shard.topics_changed(image, changed, self.now))

    def request(self, event: Event) -> int:
        """The token under which the answer comes, now or later, in `replies`."""
        self.token += 1
        self.endings.asked(self.token, event)
        self.apply(self.shard.handle(event, self.token, self.now))
        return self.token

    def send(self, hb: ConsumerHeartbeat) -> HeartbeatReply:
        reply = self.ask(hb)
        assert isinstance(reply, HeartbeatReply)
        return reply

    def resolve(self, heard: bool = True) -> None:
        """Answer what the shard asked of regular expressions. Not `heard`: the clients that asked are gone, and so
        nobody can say what they may see."""
        asked, self.asked = self.asked, []
        for ask in asked:
            image = self.shard.image
            if heard:
                found = resolve(ask.regexes, image.by_name)
                event = RegexResolved(ask.group_id, found, image.names_version)
            else:
                event = RegexResolved(ask.group_id, {}, image.names_version, ask.token)
            self.apply(self.shard.handle(event, NO_TOKEN, self.now))

    def apply(self, fx: Effects) -> None:
        if fx.records:
            self.last = len(self.log)
        self.log += single(fx.records)
        self.asked += [c for c in fx.background if isinstance(c, ResolveRegex)]
        self.running += [c for c in fx.background if isinstance(c, RunAssignor)]
        self.replies.update((r.token, r) for r in fx.replies)
        for r in fx.replies:
            self.endings.answered(r.token, r.answer)
        self.endings.check()
        self.notes += fx.notes
        self.looks += [c for c in fx.background if isinstance(c, LookFirst)]
        if self.sees:
            self.see()

    def see(self) -> None:
        """The topics were looked at for those that wait for it."""
        looks, self.looks = self.looks, []
        for look in looks:
            if look.request is not None:
                self.apply(self.shard.handle(TopicsSeen(look.group_id, look.request, look.token), NO_TOKEN, self.now))

    def lose(self) -> None:
        """The last event's records never reached the log: they go in one batch, or not at all."""
        del self.log[self.last :]
        self.endings.lost()

    def group(self, group_id: str) -> ConsumerGroup:
        found = self.shard.groups[group_id]
        assert isinstance(found, ConsumerGroup)
        return found

    def member_ids(self, group_id: str) -> set[str]:
        """Returns the member ids of a group of any kind; empty if the group does not exist."""
        found = self.shard.groups.get(group_id)
        return set() if found is None else set(getattr(found, "members", ()))

    def rebuilt_group(self, group_id: str) -> ConsumerGroup:
        found = self.rebuilt().groups[group_id]
        assert isinstance(found, ConsumerGroup)
        return found

    def rebuilt(self, lease_ms: int = 0) -> Shard:
        """A new owner's shard, from the compacted log. `lease_ms`: of the former owner."""
        return self.loaded(self.empty(lease_ms))


@dataclass
class Client:
    """A KIP-848 member: acknowledges revocations on its next heartbeat, rejoins when fenced."""

    world: World
    group_id: str
    member_id: str
    names: tuple[str, ...] | None = None
    regex: str | None = None
    instance_id: str | None = None
    rebalance_ms: int = 30_000
    epoch: int = 0
    owned: Partitions = field(default_factory=dict)
    gone: bool = False

    def heartbeat(self) -> HeartbeatReply:
        joining = self.epoch == 0
        hb = ConsumerHeartbeat(
            self.group_id,
            self.member_id,
            self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=self.rebalance_ms if joining else -1,
            topic_names=self.names if joining else None,
            topic_regex=self.regex if joining else None,
            owned={} if joining else self.owned,
        )
        reply = self.world.send(hb)
        if reply.code:
            self.epoch, self.owned = 0, {}
        else:
            self.epoch = reply.member_epoch
            if reply.assignment is not None:
                self.owned = reply.assignment
        return reply

    def leave(self, epoch: int = -1) -> HeartbeatReply:
        self.gone = True
        reply = self.world.send(ConsumerHeartbeat(self.group_id, self.member_id, epoch, instance_id=self.instance_id))
        self.epoch, self.owned = 0, {}
        return reply

    def partitions(self) -> set[tuple[bytes, int]]:
        return {(t, p) for t, ps in self.owned.items() for p in ps}
