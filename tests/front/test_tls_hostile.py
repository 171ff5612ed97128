"""The listener that ends TLS: what handshakes may cost that do not come about."""

from __future__ import annotations

import asyncio
from contextlib import closing

import pytest

from sidecar.front import tls
from sidecar.front.certificates import TlsSettings
from tests.front.tls import HELLO, Loops, TlsBench, ended, exchange, play, trusting
from tests.inprocess.embedded_sidecar import until
from tests.security.ground import Papers


def test_silence_and_half_a_handshake_end_in_time(loops: Loops, papers: Papers) -> None:
    async def test(place: TlsBench) -> None:
        with closing(place.raw()) as silent, closing(place.raw()) as half:
            half.send(HELLO)
            await ended(silent)
            await ended(half)
        await until(lambda: place.settled)
        assert place.count("timeout") == 2

    play(loops, TlsSettings(papers.certificate, papers.key, handshake_s=0.3), test)


@pytest.mark.tier("test")
def test_a_thousand_half_handshakes_keep_nobody_out(
    loops: Loops, papers: Papers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls, "CROWDED_S", 0.05)  # for each hundred of them

    async def test(place: TlsBench) -> None:
        attack = []
        for _ in range(1_000):
            sock = place.raw()
            sock.send(HELLO)
            attack.append(sock)
            if len(attack) % 50 == 0:
                await asyncio.sleep(0)
        assert len(place.listener._under_way) <= 100
        await exchange(await place.connect(trusting(papers)), 1)  # long before the first of them is out of time
        assert place.count("crowded_out") > 0
        assert place.embedded.metrics.value("tls_under_way") <= 100
        for sock in attack:
            sock.close()
        await until(lambda: place.settled)

    play(loops, TlsSettings(papers.certificate, papers.key, handshakes=100, handshake_s=3_600), test)


def test_a_thousand_silent_connections_cost_no_handshake(loops: Loops, papers: Papers) -> None:
    async def test(place: TlsBench) -> None:
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

    play(loops, TlsSettings(papers.certificate, papers.key, handshakes=2, handshake_s=3_600), test)


def test_the_end_comes_to_handshakes_too(loops: Loops, papers: Papers) -> None:
    async def test(place: TlsBench) -> None:
        with closing(place.raw()) as silent, closing(place.raw()) as half:
            half.send(HELLO)
            await until(lambda: len(place.listener._under_way) == 1)
            assert len(place.listener._arrivals) == 2, "who says nothing takes no place"
            place.listener.close()
            await ended(silent)
            await ended(half)
        await until(lambda: place.settled)
        place.listener.sockets.clear()

    play(loops, TlsSettings(papers.certificate, papers.key), test)
