"""A session between a client and a broker that a test plays by hand, byte by byte."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from sidecar.front.broker_watch import BrokerWatch
from sidecar.front.flow_control import PAUSES
from sidecar.front.large import LargeRequests
from sidecar.front.memory import Memory
from sidecar.front.session import Session
from sidecar.front.settings import FrontSettings
from sidecar.front.upstream import Broker
from sidecar.proxy.actions import Close, Got
from sidecar.proxy.internal import NOT_SHOWN
from sidecar.wire.frames import Limits, request_frame
from tests.harness.collector import no_collector
from tests.inprocess import clock
from tests.inprocess.embedded_sidecar import Counted, Lines, turns
from tests.inprocess.transport import MemoryTransport

METADATA, HEARTBEAT = 3, 68


def passed(correlation: int, size: int = 10) -> bytes:
    return request_frame(METADATA, 9, correlation, "c", True, b"x" * size)


def group(correlation: int) -> bytes:
    return request_frame(HEARTBEAT, 1, correlation, "c", True, b"hb")


def response(correlation: int, body: bytes = b"") -> bytes:
    return (4 + len(body)).to_bytes(4, "big") + correlation.to_bytes(4, "big") + body


class Reception:
    """The socket server as a session sees it: it keeps what is dispatched, and answers when a test says so."""

    def __init__(self) -> None:
        self.settings = FrontSettings(
            1,
            ("127.0.0.1", 1),
            Limits(10_000_000, 1_000_000, in_flight=4, turn_requests=8),
            managed=lambda group_id: True,
            managing=True,
            header_timeout_s=0.02,
        )
        self.broker = Broker(self.settings.broker, self.settings.upstream_tls)
        self.internal = NOT_SHOWN
        self.memory = Memory(0, 65_536)
        self.pauses = dict.fromkeys(PAUSES, 0)
        self.large = LargeRequests(4, self.pauses)
        self.log = Lines()
        self.watch = BrokerWatch(0, self.broker.connect, (), lambda quiet_ms, to_all: None, Counted(), self.log)
        self.got: list[Got] = []
        self.closed: list[str] = []
        self.refusals: list[Close] = []
        self.room = 10
        self.at_once: Callable[[Session, Got], None] | None = None
        """Called when a request is dispatched, if it is answered then."""

    def given(self, **fields: Any) -> None:
        """Other settings for sessions that come from now on."""
        self.settings = replace(self.settings, **fields)

    def opened(self, session: Session) -> str:
        self.room -= 1
        return "" if self.room >= 0 else "too_many_connections"

    def gone(self, session: Session, cause: str) -> None:
        self.closed.append(cause)

    def refused(self, session: Session, close: Close) -> None:
        self.refusals.append(close)

    def broker_refused(self, host: str, detail: str) -> None:
        raise AssertionError(detail)

    def dispatch(self, session: Session, got: Got) -> None:
        self.got.append(got)
        if self.at_once is not None:
            self.at_once(session, got)


class ManualSession(Session):
    """A session whose connection to the broker a test makes."""

    def __init__(self, front: Reception) -> None:
        super().__init__(front)
        reached = self._reached = asyncio.Event()

        async def reach(factory: Callable[[], Any]) -> None:
            await reached.wait()

        self.brokers_end: MemoryTransport | None = None
        self.upstream.connect = reach

    def reach(self) -> MemoryTransport:
        transport = self.brokers_end = MemoryTransport(self.upstream, ("broker", 9092))
        self.upstream.connection_made(transport)
        self._reached.set()
        return transport


class Bench:
    def __init__(self) -> None:
        self.front = Reception()
        self.session = ManualSession(self.front)
        self.client = MemoryTransport(self.session)
        self.session.connection_made(self.client)

    async def broker(self) -> MemoryTransport:
        """The connection to the broker, which the session has asked for."""
        await turns(2)
        return self.session.reach()

    def lose_broker(self) -> None:
        if self.session.brokers_end is not None:
            self.session.brokers_end.lose()

    def answer(self, n: int, frame: bytes) -> None:
        self.session.reply(self.front.got[n].token, frame)


def run(test: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    """However the session ends, nothing of it is left for the collector."""

    async def main() -> None:
        bench = Bench()
        session = weakref.ref(bench.session)
        await test(bench)
        bench.client.lose()
        bench.lose_broker()
        await turns(3)
        del bench
        await turns(2)
        left = session()
        assert left is None, [type(r) for r in gc.get_referrers(left)]

    with no_collector():
        clock.run(main())
