"""Credentials are read again when a broker refuses them, and a broker that refuses is not hammered."""

from __future__ import annotations

import asyncio
import datetime
import ssl
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sidecar.drill import secured as secured_module
from sidecar.drill.secured import secured
from sidecar.kafka.credentials import PAUSE_S, UNSURE_MAX, Credentials
from sidecar.kafka.denials import AUTHENTICATION, LASTS_S, Denials
from sidecar.kafka.net import BrokerConnection, NotAuthenticated, _plain
from sidecar.kafka.properties import read
from sidecar.wire.frames import PREFIX, response_frame
from sidecar.wire.generated import api_versions as av
from sidecar.wire.generated import sasl_authenticate as sa
from sidecar.wire.generated import sasl_handshake as sh
from tests.inprocess import clock
from tests.inprocess.embedded_sidecar import Lines, until

REFUSED = 58
"""SASL_AUTHENTICATION_FAILED."""


def text(password: str) -> str:
    return f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=s\nsasl.password={password}\n"


class Bench:
    def __init__(self, folder: Path) -> None:
        self.path, self.lines = folder / "client.properties", Lines()
        self.path.write_text(text("old"))
        self.denials = Denials(self.lines)
        self.it = Credentials("command_config", self.path, read(self.path), self.denials, self.lines)
        self.changes = 0
        self.it.changed = self._changed

    def _changed(self) -> None:
        self.changes += 1


def test_what_the_file_says_now_counts_when_the_broker_refuses_what_it_said(tmp_path: Path) -> None:
    b = Bench(tmp_path)
    b.path.write_text(text("new"))
    assert b.it.now.password == "old", "connections that are open go on"
    b.it.refused("h", 1, "no")
    assert b.it.now.password == "new" and b.changes == 1
    assert b.it.refusal("h", 1) == "", "it may be asked at once with the new ones"
    assert "new" not in str(b.lines.lines) and "credentials read again" in b.lines.events("info")


def test_a_broker_that_refuses_is_left_alone_for_a_while(tmp_path: Path) -> None:
    """A user can be locked out by the number of wrong passwords."""

    async def test() -> None:
        b = Bench(tmp_path)
        b.it.refused("h", 1, "wrong password")
        assert b.it.refusal("h", 1) == "wrong password" and b.it.refusal("h", 2) == ""
        with pytest.raises(NotAuthenticated, match="h:1: wrong password"):
            await BrokerConnection.open("h", 1, "c", security=b.it)
        then_s = time.monotonic() + PAUSE_S
        await until(lambda: time.monotonic() > then_s)
        assert b.it.refusal("h", 1) == ""
        assert len(b.lines.events("error")) == 1
        b.it.accepted("h", 1)
        assert not b.denials

    clock.run(test())


def test_one_address_that_accepts_says_nothing_of_another_that_refuses(tmp_path: Path) -> None:
    b = Bench(tmp_path)
    b.it.refused("h", 1, "no")
    b.it.accepted("h", 2)
    assert b.denials.lasting()
    b.it.accepted("h", 1)
    assert b.denials.lasting() == []


def test_an_address_that_is_asked_no_more_keeps_no_refusal_for_ever(tmp_path: Path) -> None:
    async def test() -> None:
        b = Bench(tmp_path)
        b.it.refused("gone", 1, "no")
        clock.block_loop(LASTS_S + 1)
        b.it.refused("h", 1, "no")
        b.it.accepted("h", 1)
        assert b.denials.lasting() == []

    clock.run(test())


class AuthenticatingBroker:
    """A broker that answers the attempts to authenticate by these codes; each session lasts a second."""

    def __init__(self, codes: list[int]) -> None:
        self.codes = codes
        self.versions = [av.ApiVersion(17, 1, 1), av.ApiVersion(18, 0, 3), av.ApiVersion(36, 0, 1)]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):
            while True:
                size = await reader.readexactly(4)
                frame = size + await reader.readexactly(int.from_bytes(size, "big"))
                _, key, version, correlation = PREFIX.unpack_from(frame)
                writer.write(response_frame(correlation, False, self._answer(key).encode(version)))
        writer.close()

    def _answer(self, key: int) -> Any:
        if key == 18:
            return av.ApiVersionsResponse(api_keys=self.versions)
        if key == 17:
            return sh.SaslHandshakeResponse(mechanisms=["PLAIN"])
        return sa.SaslAuthenticateResponse(error_code=self.codes.pop(0), session_lifetime_ms=1_000)


def test_a_refusal_to_authenticate_again_ends_when_that_broker_accepts(tmp_path: Path) -> None:
    """Symptom: the refusal was noted under the peer's address and not under the broker's name, by which connections are
    accepted. No denial was over any more."""

    async def test() -> None:
        b = Bench(tmp_path)
        broker = AuthenticatingBroker([0, REFUSED, 0])
        server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        first = await BrokerConnection.open("localhost", port, "c", security=b.it)
        await until(lambda: first.closed)
        assert [d.problem.partition(" ")[0] for d in b.denials.lasting()] == [f"localhost:{port}:"]
        then_s = time.monotonic() + PAUSE_S
        await until(lambda: time.monotonic() > then_s)
        second = await BrokerConnection.open("localhost", port, "c", security=b.it)
        assert b.denials.lasting() == []
        second.close()
        server.close()

    clock.run(test())


def test_a_late_refusal_of_former_credentials_is_none_of_the_present_ones(tmp_path: Path) -> None:
    """Symptom: /readyz told of a refusal for two minutes after the password was right. A connection had begun with the
    former one, and afterwards none was opened to its address, so that none could be accepted there."""
    b = Bench(tmp_path)
    former = b.it.now
    b.path.write_text(text("new"))
    b.it.again()
    b.it.accepted("h", 1)
    for sure in (True, False, False, False):
        b.it.refused("h", 1, "wrong password", sure, used=former)
    assert not b.denials and b.it.refusal("h", 1) == ""
    b.it.refused("h", 1, "wrong password", used=b.it.now)
    assert b.denials


def test_a_reset_is_taken_for_a_refusal_only_when_it_comes_again(tmp_path: Path) -> None:
    b = Bench(tmp_path)
    for _ in range(UNSURE_MAX - 1):
        b.it.refused("h", 1, "no TLS", sure=False)
        assert not b.denials and b.it.refusal("h", 1) == ""
    b.it.refused("h", 1, "no TLS", sure=False)
    assert b.denials.lasting()


def test_a_file_that_is_of_no_use_leaves_what_was_read_before(tmp_path: Path) -> None:
    b = Bench(tmp_path)
    b.path.write_text("security.protocol=NONE\n")
    b.it.again()
    assert b.it.now.password == "old" and b.changes == 0
    (denial,) = b.denials.lasting()
    assert "security.protocol is 'NONE'" in denial.problem and "command_config" in denial.remedy


@pytest.mark.parametrize(
    ("verify_code", "look_at"),
    [
        (10, "the broker's ssl.keystore.location, and at the clocks of both"),
        (9, "the broker's ssl.keystore.location"),
        (62, "a certificate with the name or address that it is reached by"),
        (19, "ssl.truststore.location"),
    ],
)
def test_a_certificate_that_is_refused_names_what_to_look_at(verify_code: int, look_at: str) -> None:
    """Symptom: of an expired certificate the text said to look at the truststore."""
    exc = ssl.SSLCertVerificationError(1, "no")
    exc.verify_code, exc.verify_message = verify_code, "no"
    assert look_at in _plain(exc)


def test_an_expired_certificate_of_a_broker_is_named_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secured_module, "LIFE", datetime.timedelta(minutes=-30))
    properties = secured(tmp_path).client
    trust = properties["ssl.truststore.location"]
    path = tmp_path / "client.properties"
    path.write_text(f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={trust}\n")
    broker = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    broker.load_cert_chain(tmp_path / "key-and-certificate.pem")

    async def test() -> None:
        denials = Denials(Lines())
        credentials = Credentials("command_config", path, read(path), denials, Lines())
        server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0, ssl=broker)
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(NotAuthenticated, match="certificate has expired"):
            await BrokerConnection.open("127.0.0.1", port, "c", security=credentials)
        server.close()
        (denial,) = denials.lasting()
        assert denial.kind == AUTHENTICATION and "clocks of both" in denial.problem

    asyncio.run(test())
