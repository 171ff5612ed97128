"""A handler may start a request at the broker and wait for nothing: internal topics of streams groups."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sidecar.api.access import lets_in
from sidecar.api.call import Call, Handler, Start
from sidecar.api.handlers import HANDLERS
from sidecar.core.runtime.events import Event
from sidecar.core.streams.events import StreamsHeartbeat, StreamsHeartbeatReply, TopicsCreated
from sidecar.core.streams.internal_topics import NewTopic
from sidecar.front import dispatcher as module
from sidecar.link.messages import Request
from sidecar.wire.apis import Api
from sidecar.wire.generated import metadata as md
from sidecar.wire.generated import streams_group_heartbeat as st
from sidecar.wire.primitives import WireError
from tests.inprocess import clock
from tests.inprocess.embedded_front import EmbeddedFront
from tests.inprocess.embedded_sidecar import turns, until

BODY = 9
"""The offset of a response's body behind a header that has tagged fields."""
BEAT = st.StreamsGroupHeartbeatRequest("g", "m", 3)
ASKED = StreamsHeartbeatReply(member_id="m", member_epoch=3, create=(NewTopic("app-r", 2, 1), NewTopic("app-c", 2, 1)))
LOST = TopicsCreated("g", "m", (("app-r", 7, None), ("app-c", 7, None)))


def run(test: Callable[[EmbeddedFront], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        embedded = EmbeddedFront(streams=True)
        embedded.show()
        await test(embedded)
        await turns()
        if embedded.tasks.failed.done():
            embedded.tasks.failed.result()

    clock.run(main())


def events_of(embedded: EmbeddedFront) -> list[Any]:
    return [m.event for m in embedded.of(Request) if not isinstance(m.event, StreamsHeartbeat)]


def test_the_client_has_its_answer_while_the_broker_creates_topics() -> None:
    async def test(embedded: EmbeddedFront) -> None:
        hung = embedded.brokers.faults.hang(Api.CREATE_TOPICS)
        client = await embedded.client()
        client.post(BEAT, 1)
        embedded.reply(await embedded.request(), ASKED)
        assert (await client.answer(BEAT, 1)).member_epoch == 3
        await until(lambda: hung.met)
        assert events_of(embedded) == []
        hung.release()
        await until(lambda: events_of(embedded))
        assert events_of(embedded) == [TopicsCreated("g", "m", (("app-r", 0, ""), ("app-c", 0, "")))]
        (created,) = [a for a in embedded.brokers.asked if a.api is Api.CREATE_TOPICS]
        assert [t.name for t in created.request.topics] == ["app-r", "app-c"]
        client.post(BEAT, 1)
        again = await embedded.request()
        assert isinstance(again.event, TopicsCreated)
        embedded.reply(again, again.event.answer())
        embedded.reply(await embedded.request(), StreamsHeartbeatReply(member_id="m", member_epoch=4))
        assert (await client.answer(BEAT, 1)).member_epoch == 4

    run(test)


def test_what_the_client_has_sent_behind_it_has_its_own_answer() -> None:
    async def test(embedded: EmbeddedFront) -> None:
        client = await embedded.client()
        client.post(BEAT, 1)
        client.post(md.MetadataRequest(), 9)
        embedded.reply(await embedded.request(), ASKED)
        assert st.StreamsGroupHeartbeatResponse.decode(1, await client.recv(), BODY).member_epoch == 3
        assert (await client.answer(md.MetadataRequest(), 9)).brokers
        assert [a.api for a in embedded.brokers.asked][-2:] == [Api.CREATE_TOPICS, Api.METADATA]

    run(test)


def test_if_the_client_goes_meanwhile_nobody_knows_what_became_of_the_topics() -> None:
    async def test(embedded: EmbeddedFront) -> None:
        hung = embedded.brokers.faults.hang(Api.CREATE_TOPICS)
        client = await embedded.client()
        client.post(BEAT, 1)
        embedded.reply(await embedded.request(), ASKED)
        await client.answer(BEAT, 1)
        await until(lambda: hung.met)
        client.close()
        await until(lambda: events_of(embedded))
        assert events_of(embedded) == [LOST]

    run(test)


def test_if_the_client_is_gone_before_its_answer_nobody_creates_the_topics() -> None:
    """Symptom: for a minute no member was asked to create them, and none got a task."""

    async def test(embedded: EmbeddedFront) -> None:
        client = await embedded.client()
        client.post(BEAT, 1)
        asked = await embedded.request()
        client.close()
        await turns()
        embedded.reply(asked, ASKED)
        await until(lambda: events_of(embedded))
        assert events_of(embedded) == [LOST]
        assert not [a for a in embedded.brokers.asked if a.api is Api.CREATE_TOPICS]

    run(test)


def test_an_answer_that_cannot_be_read_closes_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(frame: bytes | None) -> Event:
        if frame is not None:
            raise WireError("nonsense")
        return LOST

    def starts(call: Call) -> Handler:
        yield Start(lets_in(call.correlation_id), unreadable)
        return st.StreamsGroupHeartbeatResponse().encode(call.version)

    monkeypatch.setattr(module, "HANDLERS", {**HANDLERS, Api.STREAMS_GROUP_HEARTBEAT: starts})

    async def test(embedded: EmbeddedFront) -> None:
        client = await embedded.client()
        client.post(BEAT, 1)
        await until(lambda: client.closed)
        assert events_of(embedded) == [LOST]

    run(test)
