"""Addresses of brokers' names. A resolver whose first name server is dead answers after 5 s by default: so a lookup has
a bound of its own. Connections to one name share the lookup under way, as each takes a thread."""

from __future__ import annotations

import asyncio
import ipaddress
import socket

RESOLVE_S = 20.0
"""Time for a lookup: a dead name server, for each of a few domains to search."""
Key = tuple[asyncio.AbstractEventLoop, str]
_under_way: dict[Key, asyncio.Task[list[str]]] = {}


async def addresses_of(host: str) -> list[str]:
    """Returns the addresses of a host, the best first. Raises OSError and TimeoutError."""
    if _is_address(host):
        return [host]
    loop = asyncio.get_running_loop()
    key = loop, host
    if (lookup := _under_way.get(key)) is None:
        lookup = _under_way[key] = loop.create_task(_look_up(loop, host))
        lookup.add_done_callback(lambda ended: _end(key, ended))
    return await asyncio.shield(lookup)  # a connection that gives up does not end it for the others


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


async def _look_up(loop: asyncio.AbstractEventLoop, host: str) -> list[str]:
    async with asyncio.timeout(RESOLVE_S):
        rows = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in rows))


def _end(key: Key, lookup: asyncio.Task[list[str]]) -> None:
    del _under_way[key]
    if not lookup.cancelled():
        lookup.exception()  # retrieved, as all connections may have given up
