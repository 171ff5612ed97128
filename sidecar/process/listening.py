"""Where a sidecar is reached: by clients, and by other sidecars that watch whether it is there."""

from __future__ import annotations

import asyncio
import socket

from sidecar.coordinator.peers import PeerListener
from sidecar.coordinator.start import StartError
from sidecar.front.front import Front
from sidecar.front.session import Session
from sidecar.link.ports import Logger
from sidecar.process.sections import split
from sidecar.process.settings import Settings
from sidecar.process.systemd import inherited_socket


async def listen(s: Settings, front: Front, log: Logger) -> asyncio.Server:
    host, port = split(s.listen)
    loop = asyncio.get_running_loop()
    inherited = inherited_socket(s.listen)
    backlog = s.limits.accept_backlog
    try:
        if inherited is None:
            server = await loop.create_server(lambda: Session(front), host, port, backlog=backlog, reuse_address=True)
        else:
            server = await loop.create_server(lambda: Session(front), sock=inherited, backlog=backlog)
    except OSError as exc:
        raise StartError(f"cannot listen on {s.listen}: {exc.strerror or exc}") from None
    for sock in server.sockets:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    log.info("listening", listen=s.listen, broker=s.broker, inherited=inherited is not None)
    return server


async def peer_listener(s: Settings) -> PeerListener | None:
    """Where other sidecars see that this one is there, if they are to look."""
    if not s.ownership.peer_links:
        return None
    host, _ = split(s.listen)
    try:
        return await PeerListener.open(host, s.ownership.peer_port, s.ownership.peer_advertised_port)
    except OSError as exc:
        raise StartError(
            f"cannot listen for other sidecars on {host}:{s.ownership.peer_port}: {exc.strerror or exc}. "
            "Set ownership.peer_port to a free port, or to 0."
        ) from None
