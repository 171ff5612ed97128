"""Groups go back to their brokers, over brokers in memory."""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import replace
from typing import Any

import pytest

from sidecar.coordinator.moves.release import LOOKED_AT, PLACE_S
from sidecar.core.classic.embedded import assignment
from sidecar.core.runtime.events import Answer, Event, ReleaseGroup
from sidecar.core.vocabulary.errors import Code
from sidecar.kafka.placeholder_requests import INSTANCE_ID
from sidecar.link.messages import GroupRules
from sidecar.wire.apis import Api
from sidecar.wire.generated import heartbeat as hb
from sidecar.wire.generated import join_group as jg
from sidecar.wire.generated import sync_group as sg
from tests.coordinator.moves.moving import QUICK, at_work, run, store_settings
from tests.core.classic_client import subscription
from tests.harness.collector import no_collector
from tests.inprocess.embedded_sidecar import EmbeddedSidecar, RecordingFront, until
from tests.inprocess.messages import beat, commit, join

NEWCOMER = [jg.JoinGroupRequestProtocol("range", subscription(["orders"], {}, -1))]


def test_a_group_goes_back_when_its_members_own_nothing_and_its_placeholder_is_free() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        front = RecordingFront(sidecar.coordinator)
        client = await sidecar.client()
        epoch = await at_work(sidecar, client)
        await sidecar.all_joined()
        await store_settings(sidecar, "g", managed="false")
        assert front.of(GroupRules)[-1].moved == {"g": True}, "it has records here"
        other = await client.ask(join("g", "m2"), 1)
        assert other.error_code == Code.NOT_COORDINATOR, "nobody joins any more"
        group: Any = sidecar.owner_of("g").shard.groups["g"]  # type: ignore[union-attr]
        await until(lambda: not group.target.of("m1"))
        told = await client.ask(beat("g", "m1", epoch, {sidecar.topic_id("orders"): [0, 1]}), 1)
        assert told.assignment is not None and not told.assignment.topic_partitions
        done = await client.ask(commit("g", "m1", epoch, "orders", {0: 5}), 9)
        assert done.topics[0].partitions[0].error_code == Code.NONE, "what it gives up can be committed"
        acknowledged = await client.ask(beat("g", "m1", epoch, {}), 1)
        assert acknowledged.error_code == Code.NONE
        gone = await client.ask(beat("g", "m1", acknowledged.member_epoch), 1)
        assert gone.error_code == Code.UNKNOWN_MEMBER_ID
        await until(lambda: front.of(GroupRules)[-1].moved == {"g": False})
        assert sidecar.brokers.placeholders["g"].state == "Empty", "before, no native client could have joined"
        assert sidecar.metrics.value("moves", "broker", "done") == 1
        assert not sidecar.state.partitions[0].groups

    run(test)


def test_a_new_owner_goes_on_with_what_is_to_leave() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        client = await sidecar.client()
        epoch = await at_work(sidecar, client)
        await sidecar.all_joined()
        await store_settings(sidecar, "g", managed="false")
        await until(lambda: sidecar.coordinator.moves.releases.under_way)
        sidecar.assign(2)
        await until(lambda: not sidecar.coordinator.moves.releases.under_way)
        await sidecar.own()
        await until(lambda: sidecar.coordinator.moves.releases.under_way)
        await asyncio.sleep(0.05)
        for owned in ({sidecar.topic_id("orders"): [0, 1]}, {}, {}, {}):
            told = await client.ask(beat("g", "m1", epoch, owned), 1)
            epoch = told.member_epoch or epoch
        assert told.error_code in (Code.UNKNOWN_MEMBER_ID, Code.NOT_COORDINATOR)
        await until(lambda: not sidecar.rules.managed("g"))

    run(test)


@pytest.mark.parametrize("order", ["to this owner", "before it took over"])
def test_a_placeholder_of_an_owner_that_was_cut_off_goes_when_the_group_is_ordered_back(order: str) -> None:
    """The owner was cut off while it took the group in, so nothing of the group is written. Its placeholder is at the
    broker, which lets nobody of another protocol join beside that."""

    async def test(sidecar: EmbeddedSidecar) -> None:
        there = sidecar.brokers.placeholders["g"]
        there.instance_id, there.state = INSTANCE_ID, "Stable"
        there.take()
        if order == "before it took over":
            sidecar.assign(2)
            await store_settings(sidecar, "g", managed="false")
            await asyncio.sleep(0.02)
            assert there.state == "Stable", "it may be the placeholder of another owner"
            await sidecar.own()
        else:
            await store_settings(sidecar, "g", managed="false")
        await until(lambda: there.state == "Empty")

    run(test)


def test_a_group_that_is_wanted_again_stays() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        client = await sidecar.client()
        epoch = await at_work(sidecar, client)
        await store_settings(sidecar, "g", managed="false")
        await until(lambda: sidecar.coordinator.moves.releases.under_way)
        await store_settings(sidecar, "g", managed=None)
        await until(lambda: not sidecar.coordinator.moves.releases.under_way)
        group: Any = sidecar.owner_of("g").shard.groups["g"]  # type: ignore[union-attr]
        assert group.epoch > epoch
        assert (await client.ask(join("g", "m2"), 1)).error_code == Code.NONE

    run(test)


@pytest.mark.parametrize("trouble", ["the lease is over", "the core refuses to stop"])
def test_a_group_that_is_wanted_again_in_a_bad_moment_stays_and_works(
    monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    """Symptom: the core was not told to stop the release, as the lease was over or the request was refused. It assigned
    nothing from then on, and sent each member away that came, for ever."""

    async def test(sidecar: EmbeddedSidecar) -> None:
        client, releases = await sidecar.client(), sidecar.coordinator.moves.releases
        epoch = await at_work(sidecar, client)
        group: Any = sidecar.owner_of("g").shard.groups["g"]  # type: ignore[union-attr]
        await store_settings(sidecar, "g", managed="false")
        await until(lambda: not group.target.of("m1"))
        if trouble == "the lease is over":
            sidecar.service.lease.lost()
            over_s = time.monotonic()
            await until(lambda: time.monotonic() > over_s + 0.1)
            await store_settings(sidecar, "g", managed=None)
            await until(lambda: time.monotonic() > over_s + 0.2)
        else:
            ask, refusals = releases._core.ask, 2

            async def refused(event: Event) -> Answer:
                nonlocal refusals
                if isinstance(event, ReleaseGroup) and event.stop and refusals:
                    refusals -= 1
                    return Answer(Code.COORDINATOR_NOT_AVAILABLE)
                return await ask(event)

            monkeypatch.setattr(releases._core, "ask", refused)
            await store_settings(sidecar, "g", managed=None)
        sidecar.prove()
        await until(lambda: not releases.under_way)
        await until(lambda: group.target.of("m1"))
        told = await client.ask(beat("g", "m1", epoch, {}), 1)
        assert told.error_code == Code.NONE

    run(test, service={"hold_ms": 0})


def static_join(instance: str, member_id: str = "") -> jg.JoinGroupRequest:
    return jg.JoinGroupRequest("g", 10_000, 60_000, member_id, instance, "consumer", NEWCOMER)


def test_a_static_member_that_is_started_again_meanwhile_takes_part_in_the_way_back() -> None:
    """Otherwise everybody would wait until the session of the one that it was has run out."""

    async def test(sidecar: EmbeddedSidecar) -> None:
        sidecar.configs._own.classic.values["initial_rebalance_delay_ms"] = 20  # type: ignore[index]
        one, two, back = [await sidecar.client() for _ in range(3)]
        one.post(static_join("i1"), 7)
        two.post(static_join("i2"), 7)
        leads, follows = await one.answer(static_join("i1"), 7), await two.answer(static_join("i2"), 7)
        clients = {"i1": one, "i2": two}
        assert {leads.generation_id, follows.generation_id} == {1}
        part = [sg.SyncGroupRequestAssignment(leads.member_id, assignment(0, [("orders", (0, 1))]))]
        for instance, joined in (("i1", leads), ("i2", follows)):
            sync = sg.SyncGroupRequest("g", 1, joined.member_id, instance, "consumer", "range", part)
            assert (await clients[instance].ask(sync, 5)).error_code == Code.NONE
            part = []
        await store_settings(sidecar, "g", managed="false")
        group: Any = sidecar.owner_of("g").shard.groups["g"]  # type: ignore[union-attr]
        await until(lambda: group.state == "PreparingRebalance")
        beaten = await one.ask(hb.HeartbeatRequest("g", 1, leads.member_id, "i1"), 4)
        assert beaten.error_code == Code.REBALANCE_IN_PROGRESS
        assert (await back.ask(static_join("i3"), 7)).error_code == Code.NOT_COORDINATOR, "nobody new is let in"
        one.post(static_join("i1", leads.member_id), 7)
        back.post(static_join("i2"), 7)
        assert (await one.answer(static_join("i1"), 7)).error_code == Code.NOT_COORDINATOR
        assert (await back.answer(static_join("i2"), 7)).error_code == Code.NOT_COORDINATOR
        await until(lambda: not sidecar.rules.managed("g"))

    run(test)


async def stuck(sidecar: EmbeddedSidecar, count: int) -> None:
    """Groups of one static member each that was stopped: it does not leave, and its session is long."""
    sidecar.configs._own.classic.values["initial_rebalance_delay_ms"] = 0  # type: ignore[index]
    for number in range(count):
        client, name = await sidecar.client(), f"stuck-{number}"
        join_it = jg.JoinGroupRequest(name, 1_800_000, 300_000, "", "pod", "consumer", NEWCOMER)
        joined = await client.ask(join_it, 7)
        part = [sg.SyncGroupRequestAssignment(joined.member_id, assignment(0, [("orders", (0, 1))]))]
        sync = sg.SyncGroupRequest(name, joined.generation_id, joined.member_id, "pod", "consumer", "range", part)
        assert (await client.ask(sync, 5)).error_code == Code.NONE
        client.close()


def test_groups_that_wait_for_a_member_do_not_hold_up_the_others() -> None:
    """Symptom: 100 groups whose members were stopped left for half an hour, until their sessions ended. No other group
    left meanwhile, and all those refused new members."""

    async def test(sidecar: EmbeddedSidecar) -> None:
        await stuck(sidecar, 6)
        client, releases = await sidecar.client(), sidecar.coordinator.moves.releases
        assert (await client.ask(join("zz", "m1"), 1)).error_code == Code.NONE
        await sidecar.stored.put("", {"/sidecar.groups.include": "none"}, "a test", sidecar.coordinator.append_unfenced)
        await until(lambda: len(releases.under_way) == 2)
        begun_s = time.monotonic()
        second = await sidecar.client()
        assert (await second.ask(join("zz", "m2"), 1)).error_code == Code.NONE, "its own release has not begun"
        for member in ("m1", "m2"):
            assert (await client.ask(beat("zz", member, -1), 1)).error_code == Code.NONE
        await sidecar.answered_until(lambda: not sidecar.rules.managed("zz"))
        assert time.monotonic() - begun_s < 4 * PLACE_S
        assert len(releases.under_way) == 6 and (await second.ask(join("stuck-5", "m9"), 1)).error_code

    run(test, moves=replace(QUICK, at_once=2))


def test_a_tick_does_not_look_at_all_groups_that_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: while 20,000 groups left, each sidecar looked at all of them every 50 ms: for 18 ms, also where it owned
    none of them."""

    def calls(sidecar: EmbeddedSidecar, groups: int, served: bool) -> int:
        sidecar.rules.kept = [dict.fromkeys(f"g-{i}" for i in range(groups))]
        sidecar.rules.dirty = False
        moves = sidecar.coordinator.moves
        moves.releases.under_way = set(sidecar.rules.kept[0]) if served else set()
        moves.releases._round = iter(())
        monkeypatch.setattr(moves.core, "serves", lambda partition: served)
        count = 0

        def counted(frame: object, event: str, arg: object) -> None:
            nonlocal count
            count += 1

        with no_collector():  # what it finalizes would be counted
            sys.setprofile(counted)
            try:
                moves.tick()
            finally:
                sys.setprofile(None)
        return count

    async def test(sidecar: EmbeddedSidecar) -> None:
        for served in (False, True):
            few, many = (calls(sidecar, groups, served) for groups in (2 * LOOKED_AT, 20 * LOOKED_AT))
            assert many == few, served

    run(test)


def test_a_release_that_the_core_refuses_is_tried_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: a group that could not be read was to go back. Its release began again in each tick, twenty times a
    second for ever, each time with a question to the broker."""

    async def test(sidecar: EmbeddedSidecar) -> None:
        client = await sidecar.client()
        await at_work(sidecar, client)
        releases = sidecar.coordinator.moves.releases
        ask, tries = releases._core.ask, 0

        async def refused(event: Event) -> Answer:
            nonlocal tries
            if not isinstance(event, ReleaseGroup):
                return await ask(event)
            tries += 1
            return Answer(Code.COORDINATOR_NOT_AVAILABLE)

        monkeypatch.setattr(releases._core, "ask", refused)
        await store_settings(sidecar, "g", managed="false")
        ordered_s = time.monotonic()
        await until(lambda: time.monotonic() > ordered_s + 59)
        assert 5 < tries < 20 and releases.under_way == {"g"} and not releases._places
        monkeypatch.setattr(releases._core, "ask", ask)
        group: Any = sidecar.owner_of("g").shard.groups["g"]  # type: ignore[union-attr]
        await until(lambda: not group.target.of("m1"))

    run(test)


def test_a_group_is_given_back_only_when_its_placeholder_at_the_broker_is_free() -> None:
    async def test(sidecar: EmbeddedSidecar) -> None:
        client = await sidecar.client()
        epoch = await at_work(sidecar, client)
        await sidecar.all_joined()
        hung = sidecar.brokers.faults.hang(Api.LEAVE_GROUP)
        await store_settings(sidecar, "g", managed="false")
        assert (await client.ask(beat("g", "m1", -1), 1)).error_code == Code.NONE
        await until(lambda: hung.met)
        await asyncio.sleep(0.05)
        assert sidecar.rules.managed("g") and sidecar.brokers.placeholders["g"].state != "Empty", epoch
        hung.release()
        await until(lambda: not sidecar.rules.managed("g"))
        assert sidecar.brokers.placeholders["g"].state == "Empty"

    run(test)
