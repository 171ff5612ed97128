"""Addresses of hosts, and connections to them. A resolver whose first name server is dead answers after 5 s by default:
so a lookup has a bound of its own. Connections to one name share the lookup under way, as each takes a thread.

A slow address does not block: after BESIDE_S the next one is tried, too.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

RESOLVE_S = 20.0
"""Time for a lookup: a dead name server, for each of a few domains to search."""
BESIDE_S = 0.3
"""Time after which the next address is tried beside one that has not answered."""
P = TypeVar("P", bound=asyncio.BaseProtocol)
A = TypeVar("A")
T = TypeVar("T")
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
    make: Callable[[], P],
    addresses: Sequence[str],
    port: int,
    greet: Callable[[P], Awaitable[None]] | None = None,
    sure: tuple[type[OSError], ...] = (),
    **tls: Any,
) -> tuple[asyncio.Transport, P]:
    """Connects to the first of a host's addresses whose listener answers. `greet`: what it must answer; `sure`: errors
    after which no other address is tried, because they are the listener's own. Raises OSError, and others of `greet`.
    """
    own: tuple[type[OSError], ...] = (ssl.SSLError, ConnectionResetError, *sure)
    errors: list[str] = []

    async def connect(address: str) -> tuple[asyncio.Transport, P]:
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.create_connection(make, address, port, **tls)
        try:
            if greet is not None:
                await greet(protocol)
        except BaseException:
            transport.abort()  # no caller has it; an orderly close would wait for a listener that stands still
            raise
        return transport, protocol

    def failed(address: str, problem: BaseException) -> None:
        errors.append(str(problem))
        if len(addresses) == 1 or isinstance(problem, own) or not isinstance(problem, OSError):
            raise problem
        if len(errors) == len(addresses):
            raise OSError(", ".join(errors))

    connection, _ = await first_of(addresses, connect, failed, lambda made: made[0].abort())
    return connection


async def first_of(
    places: Iterable[A],
    attempt: Callable[[A], Coroutine[Any, Any, T]],
    failed: Callable[[A, BaseException], None],
    close: Callable[[T], None],
) -> tuple[T, A]:
    """Returns the result of the first attempt that succeeds, and its place. `failed`: called for each that fails, and
    raises an error to end it all; `close`: called with a result that comes too late. Raises OSError if all fail."""
    left = deque(places)
    trying: dict[asyncio.Task[T], A] = {}
    try:
        while left or trying:
            if left:
                place = left.popleft()
                trying[asyncio.get_running_loop().create_task(attempt(place))] = place
            pause_s = BESIDE_S if left else None
            done, _ = await asyncio.wait(trying, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
            for task in [t for t in trying if t in done]:
                place = trying.pop(task)
                if (problem := task.exception()) is None:
                    return task.result(), place
                failed(place, problem)
    finally:
        for task in trying:
            task.add_done_callback(partial(_close_late, close))
            task.cancel()
    raise OSError("no address")


def _close_late(close: Callable[[T], None], task: asyncio.Task[T]) -> None:
    if not task.cancelled() and task.exception() is None:
        close(task.result())


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
    except UnicodeError:  # an empty label, or one of more than 63 bytes: brokers advertise whatever they are told
        raise socket.gaierror(socket.EAI_NONAME, f"{host[:80]!r} is no name of a host") from None
    return list(dict.fromkeys(str(address[0]) for *_, address in rows))


def _end(key: Key, lookup: asyncio.Task[list[str]]) -> None:
    del _under_way[key]
    if not lookup.cancelled():
        lookup.exception()  # retrieved, as all connections may have given up
