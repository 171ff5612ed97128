"""SaslHandshake of version 0: tokens without a header pass both ways, until a request comes."""

from __future__ import annotations

import pytest

from sidecar.proxy.actions import Action, Close, Got, ToClient, ToUpstream
from sidecar.proxy.connection import ClientConnection
from sidecar.wire.frames import Limits, request_frame
from tests.harness.properties import given, settings, st
from tests.proxy.test_connection import got, group, passed, response, to_client, to_upstream


def handshake(mechanism: str, correlation: int = 1, version: int = 0) -> bytes:
    name = mechanism.encode()
    return request_frame(17, version, correlation, "c", False, len(name).to_bytes(2, "big") + name)


def handshake_response(correlation: int = 1, code: int = 0) -> bytes:
    return response(correlation, code.to_bytes(2, "big") + b"\0\0\0\1\0\5PLAIN")


def token(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


DIANA = b"\0Diana\0pw"
"""As a request it would be a ConsumerGroupHeartbeat: its first two bytes are 0 and 68."""
EXCHANGES = {
    "PLAIN": [(DIANA, b"")],
    "OAUTHBEARER": [(b"n,,\1auth=Bearer x\1\1", b"")],
    "SCRAM-SHA-256": [(b"n,,n=Diana,r=abc", b"r=abcdef,s=x,i=4096"), (b"c=biws,r=abcdef,p=x", b"v=x")],
    "SCRAM-SHA-512": [(b"\0\x44\0\0\0\0\0\1\0\0", b"x"), (b"\0\x44\0\0\0\0\0\1\0\0", b"")],
    "GSSAPI": [(b"\x60\x82\1\2" + b"k" * 20, b"\x60\x81reply"), (b"", b"\5\4\5\xff" + b"w" * 20)],
}


def begun(mechanism: str) -> ClientConnection:
    c = ClientConnection(Limits())
    assert to_upstream(c.from_client(handshake(mechanism))) == handshake(mechanism)
    assert c.local_pending and not c.idle
    assert to_client(c.from_upstream(handshake_response())) == handshake_response()
    assert c.authenticates and not c.local_pending and c.idle
    return c


@pytest.mark.parametrize("mechanism", EXCHANGES)
def test_tokens_pass_both_ways_until_a_request_comes(mechanism: str) -> None:
    c = begun(mechanism)
    for said, answered in EXCHANGES[mechanism]:
        assert to_upstream(c.from_client(token(said))) == token(said)
        assert to_client(c.from_upstream(token(answered))) == token(answered)
    assert c.idle and not c.partial and c.held_bytes == 0
    (first,) = got(c.from_client(group(2)))
    assert to_client(c.answer(first.token, b"TWO")) == b"TWO"
    (again,) = got(c.from_client(group(3)))
    assert to_upstream(c.forward(again.token, group(3))) == group(3)
    assert to_client(c.from_upstream(response(3))) == response(3)


def test_the_last_token_of_gssapi_has_no_answer() -> None:
    c = begun("GSSAPI")
    last = token(b"\5\4\5\xff" + b"w" * 20)
    assert to_upstream(c.from_client(last)) == last
    assert to_upstream(c.from_client(passed(2))) == passed(2)
    assert to_client(c.from_upstream(response(2))) == response(2)
    assert c.idle


def test_a_request_may_come_right_behind_the_last_token() -> None:
    c = begun("PLAIN")
    actions = c.from_client(token(DIANA) + passed(2) + group(3))
    assert to_upstream(actions) == token(DIANA) + passed(2)
    (third,) = got(actions)
    assert c.answer(third.token, b"THREE") == []
    assert to_client(c.from_upstream(token(b"") + response(2))) == token(b"") + response(2) + b"THREE"


def test_a_token_may_come_right_behind_the_handshake() -> None:
    c = ClientConnection(Limits())
    assert to_upstream(c.from_client(handshake("PLAIN") + token(DIANA))) == handshake("PLAIN")
    actions = c.from_upstream(handshake_response())
    assert (to_client(actions), to_upstream(actions)) == (handshake_response(), token(DIANA))


def test_a_refused_exchange_is_still_an_exchange() -> None:
    """The client of OAUTHBEARER says with one byte that it has read why; then the broker closes."""
    c = begun("OAUTHBEARER")
    c.from_client(token(b"n,,\1auth=Bearer x\1\1"))
    assert to_client(c.from_upstream(token(b'{"status":"invalid_token"}'))) == token(b'{"status":"invalid_token"}')
    assert to_upstream(c.from_client(token(b"\1"))) == token(b"\1")


@pytest.mark.parametrize("code", [33, 34])
def test_a_handshake_that_the_broker_refuses_lets_no_token_follow(code: int) -> None:
    """Else a client of a listener without SASL could send to its broker what the sidecar must see."""
    c = ClientConnection(Limits())
    c.from_client(handshake("PLAIN"))
    assert to_client(c.from_upstream(handshake_response(1, code))) == handshake_response(1, code)
    assert len(got(c.from_client(group(2)))) == 1


def test_later_versions_have_requests_for_their_tokens() -> None:
    c = ClientConnection(Limits())
    actions = c.from_client(handshake("PLAIN", 1, 1) + group(2))
    assert to_upstream(actions) == handshake("PLAIN", 1, 1) and not got(actions), "it waits for the mechanism"
    actions = c.from_upstream(handshake_response())
    assert to_client(actions) == handshake_response() and len(got(actions)) == 1


# ---- which mechanism it is ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("version", [0, 1])
def test_the_mechanism_is_the_one_that_the_broker_has_accepted(version: int) -> None:
    c = ClientConnection(Limits())
    c.from_client(handshake("X-OWN", 1, version))
    assert c.mechanism == ""
    c.from_upstream(handshake_response(1, 33))
    assert c.mechanism == "", "a listener without SASL, or without this mechanism"
    c.from_client(handshake("PLAIN", 2, version) + handshake("SCRAM-SHA-256", 3, 1))
    c.from_upstream(handshake_response(2))
    assert c.mechanism == "PLAIN"
    if version == 0:
        c.from_upstream(token(b""))  # the second handshake was taken for its token, as by the broker
    else:
        c.from_upstream(handshake_response(3, 34))
    assert c.mechanism == "PLAIN", "refused behind an exchange, it changes nothing"


def test_of_a_handshake_that_is_not_known_no_mechanism_is_told() -> None:
    c = ClientConnection(Limits())
    c.from_client(handshake("PLAIN", 1, 1))
    c.from_upstream(handshake_response())
    assert to_upstream(c.from_client(handshake("PLAIN", 2, 2))) == handshake("PLAIN", 2, 2)
    assert c.mechanism == "" and not c.local_pending


def test_tokens_without_any_handshake_are_those_of_gssapi() -> None:
    c = ClientConnection(Limits())
    c.from_client(token(b"\x60\x82\1\2" + b"k" * 20))
    assert c.authenticates and c.mechanism == "GSSAPI"


def test_an_exchange_may_be_repeated() -> None:
    c = begun("PLAIN")
    for n in range(2, 5):
        c.from_client(token(DIANA))
        c.from_upstream(token(b""))
        assert to_upstream(c.from_client(handshake("PLAIN", n))) == handshake("PLAIN", n)
        assert to_client(c.from_upstream(handshake_response(n))) == handshake_response(n)


def test_a_large_token_streams_and_one_that_lies_closes() -> None:
    c = begun("PLAIN")
    large = token(b"x" * 300_000)
    assert to_upstream(c.from_client(large[:1_000])) == large[:1_000] and c.held_bytes == 0
    assert to_upstream(c.from_client(large[1_000:])) == large[1_000:]
    assert to_client(c.from_upstream(token(b""))) == token(b"")
    for size in (-1, 200_000_000):
        (close,) = begun("PLAIN").from_client(size.to_bytes(4, "big", signed=True))
        assert isinstance(close, Close) and close.cause == "bad_frame_size"


def test_half_a_token_has_its_time_like_half_a_request() -> None:
    c = begun("PLAIN")
    c.from_client(b"\0\0")
    assert c.partial
    c.from_client(b"\0\x09" + DIANA)
    assert not c.partial
    c = ClientConnection(Limits())
    c.from_client(handshake("PLAIN")[:-1])
    assert c.partial and c.partial_bytes == len(handshake("PLAIN"))


def test_a_handshake_that_cannot_be_read_is_the_brokers_to_judge() -> None:
    for body in (b"", b"\0\x05PL", b"\xff\xff", b"\0\4\xff\xfe\xfd\xfc"):
        c = ClientConnection(Limits())
        frame = request_frame(17, 0, 1, "c", False, body)
        assert to_upstream(c.from_client(frame)) == frame
    (close,) = ClientConnection(Limits(list_frame_bytes=1_000)).from_client(handshake("x" * 2_000))
    assert isinstance(close, Close) and close.cause == "frame_too_large"


def test_short_answers_are_for_tokens_only() -> None:
    c = begun("PLAIN")
    c.from_client(token(DIANA) + passed(2))
    assert to_client(c.from_upstream(token(b""))) == token(b"")
    (close,) = c.from_upstream(token(b""))
    assert isinstance(close, Close) and close.cause == "bad_response_size"
    (close,) = ClientConnection(Limits()).from_upstream(token(b""))
    assert isinstance(close, Close) and close.cause == "unexpected_response"


@settings(max_examples=200, deadline=None)
@given(
    mechanism=st.sampled_from(sorted(EXCHANGES)),
    cuts=st.lists(st.integers(1, 40), min_size=1),
    behind=st.sampled_from([passed(2), group(2)]),
)
def test_however_the_bytes_are_cut(mechanism: str, cuts: list[int], behind: bytes) -> None:
    c = ClientConnection(Limits())
    n = 0

    def cut(data: bytes, feed: object) -> list[Action]:
        nonlocal n
        out: list[Action] = []
        while data:
            step = cuts[n % len(cuts)]
            n += 1
            out += feed(data[:step])  # type: ignore[operator]
            data = data[step:]
        return out

    for said, answered in [
        (handshake(mechanism), handshake_response()),
        *((token(a), token(b)) for a, b in EXCHANGES[mechanism]),
    ]:
        assert to_upstream(cut(said, c.from_client)) == said
        assert to_client(cut(answered, c.from_upstream)) == answered
    kinds = {type(a) for a in cut(behind, c.from_client)}
    assert kinds == ({ToUpstream} if behind == passed(2) else {Got})
    assert ToClient not in kinds
