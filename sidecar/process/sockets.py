"""The clients' listening sockets: opened by `sidecar run` before there is a worker, or handed over by systemd
(sd_listen_fds). Either way a worker finds them in the same place."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence

from sidecar.coordinator.statelog.startup_errors import StartError
from sidecar.front.bind import bind
from sidecar.process.setting_kinds import split

FIRST_FD = 3
"""First descriptor of inherited sockets: SD_LISTEN_FDS_START."""
CLIENTS = "clients"
"""Name of the clients' sockets: FileDescriptorName= of the socket unit."""
LISTEN_PID, LISTEN_FDS, LISTEN_FDNAMES = "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"


def listens_at(address: str) -> tuple[list[str], int]:
    """Returns the addresses and the port to bind. No host, `*` and `[::]` are all addresses of both families, as at
    Kafka; a machine without IPv6 has those of one. With one socket for both, IPv4 clients would have IPv6 addresses."""
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


def bound(listen: str, backlog: int) -> list[socket.socket]:
    """Opens the sockets. Raises StartError."""
    hosts, port = listens_at(listen)
    try:
        addresses = [
            row
            for host in hosts
            for row in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        ]
        return bind(addresses, backlog)
    except OSError as exc:
        raise StartError(f"cannot listen on {listen}: {exc.strerror or exc}") from None


def hand_over(sockets: Sequence[socket.socket], env: dict[str, str]) -> None:
    """Puts the sockets where the program that this process becomes finds them; `env` is its environment."""
    if not sockets:
        return
    first_free = FIRST_FD + len(sockets)
    moved = [os.dup(sock.fileno()) for sock in sockets]
    held = []
    while any(fd < first_free for fd in moved):  # none of them lies where another one comes
        held += moved
        moved = [os.dup(fd) for fd in moved]
    for i, fd in enumerate(moved):
        os.dup2(fd, FIRST_FD + i, inheritable=True)
    env.update({LISTEN_PID: str(os.getpid()), LISTEN_FDS: str(len(sockets))})
    env[LISTEN_FDNAMES] = ":".join([CLIENTS] * len(sockets))


def are_handed_over(env: Mapping[str, str] = os.environ) -> bool:
    """Returns whether this process was started with sockets."""
    return env.get(LISTEN_PID) == str(os.getpid())


def inherited_sockets(listen: str, env: Mapping[str, str] = os.environ) -> list[socket.socket]:
    """Returns the clients' listening sockets, if this process was started with any. Raises StartError if they do not
    fit `listen`.

    They are duplicates. The inherited descriptors stay open, so connections wait in them while the sidecar starts anew
    in the same process.
    """
    if not are_handed_over(env):
        return []
    count = int(env.get(LISTEN_FDS, "0"))
    names = env.get(LISTEN_FDNAMES, "").split(":")
    fds = [FIRST_FD + i for i in range(count) if names[i : i + 1] == [CLIENTS]]
    if not fds:
        problem = f"{count} sockets were handed over, none of them named {CLIENTS!r}"
        raise StartError(f"{problem}: the socket unit needs ListenStream= and FileDescriptorName={CLIENTS}")
    sockets = [socket.socket(fileno=os.dup(fd)) for fd in fds]
    for sock in sockets:
        _check(sock, listen)
        sock.setblocking(False)
    return sockets


def _check(sock: socket.socket, listen: str) -> None:
    inet = sock.family in (socket.AF_INET, socket.AF_INET6) and sock.type == socket.SOCK_STREAM
    if not inet or not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        raise StartError(f"a socket that was handed over as {CLIENTS!r} is no listening TCP socket")
    port = sock.getsockname()[1]
    if port != split(listen)[1]:
        problem = f"the socket that was handed over has port {port}, but listen is {listen}"
        raise StartError(f"{problem}: make both the same, or restart the sidecar if listen has changed")
