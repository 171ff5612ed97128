"""Strings that are no UTF-8: Kafka replaces their malformed bytes, and so do the sidecars."""

from __future__ import annotations

from typing import Any

import pytest

from sidecar.core.consumer.events import HeartbeatReply
from sidecar.link.messages import Request
from sidecar.wire.apis import SERVED, Api
from sidecar.wire.frames import PREFIX
from sidecar.wire.generated import consumer_group_heartbeat as ch
from tests.inprocess import clock
from tests.inprocess.embedded_front import EmbeddedFront
from tests.inprocess.embedded_sidecar import turns
from tests.inprocess.messages import join, smallest, to_frame

BAD = {
    "client id": (b"app", b"\xfcpp"),
    "group": (b"mine", b"\xfcine"),
    "the broker's group": (b"theirs", b"\xfcheirs"),
}


async def outcome(embedded: EmbeddedFront, frame: bytes) -> tuple[bool, list[Any], list[Any]]:
    """Returns whether the connection is closed; API, version, and whether it is the client's own, of each request that
    the broker gets; and what the coordinator gets."""
    client = await embedded.client()
    client.session.conn.served = SERVED
    sent: list[bytes] = []
    client.session.upstream.send = sent.append  # type: ignore[method-assign,assignment]
    before = len(embedded.of(Request))
    client.send(frame)
    await turns()
    events = [type(r.event) for r in embedded.of(Request)[before:]]
    return client.closed, [(*PREFIX.unpack_from(s)[1:3], s == frame) for s in sent], events


@pytest.mark.parametrize("place", BAD)
def test_they_change_nothing_else(place: str) -> None:
    """Symptom: a client whose id is "für" in Latin-1 lost its connection with each request about a group, whosever the
    group was. What passes keeps its bytes."""

    async def main() -> None:
        embedded = EmbeddedFront(
            managed=lambda group_id: not group_id.endswith("heirs"), share=True, streams=True, steady_replies=0
        )
        embedded.show(authorizer=False)
        good, bad = BAD[place]
        for api in sorted(SERVED):
            frame = smallest(Api(api), "theirs" if place == "the broker's group" else "mine")
            expected = await outcome(embedded, frame)
            assert not expected[0] and (expected[1] or expected[2]), Api(api).name
            assert await outcome(embedded, frame.replace(good, bad)) == expected, Api(api).name

    clock.run(main())


def test_the_coordinator_gets_what_a_broker_would() -> None:
    async def main() -> None:
        embedded = EmbeddedFront()
        embedded.show(authorizer=False)
        client = await embedded.client()
        client.send(
            to_frame(join("mine", "m1", ["t-one"]), 1, 1).replace(b"app", b"\xfcpp").replace(b"t-one", b"t-\xc3ne")
        )
        request = await embedded.request()
        event: Any = request.event
        assert (event.client_id, event.topic_names) == ("\ufffdpp", ("t-\ufffdne",))
        embedded.reply(request, HeartbeatReply(member_id="m1", member_epoch=1))
        assert ch.ConsumerGroupHeartbeatResponse.decode(1, await client.recv(), 9).member_epoch == 1

    clock.run(main())
