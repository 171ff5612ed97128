"""Commits, fetches and deletions of offsets wait until their placeholder is there."""

from __future__ import annotations

import asyncio

import pytest

from sidecar.coordinator.placeholder import placeholders as module
from sidecar.core.runtime.offset_checks import CheckReply, CommitCheck, FetchCheck
from sidecar.core.vocabulary.errors import Code
from sidecar.kafka import placeholder_requests as ms
from sidecar.link.messages import CommitEnded, OpenOffsets, Reply, Request
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
)
from tests.inprocess.embedded_sidecar import EmbeddedSidecar, RecordingFront, run, turns, until
from tests.inprocess.messages import commit


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_pauses(monkeypatch)


def test_a_commit_does_not_wait_for_ever() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        sidecar.brokers.faults.hang(Api.JOIN_GROUP)
        client, epoch = await joined(sidecar)
        assert await committed(client, epoch) == Code.COORDINATOR_LOAD_IN_PROGRESS
        assert names(sidecar) == []

    run(test, placeholders={"wait_ms": 50})


def test_more_commits_than_may_wait_are_refused() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        sidecar.brokers.faults.hang(Api.JOIN_GROUP)
        client, epoch = await joined(sidecar)
        client.post(commit("g", "m1", epoch, "orders", {0: 7}), 9)
        await turns()
        assert await committed(await sidecar.client(), epoch) == Code.COORDINATOR_NOT_AVAILABLE

    run(test, placeholders={"parked_max": 1})


async def first_commit_under_way(sidecar: EmbeddedSidecar, commits: int) -> tuple[RecordingFront, CheckReply]:
    """Sends so many commits for one partition, each over a connection and with the token of its number. Returns the
    front, and the answer to the first one, which is under way then."""
    _, epoch = await joined(sidecar)
    await sidecar.all_joined()
    front = RecordingFront(sidecar.coordinator)
    for n in range(1, commits + 1):
        place = ("orders", ZERO_UUID, 0)
        front.send(Request(n, CommitCheck("g", "m1", epoch, None, 9, False, (place,), connection=n)))
    return front, await front.reply(1)


def test_a_commit_that_has_no_room_to_wait_is_not_under_way() -> None:
    """Symptom: for 15 s all commits for its partition waited for it, and then the placeholder was taken anew."""

    async def test(sidecar: EmbeddedSidecar) -> None:
        front, first = await first_commit_under_way(sidecar, commits=3)
        assert (await front.reply(3)).code == Code.COORDINATOR_NOT_AVAILABLE
        front.send(CommitEnded(first.ticket, True))
        front.send(CommitEnded((await front.reply(2)).ticket, True))
        assert sidecar.coordinator.placeholders.commits.quiet

    run(test, placeholders={"parked_max": 1})


def test_a_commit_that_has_waited_too_long_is_not_under_way() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        front, first = await first_commit_under_way(sidecar, commits=2)
        assert (await front.reply(2)).code == Code.COORDINATOR_LOAD_IN_PROGRESS
        front.send(CommitEnded(first.ticket, True))
        assert sidecar.coordinator.placeholders.commits.quiet

    run(test, placeholders={"wait_ms": 50})


def test_before_offsets_are_deleted_the_broker_is_shown_the_subscription_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "OPEN_MS", 50)

    async def test(sidecar: EmbeddedSidecar) -> None:
        client, epoch = await joined(sidecar)
        await sidecar.all_joined()
        front = RecordingFront(sidecar.coordinator)
        front.send(Request(1, OpenOffsets("g", frozenset({"orders"}))))
        assert (await front.reply(1)).code == Code.NONE
        assert identity(sidecar).metadata == ms.readable({"orders"}) and identity(sidecar).generation == 2
        assert await committed(client, epoch) == Code.NONE
        await until(lambda: identity(sidecar).metadata == ms.UNREADABLE)
        await sidecar.all_joined()
        assert await committed(client, epoch) == Code.NONE
        assert names(sidecar) == [(f"{OURS}-1", 2), (f"{OURS}-1", 3)]

    run(test)


async def moved_away_and_back(sidecar: EmbeddedSidecar) -> None:
    sidecar.assign(2)
    await turns()
    await sidecar.own()


def test_a_fetch_is_answered_only_when_no_former_owner_can_commit_any_more() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        await joined(sidecar)
        await sidecar.all_joined()
        joins = sidecar.brokers.faults.hang(Api.JOIN_GROUP, matches=ours)
        await moved_away_and_back(sidecar)
        front = RecordingFront(sidecar.coordinator)
        front.send(Request(1, FetchCheck("g", None, -1)))
        await until(lambda: joins.parked)
        await turns()
        assert front.of(Reply) == [] and identity(sidecar).member_id == f"{OURS}-1"
        joins.release()
        assert await front.reply(1) == CheckReply() and identity(sidecar).member_id == f"{OURS}-2"

    run(test)


def test_a_commit_that_waited_for_the_takeover_waits_no_longer_for_its_placeholder() -> None:
    """Symptom: a commit was let in ten seconds after it was sent, when its member had fetched older offsets. Cause:
    it waited five seconds for the takeover, and then five more for the placeholder."""

    async def test(sidecar: EmbeddedSidecar) -> None:
        _, epoch = await joined(sidecar)
        await sidecar.all_joined()
        joins = sidecar.brokers.faults.hang(Api.JOIN_GROUP, matches=ours)
        fences = sidecar.brokers.faults.hang(Api.INIT_PRODUCER_ID)
        sidecar.assign(2)
        await turns()
        sidecar.assign(1)
        await until(lambda: fences.parked)
        front = RecordingFront(sidecar.coordinator)
        check = CommitCheck("g", "m1", epoch, None, 9, False, (("orders", ZERO_UUID, 0),))
        front.send(Request(1, check))
        await asyncio.sleep(0.01)
        fences.release()
        await until(lambda: joins.parked)
        await turns()
        (parked,) = sidecar.coordinator.placeholders.commits._parked["g"]
        assert parked.until_ms == check.asked_ms + 5_000

    run(test)


def test_a_fetch_of_a_new_group_does_not_wait_for_the_placeholder() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        sidecar.brokers.initial_delay_s = SLOW_S
        await joined(sidecar)
        front = RecordingFront(sidecar.coordinator)
        front.send(Request(1, FetchCheck("g", None, -1)))
        assert await front.reply(1) == CheckReply()
        assert identity(sidecar).state in ("Empty", "PreparingRebalance")

    run(test)


def test_those_who_wait_are_sent_on_when_the_partition_moves() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        sidecar.brokers.faults.hang(Api.JOIN_GROUP, matches=ours)
        client, epoch = await joined(sidecar)
        client.post(commit("g", "m1", epoch, "orders", {0: 7}), 9)
        await turns()
        sidecar.assign(2)
        res = await client.answer(commit("g", "m1", epoch, "orders", {0: 7}), 9)
        assert res.topics[0].partitions[0].error_code == Code.NOT_COORDINATOR

    run(test)
