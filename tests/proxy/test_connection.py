"""One client connection, without sockets: order, streaming, limits. A test reads as the conversation."""

from __future__ import annotations

import random
import sys

import pytest

from sidecar.proxy import acks
from sidecar.proxy.actions import Action, Answered, Close, Got, ToClient, ToUpstream
from sidecar.proxy.connection import ClientConnection
from sidecar.wire.apis import Api
from sidecar.wire.frames import PREFIX, SMALL_BYTES, Limits, produce_acks, request_frame
from sidecar.wire.generated.produce import ProduceRequest
from sidecar.wire.primitives import put_uvarint
from tests.harness.properties import given, settings, st

METADATA, HEARTBEAT = 3, 68


def passed(correlation: int, size: int = 10) -> bytes:
    return request_frame(METADATA, 9, correlation, "c", True, b"x" * size)


def group(correlation: int) -> bytes:
    return request_frame(HEARTBEAT, 1, correlation, "c", True, b"hb")


def produce(correlation: int, acks: int) -> bytes:
    return request_frame(0, 9, correlation, "c", True, ProduceRequest(acks=acks).encode(9))


def response(correlation: int, body: bytes = b"") -> bytes:
    return (4 + len(body)).to_bytes(4, "big") + correlation.to_bytes(4, "big") + body


def to_client(actions: list[Action]) -> bytes:
    return b"".join(a.data for a in actions if isinstance(a, ToClient))


def to_upstream(actions: list[Action]) -> bytes:
    return b"".join(a.data for a in actions if isinstance(a, ToUpstream))


def got(actions: list[Action]) -> list[Got]:
    return [a for a in actions if isinstance(a, Got)]


def test_a_passed_request_and_its_response_go_through_byte_for_byte() -> None:
    c = ClientConnection(Limits())
    assert c.from_client(passed(1)) == [ToUpstream(passed(1))]
    assert c.from_upstream(response(1, b"abc")) == [ToClient(response(1, b"abc"))]
    assert c.idle


def test_a_parked_group_request_waits_its_turn_behind_pipelined_produces() -> None:
    c = ClientConnection(Limits())
    actions = c.from_client(produce(1, -1) + produce(2, -1) + group(3))
    assert to_upstream(actions) == produce(1, -1) + produce(2, -1)
    (request,) = got(actions)
    assert c.answer(request.token, b"REPLY3") == [], "the produces are not answered yet"
    assert to_client(c.from_upstream(response(1))) == response(1)
    assert to_client(c.from_upstream(response(2))) == response(2) + b"REPLY3"


def test_what_follows_a_group_request_is_held_until_it_is_answered() -> None:
    c = ClientConnection(Limits())
    actions = c.from_client(group(1) + passed(2) + group(3))
    (first,) = got(actions)
    assert to_upstream(actions) == b""
    actions = c.answer(first.token, b"ONE")
    assert to_client(actions) == b"ONE"
    assert to_upstream(actions) == passed(2)
    (third,) = got(actions)
    assert c.answer(third.token, b"THREE") == []
    assert to_client(c.from_upstream(response(2))) == response(2) + b"THREE"


def test_an_answer_that_needs_the_broker_never_waits_behind_a_later_response() -> None:
    """Symptom: a librdkafka consumer read nothing for 60 s. A forwarded request and a passed one behind it waited
    for each other."""
    c = ClientConnection(Limits())
    (first,) = got(c.from_client(group(1) + passed(2)))
    assert to_upstream(c.forward(first.token, group(1))) == group(1) + passed(2)
    assert to_client(c.from_upstream(response(1) + response(2))) == response(1) + response(2)


def test_a_question_of_our_own_is_not_shown_to_the_client() -> None:
    c = ClientConnection(Limits())
    (first,) = got(c.from_client(passed(1) + group(2)))
    assert to_upstream(c.ask(first.token, b"PROBE")) == b"PROBE"
    actions = c.from_upstream(response(1) + response(99, b"probe answer"))
    assert to_client(actions) == response(1)
    assert actions[-1] == Answered(first.token, response(99, b"probe answer"))
    assert to_client(c.answer(first.token, b"TWO")) == b"TWO"


def test_a_produce_without_acks_expects_no_response() -> None:
    c = ClientConnection(Limits())
    assert to_upstream(c.from_client(produce(1, 0) + passed(2))) == produce(1, 0) + passed(2)
    assert to_client(c.from_upstream(response(2))) == response(2)
    assert c.idle


def test_a_head_that_comes_byte_by_byte_is_read_in_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that has not logged in yet can send one as long as PRODUCE_HEAD."""
    read: list[int] = []

    def counted(head: bytes, version: int, flexible_from: int) -> int | None:
        read.append(len(head))
        return produce_acks(head, version, flexible_from)

    monkeypatch.setattr(acks, "produce_acks", counted)
    request = produce(1, -1)
    at = PREFIX.size + len(b"\0\1c")
    tags = bytearray()
    put_uvarint(tags, 3_000)
    for tag in range(3_000):
        put_uvarint(tags, tag)
        tags.append(0)
    assert request[at] == 0, "no tags"
    body = request[4:at] + tags + request[at + 1 :]
    request = len(body).to_bytes(4, "big") + body
    c = ClientConnection(Limits())
    sent = b"".join(to_upstream(c.from_client(request[i : i + 1])) for i in range(len(request)))
    assert sent == request
    assert sum(read) <= 3 * len(request)
    assert to_client(c.from_upstream(response(1))) == response(1)


def test_large_frames_stream() -> None:
    c = ClientConnection(Limits())
    big = passed(1, 10_000_000)
    held = 0
    sent = b""
    for at in range(0, len(big), 65_536):
        sent += to_upstream(c.from_client(big[at : at + 65_536]))
        held = max(held, c.held_bytes)
    assert sent == big
    assert held == 0
    answer = response(1, b"y" * 5_000_000)
    assert (
        b"".join(to_client(c.from_upstream(answer[at : at + 65_536])) for at in range(0, len(answer), 65_536)) == answer
    )


def test_bad_sizes_close() -> None:
    for size in (-1, 0, 7, 200_000_000):
        c = ClientConnection(Limits())
        raw = size.to_bytes(4, "big", signed=True) + passed(1)[4:]
        (close,) = c.from_client(raw)
        assert isinstance(close, Close) and close.cause == "bad_frame_size"
        assert c.from_client(passed(2)) == []


def test_it_is_known_who_authenticates() -> None:
    """Old clients sent their tokens in frames that are no requests."""
    for key, authenticates in ((METADATA, False), (0, False), (17, True), (36, True), (0x6082, True), (-5, True)):
        c = ClientConnection(Limits())
        c.from_client(passed(1))
        c.from_client(request_frame(key, 2 if key == 36 else 9, 2, "c", True, ProduceRequest(acks=1).encode(9)))
        assert c.authenticates == authenticates, key


def test_tls_to_a_plain_port_closes() -> None:
    (close,) = ClientConnection(Limits()).from_client(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"r" * 500)
    assert isinstance(close, Close) and close.cause == "tls" and "security.protocol" in close.detail


def test_a_wrong_size_is_refused_at_its_four_bytes() -> None:
    """Symptom: such a connection stayed open for half a minute, until twelve bytes were there or the time was over."""
    for size in (-1, 0, 7, 104_857_601, 2**31 - 1):
        c = ClientConnection(Limits())
        assert c.from_client(size.to_bytes(4, "big", signed=True)[:3]) == []
        (close,) = c.from_client(size.to_bytes(4, "big", signed=True)[3:])
        assert isinstance(close, Close) and close.cause == "bad_frame_size"


def test_what_passed_before_a_wrong_size_still_reaches_the_broker() -> None:
    c = ClientConnection(Limits())
    actions = c.from_client(produce(1, 0) + b"\xff\xff\xff\xff")
    assert to_upstream(actions) == produce(1, 0) and isinstance(actions[-1], Close)


def test_an_announced_frame_costs_no_more_than_the_bytes_that_came() -> None:
    c = ClientConnection(Limits())
    c.from_client((16_000_000).to_bytes(4, "big") + group(1)[4:])
    assert c.partial and c.partial_bytes == 16_000_004
    assert c.held_bytes == len(group(1)) and sys.getsizeof(c._held) < 1_000


def test_what_was_handled_is_not_kept_however_the_reads_are_cut() -> None:
    """Symptom: the buffer of a client whose reads always ended within a request grew for as long as it went on."""
    c = ClientConnection(Limits())
    stream = b"".join(group(i) for i in range(1, 2001))
    step = 3 * len(group(1)) + 1
    for at in range(0, len(stream), step):
        todo = got(c.from_client(stream[at : at + step]))
        while todo:
            todo = got(c.answer(todo[0].token, b"R"))
        assert sys.getsizeof(c._held) < 1_000
    assert not c.partial


def test_a_large_answer_to_a_question_is_not_copied_with_each_piece() -> None:
    c = ClientConnection(Limits())
    (first,) = got(c.from_client(group(1)))
    c.ask(first.token, b"PROBE")
    answer = response(9, b"y" * 4_000_000)
    kept = set()
    for at in range(0, len(answer) - 1, 1_000):
        c.from_upstream(answer[at : min(at + 1_000, len(answer) - 1)])
        kept.add(id(c._broker_rest))
    assert len(kept) <= 2
    assert c.from_upstream(answer[-1:]) == [Answered(first.token, answer)]


def test_group_requests_have_a_limit_of_their_own() -> None:
    c = ClientConnection(Limits(group_frame_bytes=1000))
    (close,) = c.from_client(request_frame(HEARTBEAT, 1, 1, "c", True, b"x" * 2000))
    assert isinstance(close, Close) and close.cause == "frame_too_large"


def test_only_a_request_that_is_read_fast_may_be_large() -> None:
    """Symptom: an OffsetFetch of 16 MB with nothing but empty names stopped the loop for 4 s."""
    for api, version, large in ((14, 5, True), (14, 3, False), (11, 9, False), (9, 8, False), (68, 1, False)):
        c = ClientConnection(Limits())
        (only,) = c.from_client(request_frame(api, version, 1, "c", True, b"x" * 3_000_000))
        assert isinstance(only, Got if large else Close), (api, version)


def test_a_large_request_ends_the_turn_of_its_connection() -> None:
    c = ClientConnection(Limits())
    sync = request_frame(14, 5, 1, "c", True, b"x" * 200_000)
    (first,) = c.from_client(sync + group(2) + group(3))
    assert isinstance(first, Got)
    assert c.answer(first.token, b"") == [] and c.more
    assert [g.correlation_id for g in got(c.go_on())] == [2]


def test_a_large_answer_ends_the_turn_of_its_connection() -> None:
    """The client may not take it, and then the next request has to wait."""
    c = ClientConnection(Limits())
    (first,) = got(c.from_client(group(1) + group(2)))
    assert c.answer(first.token, b"x" * 200_000) == [ToClient(b"x" * 200_000)] and c.more
    assert [g.correlation_id for g in got(c.go_on())] == [2]
    c = ClientConnection(Limits())
    (second,) = got(c.from_client(passed(1) + group(2) + group(3)))
    assert c.answer(second.token, b"x" * 200_000) == []
    assert to_client(c.from_upstream(response(1))) == response(1) + b"x" * 200_000 and c.more
    assert [g.correlation_id for g in got(c.go_on())] == [3]


@pytest.mark.parametrize(
    "later",
    [
        request_frame(Api.DESCRIBE_GROUPS, 5, 2, "c", True, b""),
        request_frame(Api.SYNC_GROUP, 5, 2, "c", True, b"x" * SMALL_BYTES),
    ],
    ids=["large answer", "large request"],
)
@pytest.mark.parametrize("cut", [True, False])
def test_what_takes_much_memory_begins_when_all_before_it_is_answered(later: bytes, cut: bool) -> None:
    """Symptom: three connections with a Fetch that waits for ever, and a large request behind it, kept all places of
    large requests, and nobody else's was handled."""
    c = ClientConnection(Limits())
    actions = c.from_client(passed(1)) + c.from_client(later) if cut else c.from_client(passed(1) + later)
    assert to_upstream(actions) == passed(1) and not got(actions)
    assert c.waiting and not c.partial and not c.more, "it is no part of a request, and its turn is not over"
    assert [g.correlation_id for g in got(c.from_upstream(response(1)))] == [2]


def test_one_reply_waits_for_the_broker_whatever_its_size() -> None:
    """Symptom: behind one Fetch that the broker held, 255 answers of 8 MiB were kept: 2 GiB for one connection; then
    64 KiB of small ones for each of 10,000 connections."""
    c = ClientConnection(Limits())
    actions = c.from_client(passed(1) + b"".join(group(n) for n in range(2, 102)))
    replies = 0
    while todo := got(actions):
        replies += 1
        actions = c.answer(todo[0].token, b"r" * 1_000)
    assert replies == 1 and c.waiting
    actions = c.from_upstream(response(1))
    assert to_client(actions) == response(1) + b"r" * 1_000 and len(got(actions)) == 1


def test_a_version_that_is_not_served_closes_as_a_broker_does() -> None:
    (close,) = ClientConnection(Limits()).from_client(request_frame(HEARTBEAT, 9, 1, "c", True, b""))
    assert isinstance(close, Close) and close.cause == "unsupported_version"


@pytest.mark.parametrize("body", [b"", b"x" * 3_000_000], ids=["version", "size"])
def test_what_is_refused_says_whose_it_was(body: bytes) -> None:
    """Symptom: an application was refused 207,277 times a day, and nobody could tell which one."""
    frame = request_frame(HEARTBEAT, 3 if body else 9, 1, "billing", False, body)
    (close,) = ClientConnection(Limits()).from_client(frame)
    assert isinstance(close, Close) and close.client_id == "billing"
    (close,) = ClientConnection(Limits()).from_client(frame[:20])
    assert isinstance(close, Close) and close.client_id == "", "it has not arrived yet"


def test_a_response_nobody_asked_for_closes() -> None:
    (close,) = ClientConnection(Limits()).from_upstream(response(1))
    assert isinstance(close, Close) and close.cause == "unexpected_response"


@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_any_split_and_any_timing_keep_the_order(seed: int) -> None:
    """Random requests, cut anywhere, answered at any time: the client sees every response, in its order."""
    rng = random.Random(seed)
    c = ClientConnection(Limits())
    kinds = [rng.choice("pgGfs") for _ in range(rng.randint(1, 12))]
    stream = b""
    wanted = b""
    answers: dict[int, bytes] = {}
    for n, kind in enumerate(kinds):
        if kind == "s":
            stream += produce(n, 0)
            continue
        stream += passed(n, rng.randint(0, 50)) if kind == "p" else group(n)
        answers[n] = response(n, bytes([n]) * rng.randint(0, 40))
        wanted += answers[n]
    seen = upstream = b""
    waiting: list[Got] = []
    probes: set[int] = set()
    answered = 0
    broker = b""

    def take(actions: list[Action]) -> None:
        nonlocal seen, upstream
        for a in actions:
            assert not isinstance(a, Close)
            if isinstance(a, ToClient):
                seen += a.data
            elif isinstance(a, ToUpstream):
                upstream += a.data
            elif isinstance(a, Got):
                waiting.append(a)
            elif isinstance(a, Answered):
                probes.discard(a.token)

    for _ in range(20_000):
        if seen == wanted and not stream:
            break
        what = rng.random()
        if stream and what < 0.3:
            n = rng.randint(1, 60)
            take(c.from_client(stream[:n]))
            stream = stream[n:]
        elif waiting and what < 0.6:
            g = waiting[0]
            kind = kinds[g.correlation_id]
            if kind == "f":
                take(c.forward(g.token, g.frame))
                waiting.pop(0)
            elif kind == "G" and g.token not in probes and rng.random() < 0.5:
                take(c.ask(g.token, request_frame(12, 3, 1000 + g.correlation_id, None, False, b"")))
                probes.add(g.token)
            elif g.token not in probes:
                take(c.answer(g.token, answers[g.correlation_id]))
                waiting.pop(0)
        else:  # the broker answers what reached it whole, in its order
            at = 0
            frames = []
            while len(upstream) - at >= 4:
                size = int.from_bytes(upstream[at : at + 4], "big")
                if len(upstream) - at < 4 + size:
                    break
                frames.append(upstream[at : at + 4 + size])
                at += 4 + size
            for frame in frames[answered:]:
                answered += 1
                correlation = int.from_bytes(frame[8:12], "big")
                api = int.from_bytes(frame[4:6], "big")
                if api == 0:
                    continue
                broker += answers.get(correlation, response(correlation, b"probe"))
            n = rng.randint(0, 50)
            if broker[:n]:
                take(c.from_upstream(broker[:n]))
                broker = broker[n:]
    assert seen == wanted


def test_a_produce_with_a_broken_head_is_left_to_the_broker() -> None:
    """The Produce may stand behind a group request: it is parsed while another request is being answered, so nothing
    may be raised."""
    broken = request_frame(0, 9, 2, "c", True, b"")
    broken = broken[:-1] + b"\xff\xff\xff\xff\xff\xff"  # a varint that never ends, in the tags of the header
    broken = (len(broken) - 4).to_bytes(4, "big") + broken[4:]
    c = ClientConnection(Limits())
    (first,) = got(c.from_client(group(1) + broken))
    actions = c.answer(first.token, b"ONE")
    assert (to_client(actions), to_upstream(actions)) == (b"ONE", broken)
