"""Listening sockets whose connections are checked before anything is read or written on them: for TLS, whose handshake
must be earned, and for the admin endpoint, which has few places."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence

from sidecar.front.bind import bind, peer_host
from sidecar.link.ports import Logger

ACCEPTS = 16
"""Connections accepted before the loop turns."""
AGAIN_S = 1.0
"""Pause in accepting after `accept` has failed, as when the process has no file descriptors left."""


class Acceptor:
    """Accepts connections and hands each one to `arrived(socket, address)`, which owns the socket from then on."""

    def __init__(self, arrived: Callable[[socket.socket, str], None], log: Logger) -> None:
        self._arrived = arrived
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self.sockets: list[socket.socket] = []

    async def open(
        self, hosts: Sequence[str], port: int, backlog: int, inherited: Sequence[socket.socket] = ()
    ) -> None:
        """Binds and listens. `inherited`: sockets that another process has bound, in the place of new ones. Raises
        OSError."""
        if not inherited:
            await self._bind(hosts, port, backlog)
        for sock in inherited:
            sock.listen(backlog)
            sock.setblocking(False)
            self.sockets.append(sock)
        for sock in self.sockets:
            self._loop.add_reader(sock, self._accept, sock)

    async def _bind(self, hosts: Sequence[str], port: int, backlog: int) -> None:
        addresses = []
        for host in hosts:
            addresses += await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.sockets += bind(addresses, backlog)

    def close(self) -> None:
        self._closed = True
        while self.sockets:
            sock = self.sockets.pop()
            self._loop.remove_reader(sock)
            sock.close()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS):
            try:
                sock, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as exc:
                self._log.error("no connection accepted for a while", error=exc.strerror or str(exc))
                self._loop.remove_reader(listening)
                self._loop.call_later(AGAIN_S, self._accept_again, listening)
                return
            sock.setblocking(False)
            self._arrived(sock, peer_host(address))

    def _accept_again(self, listening: socket.socket) -> None:
        if not self._closed:
            self._loop.add_reader(listening, self._accept, listening)
