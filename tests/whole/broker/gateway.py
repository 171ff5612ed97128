"""The simulated brokers behind real sockets and the real clock, so that the client that speaks to a real broker can
speak to them, too. Only the comparison with a real broker uses it: nothing here is deterministic."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping

from tests.whole.broker.cluster import SimCluster
from tests.whole.broker.connection import SimConnection
from tests.whole.broker.ports import NO_DELAYS, ClusterSettings

LISTENER = "CLIENTS"


class _Machine:
    def mono_ms(self) -> int:
        return int(time.monotonic() * 1000)

    def wall_ms(self) -> int:
        return int(time.time() * 1000)

    def later(self, ms: float, fn: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(ms / 1000, fn)


class _World:
    def __init__(self) -> None:
        self.rng = random.Random(1)

    def reachable(self, a: int, b: int) -> bool:
        return True


class _Socket(asyncio.Protocol):
    """One client at the first broker."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.connection: SimConnection | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        peer = transport.get_extra_info("peername")[0]
        self.connection = self.gateway.cluster.connect(1, LISTENER, transport.write, transport.close, peer)

    def data_received(self, data: bytes) -> None:
        if self.connection is not None:
            self.connection.received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.connection is not None:
            self.connection.lost()


class Gateway:
    """One broker on a free local port."""

    def __init__(self, broker: Mapping[str, str]) -> None:
        self.port = 0
        self._broker = dict(broker)

    async def __aenter__(self) -> Gateway:
        server = await asyncio.get_running_loop().create_server(lambda: _Socket(self), "127.0.0.1", 0)
        self._server = server
        self.port = server.sockets[0].getsockname()[1]
        settings = ClusterSettings(
            {1: "rack-1"}, {(1, LISTENER): ("127.0.0.1", self.port)}, broker=self._broker, delays=NO_DELAYS
        )
        machine = _Machine()
        self.cluster = SimCluster(_World(), {1: machine}, machine, settings)
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
