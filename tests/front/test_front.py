"""Requests at the front: the coordinator is late, goes or asks back; clients and handlers fail."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from sidecar.api.call import Call, Handler, SendToCoordinator
from sidecar.api.handlers import HANDLERS
from sidecar.core.consumer.events import ConsumerHeartbeat, HeartbeatReply
from sidecar.core.runtime.events import GroupsWithRecordsReply
from sidecar.core.runtime.offset_checks import CheckReply, CommitCheck
from sidecar.core.vocabulary.errors import Code
from sidecar.front import dispatcher as module
from sidecar.front import waiting_room
from sidecar.front.api_sets import BEFORE_ALL
from sidecar.front.settings import DoorSettings
from sidecar.link.messages import (
    AccessAnswer,
    AskAccess,
    BrokerSilence,
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
from tests.inprocess.embedded_front import EmbeddedFront
from tests.inprocess.embedded_sidecar import turns, until
from tests.inprocess.messages import beat, commit, join, metadata


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_room, "TICK_S", 0.005)


def run(test: Callable[[EmbeddedFront], Coroutine[Any, Any, None]], **given: Any) -> None:
    async def main() -> None:
        embedded = EmbeddedFront(**given)
        await test(embedded)
        await turns()
        if embedded.tasks.failed.done():
            embedded.tasks.failed.result()

    clock.run(main())


def accepted(member: str = "m1") -> HeartbeatReply:
    return HeartbeatReply(member_id=member, member_epoch=2, heartbeat_interval_ms=5_000, assignment={})


# ---- before the coordinator is there
def test_requests_are_held_until_the_coordinator_shows_itself() -> None:
    async def test(embedded: EmbeddedFront) -> None:
        clients = [await embedded.client() for _ in range(3)]
        for i, client in enumerate(clients):
            client.post(join("g", f"m{i}"), 1)
        await turns(50)
        assert embedded.sent == [] and not embedded.front.linked
        embedded.show()
        assert embedded.front.linked
        asked = [await embedded.request() for _ in clients]
        assert [r.event.member_id for r in asked if isinstance(r.event, ConsumerHeartbeat)] == ["m0", "m1", "m2"]
        for request, client in zip(reversed(asked), reversed(clients), strict=True):
            embedded.reply(request, accepted())
            assert (await client.answer(join("g", "m"), 1)).error_code == Code.NONE

    run(test)


def test_they_are_refused_when_they_have_waited_long_enough() -> None:
    async def test(embedded: EmbeddedFront) -> None:
        client = await embedded.client()
        reply = await client.ask(join("g", "m1"), 1)
        assert (reply.error_code, reply.error_message) == (
            Code.COORDINATOR_NOT_AVAILABLE,
            "The coordinator is not available.",
        )
        embedded.show()
        await turns()
        assert embedded.sent == [], "what was refused is not sent any more"

    run(test, hold_ms=10)


def test_each_has_its_own_time() -> None:
    async def test(embedded: EmbeddedFront) -> None:
        first, second = await embedded.client(), await embedded.client()
        first.post(join("g", "m1"), 1)
        await asyncio.sleep(0.03)
        second.post(join("g", "m2"), 1)
        await until(lambda: first.waiting)
        assert not second.waiting
        await until(lambda: second.waiting)

    run(test, hold_ms=60)


def test_what_needs_no_coordinator_is_answered_before_it_is_there() -> None:
    async def test(embedded: EmbeddedFront) -> None:
        client = await embedded.client()
        assert (await client.ask(metadata("orders"), 9)).cluster_id == "in-memory"
        found = await client.ask(fc.FindCoordinatorRequest("theirs", 0, ["theirs"]), 4)
        assert found.coordinators[0].node_id == 1
        mine = await client.ask(fc.FindCoordinatorRequest("g", 0, ["g"]), 4)
        assert mine.coordinators[0].error_code == Code.COORDINATOR_NOT_AVAILABLE

    run(test)


@pytest.mark.parametrize("group_id", ["g", "theirs"])
def test_while_nobody_says_which_groups_are_managed_no_member_gets_to_the_broker(group_id: str) -> None:
    """Symptom: a sidecar that was cut off at its start went by its own settings: a managed group's member passed."""

    async def test(embedded: EmbeddedFront) -> None:
        client, other = await embedded.client(), await embedded.client()
        began = time.monotonic()
        joined = await client.ask(join(group_id, "m1"), 1)
        assert (joined.error_code, time.monotonic() - began >= 0.05) == (Code.COORDINATOR_NOT_AVAILABLE, True)
        committed = await other.ask(commit(group_id, "m1", 1, "orders", {0: 1}), 9)
        assert committed.topics[0].partitions[0].error_code == Code.COORDINATOR_NOT_AVAILABLE
        fetched = await client.ask(of.OffsetFetchRequest(groups=[of.OffsetFetchRequestGroup(group_id)]), 8)
        assert fetched.groups[0].error_code == Code.COORDINATOR_NOT_AVAILABLE
        members_ask = (Api.CONSUMER_GROUP_HEARTBEAT, Api.OFFSET_COMMIT, Api.OFFSET_FETCH)
        assert not any(embedded.brokers.count(api) for api in members_ask)
        assert (await client.ask(metadata("orders"), 9)).cluster_id == "in-memory"

    run(test, hold_ms=50)


# ---- the link is lost
def test_a_lost_link_refuses_everything_that_waits() -> None:
    async def test(embedded: EmbeddedFront) -> None:
        embedded.show()
        one, two = await embedded.client(), await embedded.client()
        one.post(join("g", "m1"), 1)
        two.post(commit("g", "m2", 2, "orders", {0: 1}), 9)
        late, _ = await embedded.request(), await embedded.request()
        embedded.front.link_lost()
        reply = await one.answer(join("g", "m1"), 1)
        assert (reply.error_code, reply.error_message) == (
            Code.NOT_COORDINATOR,
            "This is not the correct coordinator.",
        )
        committed = await two.answer(oc.OffsetCommitRequest(), 9)
        assert committed.topics[0].partitions[0].error_code == Code.NOT_COORDINATOR
        embedded.reply(late, accepted())
        await turns()
        assert not one.waiting, "an answer that comes after all is dropped"

    run(test)


def test_after_it_requests_wait_for_the_next_coordinator() -> None:
    async def test(embedded: EmbeddedFront) -> None:
        embedded.show()
        embedded.front.link_lost()
        client = await embedded.client()
        client.post(join("g", "m1"), 1)
        await turns(50)
        assert embedded.sent == []
        embedded.show()
        embedded.reply(await embedded.request(), accepted())
        assert (await client.answer(join("g", "m1"), 1)).error_code == Code.NONE

    run(test)


def test_the_next_coordinator_hears_that_the_broker_is_silent() -> None:
    async def test(embedded: EmbeddedFront) -> None:
        embedded.show()
        watch = embedded.front.server.watch
        watch.detector.silent = watch.detector.silent_to_all = True
        watch._follow()
        embedded.front.link_lost()
        embedded.show()
        embedded.show()
        told = [m.quiet_ms >= 0 for m in embedded.of(BrokerSilence)]
        assert told == [True, True], "once to each coordinator"

    run(test)


def test_a_link_that_is_lost_before_a_view_came_refuses_what_was_held() -> None:
    async def test(embedded: EmbeddedFront) -> None:
        client = await embedded.client()
        embedded.front.from_coordinator(GroupRules())
        client.post(join("g", "m1"), 1)
        await turns(50)
        embedded.front.link_lost()
        assert (await client.answer(join("g", "m1"), 1)).error_code == Code.NOT_COORDINATOR
        await asyncio.sleep(0.02)
        embedded.show()
        assert embedded.sent == []

    run(test, hold_ms=10)


# ---- clients and handlers that fail
def test_a_malformed_request_closes_its_connection_and_is_counted() -> None:
    async def test(embedded: EmbeddedFront) -> None:
        embedded.show()
        client, other = await embedded.client(), await embedded.client()
        client.send(request_frame(Api.OFFSET_COMMIT, 9, 1, "app", True, b"\xff\xff\xff"))
        await until(lambda: client.closed)
        await turns()
        assert embedded.metrics.value("refused", "malformed") == embedded.metrics.value("closed", "malformed") == 1
        assert embedded.lines.events("warning") == ["frame refused"]
        assert embedded.lines.fields("frame refused")["client"] == "10.0.0.9"
        assert not other.closed and embedded.metrics.value("active") == 1

    run(test)


def test_a_version_that_the_broker_does_not_serve_closes_as_there() -> None:
    """Kafka 4 has no OffsetCommit v1. What the sidecar brings has its own versions; and before anybody has asked, the
    broker is left to refuse."""

    async def test(embedded: EmbeddedFront) -> None:
        embedded.show()
        embedded.brokers.versions[Api.OFFSET_COMMIT] = (2, 8)
        commit = oc.OffsetCommitRequest("theirs", -1, "")
        early = await embedded.client()
        assert (await early.ask(commit, 1)).topics == []
        await early.ask(av.ApiVersionsRequest(), 2)
        for served in (2, 8, 9):
            assert (await early.ask(commit, served)).topics == []
        for refused in (1, 10):
            client = await embedded.client()
            client.send(request_frame(Api.OFFSET_COMMIT, refused, 1, "billing", refused >= 8, commit.encode(refused)))
            await until(lambda client=client: client.closed)  # type: ignore[misc]
        assert embedded.metrics.value("refused", "unsupported_version") == 2
        assert embedded.lines.fields("frame refused")["client_id"] == "billing"

    run(test)


@pytest.mark.parametrize("api", [Api.CONSUMER_GROUP_HEARTBEAT, Api.OFFSET_COMMIT])
def test_so_does_one_whose_header_is_malformed(api: Api) -> None:
    async def test(embedded: EmbeddedFront) -> None:
        embedded.show()
        client = await embedded.client()
        version = 1 if api is Api.CONSUMER_GROUP_HEARTBEAT else 9
        frame = request_frame(api, version, 1, "app", True, b"")
        client.send(frame[:12] + b"\x7f\xff" + frame[14:])
        await until(lambda: client.closed)
        assert embedded.metrics.value("refused", "malformed") == 1

    run(test)


def test_a_handler_that_breaks_closes_its_connection_and_nobody_else_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(call: Call) -> Handler:
        raise KeyError("a bug")
        yield

    monkeypatch.setattr(module, "HANDLERS", {**HANDLERS, Api.DESCRIBE_GROUPS: breaks})

    async def test(embedded: EmbeddedFront) -> None:
        embedded.show()
        client, other = await embedded.client(), await embedded.client()
        other.post(join("g", "m1"), 1)
        request = await embedded.request()
        client.post(dg.DescribeGroupsRequest(["g"]), 5)
        await until(lambda: client.closed)
        await turns()
        assert embedded.metrics.value("handler_faults") == embedded.metrics.value("closed", "internal_error") == 1
        assert embedded.lines.fields("handler broke") == {
            "api": "DESCRIBE_GROUPS",
            "version": 5,
            "error": "KeyError('a bug')",
        }
        embedded.reply(request, accepted())
        assert (await other.answer(join("g", "m1"), 1)).error_code == Code.NONE

    run(test)


def test_an_answer_for_a_client_that_has_gone_is_dropped() -> None:
    async def test(embedded: EmbeddedFront) -> None:
        embedded.show()
        client = await embedded.client()
        client.post(join("g", "m1"), 1)
        request = await embedded.request()
        client.close()
        embedded.reply(request, accepted())
        await turns()
        assert embedded.metrics.value("handler_faults") == 0 and embedded.front.channel.under_way == {}
        embedded.front.from_coordinator(Reply(4711, accepted()))

    run(test)


def test_a_commit_that_comes_back_for_a_client_that_has_gone_is_said_to_have_ended() -> None:
    """The commit was never sent, so no other request must wait for it."""

    async def test(embedded: EmbeddedFront) -> None:
        embedded.show()
        client = await embedded.client()
        client.post(commit("g", "m1", 3, "orders", {0: 7}), 9)
        request = await embedded.request()
        client.close()
        embedded.reply(request, CheckReply(ticket=5))
        await turns()
        assert embedded.of(CommitEnded) == [CommitEnded(5, sure=True)]

    run(test)


def test_a_client_that_goes_while_the_broker_is_asked_ends_its_request() -> None:
    async def test(embedded: EmbeddedFront) -> None:
        embedded.show()
        hung = embedded.brokers.faults.hang(Api.HEARTBEAT)
        client = await embedded.client()
        client.post(join("g", "m1"), 1)
        await until(lambda: hung.met)
        client.close()
        await turns()
        assert embedded.sent == [] and client.session.upstream.asks == {}

    run(test)


def test_a_principal_without_the_right_never_reaches_the_coordinator() -> None:
    async def test(embedded: EmbeddedFront) -> None:
        embedded.show()
        embedded.brokers.no_read.add("g")
        client = await embedded.client()
        assert (await client.ask(join("g", "m1"), 1)).error_code == Code.GROUP_AUTHORIZATION_FAILED
        assert embedded.sent == []

    run(test)


# ---- the coordinator asks back
def test_the_broker_is_asked_about_topics_while_the_request_waits() -> None:
    async def test(embedded: EmbeddedFront) -> None:
        embedded.show(authorizer=True)
        embedded.brokers.no_describe.add("secret")
        client = await embedded.client()
        client.post(join("g", "m1", topics=None, regex=".*"), 1)
        request = await embedded.request()
        embedded.front.from_coordinator(AskAccess(request.token, frozenset({"orders", "secret"})))
        await until(lambda: embedded.of(AccessAnswer))
        assert embedded.of(AccessAnswer) == [AccessAnswer(request.token, frozenset({"secret"}))]
        assert not client.waiting, "the request itself is not answered yet"
        embedded.reply(request, accepted())
        assert (await client.answer(join("g", "m1"), 1)).error_code == Code.NONE
        asked = [a for a in embedded.brokers.asked if a.api is Api.LIST_OFFSETS]
        assert len(asked) == 1 and {t.name for t in asked[0].request.topics} == {"orders", "secret"}
        client.post(beat("g", "m1", 2), 1)
        again = await embedded.request()
        embedded.front.from_coordinator(AskAccess(again.token, frozenset({"orders"})))
        assert embedded.of(AccessAnswer)[-1].hidden == frozenset(), "what the broker said is kept for a while"

    run(test)


def test_an_authorizer_that_fails_has_hidden_no_topic_from_a_member() -> None:
    """Else a regular expression would stand for fewer topics, and members would lose what they have."""

    async def test(embedded: EmbeddedFront) -> None:
        embedded.show(authorizer=True)
        embedded.brokers.no_describe.add("secret")
        embedded.brokers.failed_describe.add("orders")
        client = await embedded.client()
        client.post(join("g", "m1", topics=None, regex=".*"), 1)
        request = await embedded.request()
        embedded.front.from_coordinator(AskAccess(request.token, frozenset({"orders", "secret"})))
        await until(lambda: embedded.of(AccessAnswer))
        embedded.brokers.failed_describe.clear()
        embedded.front.from_coordinator(AskAccess(request.token, frozenset({"orders", "secret"})))
        await until(lambda: len(embedded.of(AccessAnswer)) == 2)
        told = [answer.hidden for answer in embedded.of(AccessAnswer)]
        assert told == [None, frozenset({"secret"})], "nobody knows, and then it is asked again"

    run(test)


def test_a_broker_without_an_authorizer_is_not_asked() -> None:
    async def test(embedded: EmbeddedFront) -> None:
        embedded.show(authorizer=False)
        client = await embedded.client()
        client.post(join("g", "m1"), 1)
        request = await embedded.request()
        embedded.front.from_coordinator(AskAccess(request.token, frozenset({"orders"})))
        assert embedded.of(AccessAnswer) == [AccessAnswer(request.token, frozenset())]
        assert embedded.brokers.count(Api.LIST_OFFSETS) == 0

    run(test)


def test_of_a_client_that_has_gone_nobody_can_say() -> None:
    async def test(embedded: EmbeddedFront) -> None:
        embedded.show(authorizer=True)
        client = await embedded.client()
        client.post(join("g", "m1"), 1)
        request = await embedded.request()
        client.close()
        embedded.front.from_coordinator(AskAccess(request.token, frozenset({"orders"})))
        embedded.front.from_coordinator(AskAccess(4711, frozenset({"orders"})))
        assert embedded.of(AccessAnswer) == [AccessAnswer(request.token, None), AccessAnswer(4711, None)]

    run(test)


def test_nor_if_it_goes_while_the_broker_is_asked() -> None:
    async def test(embedded: EmbeddedFront) -> None:
        embedded.show(authorizer=True)
        hung = embedded.brokers.faults.hang(Api.LIST_OFFSETS)
        client = await embedded.client()
        client.post(join("g", "m1", topics=None, regex=".*"), 1)
        request = await embedded.request()
        embedded.front.from_coordinator(AskAccess(request.token, frozenset({"orders"})))
        await until(lambda: hung.met)
        client.close()
        await until(lambda: embedded.of(AccessAnswer))
        assert embedded.of(AccessAnswer) == [AccessAnswer(request.token, None)]

    run(test)


# ---- other brokers, other messages
def test_offsets_kept_by_another_broker_go_there_on_the_sidecars_own_connection() -> None:
    async def test(embedded: EmbeddedFront) -> None:
        embedded.show(leaders=(2,))
        client = await embedded.client()
        client.post(commit("g", "m1", 2, "orders", {0: 7}), 9)
        request = await embedded.request()
        assert isinstance(request.event, CommitCheck)
        embedded.reply(request, CheckReply())
        reply = await client.answer(oc.OffsetCommitRequest(), 9)
        assert reply.topics[0].partitions[0].error_code == Code.NONE
        (stored,) = [a for a in embedded.brokers.asked if a.api is Api.OFFSET_COMMIT]
        assert stored.node_id == 2 and stored.request.member_id == ""

    run(test)


@pytest.mark.parametrize("lanes", [1, 3])
def test_commits_of_several_clients_share_so_many_connections_to_it(lanes: int) -> None:
    """A broker answers one request of a connection at a time: a commit that is slow holds up those behind it."""

    async def test(embedded: EmbeddedFront) -> None:
        embedded.show(leaders=(2,))
        hung = embedded.brokers.faults.hang(Api.OFFSET_COMMIT, times=10)
        clients = [await embedded.client() for _ in range(6)]
        for i, client in enumerate(clients):
            client.post(commit("g", f"m{i}", 2, "orders", {i: 7}), 9)
            embedded.reply(await embedded.request(), CheckReply())
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
    """The sidecar cannot say whether the offsets were stored."""

    async def test(embedded: EmbeddedFront) -> None:
        embedded.show(leaders=(2,))
        if down:
            embedded.brokers.stop(2)
        else:
            embedded.brokers.faults.drop(Api.OFFSET_COMMIT)
        client = await embedded.client()
        client.post(commit("g", "m1", 2, "orders", {0: 7}), 9)
        embedded.reply(await embedded.request(), CheckReply())
        await until(lambda: client.closed)
        await turns()
        assert embedded.metrics.value("closed", "broker_closed") == 1

    run(test)


def test_a_handler_may_tell_the_coordinator_something_and_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def reports_settings(call: Call) -> Handler:
        yield SendToCoordinator(SettingsPassed())
        return dg.DescribeGroupsResponse().encode(call.version)

    monkeypatch.setattr(module, "HANDLERS", {**HANDLERS, Api.DESCRIBE_GROUPS: reports_settings})

    async def test(embedded: EmbeddedFront) -> None:
        embedded.show()
        client = await embedded.client()
        await client.ask(dg.DescribeGroupsRequest(["g"]), 5)
        assert embedded.sent == [SettingsPassed()]

    run(test)


def test_the_coordinator_is_told_when_topics_were_changed_through_us() -> None:
    async def test(embedded: EmbeddedFront) -> None:
        client = await embedded.client()
        request = ct.CreateTopicsRequest(topics=[ct.CreatableTopic("orders", 1, 1)])
        await client.ask(request, 5)
        assert embedded.sent == [], "there is no coordinator yet, which reads all topics when it starts"
        embedded.show()
        await client.ask(request, 5)
        assert embedded.sent == [TopicsPassed()]

    run(test)


def test_a_request_may_pass_after_the_coordinator_was_asked() -> None:
    async def test(embedded: EmbeddedFront) -> None:
        embedded.show()
        client = await embedded.client()
        client.post(dg.DescribeGroupsRequest(["g"]), 5)
        embedded.reply(await embedded.request(), GroupsWithRecordsReply())
        reply = await client.answer(dg.DescribeGroupsRequest(), 5)
        assert [g.group_id for g in reply.groups] == ["g"] and embedded.brokers.count(Api.DESCRIBE_GROUPS) == 1

    run(test)


def test_a_new_view_counts_for_requests_that_come_after_it() -> None:
    async def test(embedded: EmbeddedFront) -> None:
        embedded.show()
        client = await embedded.client()
        ask = fc.FindCoordinatorRequest("g", 0, ["g"])
        assert (await client.ask(ask, 4)).coordinators[0].node_id == 1
        embedded.front.from_coordinator(View(owners=(2,), leaders=(1,), brokers={2: ("b2", 9)}))
        found = (await client.ask(ask, 4)).coordinators[0]
        assert (found.node_id, found.host, found.port) == (2, "b2", 9)

    run(test)


# ---- ending
def test_drain_waits_for_answers_under_way_and_then_closes_everything() -> None:
    async def test(embedded: EmbeddedFront) -> None:
        embedded.show()
        busy, idle = await embedded.client(), await embedded.client()
        busy.post(join("g", "m1"), 1)
        request = await embedded.request()
        embedded.front.stop()
        draining = asyncio.get_running_loop().create_task(embedded.front.drain(1.0))
        await asyncio.sleep(0.02)
        assert not draining.done() and not idle.closed
        embedded.reply(request, accepted())
        await draining
        assert (await busy.answer(join("g", "m1"), 1)).error_code == Code.NONE
        assert busy.closed and idle.closed and not embedded.front.server.sessions
        assert embedded.metrics.value("closed", "shutdown") == 2 and embedded.metrics.value("active") == 0

    run(test)


def test_drain_does_not_wait_for_ever() -> None:
    async def test(embedded: EmbeddedFront) -> None:
        embedded.show()
        busy = await embedded.client()
        busy.post(join("g", "m1"), 1)
        await embedded.request()
        await embedded.front.drain(0.03)
        assert busy.closed and not busy.waiting

    run(test)


def test_a_front_that_stops_takes_no_new_connections() -> None:
    async def test(embedded: EmbeddedFront) -> None:
        embedded.front.stop()
        client = await embedded.client()
        assert client.closed

    run(test)


def test_only_so_many_connections_are_taken() -> None:
    async def test(embedded: EmbeddedFront) -> None:
        embedded.show()
        one, two = [await embedded.client() for _ in range(2)]
        for client in (one, two):
            client.post(metadata("t"), 9)
        three = await embedded.client()
        assert (one.closed, two.closed, three.closed) == (False, False, True)
        await turns()
        assert embedded.metrics.value("closed", "too_many_connections") == 1 and embedded.metrics.value("active") == 2
        one.close()
        assert not (await embedded.client()).closed

    run(test, door=DoorSettings(connections_max=2))


def test_tokens_are_never_the_same() -> None:
    async def test(embedded: EmbeddedFront) -> None:
        embedded.show()
        clients = [await embedded.client() for _ in range(5)]
        for client in clients:
            client.post(join("g", "m"), 1)
        asked = [await embedded.request() for _ in clients]
        assert len({r.token for r in asked}) == 5 and all(isinstance(r, Request) for r in asked)

    run(test)


# ---- nothing long before the client is let in
def test_a_long_request_waits_until_the_broker_has_let_its_client_in() -> None:
    async def test(embedded: EmbeddedFront) -> None:
        embedded.show(authorizer=True)
        client = await embedded.client()
        client.post(join("g", "m1", topics=["t" * 200] * 30), 1)
        await until(lambda: embedded.brokers.count(Api.METADATA) == 1)
        assert embedded.metrics.value("probes") == 1
        embedded.reply(await embedded.request(), accepted())
        assert (await client.answer(join("g", "m1"), 1)).error_code == Code.NONE
        client.post(join("g", "m1", topics=["t" * 200] * 30), 1)
        embedded.reply(await embedded.request(), accepted())
        assert (await client.answer(join("g", "m1"), 1)).error_code == Code.NONE
        assert embedded.brokers.count(Api.METADATA) == 1, "it is asked once"

    run(test)


@pytest.mark.parametrize("api", [Api(key) for key in PASSING if key not in BEFORE_ALL], ids=lambda a: a.name.lower())
def test_nothing_long_of_a_client_that_is_not_let_in_is_looked_into(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: nobody, without SASL, stopped all traffic with one request of 220 KB."""

    def touched(call: Call) -> Handler:
        raise AssertionError("it was looked into")
        yield

    monkeypatch.setitem(HANDLERS, api, touched)

    async def test(embedded: EmbeddedFront) -> None:
        embedded.show(authorizer=True)
        embedded.brokers.faults.drop(Api.METADATA)
        client = await embedded.client()
        spec = SERVED[api]
        client.send(request_frame(api, spec.high, 1, "c", spec.high >= spec.flexible_from, b"x" * 5_000))
        await until(lambda: client.closed)
        assert embedded.brokers.count(Api.METADATA) == 1 and "handler broke" not in embedded.lines.events()

    run(test)


def test_what_was_answered_before_lets_the_client_in_as_well() -> None:
    async def test(embedded: EmbeddedFront) -> None:
        embedded.show()
        client = await embedded.client()
        client.post(join("g", "m1"), 1)
        embedded.reply(await embedded.request(), accepted())
        await client.answer(join("g", "m1"), 1)
        client.post(join("g", "m1", topics=["t" * 200] * 30), 1)
        embedded.reply(await embedded.request(), accepted())
        assert embedded.metrics.value("probes") == 0

    run(test)
