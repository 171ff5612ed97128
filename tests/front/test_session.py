"""One client connection on sockets: the order of requests and answers, back-pressure both ways.

Which request goes where is tested in tests/proxy; how a connection ends, in test_session_ends.py.
"""

from __future__ import annotations

from tests.front.reception import Bench, group, passed, response, run
from tests.inprocess.embedded_sidecar import turns


# ---- order
def test_requests_pass_to_the_broker_and_answers_come_back() -> None:
    async def test(b: Bench) -> None:
        b.client.feed(passed(1) + passed(2))
        broker = await b.broker()
        assert broker.taken() == passed(1) + passed(2)
        broker.feed(response(1, b"one") + response(2, b"two"))
        assert b.client.taken() == response(1, b"one") + response(2, b"two")
        assert b.session.facts.host == "10.0.0.9" and b.session.facts.host == "10.0.0.9"

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
        await turns(10)
        assert b.client.taken() == b"".join(b"<%d>" % i for i in range(1, 50))

    run(test)


def test_our_own_question_goes_out_on_the_clients_connection_and_its_answer_stays_here() -> None:
    async def test(b: Bench) -> None:
        b.client.feed(passed(1) + group(2))
        broker = await b.broker()
        heard: list[bytes | None] = []
        b.session.upstream.ask(b.front.got[0].token, b"QUESTION", heard.append)
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
        b.session.upstream.ask(b.front.got[0].token, b"QUESTION", heard.append)
        assert heard == [None]

    run(test)


def test_a_question_under_way_when_the_connection_closes_is_answered_with_nothing() -> None:
    async def test(b: Bench) -> None:
        b.client.feed(group(1))
        heard: list[bytes | None] = []
        b.session.upstream.ask(b.front.got[0].token, b"QUESTION", heard.append)
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
        assert not broker.reading and not b.client.reading, "a broker, too, handles nothing more then"
        broker.feed(response(1))
        assert b.client.taken() == b""
        b.session.resume_writing()
        await turns(2)
        assert b.client.taken() == response(1)

    run(test)


def test_the_answer_to_a_question_of_our_own_needs_no_client_that_reads() -> None:
    """Symptom: a handler waited for the broker as long as its client read nothing, and kept its place (large.py)."""

    async def test(b: Bench) -> None:
        b.client.feed(group(1))
        heard: list[bytes | None] = []
        b.session.upstream.ask(b.front.got[0].token, b"FIRST", heard.append)
        broker = await b.broker()
        b.session.pause_writing()
        broker.feed(response(1))
        assert heard == [response(1)] and not broker.reading, "what comes next may be for the client"
        b.session.upstream.ask(b.front.got[0].token, b"SECOND", heard.append)
        broker.feed(response(2))
        assert heard == [response(1), response(2)]

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
        b.client.feed(passed(2, b.front.settings.held_bytes + 1))
        assert not b.client.reading
        b.answer(0, b"ONE")
        await b.broker()
        assert b.client.reading

    run(test)
