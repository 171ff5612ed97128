"""A front behind a listener for TLS, a broker that answers every request, and clients. Real sockets, on asyncio's loop
and on uvloop, which is the one in production."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from sidecar.front.certificates import Certificates, TlsSettings
from sidecar.front.tls import TlsListener
from tests.front.reception import passed, response
from tests.inprocess.embedded_front import EmbeddedFront
from tests.inprocess.embedded_sidecar import until
from tests.security.ground import Papers

OLD = "ALL:@SECLEVEL=0"
"""With these ciphers OpenSSL speaks TLS 1.1, if it may."""
HELLO = bytes.fromhex("1603010200010001fc0303")
"""The beginning of a ClientHello, which announces 512 bytes."""
Loops = Callable[[], asyncio.AbstractEventLoop]
LOOPS: dict[str, Loops] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


def trusting(papers: Papers, own: Papers | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(papers.authority))
    if own is not None:
        context.load_cert_chain(own.certificate, own.key)
    return context


class TlsBench:
    """A front behind a listener for TLS, and a broker that answers each request with `answer`."""

    def __init__(self, settings: TlsSettings, embedded: EmbeddedFront) -> None:
        self.embedded = embedded
        self.certificates = Certificates(settings, embedded.metrics, embedded.lines)
        self.listener = TlsListener(
            embedded.front.server, self.certificates, embedded.metrics, embedded.lines, embedded.tasks
        )
        self.port = 0
        self.answer = b"A"
        self.seen = 0
        self.broker: asyncio.Server | None = None

    async def open(self, broker_tls: ssl.SSLContext | None = None) -> None:
        self.broker = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=broker_tls)
        self.embedded.front.server.broker.address = ("127.0.0.1", self.broker.sockets[0].getsockname()[1])
        await self.listener.open(["127.0.0.1"], 0, 1_024)
        self.port = self.listener.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = await reader.readexactly(size)
                self.seen += 1
                writer.write(response(int.from_bytes(frame[4:8], "big"), self.answer))
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()

    async def connect(self, context: ssl.SSLContext) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=context, server_hostname="localhost")

    def raw(self) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self.port))
        sock.setblocking(False)
        return sock

    def count(self, outcome: str) -> float:
        return self.embedded.metrics.value("tls_handshakes", outcome)

    @property
    def settled(self) -> bool:
        """Whether no arriving connection is left."""
        listener, door = self.listener, self.embedded.front.server.door
        left = (*listener._arrivals, *listener._under_way, *listener._line)
        return not left and door._arriving == 0 and sum(door._from.values()) == len(door.sessions)


def play(
    loops: Loops,
    settings: TlsSettings,
    test: Callable[[TlsBench], Coroutine[Any, Any, None]],
    broker_tls: ssl.SSLContext | None = None,
    **given: Any,
) -> None:
    async def main() -> None:
        embedded = EmbeddedFront(**given)
        embedded.show()
        place = TlsBench(settings, embedded)
        await place.open(broker_tls)
        await test(place)
        place.listener.close()
        for session in list(embedded.front.server.sessions):
            session.abort("shutdown")
        await until(lambda: place.settled and not embedded.front.server.sessions)
        assert place.broker is not None
        place.broker.close()
        assert not embedded.tasks.failed.done(), embedded.tasks.failed.exception()

    with asyncio.Runner(loop_factory=loops) as runner:
        runner.run(main())


async def exchange(streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], n: int, answer: bytes = b"A") -> None:
    reader, writer = streams
    writer.write(passed(n))
    assert await asyncio.wait_for(reader.readexactly(8 + len(answer)), 60) == response(n, answer)


def blocking(port: int, context: ssl.SSLContext) -> None:
    """A client that says what it does not like, which asyncio's does not."""
    with (
        socket.create_connection(("127.0.0.1", port), 10) as sock,
        context.wrap_socket(sock, server_hostname="localhost"),
    ):
        pass


def refusal(port: int, context: ssl.SSLContext) -> str:
    """Returns the alert that a client gets. In TLS 1.3 it comes after the client's part of the handshake."""
    with (
        pytest.raises(ssl.SSLError) as refused,
        socket.create_connection(("127.0.0.1", port), 10) as sock,
        context.wrap_socket(sock, server_hostname="localhost") as speaks,
    ):
        speaks.recv(1)
    return refused.value.reason


async def ended(sock: socket.socket) -> bytes:
    """Returns the bytes that such a client gets before its connection ends."""
    loop, heard = asyncio.get_running_loop(), b""
    try:
        while data := await asyncio.wait_for(loop.sock_recv(sock, 4_096), 60):
            heard += data
    except ConnectionResetError:
        pass
    return heard
