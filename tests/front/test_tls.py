"""The listener that ends TLS: sessions, and who gets in."""

from __future__ import annotations

import asyncio
import ssl
import weakref
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest

from sidecar.front.certificates import TlsSettings
from sidecar.front.settings import DoorSettings
from sidecar.wire.frames import Limits, request_frame
from tests.front.reception import passed
from tests.front.tls import OLD, Loops, TlsBench, blocking, ended, exchange, play, refusal, trusting
from tests.harness.collector import no_collector
from tests.inprocess.embedded_sidecar import until
from tests.security.ground import Authority, Papers


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_session_behind_tls(loops: Loops, papers: Papers, version: ssl.TLSVersion) -> None:
    async def test(place: TlsBench) -> None:
        context = trusting(papers)
        context.minimum_version = context.maximum_version = version
        streams = await place.connect(context)
        for n in range(1, 4):
            await exchange(streams, n)
        (session,) = place.embedded.front.server.sessions
        assert session.facts.host == "127.0.0.1" and place.count("done") == 1 and place.settled
        kept = weakref.ref(session)
        del session
        streams[1].close()
        await until(lambda: not place.embedded.front.server.sessions)
        assert place.embedded.metrics.value("closed", "client_closed") == 1
        await until(lambda: kept() is None)

    with no_collector():
        play(loops, TlsSettings(papers.certificate, papers.key), test)


def test_both_legs_may_be_tls(loops: Loops, papers: Papers, authority: Authority) -> None:
    async def test(place: TlsBench) -> None:
        streams = await place.connect(trusting(papers))
        await exchange(streams, 1)
        streams[1].write(passed(2) + passed(3))
        streams[1].close()
        await until(lambda: not place.embedded.front.server.sessions)

    broker = authority.issue("the-broker", "broker.example")
    behind = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    behind.load_cert_chain(broker.certificate, broker.key)
    given = {"upstream_tls": lambda: trusting(papers), "upstream_host": "broker.example"}
    play(loops, TlsSettings(papers.certificate, papers.key), test, behind, **given)


def test_a_broker_whose_certificate_is_not_its_own_is_no_broker(
    loops: Loops, papers: Papers, authority: Authority
) -> None:
    async def test(place: TlsBench) -> None:
        reader, writer = await place.connect(trusting(papers))
        writer.write(passed(1))
        assert await asyncio.wait_for(reader.read(), 60) == b""
        assert place.seen == 0, "nothing of the client may get there"
        told = place.embedded.lines.fields("no TLS with the broker")
        assert "broker.example" in told["detail"]

    broker = authority.issue("another-broker", "other.example")
    behind = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    behind.load_cert_chain(broker.certificate, broker.key)
    given = {"upstream_tls": lambda: trusting(papers), "upstream_host": "broker.example"}
    play(loops, TlsSettings(papers.certificate, papers.key), test, behind, **given)


def test_a_client_that_does_not_read_is_not_read(loops: Loops, papers: Papers) -> None:
    """Back-pressure through TLS: what the client does not take is not asked of the broker for ever."""

    async def test(place: TlsBench) -> None:
        place.answer = b"x" * 100_000
        reader, writer = await place.connect(trusting(papers))
        transport = cast(asyncio.Transport, writer.transport)
        transport.pause_reading()
        wanted = 400
        for n in range(wanted):
            writer.write(passed(n))
        await until(lambda: place.embedded.front.server.pauses["unread"])
        assert place.seen < wanted, "it had to stop"
        transport.resume_reading()
        for n in range(wanted):
            frame = await asyncio.wait_for(reader.readexactly(100_008), 60)
            assert int.from_bytes(frame[4:8], "big") == n
        writer.close()

    play(loops, TlsSettings(papers.certificate, papers.key), test, limits=Limits(in_flight=400))


def test_a_session_that_is_closed_says_so_and_one_that_is_aborted_goes(loops: Loops, papers: Papers) -> None:
    async def test(place: TlsBench) -> None:
        reader, writer = await place.connect(trusting(papers))
        writer.write(request_frame(68, 9, 1, "c", True, b""))  # of a version that is not there
        assert await asyncio.wait_for(reader.read(), 60) == b""
        writer.close()
        streams = await place.connect(trusting(papers))
        await exchange(streams, 1)
        await until(lambda: len(place.embedded.front.server.sessions) == 1)
        next(iter(place.embedded.front.server.sessions)).abort("not_read")
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError, ssl.SSLError)):
            await asyncio.wait_for(streams[0].readexactly(1), 60)
        streams[1].close()

    play(loops, TlsSettings(papers.certificate, papers.key), test)


# ---- who gets in
def test_clients_need_a_certificate_if_they_are_asked_for_one(
    loops: Loops, papers: Papers, authority: Authority, tmp_path: Path
) -> None:
    async def test(place: TlsBench) -> None:
        await exchange(await place.connect(trusting(papers, authority.issue("client"))), 1)
        stranger = Authority(tmp_path, "strangers").issue("stranger")
        for own in (None, stranger):
            with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
                await exchange(await place.connect(trusting(papers, own)), 1)
        assert place.count("client_certificate") == 2 and place.count("done") == 1
        assert "TLS handshake failed" in place.embedded.lines.events("warning")

    play(loops, TlsSettings(papers.certificate, papers.key, clients_from=authority.pem), test)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_is_told_why_its_handshake_failed(
    loops: Loops, papers: Papers, authority: Authority, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    """By an alert of TLS. Without it the connection just closes, as if the sidecar had ended."""

    async def test(place: TlsBench) -> None:
        async def alert(own: Papers | None, last: ssl.TLSVersion) -> str:
            context = trusting(papers, own)
            context.maximum_version = last
            return await asyncio.to_thread(refusal, place.port, context)

        newest = version is ssl.TLSVersion.TLSv1_3
        none = "TLSV13_ALERT_CERTIFICATE_REQUIRED" if newest else "SSLV3_ALERT_HANDSHAKE_FAILURE"
        assert await alert(None, version) == none
        stranger = Authority(tmp_path, "strangers").issue("stranger")
        assert await alert(stranger, version) == "TLSV1_ALERT_UNKNOWN_CA"
        if newest:
            assert await alert(None, ssl.TLSVersion.TLSv1_2) == "TLSV1_ALERT_PROTOCOL_VERSION"
        await until(lambda: place.count("client_certificate") == 2 and place.settled)

    settings = TlsSettings(papers.certificate, papers.key, clients_from=authority.pem, min_version=version)
    play(loops, settings, test)


def test_what_does_not_come_about_is_counted_by_cause(loops: Loops, papers: Papers, tmp_path: Path) -> None:
    async def test(place: TlsBench) -> None:
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

    async def test(place: TlsBench) -> None:
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
    async def test(place: TlsBench) -> None:
        for first in (passed(1), b"GET / HTTP/1.1\r\n", b"\x15\x03"):
            with closing(place.raw()) as sock:
                sock.send(first)
                assert await ended(sock) == b""
        assert place.count("not_tls") == 3
        assert "security.protocol" in place.embedded.lines.fields("TLS handshake failed")["detail"]
        assert place.embedded.lines.events("warning").count("TLS handshake failed") == 1, "the others were not logged"

    play(loops, TlsSettings(papers.certificate, papers.key), test)


def test_a_look_whether_the_port_is_there_is_nothing_to_log(loops: Loops, papers: Papers) -> None:
    async def test(place: TlsBench) -> None:
        place.raw().close()
        await until(lambda: place.count("closed") == 1)
        assert place.settled and not place.embedded.lines.events("warning")

    play(loops, TlsSettings(papers.certificate, papers.key), test)


def test_limits_of_connections_hold_before_a_handshake(loops: Loops, papers: Papers) -> None:
    async def test(place: TlsBench) -> None:
        silent = [place.raw() for _ in range(2)]
        await until(lambda: len(place.listener._arrivals) == 2)
        with closing(place.raw()) as third:
            assert await ended(third) == b""
        assert place.count("too_many_from_address") == 1 and place.count("done") == 0
        silent.pop().close()
        await until(lambda: len(place.listener._arrivals) == 1)
        streams = await place.connect(trusting(papers))
        await exchange(streams, 1)
        assert place.embedded.metrics.value("closed", "too_many_from_address") == 0
        with closing(place.raw()) as third:
            assert await ended(third) == b""
        streams[1].close()
        silent.pop().close()
        await until(lambda: place.settled and not place.embedded.front.server.sessions)
        await exchange(await place.connect(trusting(papers)), 1)

    play(loops, TlsSettings(papers.certificate, papers.key), test, door=DoorSettings(per_ip_max=2))


def test_who_comes_too_early_waits_before_the_handshake(loops: Loops, papers: Papers) -> None:
    async def test(place: TlsBench) -> None:
        context, since = trusting(papers), asyncio.get_running_loop().time()
        for n in range(7):
            await exchange(await place.connect(context), n)
        assert asyncio.get_running_loop().time() - since > 0.3
        assert place.embedded.front.server.pauses["rate"] == 0

    play(loops, TlsSettings(papers.certificate, papers.key), test, door=DoorSettings(rate=5))
