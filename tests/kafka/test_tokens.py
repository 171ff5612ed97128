"""Tokens for OAUTHBEARER: a slow or hanging server holds up nothing but the connections that need its token."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from sidecar.kafka.errors import SecurityError
from sidecar.kafka.net import BrokerConnection, NotAuthenticated, _token_at_hand
from sidecar.kafka.security import Security
from sidecar.kafka.tokens import FAILED_S, GIVE_UP_S, LIFE_S, Tokens, unsecured
from tests.inprocess import clock


class Server(Tokens):
    """A server of tokens that answers while `up` is set. Its clock is behind by `behind_s`."""

    def __init__(self, behind_s: float = 0.0, fails: bool = False) -> None:
        super().__init__("https://idp/token", "id", "secret")
        self.behind_s, self.fails = behind_s, fails
        self.up = threading.Event()
        self.up.set()
        self.threads: list[threading.Thread] = []
        """The thread of each fetch."""

    def _fetched(self, now_s: float) -> str:
        self.threads.append(threading.current_thread())
        self.up.wait(60)
        if self.fails:
            raise SecurityError("down")
        return unsecured("u", now_s - self.behind_s)


def secured(server: Server) -> Security:
    return Security("SASL_PLAINTEXT", "OAUTHBEARER", tokens=server)


@pytest.mark.parametrize("behind_s", [0.0, LIFE_S + 400])
def test_no_token_is_fetched_on_the_loop(behind_s: float) -> None:
    """Symptom: the loop stood still for 10 s. A token that was over, by the clock or as another connection had been
    refused, was fetched again when the connection was open."""
    server = Server(behind_s)

    async def test() -> None:
        token = await _token_at_hand(secured(server))
        server.forget()
        assert next(secured(server).exchange(token)) == f"n,,\x01auth=Bearer {token}\x01\x01".encode()
        assert len(server.threads) == 1
        await _token_at_hand(secured(server))

    asyncio.run(test())
    assert len(server.threads) == 2, "what was forgotten, or is over, is fetched again"
    assert threading.main_thread() not in server.threads


def test_a_hanging_server_is_asked_once_and_holds_up_nothing_else() -> None:
    """Symptom: 20 connections took all threads of the default executor, one after the other for 10 s each. The decoding
    of Metadata waited behind them, and so did the end of the process."""
    server = Server()
    server.up.clear()

    async def test() -> None:
        opens = [
            asyncio.create_task(BrokerConnection.open("127.0.0.1", 1, "c", security=secured(server))) for _ in range(20)
        ]
        await asyncio.sleep(0)
        await asyncio.to_thread(lambda: None)
        assert not any(attempt.done() for attempt in opens)
        opens.pop().cancel()
        errors = await asyncio.gather(*opens, return_exceptions=True)
        assert {str(e) for e in errors} == {"127.0.0.1:1: no token from https://idp/token: timed out"}
        assert {type(e) for e in errors} == {NotAuthenticated}
        assert len(server.threads) == 1

    clock.run(test())
    server.up.set()
    assert all(thread.daemon for thread in server.threads), "the end of the process does not wait"


def test_a_failed_fetch_counts_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(fails=True)
    now_s = 1_000.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    for asked in (1, 1, 2):
        with pytest.raises(SecurityError, match="down"):
            server.current()
        assert len(server.threads) == asked
        now_s += FAILED_S / 2


def test_an_endless_fetch_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    server.up.clear()
    now_s = 1_000.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    first = server.fetch()
    assert server.fetch() is first
    now_s += GIVE_UP_S
    second = server.fetch()
    server.up.set()
    assert second is not first and second.result(60) and server.fetch() is second


def test_a_token_that_lives_is_used_while_its_renewal_hangs_or_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: connections failed while the server of tokens was down, though the token at hand was good."""
    server, now = Server(LIFE_S - 100), time.time
    token = server.current()
    monkeypatch.setattr(time, "time", lambda: now() + 85)
    server.up.clear()
    assert server.current() == token and len(server.threads) == 2, "another one is on its way"
    server.fails = True
    server.up.set()
    server.threads[1].join(60)
    assert server.current() == token
    server.forget()
    with pytest.raises(SecurityError, match="down"):
        server.current()
