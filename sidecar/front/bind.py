"""Opens listening sockets, and tells who connects. It imports nothing but sockets: `sidecar run` does this before all
other imports."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence
from typing import Any

MAPPED = "::ffff:"
"""Prefix of an IPv4 address at a socket for both families."""


def peer_host(name: Sequence[Any] | None) -> str:
    """Returns the address in a peer's name; "" without a name. A socket for both families, as systemd opens it, gives
    IPv4 clients IPv6 addresses. A broker knows them by those of IPv4, and so do its ACLs and the settings here."""
    return str(name[0]).removeprefix(MAPPED) if name else ""


def bind(addresses: Iterable[tuple[Any, ...]], backlog: int) -> list[socket.socket]:
    """Binds and listens. `addresses`: rows of getaddrinfo; one that comes twice is opened once. All are open, or none.
    Raises OSError."""
    sockets: list[socket.socket] = []
    try:
        for family, kind, proto, _, address in dict.fromkeys(addresses):
            sock = socket.socket(family, kind, proto)
            sockets.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind(address)
            sock.listen(backlog)
            sock.setblocking(False)
    except OSError:
        for sock in sockets:
            sock.close()
        raise
    return sockets
