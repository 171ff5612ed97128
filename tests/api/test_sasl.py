"""SaslAuthenticate passes; the client's name is taken from it when the broker has said yes, for records."""

from __future__ import annotations

import base64
import json

import pytest

from sidecar.api.call import Client, who
from sidecar.wire.apis import Api
from sidecar.wire.generated import sasl_authenticate as sa
from tests.api.play import Play

SECRET = b"S3CRET"
REFUSED = 58


def step(
    client: Client, said: bytes, code: int = 0, answered: bytes = b"", version: int = 2, client_id: str = "app"
) -> str:
    """One step of the exchange. Returns the principal after it."""
    play = Play(Api.SASL_AUTHENTICATE, sa.SaslAuthenticateRequest(said), version, client=client, client_id=client_id)
    told = sa.SaslAuthenticateResponse(error_code=code, auth_bytes=answered, session_lifetime_ms=5 if version else 0)
    play.asks().broker(told).answers(told)
    return client.principal


def jwt(claims: object) -> bytes:
    part = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=")
    return b"n,,\1auth=Bearer e30." + part + b"." + SECRET + b"\1\1"


@pytest.mark.parametrize("version", range(3))
def test_plain(version: int) -> None:
    assert step(Client("h"), b"\0alice\0" + SECRET, version=version) == "User:alice"
    assert step(Client("h"), b"alice\0alice\0" + SECRET, version=version) == "User:alice"


def test_scram_names_the_user_when_the_proof_was_right() -> None:
    client = Client("h")
    assert step(client, b"n,,n=al=2Cice=3D,r=nonce", answered=b"r=nonce2,s=salt,i=4096") == ""
    assert step(client, b"c=biws,r=nonce2,p=" + SECRET, answered=b"v=signature") == "User:al,ice="
    assert client.claimed == ""


def test_an_oauth_token_names_its_subject() -> None:
    client = Client("h")
    assert step(client, jwt({"sub": "robot", "exp": 1})) == "User:robot"
    said_no = json.dumps({"status": "invalid_token"}).encode()
    assert step(client, jwt({"sub": "mallory"}), answered=said_no) == "", "this answer is a refusal, without a code"
    assert step(client, b"\1", REFUSED) == ""


@pytest.mark.parametrize(
    ("said", "answered"),
    [
        (b"", b""),
        (b"\x60\x82\x01\x02 a ticket", b"more"),
        (b"\0\0" + SECRET, b""),
        (b"\0line\nbreak\0" + SECRET, b""),
        (b"\0" + b"x" * 300 + b"\0" + SECRET, b""),
        (b"\0" + b"x" * 70_000 + b"\0" + SECRET, b""),
        (jwt(["no", "claims"]), b""),
        (jwt({"sub": 5}), b""),
        (jwt({}), b""),
        (b"n,,\1auth=Bearer opaque\1\1", b""),
        (b"n,,\1auth=Bearer a.!!!.c\1\1", b""),
        (b"c=biws,r=x,p=y", b"v=z"),
    ],
)
def test_what_names_nobody(said: bytes, answered: bytes) -> None:
    client = Client("h", principal="")
    assert step(client, said, answered=answered) == ""


def test_a_delegation_token_is_no_user() -> None:
    client = Client("h")
    step(client, b"n,,n=token-id,r=nonce,tokenauth=true", answered=b"r=x")
    assert step(client, b"c=biws,r=x,p=y", answered=b"v=z") == ""


def test_who_is_refused_has_no_name_and_a_new_session_may_have_another() -> None:
    client = Client("h")
    assert step(client, b"\0alice\0wrong", REFUSED) == ""
    assert step(client, b"n,,n=alice,r=x", answered=b"r=y") == ""
    assert step(client, b"c=biws,r=y,p=wrong", REFUSED) == ""
    assert step(client, b"c=biws,r=y,p=again", answered=b"v=z") == "", "the name that was claimed is forgotten"
    assert step(client, b"\0alice\0" + SECRET) == "User:alice"
    assert step(client, b"\0bob\0" + SECRET) == "User:bob"
    assert step(client, b"\0bob\0wrong", REFUSED) == ""


def test_no_secret_is_kept() -> None:
    for said in (b"\0alice\0" + SECRET, jwt({"sub": "alice"}), b"c=biws,p=" + SECRET):
        client = Client("h")
        step(client, said)
        assert "S3CRET" not in repr(client)


class Odd:
    """An answer that nobody understands."""

    def encode(self, version: int) -> bytes:
        return b"\xfe"


def test_bytes_that_nobody_understands_pass() -> None:
    play = Play(Api.SASL_AUTHENTICATE, b"\xff", 2)
    assert play.asks().broker(Odd()).gives() == b"\xfe"
    assert play.client.principal == ""


def test_who_asks_and_from_where() -> None:
    def told(client: Client, client_id: str | None) -> str:
        play = Play(Api.SASL_AUTHENTICATE, b"", 2, client=client, client_id=client_id)
        found = who(play.call)
        play.asks().broker(Odd()).gives()
        return found

    assert told(Client("10.1.2.3"), "app") == 'User:ANONYMOUS from 10.1.2.3, client id "app"'
    assert told(Client("h", principal="User:alice", authenticates=True), "x") == 'User:alice from h, client id "x"'
    assert told(Client("h", authenticates=True), None) == 'somebody authenticated from h, client id ""'
    liar = told(Client("h", principal="User:eve"), 'x" from 10.0.0.1 as User:alice\n' + "x" * 500)
    assert liar.startswith('User:eve from h, client id "x\\" from') and "\n" not in liar and len(liar) < 200
