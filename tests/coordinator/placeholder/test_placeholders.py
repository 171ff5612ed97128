"""The placeholder that a managed group with members has at its broker: joined, used, lost, given up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sidecar.coordinator.placeholder import placeholders as module
from sidecar.core.runtime.events import DeleteGroup
from sidecar.core.runtime.offset_checks import CommitCheck, MemberIdentity
from sidecar.core.vocabulary.errors import Code
from sidecar.kafka import placeholder_requests as ms
from sidecar.kafka.net import BrokerConnection
from sidecar.link.messages import OpenOffsets, Request
from sidecar.wire.apis import Api
from sidecar.wire.primitives import ZERO_UUID
from tests.coordinator.joined import (
    OURS,
    SLOW_S,
    committed,
    identity,
    joined,
    names,
    ours,
    shorten_pauses,
    simple_commit,
    taken_over,
)
from tests.inprocess.broker import OFFSETS, FakeBrokers
from tests.inprocess.cluster import FakeCluster
from tests.inprocess.embedded_sidecar import EmbeddedSidecar, RecordingFront, run, turns, until
from tests.inprocess.faults import ALWAYS
from tests.inprocess.messages import beat, commit, join


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_pauses(monkeypatch)


# ---- taking a placeholder --------------------------------------------------------------------------------------------
def test_a_group_with_members_has_a_placeholder_and_its_commits_go_on_in_that_name() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        client, epoch = await joined(sidecar)
        await sidecar.all_joined()
        assert identity(sidecar).state == "Stable" and identity(sidecar).metadata == ms.UNREADABLE
        assert await committed(client, epoch) == Code.NONE
        assert names(sidecar) == [(f"{OURS}-1", 1)]
        assert sidecar.metrics.value("placeholders_wanted") == sidecar.metrics.value("placeholders_joined") == 1

    run(test)


def test_a_commit_does_not_wait_while_the_broker_holds_back_the_first_join() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        sidecar.brokers.initial_delay_s = SLOW_S
        begun = time.monotonic()
        client, epoch = await joined(sidecar)
        assert await committed(client, epoch) == Code.NONE
        assert time.monotonic() - begun < SLOW_S and identity(sidecar).state == "PreparingRebalance"
        await sidecar.all_joined()
        assert await committed(client, epoch) == Code.NONE
        assert names(sidecar) == [(f"{OURS}-1", 0), (f"{OURS}-1", 1)]

    run(test)


def test_a_broker_that_comes_late_to_the_first_join_is_looked_at_again() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        sidecar.brokers.initial_delay_s = SLOW_S
        sidecar.brokers.faults.delay(Api.JOIN_GROUP, 0.05, matches=ours)
        client, epoch = await joined(sidecar)
        begun = time.monotonic()
        assert await committed(client, epoch) == Code.NONE
        assert time.monotonic() - begun < SLOW_S and names(sidecar) == [(f"{OURS}-1", 0)]

    run(test)


def test_a_commit_waits_for_the_first_join_if_the_generation_cannot_be_guessed() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        sidecar.brokers.initial_delay_s = SLOW_S
        identity(sidecar).generation = 41
        begun = time.monotonic()
        client, epoch = await joined(sidecar)
        assert await committed(client, epoch) == Code.NONE
        assert round(time.monotonic() - begun, 6) >= SLOW_S
        assert names(sidecar) == [(f"{OURS}-1", 42)]

    run(test)


def test_a_placeholder_given_up_is_remembered_by_its_generation() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        client, epoch = await joined(sidecar)
        await sidecar.all_joined()
        await client.ask(beat("g", "m1", -1), 1)
        await sidecar.all_joined()
        sidecar.brokers.initial_delay_s = SLOW_S
        client, epoch = await joined(sidecar)
        begun = time.monotonic()
        assert await committed(client, epoch) == Code.NONE
        assert time.monotonic() - begun < SLOW_S and names(sidecar) == [(f"{OURS}-2", 2)]

    run(test)


@pytest.mark.parametrize("api", [Api.DESCRIBE_GROUPS, Api.JOIN_GROUP, Api.SYNC_GROUP])
@pytest.mark.parametrize("done", [False, True])
def test_a_connection_that_is_lost_on_the_way_to_a_placeholder(api: Api, done: bool) -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        looks = iter(range(3))
        # The first time a group is described is before it is here.
        second = api is not Api.DESCRIBE_GROUPS
        fault = sidecar.brokers.faults.drop(
            api, done=done, matches=lambda req: ours(req) and (second or next(looks) > 0)
        )
        client, epoch = await joined(sidecar)
        assert await committed(client, epoch) == Code.NONE
        assert fault.met == 1 and sidecar.metrics.value("placeholder_troubles") >= 1

    run(test)


@pytest.mark.parametrize("code", [Code.NOT_COORDINATOR, Code.COORDINATOR_LOAD_IN_PROGRESS, Code.UNKNOWN_MEMBER_ID])
def test_a_broker_that_is_not_ready_is_asked_again(code: Code) -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        sidecar.brokers.faults.fail(Api.JOIN_GROUP, code, times=3, matches=ours)
        client, epoch = await joined(sidecar)
        assert await committed(client, epoch) == Code.NONE

    run(test)


def test_a_session_longer_than_the_broker_allows_is_halved() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        sidecar.brokers.faults.fail(Api.JOIN_GROUP, Code.INVALID_SESSION_TIMEOUT, times=2, matches=ours)
        await joined(sidecar)
        await sidecar.all_joined()
        assert (
            sidecar.lines.fields("the broker allows no session so long; it is halved")["session_timeout_ms"] == 75_000
        )

    run(test)


def test_a_session_that_many_joins_at_once_find_too_long_is_halved_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: no group had a placeholder. Cause: each of the joins that were refused at the same time halved the
    session once more, until it was shorter than the broker allows."""
    answered_at_once = ms.join

    async def test(sidecar: EmbeddedSidecar) -> None:
        joins: list[int] = []
        all_asked = asyncio.Event()

        def refused(req: Any) -> bool:
            joins.append(req.session_timeout_ms)
            if len(joins) == 10:
                all_asked.set()
            return ours(req) and not 6_000 <= req.session_timeout_ms <= 200_000

        async def answered_together(*request: Any) -> Any:
            res = await answered_at_once(*request)
            await all_asked.wait()
            return res

        monkeypatch.setattr(ms, "join", answered_together)
        sidecar.brokers.faults.fail(Api.JOIN_GROUP, Code.INVALID_SESSION_TIMEOUT, ALWAYS, refused)
        client = await sidecar.client()
        for i in range(10):
            client.post(join(f"g{i}", "m1"), 1)
        await until(lambda: sidecar.metrics.value("placeholders_joined") == 10)
        assert joins == [300_000] * 10 + [150_000] * 10
        assert sidecar.lines.events("warning").count("the broker allows no session so long; it is halved") == 1

    run(test)


def test_native_members_at_the_broker_are_waited_for_and_told_of() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        client, epoch = await joined(sidecar)
        await sidecar.all_joined()
        identity(sidecar).expel()
        identity(sidecar).natives = 2  # past the sidecars
        assert await committed(client, epoch) == Code.COORDINATOR_LOAD_IN_PROGRESS
        await until(lambda: "placeholders cannot join" in sidecar.lines.events("warning"))
        assert "members of its own" in sidecar.lines.fields("placeholders cannot join")["problem"]
        identity(sidecar).natives = 0
        await sidecar.all_joined()
        assert await committed(client, epoch) == Code.NONE

    run(test, placeholders={"wait_ms": 50})


def test_many_first_joins_wait_for_their_turn() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        sidecar.brokers.initial_delay_s = 0.02
        client = await sidecar.client()
        for i in range(10):
            await client.ask(join(f"g{i}", "m1"), 1)
        await sidecar.all_joined()
        assert sidecar.metrics.value("placeholders_joined") == 10

    run(test, placeholders={"first_joins": 2})


def test_nobody_rests_for_long_while_a_commit_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: after the death of a broker, commits came up to 0.8 s later than at Kafka's own coordinator. Cause: its
    successor was still loading, and it was asked again after a pause that had doubled up to a second or two."""
    monkeypatch.setattr(module, "PAUSE_MAX_MS", 3_600_000)
    monkeypatch.setattr(module, "PATIENCE_MS", 10)

    async def test(sidecar: EmbeddedSidecar) -> None:
        loading = sidecar.brokers.faults.fail(Api.JOIN_GROUP, Code.COORDINATOR_LOAD_IN_PROGRESS, ALWAYS)
        client, epoch = await joined(sidecar)
        await until(lambda: loading.met == 5)  # after 75 ms; the next pause takes 160 ms
        commits = asyncio.get_running_loop().create_task(committed(client, epoch))
        await until(lambda: loading.met == 30)
        loading.end()
        assert await asyncio.wait_for(commits, 1) == Code.NONE

    run(test)


def test_commits_that_keep_coming_do_not_put_off_the_next_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: commits of a busy group failed for as long as they kept coming, though its broker had loaded long ago.
    Cause: each commit that began to wait started the back-off of its placeholder again."""
    monkeypatch.setattr(module, "PAUSE_MAX_MS", 2_000)

    async def test(sidecar: EmbeddedSidecar) -> None:
        loading = sidecar.brokers.faults.fail(Api.JOIN_GROUP, Code.COORDINATOR_LOAD_IN_PROGRESS, ALWAYS)
        client, epoch = await joined(sidecar)
        clients = [client, *[await sidecar.client() for _ in range(29)]]
        message = commit("g", "m1", epoch, "orders", {0: 7})
        for number, each in enumerate(clients):
            asyncio.get_running_loop().call_later(number * 0.05, each.post, message, 9)
        placeholders = sidecar.coordinator.placeholders
        placeholder = placeholders.get("g")
        assert placeholder is not None
        await until(lambda: placeholder.pause_ms > 2 * module.PATIENCE_MS)
        loading.end()
        await until(lambda: placeholders.all_joined, 2 * module.PATIENCE_MS / 1000)
        assert not clients[-1].waiting, "commits still come"
        answers = [await each.answer(message, 9) for each in clients]
        assert {a.topics[0].partitions[0].error_code for a in answers} == {Code.NONE}

    run(test)


@pytest.mark.parametrize("wanted", [False, True])
def test_a_group_that_the_sidecar_may_not_read_is_asked_for_seldom(
    wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Symptom: after a takeover, the owner described a group of the broker's own every two seconds for ever, as an old
    order named it and the right to it had been taken away."""
    monkeypatch.setattr(module, "REFUSED_MS", 1_500)

    async def test(sidecar: EmbeddedSidecar) -> None:
        managed = sidecar.rules.wanted
        sidecar.rules.wanted = lambda group_id: wanted and managed(group_id)  # type: ignore[method-assign]
        sidecar.brokers.no_read.add("g")
        placeholders = sidecar.coordinator.placeholders
        placeholders.occupied("g", members=wanted)
        begun_s = time.monotonic()
        await until(lambda: sidecar.metrics.value("placeholder_troubles") == 1)
        if not wanted:
            assert placeholders.get("g") is None
            return
        await until(lambda: sidecar.metrics.value("placeholder_troubles") == 3)
        assert round(time.monotonic() - begun_s, 3) >= 2 * module.REFUSED_MS / 1000
        assert sidecar.lines.fields("placeholders cannot join")["problem"].endswith("GROUP_AUTHORIZATION_FAILED")
        sidecar.brokers.no_read.discard("g")
        await until(lambda: placeholders.all_joined, module.REFUSED_MS / 1000)

    run(test)


def test_a_commit_makes_the_sidecar_ask_soon_whether_it_may_read_the_group() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        client, epoch = await joined(sidecar)
        await sidecar.all_joined()
        sidecar.brokers.no_read.add("g")
        identity(sidecar).expel()
        client.post(commit("g", "m1", epoch, "orders", {0: 7}), 9)
        placeholder = sidecar.coordinator.placeholders.get("g")
        await until(lambda: placeholder is not None and placeholder.pause_ms == module.REFUSED_MS)
        sidecar.brokers.no_read.discard("g")
        await until(lambda: sidecar.coordinator.placeholders.all_joined, 2 * module.PAUSE_MAX_MS / 1000)

    run(test)


# ---- losing it ------------------------------------------------------------------------------------------------------
def test_a_placeholder_that_the_broker_has_forgotten_is_taken_anew() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        client, epoch = await joined(sidecar)
        await sidecar.all_joined()
        identity(sidecar).expel()
        assert await committed(client, epoch) == Code.NONE
        assert [n for n, _ in names(sidecar)] == [f"{OURS}-1", f"{OURS}-2"]
        assert sidecar.metrics.value("placeholders_lost") == 1

    run(test)


def test_a_placeholder_that_another_took_is_taken_back_by_the_owner() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        client, epoch = await joined(sidecar)
        await sidecar.all_joined()
        identity(sidecar).take()
        assert await committed(client, epoch) == Code.NONE
        assert [n for n, _ in names(sidecar)] == [f"{OURS}-1", f"{OURS}-3"]

    run(test)


def test_a_former_owner_that_takes_the_placeholder_back_does_not_use_it() -> None:
    """The lease says that it still owns the partition; the fenced write behind the JoinGroup says that it does not."""

    async def test(sidecar: EmbeddedSidecar) -> None:
        client, epoch = await joined(sidecar)
        await sidecar.all_joined()
        taken_over(sidecar)
        identity(sidecar).take()
        assert await committed(client, epoch) == Code.COORDINATOR_LOAD_IN_PROGRESS
        assert [n for n, _ in names(sidecar)] == [f"{OURS}-1"]

    run(test, service={"hold_ms": 0})


@pytest.mark.parametrize("first", [False, True])
def test_the_fenced_write_alone_shows_that_a_placeholder_is_of_no_use(first: bool) -> None:
    """The tail has not come to the other owner's claim, and the lease lasts."""

    async def test(sidecar: EmbeddedSidecar) -> None:
        if first:
            joins = sidecar.brokers.faults.hang(Api.JOIN_GROUP, matches=ours)
        client, epoch = await joined(sidecar)
        if not first:
            await sidecar.all_joined()
        client.post(commit("g", "m1", epoch, "orders", {0: 7}), 9)
        if first:
            await until(lambda: joins.parked)
        else:
            await client.answer(commit("g", "m1", epoch, "orders", {0: 7}), 9)
            identity(sidecar).take()
        sidecar.tail.hold()
        taken_over(sidecar)
        before = names(sidecar)
        if first:
            joins.release()
        else:
            client.post(commit("g", "m1", epoch, "orders", {0: 8}), 9)
        res = await client.answer(commit("g", "m1", epoch, "orders", {0: 8}), 9)
        assert res.topics[0].partitions[0].error_code in (Code.COORDINATOR_LOAD_IN_PROGRESS, Code.NOT_COORDINATOR)
        assert {n for n, _ in names(sidecar)[len(before) :]} <= {f"{OURS}-1"}, "which the broker refuses"
        sidecar.tail.release()

    run(test, service={"hold_ms": 0})


def test_only_the_placeholder_that_was_taken_last_is_used_when_it_is_proved() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        await joined(sidecar)
        await sidecar.all_joined()
        placeholders = sidecar.coordinator.placeholders
        group = placeholders._groups["g"]
        proved: list[Callable[[], None]] = []
        placeholders._ports = replace(placeholders._ports, prove=lambda partition, then: proved.append(then))
        before, one, two = group.identity, MemberIdentity("one", 5, "i"), MemberIdentity("two", 6, "i")
        for taken in (one, two):
            placeholders.taken(group, taken, True)
        assert group.identity is before and group.joining is two, "none of them is proved yet"
        proved[0]()
        assert group.identity is before
        proved[1]()
        assert group.identity is two and group.joining is None

    run(test)


@pytest.mark.parametrize("anew", [True, False])
def test_what_is_in_doubt_is_over_only_with_a_placeholder_of_another_name(anew: bool) -> None:
    """Without `anew` the placeholder was asked for before the doubt, so the broker may still take the commit."""

    async def test(sidecar: EmbeddedSidecar) -> None:
        await joined(sidecar)
        await sidecar.all_joined()
        placeholders = sidecar.coordinator.placeholders
        group, under_way = placeholders._groups["g"], placeholders.commits._under_way
        proved: list[Callable[[], None]] = []
        placeholders._ports = replace(placeholders._ports, prove=lambda partition, then: proved.append(then))
        ticket = under_way.begin("g", "m1", (("orders", ZERO_UUID, 0),), (1, 1), 0)
        under_way.doubt(ticket)
        group.renew = not anew
        placeholders.taken(group, MemberIdentity("new", 5, "i"), True)
        proved[0]()
        assert under_way.still([ticket]) == (not anew)

    run(test)


def test_a_first_placeholder_of_a_former_owner_is_not_used_either() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        parked = sidecar.brokers.faults.hang(Api.JOIN_GROUP, matches=ours)
        client, epoch = await joined(sidecar)
        client.post(commit("g", "m1", epoch, "orders", {0: 7}), 9)
        await until(lambda: parked.parked)
        taken_over(sidecar)
        parked.release()
        res = await client.answer(commit("g", "m1", epoch, "orders", {0: 7}), 9)
        assert res.topics[0].partitions[0].error_code == Code.COORDINATOR_LOAD_IN_PROGRESS and names(sidecar) == []

    run(test, service={"hold_ms": 0})


def test_the_offsets_leader_moves() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        client, epoch = await joined(sidecar)
        await sidecar.all_joined()
        sidecar.brokers.topics[OFFSETS].leaders = [2]
        sidecar.show()
        await until(lambda: any(a.api is Api.HEARTBEAT and a.node_id == 2 for a in sidecar.brokers.asked))
        assert await committed(client, epoch) == Code.NONE
        assert sidecar.metrics.value("placeholders_lost") == 0

    brokers = FakeBrokers(nodes=(1, 2), partitions=1)
    run(test, brokers=brokers, placeholders={"session_timeout_ms": 60})


def test_the_new_leader_of_the_offsets_is_asked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest after trouble with the former one is cut short; here it would last longer than any test."""
    monkeypatch.setattr(module, "PAUSE_MS", 3_600_000)
    monkeypatch.setattr(module, "PAUSE_MAX_MS", 3_600_000)

    async def test(sidecar: EmbeddedSidecar) -> None:
        sidecar.brokers.faults.fail(Api.JOIN_GROUP, Code.NOT_COORDINATOR, matches=ours)
        await joined(sidecar)
        await until(lambda: sidecar.metrics.value("placeholder_troubles") > 0)
        sidecar.brokers.topics[OFFSETS].leaders = [2]
        sidecar.show()
        await sidecar.all_joined()

    run(test, brokers=FakeBrokers(nodes=(1, 2), partitions=1))


def test_a_former_leader_that_never_answers_is_not_waited_for() -> None:
    """Symptom: where a broker stood still, commits were taken 2 s later than at Kafka's own coordinator, although the
    group had a new owner and its offsets a new leader. Cause: the placeholder was still being asked for at the former
    one."""

    async def test(sidecar: EmbeddedSidecar) -> None:
        hanging = sidecar.brokers.faults.hang(Api.JOIN_GROUP, matches=ours)
        client, epoch = await joined(sidecar)
        await until(lambda: hanging.met > 0)
        waiting = asyncio.create_task(committed(client, epoch))
        await asyncio.sleep(0.02)
        hanging.end()
        sidecar.brokers.topics[OFFSETS].leaders = [2]
        sidecar.show()
        assert await waiting == Code.NONE
        hanging.release()
        await asyncio.sleep(0.05)
        assert await committed(client, epoch) == Code.NONE, "what the former one says late concerns nobody"
        assert sidecar.metrics.value("placeholders_joined") == 1

    run(test, brokers=FakeBrokers(nodes=(1, 2), partitions=1))


# ---- giving it up ---------------------------------------------------------------------------------------------------
def test_the_placeholder_is_given_up_with_the_last_member() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        client, _ = await joined(sidecar)
        await sidecar.all_joined()
        assert await simple_commit(client) == Code.UNKNOWN_MEMBER_ID
        await client.ask(beat("g", "m1", -1), 1)
        assert await simple_commit(client) == Code.NONE, "it waits until the broker's group has no member"
        assert identity(sidecar).state == "Empty" and sidecar.metrics.value("placeholders_wanted") == 0

    run(test)


def test_a_placeholder_left_behind_is_given_up_when_it_is_in_the_way() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        client = await sidecar.client()
        there = identity(sidecar, "old")
        there.instance_id, there.state = OURS, "Stable"
        there.take()
        assert await simple_commit(client, "old") == Code.NONE
        assert there.state == "Empty"
        there.natives, there.state = 1, "Stable"
        assert await simple_commit(client, "old") == Code.UNKNOWN_MEMBER_ID, "native members are left alone"

    run(test)


def test_a_placeholder_that_comes_when_the_partition_is_gone_is_given_up_at_once() -> None:
    """The partition's next owner has already looked for a placeholder, so nobody else would find this one."""

    async def test(sidecar: EmbeddedSidecar) -> None:
        parked = sidecar.brokers.faults.hang(Api.JOIN_GROUP, matches=ours)
        await joined(sidecar)
        await until(lambda: parked.parked)
        sidecar.assign(2)
        await turns()
        parked.release()
        await until(lambda: sidecar.brokers.count(Api.LEAVE_GROUP) > 0)
        await until(lambda: identity(sidecar).state == "Empty")

    run(test)


def test_a_placeholder_is_not_asked_for_when_the_partition_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        opened, opening = asyncio.Event(), FakeCluster.open
        waits: list[int] = []

        async def slowly(self: FakeCluster, node_id: int) -> BrokerConnection:
            if sidecar.brokers.count(Api.DESCRIBE_GROUPS):  # it has looked: now it asks
                waits.append(node_id)
                await opened.wait()
            return await opening(self, node_id)

        monkeypatch.setattr(FakeCluster, "open", slowly)
        await joined(sidecar)
        await until(lambda: waits)
        sidecar.assign(2)
        await turns()
        opened.set()
        await asyncio.sleep(0.05)
        assert sidecar.brokers.count(Api.JOIN_GROUP) == 0 and identity(sidecar).state == "Empty"

    run(test)


def test_a_takeover_finds_placeholders_of_groups_without_members() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        client, _ = await joined(sidecar)
        await sidecar.all_joined()
        fault = sidecar.brokers.faults.fail(Api.LEAVE_GROUP, Code.COORDINATOR_NOT_AVAILABLE, ALWAYS)
        await client.ask(beat("g", "m1", -1), 1)
        await until(lambda: fault.met)
        sidecar.assign(2)
        fault.end()
        await turns()
        assert identity(sidecar).state == "Stable"
        await sidecar.own()
        await until(lambda: identity(sidecar).state == "Empty")

    run(test)


def test_before_a_group_is_deleted_its_placeholder_is_given_up() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        client, _ = await joined(sidecar)
        await sidecar.all_joined()
        late = sidecar.brokers.faults.delay(Api.LEAVE_GROUP, 0.05)
        await client.ask(beat("g", "m1", -1), 1)
        front = RecordingFront(sidecar.coordinator)
        front.send(Request(1, OpenOffsets("g")))
        assert (await front.reply(1)).code == Code.NONE
        assert late.met == 1 and identity(sidecar).state == "Empty"
        front.send(Request(2, DeleteGroup("g")))
        assert (await front.reply(2)).code == Code.NONE

    run(test)


def test_the_last_sidecar_gives_up_every_placeholder() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        client = await sidecar.client()
        for i in range(5):
            await client.ask(join(f"g{i}", "m1"), 1)
        await sidecar.all_joined()
        await sidecar.coordinator.stop()
        await sidecar.coordinator.give_up_placeholders()
        assert {identity(sidecar, f"g{i}").state for i in range(5)} == {"Empty"}
        assert sidecar.lines.fields("placeholders given up")["groups"] == 5

    run(test)


def test_a_placeholder_that_cannot_be_given_up_keeps_none_of_the_others() -> None:
    """Symptom: the first leave that failed ended the wait for all, and the sidecar ended before they had left."""

    async def test(sidecar: EmbeddedSidecar) -> None:
        client = await sidecar.client()
        for group_id in ("g", "h"):
            await client.ask(join(group_id, "m1"), 1)
        await sidecar.all_joined()
        await sidecar.coordinator.stop()
        leaves = sidecar.brokers.faults
        leaves.fail(Api.LEAVE_GROUP, Code.NOT_COORDINATOR, matches=lambda req: req.group_id == "h")
        leaves.delay(Api.LEAVE_GROUP, 0.5, matches=lambda req: req.group_id == "g")
        await sidecar.coordinator.give_up_placeholders()
        assert (identity(sidecar, "g").state, identity(sidecar, "h").state) == ("Empty", "Stable")

    run(test)


def test_the_end_does_not_wait_for_a_broker_that_is_gone() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        await joined(sidecar)
        await sidecar.all_joined()
        sidecar.brokers.stop(1)
        await sidecar.coordinator.give_up_placeholders()
        assert "placeholders stay at the brokers until their sessions end" in sidecar.lines.events("warning")

    run(test)


def test_a_check_of_an_older_kind_of_producer_gets_the_placeholder_too() -> None:
    """A transactional producer that names no member (before KIP-447)."""

    async def test(sidecar: EmbeddedSidecar) -> None:
        await joined(sidecar)
        front = RecordingFront(sidecar.coordinator)
        front.send(Request(1, CommitCheck("g", "", -1, None, 2, True, ())))
        reply = await front.reply(1)
        assert reply.code == Code.NONE and reply.identity.instance_id == OURS

    run(test)
