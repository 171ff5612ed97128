"""Heartbeats that a front answers itself: only under a grant, only while it lasts, and the coordinator hears of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sidecar.core.consumer.events import HeartbeatReply
from sidecar.core.vocabulary.errors import Code
from sidecar.front import coordinator_channel, dispatcher, front
from sidecar.front.steady import PAUSE_MS, Grants, touch_due
from sidecar.link.messages import TOUCH_MS, Grant, Lease, Request, TopicsPassed, Touch, Void
from sidecar.proxy.internal import Passing
from sidecar.wire.apis import Api
from tests.inprocess import clock
from tests.inprocess.embedded_front import EmbeddedFront
from tests.inprocess.embedded_sidecar import EmbeddedClient
from tests.inprocess.messages import beat, to_frame

SESSION_MS = 45_000


class Bench:
    """A member that has been answered once under a grant; time stands still until a test moves it."""

    def __init__(self, embedded: EmbeddedFront, client: EmbeddedClient) -> None:
        self.embedded = embedded
        self.client = client
        self.now_ms = 1_000_000
        self.replies = 0

    async def beat(self, member: str = "m1", epoch: int = 5, version: int = 1) -> bool:
        """One heartbeat; returns whether the front answered it by itself."""
        message = beat("g", member, epoch)
        before = len(self.embedded.of(Request))
        self.client.post(message, version)
        while not self.client.waiting and len(self.embedded.of(Request)) == before:
            await asyncio.sleep(0)
        alone = len(self.embedded.of(Request)) == before
        if not alone:
            self.answer(await self.embedded.request())
        reply = await self.client.answer(message, version)
        assert (reply.error_code, reply.member_id, reply.member_epoch) == (Code.NONE, member, epoch)
        return alone

    def answer(self, request: Request) -> None:
        """As the coordinator answers a steady member: with a grant until its session would end."""
        event: Any = request.event
        self.replies += 1
        grant = Grant("g", event.member_id, self.replies, self.now_ms + SESSION_MS)
        reply = HeartbeatReply(member_id=event.member_id, member_epoch=event.member_epoch, heartbeat_interval_ms=5_000)
        self.embedded.reply(request, reply, grant)


def run(test: Callable[[Bench], Coroutine[Any, Any, None]], monkeypatch: pytest.MonkeyPatch, **given: Any) -> None:
    async def main() -> None:
        holder: list[Bench] = []
        for module in (coordinator_channel, dispatcher, front):
            monkeypatch.setattr(module, "now_ms", lambda: holder[0].now_ms if holder else 1_000_000)
        embedded = EmbeddedFront(**{"access_keep_ms": 1 << 40, **given})
        embedded.show()
        bench = Bench(embedded, await embedded.client())
        holder.append(bench)
        assert not await bench.beat(), "the first one goes to the coordinator"
        await test(bench)

    clock.run(main())


def test_the_same_bytes_get_the_same_answer_without_the_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        for _ in range(20):
            assert await b.beat()
        assert len(b.embedded.of(Request)) == 1 and b.embedded.brokers.count(Api.HEARTBEAT) == 1
        assert b.embedded.metrics.value("requests", "consumer_group_heartbeat", "terminated") == 21

    run(test, monkeypatch)


def test_other_bytes_are_another_request(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        assert not await b.beat(epoch=6)
        assert not await b.beat("m2")
        assert await b.beat() and await b.beat("m2"), "each of them is remembered"
        frame = to_frame(beat("g", "m1", 5), 1, 99, client_id="another")
        b.client.send(frame)
        b.answer(await b.embedded.request())
        assert int.from_bytes((await b.client.recv())[4:8], "big") == 99

    run(test, monkeypatch)


def test_another_version_is_another_request() -> None:
    """The bytes behind the correlation id may be the same in two versions; the answer is not."""
    grants = Grants(lease_until_ms=100)
    steady = grants.remember(Grant("g", "m1", 1, 50), 68, 1, 80, b"size" + b"corr" + b"body", 10)
    assert grants.allows(steady, 68, 1, 49)
    assert not grants.allows(steady, 68, 0, 49) and not grants.allows(steady, 12, 1, 49)


def test_not_after_the_group_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        b.embedded.front.from_coordinator(Void(("other",)))
        assert await b.beat()
        b.embedded.front.from_coordinator(Void(("g",)))
        assert not await b.beat() and await b.beat()

    run(test, monkeypatch)


def test_not_while_topics_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """At Kafka the first heartbeat after a change has it. Who changes topics all the time takes no more than a share of
    the grants away."""

    async def test(b: Bench) -> None:
        change = b.embedded.front.server.internal.marker(Api.CREATE_TOPICS, 7)
        assert isinstance(change, Passing)
        change.take(b"", True)
        assert b.embedded.of(TopicsPassed) == [TopicsPassed()]
        assert not await b.beat()
        b.now_ms += PAUSE_MS - 1
        assert not await b.beat()
        b.now_ms += 1
        assert await b.beat()
        alone = 0
        for _ in range(100):
            change.take(b"", True)
            alone += await b.beat()
            b.now_ms += 20
        assert 60 <= alone <= 75

    run(test, monkeypatch)


def test_not_after_the_members_session_would_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        b.now_ms += SESSION_MS - 1
        assert await b.beat()
        b.now_ms += 1
        assert not await b.beat()

    run(test, monkeypatch)


def test_not_after_the_principals_rights_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        b.now_ms += 9_999
        assert await b.beat()
        b.now_ms += 1
        assert not await b.beat()
        assert b.embedded.brokers.count(Api.HEARTBEAT) == 2, "the broker was asked again"

    run(test, monkeypatch, access_keep_ms=10_000)


def test_not_after_the_lease_of_the_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        b.embedded.front.from_coordinator(Lease(b.now_ms + 10))
        b.now_ms += 9
        assert await b.beat()
        b.now_ms += 1
        assert not await b.beat()
        b.embedded.front.from_coordinator(Lease(b.now_ms + 10))
        assert await b.beat()
        b.embedded.front.from_coordinator(Lease(0))
        assert not await b.beat()

    run(test, monkeypatch)


def test_not_after_the_link_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        b.embedded.front.link_lost()
        b.embedded.show()
        assert not await b.beat()

    run(test, monkeypatch)


def test_not_when_the_front_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        b.embedded.front.stop()
        assert not await b.beat()

    run(test, monkeypatch)


def test_an_answer_without_a_grant_is_not_given_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        b.client.post(beat("g", "m1", 6), 1)
        b.embedded.reply(await b.embedded.request(), HeartbeatReply(Code.FENCED_MEMBER_EPOCH, "no"))
        await b.client.recv()
        assert not await b.beat(epoch=6)

    run(test, monkeypatch)


def test_it_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        assert not await b.beat() and not await b.beat()

    run(test, monkeypatch, steady_replies=0)


def test_a_connection_is_remembered_for_only_so_many_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        for i in range(2, 5):
            assert not await b.beat(f"m{i}")
        assert len(b.client.session.steady) == 4
        assert not await b.beat("m5") and len(b.client.session.steady) == 1
        assert not await b.beat("m1"), "it was forgotten"

    run(test, monkeypatch, steady_replies=4)


def test_another_connection_is_remembered_too_where_nobody_has_to_authenticate(monkeypatch: pytest.MonkeyPatch) -> None:
    """The benchmark of heartbeats showed it first."""

    async def test(b: Bench) -> None:
        b.client = await b.embedded.client()
        assert not await b.beat()
        assert await b.beat()
        assert b.embedded.brokers.count(Api.HEARTBEAT) == 1

    run(test, monkeypatch)


def test_another_connection_asks_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        b.embedded.show(authorizer=True)
        b.client = await b.embedded.client()
        assert not await b.beat()
        assert b.embedded.brokers.count(Api.HEARTBEAT) == 2, "its principal may be another one"

    run(test, monkeypatch)


# ---- touches
def test_the_coordinator_hears_of_a_member_at_most_every_so_often(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(b: Bench) -> None:
        b.now_ms += 1
        assert await b.beat() and await b.beat()
        assert b.embedded.of(Touch) == [Touch("g", "m1")], "the first answer under the grant is told at once"
        for _ in range(10):
            b.now_ms += TOUCH_MS // 2
            await b.beat()
        assert len(b.embedded.of(Touch)) == 6

    run(test, monkeypatch)


def test_a_touch_is_due_after_its_time() -> None:
    """Symptom: a member was removed 0.15 s too early: the first answer under a grant was not reported at once."""
    steady = Grants().remember(Grant("g", "m1", 1, 1 << 40), 68, 1, 1 << 40, bytes(8), 1_000)
    due = [at for at in range(1_000, 1_000 + 3 * TOUCH_MS) if touch_due(steady, at)]
    assert due == [1_000, 1_000 + TOUCH_MS, 1_000 + 2 * TOUCH_MS]


def test_void_ends_all_grants_of_a_group_and_no_others() -> None:
    grants = Grants(lease_until_ms=1 << 40)
    one, two = (grants.remember(Grant(g, "m", 1, 100), 68, 1, 100, bytes(8), 0) for g in ("g1", "g2"))
    grants.void(("g1", "unknown"))
    assert not grants.allows(one, 68, 1, 0) and grants.allows(two, 68, 1, 0)
    again = grants.remember(Grant("g1", "m", 2, 100), 68, 1, 100, bytes(8), 0)
    assert grants.allows(again, 68, 1, 0) and not grants.allows(one, 68, 1, 0)
    grants.void_all()
    assert not grants.allows(again, 68, 1, 0) and not grants.allows(two, 68, 1, 0) and grants.lease_until_ms == 0


def test_a_grant_ends_with_the_lease_by_either_clock() -> None:
    """A pause of the whole machine is seen by the wall clock alone."""
    wall_ms = int(time.time() * 1000)
    grants = Grants(lease_until_ms=100, lease_until_wall_ms=wall_ms + 60_000)
    one = grants.remember(Grant("g", "m", 1, 1_000), 68, 1, 1_000, bytes(8), 0)
    assert grants.allows(one, 68, 1, 99) and not grants.allows(one, 68, 1, 100)
    grants.lease_until_wall_ms = wall_ms - 1
    assert not grants.allows(one, 68, 1, 99)


def test_a_grant_ends_with_the_session_and_with_the_rights_whichever_ends_first() -> None:
    grants = Grants(lease_until_ms=1 << 40)
    for session_ms, rights_ms in ((100, 200), (200, 100)):
        one = grants.remember(Grant("g", "m", 1, session_ms), 68, 1, rights_ms, bytes(8), 0)
        assert grants.allows(one, 68, 1, 99) and not grants.allows(one, 68, 1, 100)


def test_a_steady_answer_ends_with_the_oldest_right_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: heartbeats with names were accepted for 17 s after the right to a topic was taken."""

    async def test(b: Bench) -> None:
        b.embedded.show(authorizer=True)
        b.client = await b.embedded.client()
        named = beat("g", "m1", 5)
        named.subscribed_topic_names = ["orders"]

        async def alone() -> bool:
            before = len(b.embedded.of(Request))
            b.client.post(named, 1)
            while not b.client.waiting and len(b.embedded.of(Request)) == before:
                await asyncio.sleep(0)
            asked = len(b.embedded.of(Request)) > before
            if asked:
                b.answer(await b.embedded.request())
            await b.client.answer(named, 1)
            return not asked

        assert not await alone() and await alone(), "READ of the group and DESCRIBE of the topic are 0 s old"
        b.client.session.facts.readable.clear()
        b.now_ms += 6_000
        assert not await b.beat(), "READ is asked anew, for another request"
        b.client.session.steady.clear()
        assert not await alone() and await alone()
        b.now_ms += 3_999
        assert await alone()
        b.now_ms += 1
        assert not await alone(), "DESCRIBE is 10 s old, READ is 4 s old"

    run(test, monkeypatch, access_keep_ms=10_000)
