"""The listener that ends TLS: who gets in, what a handshake may cost, new files while connections go on.

Real sockets, on asyncio's loop and on uvloop, which is the one in production. The broker answers every request.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Coroutine
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
import uvloop
from cryptography.hazmat.primitives import serialization

from sidecar.front.certificates import Certificates, TlsError, TlsSettings, read_context
from sidecar.front.door import DoorSettings
from sidecar.front.tls import TlsListener
from sidecar.wire.frames import Limits, request_frame
from tests.front.reception import passed, response
from tests.inprocess.desk import Desk
from tests.inprocess.house import until
from tests.security.ground import Authority, Papers

OLD = "ALL:@SECLEVEL=0"
"""With these ciphers OpenSSL speaks TLS 1.1, if it may."""
HELLO = bytes.fromhex("1603010200010001fc0303")
"""The beginning of a ClientHello, which announces 512 bytes."""
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("papers"))


@pytest.fixture(scope="module")
def papers(authority: Authority) -> Papers:
    return authority.issue("sidecar")


@pytest.fixture(params=LOOPS)
def loops(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    return LOOPS[request.param]


def trusting(papers: Papers, own: Papers | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(papers.authority))
    if own is not None:
        context.load_cert_chain(own.certificate, own.key)
    return context


class Place:
    """A front behind a listener for TLS, and a broker that answers each request with `answer`."""

    def __init__(self, settings: TlsSettings, desk: Desk) -> None:
        self.desk = desk
        self.certificates = Certificates(settings, desk.metrics, desk.lines)
        self.listener = TlsListener(desk.front, self.certificates, desk.metrics, desk.lines, desk.tasks)
        self.port = 0
        self.answer = b"A"
        self.seen = 0
        self.broker: asyncio.Server | None = None

    async def open(self, broker_tls: ssl.SSLContext | None = None) -> None:
        self.broker = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=broker_tls)
        self.desk.front.broker = ("127.0.0.1", self.broker.sockets[0].getsockname()[1])
        await self.listener.open("127.0.0.1", 0, 1_024)
        self.port = self.listener.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = await reader.readexactly(size)
                self.seen += 1
                writer.write(response(int.from_bytes(frame[4:8], "big"), self.answer))
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            writer.close()

    async def connect(self, context: ssl.SSLContext) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=context, server_hostname="localhost")

    def raw(self) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self.port))
        sock.setblocking(False)
        return sock

    def count(self, outcome: str) -> float:
        return self.desk.metrics.value("tls_handshakes", outcome)

    @property
    def settled(self) -> bool:
        """Nothing of any arrival is left."""
        listener, door = self.listener, self.desk.front.door
        left = (*listener._arrivals, *listener._under_way, *listener._line)
        return not left and door._arriving == 0 and sum(door._from.values()) == len(door.sessions)


def play(
    loops: Callable[[], asyncio.AbstractEventLoop],
    settings: TlsSettings,
    test: Callable[[Place], Coroutine[Any, Any, None]],
    broker_tls: ssl.SSLContext | None = None,
    **given: Any,
) -> None:
    async def whole() -> None:
        desk = Desk(**given)
        desk.show()
        place = Place(settings, desk)
        await place.open(broker_tls)
        await test(place)
        place.listener.close()
        for session in list(desk.front.sessions):
            session.abort("shutdown")
        await until(lambda: place.settled and not desk.front.sessions)
        assert place.broker is not None
        place.broker.close()
        assert not desk.tasks.failed.done(), desk.tasks.failed.exception()

    with asyncio.Runner(loop_factory=loops) as runner:
        runner.run(whole())


async def exchange(streams: tuple[asyncio.StreamReader, asyncio.StreamWriter], n: int, answer: bytes = b"A") -> None:
    reader, writer = streams
    writer.write(passed(n))
    assert await asyncio.wait_for(reader.readexactly(8 + len(answer)), 10) == response(n, answer)


def blocking(port: int, context: ssl.SSLContext) -> None:
    """A client that says what it does not like, which asyncio's does not."""
    with (
        socket.create_connection(("127.0.0.1", port), 10) as sock,
        context.wrap_socket(sock, server_hostname="localhost"),
    ):
        pass


def refusal(port: int, context: ssl.SSLContext) -> str:
    """What a client is told. In TLS 1.3 its own part of the handshake is done by then, and it reads."""
    with (
        pytest.raises(ssl.SSLError) as refused,
        socket.create_connection(("127.0.0.1", port), 10) as sock,
        context.wrap_socket(sock, server_hostname="localhost") as speaks,
    ):
        speaks.recv(1)
    return refused.value.reason


async def ended(sock: socket.socket) -> bytes:
    """What such a client still hears before its connection ends."""
    loop, heard = asyncio.get_running_loop(), b""
    try:
        while data := await asyncio.wait_for(loop.sock_recv(sock, 4_096), 10):
            heard += data
    except ConnectionResetError:
        pass
    return heard


# ---- sessions
Loops = Callable[[], asyncio.AbstractEventLoop]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_session_behind_tls(loops: Loops, papers: Papers, version: ssl.TLSVersion) -> None:
    async def test(place: Place) -> None:
        context = trusting(papers)
        context.minimum_version = context.maximum_version = version
        streams = await place.connect(context)
        for n in range(1, 4):
            await exchange(streams, n)
        (session,) = place.desk.front.sessions
        assert session.host == "127.0.0.1" and place.count("done") == 1 and place.settled
        streams[1].close()
        await until(lambda: not place.desk.front.sessions)
        assert place.desk.metrics.value("closed", "client_closed") == 1

    play(loops, TlsSettings(papers.certificate, papers.key), test)


def test_both_legs_may_be_tls(loops: Loops, papers: Papers, authority: Authority) -> None:
    async def test(place: Place) -> None:
        streams = await place.connect(trusting(papers))
        await exchange(streams, 1)
        streams[1].write(passed(2) + passed(3))
        streams[1].close()
        await until(lambda: not place.desk.front.sessions)

    broker = authority.issue("the-broker", "broker.example")
    behind = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    behind.load_cert_chain(broker.certificate, broker.key)
    given = {"upstream_tls": lambda: trusting(papers), "upstream_host": "broker.example"}
    play(loops, TlsSettings(papers.certificate, papers.key), test, behind, **given)


def test_a_broker_whose_certificate_is_not_its_own_is_no_broker(
    loops: Loops, papers: Papers, authority: Authority
) -> None:
    async def test(place: Place) -> None:
        reader, writer = await place.connect(trusting(papers))
        writer.write(passed(1))
        assert await asyncio.wait_for(reader.read(), 10) == b""
        assert place.seen == 0, "nothing of the client may get there"
        told = place.desk.lines.fields("no TLS with the broker")
        assert "broker.example" in told["detail"]

    broker = authority.issue("another-broker", "other.example")
    behind = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    behind.load_cert_chain(broker.certificate, broker.key)
    given = {"upstream_tls": lambda: trusting(papers), "upstream_host": "broker.example"}
    play(loops, TlsSettings(papers.certificate, papers.key), test, behind, **given)


def test_a_client_that_does_not_read_is_not_read(loops: Loops, papers: Papers) -> None:
    """Back-pressure through TLS: what the client does not take is not asked of the broker for ever."""

    async def test(place: Place) -> None:
        place.answer = b"x" * 100_000
        reader, writer = await place.connect(trusting(papers))
        transport = cast(asyncio.Transport, writer.transport)
        transport.pause_reading()
        wanted = 400
        for n in range(wanted):
            writer.write(passed(n))
        await asyncio.sleep(0.5)
        assert place.seen < wanted, "it had to stop"
        transport.resume_reading()
        for n in range(wanted):
            frame = await asyncio.wait_for(reader.readexactly(100_008), 20)
            assert int.from_bytes(frame[4:8], "big") == n
        writer.close()

    play(loops, TlsSettings(papers.certificate, papers.key), test, unread_bytes=200_000, limits=Limits(in_flight=400))


def test_a_session_that_is_closed_says_so_and_one_that_is_aborted_goes(loops: Loops, papers: Papers) -> None:
    async def test(place: Place) -> None:
        reader, writer = await place.connect(trusting(papers))
        writer.write(request_frame(68, 9, 1, "c", True, b""))  # of a version that is not there
        assert await asyncio.wait_for(reader.read(), 10) == b""
        writer.close()
        streams = await place.connect(trusting(papers))
        await exchange(streams, 1)
        await until(lambda: len(place.desk.front.sessions) == 1)
        next(iter(place.desk.front.sessions)).abort("not_read")
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError, ssl.SSLError)):
            await asyncio.wait_for(streams[0].readexactly(1), 10)
        streams[1].close()

    play(loops, TlsSettings(papers.certificate, papers.key), test)


# ---- who gets in
def test_clients_need_a_certificate_if_they_are_asked_for_one(
    loops: Loops, papers: Papers, authority: Authority, tmp_path: Path
) -> None:
    async def test(place: Place) -> None:
        await exchange(await place.connect(trusting(papers, authority.issue("client"))), 1)
        stranger = Authority(tmp_path, "strangers").issue("stranger")
        for own in (None, stranger):
            with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
                await exchange(await place.connect(trusting(papers, own)), 1)
        assert place.count("client_certificate") == 2 and place.count("done") == 1
        assert "TLS handshake failed" in place.desk.lines.events("warning")

    play(loops, TlsSettings(papers.certificate, papers.key, clients_from=authority.pem), test)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_is_told_why_its_handshake_failed(
    loops: Loops, papers: Papers, authority: Authority, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    """By an alert of TLS. Without it the connection just closes, as if the sidecar had ended."""

    async def test(place: Place) -> None:
        async def told(own: Papers | None, last: ssl.TLSVersion) -> str:
            context = trusting(papers, own)
            context.maximum_version = last
            return await asyncio.to_thread(refusal, place.port, context)

        newest = version is ssl.TLSVersion.TLSv1_3
        none = "TLSV13_ALERT_CERTIFICATE_REQUIRED" if newest else "SSLV3_ALERT_HANDSHAKE_FAILURE"
        assert await told(None, version) == none
        stranger = Authority(tmp_path, "strangers").issue("stranger")
        assert await told(stranger, version) == "TLSV1_ALERT_UNKNOWN_CA"
        if newest:
            assert await told(None, ssl.TLSVersion.TLSv1_2) == "TLSV1_ALERT_PROTOCOL_VERSION"
        await until(lambda: place.count("client_certificate") == 2 and place.settled)

    settings = TlsSettings(papers.certificate, papers.key, clients_from=authority.pem, min_version=version)
    play(loops, settings, test)


def test_what_does_not_come_about_is_counted_by_cause(loops: Loops, papers: Papers, tmp_path: Path) -> None:
    async def test(place: Place) -> None:
        old = trusting(papers)
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        for context in (old, trusting(Authority(tmp_path, "strangers").issue("stranger"))):
            with pytest.raises(ssl.SSLError):
                await asyncio.to_thread(blocking, place.port, context)
        await until(lambda: place.count("version") == 1 and place.count("not_trusted") == 1)
        assert place.count("done") == 0 and place.settled

    settings = TlsSettings(papers.certificate, papers.key, min_version=ssl.TLSVersion.TLSv1_3)
    play(loops, settings, test)


def test_a_client_of_tls_1_1_is_refused_whatever_the_ciphers(loops: Loops, papers: Papers) -> None:
    """The ciphers would allow it: it is the version that does not."""

    async def test(place: Place) -> None:
        old = trusting(papers)
        old.set_ciphers(OLD)
        with pytest.warns(DeprecationWarning):
            old.minimum_version = ssl.TLSVersion.TLSv1_1
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        await asyncio.to_thread(blocking, place.port, old)
        await until(lambda: place.count("done") == 1)
        with pytest.warns(DeprecationWarning):
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises(ssl.SSLError):
            await asyncio.to_thread(blocking, place.port, old)
        await until(lambda: place.count("version") == 1)
        assert place.count("done") == 1

    play(loops, TlsSettings(papers.certificate, papers.key, ciphers=OLD), test)


def test_a_client_without_tls_is_told_apart_before_any_handshake(loops: Loops, papers: Papers) -> None:
    async def test(place: Place) -> None:
        for first in (passed(1), b"GET / HTTP/1.1\r\n", b"\x15\x03"):
            with closing(place.raw()) as sock:
                sock.send(first)
                assert await ended(sock) == b""
        assert place.count("not_tls") == 3
        assert "security.protocol" in place.desk.lines.fields("TLS handshake failed")["detail"]
        assert place.desk.lines.events("warning").count("TLS handshake failed") == 1, "the others were not logged"

    play(loops, TlsSettings(papers.certificate, papers.key), test)


def test_a_look_whether_the_port_is_there_is_nothing_to_log(loops: Loops, papers: Papers) -> None:
    async def test(place: Place) -> None:
        place.raw().close()
        await until(lambda: place.count("closed") == 1)
        assert place.settled and not place.desk.lines.events("warning")

    play(loops, TlsSettings(papers.certificate, papers.key), test)


def test_limits_of_connections_hold_before_a_handshake(loops: Loops, papers: Papers) -> None:
    async def test(place: Place) -> None:
        silent = [place.raw() for _ in range(2)]
        await until(lambda: len(place.listener._arrivals) == 2)
        with closing(place.raw()) as third:
            assert await ended(third) == b""
        assert place.count("too_many_from_address") == 1 and place.count("done") == 0
        silent.pop().close()
        await until(lambda: len(place.listener._arrivals) == 1)
        streams = await place.connect(trusting(papers))
        await exchange(streams, 1)
        assert place.desk.metrics.value("closed", "too_many_from_address") == 0
        with closing(place.raw()) as third:
            assert await ended(third) == b""
        streams[1].close()
        silent.pop().close()
        await until(lambda: place.settled and not place.desk.front.sessions)
        await exchange(await place.connect(trusting(papers)), 1)

    play(loops, TlsSettings(papers.certificate, papers.key), test, door=DoorSettings(per_address_max=2))


def test_who_comes_too_early_waits_before_the_handshake(loops: Loops, papers: Papers) -> None:
    async def test(place: Place) -> None:
        context, since = trusting(papers), asyncio.get_running_loop().time()
        for n in range(7):
            await exchange(await place.connect(context), n)
        assert asyncio.get_running_loop().time() - since > 0.3
        assert place.desk.front.pauses["rate"] == 0

    play(loops, TlsSettings(papers.certificate, papers.key), test, door=DoorSettings(rate=5))


# ---- hostile
def test_silence_and_half_a_handshake_end_in_time(loops: Loops, papers: Papers) -> None:
    async def test(place: Place) -> None:
        with closing(place.raw()) as silent, closing(place.raw()) as half:
            half.send(HELLO)
            await until(lambda: len(place.listener._under_way) == 1)
            assert len(place.listener._arrivals) == 2, "who says nothing takes no place"
            await ended(silent)
            await ended(half)
        await until(lambda: place.settled)
        assert place.count("timeout") == 2

    play(loops, TlsSettings(papers.certificate, papers.key, handshake_s=0.3), test)


def test_a_thousand_half_handshakes_keep_nobody_out(loops: Loops, papers: Papers) -> None:
    async def test(place: Place) -> None:
        attack = []
        for _ in range(1_000):
            sock = place.raw()
            sock.send(HELLO)
            attack.append(sock)
            if len(attack) % 50 == 0:
                await asyncio.sleep(0)
        assert len(place.listener._under_way) <= 100
        since = asyncio.get_running_loop().time()
        await exchange(await place.connect(trusting(papers)), 1)
        assert asyncio.get_running_loop().time() - since < 9
        assert place.count("crowded_out") > 0
        assert place.desk.metrics.value("tls_under_way") <= 100
        for sock in attack:
            sock.close()
        await until(lambda: place.settled, 20)

    play(loops, TlsSettings(papers.certificate, papers.key, handshakes=100, handshake_s=60), test)


def test_a_thousand_silent_connections_cost_no_handshake(loops: Loops, papers: Papers) -> None:
    async def test(place: Place) -> None:
        silent = []
        for n in range(1_000):
            silent.append(place.raw())
            if n % 50 == 0:
                await asyncio.sleep(0)
        await until(lambda: len(place.listener._arrivals) == 1_000)
        await exchange(await place.connect(trusting(papers)), 1)
        assert place.count("done") == 1 and not place.listener._under_way
        for sock in silent:
            sock.close()
        await until(lambda: place.settled)

    play(loops, TlsSettings(papers.certificate, papers.key, handshakes=2, handshake_s=60), test)


def test_the_end_comes_to_handshakes_too(loops: Loops, papers: Papers) -> None:
    async def test(place: Place) -> None:
        with closing(place.raw()) as silent, closing(place.raw()) as half:
            half.send(HELLO)
            await until(lambda: len(place.listener._under_way) == 1 and len(place.listener._arrivals) == 2)
            place.listener.close()
            await ended(silent)
            await ended(half)
        await until(lambda: place.settled)
        place.listener.sockets.clear()

    play(loops, TlsSettings(papers.certificate, papers.key), test)


# ---- files
def test_new_files_count_for_new_connections_and_old_ones_go_on(
    loops: Loops, authority: Authority, tmp_path: Path
) -> None:
    first, second = authority.issue("first"), authority.issue("second")
    link = tmp_path / "mounted.pem"
    link.symlink_to(first.store)

    async def test(place: Place) -> None:
        context = trusting(first)

        async def name() -> tuple[str, tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
            streams = await place.connect(context)
            certificate = streams[1].get_extra_info("peercert")
            names = {key: value for part in certificate["subject"] for key, value in part}
            return names["commonName"], streams

        called, early = await name()
        assert called == "first"
        other = tmp_path / "other.pem"
        other.symlink_to(second.store)
        os.replace(other, link)  # so secrets are mounted
        place.certificates.look()
        called, late = await name()
        assert called == "second"
        assert place.desk.metrics.value("tls_reloads", "done") == 1
        await exchange(early, 1)
        await exchange(late, 1)
        place.certificates.look()
        assert place.desk.metrics.value("tls_reloads", "done") == 1, "nothing has changed since"

        link.unlink()
        link.write_bytes(second.certificate.read_bytes())  # its key is not there yet
        for _ in range(2):
            place.certificates.look()
        assert place.desk.metrics.value("tls_reloads", "failed") == 1
        assert "the former ones go on" in place.desk.lines.events("error")[0]
        called, late = await name()
        assert called == "second"
        link.write_bytes(first.store.read_bytes())
        place.certificates.look()
        assert (await name())[0] == "first"

    play(loops, TlsSettings(link), test)


def test_files_are_looked_at_now_and_then(authority: Authority, tmp_path: Path) -> None:
    path = tmp_path / "both.pem"
    path.write_bytes(authority.issue("first").store.read_bytes())

    async def test(place: Place) -> None:
        watch = asyncio.get_running_loop().create_task(place.certificates.watch())
        before = place.certificates.context
        path.write_bytes(authority.issue("second").store.read_bytes())
        await until(lambda: place.certificates.context is not before)
        watch.cancel()

    play(asyncio.new_event_loop, TlsSettings(path, reload_s=0.01), test)


def test_what_is_wrong_with_the_files_is_said(papers: Papers, authority: Authority, tmp_path: Path) -> None:
    other = authority.issue("other")
    empty, secret = tmp_path / "empty.pem", tmp_path / "secret"
    empty.write_text("")
    key = serialization.load_pem_private_key(papers.key.read_bytes(), None)
    how = serialization.BestAvailableEncryption(b"open sesame")
    locked = tmp_path / "locked.key"
    locked.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how))
    good = TlsSettings(papers.certificate, papers.key)
    missing = tmp_path / "missing.pem"
    wrong = partial(replace, good)
    for settings, words in (
        (wrong(certificate=missing), "tls.certificate .*missing.pem: No such file"),
        (wrong(key=missing), "tls.key .*missing.pem: No such file"),
        (wrong(key=other.key), "not that of the first certificate"),
        (wrong(key=None), "no certificate and key in PEM form"),
        (wrong(certificate=empty), "no certificate and key in PEM form"),
        (wrong(key=locked), "is encrypted: set tls.key_password_file"),
        (wrong(key=locked, password_file=missing), "tls.key_password_file .*missing.pem: No such file"),
        (wrong(clients_from=missing), "tls.ca .*missing.pem: No such file"),
        (wrong(clients_from=empty), "tls.ca .*: no certificates in PEM form"),
        (wrong(ciphers="NONSENSE"), "tls.ciphers 'NONSENSE'"),
    ):
        with pytest.raises(TlsError, match=words):
            read_context(settings)
    secret.write_text("sesame\n")
    with pytest.raises(TlsError, match="does not open the key") as told:
        read_context(wrong(key=locked, password_file=secret))
    assert "sesame" not in str(told.value)
    secret.write_text("open sesame\n")
    read_context(wrong(key=locked, password_file=secret))


def test_the_end_of_a_certificate_is_told_and_warned_of(papers: Papers, monkeypatch: pytest.MonkeyPatch) -> None:
    async def whole() -> None:
        desk = Desk()
        Certificates(TlsSettings(papers.certificate, papers.key), desk.metrics, desk.lines)
        ends = desk.metrics.value("tls_expiry")
        assert ends > 1_700_000_000 and not desk.lines.events("warning")
        for at, level, words in (
            (ends - 86_400, "warning", "certificate expires soon"),
            (ends + 1, "error", "certificate has expired"),
        ):
            monkeypatch.setattr("sidecar.front.certificates.time.time", lambda at=at: at)
            Certificates(TlsSettings(papers.certificate, papers.key), desk.metrics, desk.lines)
            assert desk.lines.events(level)[-1].startswith(words)

    asyncio.run(whole())
