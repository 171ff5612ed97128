"""A shard with a clock of its own, a broker's topics, and members of streams groups that behave as Java's do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sidecar.assign.sticky import STICKY
from sidecar.assign.task_spec import TaskAssignor
from sidecar.core.kinds import REGISTRY
from sidecar.core.modern.target_assignment import RunAssignor
from sidecar.core.runtime.effects import Count, Effects, Log, Observe, Reply
from sidecar.core.runtime.events import NO_TOKEN, Event
from sidecar.core.runtime.records import Record, single
from sidecar.core.runtime.shard import Shard
from sidecar.core.runtime.topic_lookup import LookFirst, TopicsSeen
from sidecar.core.runtime.turn import Computed, Now, Ports
from sidecar.core.streams.config import STREAMS, StreamsConfig
from sidecar.core.streams.events import EndpointPartitions, StreamsHeartbeat, StreamsHeartbeatReply, TaskOffset
from sidecar.core.streams.group import StreamsGroup
from sidecar.core.streams.internal_topics import NewTopic
from sidecar.core.streams.records import Endpoint
from sidecar.core.streams.tasks import NO_TASKS, Partitions, TaskIds, Tasks
from sidecar.core.streams.topology import Subtopology, TopicInfo, Topology
from sidecar.core.vocabulary.errors import Code
from sidecar.core.vocabulary.topics import Topic
from tests.core.one_shard import OneShard
from tests.core.world import topic, topic_id

__all__ = ["REGISTRY", "Client", "World", "topic", "topic_id"]
NATURAL = frozenset((Code.NONE, Code.UNKNOWN_MEMBER_ID, Code.FENCED_MEMBER_EPOCH))
"""Codes that a live member may get. Any other code of the core ends Java's client for good."""
TOPOLOGY = Topology(
    1,
    (
        Subtopology("0", ("in",), ("app-r",)),
        Subtopology(
            "1", (), (), (TopicInfo("app-r"),), (TopicInfo("app-c", configs=(("cleanup.policy", "compact"),)),)
        ),
    ),
)
"""A subtopology without state that writes to a repartition topic, and one with state that reads it."""


def quick(**settings: object) -> StreamsConfig:
    """Returns a configuration in which no answer waits for an assignor run."""
    known = {"assignor_offload_enable": False, "join_wait_ms": 0, "initial_rebalance_delay_ms": 0}
    return StreamsConfig(**{**known, **settings})  # type: ignore[arg-type]


@dataclass
class World(OneShard):
    config: StreamsConfig = field(default_factory=quick)
    assignors: dict[str, TaskAssignor] = field(default_factory=lambda: {"sticky": STICKY})
    now_ms: int = 1_000_000
    clock_ms: int = 0
    """Milliseconds by which the owner's wall clock is ahead of the monotonic one."""

    def __post_init__(self) -> None:
        self.counts: dict[str, int] = {}
        """The broker's topics."""
        self.ids: dict[str, int] = {}
        self.shard = self.empty()
        self.log: list[Record] = []
        self.last = 0
        self.token = NO_TOKEN
        self.replies: dict[int, Reply] = {}
        self.running: list[RunAssignor] = []
        self.looks: list[LookFirst] = []
        self.notes: list[Log | Count | Observe] = []
        self.dying = False
        """The owner's replies and records are lost from now on."""
        self.applied: Callable[[Effects], None] = lambda fx: None
        """Called after each event."""

    def empty(self) -> Shard:
        config = Computed(lambda kind, group_id: self.config if kind == STREAMS else REGISTRY.kinds[kind].config())
        image = self.shard.image if hasattr(self, "shard") else None
        return Shard(REGISTRY, Ports({STREAMS: self.assignors}, config), image)

    @property
    def now(self) -> Now:
        return Now(self.now_ms, self.now_ms + self.clock_ms)

    # ---- in -----------------------------------------------------------------------------------------------
    def topics(self, **counts: int) -> None:
        """The broker has these topics now, and no others."""
        self.counts = {n.replace("_", "-"): c for n, c in counts.items() if c}
        self.look()

    def grow(self, topics: Mapping[str, int]) -> None:
        """Topics come, grow, or go (0)."""
        self.counts = {n: c for n, c in {**self.counts, **topics}.items() if c}
        self.look()

    def look(self) -> None:
        made: list[Topic] = []
        for name, count in self.counts.items():
            made.append(topic(self.ids.setdefault(name, len(self.ids) + 1), name, count))
        image, changed = self.shard.image.next(made)
        self.apply(self.shard.topics_changed(image, changed, self.now))

    def request(self, event: Event) -> int:
        """The token under which the answer comes, now or later, in `replies`."""
        self.token += 1
        self.apply(self.shard.handle(event, self.token, self.now))
        return self.token

    # ---- out ----------------------------------------------------------------------------------------------
    def apply(self, fx: Effects) -> None:
        if self.dying:
            return
        if fx.records:
            self.last = len(self.log)
        self.log += single(fx.records)
        self.replies.update((r.token, r) for r in fx.replies)
        self.applied(fx)
        self.notes += fx.notes
        looks = []
        for item in fx.background:
            if isinstance(item, RunAssignor):
                self.running.append(item)
            else:
                assert isinstance(item, LookFirst)
                self.looks.append(item)
                looks.append(item)
        for look in looks:
            if look.request is not None:
                self.deliver(TopicsSeen(look.group_id, look.request, look.token))

    # ---- state --------------------------------------------------------------------------------------------
    def group(self, group_id: str = "g") -> StreamsGroup:
        found = self.shard.groups[group_id]
        assert isinstance(found, StreamsGroup)
        return found

    def rebuilt(self) -> Shard:
        """A new owner's shard, from the compacted log."""
        return self.loaded(self.empty())

    def takeover(self, lost: bool = False) -> None:
        """Moves the partition to a new owner. `lost`: the records of the last event never reached the log."""
        if lost:
            del self.log[self.last :]
        self.dying = False
        self.running.clear()
        self.replies.clear()
        self.shard = self.rebuilt()


@dataclass
class Client:
    """A KIP-1071 member, as Java's: it brings its topology with its first heartbeat, names its tasks when they have
    changed and after each failure, gives up what it is told to, and joins anew when told."""

    world: World
    member_id: str
    group_id: str = "g"
    process_id: str = ""
    topology: Topology = TOPOLOGY
    instance_id: str | None = None
    endpoint: Endpoint | None = None
    client_tags: tuple[tuple[str, str], ...] | None = None
    rebalance_timeout_ms: int = 30_000
    version: int = 1
    epoch: int = 0
    endpoint_epoch: int = -1
    tasks: Tasks = NO_TASKS
    full: bool = True
    """The next heartbeat names the member's tasks."""
    offsets: tuple[TaskOffset, ...] | None = None
    shutdown: bool = False
    token: int = NO_TOKEN
    """Token of the open request."""
    unheard: int = 0
    """Answers lost since the last one that arrived."""
    died_of: Code = Code.NONE
    endpoints: tuple[EndpointPartitions, ...] = ()
    create: list[NewTopic] = field(default_factory=list)
    """Topics that its front should create."""

    def __post_init__(self) -> None:
        self.process_id = self.process_id or f"p-{self.member_id}"

    def request(self) -> StreamsHeartbeat:
        joins = self.epoch == 0
        tells = joins or self.full
        return StreamsHeartbeat(
            self.group_id,
            self.member_id,
            self.epoch,
            endpoint_epoch=self.endpoint_epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=self.rebalance_timeout_ms if tells else -1,
            topology=self.topology if joins else None,
            active_tasks=as_ids(self.tasks.active) if tells else None,
            standby_tasks=as_ids(self.tasks.standby) if tells else None,
            warmup_tasks=as_ids(self.tasks.warmup) if tells else None,
            process_id=self.process_id if tells else None,
            endpoint=self.endpoint if tells else None,
            client_tags=self.client_tags if tells else None,
            task_offsets=self.offsets,
            shutdown_application=self.shutdown,
            client_id=self.member_id,
            client_host="/h",
            version=self.version,
        )

    def heartbeat(self) -> StreamsHeartbeatReply:
        """The answer, which must come at once."""
        self.send()
        reply = self.take_reply()
        assert reply is not None, "it waits"
        return reply

    def send(self) -> None:
        """One request; an answer to an earlier one is not read any more."""
        hb = self.request()
        self.full = False
        self.token = self.world.token + 1
        self.world.request(hb)

    def take_reply(self) -> StreamsHeartbeatReply | None:
        """Takes the answer, if it has come, and applies it to the member."""
        reply = self.world.replies.pop(self.token, None)
        if reply is None:
            return None
        self.token = NO_TOKEN
        assert isinstance(reply.answer, StreamsHeartbeatReply)
        self.apply_reply(reply.answer)
        self.unheard = 0
        return reply.answer

    def lose(self) -> None:
        """The request has no answer: the next one is a full one."""
        self.token, self.full = NO_TOKEN, True
        self.unheard += 1

    def apply_reply(self, reply: StreamsHeartbeatReply) -> None:
        if reply.code:
            if reply.code not in NATURAL:
                self.died_of = Code(reply.code)
            self.epoch, self.endpoint_epoch, self.tasks, self.full = 0, -1, NO_TASKS, True
            return
        self.epoch, self.endpoint_epoch = reply.member_epoch, reply.endpoint_epoch
        self.create += reply.create
        if reply.partitions_by_endpoint is not None:
            self.endpoints = reply.partitions_by_endpoint
        if reply.active_tasks is not None:
            self.tasks = Tasks(reply.active_tasks, reply.standby_tasks or {}, reply.warmup_tasks or {})
            self.full = True

    def leave(self, epoch: int = -1) -> StreamsHeartbeatReply:
        hb = StreamsHeartbeat(
            self.group_id,
            self.member_id,
            epoch,
            instance_id=self.instance_id,
            shutdown_application=self.shutdown,
        )
        reply = self.world.ask(hb)
        assert isinstance(reply, StreamsHeartbeatReply)
        self.epoch, self.endpoint_epoch, self.tasks, self.token, self.full = 0, -1, NO_TASKS, NO_TOKEN, True
        return reply

    def active(self) -> set[tuple[str, int]]:
        return tasks_of(self.tasks.active)


def as_ids(tasks: Partitions) -> tuple[TaskIds, ...]:
    return tuple(tasks.items())


def tasks_of(tasks: Partitions) -> set[tuple[str, int]]:
    return {(s, p) for s, ps in tasks.items() for p in ps}
