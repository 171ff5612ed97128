"""Reads records that the tail is late with, for a takeover that waits for its own claim.

When the leader of a partition has changed, librdkafka asks the new one first whether its own position is still valid. A
leader that is not ready refuses, and then librdkafka asks again after 500 ms (`rd_kafka_offset_validate`, 2.16), maybe
twice. A consumer that begins at that position has no such question. The tail reads the same records later, and checks
that they are the same.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

AT_ONCE = 200
"""Records handed over in one piece."""
LIMIT_S = 10.0
"""Seconds for which a read is tried; the tail reads the records in the end."""


class Want(NamedTuple):
    """Records `first` to `last` of a partition."""

    partition: int
    first: int
    last: int


def some(consumer: Consumer, seconds: float) -> list[Message]:
    """Returns the messages that have come, after `seconds` at most. `consume` alone would wait for its whole count or
    timeout, so the first message is polled. Raises KafkaException."""
    first = consumer.poll(seconds)
    return [] if first is None else [first, *consumer.consume(AT_ONCE, 0)]


class CatchUpReader:
    """A reader thread, from the first `read` on, with a consumer while there are records to read. It calls
    `taken(messages)` and `trouble(text)`; `broke(exception)` if it ends by a bug."""

    def __init__(
        self,
        config: Mapping[str, Any],
        topic: str,
        taken: Callable[[list[Message]], None],
        trouble: Callable[[str], None],
        broke: Callable[[BaseException], None],
    ) -> None:
        self.configure(config)
        self._topic = topic
        self._taken, self._trouble, self._broke = taken, trouble, broke
        self._wants: SimpleQueue[Want | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._stopping = False

    def read(self, want: Want) -> None:
        self._wants.put(want)
        if self._thread is None:
            self._thread = threading.Thread(target=self._guarded, name="state-ahead", daemon=True)
            self._thread.start()

    def configure(self, config: Mapping[str, Any]) -> None:
        """Takes in a configuration, which counts from the next consumer on."""
        self._config = {**config, "auto.offset.reset": "error"}

    def stop(self) -> None:
        self._stopping = True
        self._wants.put(None)
        if self._thread is not None:
            self._thread.join(timeout=2)

    # ---- the thread ---------------------------------------------------------------------------------------
    def _guarded(self) -> None:
        try:
            # `stop` puts None, but that may come to `_serve`, to which it is no want.
            while not self._stopping and (want := self._wants.get()) is not None:
                try:
                    self._serve(want)
                except KafkaException as exc:
                    self._trouble(str(exc))
        except Exception as exc:  # noqa: BLE001 - the thread's end must be seen: the coordinator ends with it
            self._broke(exc)

    def _serve(self, want: Want | None) -> None:
        """Reads the records of this want, and of those that come meanwhile."""
        left: dict[int, int] = {}
        until_s = time.monotonic() + LIMIT_S
        consumer = Consumer(self._config)
        try:
            while (want or left) and time.monotonic() < until_s and not self._stopping:
                while want is not None:
                    if want.partition not in left:
                        consumer.incremental_assign([TopicPartition(self._topic, want.partition, want.first)])
                    left[want.partition] = max(want.last, left.get(want.partition, -1))
                    want = self._next()
                messages = [m for m in some(consumer, 0.02) if m.error() is None]
                for m in messages:
                    partition, offset = m.partition(), m.offset()
                    if partition in left and offset is not None and offset >= left[partition]:
                        del left[partition]
                        consumer.incremental_unassign([TopicPartition(self._topic, partition)])
                if messages:
                    self._taken(messages)
                want = self._next()
        finally:
            consumer.close()

    def _next(self) -> Want | None:
        try:
            return self._wants.get_nowait()
        except Empty:
            return None
