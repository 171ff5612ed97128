"""SaslAuthenticate passes; the client's name is taken from it when the broker has said yes, for records. What the bytes
mean is decided by the mechanism, so nobody can say in one what would be another's name in another."""

from __future__ import annotations

import base64
import json

import pytest

from sidecar.api.call import Client, who
from sidecar.wire.apis import Api
from sidecar.wire.generated import sasl_authenticate as sa
from tests.api.play import Play

SECRET = b"S3CRET"
REFUSED, NO_STEP = 58, 34
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")


def client_with(mechanism: str, principal: str = "") -> Client:
    """A client of which the broker has accepted this mechanism."""
    return Client("h", authenticates=True, mechanism=mechanism, principal=principal)


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
    assert step(client_with("PLAIN"), b"\0alice\0" + SECRET, version=version) == "User:alice"
    assert step(client_with("PLAIN"), b"alice\0alice\0" + SECRET, version=version) == "User:alice"


@pytest.mark.parametrize("mechanism", SCRAM)
def test_scram_names_the_user_when_the_proof_was_right(mechanism: str) -> None:
    client = client_with(mechanism)
    assert step(client, b"n,,n=al=2Cice=3D,r=nonce", answered=b"r=nonce2,s=salt,i=4096") == ""
    assert step(client, b"c=biws,r=nonce2,p=" + SECRET, answered=b"v=signature") == "User:al,ice="
    assert client.claimed == ""


def scram_name(first: bytes) -> str:
    client = client_with("SCRAM-SHA-256")
    step(client, first, answered=b"r=x,s=y,i=4096")
    return step(client, b"c=biws,r=x,p=y", answered=b"v=z")


def test_of_scram_the_name_is_where_the_broker_reads_it() -> None:
    """Extensions that a broker does not know are ignored there, whatever they are called."""
    assert scram_name(b"n,,n=mallory,r=nonce,n=victim") == "User:mallory"
    assert scram_name(b"n,a=mallory,m=n,n=mallory,r=nonce,ext=n=victim,tokenauth=false") == "User:mallory"
    assert scram_name(b"n,,n==3D2C,r=nonce") == "User:=2C"
    for no_name in (b"n,,r=nonce,n=victim", b"y,,n=victim,r=nonce", b"n,,n=victim", b"n,,n=,r=nonce", b"n,,", b"c=,"):
        assert scram_name(no_name) == "", no_name


@pytest.mark.parametrize("said", [b"tokenauth=true", b"tokenauth=TRUE", b"tokenauth=false,tokenauth=true"])
def test_a_delegation_token_is_no_user(said: bytes) -> None:
    assert scram_name(b"n,,n=token-id,r=nonce," + said) == ""


def test_an_oauth_token_names_its_subject() -> None:
    client = client_with("OAUTHBEARER")
    assert step(client, jwt({"sub": "robot", "exp": 1})) == "User:robot"
    said_no = json.dumps({"status": "invalid_token"}).encode()
    assert step(client, jwt({"sub": "mallory"}), answered=said_no) == "", "this answer is a refusal, without a code"
    assert step(client, b"\1", REFUSED) == ""


def test_of_several_tokens_the_brokers_is_taken() -> None:
    """The last field `auth` counts; a token in another field is an extension, and no more."""
    victim = jwt({"sub": "victim"}).removeprefix(b"n,,\1").removesuffix(b"\1\1")
    real = jwt({"sub": "mallory"}).removeprefix(b"n,,\1")
    for message in (b"n,,\1x=" + victim + b"\1" + real, b"n,,\1" + victim + b"\1" + real):
        assert step(client_with("OAUTHBEARER"), message) == "User:mallory"
    assert (
        step(client_with("OAUTHBEARER"), b"n,a=mallory,\1" + real.replace(b"auth=Bearer", b"auth=bEARER  "))
        == "User:mallory"
    )
    assert step(client_with("OAUTHBEARER"), b"n,,\1" + real.replace(b"Bearer", b"Basic")) == ""


# ---- one mechanism with the bytes of another -------------------------------------------------------------------------
FIRST_BYTES = {
    "PLAIN": b"\0victim\0" + SECRET,
    "SCRAM-SHA-256": b"n,,n=victim,r=nonce",
    "SCRAM-SHA-512": b"n,,n=victim,r=nonce",
    "OAUTHBEARER": jwt({"sub": "victim"}),
}


@pytest.mark.parametrize(
    ("mechanism", "of_another"),
    [(m, n) for m in (*FIRST_BYTES, "GSSAPI", "X-OWN", "") for n in FIRST_BYTES if m != n and not {m, n} <= set(SCRAM)],
)
def test_the_bytes_of_another_mechanism_name_nobody(mechanism: str, of_another: str) -> None:
    client = client_with(mechanism)
    assert step(client, FIRST_BYTES[of_another]) == ""
    if mechanism not in SCRAM:
        assert step(client, b"c=biws,r=nonce,p=proof", answered=b"v=z") == ""


def test_a_password_may_look_like_another_mechanism() -> None:
    for password in (jwt({"sub": "victim"}), b"n,,n=victim,r=x", b"c=biws"):
        assert step(client_with("PLAIN"), b"\0mallory\0" + password) == "User:mallory"
    assert step(client_with("PLAIN"), b"n,,n=victim,r=x\0n,,n=victim,r=x\0" + SECRET) == "User:n,,n=victim,r=x"


@pytest.mark.parametrize(
    ("mechanism", "said", "answered"),
    [
        ("PLAIN", b"", b""),
        ("PLAIN", b"\0\0" + SECRET, b""),
        ("PLAIN", b"\0line\nbreak\0" + SECRET, b""),
        ("PLAIN", b"\0" + b"x" * 300 + b"\0" + SECRET, b""),
        ("PLAIN", b"\0" + b"x" * 70_000 + b"\0" + SECRET, b""),
        ("PLAIN", b"\0a\0b\0c", b""),
        ("GSSAPI", b"\x60\x82\x01\x02 a ticket", b"more"),
        ("OAUTHBEARER", jwt(["no", "claims"]), b""),
        ("OAUTHBEARER", jwt({"sub": 5}), b""),
        ("OAUTHBEARER", jwt({}), b""),
        ("OAUTHBEARER", b"n,,\1auth=Bearer opaque\1\1", b""),
        ("OAUTHBEARER", b"n,,\1auth=Bearer a.!!!.c\1\1", b""),
        ("SCRAM-SHA-256", b"c=biws,r=x,p=y", b"v=z"),
    ],
)
def test_what_names_nobody(mechanism: str, said: bytes, answered: bytes) -> None:
    assert step(client_with(mechanism), said, answered=answered) == ""


def test_who_is_refused_has_no_name_and_a_new_session_may_have_another() -> None:
    client = client_with("PLAIN")
    assert step(client, b"\0alice\0wrong", REFUSED) == ""
    client.mechanism = "SCRAM-SHA-256"
    assert step(client, b"n,,n=alice,r=x", answered=b"r=y") == ""
    assert step(client, b"c=biws,r=y,p=wrong", REFUSED) == ""
    assert step(client, b"c=biws,r=y,p=again", answered=b"v=z") == "", "the name that was claimed is forgotten"
    client.mechanism = "PLAIN"
    assert step(client, b"\0alice\0" + SECRET) == "User:alice"
    assert step(client, b"\0bob\0" + SECRET) == "User:bob"
    assert step(client, b"\0bob\0wrong", REFUSED) == ""


def test_a_client_cannot_shed_its_name() -> None:
    """An exchange that comes when the broker expects none is answered so, and the session goes on."""
    client = client_with("PLAIN", "User:mallory")
    for said in (b"", b"\0victim\0" + SECRET, b"junk"):
        assert step(client, said, NO_STEP) == "User:mallory"


def test_no_secret_is_kept() -> None:
    for mechanism, said in (*FIRST_BYTES.items(), ("SCRAM-SHA-256", b"c=biws,p=" + SECRET)):
        client = client_with(mechanism)
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
    def logged_client(client: Client, client_id: str | None) -> str:
        play = Play(Api.SASL_AUTHENTICATE, b"", 2, client=client, client_id=client_id)
        found = who(play.call)
        play.asks().broker(Odd()).gives()
        return found

    assert logged_client(Client("10.1.2.3"), "app") == 'User:ANONYMOUS from 10.1.2.3, client id "app"'
    assert (
        logged_client(Client("h", principal="User:alice", authenticates=True), "x")
        == 'User:alice from h, client id "x"'
    )
    assert logged_client(client_with("GSSAPI"), None) == 'somebody authenticated from h, client id ""'
    liar = logged_client(Client("h", principal="User:eve"), 'x" from 10.0.0.1 as User:alice\n' + "x" * 500)
    assert liar.startswith('User:eve from h, client id "x\\" from') and "\n" not in liar and len(liar) < 200
