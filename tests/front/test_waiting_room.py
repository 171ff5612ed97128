"""Requests for groups whose owner may be gone wait until that is known (L6 of the safety review)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from sidecar.core.vocabulary.errors import Code
from sidecar.front import coordinator_channel as module
from sidecar.link.messages import GroupRules, Request, View
from sidecar.wire.apis import Api
from sidecar.wire.generated import find_coordinator as fc
from tests.front.test_front import run
from tests.inprocess.embedded_front import EmbeddedFront
from tests.inprocess.embedded_sidecar import EmbeddedClient, turns, until
from tests.inprocess.messages import join, metadata

BROKERS = {1: ("b1", 9), 2: ("b2", 9)}
OLD = View(owners=(2,), leaders=(1,), brokers=BROKERS)
IN_DOUBT = View(owners=(2,), leaders=(1,), brokers=BROKERS, suspects=(2,))
NEW = View(owners=(1,), leaders=(1,), brokers=BROKERS)
ASK = fc.FindCoordinatorRequest("g", 0, ["g"])


@pytest.mark.parametrize("then", [NEW, OLD], ids=["another", "the same"])
def test_find_coordinator_waits_for_the_word_who_it_is(then: View) -> None:
    """Symptom: clients of an owner that had just died were led to it again, and backed off."""

    async def test(embedded: EmbeddedFront) -> None:
        embedded.show()
        embedded.front.from_coordinator(IN_DOUBT)
        client = await embedded.client()
        client.post(ASK, 4)
        await asyncio.sleep(0.02)
        assert client.waiting == 0
        embedded.front.from_coordinator(then)
        assert (await client.answer(ASK, 4)).coordinators[0].node_id == then.owners[0]

    run(test)


def test_it_does_not_wait_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SETTLE_MS", 20)

    async def test(embedded: EmbeddedFront) -> None:
        embedded.show()
        embedded.front.from_coordinator(IN_DOUBT)
        found = (await (await embedded.client()).ask(ASK, 4)).coordinators[0]
        assert (found.error_code, found.node_id) == (Code.NONE, 2), "as far as is known"

    run(test)


def test_the_heir_lets_requests_wait_until_it_knows_that_it_is_the_heir() -> None:
    async def test(embedded: EmbeddedFront) -> None:
        embedded.show()
        embedded.front.from_coordinator(IN_DOUBT)
        client = await embedded.client()
        client.post(join("g", "m1"), 1)
        await asyncio.sleep(0.02)
        assert not [m for m in embedded.sent if getattr(m, "event", None) is not None], (
            "the coordinator is not asked yet"
        )
        embedded.front.from_coordinator(NEW)
        assert (await embedded.request()).event.group_id == "g"

    run(test)


def test_a_client_that_has_gone_is_not_waited_for() -> None:
    async def test(embedded: EmbeddedFront) -> None:
        embedded.show()
        embedded.front.from_coordinator(IN_DOUBT)
        client = await embedded.client()
        client.post(ASK, 4)
        await asyncio.sleep(0.02)
        assert len(embedded.front.channel.settling) == 1
        client.close()
        await turns()
        embedded.front.from_coordinator(NEW)
        assert len(embedded.front.channel.settling) == 0

    run(test)


WAITS: dict[str, dict[str, Any] | None] = {
    "for the broker": {"authorizer": True},
    "for the owner": {"owners": (2,), "suspects": (2,)},
    "for the coordinator": None,
}
ENDS: dict[str, Callable[[EmbeddedClient], None]] = {
    "sends no more": lambda client: client.transport.feed_eof(),
    "resets": lambda client: client.transport.lose(ConnectionResetError()),
    "is closed with the broker's connection": lambda client: (
        client.session.reached.transport.lose() if client.session.reached else None
    ),
}


@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("waits", WAITS)
def test_the_join_of_a_client_that_has_gone_meanwhile_is_not_handled(waits: str, ends: str) -> None:
    """Symptom (KAFKA-20985): a static member gave its first JoinGroup up and sent another over a new connection. The
    first one, held up here, came behind it and took its place: the second one was fenced, which ends the client."""

    async def test(embedded: EmbeddedFront) -> None:
        view = WAITS[waits]
        if view is None:
            embedded.front.from_coordinator(GroupRules())
        else:
            embedded.show(**view)
        client = await embedded.client()
        await client.ask(metadata(), 9)
        right = embedded.brokers.faults.hang(Api.HEARTBEAT, times=waits == "for the broker")
        client.post(join("g", "m1"), 1)
        await turns(5)
        ENDS[ends](client)
        await turns()
        embedded.show()
        right.release()
        await until(lambda: client.closed)
        await turns()
        assert not embedded.of(Request) and not embedded.front.channel.under_way

    run(test)
