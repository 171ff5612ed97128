"""Connections to the brokers in memory, in the place of TCP. Everything above `_send` is the sidecar's own client."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple

from sidecar.kafka.cluster import Cluster
from sidecar.kafka.credentials import Login
from sidecar.kafka.net import RESPONSE_BYTES, BrokerConnection, ConnectionLost
from sidecar.kafka.security import PLAINTEXT
from sidecar.wire.apis import Api
from sidecar.wire.frames import response_frame
from tests.inprocess.broker import FakeBrokers, decode_request, flexible


@contextmanager
def unseen() -> Iterator[None]:
    """Hides a fake broker's calls of the sidecar's codecs from a profiler."""
    profile = sys.getprofile()
    sys.setprofile(None)
    try:
        yield
    finally:
        sys.setprofile(profile)


class _Waiting(NamedTuple):
    api: int
    version: int
    body: bytes
    pos: int
    correlation: int


class Line:
    """One connection as the broker handles it: requests one by one, in their order. `send` gets each response frame;
    `lose` is called when a fault closes the connection."""

    def __init__(
        self, brokers: FakeBrokers, node_id: int, send: Callable[[bytes], None], lose: Callable[[], None]
    ) -> None:
        self.node_id = node_id
        self._brokers = brokers
        self._send = send
        self._lose = lose
        self._queue: deque[_Waiting] = deque()
        self._busy = False
        self._closed = False

    def put(self, api: int, version: int, raw: bytes, pos: int, correlation: int) -> None:
        self._queue.append(_Waiting(api, version, raw, pos, correlation))
        if not self._busy:
            self._busy = True
            asyncio.get_running_loop().call_soon(self._next)

    def close(self) -> None:
        self._closed = True
        self._queue.clear()

    def _next(self) -> None:
        if self._closed:
            return
        if not self._queue:
            self._busy = False
            return
        w = self._queue.popleft()
        with unseen():
            request = decode_request(w.api, w.version, w.body, w.pos)
            self._brokers.serve(
                self.node_id, Api(w.api), w.version, request, lambda r: self._respond(w, r), self._connection_lost
            )

    def _respond(self, w: _Waiting, response: Any) -> None:
        asyncio.get_running_loop().call_soon(self._answer, w, response)

    def _answer(self, w: _Waiting, response: Any) -> None:
        if not self._closed:
            with unseen():
                tagged = w.api != Api.API_VERSIONS and flexible(w.api, w.version)
                frame = response_frame(w.correlation, tagged, response.encode(w.version))
            self._send(frame)
            self._next()

    def _connection_lost(self) -> None:
        if not self._closed:
            self.close()
            self._lose()


class FakeConnection(BrokerConnection):
    """The sidecar's own connection to one broker. `open` finds the broker by its address, as TCP would."""

    brokers: ClassVar[FakeBrokers]

    def __init__(self, client_id: str) -> None:
        super().__init__(client_id)
        self.node_id = -1
        self._line: Line | None = None

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        client_id: str,
        timeout_s: float = 5.0,
        response_bytes: int = RESPONSE_BYTES,
        security: Login = PLAINTEXT,
    ) -> FakeConnection:
        await asyncio.sleep(0)
        node_id = cls.brokers.node_at(host, port)
        if node_id is None:
            raise ConnectionLost(f"{host}:{port}: connection refused")
        conn = cls(client_id)
        conn.node_id = node_id
        conn._versions = cls.brokers.versions
        conn._line = Line(cls.brokers, node_id, conn._received, lambda: conn.connection_lost(None))
        cls.brokers.lost.append(conn._down)
        return conn

    def peer(self) -> tuple[str, int]:
        return self.brokers.address(self.node_id)

    def _send(
        self, api_key: int, version: int, body: bytes, flexible: bool, at_once: bool = False
    ) -> asyncio.Future[bytes]:
        if self.closed or self._line is None:
            raise ConnectionLost("connection is closed")
        self._correlation += 1
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.append((self._correlation, future))
        self._line.put(api_key, version, body, 0, self._correlation)
        return future

    def _received(self, frame: bytes) -> None:
        self.data_received(frame)

    def _down(self, node_id: int) -> None:
        if node_id == self.node_id and not self.closed:
            self.connection_lost(None)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._line is not None:
            self._line.close()
        if self._down in self.brokers.lost:
            self.brokers.lost.remove(self._down)
        super().connection_lost(exc)

    def close(self, why: str = "closed here") -> None:
        if not self.closed:
            self.closed, self._why = True, self._why or why
            asyncio.get_running_loop().call_soon(self.connection_lost, None)


class FakeCluster(Cluster):
    """The sidecar's own cluster over such connections."""

    def __init__(self, brokers: FakeBrokers, client_id: str = "sidecar") -> None:
        super().__init__([], client_id, {})
        self.brokers = {n: brokers.address(n) for n in brokers.nodes}

        class Connection(FakeConnection):
            pass

        Connection.brokers = brokers
        self.connections: type[FakeConnection] = Connection

    async def anyone(self) -> BrokerConnection:
        if self._any is not None and not self._any.closed:
            return self._any
        for address in list(self.brokers.values()):
            try:
                self._any = await self.connections.open(*address, self.client_id)
            except ConnectionLost:
                continue
            return self._any
        raise ConnectionLost("no broker answers")

    async def open(self, node_id: int) -> BrokerConnection:
        address = self.brokers.get(node_id)
        if address is None:
            raise ConnectionLost(f"broker {node_id} is not in the metadata")
        return await self.connections.open(*address, self.client_id)
