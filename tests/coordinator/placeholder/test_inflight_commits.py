"""Commits that have been let pass: in what order, and what becomes of them when the owner is another one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from sidecar.coordinator.placeholder import commit_gate as module
from sidecar.coordinator.placeholder.inflight_commits import UnderWay
from sidecar.core.runtime.offset_checks import CheckReply, CommitCheck, FetchCheck, Place
from sidecar.core.vocabulary.errors import Code
from sidecar.link.messages import CommitEnded, Reply, Request
from sidecar.wire.apis import Api
from sidecar.wire.primitives import ZERO_UUID
from tests.coordinator.joined import OURS, committed, identity, joined, names, ours, shorten_pauses
from tests.inprocess.embedded_sidecar import EmbeddedSidecar, RecordingFront, run, turns, until
from tests.inprocess.messages import commit, join


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_pauses(monkeypatch)


# ---- commits of two members -----------------------------------------------------------------------------------------
def check(member: str, epoch: int, *partitions: int) -> CommitCheck:
    return CommitCheck("g", member, epoch, None, 9, False, tuple(("orders", ZERO_UUID, p) for p in partitions))


ANYBODY = {"refuse_commits_of_others": False}
"""Tests in which any member may commit for any partition."""


async def two_members(sidecar: EmbeddedSidecar) -> RecordingFront:
    """Members m1 and m2 of one group with a placeholder. Returns a front that speaks for both."""
    client, _ = await joined(sidecar)
    await client.ask(join("g", "m2"), 1)
    await sidecar.all_joined()
    shard = sidecar.owner_of("g").shard
    assert shard is not None
    group: Any = shard.groups["g"]
    for name, m in list(group.members.items()):
        group.members[name] = replace(m, member_epoch=3)
    return RecordingFront(sidecar.coordinator)


async def passed(front: RecordingFront, token: int, event: Any) -> CheckReply:
    front.send(Request(token, event))
    reply = await front.reply(token)
    assert isinstance(reply, CheckReply) and reply.code == Code.NONE
    return reply


async def waits(front: RecordingFront, token: int, event: Any) -> None:
    front.send(Request(token, event))
    await turns()
    assert all(m.token != token for m in front.of(Reply))


def test_another_member_waits_for_a_commit_that_is_under_way_to_the_same_partition() -> None:
    """Symptom: a commit of a partition's former member came over another connection, behind one of its new member."""

    async def test(sidecar: EmbeddedSidecar) -> None:
        front = await two_members(sidecar)
        first = await passed(front, 1, check("m1", 3, 0))
        await passed(front, 2, check("m1", 3, 0))
        await passed(front, 3, check("m2", 3, 1))
        await waits(front, 4, check("m2", 3, 0, 1))
        await waits(front, 5, FetchCheck("g", "m2", 3))
        front.send(CommitEnded(first.ticket, sure=True))
        await turns()
        assert all(r.token not in (4, 5) for r in front.of(Reply)), "the second one of m1 is still under way"
        front.send(CommitEnded((await front.reply(2)).ticket, sure=True))
        assert (await front.reply(4)).identity == first.identity and (await front.reply(5)).code == Code.NONE
        await waits(front, 6, check("m1", 3, 1))

    run(test, consumer=ANYBODY)


def test_a_member_that_has_given_up_waiting_does_not_overtake_itself() -> None:
    """Found by the simulation, seed 599: it committed again over another connection, and when both could be written,
    the older commit came in later. What was acknowledged had gone back."""

    async def test(sidecar: EmbeddedSidecar) -> None:
        front = await two_members(sidecar)
        first = await passed(front, 1, check("m1", 3, 0))
        later = msgspec.structs.replace(check("m1", 3, 0), connection=1)
        await waits(front, 2, later)
        front.send(CommitEnded(first.ticket, sure=True))
        assert (await front.reply(2)).identity == first.identity

    run(test, consumer=ANYBODY)


@pytest.mark.parametrize("how", ["told", "front"])
def test_a_commit_in_doubt_is_waited_for_until_the_broker_would_refuse_it(how: str) -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        front = await two_members(sidecar)
        first = await passed(front, 1, check("m1", 3, 0))
        second = RecordingFront(sidecar.coordinator)
        joins = sidecar.brokers.faults.hang(Api.JOIN_GROUP, matches=ours)
        if how == "told":
            front.send(CommitEnded(first.ticket, sure=False))
        else:
            front.leave()
        await waits(second, 2, check("m2", 3, 0))
        await until(lambda: joins.parked)
        joins.release()
        reply = await second.reply(2)
        assert first.identity is not None and reply.identity.member_id == f"{OURS}-2" != first.identity.member_id
        assert identity(sidecar).commit_refusal(first.identity.member_id, OURS, 1) == Code.FENCED_INSTANCE_ID

    run(test, consumer=ANYBODY)


def test_a_commit_of_which_nobody_speaks_any_more_is_in_doubt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOST_SIGHT_MS", 30)

    async def test(sidecar: EmbeddedSidecar) -> None:
        front = await two_members(sidecar)
        first = await passed(front, 1, check("m1", 3, 0))
        assert (await passed(front, 2, check("m2", 3, 0))).identity != first.identity

    run(test, consumer=ANYBODY)


def test_those_who_wait_for_a_commit_do_not_wait_for_ever() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        front = await two_members(sidecar)
        await passed(front, 1, check("m1", 3, 0))
        front.send(Request(2, check("m2", 3, 0)))
        assert (await front.reply(2)).code == Code.COORDINATOR_LOAD_IN_PROGRESS
        front.send(Request(3, check("m2", 3, 0)))
        sidecar.assign(2)
        assert (await front.reply(3)).code == Code.NOT_COORDINATOR and sidecar.coordinator.placeholders.commits.quiet

    run(test, consumer=ANYBODY, placeholders={"wait_ms": 50})


@pytest.mark.parametrize("done", [False, True])
def test_a_commit_whose_connection_breaks_is_in_doubt(done: bool) -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        client, epoch = await joined(sidecar)
        await sidecar.all_joined()
        sidecar.brokers.faults.drop(Api.OFFSET_COMMIT, done=done)
        client.post(commit("g", "m1", epoch, "orders", {0: 7}), 9)
        await until(lambda: client.closed)
        await until(lambda: identity(sidecar).member_id == f"{OURS}-2")
        await sidecar.all_joined()
        assert sidecar.coordinator.placeholders.commits.quiet
        assert (
            await committed(await sidecar.client(), epoch) == Code.NONE
            and sidecar.coordinator.placeholders.commits.quiet
        )

    run(test)


def test_a_client_that_is_gone_before_its_commit_is_sent_leaves_no_doubt() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        client, epoch = await joined(sidecar)
        await sidecar.all_joined()
        client.post(commit("g", "m1", epoch, "orders", {0: 7}), 9)
        client.close()
        await turns(200)
        assert sidecar.coordinator.placeholders.commits.quiet

    run(test)


# ---- taking over ----------------------------------------------------------------------------------------------------
async def moved_away_and_back(sidecar: EmbeddedSidecar) -> None:
    sidecar.assign(2)
    await turns()
    await sidecar.own()


def test_a_new_owner_takes_the_placeholder_over() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        client, epoch = await joined(sidecar)
        await sidecar.all_joined()
        await moved_away_and_back(sidecar)
        await until(lambda: identity(sidecar).member_id == f"{OURS}-2")
        assert identity(sidecar).generation == 1, "the group at the broker does not rebalance for it"
        assert await committed(client, epoch) == Code.NONE and names(sidecar) == [(f"{OURS}-2", 1)]

    run(test)


def test_renewing_the_fence_keeps_the_placeholders() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        client, epoch = await joined(sidecar)
        await sidecar.all_joined()
        joins = sidecar.brokers.count(Api.JOIN_GROUP)
        epoch_of = sidecar.state.partitions[0].owners.claimed
        await sidecar.answered_until(lambda: sidecar.state.partitions[0].owners.claimed > epoch_of)
        await until(lambda: sidecar.service.serving() == [0])
        assert await committed(client, epoch) == Code.NONE
        assert sidecar.brokers.count(Api.JOIN_GROUP) == joins and names(sidecar) == [(f"{OURS}-1", 1)]

    run(test, service={"fence_interval_ms": 100})


@pytest.mark.parametrize(
    ("first", "second", "waits"),
    [
        (("orders", ZERO_UUID, 0), ("orders", ZERO_UUID, 0), True),
        (("orders", ZERO_UUID, 0), ("orders", ZERO_UUID, 1), False),
        (("orders", ZERO_UUID, 0), ("others", ZERO_UUID, 0), False),
        (("", b"\1" * 16, 0), ("", b"\1" * 16, 0), True),
        (("", b"\1" * 16, 0), ("", b"\2" * 16, 0), False),
        (("orders", ZERO_UUID, 0), ("", b"\1" * 16, 0), True),
    ],
)
def test_a_topic_may_be_told_by_its_name_or_by_its_id(first: Place, second: Place, waits: bool) -> None:
    """Whether a name and an id are one topic is not known here: then the second commit waits."""
    under_way = UnderWay()
    ticket = under_way.begin("g", "m1", (first,), (1, 1), 0)
    behind = under_way.before_commit("g", "m2", (second,), (1, 2))
    assert behind == (frozenset([ticket]) if waits else frozenset())
    under_way.end(ticket)
    assert not under_way.before_commit("g", "m2", (second,), (1, 2)) and not under_way._of_place


def test_the_end_of_a_commit_of_an_earlier_coordinator_ends_none_of_the_next() -> None:
    """Symptom: tickets began at 1 in each coordinator. A front that reported a commit from before let another member's
    commit, or a fetch, overtake one that was still under way."""
    earlier, later = UnderWay(), UnderWay()
    place = ("orders", ZERO_UUID, 0)
    former = [earlier.begin("g", "m1", (place,), (1, n), 1_000) for n in range(3)]
    ticket = later.begin("g", "m1", (place,), (1, 7), 1_001)
    assert [later.end(t) for t in former] == [None] * 3
    assert later.before_commit("g", "m2", (place,), (1, 8)) == frozenset([ticket])
