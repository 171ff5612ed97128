"""Ends of a client connection: clients that close one half, brokers that go, time-outs, too many connections."""

from __future__ import annotations

import asyncio
import weakref
from typing import Any

import pytest

from sidecar.front import upstream as module
from sidecar.front.broker_watch import BrokerWatch
from sidecar.front.session import Session
from tests.front.reception import Bench, ManualSession, Reception, group, passed, response, run
from tests.harness.collector import no_collector
from tests.inprocess import clock
from tests.inprocess.embedded_sidecar import Counted, turns, until
from tests.inprocess.transport import MemoryTransport

WATCH_MS = 1_000


async def no_broker(factory: Any) -> None:
    await asyncio.Event().wait()


# ---- closing
def test_the_watch_of_the_broker_can_look_at_a_connection_whose_client_has_gone() -> None:
    """Symptom: its look failed there, so there was no other one. No silence of the broker was noticed any more, and
    each connection that was made from then on was kept, 2 KiB of it."""

    async def main() -> None:
        front = Reception()
        watch = front.watch = BrokerWatch(WATCH_MS, no_broker, (), lambda quiet_ms, to_all: None, Counted(), front.log)
        upstreams = []
        for _ in range(2):
            session = ManualSession(front)
            client = MemoryTransport(session)
            session.connection_made(client)
            client.feed(passed(1))
            await turns(2)
            broker = session.reach()
            broker.feed(response(1))
            client.lose()
            broker.lose()
            gone, upstream = weakref.ref(session), weakref.ref(session.upstream)
            upstreams.append(upstream)
            await turns(3)
            del session, client, broker
            assert gone() is None
            await until(lambda: not watch.watching)
        assert [upstream() for upstream in upstreams] == [None, None], "the watch has let them go"
        assert not watch.problem

    with no_collector():
        clock.run(main())


def test_a_client_that_sends_no_more_is_still_answered() -> None:
    async def test(b: Bench) -> None:
        b.client.feed(group(1))
        assert not b.session.facts.left
        b.client.feed_eof()
        assert not b.client.closing and b.session.facts.left
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
        b.session.upstream.ask(b.front.got[0].token, b"QUESTION", heard.append)
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
        b.client.feed(b"ZET / HTTP/1.1\r\n\r\n")
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
    async def main() -> None:
        front = Reception()
        front.room = 0
        session = ManualSession(front)
        client = MemoryTransport(session)
        session.connection_made(client)
        assert client.closing
        client.feed(group(1))
        await turns(2)
        assert front.closed == ["too_many_connections"] and front.got == []

    clock.run(main())


# ---- real sockets
async def closed_port() -> int:
    server = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
    port = int(server.sockets[0].getsockname()[1])
    server.close()
    await server.wait_closed()
    return port


def test_a_broker_out_of_reach_closes_the_connection() -> None:
    async def main() -> None:
        front = Reception()
        front.broker.address = ("127.0.0.1", await closed_port())
        session = Session(front)
        client = MemoryTransport(session)
        session.connection_made(client)
        client.feed(group(1))
        assert not session.upstream.connecting, "a group request alone needs no broker"
        session.upstream.ask(front.got[0].token, b"QUESTION", lambda frame: None)
        await until(lambda: front.closed)
        assert front.closed == ["broker_unreachable"]

    clock.run(main())


def test_so_does_one_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONNECT_TIMEOUT_S", 0.02)

    async def main() -> None:
        loop = asyncio.get_running_loop()

        async def never(*args: object, **how: object) -> None:
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

    clock.run(main())


def test_from_socket_to_socket() -> None:
    """A client sends a passed and a group request, closes its half, and reads to the end."""

    async def main() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            request = await reader.readexactly(len(passed(1)))
            assert request == passed(1)
            writer.write(response(1, b"from the broker"))
            assert await reader.read() == b"", "the end of the client's half comes through"
            writer.close()

        loop = asyncio.get_running_loop()
        broker = await asyncio.start_server(serve, "127.0.0.1", 0)
        front = Reception()
        front.broker.address = broker.sockets[0].getsockname()[:2]
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

    clock.run(main())
