"""Opens the clients' listener, plain or with TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Protocol

from sidecar.coordinator.statelog.startup_errors import StartError
from sidecar.front.certificates import Certificates, TlsError, TlsSettings
from sidecar.front.session import Session
from sidecar.front.socket_server import SocketServer
from sidecar.front.tls import TlsListener
from sidecar.link.ports import Figures, Logger, Tasks
from sidecar.process.settings import Settings
from sidecar.process.sockets import inherited_sockets, listens_at

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


class Listener(Protocol):
    def close(self) -> None: ...


class Together:
    """Several listeners as one."""

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self._listeners = listeners

    def close(self) -> None:
        for listener in self._listeners:
            listener.close()


async def listen(
    s: Settings, server: SocketServer, figures: Figures, log: Logger, tasks: Tasks, reloads: list[Callable[[], None]]
) -> Listener:
    """Opens the listener. `reloads`: callbacks of SIGHUP, to which one is added for TLS files. Raises StartError."""
    settings = tls_settings(s)
    inherited = inherited_sockets(s.listen)
    try:
        if settings is None:
            return await _plain(s, inherited, server, log)
        return await _tls(s, settings, inherited, server, figures, log, tasks, reloads)
    except OSError as exc:
        raise StartError(f"cannot listen on {s.listen}: {exc.strerror or exc}") from None


def tls_settings(s: Settings) -> TlsSettings | None:
    t = s.tls
    if t.certificate is None:
        return None
    return TlsSettings(
        certificate=t.certificate,
        key=t.key,
        password_file=t.key_password_file,
        clients_from=t.ca,
        min_version=VERSIONS[t.min_version],
        ciphers=t.ciphers,
        reload_s=t.reload_ms / 1000,
        handshake_s=t.handshake_timeout_ms / 1000,
        handshakes=t.handshakes,
    )


async def _tls(
    s: Settings,
    settings: TlsSettings,
    inherited: Sequence[socket.socket],
    server: SocketServer,
    figures: Figures,
    log: Logger,
    tasks: Tasks,
    reloads: list[Callable[[], None]],
) -> Listener:
    try:
        certificates = Certificates(settings, figures, log)
    except TlsError as exc:
        raise StartError(str(exc)) from None
    listener = TlsListener(server, certificates, figures, log, tasks)
    await listener.open(*listens_at(s.listen), s.limits.accept_backlog, inherited)
    tasks.spawn(certificates.watch(), "TLS files")
    reloads.append(certificates.reload)
    log.info("listening", listen=s.listen, broker=s.broker, tls=s.tls.min_version, inherited=bool(inherited))
    return listener


async def _plain(s: Settings, inherited: Sequence[socket.socket], server: SocketServer, log: Logger) -> Listener:
    hosts, port = listens_at(s.listen)
    loop = asyncio.get_running_loop()
    backlog = s.limits.accept_backlog
    if inherited:
        servers = [await loop.create_server(lambda: Session(server), sock=sock, backlog=backlog) for sock in inherited]
    else:
        servers = [await loop.create_server(lambda: Session(server), hosts, port, backlog=backlog, reuse_address=True)]
    for sock in (sock for each in servers for sock in each.sockets):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    log.info("listening", listen=s.listen, broker=s.broker, inherited=bool(inherited))
    return Together(servers)
