"""One sidecar put together over brokers in memory: front, link, coordinator, state, settings, background threads.

    async with EmbeddedSidecar() as sidecar:
        client = await sidecar.client()
        reply = await client.ask(join("g", "m1", ["orders"]), 1)

The sidecar owns every partition unless it is told otherwise, and its lease lasts for a minute. What `process/build.py`
wires for a real process is wired here in the same order; only `ClusterWatch` is missing, whose part a test plays with
`topics`, `assign` and `show`, or puts in by itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, TypeVar

from sidecar.assign import BUILT_IN, SHARE_BUILT_IN, TASK_BUILT_IN
from sidecar.assign.spec import Assignor
from sidecar.coordinator.clock import lease_end, now
from sidecar.coordinator.membership.owners_protocol import Assignment
from sidecar.coordinator.moves.managed_groups import OwnRules, Rules
from sidecar.coordinator.moves.moves import MoveSettings
from sidecar.coordinator.placeholder.placeholders import PlaceholderSettings
from sidecar.coordinator.runtime.background import Background
from sidecar.coordinator.runtime.coordinator import Coordinator
from sidecar.coordinator.runtime.settings import CoordinatorSettings
from sidecar.coordinator.runtime.settings_requests import SettingsRequests
from sidecar.coordinator.settings.settings_in_force import OwnKind, OwnSettings, SettingsInForce
from sidecar.coordinator.settings.stored_settings import StoredSettings
from sidecar.coordinator.statelog.fenced_writer import BATCH_BYTES
from sidecar.coordinator.statelog.read_index import ReadIndex
from sidecar.coordinator.statelog.tail import StateLog
from sidecar.coordinator.statelog.term import NO_CLAIM
from sidecar.core.consumer.config import CONSUMER
from sidecar.core.kinds import REGISTRY
from sidecar.core.runtime.events import Event
from sidecar.core.runtime.owner import Owner
from sidecar.core.runtime.service import Service
from sidecar.core.runtime.settings import ServiceSettings
from sidecar.core.runtime.shard import Shard
from sidecar.core.share.config import SHARE
from sidecar.core.streams.config import STREAMS
from sidecar.core.vocabulary.errors import Code
from sidecar.front.front import Front
from sidecar.front.session import Session
from sidecar.front.settings import FrontSettings
from sidecar.link.loopback import Loopback, Soon
from sidecar.link.messages import Reply, Request, ToCoordinator, ToFront, View
from sidecar.process.coordination import own_kind
from sidecar.process.metrics import METRICS, Metrics
from sidecar.process.sections import Consumer
from sidecar.process.tasks import Supervisor
from sidecar.state.batch import encode_batch
from sidecar.state.codec import StateCodec
from sidecar.wire.frames import Limits, response_body
from tests.harness.endings import Endings
from tests.inprocess import clock
from tests.inprocess.broker import OFFSETS, STATE, FakeBrokers, decode_response, flexible
from tests.inprocess.cluster import FakeCluster
from tests.inprocess.messages import Message, api_of, to_frame
from tests.inprocess.tail import FedTail
from tests.inprocess.transport import MemoryTransport, Upstream, frames

NODE = 1
LEASE_MS = 60_000
PATIENCE_S = 60.0
"""No verdict: on virtual time it takes none, and else a loaded machine may need it."""
T = TypeVar("T")


class Lines:
    """A log that keeps its lines."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, Mapping[str, Any]]] = []
        """Level, event, fields."""

    def debug(self, event: str, **fields: Any) -> None:
        self.lines.append(("debug", event, fields))

    def info(self, event: str, **fields: Any) -> None:
        self.lines.append(("info", event, fields))

    def warning(self, event: str, **fields: Any) -> None:
        self.lines.append(("warning", event, fields))

    def error(self, event: str, **fields: Any) -> None:
        self.lines.append(("error", event, fields))

    def events(self, level: str = "") -> list[str]:
        return [event for at, event, _ in self.lines if level in ("", at)]

    def fields(self, event: str) -> Mapping[str, Any]:
        """Returns the fields of the last line of this event."""
        return next(fields for _, said, fields in reversed(self.lines) if said == event)


class Counted(Metrics):
    """The real metrics, which can be asked for a value."""

    def value(self, name: str, *labels: str) -> float:
        self.settle()
        metric = METRICS[name]
        suffix = "_total" if metric.kind.__name__ == "Counter" else ""
        found = self.registry.get_sample_value(metric.name + suffix, dict(zip(metric.labels, labels, strict=True)))
        return found or 0.0


async def until(true: Callable[[], object], seconds: float = PATIENCE_S) -> None:
    """Waits until this is true, and fails if that takes too long."""
    loop = asyncio.get_running_loop()
    if isinstance(loop, clock.VirtualLoop):
        assert await loop.until(true, seconds), "it never came to that"
        return
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came to that"
        await asyncio.sleep(0.001)


async def turns(count: int = 20) -> None:
    """Lets the loop turn, so that everything happens that needs no time."""
    for _ in range(count):
        await asyncio.sleep(0)


class MemorySession(Session):
    """A session whose broker is in memory, too."""

    def __init__(self, front: Front, brokers: FakeBrokers, node_id: int) -> None:
        super().__init__(front.server)
        self.reached: Upstream | None = None
        self._brokers = brokers
        self._node_id = node_id
        self.upstream.connect = self._reach

    async def _reach(self, factory: Callable[[], Any]) -> None:
        self.reached = Upstream(self._brokers, self._node_id, factory())


class EmbeddedClient:
    """A client's connection. `send` takes a whole request frame, `recv` gives the next response frame."""

    def __init__(self, front: Front, brokers: FakeBrokers, node_id: int, host: str) -> None:
        self.session = MemorySession(front, brokers, node_id)
        self.transport = MemoryTransport(self.session, (host, 50_000))
        self._read = 0
        self._correlation = 0
        self.session.connection_made(self.transport)

    @property
    def closed(self) -> bool:
        return self.transport.closing

    def send(self, data: bytes) -> None:
        self.transport.feed(data)

    def received(self) -> list[bytes]:
        """The response frames that have come and were not asked for yet."""
        found = frames(bytes(self.transport.written))[self._read :]
        self._read += len(found)
        return found

    async def recv(self, seconds: float = PATIENCE_S) -> bytes:
        await until(lambda: self.waiting, seconds)
        self._read += 1
        return frames(bytes(self.transport.written))[self._read - 1]

    @property
    def waiting(self) -> int:
        """Number of response frames that have come and were not read."""
        return len(frames(bytes(self.transport.written))) - self._read

    def post(self, message: Message, version: int) -> int:
        """Send this message; returns its correlation id."""
        self._correlation += 1
        self.send(to_frame(message, version, self._correlation))
        return self._correlation

    async def answer(self, message: Message, version: int) -> Any:
        """The response to the last message of that kind."""
        frame = await self.recv()
        api = api_of(message)
        assert int.from_bytes(frame[4:8], "big") == self._correlation
        return decode_response(api, version, frame, response_body(frame, flexible(api, version)))

    async def ask(self, message: Message, version: int) -> Any:
        """Send this message and return the response to it."""
        self.post(message, version)
        return await self.answer(message, version)

    def close(self) -> None:
        self.transport.lose()


class WatchedLoopback(Loopback):
    """Each request and each answer is shown to `endings`."""

    def __init__(self, endings: Endings, soon: Soon) -> None:
        super().__init__(soon)
        self._endings = endings

    def to_coordinator(self, message: ToCoordinator) -> None:
        if isinstance(message, Request):
            self._endings.asked(message.token, message.event)
        super().to_coordinator(message)

    def from_coordinator(self, message: ToFront) -> None:
        if isinstance(message, Reply):
            self._endings.answered(message.token, message.answer)
        super().from_coordinator(message)


class EmbeddedSidecar:
    """`consumer`: settings of consumer groups that differ from Kafka's defaults; `front`: fields of `FrontSettings`;
    `service`: of `ServiceSettings`; `placeholders`: of `PlaceholderSettings`.
    `partitions` of the state topic; `serve` False: nothing is assigned yet; `watched`: what members are told is
    checked."""

    def __init__(
        self,
        brokers: FakeBrokers | None = None,
        partitions: int = 2,
        managed: Callable[[str], bool] = lambda group_id: not group_id.startswith("theirs"),
        consumer: Mapping[str, Any] | None = None,
        front: Mapping[str, Any] | None = None,
        service: Mapping[str, Any] | None = None,
        placeholders: Mapping[str, Any] | None = None,
        moves: MoveSettings | None = None,
        assignors: Mapping[str, Assignor] = BUILT_IN,
        kinds: Mapping[str, OwnKind] | None = None,
        write_timeout_s: float = 2.0,
        claims_kept: int = 200,
        serve: bool = True,
        node_id: int = NODE,
        batch_bytes: int = BATCH_BYTES,
        watched: bool = True,
    ) -> None:
        self.brokers = brokers or FakeBrokers(partitions=partitions)
        self.partitions = self.brokers.partitions
        self.node_id = node_id
        self.serve = serve
        self.lines = Lines()
        self.metrics = Counted()
        self.tasks = Supervisor()
        self.tasks.watch(asyncio.get_running_loop())
        self.background = Background(2)
        self.cluster = FakeCluster(self.brokers, f"sidecar-{node_id}")
        self.endings = Endings(self._code_of_empty_shard)
        soon = asyncio.get_running_loop().call_soon
        self.link = WatchedLoopback(self.endings, soon) if watched else Loopback(soon)
        self.front = self.another_front(self.link, managed, **(front or {}))
        self.codec = StateCodec()
        self.state = StateLog(self.partitions, self.codec, self.lines, self.metrics)
        given = Consumer(**(consumer or {}))
        own = OwnSettings(node_id, {CONSUMER: own_kind(given), **(kinds or {})})
        self.stored = StoredSettings(self.codec, self.state, self.lines)
        self.rules = Rules(OwnRules(managed), self.stored, self.lines)
        read_index = ReadIndex(self.cluster, STATE, self.state, 1.0, self.tasks)
        self.configs = SettingsInForce(own, self.stored, self.rules.managed, self.lines)
        self.requests = SettingsRequests(self.configs, self.rules, read_index)
        address = self.brokers.address(node_id)
        limits = replace(ServiceSettings(), **(service or {}))
        held = PlaceholderSettings(**(placeholders or {}))
        settings = CoordinatorSettings(
            STATE,
            node_id,
            address,
            write_timeout_s,
            claims_kept,
            limits,
            held,
            moves=moves or MoveSettings(),
            batch_bytes=batch_bytes,
            lease_ms=LEASE_MS,
        )
        self.coordinator = Coordinator(
            settings,
            self.cluster,
            self.codec,
            self.state,
            self.requests,
            {CONSUMER: assignors, SHARE: SHARE_BUILT_IN, STREAMS: TASK_BUILT_IN},
            self.background,
            self.metrics,
            self.lines,
            self.tasks,
        )
        self.coordinator.takeovers.confirm_map = self.confirm_map
        self.tail = FedTail(STATE, self.state, self)
        self.brokers.readers.append(self.tail.read)
        self.generation = 0
        self.map_is_newest = True
        """Whether the brokers confirm the owner map."""
        self._asked: list[asyncio.Future[None]] = []
        self.kinds_of: dict[int, tuple[str, ...]] = {}
        """Kinds of groups that these sidecars coordinate; others coordinate all."""

    async def __aenter__(self) -> Self:
        """The broker's settings are read, its topics are known, and the sidecar serves what it owns."""
        await self.configs.refresh(self.cluster)
        await self.topics()
        self.link.serve(self.coordinator)
        self.coordinator.state_read()
        if self.serve:
            await self.own()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trail: TracebackType | None
    ) -> None:
        self.background.stop()
        await turns(3)
        if kind is None and self.tasks.failed.done():
            self.tasks.failed.result()
        if kind is None:
            self.endings.check()

    def _code_of_empty_shard(self, event: Event) -> Code:
        """Returns the error code of a coordinator without groups."""
        replies = Shard(REGISTRY, self.service.owners[0]._ports).handle(event, 1, now()).replies
        return replies[0].answer.code if replies else Code.NONE

    # ---- parts ------------------------------------------------------------------------------------------------
    def another_front(self, link: Loopback, managed: Callable[[str], bool], **given: Any) -> Front:
        settings = FrontSettings(self.node_id, self.brokers.address(self.node_id), Limits(), managed, True)
        return Front(replace(settings, **given), link.attach, self.cluster, self.metrics, self.lines, self.tasks)

    async def client(self, front: Front | None = None, host: str = "10.0.0.9") -> EmbeddedClient:
        return EmbeddedClient(front or self.front, self.brokers, self.node_id, host)

    @property
    def service(self) -> Service:
        return self.coordinator.service

    def owner_of(self, group_id: str) -> Owner:
        return self.service.owner_of(group_id)

    async def all_joined(self) -> None:
        """Wait until the placeholders have joined, and nothing more of that reaches the log."""
        await until(lambda: self.coordinator.placeholders.all_joined)

    # ---- what ClusterWatch does ---------------------------------------------------------------------------------
    async def own(self, *partitions: int) -> None:
        """Wait until these partitions, or all of them, are served here; nobody owns the others."""
        mine = partitions or range(self.partitions)
        self.prove()
        self.assign(*[self.node_id if p in mine else -1 for p in range(self.partitions)])
        await until(lambda: set(self.service.serving()) == set(mine))

    def prove(self, lease_ms: int = LEASE_MS) -> None:
        """The brokers have answered as to a live member."""
        self.coordinator.lease_proved(lease_end(now(), lease_ms))

    def confirm_map(self) -> asyncio.Future[None]:
        """The brokers know no newer map."""
        confirmed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asked.append(confirmed)
        if self.map_is_newest:
            self.confirm()
        return confirmed

    def confirm(self) -> None:
        """The brokers confirm the map to all who have asked."""
        self.map_is_newest = True
        for confirmed in self._asked:
            confirmed.set_result(None)
        self._asked.clear()

    async def answered_until(self, true: Callable[[], bool]) -> None:
        """The brokers answer until it comes to that: fences are renewed only then."""

        def answered() -> bool:
            self.prove()
            return true()

        await until(answered)

    def assign(self, *owners: int) -> None:
        """The owners' group has a new map, and the fronts are shown it."""
        self.generation += 1
        members = {n: (f"member-{n}", *self.brokers.address(n)) for n in {self.node_id, *owners} if n >= 0}
        kinds = {n: self.kinds_of.get(n, tuple(REGISTRY.kinds)) for n in members}
        self.coordinator.owners_assigned(Assignment(self.generation, owners, members, kinds=kinds))
        self.show()

    def show(self) -> None:
        self.coordinator.show(
            View(
                owners=self.coordinator.assignment.owners,
                leaders=tuple(self.brokers.topics[OFFSETS].leaders),
                brokers={n: self.brokers.address(n) for n in self.brokers.nodes},
                authorizer=self.configs.broker.authorizer,
            )
        )

    async def topics(self, **partitions: int) -> None:
        """Adds these topics at the brokers, and shows all topics to the coordinator."""
        for name, count in partitions.items():
            self.brokers.add_topic(name, count)
        self.coordinator.topics((await self.cluster.refresh(None)).topics)

    async def settings(self, **values: str) -> None:
        """The broker has these settings, dots written as underscores, and the sidecar reads them."""
        for name, value in values.items():
            self.brokers.settings[name.replace("_", ".")] = (value, 2)
        if await self.configs.refresh(self.cluster):
            self.coordinator.config_changed()
        self.show()

    def topic_id(self, name: str) -> bytes:
        return self.brokers.topics[name].topic_id

    def hold_tail(self, partition: int = 0) -> None:
        """Something of another sidecar stands in the log that this one has not read: a takeover has to wait for it."""
        self.tail.hold()
        self.brokers.append(STATE, partition, encode_batch([NO_CLAIM], 1, -1, -1, -1))

    # ---- what the tail finds ------------------------------------------------------------------------------------
    def setting_stored(self, group_id: str, name: str) -> None:
        self.coordinator.setting_stored(group_id, name)

    def claim_read(self, partition: int) -> None:
        self.coordinator.takeovers.claim_read(partition)

    def tail_read(self, partition: int) -> None:
        """Does nothing: stored settings have been read from the start."""

    def tail_went_back(self, partition: int) -> None:
        self.lines.error("the tail went back", partition=partition)

    def tail_trouble(self, text: str) -> None:
        self.lines.debug("state tail", problem=text)

    def tail_broke(self, exc: BaseException) -> None:
        self.tasks.broken("state-tail", exc)


class RecordingFront:
    """A front without clients: records the coordinator's messages, and sends what a test passes to `send`."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.messages: list[ToFront] = []
        self._coordinator = coordinator
        coordinator.connect(self)

    def from_coordinator(self, message: ToFront) -> None:
        self.messages.append(message)

    def send(self, message: ToCoordinator) -> None:
        self._coordinator.from_front(self, message)

    def leave(self) -> None:
        self._coordinator.disconnect(self)

    def of(self, kind: type[T]) -> list[T]:
        """Returns the messages of this kind, in their order."""
        return [m for m in self.messages if isinstance(m, kind)]

    async def reply(self, token: int) -> Any:
        """The answer to the request with this token."""
        await until(lambda: any(r.token == token for r in self.of(Reply)))
        return next(r.answer for r in self.of(Reply) if r.token == token)


def run(test: Callable[[EmbeddedSidecar], Coroutine[Any, Any, None]], **given: Any) -> None:
    """A sidecar of one partition with the topic `orders`."""

    async def main() -> None:
        async with EmbeddedSidecar(**{"partitions": 1, **given}) as sidecar:
            await sidecar.topics(orders=2)
            await test(sidecar)

    clock.run(main())
