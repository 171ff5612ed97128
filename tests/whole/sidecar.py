"""The real sidecar process on virtual time: everything from the accepted connection to the state topic is what
operators run. Its environment is simulated: sockets and clock by the loop, threads by calls that come back later,
librdkafka by reads of the simulated brokers."""

from __future__ import annotations

import asyncio
import importlib
from collections import deque
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar, cast

from confluent_kafka import Message

from sidecar.coordinator.runtime.background import Background, Stuck
from sidecar.coordinator.statelog.tail import END, Listener, StateLog, Tail
from sidecar.core.runtime.owner import Owner
from sidecar.process.app import App, Environment
from sidecar.process.coordination import Coordination
from sidecar.process.coordinator_environment import CoordinatorEnvironment
from sidecar.process.settings import Settings
from tests.inprocess.tail import Polled
from tests.whole.kafka import Kafka
from tests.whole.loop import SimLoop
from tests.whole.universe import Proc

T = TypeVar("T")
Tell = Callable[[str, str], None]
"""Takes a line of the timeline: who, and what."""
RUN_MS = 30.0
"""The longest that a background run takes, if it does not hang."""
POLL_MS = 2.0
BACK_OFF_MS = 100.0
AHEAD_TRIES = 50
NOT_LEADER, UNKNOWN_TOPIC, OUT_OF_RANGE = 6, 3, 1


class Lines:
    """The log of one process; `tell` shows it."""

    def __init__(self, name: str, tell: Tell | None) -> None:
        self.name, self.tell = name, tell
        self.errors: list[str] = []

    def _say(self, level: str, event: str, fields: dict[str, Any]) -> None:
        if level == "error":
            self.errors.append(f"{event} {fields}")
        if self.tell is not None:
            more = " ".join(f"{k}={v}" for k, v in fields.items())
            self.tell(self.name, f"{'' if level == 'debug' else level + ': '}{event} {more}")

    def debug(self, event: str, **fields: Any) -> None:
        self._say("debug", event, fields)

    def info(self, event: str, **fields: Any) -> None:
        self._say("info", event, fields)

    def warning(self, event: str, **fields: Any) -> None:
        self._say("warning", event, fields)

    def error(self, event: str, **fields: Any) -> None:
        self._say("error", event, fields)


class SimBackground(Background):
    """Runs are calls that come back later; one that hangs comes back never."""

    def __init__(self, proc: Proc, threads: int) -> None:
        super().__init__(threads)
        self._proc = proc
        self._waiting: deque[Callable[[], None]] = deque()
        self._free = threads

    def _thread(self, jobs: object) -> None:
        """Does nothing: there are no threads."""

    def submit(
        self,
        key: str,
        work: Callable[[], T],
        done: Callable[[T | None, BaseException | None], None],
        limit_s: float = float("inf"),
    ) -> None:
        if self._stuck[key]:
            self._loop.call_soon(done, None, Stuck(key))
            return

        def run() -> None:
            result: T | None = None
            error: BaseException | None = None
            try:
                result = work()
            except BaseException as exc:  # noqa: BLE001 - it travels to whoever asked
                error = exc
            self._free += 1
            self._loop.call_soon(done, result, error)
            self._begin()

        self._waiting.append(run)
        self._begin()

    def _begin(self) -> None:
        while self._free and self._waiting:
            self._free -= 1
            self._proc.later(self._proc.universe.rng.uniform(0.1, RUN_MS), self._waiting.popleft())

    def write_off(self) -> list[str]:
        return []

    def stop(self) -> None:
        self._waiting.clear()


def polled(partition: int, found: Any) -> list[Polled]:
    """Returns the records of a fetch, as librdkafka hands them over."""
    return [Polled(partition, r.offset, r.key, r.value, None, r.headers) for r in found.records]


class SimTail(Tail):
    """Reads the partitions of the state topic as librdkafka would: from the leader, as far as it is committed."""

    def __init__(
        self, proc: Proc, kafka: Kafka, topic: str, log: StateLog, listener: Listener, after_ms: float = 0.0
    ) -> None:
        self.topic = topic
        self._log = log
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._proc, self._kafka = proc, kafka
        self._next = [0] * len(log.partitions)
        self.applied = list(self._next)
        """The next offset of each partition, as far as the event loop has come."""
        self._ended = False
        self.lag_ms = 0.0
        """Milliseconds by which each next look comes later."""
        for partition in range(len(log.partitions)):
            self._again(partition, after_ms)
        log.late = self._late

    def stop(self) -> None:
        self._ended = True

    def _again(self, partition: int, ms: float) -> None:
        if not self._ended:
            self._proc.later(ms, lambda: self._poll(partition))

    def _poll(self, partition: int) -> None:
        rng = self._proc.universe.rng
        node = self._kafka.leader(self.topic, partition)
        if node is None:
            self._again(partition, rng.uniform(10, BACK_OFF_MS))
            return
        self._kafka.fetch(self._proc, node, self.topic, partition, self._next[partition], self._fetched(partition))

    def _fetched(self, partition: int) -> Callable[[Any], None]:
        def done(found: Any) -> None:
            if self._ended:
                return
            rng = self._proc.universe.rng
            if found is None or found.error in (NOT_LEADER, UNKNOWN_TOPIC):
                self._again(partition, rng.uniform(10, BACK_OFF_MS))
                return
            if found.error == OUT_OF_RANGE:
                self._next[partition] = found.log_start  # auto.offset.reset
                self._again(partition, 1)
                return
            messages = polled(partition, found)
            self._next[partition] = found.next_offset
            at_end = found.next_offset >= found.high_watermark
            # As librdkafka's thread does it: the event loop applies.
            self._loop.call_soon_threadsafe(self._take, partition, messages, found.next_offset, at_end)
            self._again(partition, rng.uniform(0.1, POLL_MS) + self.lag_ms)

        return done

    # ---- as catch_up.py ----
    def _late(self, partition: int, offset: int) -> None:
        self._read_ahead(partition, self._log.partitions[partition].position, offset, AHEAD_TRIES)

    def _read_ahead(self, partition: int, first: int, last: int, tries: int) -> None:
        if self._ended or first > last or tries == 0:
            return

        def again(at: int) -> None:
            ms = self._proc.universe.rng.uniform(1, BACK_OFF_MS)
            self._proc.later(ms, lambda: self._read_ahead(partition, at, last, tries - 1))

        def done(found: Any) -> None:
            if found is None or found.error:
                again(first)
                return
            items = [self._item(cast(Message, m)) for m in polled(partition, found)]
            self._loop.call_soon_threadsafe(self._apply_early, items)
            again(found.next_offset)

        node = self._kafka.leader(self.topic, partition)
        if node is None:
            again(first)
        else:
            self._kafka.fetch(self._proc, node, self.topic, partition, first, done)

    def _take(self, partition: int, messages: list[Polled], next_offset: int, at_end: bool) -> None:
        if messages:
            self._apply([self._item(cast(Message, m)) for m in messages])
        self.applied[partition] = next_offset
        if at_end:
            self._apply([(partition, END, None, None, next_offset)])


async def _load(name: str) -> ModuleType:
    """Everything is imported."""
    return importlib.import_module(name)


class Sidecar:
    """One life of a sidecar. `ended`: why it ended by itself, if it did."""

    def __init__(self, proc: Proc, kafka: Kafka, settings: Settings, tell: Tell | None, commit: str = "") -> None:
        self.proc = proc
        self.kafka = kafka
        self.node_id = settings.node_id
        self.loop = SimLoop(proc, kafka.net)
        self.lines = Lines(proc.name, tell)
        self.ended: BaseException | None = None
        self.app: App | None = None
        self._settings = settings
        self.tail: SimTail | None = None
        self.reads_after_ms = 0.0
        """Milliseconds after which its tail begins to read."""
        self._ids = 0
        proc.later(0, lambda: self.loop.create_task(self._main()))

    def _edges(self) -> Environment:
        def new_tail(bootstrap: str, topic: str, client_id: str, log: StateLog, listener: Listener) -> Tail:
            self.tail = SimTail(self.proc, self.kafka, topic, log, listener, self.reads_after_ms)
            return self.tail

        return Environment(
            new_logger=lambda level, form, **bound: self.lines,
            new_id=self._new_id,
            starts=lambda: None,
            started=lambda: None,
            ended=lambda: None,
            load=_load,
            coordinator=CoordinatorEnvironment(lambda threads: SimBackground(self.proc, threads), new_tail),
        )

    def _new_id(self) -> str:
        return f"member-{self.proc.universe.rng.getrandbits(64):016x}"

    async def _main(self) -> None:
        try:
            self.app = App(self._settings, self.proc.mono_s(), self._edges())
            await self.app.run()
        except Exception as exc:  # noqa: BLE001 - the simulation judges it
            if self.loop.buried:
                return
            self.ended = exc
            self.lines.error("process ended", error=repr(exc), cause=repr(exc.__cause__))
        self.proc.later(0, self.proc.crash)  # an ended process has no connections any more

    def terminate(self) -> None:
        """SIGTERM."""
        import signal

        handler = self.loop.signals.get(signal.SIGTERM)
        if handler is None:
            self.proc.crash()
        else:
            self.proc.later(0, handler)

    def owners(self) -> list[Owner]:
        """One for each partition; none before it coordinates."""
        half = self.app.half if self.app is not None else None
        return half.coordinator.service.owners if isinstance(half, Coordination) else []

    def has_sent_on(self, node_id: int) -> bool:
        """A client's request, or something else, has been sent on to that broker and has not been answered."""
        lanes = self.app.cluster._nodes if self.app is not None else {}
        return any(n == node_id and c._waiting for (n, _, _), c in lanes.items())

    @property
    def problems(self) -> list[str]:
        """Returns why it is not ready, by its own clock."""
        found = ["not started"]
        app = self.app
        if app is not None:
            self.proc.universe.enter(self.proc, lambda: found.__setitem__(slice(None), app.problems()[0]))
        return found
