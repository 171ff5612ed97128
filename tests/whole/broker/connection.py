"""One client's connection: frames in, answers out, strictly one after the other, as a broker mutes a connection while
it works on a request of it. So a JoinGroup that is held back holds back what comes behind it.

What cannot be understood closes the connection, as at a broker; only ApiVersions is answered in any version.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from sidecar.wire.frames import PREFIX, SIZE, header_end, response_frame
from sidecar.wire.primitives import WireError
from tests.whole.broker.context import Context
from tests.whole.broker.rights import ASKS_FOR_CLIENTS
from tests.whole.broker.table import API_VERSIONS, APIS, ApiRow, unsupported_api_versions

if TYPE_CHECKING:
    from tests.whole.broker.node import Node

FRAME_BYTES = 104_857_600


class SimConnection:
    def __init__(
        self,
        node: Node,
        listener: str,
        send: Callable[[bytes], None],
        close: Callable[[], None],
        peer: str,
        number: int,
    ) -> None:
        self.node = node
        self.listener = listener
        self.peer = peer
        self.number = number
        self._send = send
        self._close = close
        self._open = True
        self._principal: str | None = None
        self._buffer = bytearray()
        self._frames: deque[bytes] = deque()
        self._busy = False
        self._due = False

    def received(self, data: bytes) -> None:
        """Bytes have come from the client."""
        if not self._open:
            return
        self._buffer += data
        while len(self._buffer) >= 4:
            (size,) = SIZE.unpack_from(self._buffer)
            if not 8 <= size <= FRAME_BYTES:
                self.node.later(0, self._end)
                return
            if len(self._buffer) < 4 + size:
                break
            self._frames.append(bytes(self._buffer[: 4 + size]))
            del self._buffer[: 4 + size]
        self._soon()

    def lost(self) -> None:
        """The client has gone. What it asked for goes on; nobody hears the answer."""
        self._open = False
        self.node.connections.discard(self)

    def drop(self) -> None:
        """The broker has crashed."""
        if self._open:
            self._open = False
            self._close()

    def _end(self) -> None:
        self.node.connections.discard(self)
        self.drop()

    def _soon(self) -> None:
        if self._frames and not self._busy and not self._due and self._open:
            self._due = True
            self.node.later(0, self._next)

    def _next(self) -> None:
        self._due = False
        if self._busy or not self._frames or not self._open:
            return
        frame = self._frames.popleft()
        try:
            self._handle(frame)
        except WireError:
            self._end()

    def _handle(self, frame: bytes) -> None:
        _, key, version, correlation = PREFIX.unpack_from(frame)
        api = APIS.get(key)
        if api is None:
            raise WireError(f"unknown api {key}")
        if not api.low <= version <= api.high:
            if key != API_VERSIONS:
                raise WireError(f"unknown version {version} of api {key}")
            self._send(response_frame(correlation, False, unsupported_api_versions(self.node).encode(0)))
            self._soon()
            return
        client_id, body = header_end(frame, PREFIX.size, version >= api.flexible_from)
        request = api.decode(version, frame, body)
        if self._principal is None:
            if client_id == ASKS_FOR_CLIENTS and self.node.cluster.rights.on:
                raise WireError("the sidecar asks for a client that has not said who it is: before a login")
            self._principal = client_id or ""
        self._busy = True
        context = Context(self.node, self.listener, self.peer, client_id or "", version, self._principal)
        incarnation = self.node.incarnation
        answered = False

        def reply(response: Any) -> None:
            """The first answer counts: in Kafka it completes a future, and a second one does nothing."""
            nonlocal answered
            if self.node.incarnation == incarnation and not answered:
                answered = True
                self._answer(api, version, correlation, response)

        api.handle(context, request, reply)

    def _answer(self, api: ApiRow, version: int, correlation: int, response: Any) -> None:
        if self.node.answer_ms:
            self.node.later(self.node.answer_ms, partial(self._answer_now, api, version, correlation, response))
        else:
            self._answer_now(api, version, correlation, response)

    def _answer_now(self, api: ApiRow, version: int, correlation: int, response: Any) -> None:
        self._busy = False
        if self._open and response is not None:
            flexible = api.key != API_VERSIONS and version >= api.flexible_from
            self._send(response_frame(correlation, flexible, response.encode(version)))
        self._soon()
