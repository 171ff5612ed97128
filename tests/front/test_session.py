"""One client connection on sockets: order, back-pressure, half-closed clients, time-outs, a broker out of reach.

The broker is played by hand here, byte by byte; which request goes where is tested in tests/proxy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sidecar.front import session as module
from sidecar.front.session import HELD_BYTES, Session, _Upstream
from sidecar.proxy.connection import Close, Got
from sidecar.wire.frames import Limits, request_frame
from tests.inprocess.house import Lines, turns, until
from tests.inprocess.transport import MemoryTransport

METADATA, HEARTBEAT = 3, 68


def passed(correlation: int, size: int = 10) -> bytes:
    return request_frame(METADATA, 9, correlation, "c", True, b"x" * size)


def group(correlation: int) -> bytes:
    return request_frame(HEARTBEAT, 1, correlation, "c", True, b"hb")


def response(correlation: int, body: bytes = b"") -> bytes:
    return (4 + len(body)).to_bytes(4, "big") + correlation.to_bytes(4, "big") + body


class Reception:
    """The front as a session sees it: it keeps what is dispatched, and answers when a test says so."""

    def __init__(self) -> None:
        self.broker = ("127.0.0.1", 1)
        self.limits = Limits(10_000_000, 1_000_000)
        self.header_timeout_s = 0.02
        self.in_flight_max = 4
        self.log = Lines()
        self.got: list[Got] = []
        self.closed: list[str] = []
        self.refusals: list[Close] = []
        self.room = 10
        self.at_once: Callable[[Session, Got], None] | None = None
        """Called when a request is dispatched, if it is answered then."""

    def opened(self, session: Session) -> bool:
        self.room -= 1
        return self.room >= 0

    def gone(self, session: Session, cause: str) -> None:
        self.closed.append(cause)

    def refused(self, session: Session, close: Close) -> None:
        self.refusals.append(close)

    def dispatch(self, session: Session, got: Got) -> None:
        self.got.append(got)
        if self.at_once is not None:
            self.at_once(session, got)


class ManualSession(Session):
    """Its connection to the broker is made when a test says so."""

    async def _connect(self) -> None:
        await asyncio.Event().wait()

    def reach(self) -> MemoryTransport:
        upstream = _Upstream(self)
        transport = MemoryTransport(upstream, ("broker", 9092))
        upstream.connection_made(transport)
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

    def answer(self, n: int, frame: bytes) -> None:
        self.session.reply(self.front.got[n].token, frame)


def run(test: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        bench = Bench()
        await test(bench)
        bench.client.lose()
        await turns(2)

    asyncio.run(whole())


# ---- order
def test_requests_pass_to_the_broker_and_answers_come_back() -> None:
    async def test(b: Bench) -> None:
        b.client.feed(passed(1) + passed(2))
        broker = await b.broker()
        assert broker.taken() == passed(1) + passed(2)
        broker.feed(response(1, b"one") + response(2, b"two"))
        assert b.client.taken() == response(1, b"one") + response(2, b"two")
        assert b.session.host == "10.0.0.9" and b.session.facts.host == "10.0.0.9"

    run(test)


def test_a_request_behind_a_group_request_waits_for_its_answer() -> None:
    async def test(b: Bench) -> None:
        b.client.feed(group(1) + passed(2))
        assert len(b.front.got) == 1
        b.answer(0, b"ONE")
        broker = await b.broker()
        assert b.client.taken() == b"ONE" and broker.taken() == passed(2)
        broker.feed(response(2))
        assert b.client.taken() == response(2)

    run(test)


def test_the_answer_to_a_group_request_waits_for_a_passed_one_before_it() -> None:
    async def test(b: Bench) -> None:
        b.client.feed(passed(1) + group(2))
        broker = await b.broker()
        b.answer(0, b"TWO")
        assert b.client.taken() == b""
        broker.feed(response(1)[:6])
        assert b.client.taken() == response(1)[:6], "a response streams as it comes"
        broker.feed(response(1)[6:])
        assert b.client.taken() == response(1)[6:] + b"TWO"

    run(test)


def test_many_requests_that_are_answered_at_once_leave_in_their_order() -> None:
    async def test(b: Bench) -> None:
        b.front.at_once = lambda s, got: s.reply(got.token, b"<%d>" % got.correlation_id)
        b.client.feed(b"".join(group(i) for i in range(1, 50)))
        assert b.client.taken() == b"".join(b"<%d>" % i for i in range(1, 50))

    run(test)


def test_our_own_question_goes_out_on_the_clients_connection_and_its_answer_stays_here() -> None:
    async def test(b: Bench) -> None:
        b.client.feed(passed(1) + group(2))
        broker = await b.broker()
        heard: list[bytes | None] = []
        b.session.ask(b.front.got[0].token, b"QUESTION", heard.append)
        assert broker.taken() == passed(1) + b"QUESTION"
        broker.feed(response(1) + response(9, b"said"))
        assert heard == [response(9, b"said")] and b.client.taken() == response(1)
        b.answer(0, b"TWO")
        assert b.client.taken() == b"TWO"

    run(test)


def test_a_question_on_a_closed_connection_is_answered_at_once() -> None:
    async def test(b: Bench) -> None:
        b.client.feed(group(1))
        b.client.lose()
        heard: list[bytes | None] = []
        b.session.ask(b.front.got[0].token, b"QUESTION", heard.append)
        assert heard == [None]

    run(test)


def test_a_question_under_way_when_the_connection_closes_is_answered_with_nothing() -> None:
    async def test(b: Bench) -> None:
        b.client.feed(group(1))
        heard: list[bytes | None] = []
        b.session.ask(b.front.got[0].token, b"QUESTION", heard.append)
        b.client.lose()
        assert heard == [None]

    run(test)


def test_a_request_may_be_forwarded_after_all() -> None:
    async def test(b: Bench) -> None:
        b.client.feed(group(1) + passed(2))
        b.session.forward(b.front.got[0])
        broker = await b.broker()
        assert broker.taken() == group(1) + passed(2)
        broker.feed(response(1) + response(2))
        assert b.client.taken() == response(1) + response(2)

    run(test)


# ---- back-pressure
def test_a_client_is_read_no_further_while_the_broker_does_not_take_its_bytes() -> None:
    async def test(b: Bench) -> None:
        b.client.feed(passed(1))
        broker = await b.broker()
        broker.protocol.pause_writing()
        assert not b.client.reading
        b.client.feed(passed(2))
        assert broker.taken() == passed(1)
        broker.protocol.resume_writing()
        await turns(2)
        assert b.client.reading and broker.taken() == passed(2)

    run(test)


def test_a_broker_is_read_no_further_while_the_client_does_not_take_its_bytes() -> None:
    async def test(b: Bench) -> None:
        b.client.feed(passed(1))
        broker = await b.broker()
        b.session.pause_writing()
        assert not broker.reading and b.client.reading
        broker.feed(response(1))
        assert b.client.taken() == b""
        b.session.resume_writing()
        await turns(2)
        assert b.client.taken() == response(1)

    run(test)


def test_a_client_is_read_no_further_before_its_broker_is_reached() -> None:
    async def test(b: Bench) -> None:
        b.client.feed(passed(1))
        assert not b.client.reading
        await b.broker()
        assert b.client.reading

    run(test)


def test_only_so_many_requests_are_read_before_an_answer() -> None:
    async def test(b: Bench) -> None:
        b.client.feed(passed(1))
        broker = await b.broker()
        b.client.feed(passed(2) + passed(3))
        assert b.client.reading
        b.client.feed(passed(4))
        assert not b.client.reading, "four are in flight"
        broker.feed(response(1))
        assert b.client.reading

    run(test)


def test_what_comes_behind_a_request_that_waits_is_kept_only_up_to_a_limit() -> None:
    async def test(b: Bench) -> None:
        b.client.feed(group(1))
        b.client.feed(passed(2, HELD_BYTES + 1))
        assert not b.client.reading
        b.answer(0, b"ONE")
        await b.broker()
        assert b.client.reading

    run(test)


# ---- closing
def test_a_client_that_sends_no_more_is_still_answered() -> None:
    async def test(b: Bench) -> None:
        b.client.feed(group(1))
        b.client.feed_eof()
        assert not b.client.closing
        b.answer(0, b"ONE")
        assert b.client.taken() == b"ONE" and b.client.closing
        await turns(2)
        assert b.front.closed == ["client_closed"]

    run(test)


def test_the_broker_hears_of_it_when_nothing_is_left_to_send_there() -> None:
    async def test(b: Bench) -> None:
        b.client.feed(passed(1))
        broker = await b.broker()
        b.client.feed(group(2))
        b.client.feed_eof()
        assert not broker.eof, "the request under way may need the broker"
        heard: list[bytes | None] = []
        b.session.ask(b.front.got[0].token, b"QUESTION", heard.append)
        broker.feed(response(1) + response(9))
        b.answer(0, b"TWO")
        assert broker.eof and b.client.taken() == response(1) + b"TWO"
        broker.lose()
        await turns(2)
        assert b.front.closed == ["client_closed"]

    run(test)


def test_a_client_that_closes_before_its_broker_is_reached_is_passed_on_too() -> None:
    async def test(b: Bench) -> None:
        b.client.feed(passed(1))
        b.client.feed_eof()
        broker = await b.broker()
        assert broker.taken() == passed(1) and broker.eof
        broker.feed(response(1))
        assert b.client.taken() == response(1)

    run(test)


def test_the_broker_hears_of_it_after_a_late_forward_as_well() -> None:
    """Symptom: a client that had closed its half never saw the end of the connection, as the broker never heard of
    it when the last request was forwarded after the coordinator had been asked."""

    async def test(b: Bench) -> None:
        b.client.feed(passed(1))
        broker = await b.broker()
        b.client.feed(group(2))
        b.client.feed_eof()
        b.session.forward(b.front.got[0])
        assert broker.taken() == passed(1) + group(2) and broker.eof

    run(test)


def test_all_that_a_client_has_sent_before_its_end_is_answered() -> None:
    """Symptom: of three pipelined requests the last was lost, as the connection closed when the second was answered
    at once."""

    async def test(b: Bench) -> None:
        b.client.feed(group(1) + group(2) + group(3))
        b.client.feed_eof()
        b.front.at_once = lambda s, got: s.reply(got.token, b"<%d>" % got.correlation_id)
        b.answer(0, b"<1>")
        assert b.client.taken() == b"<1><2><3>"
        assert b.client.closing

    run(test)


@pytest.mark.parametrize("exc, cause", [(None, "client_closed"), (ConnectionResetError(), "client_reset")])
def test_a_client_that_goes_takes_its_connection_to_the_broker_with_it(exc: Exception | None, cause: str) -> None:
    async def test(b: Bench) -> None:
        b.client.feed(passed(1))
        broker = await b.broker()
        b.client.lose(exc)
        assert broker.closing and b.front.closed == [cause]

    run(test)


def test_a_broker_that_goes_takes_the_client_with_it() -> None:
    async def test(b: Bench) -> None:
        b.client.feed(passed(1))
        broker = await b.broker()
        broker.lose(ConnectionResetError("by peer"))
        assert b.client.closing
        await turns(2)
        assert b.front.closed == ["broker_closed"]
        assert b.front.log.fields("connection closed")["detail"] == "by peer"

    run(test)


def test_a_broker_that_is_reached_too_late_is_let_go() -> None:
    async def test(b: Bench) -> None:
        b.client.feed(passed(1))
        await turns(2)
        b.client.lose()
        broker = b.session.reach()
        assert broker.closing and broker.taken() == b""

    run(test)


def test_bytes_that_are_no_request_close_the_connection() -> None:
    async def test(b: Bench) -> None:
        b.client.feed(b"GET / HTTP/1.1\r\n\r\n")
        assert b.client.closing
        (why,) = b.front.refusals
        assert why.cause == "bad_frame_size"
        await turns(2)
        assert b.front.closed == ["bad_frame_size"]

    run(test)


def test_answers_that_were_given_leave_before_the_connection_closes() -> None:
    async def test(b: Bench) -> None:
        b.front.at_once = lambda s, got: s.reply(got.token, b"ONE")
        b.client.feed(group(1) + b"\0\0\0\1garbage!")
        assert b.client.taken() == b"ONE" and b.client.closing

    run(test)


# ---- time
def test_half_a_request_is_not_waited_for_for_ever() -> None:
    async def test(b: Bench) -> None:
        b.client.feed(group(1)[:15])
        await until(lambda: b.client.closing, 0.5)
        await turns(2)
        assert b.front.closed == ["request_timeout"]

    run(test)


def test_half_a_request_that_is_completed_in_time_is_fine() -> None:
    async def test(b: Bench) -> None:
        b.client.feed(group(1)[:15])
        await asyncio.sleep(0.005)
        b.client.feed(group(1)[15:])
        await asyncio.sleep(0.04)
        assert not b.client.closing and len(b.front.got) == 1
        b.client.feed(group(2)[:15])
        await asyncio.sleep(0.04)
        assert not b.client.closing, "what waits behind a request is not the client's fault"

    run(test)


def test_an_idle_connection_may_stay() -> None:
    async def test(b: Bench) -> None:
        await asyncio.sleep(0.04)
        assert not b.client.closing

    run(test)


def test_a_connection_too_many_is_closed() -> None:
    async def whole() -> None:
        front = Reception()
        front.room = 0
        session = ManualSession(front)
        client = MemoryTransport(session)
        session.connection_made(client)
        assert client.closing
        client.feed(group(1))
        await turns(2)
        assert front.closed == ["too_many_connections"] and front.got == []

    asyncio.run(whole())


# ---- real sockets
async def closed_port() -> int:
    server = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
    port = int(server.sockets[0].getsockname()[1])
    server.close()
    await server.wait_closed()
    return port


def test_a_broker_out_of_reach_closes_the_connection() -> None:
    async def whole() -> None:
        front = Reception()
        front.broker = ("127.0.0.1", await closed_port())
        session = Session(front)
        client = MemoryTransport(session)
        session.connection_made(client)
        client.feed(group(1))
        assert session._connecting is None, "a group request alone needs no broker"
        session.ask(front.got[0].token, b"QUESTION", lambda frame: None)
        await until(lambda: front.closed)
        assert front.closed == ["broker_unreachable"]

    asyncio.run(whole())


def test_so_does_one_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONNECT_TIMEOUT_S", 0.02)

    async def whole() -> None:
        loop = asyncio.get_running_loop()

        async def never(*args: object) -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(loop, "create_connection", never)
        front = Reception()
        session = Session(front)
        client = MemoryTransport(session)
        session.connection_made(client)
        client.feed(passed(1))
        await until(lambda: front.closed)
        assert front.closed == ["broker_unreachable"]
        assert front.log.fields("connection closed")["detail"] == "timed out"

    asyncio.run(whole())


def test_from_socket_to_socket() -> None:
    """A client sends a passed and a group request, closes its half, and reads to the end."""

    async def whole() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            request = await reader.readexactly(len(passed(1)))
            assert request == passed(1)
            writer.write(response(1, b"from the broker"))
            assert await reader.read() == b"", "the end of the client's half comes through"
            writer.close()

        loop = asyncio.get_running_loop()
        broker = await asyncio.start_server(serve, "127.0.0.1", 0)
        front = Reception()
        front.broker = broker.sockets[0].getsockname()[:2]
        front.at_once = lambda s, got: s.reply(got.token, response(2, b"from the sidecar"))
        server = await loop.create_server(lambda: Session(front), "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
        writer.write(passed(1) + group(2))
        writer.write_eof()
        assert await reader.read() == response(1, b"from the broker") + response(2, b"from the sidecar")
        writer.close()
        await until(lambda: front.closed)
        assert front.closed == ["client_closed"]
        server.close()
        broker.close()

    asyncio.run(whole())
