"""What becomes of requests at the front: the coordinator is late, goes or asks back; clients and handlers fail."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sidecar.api.call import Call, Handler, Tell
from sidecar.api.handlers import HANDLERS
from sidecar.core.consumer.events import ConsumerHeartbeat, HeartbeatReply
from sidecar.core.runtime.events import KnownReply
from sidecar.core.runtime.offset_checks import CheckReply, CommitCheck
from sidecar.core.vocabulary.errors import Code
from sidecar.front import dispatcher as module
from sidecar.front import settling
from sidecar.front.api_sets import BEFORE_ALL
from sidecar.front.settings import DoorSettings
from sidecar.link.messages import (
    AccessAnswer,
    AskAccess,
    CommitEnded,
    GroupRules,
    Reply,
    Request,
    SettingsPassed,
    TopicsPassed,
    View,
)
from sidecar.wire.apis import PASSING, SERVED, Api
from sidecar.wire.frames import request_frame
from sidecar.wire.generated import api_versions as av
from sidecar.wire.generated import create_topics as ct
from sidecar.wire.generated import describe_groups as dg
from sidecar.wire.generated import find_coordinator as fc
from sidecar.wire.generated import offset_commit as oc
from sidecar.wire.generated import offset_fetch as of
from tests.inprocess import clock
from tests.inprocess.desk import Desk
from tests.inprocess.house import turns, until
from tests.inprocess.messages import beat, commit, join, metadata


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "TICK_S", 0.005)


def run(test: Callable[[Desk], Coroutine[Any, Any, None]], **given: Any) -> None:
    async def whole() -> None:
        desk = Desk(**given)
        await test(desk)
        await turns()
        if desk.tasks.failed.done():
            desk.tasks.failed.result()

    clock.run(whole())


def accepted(member: str = "m1") -> HeartbeatReply:
    return HeartbeatReply(member_id=member, member_epoch=2, heartbeat_interval_ms=5_000, assignment={})


# ---- before the coordinator is there
def test_requests_are_held_until_the_coordinator_shows_itself() -> None:
    async def test(desk: Desk) -> None:
        clients = [await desk.client() for _ in range(3)]
        for i, client in enumerate(clients):
            client.post(join("g", f"m{i}"), 1)
        await turns(50)
        assert desk.sent == [] and not desk.front.linked
        desk.show()
        assert desk.front.linked
        asked = [await desk.request() for _ in clients]
        assert [r.event.member_id for r in asked if isinstance(r.event, ConsumerHeartbeat)] == ["m0", "m1", "m2"]
        for request, client in zip(reversed(asked), reversed(clients), strict=True):
            desk.reply(request, accepted())
            assert (await client.answer(join("g", "m"), 1)).error_code == Code.NONE

    run(test)


def test_they_are_refused_when_they_have_waited_long_enough() -> None:
    async def test(desk: Desk) -> None:
        client = await desk.client()
        reply = await client.ask(join("g", "m1"), 1)
        assert (reply.error_code, reply.error_message) == (
            Code.COORDINATOR_NOT_AVAILABLE,
            "The coordinator is not available.",
        )
        desk.show()
        await turns()
        assert desk.sent == [], "what was refused is not sent any more"

    run(test, hold_ms=10)


def test_each_has_its_own_time() -> None:
    async def test(desk: Desk) -> None:
        first, second = await desk.client(), await desk.client()
        first.post(join("g", "m1"), 1)
        await asyncio.sleep(0.03)
        second.post(join("g", "m2"), 1)
        await until(lambda: first.waiting)
        assert not second.waiting
        await until(lambda: second.waiting)

    run(test, hold_ms=60)


def test_what_needs_no_coordinator_is_answered_before_it_is_there() -> None:
    async def test(desk: Desk) -> None:
        client = await desk.client()
        assert (await client.ask(metadata("orders"), 9)).cluster_id == "in-memory"
        found = await client.ask(fc.FindCoordinatorRequest("theirs", 0, ["theirs"]), 4)
        assert found.coordinators[0].node_id == 1
        mine = await client.ask(fc.FindCoordinatorRequest("g", 0, ["g"]), 4)
        assert mine.coordinators[0].error_code == Code.COORDINATOR_NOT_AVAILABLE

    run(test)


@pytest.mark.parametrize("group_id", ["g", "theirs"])
def test_while_nobody_says_which_groups_are_managed_no_member_gets_to_the_broker(group_id: str) -> None:
    """Symptom: a sidecar that was cut off at its start went by its own settings: a managed group's member passed."""

    async def test(desk: Desk) -> None:
        client, other = await desk.client(), await desk.client()
        began = time.monotonic()
        joined = await client.ask(join(group_id, "m1"), 1)
        assert (joined.error_code, time.monotonic() - began >= 0.05) == (Code.COORDINATOR_NOT_AVAILABLE, True)
        committed = await other.ask(commit(group_id, "m1", 1, "orders", {0: 1}), 9)
        assert committed.topics[0].partitions[0].error_code == Code.COORDINATOR_NOT_AVAILABLE
        fetched = await client.ask(of.OffsetFetchRequest(groups=[of.OffsetFetchRequestGroup(group_id)]), 8)
        assert fetched.groups[0].error_code == Code.COORDINATOR_NOT_AVAILABLE
        members_ask = (Api.CONSUMER_GROUP_HEARTBEAT, Api.OFFSET_COMMIT, Api.OFFSET_FETCH)
        assert not any(desk.brokers.count(api) for api in members_ask)
        assert (await client.ask(metadata("orders"), 9)).cluster_id == "in-memory"

    run(test, hold_ms=50)


# ---- the link is lost
def test_a_lost_link_refuses_everything_that_waits() -> None:
    async def test(desk: Desk) -> None:
        desk.show()
        one, two = await desk.client(), await desk.client()
        one.post(join("g", "m1"), 1)
        two.post(commit("g", "m2", 2, "orders", {0: 1}), 9)
        late, _ = await desk.request(), await desk.request()
        desk.front.link_lost()
        reply = await one.answer(join("g", "m1"), 1)
        assert (reply.error_code, reply.error_message) == (
            Code.NOT_COORDINATOR,
            "This is not the correct coordinator.",
        )
        committed = await two.answer(oc.OffsetCommitRequest(), 9)
        assert committed.topics[0].partitions[0].error_code == Code.NOT_COORDINATOR
        desk.reply(late, accepted())
        await turns()
        assert not one.waiting, "an answer that comes after all is dropped"

    run(test)


def test_after_it_requests_wait_for_the_next_coordinator() -> None:
    async def test(desk: Desk) -> None:
        desk.show()
        desk.front.link_lost()
        client = await desk.client()
        client.post(join("g", "m1"), 1)
        await turns(50)
        assert desk.sent == []
        desk.show()
        desk.reply(await desk.request(), accepted())
        assert (await client.answer(join("g", "m1"), 1)).error_code == Code.NONE

    run(test)


def test_a_link_that_is_lost_before_a_view_came_refuses_what_was_held() -> None:
    async def test(desk: Desk) -> None:
        client = await desk.client()
        desk.front.from_coordinator(GroupRules())
        client.post(join("g", "m1"), 1)
        await turns(50)
        desk.front.link_lost()
        assert (await client.answer(join("g", "m1"), 1)).error_code == Code.NOT_COORDINATOR
        await asyncio.sleep(0.02)
        desk.show()
        assert desk.sent == []

    run(test, hold_ms=10)


# ---- clients and handlers that fail
def test_a_malformed_request_closes_its_connection_and_is_counted() -> None:
    async def test(desk: Desk) -> None:
        desk.show()
        client, other = await desk.client(), await desk.client()
        client.send(request_frame(Api.OFFSET_COMMIT, 9, 1, "app", True, b"\xff\xff\xff"))
        await until(lambda: client.closed)
        await turns()
        assert desk.metrics.value("refused", "malformed") == desk.metrics.value("closed", "malformed") == 1
        assert desk.lines.events("warning") == ["frame refused"]
        assert desk.lines.fields("frame refused")["client"] == "10.0.0.9"
        assert not other.closed and desk.metrics.value("active") == 1

    run(test)


def test_a_version_that_the_broker_does_not_serve_closes_as_there() -> None:
    """Kafka 4 has no OffsetCommit v1. What the sidecar brings has its own versions; and before anybody has asked, the
    broker is left to refuse."""

    async def test(desk: Desk) -> None:
        desk.show()
        desk.brokers.versions[Api.OFFSET_COMMIT] = (2, 8)
        commit = oc.OffsetCommitRequest("theirs", -1, "")
        early = await desk.client()
        assert (await early.ask(commit, 1)).topics == []
        await early.ask(av.ApiVersionsRequest(), 2)
        for served in (2, 8, 9):
            assert (await early.ask(commit, served)).topics == []
        for refused in (1, 10):
            client = await desk.client()
            client.send(request_frame(Api.OFFSET_COMMIT, refused, 1, "billing", refused >= 8, commit.encode(refused)))
            await until(lambda client=client: client.closed)  # type: ignore[misc]
        assert desk.metrics.value("refused", "unsupported_version") == 2
        assert desk.lines.fields("frame refused")["client_id"] == "billing"

    run(test)


@pytest.mark.parametrize("api", [Api.CONSUMER_GROUP_HEARTBEAT, Api.OFFSET_COMMIT])
def test_so_does_one_whose_header_is_malformed(api: Api) -> None:
    async def test(desk: Desk) -> None:
        desk.show()
        client = await desk.client()
        version = 1 if api is Api.CONSUMER_GROUP_HEARTBEAT else 9
        frame = request_frame(api, version, 1, "app", True, b"")
        client.send(frame[:12] + b"\x7f\xff" + frame[14:])
        await until(lambda: client.closed)
        assert desk.metrics.value("refused", "malformed") == 1

    run(test)


def test_a_handler_that_breaks_closes_its_connection_and_nobody_else_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(call: Call) -> Handler:
        raise KeyError("a bug")
        yield

    monkeypatch.setattr(module, "HANDLERS", {**HANDLERS, Api.DESCRIBE_GROUPS: breaks})

    async def test(desk: Desk) -> None:
        desk.show()
        client, other = await desk.client(), await desk.client()
        other.post(join("g", "m1"), 1)
        request = await desk.request()
        client.post(dg.DescribeGroupsRequest(["g"]), 5)
        await until(lambda: client.closed)
        await turns()
        assert desk.metrics.value("handler_faults") == desk.metrics.value("closed", "internal_error") == 1
        assert desk.lines.fields("handler broke") == {
            "api": "DESCRIBE_GROUPS",
            "version": 5,
            "error": "KeyError('a bug')",
        }
        desk.reply(request, accepted())
        assert (await other.answer(join("g", "m1"), 1)).error_code == Code.NONE

    run(test)


def test_an_answer_for_a_client_that_has_gone_is_dropped() -> None:
    async def test(desk: Desk) -> None:
        desk.show()
        client = await desk.client()
        client.post(join("g", "m1"), 1)
        request = await desk.request()
        client.close()
        desk.reply(request, accepted())
        await turns()
        assert desk.metrics.value("handler_faults") == 0 and desk.front.channel.under_way == {}
        desk.front.from_coordinator(Reply(4711, accepted()))

    run(test)


def test_a_commit_that_comes_back_for_a_client_that_has_gone_is_said_to_have_ended() -> None:
    """It was never sent, and nobody is to wait for it."""

    async def test(desk: Desk) -> None:
        desk.show()
        client = await desk.client()
        client.post(commit("g", "m1", 3, "orders", {0: 7}), 9)
        request = await desk.request()
        client.close()
        desk.reply(request, CheckReply(ticket=5))
        await turns()
        assert desk.of(CommitEnded) == [CommitEnded(5, sure=True)]

    run(test)


def test_a_client_that_goes_while_the_broker_is_asked_ends_its_request() -> None:
    async def test(desk: Desk) -> None:
        desk.show()
        hung = desk.brokers.faults.hang(Api.HEARTBEAT)
        client = await desk.client()
        client.post(join("g", "m1"), 1)
        await until(lambda: hung.met)
        client.close()
        await turns()
        assert desk.sent == [] and client.session.upstream.asks == {}

    run(test)


def test_a_principal_without_the_right_never_reaches_the_coordinator() -> None:
    async def test(desk: Desk) -> None:
        desk.show()
        desk.brokers.no_read.add("g")
        client = await desk.client()
        assert (await client.ask(join("g", "m1"), 1)).error_code == Code.GROUP_AUTHORIZATION_FAILED
        assert desk.sent == []

    run(test)


# ---- the coordinator asks back
def test_the_broker_is_asked_about_topics_while_the_request_waits() -> None:
    async def test(desk: Desk) -> None:
        desk.show(authorizer=True)
        desk.brokers.no_describe.add("secret")
        client = await desk.client()
        client.post(join("g", "m1", topics=None, regex=".*"), 1)
        request = await desk.request()
        desk.front.from_coordinator(AskAccess(request.token, frozenset({"orders", "secret"})))
        await until(lambda: desk.of(AccessAnswer))
        assert desk.of(AccessAnswer) == [AccessAnswer(request.token, frozenset({"secret"}))]
        assert not client.waiting, "the request itself is not answered yet"
        desk.reply(request, accepted())
        assert (await client.answer(join("g", "m1"), 1)).error_code == Code.NONE
        asked = [a for a in desk.brokers.asked if a.api is Api.LIST_OFFSETS]
        assert len(asked) == 1 and {t.name for t in asked[0].request.topics} == {"orders", "secret"}
        client.post(beat("g", "m1", 2), 1)
        again = await desk.request()
        desk.front.from_coordinator(AskAccess(again.token, frozenset({"orders"})))
        assert desk.of(AccessAnswer)[-1].hidden == frozenset(), "what the broker said is kept for a while"

    run(test)


def test_an_authorizer_that_fails_has_hidden_no_topic_from_a_member() -> None:
    """Else a regular expression would stand for fewer topics, and members would lose what they have."""

    async def test(desk: Desk) -> None:
        desk.show(authorizer=True)
        desk.brokers.no_describe.add("secret")
        desk.brokers.failed_describe.add("orders")
        client = await desk.client()
        client.post(join("g", "m1", topics=None, regex=".*"), 1)
        request = await desk.request()
        desk.front.from_coordinator(AskAccess(request.token, frozenset({"orders", "secret"})))
        await until(lambda: desk.of(AccessAnswer))
        desk.brokers.failed_describe.clear()
        desk.front.from_coordinator(AskAccess(request.token, frozenset({"orders", "secret"})))
        await until(lambda: len(desk.of(AccessAnswer)) == 2)
        told = [answer.hidden for answer in desk.of(AccessAnswer)]
        assert told == [None, frozenset({"secret"})], "nobody knows, and then it is asked again"

    run(test)


def test_a_broker_without_an_authorizer_is_not_asked() -> None:
    async def test(desk: Desk) -> None:
        desk.show(authorizer=False)
        client = await desk.client()
        client.post(join("g", "m1"), 1)
        request = await desk.request()
        desk.front.from_coordinator(AskAccess(request.token, frozenset({"orders"})))
        assert desk.of(AccessAnswer) == [AccessAnswer(request.token, frozenset())]
        assert desk.brokers.count(Api.LIST_OFFSETS) == 0

    run(test)


def test_of_a_client_that_has_gone_nobody_can_say() -> None:
    async def test(desk: Desk) -> None:
        desk.show(authorizer=True)
        client = await desk.client()
        client.post(join("g", "m1"), 1)
        request = await desk.request()
        client.close()
        desk.front.from_coordinator(AskAccess(request.token, frozenset({"orders"})))
        desk.front.from_coordinator(AskAccess(4711, frozenset({"orders"})))
        assert desk.of(AccessAnswer) == [AccessAnswer(request.token, None), AccessAnswer(4711, None)]

    run(test)


def test_nor_if_it_goes_while_the_broker_is_asked() -> None:
    async def test(desk: Desk) -> None:
        desk.show(authorizer=True)
        hung = desk.brokers.faults.hang(Api.LIST_OFFSETS)
        client = await desk.client()
        client.post(join("g", "m1", topics=None, regex=".*"), 1)
        request = await desk.request()
        desk.front.from_coordinator(AskAccess(request.token, frozenset({"orders"})))
        await until(lambda: hung.met)
        client.close()
        await until(lambda: desk.of(AccessAnswer))
        assert desk.of(AccessAnswer) == [AccessAnswer(request.token, None)]

    run(test)


# ---- other brokers, other messages
def test_offsets_kept_by_another_broker_go_there_on_the_sidecars_own_connection() -> None:
    async def test(desk: Desk) -> None:
        desk.show(leaders=(2,))
        client = await desk.client()
        client.post(commit("g", "m1", 2, "orders", {0: 7}), 9)
        request = await desk.request()
        assert isinstance(request.event, CommitCheck)
        desk.reply(request, CheckReply())
        reply = await client.answer(oc.OffsetCommitRequest(), 9)
        assert reply.topics[0].partitions[0].error_code == Code.NONE
        (stored,) = [a for a in desk.brokers.asked if a.api is Api.OFFSET_COMMIT]
        assert stored.node_id == 2 and stored.request.member_id == ""

    run(test)


@pytest.mark.parametrize("lanes", [1, 3])
def test_commits_of_several_clients_share_so_many_connections_to_it(lanes: int) -> None:
    """A broker answers one request of a connection at a time: a commit that is slow holds up those behind it."""

    async def test(desk: Desk) -> None:
        desk.show(leaders=(2,))
        hung = desk.brokers.faults.hang(Api.OFFSET_COMMIT, times=10)
        clients = [await desk.client() for _ in range(6)]
        for i, client in enumerate(clients):
            client.post(commit("g", f"m{i}", 2, "orders", {i: 7}), 9)
            desk.reply(await desk.request(), CheckReply())
        await until(lambda: hung.met == lanes)
        await turns(50)
        assert hung.met == lanes
        hung.release()
        for client in clients:
            reply = await client.answer(oc.OffsetCommitRequest(), 9)
            assert reply.topics[0].partitions[0].error_code == Code.NONE

    run(test, commit_lanes=lanes)


@pytest.mark.parametrize("down", [True, False])
def test_if_that_broker_does_not_answer_the_clients_connection_breaks(down: bool) -> None:
    """Nobody can say whether the offsets were stored."""

    async def test(desk: Desk) -> None:
        desk.show(leaders=(2,))
        if down:
            desk.brokers.stop(2)
        else:
            desk.brokers.faults.drop(Api.OFFSET_COMMIT)
        client = await desk.client()
        client.post(commit("g", "m1", 2, "orders", {0: 7}), 9)
        desk.reply(await desk.request(), CheckReply())
        await until(lambda: client.closed)
        await turns()
        assert desk.metrics.value("closed", "broker_closed") == 1

    run(test)


def test_a_handler_may_tell_the_coordinator_something_and_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def tells(call: Call) -> Handler:
        yield Tell(SettingsPassed())
        return dg.DescribeGroupsResponse().encode(call.version)

    monkeypatch.setattr(module, "HANDLERS", {**HANDLERS, Api.DESCRIBE_GROUPS: tells})

    async def test(desk: Desk) -> None:
        desk.show()
        client = await desk.client()
        await client.ask(dg.DescribeGroupsRequest(["g"]), 5)
        assert desk.sent == [SettingsPassed()]

    run(test)


def test_the_coordinator_is_told_when_topics_were_changed_through_us() -> None:
    async def test(desk: Desk) -> None:
        client = await desk.client()
        request = ct.CreateTopicsRequest(topics=[ct.CreatableTopic("orders", 1, 1)])
        await client.ask(request, 5)
        assert desk.sent == [], "there is no coordinator yet, which reads all topics when it starts"
        desk.show()
        await client.ask(request, 5)
        assert desk.sent == [TopicsPassed()]

    run(test)


def test_a_request_may_pass_after_the_coordinator_was_asked() -> None:
    async def test(desk: Desk) -> None:
        desk.show()
        client = await desk.client()
        client.post(dg.DescribeGroupsRequest(["g"]), 5)
        desk.reply(await desk.request(), KnownReply())
        reply = await client.answer(dg.DescribeGroupsRequest(), 5)
        assert [g.group_id for g in reply.groups] == ["g"] and desk.brokers.count(Api.DESCRIBE_GROUPS) == 1

    run(test)


def test_a_new_view_counts_for_requests_that_come_after_it() -> None:
    async def test(desk: Desk) -> None:
        desk.show()
        client = await desk.client()
        ask = fc.FindCoordinatorRequest("g", 0, ["g"])
        assert (await client.ask(ask, 4)).coordinators[0].node_id == 1
        desk.front.from_coordinator(View(owners=(2,), leaders=(1,), brokers={2: ("b2", 9)}))
        found = (await client.ask(ask, 4)).coordinators[0]
        assert (found.node_id, found.host, found.port) == (2, "b2", 9)

    run(test)


# ---- ending
def test_drain_waits_for_answers_under_way_and_then_closes_everything() -> None:
    async def test(desk: Desk) -> None:
        desk.show()
        busy, idle = await desk.client(), await desk.client()
        busy.post(join("g", "m1"), 1)
        request = await desk.request()
        desk.front.stop()
        draining = asyncio.get_running_loop().create_task(desk.front.drain(1.0))
        await asyncio.sleep(0.02)
        assert not draining.done() and not idle.closed
        desk.reply(request, accepted())
        await draining
        assert (await busy.answer(join("g", "m1"), 1)).error_code == Code.NONE
        assert busy.closed and idle.closed and not desk.front.server.sessions
        assert desk.metrics.value("closed", "shutdown") == 2 and desk.metrics.value("active") == 0

    run(test)


def test_drain_does_not_wait_for_ever() -> None:
    async def test(desk: Desk) -> None:
        desk.show()
        busy = await desk.client()
        busy.post(join("g", "m1"), 1)
        await desk.request()
        await desk.front.drain(0.03)
        assert busy.closed and not busy.waiting

    run(test)


def test_a_front_that_stops_takes_no_new_connections() -> None:
    async def test(desk: Desk) -> None:
        desk.front.stop()
        client = await desk.client()
        assert client.closed

    run(test)


def test_only_so_many_connections_are_taken() -> None:
    async def test(desk: Desk) -> None:
        desk.show()
        one, two = [await desk.client() for _ in range(2)]
        for client in (one, two):
            client.post(metadata("t"), 9)
        three = await desk.client()
        assert (one.closed, two.closed, three.closed) == (False, False, True)
        await turns()
        assert desk.metrics.value("closed", "too_many_connections") == 1 and desk.metrics.value("active") == 2
        one.close()
        assert not (await desk.client()).closed

    run(test, door=DoorSettings(connections_max=2))


def test_tokens_are_never_the_same() -> None:
    async def test(desk: Desk) -> None:
        desk.show()
        clients = [await desk.client() for _ in range(5)]
        for client in clients:
            client.post(join("g", "m"), 1)
        asked = [await desk.request() for _ in clients]
        assert len({r.token for r in asked}) == 5 and all(isinstance(r, Request) for r in asked)

    run(test)


# ---- nothing long before the client is let in
def test_a_long_request_waits_until_the_broker_has_let_its_client_in() -> None:
    async def test(desk: Desk) -> None:
        desk.show(authorizer=True)
        client = await desk.client()
        client.post(join("g", "m1", topics=["t" * 200] * 30), 1)
        await until(lambda: desk.brokers.count(Api.METADATA) == 1)
        assert desk.metrics.value("probes") == 1
        desk.reply(await desk.request(), accepted())
        assert (await client.answer(join("g", "m1"), 1)).error_code == Code.NONE
        client.post(join("g", "m1", topics=["t" * 200] * 30), 1)
        desk.reply(await desk.request(), accepted())
        assert (await client.answer(join("g", "m1"), 1)).error_code == Code.NONE
        assert desk.brokers.count(Api.METADATA) == 1, "it is asked once"

    run(test)


@pytest.mark.parametrize("api", [Api(key) for key in PASSING if key not in BEFORE_ALL], ids=lambda a: a.name.lower())
def test_nothing_long_of_a_client_that_is_not_let_in_is_looked_into(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: nobody, without SASL, stopped all traffic with one request of 220 KB."""

    def touched(call: Call) -> Handler:
        raise AssertionError("it was looked into")
        yield

    monkeypatch.setitem(HANDLERS, api, touched)

    async def test(desk: Desk) -> None:
        desk.show(authorizer=True)
        desk.brokers.faults.drop(Api.METADATA)
        client = await desk.client()
        spec = SERVED[api]
        client.send(request_frame(api, spec.high, 1, "c", spec.high >= spec.flexible_from, b"x" * 5_000))
        await until(lambda: client.closed)
        assert desk.brokers.count(Api.METADATA) == 1 and "handler broke" not in desk.lines.events()

    run(test)


def test_what_was_answered_before_lets_the_client_in_as_well() -> None:
    async def test(desk: Desk) -> None:
        desk.show()
        client = await desk.client()
        client.post(join("g", "m1"), 1)
        desk.reply(await desk.request(), accepted())
        await client.answer(join("g", "m1"), 1)
        client.post(join("g", "m1", topics=["t" * 200] * 30), 1)
        desk.reply(await desk.request(), accepted())
        assert desk.metrics.value("probes") == 0

    run(test)
