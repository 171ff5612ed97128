"""A client's connection lives as long as at a broker, though the link behind it is idle, as its heartbeats are
answered here (F2 of reviews/bugs.md: with `connections.max.idle.ms` of 8 s librdkafka lost its coordinator in turn)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sidecar.core.consumer.events import HeartbeatReply
from sidecar.front.links import AT_ONCE
from sidecar.link.messages import Grant
from sidecar.wire.apis import Api
from tests.inprocess import clock
from tests.inprocess.embedded_front import EmbeddedFront
from tests.inprocess.embedded_sidecar import EmbeddedClient, turns, until
from tests.inprocess.messages import beat, join, metadata

LIMIT_S = 8.0
STEP_S = 0.1


class Idle(EmbeddedFront):
    """The broker ends links that are idle for so long."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.links: list[tuple[EmbeddedClient, int, float]] = []
        """With how many bytes it has carried, and since when."""

    async def member(self) -> EmbeddedClient:
        """Returns a client that has joined and has asked the broker for topics."""
        client = await self.client()
        client.post(join("g", "m1"), 1)
        self.reply(await self.request(), HeartbeatReply(member_id="m1", member_epoch=2, assignment={}))
        await client.recv()
        await client.ask(metadata("orders"), 12)
        self.links.append((client, 0, 0.0))
        return client

    async def heartbeat(self, client: EmbeddedClient, grant: bool = False) -> None:
        client.post(beat("g", "m1", 2), 1)
        await turns()
        if not client.waiting:  # else the front has answered it
            answer = HeartbeatReply(member_id="m1", member_epoch=2)
            self.reply(await self.request(), answer, Grant("g", "m1", 1, 1 << 60) if grant else None)
        await client.recv()

    async def live(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        until_s = loop.time() + seconds
        while loop.time() < until_s:
            await asyncio.sleep(STEP_S)
            for i, (client, carried, since_s) in enumerate(self.links):
                reached = client.session.reached
                assert reached is not None
                if len(reached.transport.written) != carried:
                    self.links[i] = (client, len(reached.transport.written), loop.time())
                elif loop.time() - since_s > LIMIT_S:
                    reached.transport.lose()

    def kept(self) -> int:
        return sum(a.api == Api.API_VERSIONS for a in self.brokers.asked)


def run(test: Callable[[Idle], Coroutine[Any, Any, None]], shown: bool = True, **given: Any) -> None:
    async def main() -> None:
        embedded = Idle(**given)
        embedded.show(idle_ms=int(LIMIT_S * 1000) if shown else -1)
        await test(embedded)
        await turns()

    clock.run(main())


@pytest.mark.parametrize("steady", [False, True], ids=["answered by the coordinator", "answered by the front"])
@pytest.mark.parametrize("interval_s", [1.0, 3.0, 5.0])
def test_heartbeats_keep_a_connection_open(interval_s: float, steady: bool) -> None:
    async def test(embedded: Idle) -> None:
        client = await embedded.member()
        await embedded.heartbeat(client, grant=steady)
        for _ in range(int(60 / interval_s)):
            await embedded.live(interval_s)
            await embedded.heartbeat(client, grant=steady)
        assert not client.closed and (embedded.metrics.value("steady") > 0) == steady
        assert 0 < embedded.kept() <= 60 / (0.3 * LIMIT_S)
        assert embedded.metrics.value("links_kept") == embedded.kept()
        assert client.waiting == 0, "nobody hears the answers"
        client.post(metadata("orders"), 12)
        await client.recv()

    run(test)


def test_a_client_that_is_silent_itself_is_ended_as_by_a_broker() -> None:
    async def test(embedded: Idle) -> None:
        client = await embedded.member()
        await embedded.heartbeat(client)
        await embedded.live(1.5 * LIMIT_S)
        assert client.closed and embedded.kept() == 1
        never = await embedded.member()
        await embedded.live(LIMIT_S + 1)
        assert never.closed and embedded.kept() == 1, "a client that asks for nothing costs the broker nothing"

    run(test)


def test_a_broker_that_ends_no_links_is_asked_nothing() -> None:
    async def test(embedded: Idle) -> None:
        client = await embedded.member()
        embedded.links.clear()
        for _ in range(20):
            await embedded.live(5.0)
            await embedded.heartbeat(client)
        assert embedded.kept() == 0 and not client.closed

    run(test, shown=False)


def test_a_request_of_which_a_part_has_passed_is_left_alone() -> None:
    async def test(embedded: Idle) -> None:
        client = await embedded.member()
        session = client.session
        session.conn.requests += 1
        session.upstream.looks = 9
        session.conn._client_pass = 1
        await embedded.live(LIMIT_S / 2)
        assert embedded.kept() == 0
        session.conn._client_pass = 0
        await embedded.live(1.0)
        assert embedded.kept() == 1

    run(test)


def test_many_links_are_not_used_at_once() -> None:
    async def test(embedded: Idle) -> None:
        clients = [await embedded.client() for _ in range(AT_ONCE + 1)]
        for client in clients:
            await client.ask(metadata("orders"), 12)
            client.session.conn.requests += 1
            client.session.upstream.looks = 9
        embedded.front.server.links._look_at_all()
        await turns()
        assert embedded.kept() == AT_ONCE
        await until(lambda: embedded.kept() == AT_ONCE + 1)

    run(test)
