"""Clients whose broker is silent are answered from memory or closed, on old connections and new.

Symptom: at the sidecar of a suspended broker every request hung until its client gave up, also what the sidecar could
answer, and a member whose owner was well was removed, since it waited there for the address of its coordinator.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sidecar.core.consumer.events import HeartbeatReply
from sidecar.core.runtime.offset_checks import CheckReply
from sidecar.core.vocabulary.errors import Code
from sidecar.front.broker_watch import SILENT
from sidecar.link.messages import AccessAnswer, AskAccess, CommitEnded, Request
from sidecar.wire.apis import SERVED, Api
from sidecar.wire.frames import request_frame
from sidecar.wire.generated import api_versions as av
from sidecar.wire.generated import find_coordinator as fc
from tests.inprocess import clock
from tests.inprocess.embedded_front import EmbeddedFront
from tests.inprocess.embedded_sidecar import EmbeddedClient, turns, until
from tests.inprocess.messages import Message, beat, commit, join, metadata, smallest
from tests.inprocess.transport import Upstream

LIMIT_MS = 2_000
WITHIN_S = 3.0
FIND = fc.FindCoordinatorRequest("g", 0, ["g"])
VERSIONS = av.ApiVersionsRequest(client_software_name="app", client_software_version="1")


class Silence(EmbeddedFront):
    """A front whose probes reach the brokers in memory, as its clients do. `reached` False: connections to the broker
    are not even made."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**{"silence_ms": LIMIT_MS, **given})
        self.probes = 0
        self.reached = True
        self.front.server.watch.connect = self._probe

    async def _probe(self, factory: Callable[[], asyncio.Protocol]) -> None:
        self.probes += 1
        if 1 in self.brokers.down:
            raise ConnectionRefusedError(111, "refused")
        if not self.reached:
            await asyncio.Event().wait()
        Upstream(self.brokers, 1, factory())

    def problem(self) -> str:
        return self.front.server.watch.problem

    async def fall_silent(self) -> None:
        """Makes the broker silent, and waits until the front has noticed."""
        self.brokers.pause(1)
        client = await self.client()
        client.post(metadata("orders"), 9)
        await ends(client)
        assert self.problem()

    async def resume(self) -> None:
        self.brokers.resume(1)
        await until(lambda: not self.problem())


async def passes(seconds: float) -> None:
    await asyncio.sleep(seconds)


async def ends(client: EmbeddedClient, within_s: float = WITHIN_S) -> str:
    """Returns how the request ends: with an answer, or with a closed connection."""
    began_s = time.monotonic()
    await until(lambda: client.waiting or client.closed, 60)
    assert time.monotonic() - began_s <= within_s
    return "answered" if client.waiting else "closed"


def run(test: Callable[[Silence], Coroutine[Any, Any, None]], **given: Any) -> None:
    async def main() -> None:
        embedded = Silence(**given)
        embedded.show()
        await test(embedded)
        await turns()
        if embedded.tasks.failed.done():
            embedded.tasks.failed.result()

    clock.run(main())


@pytest.mark.parametrize("known", [True, False], ids=["old connection", "new connection"])
@pytest.mark.parametrize("api", sorted(SERVED))
def test_every_api_is_answered_or_closed_in_time(api: Api, known: bool) -> None:
    async def test(embedded: Silence) -> None:
        client = await embedded.client()
        if known:
            await client.ask(metadata("orders"), 9)
        embedded.brokers.pause(1)
        if not known:
            client = await embedded.client()
        client.send(smallest(Api(api), "g"))
        await turns()
        for request in embedded.of(Request):
            embedded.reply(request, request.event.refused(Code.NOT_COORDINATOR, ""))
        await ends(client)

    run(test)


# ---- what the sidecar knows
def test_api_versions_are_answered_as_they_were() -> None:
    async def test(embedded: Silence) -> None:
        before = await (await embedded.client()).ask(VERSIONS, 2)
        await embedded.fall_silent()
        client = await embedded.client()
        assert await client.ask(VERSIONS, 2) == before
        older = await client.ask(VERSIONS, 0)
        assert older.api_keys == before.api_keys, "in a version that nobody has asked in before"
        assert not client.closed and embedded.brokers.count(Api.API_VERSIONS) == 1

    run(test)


def test_what_was_asked_before_it_was_found_silent_is_answered_as_well() -> None:
    async def test(embedded: Silence) -> None:
        known = await embedded.client()
        assert (await known.ask(FIND, 4)).coordinators[0].node_id == 1
        embedded.brokers.pause(1)
        known.post(FIND, 4)
        assert await ends(known) == "answered"
        found = (await known.answer(FIND, 4)).coordinators[0]
        assert (found.error_code, found.key, found.node_id) == (Code.NONE, "g", 1)
        assert not known.closed

    run(test)


@pytest.mark.parametrize("version", sorted(range(SERVED[Api.FIND_COORDINATOR].low, SERVED[Api.FIND_COORDINATOR].high)))
def test_who_is_new_is_told_its_coordinator_where_nobody_has_to_authenticate(version: int) -> None:
    async def test(embedded: Silence) -> None:
        before = await (await embedded.client()).ask(FIND, version)
        await embedded.fall_silent()
        assert await (await embedded.client()).ask(FIND, version) == before

    run(test)


@pytest.mark.parametrize("name", ["theirs", "txn"])
def test_what_only_the_broker_knows_closes_the_connection(name: str) -> None:
    async def test(embedded: Silence) -> None:
        await (await embedded.client()).ask(FIND, 4)
        await embedded.fall_silent()
        client = await embedded.client()
        client.post(fc.FindCoordinatorRequest(name, int(name == "txn"), [name]), 4)
        assert await ends(client, 0.1) == "closed"
        assert embedded.metrics.value("closed", SILENT)

    run(test)


def test_nobody_is_told_of_groups_whose_rights_are_not_remembered() -> None:
    async def test(embedded: Silence) -> None:
        embedded.show(authorizer=True)
        member, other = await embedded.client(), await embedded.client()
        member.post(beat("g", "m1", 1), 1)
        embedded.reply(
            await embedded.request(), HeartbeatReply(member_id="m1", member_epoch=1, heartbeat_interval_ms=5_000)
        )
        await member.answer(beat("g", "m1", 1), 1)
        await embedded.fall_silent()
        other.post(FIND, 4)
        assert await ends(other, 0.1) == "closed"
        assert (await member.ask(FIND, 4)).coordinators[0].node_id == 1, "READ includes DESCRIBE"
        await passes(10)
        member.post(FIND, 4)
        assert await ends(member, 0.1) == "closed", "and is kept for so long only"

    run(test)


def test_who_has_begun_to_authenticate_is_not_let_in() -> None:
    async def test(embedded: Silence) -> None:
        await (await embedded.client()).ask(FIND, 4)
        await embedded.fall_silent()
        client = await embedded.client()
        client.session.conn.authenticates = True
        client.post(FIND, 4)
        assert await ends(client, 0.1) == "closed"

    run(test)


@pytest.mark.parametrize("there", [True, False], ids=["is there", "has gone"])
@pytest.mark.parametrize("message", [metadata("orders"), FIND, VERSIONS], ids=["passed", "handled", "before all"])
def test_who_has_been_let_in_without_authentication_shows_that_nobody_has_to(message: Message, there: bool) -> None:
    """Such a client's connection is as old as the broker's process, or younger: the broker has had no other settings
    since."""

    async def test(embedded: Silence) -> None:
        first = await embedded.client()
        await first.ask(message, 2)
        await passes(600)
        if not there:
            first.close()
        await embedded.fall_silent()
        client = await embedded.client()
        client.post(FIND, 4)
        assert await ends(client, 0.1) == ("answered" if there and message is not VERSIONS else "closed")

    run(test)


def test_members_with_rights_hear_from_their_coordinator() -> None:
    async def test(embedded: Silence) -> None:
        member = await embedded.client()
        for code in (Code.NONE, Code.NOT_COORDINATOR):
            member.post(beat("g", "m1", 1), 1)
            embedded.reply(await embedded.request(), HeartbeatReply(code))
            assert (await member.answer(beat("g", "m1", 1), 1)).error_code == code
            if not embedded.problem():
                await embedded.fall_silent()
        assert not member.closed

    run(test)


# ---- what it closes
def test_what_was_passed_on_closes_its_connection() -> None:
    async def test(embedded: Silence) -> None:
        client = await embedded.client()
        await client.ask(metadata("orders"), 9)
        embedded.brokers.pause(1)
        client.post(metadata("orders"), 9)
        assert await ends(client) == "closed"

    run(test)


def test_a_commit_that_the_broker_has_not_answered_is_in_doubt() -> None:
    async def test(embedded: Silence) -> None:
        client = await embedded.client()
        client.post(commit("g", "m1", 1, "orders", {0: 1}), 9)
        check = await embedded.request()
        embedded.brokers.pause(1)
        embedded.reply(check, CheckReply(ticket=7))
        assert await ends(client) == "closed"
        assert [m.sure for m in embedded.of(CommitEnded)] == [False]

    run(test)


def test_the_coordinator_learns_that_rights_are_not_known() -> None:
    async def test(embedded: Silence) -> None:
        embedded.show(authorizer=True)
        client = await embedded.client()
        client.post(join("g", "m1"), 1)
        request = await embedded.request()
        embedded.brokers.pause(1)
        embedded.front.from_coordinator(AskAccess(request.token, frozenset({"payments"})))
        await until(lambda: embedded.of(AccessAnswer), WITHIN_S)
        assert embedded.of(AccessAnswer)[0].hidden is None

    run(test)


def test_a_large_request_of_a_stranger_is_not_waited_for() -> None:
    async def test(embedded: Silence) -> None:
        embedded.brokers.pause(1)
        client = await embedded.client()
        client.send(request_frame(Api.HEARTBEAT, 0, 1, "c", False, b"\0" * 5_000))
        assert await ends(client) == "closed"

    run(test)


def test_thousands_are_closed_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    open_then: list[bool] = []

    async def test(embedded: Silence) -> None:
        clients = [await embedded.client(f"10.0.{i // 250}.{i % 250}") for i in range(1_000)]
        embedded.brokers.pause(1)
        for client in clients:
            client.post(metadata("orders"), 9)
        lost = clients[0].session.connection_lost

        def first_is_lost(exc: Exception | None) -> None:  # in the turn after the one that closes it
            open_then.append(not clients[-1].closed)
            lost(exc)

        monkeypatch.setattr(clients[0].session, "connection_lost", first_is_lost)
        await until(lambda: clients[-1].closed, 60)
        assert open_then == [True]
        assert all(client.closed for client in clients)

    run(test)


# ---- what goes on
def test_a_connection_that_needs_nothing_of_the_broker_stays() -> None:
    async def test(embedded: Silence) -> None:
        client = await embedded.client()
        await client.ask(metadata("orders"), 9)
        await embedded.fall_silent()
        assert not client.closed
        await embedded.resume()
        assert (await client.ask(metadata("orders"), 9)).cluster_id == "in-memory"

    run(test)


def test_an_answer_that_comes_after_all_is_dropped() -> None:
    async def test(embedded: Silence) -> None:
        client = await embedded.client()
        await client.ask(FIND, 4)
        embedded.brokers.pause(1)
        client.post(FIND, 4)
        await ends(client)
        await client.answer(FIND, 4)
        client.post(FIND, 4)
        await client.answer(FIND, 4)
        await embedded.resume()
        assert (await client.ask(metadata("orders"), 9)).cluster_id == "in-memory"
        assert not client.waiting and not client.closed

    run(test)


def test_a_long_poll_outlives_the_limit() -> None:
    async def test(embedded: Silence) -> None:
        poll = embedded.brokers.faults.hang(Api.METADATA)
        client = await embedded.client()
        client.post(metadata("orders"), 9)
        await passes(60)
        assert not client.closed and not embedded.problem() and 20 < embedded.probes < 70
        poll.release()
        assert (await client.answer(metadata("orders"), 9)).cluster_id == "in-memory"
        await passes(1)
        probes = embedded.probes
        await passes(60)
        assert embedded.probes == probes, "nothing is owed"

    run(test)


def test_a_broker_that_lets_nobody_in_is_silent_to_new_connections_only() -> None:
    async def test(embedded: Silence) -> None:
        old, new = await embedded.client(), await embedded.client()
        await old.ask(metadata("orders"), 9)
        embedded.reached = False
        hang = embedded.brokers.faults.hang(Api.API_VERSIONS)
        new.post(VERSIONS, 2)
        for _ in range(30):
            await passes(0.1)
            await old.ask(metadata("orders"), 9)
        assert new.closed and embedded.problem() and hang.met == 1
        assert (await old.ask(FIND, 4)).coordinators[0].node_id == 1

    run(test)


def test_a_dead_broker_is_none_that_is_silent() -> None:
    async def test(embedded: Silence) -> None:
        await embedded.fall_silent()
        embedded.brokers.stop(1)
        await until(lambda: not embedded.problem(), 15)

    run(test)


def test_begin_and_end_are_logged_once_and_counted() -> None:
    async def test(embedded: Silence) -> None:
        await embedded.fall_silent()
        assert embedded.metrics.value("broker_silent") == 1
        for _ in range(20):
            client = await embedded.client()
            client.post(metadata("orders"), 9)
            await ends(client, 0.1)
        await passes(60)
        assert embedded.probes < 10, "a broker that accepts nothing has a short queue"
        await embedded.resume()
        assert (embedded.metrics.value("broker_silent"), embedded.metrics.value("broker_silences")) == (0, 1)
        told = [line for line in embedded.lines.lines if "broker" in str(line)]
        assert len(told) == 2, told

    run(test)


def test_nothing_is_watched_where_that_is_switched_off() -> None:
    async def test(embedded: Silence) -> None:
        embedded.brokers.pause(1)
        client = await embedded.client()
        client.post(metadata("orders"), 9)
        await passes(60)
        assert not client.closed and not embedded.probes

    run(test, silence_ms=0)
