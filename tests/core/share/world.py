"""A shard with a clock of its own, members of share groups that behave as Java's clients do, and a broker's share group
that a placeholder member is in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sidecar.assign.share import ShareAssignor
from sidecar.assign.simple import SIMPLE
from sidecar.core.kinds import REGISTRY
from sidecar.core.modern.target_assignment import RunAssignor
from sidecar.core.runtime.effects import Count, Effects, Log, Observe, Reply
from sidecar.core.runtime.events import NO_TOKEN, Event
from sidecar.core.runtime.records import Partitions, Record, single
from sidecar.core.runtime.shard import Shard
from sidecar.core.runtime.topic_lookup import LookFirst, TopicsSeen
from sidecar.core.runtime.turn import Computed, Now, Ports
from sidecar.core.share.config import SHARE, ShareConfig
from sidecar.core.share.events import (
    PlaceholderLeft,
    PlaceholderRefused,
    ShareHeartbeat,
    ShareHeartbeatReply,
    ShareInitialised,
)
from sidecar.core.share.group import ShareGroup
from sidecar.core.share.placeholder import HoldPlaceholder, LeavePlaceholder
from sidecar.core.vocabulary.errors import Code
from sidecar.core.vocabulary.topics import Topic
from tests.core.one_shard import OneShard
from tests.core.world import topic, topic_id
from tests.harness.endings import Endings, ends

__all__ = ["Client", "World", "topic", "topic_id"]


@dataclass
class World(OneShard):
    config: ShareConfig = field(default_factory=lambda: ShareConfig(assignor_offload_enable=False, join_wait_ms=0))
    assignors: dict[str, ShareAssignor] = field(default_factory=lambda: {"simple": SIMPLE})
    now_ms: int = 1_000_000
    terms: int = 1
    """The owner's epoch, which names its placeholder member."""

    def __post_init__(self) -> None:
        self.shard = self.empty()
        self.log: list[Record] = []
        self.last = 0
        self.token = NO_TOKEN
        self.replies: dict[int, Reply] = {}
        self.running: list[RunAssignor] = []
        self.commands: list[HoldPlaceholder | LeavePlaceholder] = []
        """Commands about placeholder members, in their order. A reader removes them."""
        self.held: dict[str, HoldPlaceholder] = {}
        """By group."""
        self.leaving: dict[str, LeavePlaceholder] = {}
        self.notes: list[Log | Count | Observe] = []
        self.endings = Endings(self._code_of_empty_shard)
        self.dying = False
        """The owner's replies and records are lost from now on."""
        self.applied: Callable[[Effects], None] = lambda fx: None
        """Called after each event."""

    def empty(self) -> Shard:
        config = Computed(lambda kind, group_id: self.config if kind == SHARE else REGISTRY.kinds[kind].config())
        image = self.shard.image if hasattr(self, "shard") else None
        return Shard(REGISTRY, Ports({SHARE: self.assignors}, config), image)

    def _code_of_empty_shard(self, event: Event) -> Code:
        """Returns the error code of a coordinator without groups."""
        replies = self.empty().handle(event, 1, self.now).replies
        return replies[0].answer.code if replies else Code.NONE

    @property
    def now(self) -> Now:
        return Now(self.now_ms, self.now_ms)

    # ---- in -----------------------------------------------------------------------------------------------
    def topics(self, *topics: Topic) -> None:
        image, changed = self.shard.image.next(topics)
        self.apply(self.shard.topics_changed(image, changed, self.now))

    def request(self, event: Event) -> int:
        """The token under which the answer comes, now or later, in `replies`."""
        self.token += 1
        self.endings.asked(self.token, event)
        self.apply(self.shard.handle(event, self.token, self.now))
        return self.token

    def initialised(self, group_id: str, parts: Partitions, whole: bool = True, hold_id: int | None = None) -> None:
        """The placeholder member reports these."""
        held = self.held[group_id]
        names = {t: self.shard.image.names[t] for t in parts if t in self.shard.image.names}
        number = held.hold_id if hold_id is None else hold_id
        who = f"placeholder-{self.terms}"
        self.deliver(ShareInitialised(group_id, number, who, 7, held.topic_names, parts, names, whole))

    def refused(self, group_id: str, code: Code) -> None:
        """The broker does not take the placeholder member."""
        self.deliver(PlaceholderRefused(group_id, self.held[group_id].hold_id, code))

    def has_left(self, group_id: str) -> None:
        self.deliver(PlaceholderLeft(group_id, self.leaving[group_id].placeholder_id))

    # ---- out ----------------------------------------------------------------------------------------------
    def apply(self, fx: Effects) -> None:
        if self.dying:
            return
        if fx.records:
            self.last = len(self.log)
        self.log += single(fx.records)
        self.replies.update((r.token, r) for r in fx.replies)
        for r in fx.replies:
            self.endings.answered(r.token, r.answer)
        self.endings.check()
        self.applied(fx)
        self.notes += fx.notes
        looks = []
        for item in fx.background:
            if isinstance(item, RunAssignor):
                self.running.append(item)
            elif isinstance(item, LookFirst):
                looks.append(item)
            else:
                assert isinstance(item, HoldPlaceholder | LeavePlaceholder)
                self.commands.append(item)
                if isinstance(item, HoldPlaceholder):
                    self.held[item.group_id] = item
                else:
                    self.held.pop(item.group_id, None)
                    self.leaving[item.group_id] = item
        for look in looks:
            if look.request is not None:
                self.deliver(TopicsSeen(look.group_id, look.request, look.token))

    # ---- state --------------------------------------------------------------------------------------------
    def group(self, group_id: str) -> ShareGroup:
        found = self.shard.groups[group_id]
        assert isinstance(found, ShareGroup)
        return found

    def rebuilt(self) -> Shard:
        """A new owner's shard, from the compacted log."""
        return self.loaded(self.empty())

    def takeover(self, lost: bool = False) -> None:
        """Moves the partition to a new owner. `lost`: the records of the last event never reached the log."""
        if lost:
            del self.log[self.last :]
            self.endings.lost()
        self.dying = False
        self.running.clear()
        self.held.clear()
        self.replies.clear()
        self.terms += 1
        self.shard = self.rebuilt()


@dataclass
class Client:
    """A KIP-932 member: sends its topics with its first heartbeat and after each failure, and joins anew when told."""

    world: World
    group_id: str
    member_id: str
    names: tuple[str, ...]
    epoch: int = 0
    assigned: Partitions = field(default_factory=dict)
    full: bool = True
    """The next heartbeat names the member's topics."""
    token: int = NO_TOKEN
    """Token of the open request."""
    unheard: int = 0
    """Answers lost since the last one that arrived."""
    died_of: Code = Code.NONE

    def heartbeat(self) -> ShareHeartbeatReply:
        """The answer, which must come at once."""
        self.send()
        reply = self.take_reply()
        assert reply is not None, "it waits"
        return reply

    def send(self) -> None:
        """One request. The answer to an earlier one took too long: it is not read any more."""
        if self.token:
            self.lose()
        names = self.names if self.full or self.epoch == 0 else None
        hb = ShareHeartbeat(self.group_id, self.member_id, self.epoch, topic_names=names, client_id=self.member_id)
        self.full = False
        self.token = self.world.token + 1
        self.world.request(hb)

    def take_reply(self) -> ShareHeartbeatReply | None:
        """Takes the answer, if it has come, and applies it to the member."""
        reply = self.world.replies.pop(self.token, None)
        if reply is None:
            return None
        self.token = NO_TOKEN
        assert isinstance(reply.answer, ShareHeartbeatReply)
        self.apply_reply(reply.answer)
        self.unheard = 0
        return reply.answer

    def lose(self) -> None:
        """The request has no answer: the next one is a full one."""
        self.token, self.full = NO_TOKEN, True
        self.unheard += 1

    def apply_reply(self, reply: ShareHeartbeatReply) -> None:
        if reply.code:
            if ends("ShareGroupHeartbeat", reply.code):
                self.died_of = Code(reply.code)
            self.epoch, self.assigned = 0, {}
        else:
            self.epoch = reply.member_epoch
            if reply.assignment is not None:
                self.assigned = reply.assignment

    def leave(self) -> Code:
        reply = self.world.ask(ShareHeartbeat(self.group_id, self.member_id, -1))
        self.epoch, self.assigned, self.token = 0, {}, NO_TOKEN
        return Code(reply.code)

    def partitions(self) -> set[tuple[bytes, int]]:
        return {(t, p) for t, ps in self.assigned.items() for p in ps}
