"""Where a sidecar is reached by clients."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Protocol

from sidecar.coordinator.start_errors import StartError
from sidecar.front.certificates import Certificates, TlsError, TlsSettings
from sidecar.front.front import Front
from sidecar.front.session import Session
from sidecar.front.tls import TlsListener
from sidecar.link.ports import Figures, Logger, Tasks
from sidecar.process.sections import split
from sidecar.process.settings import Settings
from sidecar.process.systemd import inherited_socket

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


class Listener(Protocol):
    def close(self) -> None: ...


def listens_at(address: str) -> tuple[list[str], int]:
    """The addresses and the port to bind. No host, `*` and `[::]` are all addresses of both families, as at Kafka; a
    machine without IPv6 has those of one. On one socket for both, clients of IPv4 would have addresses of IPv6."""
    host, port = split(address)
    if host not in ("", "*", "::"):
        return [host], port
    return ["0.0.0.0", "::"] if _has_ipv6() else ["0.0.0.0"], port


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(("::", 0))
    except OSError:
        return False
    return True


async def listen(
    s: Settings, front: Front, figures: Figures, log: Logger, tasks: Tasks, reloads: list[Callable[[], None]]
) -> Listener:
    """`reloads`: what SIGHUP calls; files that are read here are added. Raises StartError."""
    settings = tls_settings(s)
    inherited = inherited_socket(s.listen)
    try:
        if settings is None:
            return await _plain(s, inherited, front, log)
        return await _tls(s, settings, inherited, front, figures, log, tasks, reloads)
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
    inherited: socket.socket | None,
    front: Front,
    figures: Figures,
    log: Logger,
    tasks: Tasks,
    reloads: list[Callable[[], None]],
) -> Listener:
    try:
        certificates = Certificates(settings, figures, log)
    except TlsError as exc:
        raise StartError(str(exc)) from None
    listener = TlsListener(front, certificates, figures, log, tasks)
    await listener.open(*listens_at(s.listen), s.limits.accept_backlog, inherited)
    tasks.spawn(certificates.watch(), "TLS files")
    reloads.append(certificates.reload)
    log.info("listening", listen=s.listen, broker=s.broker, tls=s.tls.min_version, inherited=inherited is not None)
    return listener


async def _plain(s: Settings, inherited: socket.socket | None, front: Front, log: Logger) -> Listener:
    hosts, port = listens_at(s.listen)
    loop = asyncio.get_running_loop()
    backlog = s.limits.accept_backlog
    if inherited is None:
        server = await loop.create_server(lambda: Session(front), hosts, port, backlog=backlog, reuse_address=True)
    else:
        server = await loop.create_server(lambda: Session(front), sock=inherited, backlog=backlog)
    for sock in server.sockets:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    log.info("listening", listen=s.listen, broker=s.broker, inherited=inherited is not None)
    return server
