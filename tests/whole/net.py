"""The network between processes: connections in memory with delay, order and back-pressure, and what can go wrong.

The kernel of a host answers for a process that stands still: it takes connections and bytes until its buffers are full.
When a process dies, its kernel tells the other ends; when a host is silent or a way is cut, nobody is told anything,
and what was sent arrives when the way is open again, or the connection is given up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from tests.whole.universe import Life, Proc, Universe, Work

if TYPE_CHECKING:
    from tests.whole.loop import SimLoop

Factory = Callable[[], asyncio.Protocol]
KERNEL_BYTES = 256 << 10
"""Bytes that fit between two processes when the one behind reads nothing."""
HIGH_BYTES = 64 << 10
RETRANSMIT_S = 0.2
GIVE_UP_S = 900.0
"""After this long without an acknowledgement a kernel gives a connection up."""


class Accepts(Protocol):
    """A listener at an address."""

    proc: Proc

    def accept(self, end: End) -> None: ...


class Receiver(Protocol):
    """The process behind one end of a connection."""

    full: bool
    """Whether it waits until the other side has taken something."""

    def received(self, data: bytes) -> None: ...

    def ended(self) -> None:
        """The other side sends no more."""

    def lost(self, error: Exception | None) -> None: ...

    def writable(self) -> None:
        """The other side has taken something."""


@dataclass(eq=False)
class End:
    """One end of a connection: what its process writes arrives at `other` after the way's delay."""

    net: Net
    proc: Proc
    address: tuple[str, int]
    other: End = field(init=False)
    receiver: Receiver | None = None
    reading: bool = True
    unread: deque[bytes | None] = field(default_factory=deque)
    """Arrived and not taken; None is the end of what the other side sends."""
    flying: int = 0
    """Bytes sent that the other process has not taken."""
    closed: bool = False
    eof_sent: bool = False
    reset: bool = False
    dead: bool = False
    """Whether its process is gone. Bytes that the process had written before are still sent."""
    _last_ms: float = 0.0
    _stalled: deque[tuple[Work, float]] = field(default_factory=deque)
    """Work that waits for the way, in its order, and since when."""

    # ---- sending ------------------------------------------------------------------------------------------
    def send(self, data: bytes) -> None:
        if self.closed or self.reset or self.eof_sent or not data:
            return
        self.flying += len(data)
        self._ship(lambda: self.other._arrive(data))

    def send_eof(self) -> None:
        if not self.closed and not self.eof_sent:
            self.eof_sent = True
            self._ship(lambda: self.other._arrive(None))

    def close(self) -> None:
        """Closes this end. Bytes that were written still leave; the other side learns of the end."""
        if self.closed:
            return
        self.closed = True
        eof = not self.eof_sent
        self._ship(lambda: self.other._arrive_close(eof))

    def _ship(self, arrive: Work) -> None:
        """In order, over a way that may be cut for a while."""
        net = self.net
        at = max(self._last_ms, net.universe.now_ms + net.delay_ms(self.proc.host, self.other.proc.host))
        self._last_ms = at
        net.universe.at(at, lambda: self._try(arrive, at))

    def _try(self, arrive: Work, began_ms: float) -> None:
        flows = not self._stalled and (self.dead or not self.reset)
        if flows and self._gets_through():
            arrive()
            return
        self._stalled.append((arrive, began_ms))
        if len(self._stalled) == 1:
            self._go_on()

    def _gets_through(self) -> bool:
        net = self.net
        return net.open_way(self.proc.host, self.other.proc.host) and not (net.loses is not None and net.loses(self))

    def _go_on(self) -> None:
        """Lets through what was held back, in order: the first of it holds back all that comes behind it on this
        connection."""
        net, stalled = self.net, self._stalled
        while stalled and (self.dead or not self.reset):
            arrive, began_ms = stalled[0]
            if self._gets_through():
                stalled.popleft()
                arrive()
            elif net.universe.now_ms - began_ms > GIVE_UP_S * 1000:
                self.other._reset(ConnectionResetError("timed out"))
                self._reset(ConnectionResetError("timed out"))
                break
            else:
                net.held.setdefault((self.proc.host, self.other.proc.host), []).append(self._go_on)
                return
        stalled.clear()

    # ---- receiving ----------------------------------------------------------------------------------------
    def _arrive(self, data: bytes | None) -> None:
        if self.reset:
            return
        if not self.proc.alive or self.closed:
            self.other._later_reset()  # nobody is there for it: the kernel says so
            return
        self.unread.append(data)
        if self.receiver is not None and self.reading and self.proc.life is Life.RUNS:
            self._hand_over()

    def _arrive_close(self, eof: bool) -> None:
        if self.proc.alive and not self.closed and not self.reset:
            if eof:
                self.unread.append(None)
            self.pump()

    def pump(self) -> None:
        """Hand over what has arrived, as far as the process runs and reads."""
        if self.unread and self.receiver is not None and self.reading and self.proc.life is Life.RUNS:
            self.proc.later(0, self._hand_over)

    def _hand_over(self) -> None:
        receiver = self.receiver
        while self.unread and receiver is not None and self.reading and not self.closed and not self.reset:
            data = self.unread.popleft()
            if data is None:
                receiver.ended()
                continue
            if self.unread:  # a kernel knows no messages: what has come by then is read together
                parts = [data]
                while self.unread and self.unread[0] is not None and sum(map(len, parts)) < 65_536:
                    parts.append(self.unread.popleft() or b"")
                data = b"".join(parts)
            self.other._taken(len(data))
            receiver.received(data)

    def _taken(self, size: int) -> None:
        self.flying -= size
        if self.receiver is not None and self.receiver.full and self.proc.alive:
            self.proc.later(0, self._writable)

    def _writable(self) -> None:
        if self.receiver is not None and not self.reset:
            self.receiver.writable()

    # ---- ends ---------------------------------------------------------------------------------------------
    def _later_reset(self) -> None:
        self.net.universe.later(0, lambda: self._reset(ConnectionResetError("connection reset by peer")))

    def _reset(self, error: Exception | None) -> None:
        if self.reset:
            return
        self.reset = True
        self.unread.clear()
        if self.proc.alive and self.receiver is not None and not self.closed:
            self.proc.later(0, lambda: self._tell_lost(error))

    def _tell_lost(self, error: Exception | None) -> None:
        if self.receiver is not None:
            self.receiver.lost(error)

    def died(self) -> None:
        """Ends the connection of a process that is gone. Its kernel sends what had been written and tells the other
        process, if the way is open; otherwise when that one sends."""
        if self.reset:
            return
        self.reset = self.dead = True
        net = self.net
        host, there = self.proc.host, self.other.proc.host

        def tell() -> None:
            self.other._reset(ConnectionResetError("connection reset by peer"))

        at = max(self._last_ms, net.universe.now_ms + net.delay_ms(host, there))
        net.universe.at(at, lambda: self._try(tell, at))


class Net:
    def __init__(self, universe: Universe) -> None:
        self.universe = universe
        self.cut: set[tuple[str, str]] = set()
        """Ways from host to host on which nothing arrives."""
        self.silent: set[str] = set()
        """Hosts that send and take nothing."""
        self.loses: Callable[[End], bool] | None = None
        """Connections of which nothing gets through, in this direction, though their way is open."""
        self.slow_ms = 0.0
        """Milliseconds that a way may take longer now and then."""
        self.held: dict[tuple[str, str], list[Work]] = {}
        self._listening: dict[tuple[str, int], Accepts] = {}
        self._ends: dict[Proc, list[End]] = {}
        self._port = 30_000

    # ---- ways ---------------------------------------------------------------------------------------------
    def open_way(self, a: str, b: str) -> bool:
        if a == b:
            return True
        return (a, b) not in self.cut and a not in self.silent and b not in self.silent

    def delay_ms(self, a: str, b: str) -> float:
        chance = self.universe.rng.random
        base = 0.02 + 0.08 * chance() if a == b else 0.2 + 0.8 * chance()
        return base + (chance() * self.slow_ms if self.slow_ms and chance() < 0.2 else 0.0)

    def heal(self) -> None:
        self.cut.clear()
        self.silent.clear()
        self.loses = None
        self.mended()

    def mended(self) -> None:
        """Some ways are open again: what was held arrives, after a retransmission."""
        for way, held in list(self.held.items()):
            if self.open_way(*way):
                del self.held[way]
                wait_ms = self.universe.rng.uniform(0, RETRANSMIT_S * 1000)
                for work in held:
                    self.universe.later(wait_ms, work)

    # ---- connections --------------------------------------------------------------------------------------
    def open_port(self, address: tuple[str, int], accepts: Accepts) -> None:
        if address in self._listening and self._listening[address].proc.alive:
            raise OSError(98, f"address {address} in use")
        self._listening[address] = accepts

    def close_port(self, address: tuple[str, int], accepts: Accepts) -> None:
        if self._listening.get(address) is accepts:
            del self._listening[address]

    def process_died(self, proc: Proc) -> None:
        for address in [a for a, accepts in self._listening.items() if accepts.proc is proc]:
            del self._listening[address]
        for end in self._ends.pop(proc, []):
            end.died()

    def _went_on(self, proc: Proc) -> None:
        """Delivers what the kernel of the process has taken meanwhile."""
        for end in self._ends.get(proc, []):
            end.pump()

    def _remember(self, end: End) -> None:
        if end.proc not in self._ends:
            self._ends[end.proc] = []
            proc = end.proc
            proc.on_death.append(lambda: self.process_died(proc))
            proc.on_resume.append(lambda: self._went_on(proc))
        mine = self._ends[end.proc]
        mine.append(end)
        if len(mine) > 64:
            mine[:] = [e for e in mine if not (e.reset or (e.closed and e.other.closed))]

    def dial(self, proc: Proc, address: tuple[str, int], done: Callable[[End | OSError], None]) -> None:
        """`done` is called in the process: with an end, or with what went wrong; never, if nothing answers."""
        there = address[0]
        self.universe.later(self.delay_ms(proc.host, there), lambda: self._knock(proc, address, done))

    def _knock(self, proc: Proc, address: tuple[str, int], done: Callable[[End | OSError], None]) -> None:
        there = address[0]
        if not (self.open_way(proc.host, there) and self.open_way(there, proc.host)):
            way = (proc.host, there) if not self.open_way(proc.host, there) else (there, proc.host)
            self.held.setdefault(way, []).append(lambda: self._knock(proc, address, done))
            return
        if not proc.alive:
            return
        accepts = self._listening.get(address)
        back_ms = self.delay_ms(there, proc.host)
        if accepts is None or not accepts.proc.alive:
            self.universe.later(back_ms, lambda: done(ConnectionRefusedError(111, f"{address}: refused")), proc)
            return
        self._port = self._port + 1 if self._port < 60_000 else 30_000
        mine, theirs = End(self, proc, (proc.host, self._port)), End(self, accepts.proc, address)
        mine.other, theirs.other = theirs, mine
        self._remember(mine)
        self._remember(theirs)
        accepts.proc.later(0, lambda: accepts.accept(theirs))
        self.universe.later(back_ms, lambda: done(mine), proc)

    # ---- asyncio ------------------------------------------------------------------------------------------
    async def connect(
        self, loop: SimLoop, factory: Factory, host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        future: asyncio.Future[End] = loop.create_future()
        self.dial(loop.proc, (host, port), partial(_dialled, future))
        try:
            end = await future
        finally:
            del future  # its exception holds this frame
        protocol = factory()
        transport = SimTransport(loop, end, protocol)
        await asyncio.sleep(0)  # until the protocol has been told
        return transport, protocol

    def listen(self, loop: SimLoop, factory: Factory, host: str, port: int) -> Server:
        if not port:
            self._port = port = self._port + 1
        server = Server(self, loop, factory, (host, port))
        self.open_port((host, port), server)
        return server


def _dialled(future: asyncio.Future[End], found: End | OSError) -> None:
    if future.done():
        if isinstance(found, End):
            found.close()
    elif isinstance(found, End):
        future.set_result(found)
    else:
        future.set_exception(found)


class Listening:
    """The socket that a server shows."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address

    def getsockname(self) -> tuple[str, int]:
        return self._address

    def setsockopt(self, *option: int) -> None:
        """Does nothing: only the net delays anything here."""


class Server:
    """The server that `loop.create_server` returns."""

    def __init__(self, net: Net, loop: SimLoop, factory: Factory, address: tuple[str, int]) -> None:
        self.sockets = (Listening(address),)
        self.proc = loop.proc
        self._net, self._loop, self._factory, self._address = net, loop, factory, address

    def accept(self, end: End) -> None:
        SimTransport(self._loop, end, self._factory())

    def close(self) -> None:
        self._net.close_port(self._address, self)


class SimTransport(asyncio.Transport):
    """One end of a connection, as a protocol on a SimLoop sees it. It is its own `Receiver`."""

    def __init__(self, loop: SimLoop, end: End, protocol: asyncio.Protocol) -> None:
        super().__init__({"peername": end.other.address, "sockname": end.address})
        self._loop, self._end, self._protocol = loop, end, protocol
        self._high, self.full, self._over = HIGH_BYTES, False, False
        end.receiver = self
        loop.call_soon(protocol.connection_made, self)
        loop.call_soon(end.pump)

    # ---- the protocol's side --------------------------------------------------------------------------------
    def write(self, data: Any) -> None:
        if self._over or self._loop.proc.life is not Life.RUNS:
            return
        self._end.send(bytes(data))
        if not self.full and self._end.flying > self._high + KERNEL_BYTES:
            self.full = True
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        self._end.send_eof()

    def can_write_eof(self) -> bool:
        return True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = HIGH_BYTES if high is None else high

    def get_write_buffer_size(self) -> int:
        return max(0, self._end.flying - KERNEL_BYTES)

    def pause_reading(self) -> None:
        self._end.reading = False

    def resume_reading(self) -> None:
        self._end.reading = True
        self._end.pump()

    def is_reading(self) -> bool:
        return self._end.reading

    def is_closing(self) -> bool:
        return self._over

    def close(self) -> None:
        if not self._over:
            self._over = True
            self._end.close()
            self._loop.call_soon(self._lost, None)

    def abort(self) -> None:
        self.close()

    def _lost(self, error: Exception | None) -> None:
        """The protocol is let go, as asyncio and uvloop do."""
        protocol = self._protocol
        del self._protocol
        protocol.connection_lost(error)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    # ---- the connection's side ------------------------------------------------------------------------------
    def received(self, data: bytes) -> None:
        if not self._over:
            self._loop.call_now(self._data, data)

    def _data(self, data: bytes) -> None:
        if not self._over:
            self._protocol.data_received(data)

    def ended(self) -> None:
        self._loop.call_soon(self._eof)

    def _eof(self) -> None:
        if not self._over and not self._protocol.eof_received():
            self.close()

    def lost(self, error: Exception | None) -> None:
        if not self._over:
            self._over = True
            self._loop.call_soon(self._lost, error)

    def writable(self) -> None:
        if self.full and not self._over and self._end.flying <= self._high // 4 + KERNEL_BYTES:
            self.full = False
            self._loop.call_soon(self._protocol.resume_writing)
