"""Hundreds of connections that send as fast as they can, in a loop whose work takes time: how long others wait.

Real sockets and a real broker under such clients: tests/hostile/test_hostile.py.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sidecar.front.budget import AT_ONCE, WORK_S
from sidecar.front.reads import LITTLE_BYTES, Reader
from sidecar.front.session import Session
from sidecar.proxy.actions import Got
from tests.front.reception import ManualSession, Reception, group, passed
from tests.inprocess import clock
from tests.inprocess.embedded_sidecar import turns
from tests.inprocess.transport import MemoryTransport

CROWD, ITERATIONS = 300, 400
REQUEST_S, READ_S = 0.00001, 0.00001
"""Time that one request takes the loop, and one read. Thousands fit into one that brings 64 KiB."""
MIB = 1 << 20


class Crowd:
    """Clients of one front; each read and each request takes its time of the loop."""

    def __init__(self) -> None:
        self.front = Reception()
        self.front.given(held_bytes=1 << 16)
        self.front.at_once = self._echo
        self.loop: Any = asyncio.get_running_loop()
        self.brokers: list[MemoryTransport] = []

    def _echo(self, session: Session, got: Got) -> None:
        self.loop.now_s += REQUEST_S
        session.reply(got.token, b"<%d>" % got.correlation_id)

    async def client(self, room: int = 1_000) -> Client:
        self.front.room = room
        return Client(self, ManualSession(self.front))

    async def reach(self, clients: list[Client]) -> None:
        """Each of them has its connection to the broker."""
        for client in clients:
            client.session.data_received(passed(0))
        await turns(2)
        for client in clients:
            client.session.reach()


class Client:
    def __init__(self, crowd: Crowd, session: ManualSession) -> None:
        self.crowd, self.session = crowd, session
        self.socket = MemoryTransport(session)
        session.connection_made(self.socket)
        self.sent_bytes = 0

    def send(self, data: bytes) -> int:
        """Delivers the bytes that one read of the loop gets. Returns their number."""
        return read(self.crowd, self.session, self.socket, data)


def read(crowd: Crowd, reader: Reader, socket: MemoryTransport, data: bytes) -> int:
    if not socket.reading:
        return 0
    crowd.loop.now_s += READ_S
    buffer = reader.get_buffer(-1)
    size = min(len(data), len(buffer))
    buffer[:size] = data[:size]
    reader.buffer_updated(size)
    return size


ENDLESS = {
    "small requests": lambda: b"".join(group(i) for i in range(4_000)),
    "one large request": lambda: passed(1, 64 * MIB),
}
"""Passed in pieces, or handled one by one."""


@pytest.mark.tier("test")
@pytest.mark.parametrize("what", ENDLESS)
def test_hundreds_who_send_what_they_can_leave_others_their_turn(what: str) -> None:
    """Symptom: each had its turn in every iteration of the loop, and a member's heartbeat waited 0.2 s for them all."""

    async def main() -> None:
        crowd, data = Crowd(), ENDLESS[what]()
        clients = [await crowd.client() for _ in range(CROWD)]
        bystander = await crowd.client()
        if what == "one large request":
            await crowd.reach(clients)
        waits = []
        for n in range(ITERATIONS):
            since_s = crowd.loop.time()
            for client in clients:
                at = client.sent_bytes % (len(data) // 2)
                client.sent_bytes += client.send(data[at : at + (1 << 16)])
            assert bystander.send(group(n)) > 0, "whoever asks and waits is always read"
            assert bystander.socket.taken() == b"<%d>" % n, "and answered"
            await asyncio.sleep(0)
            waits.append(crowd.loop.time() - since_s)
        short = CROWD * (READ_S + 3 * REQUEST_S)
        assert max(waits) <= 3 * WORK_S + short, "one turn of each of the others, and then no more"
        assert max(waits[2:]) <= 3 * WORK_S, "they wait for each other then, and not all for their next read"
        least, most = min(c.sent_bytes for c in clients), max(c.sent_bytes for c in clients)
        assert least >= LITTLE_BYTES * ITERATIONS * AT_ONCE // CROWD // 4, f"{least:,}: nobody is forgotten"
        assert most <= 40 * least, "and who came first has no more than the others for long"
        for client in [*clients, bystander]:
            client.socket.lose()
            if client.session.brokers_end is not None:
                client.session.brokers_end.lose()

    clock.run(main())


@pytest.mark.tier("test")
def test_hundreds_who_are_answered_at_once_leave_others_their_turn() -> None:
    """Symptom: the coordinator answered a hundred heartbeats in one batch, each client had a whole turn of what it had
    sent behind it, and a member's heartbeat waited 20 to 90 ms for them."""

    async def main() -> None:
        crowd, each = Crowd(), 200
        waiting: list[tuple[Session, Got]] = []
        crowd.front.at_once = lambda session, got: waiting.append((session, got))
        clients = [await crowd.client() for _ in range(CROWD)]
        for client in clients:
            client.send(b"".join(group(i) for i in range(each)))
            await turns(2)
        assert len(waiting) == CROWD
        crowd.front.at_once = crowd._echo
        since_s = crowd.loop.time()
        for session, got in waiting:
            session.reply(got.token, b"<%d>" % got.correlation_id)
        assert crowd.loop.time() - since_s <= WORK_S + (CROWD + 1) * REQUEST_S, "and then one request of each"
        while any(client.session.conn.waiting for client in clients):
            since_s = crowd.loop.time()
            await asyncio.sleep(0)
            assert crowd.loop.time() - since_s <= 2 * WORK_S
        answers = b"".join(b"<%d>" % i for i in range(each))
        assert all(client.socket.taken() == answers for client in clients), "each has all of its answers in their order"
        for client in clients:
            client.socket.lose()

    clock.run(main())


def test_who_waits_for_others_is_read_no_sooner_because_it_takes_its_answers() -> None:
    """A client that is not read for two reasons is read again when both are over, in any order."""

    async def main() -> None:
        crowd = Crowd()
        client = await crowd.client()
        budget = crowd.front.memory.reads.budget
        for takes_first in (True, False):
            budget.count_work()
            crowd.loop.now_s += 2 * WORK_S
            assert client.send(group(1) * 3_000) > 0
            assert not client.socket.reading, "there may be more to come, and the time is over"
            client.session.pause_writing()
            if takes_first:
                client.session.resume_writing()
                assert not client.socket.reading
                await turns(4_000)
            else:
                await turns(4_000)
                assert not client.socket.reading
                client.session.resume_writing()
                await turns(4_000)
            assert client.socket.reading
        client.socket.lose()

    clock.run(main())


def test_a_broker_that_sends_much_waits_for_others_too() -> None:
    async def main() -> None:
        crowd = Crowd()
        client = await crowd.client()
        await crowd.reach([client])
        broker = client.session.brokers_end
        assert broker is not None
        budget = crowd.front.memory.reads.budget
        answer = (64 * MIB).to_bytes(4, "big") + bytes(1 << 16)
        assert read(crowd, client.session.upstream, broker, answer) == 1 << 16 and broker.reading
        budget.count_work()
        crowd.loop.now_s += 2 * WORK_S
        assert read(crowd, client.session.upstream, broker, bytes(1 << 16)) == 1 << 16, "nobody knew before"
        assert not broker.reading
        await turns(3)
        assert broker.reading
        client.socket.lose()
        broker.lose()

    clock.run(main())
