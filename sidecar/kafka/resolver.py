"""Addresses of hosts, and connections to them. A resolver whose first name server is dead answers after 5 s by default:
so a lookup has a bound of its own. Connections to one name share the lookup under way, as each takes a thread."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

RESOLVE_S = 20.0
"""Time for a lookup: a dead name server, for each of a few domains to search."""
P = TypeVar("P", bound=asyncio.BaseProtocol)
Key = tuple[asyncio.AbstractEventLoop, str]
_under_way: dict[Key, asyncio.Task[list[str]]] = {}


def joined(addresses: Iterable[tuple[str, int]]) -> str:
    """Returns addresses as Kafka's `bootstrap.servers` has them: by commas, IPv6 in brackets."""
    return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in addresses)


async def addresses_of(host: str) -> list[str]:
    """Returns the addresses of a host, the best first. Raises OSError: see `is_resolvers`."""
    if is_address(host):
        return [host]
    loop = asyncio.get_running_loop()
    key = loop, host
    if (lookup := _under_way.get(key)) is None:
        lookup = _under_way[key] = loop.create_task(_look_up(loop, host))
        lookup.add_done_callback(lambda ended: _end(key, ended))
    return await asyncio.shield(lookup)  # a connection that gives up does not end it for the others


def is_resolvers(exc: BaseException) -> bool:
    """Whether no name server has answered, which says nothing about the host. One that is gone may have no name."""
    return isinstance(exc, socket.gaierror) and exc.errno == socket.EAI_AGAIN


async def connected(
    make: Callable[[], P], addresses: Sequence[str], port: int, **tls: Any
) -> tuple[asyncio.Transport, P]:
    """Connects to the first of a host's addresses that has a listener. Raises OSError."""
    loop, errors = asyncio.get_running_loop(), []
    for address in addresses:
        try:
            return await loop.create_connection(make, address, port, **tls)
        except OSError as exc:
            if len(addresses) == 1 or isinstance(exc, ssl.SSLError | ConnectionResetError):  # the listener's own
                raise
            errors.append(str(exc))
    raise OSError(", ".join(errors))


def is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


async def _look_up(loop: asyncio.AbstractEventLoop, host: str) -> list[str]:
    try:
        async with asyncio.timeout(RESOLVE_S):
            rows = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except TimeoutError:
        raise socket.gaierror(socket.EAI_AGAIN, "no name server answers") from None
    return list(dict.fromkeys(str(address[0]) for *_, address in rows))


def _end(key: Key, lookup: asyncio.Task[list[str]]) -> None:
    del _under_way[key]
    if not lookup.cancelled():
        lookup.exception()  # retrieved, as all connections may have given up
