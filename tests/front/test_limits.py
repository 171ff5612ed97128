"""Limits of one session and of all: whose turn it is, what is kept for clients that do not read, who is let in.

Real sockets and a real broker under such clients: tests/hostile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from sidecar.front.memory import AT_ONCE, Memory, shared
from sidecar.front.outbox import PIECE_BYTES
from sidecar.front.reads import LITTLE_BYTES, READ_BYTES, Reader
from sidecar.front.session import Session
from sidecar.front.settings import DoorSettings
from sidecar.front.unread import Unread
from sidecar.link.messages import Request
from sidecar.process.limits import LimitsSection
from sidecar.process.parts import connections_per_ip
from sidecar.proxy.actions import Got
from sidecar.wire.frames import Limits, request_frame
from tests.front.reception import HEARTBEAT, Bench, ManualSession, Reception, group, passed, response, run
from tests.inprocess import clock
from tests.inprocess.embedded_front import EmbeddedFront
from tests.inprocess.embedded_sidecar import turns, until
from tests.inprocess.messages import beat, metadata
from tests.inprocess.transport import MemoryTransport

TURN, DESCRIBE_GROUPS = 8, 15
"""`turn_requests` of the reception, and a request that may have a large answer."""


def echo(session: Any, got: Got) -> None:
    session.reply(got.token, b"<%d>" % got.correlation_id)


# ---- turns
def test_a_thousand_pipelined_requests_give_others_their_turn() -> None:
    """Symptom: a bystander's heartbeats had a p99 of 340 ms while one connection sent a thousand at a time."""

    async def test(b: Bench) -> None:
        b.front.at_once = echo
        other = MemoryTransport(ManualSession(b.front))
        other.protocol.connection_made(other)
        b.client.feed(b"".join(group(i) for i in range(1, 1001)))
        assert len(b.front.got) == TURN
        other.feed(group(5000))
        assert other.taken() == b"<5000>", "it waits for one turn at most"
        for n in range(2, 6):
            await turns(1)
            assert len(b.front.got) == n * TURN + 1
        await turns(1000 // TURN)
        assert b.client.taken() == b"".join(b"<%d>" % i for i in range(1, 1001))
        other.lose()

    run(test)


def test_bytes_that_come_meanwhile_give_no_second_turn() -> None:
    async def test(b: Bench) -> None:
        b.front.at_once = echo
        for k in range(4):
            b.client.feed(b"".join(group(100 * k + i) for i in range(2 * TURN)))
        assert len(b.front.got) == TURN
        await turns(10)
        assert len(b.front.got) == 8 * TURN

    run(test)


def test_a_connection_that_ends_before_its_next_turn_has_none() -> None:
    """Symptom: its turns went on for ever, and the process was never idle again."""

    async def test(b: Bench) -> None:
        b.front.at_once = echo
        b.client.feed(b"".join(group(i) for i in range(3 * TURN)))
        b.session.close("shutdown")
        await turns(5)
        assert not b.session.turn_due and len(b.front.got) == TURN
        assert b.front.closed == ["shutdown"]

    run(test)


def test_only_so_many_requests_of_one_read_are_under_way() -> None:
    """Symptom: the limit was looked at after all requests of a read had been sent on, thousands of them."""

    async def test(b: Bench) -> None:
        b.client.feed(b"".join(passed(i) for i in range(1, 8)))
        broker = await b.broker()
        assert broker.taken() == b"".join(passed(i) for i in range(1, 5)), "four may be in flight"
        assert not b.client.reading and b.front.pauses["in_flight"] == 1
        broker.feed(response(1) + response(2))
        assert broker.taken() == passed(5) + passed(6)
        broker.feed(response(3) + response(4) + response(5) + response(6))
        assert broker.taken() == passed(7) and b.client.reading
        broker.feed(response(7))
        assert b.client.taken() == b"".join(response(i) for i in range(1, 8))

    run(test)


def test_the_end_of_the_clients_half_waits_for_turns() -> None:
    async def test(b: Bench) -> None:
        b.front.at_once = echo
        b.client.feed(b"".join(group(i) for i in range(1, 3 * TURN + 1)))
        b.client.feed_eof()
        await turns(10)
        assert b.client.taken() == b"".join(b"<%d>" % i for i in range(1, 3 * TURN + 1))
        assert b.front.closed == ["client_closed"]

    run(test)


def test_of_large_requests_one_is_read_before_the_loop_turns_whoever_sends_them() -> None:
    """Symptom: ten clients with a large request each would have stopped the loop for longer than the lease."""

    async def test(embedded: EmbeddedFront) -> None:
        seen: list[int] = []
        embedded.front.server.large.at_a_time = 5
        embedded.front.server.dispatch = lambda session, got: seen.append(got.correlation_id)
        clients = [await embedded.client() for _ in range(5)]
        for n, client in enumerate(clients):
            client.send(request_frame(14, 5, n, "c", True, b"x" * 100_000))
        clients[0].close()
        (await embedded.client()).send(group(100))
        assert seen == [0, 100], "small ones go on"
        for n in range(1, 5):
            await turns(1)
            assert seen == [0, 100, *range(1, n + 1)]

    run_with_door(test)


# ---- clients that do not read
def test_a_client_that_reads_no_answers_is_not_read_and_its_requests_wait() -> None:
    """Symptom: answers to heartbeats were kept without limit for a client that sent and never read."""

    async def test(b: Bench) -> None:
        b.front.at_once = echo
        b.session.pause_writing()
        assert not b.client.reading and b.front.pauses["unread"] == 1
        b.session.data_received(group(1) + group(2))  # was under way already
        await turns(5)
        assert b.front.got == []
        b.session.resume_writing()
        await turns(5)
        assert b.client.reading and b.client.taken() == b"<1><2>"

    run(test)


def test_what_was_held_waits_too_while_answers_are_not_read() -> None:
    async def test(b: Bench) -> None:
        b.client.feed(group(1) + group(2) + group(3))
        b.session.pause_writing()
        b.answer(0, b"ONE")
        await turns(3)
        assert len(b.front.got) == 1
        b.session.resume_writing()
        await turns(3)
        assert len(b.front.got) == 2

    run(test)


ANSWER = b"a" * (1 << 20)
KEPT = len(ANSWER) + PIECE_BYTES
"""Bytes of an answer that are kept: the whole is there while its first piece is with the transport."""


class NotRead(MemoryTransport):
    """The other end takes nothing. It reads and pauses as the transports of asyncio and uvloop do."""

    def feed(self, data: bytes) -> None:
        assert isinstance(self.protocol, Reader)
        while data and self.reading:
            n = len(self.protocol.get_buffer(-1))
            super().feed(data[:n])
            data = data[n:]

    def write(self, data: bytes | bytearray | memoryview) -> None:
        before, self.unread = self.unread, self.unread + len(data)
        if before == 0:
            self.protocol.pause_writing()

    def read(self) -> None:
        """Reads all bytes that have come."""
        while self.unread:
            self.unread = 0
            self.protocol.resume_writing()


def in_a_later_turn(session: Session, got: Got) -> None:
    asyncio.get_running_loop().call_soon(session.reply, got.token, ANSWER)


@pytest.mark.parametrize("api", [HEARTBEAT, DESCRIBE_GROUPS])
@pytest.mark.parametrize("behind", [True, False], ids=["behind one that passes", "alone"])
@pytest.mark.parametrize("answers", [lambda s, got: s.reply(got.token, ANSWER), in_a_later_turn], ids=["now", "later"])
def test_a_client_that_reads_nothing_makes_the_front_hold_one_answer(
    api: int, behind: bool, answers: Callable[[Session, Got], None]
) -> None:
    """Symptom: 32 answers were made in one turn, whatever their size, and 255 behind a request that the broker does not
    answer: 2 GiB with answers of 8 MiB, for one connection."""

    async def main() -> None:
        front = Reception()
        front.given(limits=Limits(10_000_000, 1_000_000))
        front.at_once = answers
        session = ManualSession(front)
        client = NotRead(session)
        session.connection_made(client)
        if behind:
            client.feed(passed(1))
            await turns(2)
            broker = session.reach()
        client.feed(b"".join(request_frame(api, 1, n, "c", True, b"") for n in range(2, 600)))
        await turns(1_000)
        held = session.to_client.left_bytes + session.conn.order.reply_bytes
        assert held == (0 if behind and api == DESCRIBE_GROUPS else len(ANSWER))
        if behind:
            broker.feed(response(1))
            await turns(1_000)
            assert len(ANSWER) <= session.to_client.left_bytes <= len(ANSWER) + 100
        client.read()
        await turns(1_000)
        assert session.to_client.left_bytes == len(ANSWER), (
            "as a broker makes the next answer when the client has taken the one before"
        )
        client.lose()

    clock.run(main())


def test_what_all_clients_do_not_read_has_a_limit() -> None:
    """Symptom: thousands of connections that asked for a large answer each, and read none, ended the sidecar."""

    async def main() -> None:
        front = Reception()
        front.at_once = in_a_later_turn
        front.memory.unread = unread = Unread(4 * KEPT)
        clients: list[NotRead] = []
        for n in range(6):
            session = ManualSession(front)
            clients.append(client := NotRead(session))
            session.connection_made(client)
            client.feed(group(n) + group(n + 100))
            await turns(5)
            if n == 3:
                clients[1].read()  # it takes its first answer, and is behind the others with its second one
                await turns(5)
        assert [c.closing for c in clients] == [True, False, True, False, False, False]
        assert front.closed == ["not_read"] * 2
        assert unread.total_bytes == 4 * KEPT
        for client in clients:
            client.lose()
        await turns(2)
        assert unread.total_bytes == 0

    clock.run(main())


class UnreadSessions:
    """Sessions with one client and one broker each, neither of which reads anything."""

    def __init__(self, limit_bytes: int) -> None:
        self.front = Reception()
        self.front.settings = replace(self.front.settings, limits=Limits(100_000_000, 1_000_000))
        self.front.room = 1_000
        self.front.at_once = lambda session, got: session.reply(got.token, MIDDLING)
        self.front.memory = Memory(limit_bytes, 1_000, Unread(limit_bytes))
        self.sessions: list[ManualSession] = []
        self.clients: list[NotRead] = []

    def session(self) -> tuple[ManualSession, NotRead]:
        session = ManualSession(self.front)
        client = NotRead(session)
        session.connection_made(client)
        self.sessions.append(session)
        self.clients.append(client)
        return session, client

    async def reached(self, session: ManualSession) -> NotRead:
        """Returns the session's broker, which has read the first request, and reads nothing after it."""
        await turns(2)
        broker = NotRead(session.upstream, ("broker", 9092))
        session.upstream.connection_made(broker)
        broker.read()
        return broker

    @property
    def held_bytes(self) -> int:
        """Returns the bytes that open sessions hold."""
        return sum(
            s.to_client.left_bytes + s.upstream.outbox.left_bytes + s.conn.order.reply_bytes + s.conn.held_bytes
            for s, client in zip(self.sessions, self.clients, strict=True)
            if not client.closing
        )


async def responses_that_pass(pile: UnreadSessions) -> None:
    """Responses of 1 MB, to clients that do not read."""
    session, client = pile.session()
    client.feed(passed(1))
    broker = await pile.reached(session)
    broker.feed(response(1, bytes(1_000_000)))


async def requests_that_pass(pile: UnreadSessions) -> None:
    """Requests of 1 MB, to a broker that does not read."""
    session, client = pile.session()
    client.feed(passed(1))
    await pile.reached(session)
    client.feed(passed(2, 1_000_000))


async def requests_without_a_broker(pile: UnreadSessions) -> None:
    """The same, while the broker takes no connection."""
    _, client = pile.session()
    client.feed(passed(1, 1_000_000))


async def answers(pile: UnreadSessions) -> None:
    """To a client that asks again and again."""
    _, client = pile.session()
    client.feed(MANY)
    await turns(50)


async def answers_behind_a_fetch(pile: UnreadSessions) -> None:
    """To a client whose first request the broker does not answer."""
    session, client = pile.session()
    client.feed(passed(1))
    await pile.reached(session)
    client.feed(MANY)
    await turns(50)


async def requests_behind_another(pile: UnreadSessions) -> None:
    """Requests of a client whose first request is not answered."""
    _, client = pile.session()
    pile.front.at_once = None
    client.feed(MANY)


MIDDLING = b"a" * 50_000
MANY = b"".join(group(n) for n in range(10_000))
PILES = [
    responses_that_pass,
    requests_that_pass,
    requests_without_a_broker,
    answers,
    answers_behind_a_fetch,
    requests_behind_another,
]


@pytest.mark.parametrize("grows", PILES, ids=lambda g: g.__name__)
def test_what_all_sessions_keep_is_no_more_than_the_limit_and_some_kb_of_each(
    grows: Callable[[UnreadSessions], Coroutine[Any, Any, None]],
) -> None:
    """Symptom: what each had without being counted was 3.3 GiB with 10,000 connections, where the unit allows 1 GiB:
    64 KiB and a read of 256 KiB of answers, the same of what the broker did not take, and a read behind a request."""
    limit, count = 2_000_000, 300

    async def main() -> None:
        pile = UnreadSessions(limit)
        for _ in range(count):
            await grows(pile)
        of_each = 2 * (LITTLE_BYTES + 1_000)
        assert limit // 2 <= pile.held_bytes <= limit + READ_BYTES + count * of_each, f"{pile.held_bytes:,}"
        assert len(pile.clients) == count
        left = sum(client.closing for client in pile.clients)
        assert bool(left) == grows.__name__.startswith("answers"), "who has only slow links stays"
        for client in pile.clients:
            client.lose()
        await turns(5)
        assert pile.front.memory.unread.total_bytes == pile.front.memory.reserved_bytes == 0

    clock.run(main())


# ---- requests that are not whole
def test_the_rest_of_a_request_behind_an_answered_one_is_waited_for_no_longer() -> None:
    """Symptom: the time of half a request began with the next bytes only, which never came."""

    async def test(b: Bench) -> None:
        b.client.feed(group(1) + group(2)[:15])
        b.answer(0, b"ONE")
        await until(lambda: b.client.closing, 0.5)
        await turns(2)
        assert b.front.closed == ["request_timeout"]

    run(test)


def test_a_client_that_never_pauses_is_not_taken_for_a_slow_one() -> None:
    """Symptom: a connection whose every read ended within a request was closed after `header_timeout_ms`."""

    async def test(b: Bench) -> None:
        b.front.at_once = echo
        b.front.given(header_timeout_s=0.3)
        stream = b"".join(group(i) for i in range(1, 60))
        step = len(group(1))
        b.client.feed(stream[:15])
        for at in range(15, len(stream) - step, step):
            b.client.feed(stream[at : at + step])
            await asyncio.sleep(0.01)
        assert not b.client.closing
        assert len(b.session.conn._held) < 3 * step, "what was handled is not kept"

    run(test)


def test_half_a_request_is_not_the_clients_fault_while_it_is_not_read() -> None:
    async def test(b: Bench) -> None:
        b.client.feed(passed(1))
        broker = await b.broker()
        broker.protocol.pause_writing()
        b.session.data_received(group(2)[:15])
        await asyncio.sleep(0.04)
        assert not b.client.closing
        broker.protocol.resume_writing()
        await until(lambda: b.client.closing, 0.5)

    run(test)


def head(size: int) -> bytes:
    """The beginning of a group request that says it has so many bytes."""
    return size.to_bytes(4, "big") + group(1)[4:]


def test_large_requests_that_come_at_once_wait_for_room() -> None:
    async def main() -> None:
        front = Reception()
        front.given(limits=Limits(10_000_000, 1_000_000))
        front.memory = Memory(250_000, 65_536)
        clients = []
        for _ in range(4):
            session = ManualSession(front)
            clients.append(client := MemoryTransport(session))
            session.connection_made(client)
            client.feed(head(150_000))
        reading = [c.reading for c in clients]
        assert reading == [True, True, False, False], "the last one that gets something may go over the limit"
        assert front.memory.reserved_bytes == 2 * 150_004
        small = MemoryTransport(ManualSession(front))
        small.protocol.connection_made(small)
        small.feed(group(1))
        assert len(front.got) == 1, "others do not wait"
        clients[2].feed(b"x")
        clients[0].feed(b"x" * (150_004 - len(group(1))))
        assert len(front.got) == 2 and [c.reading for c in clients] == [True, True, True, False]
        clients[3].lose()
        await until(lambda: clients[1].closing and clients[2].closing, 0.5)
        await turns(3)
        assert front.closed == ["client_closed", "request_timeout", "request_timeout"]
        assert front.memory.reserved_bytes == 0
        for c in (*clients, small):
            c.lose()

    clock.run(main())


def test_a_thousand_who_wait_for_room_go_on_some_at_a_time() -> None:
    """Symptom: each gave others room within its own call. That ended in a RecursionError, which ended the coordinator,
    and those that were left were never read again."""

    async def main() -> None:
        front = Reception()
        front.room = 1_001
        front.memory = Memory(900_000, 100)
        large = MemoryTransport(ManualSession(front))
        clients = [MemoryTransport(ManualSession(front)) for _ in range(1_000)]
        for client, size in ((large, 900_000), *((c, 500) for c in clients)):
            client.protocol.connection_made(client)
            client.feed(head(size))
        assert not any(c.reading for c in clients)
        large.lose()
        assert sum(c.reading for c in clients) == AT_ONCE
        await turns(1_000 // AT_ONCE + 1)
        assert all(c.reading for c in clients) and front.memory.reserved_bytes == 1_000 * 504
        for c in clients:
            c.lose()
        assert front.memory.reserved_bytes == 0

    clock.run(main())


def test_who_waits_for_room_has_all_its_time_when_it_comes() -> None:
    async def main() -> None:
        front = Reception()
        front.memory = Memory(1, 65_536)
        first, second = (MemoryTransport(ManualSession(front)) for _ in range(2))
        for c in (first, second):
            c.protocol.connection_made(c)
            c.feed(head(150_000))
        await until(lambda: second.reading, 0.5)
        assert first.closing and not second.closing
        second.feed(b"x" * (150_004 - len(group(1))))
        assert len(front.got) == 1
        second.lose()

    clock.run(main())


def test_what_waits_behind_requests_is_counted_over_all_connections() -> None:
    """Symptom: ten thousand connections could each keep what they had sent behind a request that waits."""

    async def main() -> None:
        front = Reception()
        front.memory = Memory(2_000, 100)
        sessions = [ManualSession(front) for _ in range(5)]
        clients = [MemoryTransport(s) for s in sessions]
        for s, c in zip(sessions, clients, strict=True):
            s.connection_made(c)
            c.feed(group(1))
            while c.reading and s.conn.held_bytes < 1_500:
                c.feed(group(2))
        held = [s.conn.held_bytes for s in sessions]
        step = len(group(2))
        assert held[0] >= 1_500 and [c.reading for c in clients] == [True, False, False, False, False]
        assert all(100 < h <= 100 + step for h in held[2:]), "each has its own part, whatever the others do"
        assert 2_000 <= front.memory.reserved_bytes <= 2_000 + step, "the last one may go over it"
        assert front.pauses["memory"] == 4
        front.at_once = echo
        sessions[0].reply(front.got[0].token, b"<1>")
        await turns(100)
        assert [c.reading for c in clients] == [True] * 5 and front.memory.reserved_bytes < 2_000
        for s, got in zip(sessions[1:], front.got[1:5], strict=True):
            s.reply(got.token, b"<1>")
        await turns(200)
        assert front.memory.reserved_bytes == 0 and not any(s.flow.waits_for_memory for s in sessions)
        assert sum(len(c.taken().split(b">")) - 1 for c in clients) == 5 + sum(held) // step
        for c in clients:
            c.lose()

    clock.run(main())


def test_who_waits_for_more_and_needs_nothing_meanwhile_gives_back_what_it_has() -> None:
    """Otherwise those who wait for the rest of a request could wait for each other."""

    async def main() -> None:
        front = Reception()
        front.given(limits=Limits(10_000_000, 1_000_000), header_timeout_s=5.0)
        front.at_once = echo
        front.memory = Memory(300, 10)
        a, b = (MemoryTransport(ManualSession(front)) for _ in range(2))
        for c in (a, b):
            c.protocol.connection_made(c)
            c.feed(head(200))
        assert front.memory.reserved_bytes == 2 * 204
        rest = b"x" * (204 - len(group(1)))
        for c in (a, b):
            c.feed(rest + head(5_000))
        assert (a.reading, b.reading, front.memory.reserved_bytes) == (True, False, 5_004)
        a.feed(b"x" * (5_004 - len(group(1))))
        assert b.reading and front.memory.reserved_bytes == 5_004
        b.feed(b"x" * (5_004 - len(group(1))))
        assert len(front.got) == 4 and front.memory.reserved_bytes == 0
        for c in (a, b):
            c.lose()

    clock.run(main())


@pytest.mark.parametrize(
    "total, connections, held, common, own",
    [(1_000, 10, 65_536, 500, 50), (1_000, 10, 20, 800, 20), (5, 10, 20, 5, 0), (0, 10, 20, 0, 20)],
)
def test_half_of_the_memory_is_shared_out(total: int, connections: int, held: int, common: int, own: int) -> None:
    memory = shared(total, connections, held)
    assert (memory.limit_bytes, memory.own_bytes) == (common, own)


# ---- who is let in, and for how long
def test_connections_that_come_faster_than_they_may_wait_for_their_turn() -> None:
    """KIP-612: max.connection.creation.rate."""

    async def test(embedded: EmbeddedFront) -> None:
        embedded.show()
        clients = [await embedded.client() for _ in range(16)]
        for n, client in enumerate(clients):
            client.post(beat("g", f"m{n}", 1), 1)
        assert embedded.front.server.pauses["rate"] == 5, "what may come in a second may come at once"
        assert [c.closed for c in clients] == [False] * 13 + [True] * 3, "the line is that long"
        await turns()
        assert embedded.metrics.value("closed", "connection_rate") == 3
        assert 8 <= len(embedded.of(Request)) < 13
        since = asyncio.get_running_loop().time()
        await until(lambda: len(embedded.of(Request)) == 13)
        assert asyncio.get_running_loop().time() - since > 0.2, "one after the other"
        assert not (await embedded.client()).closed, "the line is shorter now"

    run_with_door(test, rate=8, line=5)


def run_with_door(test: Callable[[EmbeddedFront], Coroutine[Any, Any, None]], **given: Any) -> None:
    async def main() -> None:
        embedded = EmbeddedFront(door=DoorSettings(**given))
        embedded.show()
        await test(embedded)
        assert not embedded.tasks.failed.done(), embedded.tasks.failed.exception()

    clock.run(main())


def test_connections_of_one_address_have_a_limit() -> None:
    async def test(embedded: EmbeddedFront) -> None:
        first, _ = await embedded.client(), await embedded.client()
        third = await embedded.client()
        assert third.closed and not first.closed
        assert not (await embedded.client("10.0.0.8")).closed
        trusted = [await embedded.client("10.0.0.7") for _ in range(3)]
        assert [c.closed for c in trusted] == [False, False, False]
        await turns()
        assert embedded.metrics.value("closed", "too_many_from_address") == 1
        first.close()
        assert not (await embedded.client()).closed

    run_with_door(test, per_ip_max=2, per_ip_overrides={"10.0.0.7": 3})


def test_a_client_of_ipv4_has_its_own_address_at_a_socket_for_both_families() -> None:
    """Symptom: with the socket that systemd opens for `ListenStream=9092` no override counted, and members had other
    hosts than at a broker, whose Java knows such clients by their addresses of IPv4."""

    async def test(embedded: EmbeddedFront) -> None:
        clients = [await embedded.client(host) for host in ("::ffff:10.0.0.7", "10.0.0.7", "::ffff:10.0.0.7")]
        assert [c.closed for c in clients] == [False, False, True]
        assert {session.facts.host for session in embedded.front.server.sessions} == {"10.0.0.7"}

    run_with_door(test, per_ip_max=0, per_ip_overrides={"10.0.0.7": 2})


def test_connections_that_have_to_prove_themselves_first_count_while_they_do() -> None:
    async def test(embedded: EmbeddedFront) -> None:
        door = embedded.front.server.door
        session = await embedded.client("10.0.0.5")
        session.post(metadata("t"), 9)
        assert door.arriving("10.0.0.9") == ("", 0.0)
        assert door.arriving("10.0.0.9")[0] == "too_many_from_address"
        assert door.arriving("10.0.0.8") == ("", 0.0)
        assert door.arriving("10.0.0.7")[0] == "too_many_connections", "one is there, and two are arriving"
        door.let_go("10.0.0.9")
        assert door.arriving("10.0.0.7") == ("", 0.0) and not session.closed
        for host in ("10.0.0.8", "10.0.0.7"):
            door.let_go(host)
        session.close()
        assert not door._from and not door._arriving

    run_with_door(test, connections_max=3, per_ip_max=1)


def test_the_oldest_that_never_sent_a_request_gives_way() -> None:
    """Symptom: 10,000 connections that sent nothing kept everybody else out for ten minutes."""

    async def test(embedded: EmbeddedFront) -> None:
        works, *silent = [await embedded.client(f"10.0.0.{n}") for n in range(3)]
        works.post(metadata("t"), 9)
        for n in range(20):
            late = await embedded.client(f"10.0.1.{n}")
            assert not late.closed and not works.closed, "who comes is let in"
            late.post(metadata("t"), 9)
            late.close()
            await turns()
            silent = [c for c in silent if not c.closed] + [await embedded.client("10.0.0.1")]
            assert len(embedded.front.server.sessions) <= 3
        assert embedded.metrics.value("closed", "crowded_out") >= 20
        assert embedded.metrics.value("closed", "too_many_connections") == 0
        assert embedded.front.server.door.arriving("10.0.0.7") == ("", 0.0), (
            "for those that have to prove themselves, too"
        )
        await turns()
        embedded.front.server.door.let_go("10.0.0.7")

    run_with_door(test, connections_max=3)


def test_nobody_gives_way_to_one_too_many_of_an_address() -> None:
    async def test(embedded: EmbeddedFront) -> None:
        silent, one, two = await embedded.client("10.0.0.1"), await embedded.client(), await embedded.client()
        three = await embedded.client()
        assert [c.closed for c in (silent, one, two, three)] == [False, False, False, True]
        assert embedded.front.server.door.arriving("10.0.0.9")[0] == "too_many_from_address"
        assert not silent.closed

    run_with_door(test, connections_max=3, per_ip_max=2)


def test_a_first_request_has_its_time() -> None:
    async def test(embedded: EmbeddedFront) -> None:
        silent, works, half = [await embedded.client() for _ in range(3)]
        works.post(metadata("t"), 9)
        half.transport.feed(b"\0\0")
        half_over_s = asyncio.get_running_loop().time() + 0.05
        await until(lambda: asyncio.get_running_loop().time() >= half_over_s)
        late = await embedded.client()
        await until(lambda: silent.closed)
        assert not works.closed and not late.closed, "its own time is not over"
        await until(lambda: late.closed)
        await turns()
        assert embedded.metrics.value("closed", "no_request") == 2
        assert not works.closed and not half.closed, "a request that has begun has a time of its own"
        half.close()
        await turns()
        assert not embedded.front.server.door._silent

    run_with_door(test, first_s=0.1)


def test_by_default_one_address_has_half_of_all_connections() -> None:
    for given, most in (({}, 5_000), ({"connections": 1}, 1), ({"connections_per_ip": 0}, 0), ({"connections": 9}, 4)):
        assert connections_per_ip(LimitsSection.model_validate(given)) == most


def test_what_is_kept_of_an_address_goes_with_its_last_connection() -> None:
    async def test(embedded: EmbeddedFront) -> None:
        for n in range(50):
            (await embedded.client(f"10.0.1.{n}")).close()
        assert not embedded.front.server.door._from

    run_with_door(test)


def test_a_connection_on_which_nothing_moves_is_closed() -> None:
    async def test(embedded: EmbeddedFront) -> None:
        quiet, parked, busy = await embedded.client(), await embedded.client(), await embedded.client()
        parked.post(beat("g", "m1", 1), 1)
        for _ in range(20):
            busy.post(metadata("t"), 9)
            await asyncio.sleep(0.01)
        await until(lambda: quiet.closed)
        assert not parked.closed and not busy.closed
        await turns()
        assert embedded.metrics.value("closed", "idle") == 1

    run_with_door(test, idle_s=0.1)


def test_a_client_that_takes_nothing_for_so_long_is_let_go() -> None:
    async def test(embedded: EmbeddedFront) -> None:
        stuck, slow = await embedded.client(), await embedded.client()
        stuck.transport.unread = slow.transport.unread = 100_000
        for _ in range(25):
            slow.transport.unread -= 10
            await asyncio.sleep(0.01)
        await until(lambda: stuck.closed)
        assert not slow.closed, "it reads, however slowly"
        await turns()
        assert embedded.metrics.value("closed", "not_read") == 1

    run_with_door(test, idle_s=0.1)


# ---- frames that are refused
@pytest.mark.parametrize(
    "first, cause",
    [
        (b"\x16\x03\x01\x02", "tls"),
        (b"GET ", "http"),
        (b"\x7f\xff\xff\xff", "bad_frame_size"),
        (b"\xff\xff\xff\xff", "bad_frame_size"),
        ((104_857_601).to_bytes(4, "big"), "bad_frame_size"),
    ],
)
def test_four_bytes_are_enough_to_refuse_a_frame(first: bytes, cause: str) -> None:
    async def test(embedded: EmbeddedFront) -> None:
        client = await embedded.client()
        client.send(first[:3])
        assert not client.closed
        client.send(first[3:])
        assert client.closed
        await turns()
        assert embedded.metrics.value("refused", cause) == embedded.metrics.value("closed", cause) == 1
        assert embedded.lines.fields("frame refused")["cause"] == cause

    run_with_door(test)


def test_a_refusal_is_logged_once_in_a_while_and_counted_always() -> None:
    async def test(embedded: EmbeddedFront) -> None:
        for _ in range(5):
            (await embedded.client()).send(b"GET / HTTP/1.1\r\n\r\n")
        assert embedded.lines.events("warning") == ["frame refused"]
        (await embedded.client()).send(b"\x16\x03\x01\x02\0")
        assert embedded.lines.events("warning") == ["frame refused"] * 2, "that is another reason"
        await asyncio.sleep(0.06)
        (await embedded.client()).send(b"GET / HTTP/1.1\r\n\r\n")
        assert embedded.lines.fields("frame refused")["not_logged"] == 4
        assert embedded.metrics.value("refused", "http") == 6

    run_with_door(test, repeat_s=0.05)
