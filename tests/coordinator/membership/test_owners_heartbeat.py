"""Heartbeats of a membership in the owners' group, and what their answers mean."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sidecar.coordinator.clock import now
from sidecar.coordinator.membership.owners_heartbeat import HeartbeatPorts, OwnersHeartbeats
from sidecar.core.vocabulary.errors import Code
from sidecar.wire.apis import Api
from tests.coordinator.membership.test_owners_group import SETTINGS, Make, Sidecar, agree, run
from tests.inprocess import clock
from tests.inprocess.broker import FakeBrokers
from tests.inprocess.embedded_sidecar import Lines, until
from tests.inprocess.faults import Fault


async def with_a_heartbeat_under_way(brokers: FakeBrokers, make: Make) -> tuple[Sidecar, Fault]:
    """A sidecar with its map, and the fault that holds its heartbeat back."""
    one = make(1)
    await until(lambda: one.assigned)
    hung = brokers.faults.hang(Api.HEARTBEAT)
    await until(lambda: hung.met)
    return one, hung


def test_a_heartbeat_that_is_lost_proves_nothing_and_the_next_one_goes_on() -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        one = make(1)
        await until(lambda: one.assigned)
        lost = brokers.faults.drop(Api.HEARTBEAT, times=3)
        await until(lambda: lost.met == 3)
        proved = len(one.lease)
        await until(lambda: len(one.lease) > proved)
        assert one.lost == [] and one.lines.events().count("owners' heartbeat failed") == 3

    run(test)


def test_a_session_that_has_ended_is_a_loss_and_the_sidecar_joins_anew() -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        one = make(1)
        await until(lambda: one.assigned)
        one.group.expel("member-1")
        await until(lambda: one.lost)
        assert one.lost == ["owners' group: UNKNOWN_MEMBER_ID"]
        await until(lambda: len(one.assigned) == 2)
        assert one.assigned[1].members[1][0] == "member-2"

    run(test)


def test_nobody_beats_for_a_member_that_has_not_joined_yet() -> None:
    """Symptom: a broker came back on a busy machine, and two sidecars took 17 s to join the owners' group. Cause: the
    broker gives a member id before the member joins, and meanwhile the state topic is told who that is. A heartbeat
    under this id was answered UNKNOWN_MEMBER_ID, and the join began anew."""

    async def test(brokers: FakeBrokers, make: Make) -> None:
        one = make(1)
        await until(lambda: one.assigned)
        joins = brokers.faults.delay(Api.JOIN_GROUP, 1.0, matches=lambda req: req.member_id == "member-2")
        one.group.expel("member-1")
        await until(lambda: len(one.assigned) == 2)
        assert joins.met == 1 and one.lost == ["owners' group: UNKNOWN_MEMBER_ID"]
        assert one.assigned[1].members[1][0] == "member-2"

    run(test)


def test_a_generation_that_is_over_makes_it_join_again_without_a_loss() -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        one = make(1)
        await until(lambda: one.assigned)
        brokers.faults.fail(Api.HEARTBEAT, Code.ILLEGAL_GENERATION)
        await until(lambda: len(one.assigned) == 2)
        assert one.lost == [] and one.assigned[1].generation == 2

    run(test)


def test_the_answer_to_a_heartbeat_of_a_former_generation_says_nothing() -> None:
    """Symptom: now and then one generation too many. Cause: a leader that has joined again took what the broker said of
    the generation before for a reason to join once more, and a leader that joins begins a rebalance."""

    async def test(brokers: FakeBrokers, make: Make) -> None:
        one, hung = await with_a_heartbeat_under_way(brokers, make)
        two = make(2)
        await until(lambda: len(one.group.members) == 2)
        one.ownership._rejoin.set()  # as its heartbeat would have told it
        await agree(one, two)
        assert hung.met == 1 and one.assigned[-1].generation == 2
        beats = brokers.count(Api.HEARTBEAT)
        hung.release()
        await until(lambda: brokers.count(Api.HEARTBEAT) > beats + 20)
        assert one.assigned[-1].generation == 2

    run(test)


def test_the_answer_to_a_heartbeat_of_a_former_member_proves_nothing() -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        one, hung = await with_a_heartbeat_under_way(brokers, make)
        one.ownership.withdraw("the broker is gone")
        proved = len(one.lease)
        hung.release()
        await asyncio.sleep(0.01)
        assert len(one.lease) == proved and len(one.assigned) == 1

    run(test)


def test_a_question_about_the_map_sends_a_heartbeat_at_once() -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        one = make(1, settings=replace(SETTINGS, heartbeat_ms=60_000))
        await until(lambda: one.assigned)
        await asyncio.wait_for(one.ownership.confirm_map(), 5)

    run(test)


@pytest.mark.parametrize("due", ["heartbeat", "commit"])
def test_a_sidecar_stops_though_a_request_is_due_at_once(due: str) -> None:
    """Symptom: a sidecar did not end. Cause: Python 3.11's asyncio.wait_for dropped the cancellation of a loop whose
    next request had just become due, and so the stop waited for that loop for ever."""

    async def test(brokers: FakeBrokers, make: Make) -> None:
        one = make(1)
        await until(lambda: one.assigned)
        if due == "heartbeat":
            one.ownership.confirm_map()
        else:
            one.ownership._lease_commits.at_once()
        async with asyncio.timeout(60):
            await one.ownership.stop()

    run(test)


def test_a_map_is_confirmed_by_a_heartbeat_in_its_own_generation_only() -> None:
    """A member may be in a new generation whose map has not reached it, and a JoinGroup may be answered then."""

    async def test(brokers: FakeBrokers, make: Make) -> None:
        one = make(1)
        await until(lambda: one.assigned)
        await one.ownership.confirm_map()
        hung = brokers.faults.hang(Api.SYNC_GROUP)
        maps = len(one.assigned)
        one.group.rebalance()
        await until(lambda: hung.met)
        confirmed = one.ownership.confirm_map()
        beats = brokers.count(Api.HEARTBEAT)
        await until(lambda: brokers.count(Api.HEARTBEAT) > beats + 3)
        assert not confirmed.done() and len(one.assigned) == maps
        hung.release()
        await confirmed
        assert len(one.assigned) == maps + 1

    run(test)


def test_a_heartbeat_of_before_the_question_does_not_confirm_the_map() -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        one, hung = await with_a_heartbeat_under_way(brokers, make)
        began_ms = now().mono_ms
        await until(lambda: now().mono_ms > began_ms)
        confirmed = one.ownership.confirm_map()
        again = brokers.faults.hang(Api.HEARTBEAT)
        hung.release()
        await until(lambda: again.met)
        assert not confirmed.done()
        again.release()
        await confirmed

    run(test)


def test_a_heartbeat_of_the_same_millisecond_that_was_sent_before_confirms_no_map() -> None:
    async def main() -> None:
        answer = asyncio.get_running_loop().create_future()

        async def request(*given: Any, **more: Any) -> Any:
            await answer
            return SimpleNamespace(error_code=Code.NONE)

        settings: Any = SimpleNamespace(heartbeat_ms=500, session_timeout_ms=6000, group_id="g")
        lease: Any = SimpleNamespace(answered=lambda sent: None)
        ports = HeartbeatPorts(lambda: ("m", 5), lambda: None, lambda why: None)
        beats = OwnersHeartbeats(cast(Any, None), settings, lease, ports, Lines())
        beats._conn = cast(Any, SimpleNamespace(closed=False, request=request, close=lambda: None))
        first = asyncio.create_task(beats._beat("m", 5))
        await asyncio.sleep(0)
        confirmed = beats.confirm_map()
        answer.set_result(None)
        await first
        assert not confirmed.done()
        await beats._beat("m", 5)
        assert confirmed.done()

    clock.run(main())
