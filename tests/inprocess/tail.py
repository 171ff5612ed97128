"""The tail of the state topic without its thread: what a broker appends is applied by the loop a little later."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from confluent_kafka import Message

from sidecar.coordinator.statelog.tail import Item, Listener, StateLog, Tail
from tests.inprocess.cluster import unseen
from tests.inprocess.log import Stored


class Polled:
    """A message as librdkafka hands it to the thread."""

    def __init__(
        self,
        partition: int,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        error: Any = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
    ) -> None:
        self._told = (partition, offset, key, value, error)
        self._headers = list(headers)

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self._headers or None

    def partition(self) -> int:
        return self._told[0]

    def offset(self) -> int:
        return self._told[1]

    def key(self) -> bytes | None:
        return self._told[2]

    def value(self) -> bytes | None:
        return self._told[3]

    def error(self) -> Any:
        return self._told[4]


class FedTail(Tail):
    """`feed` takes what the thread would have polled; the rest is the real tail. While `held`, nothing is applied."""

    def __init__(self, topic: str, log: StateLog, listener: Listener, slow: bool = False) -> None:
        self.topic = topic
        self.held = False
        self._log = log
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._kept: list[Item] = []
        for partition in range(0 if slow else len(log.partitions)):
            self._loop.call_soon(listener.tail_read, partition)

    def read(self, topic: str, partition: int, records: list[Stored]) -> None:
        """Takes records as one of the brokers' readers."""
        if topic == self.topic:
            self.feed([Polled(partition, r.offset, r.key, r.value) for r in records])

    def feed(self, messages: list[Polled]) -> None:
        with unseen():  # this is the thread's part
            self._kept += [self._item(cast(Message, m)) for m in messages]
        if not self.held:
            self._loop.call_soon(self._flush)

    def hold(self) -> None:
        self.held = True

    def release(self) -> None:
        self.held = False
        self._flush()

    def stop(self) -> None:
        """Does nothing: there is no thread to stop."""

    def _flush(self) -> None:
        if self._kept and not self.held:
            kept, self._kept = self._kept, []
            self._apply(kept)
