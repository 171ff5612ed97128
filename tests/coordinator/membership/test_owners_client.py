"""Requests about the owners' group, whose coordinator may be gone or may have changed."""

from __future__ import annotations

import pytest

from sidecar.coordinator.membership import owners_client as client_module
from sidecar.core.vocabulary.errors import Code
from sidecar.wire.apis import Api
from tests.coordinator.membership.test_owners_group import BOTH, Make, agree, run
from tests.inprocess.broker import FakeBrokers
from tests.inprocess.embedded_sidecar import until


def test_a_join_that_waits_at_a_silent_broker_goes_to_the_next_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: a broker stood still, a sidecar died, and no partition had an owner for 71 s. Cause: the others had sent
    their JoinGroup to that broker, and waited for its answer though another one coordinated the group by then."""
    monkeypatch.setattr(client_module, "WATCH_S", 0.01)

    async def test(brokers: FakeBrokers, make: Make) -> None:
        one, two = make(1), make(2)
        await agree(one, two)
        hung = brokers.faults.hang(Api.JOIN_GROUP)
        one.group.rebalance()
        await until(lambda: hung.met)
        before = one.assigned[-1].generation
        brokers.down.add(1)
        await until(lambda: one.owners == two.owners == BOTH and one.assigned[-1].generation > before)
        hung.release()

    run(test)


def test_withdrawn_it_leaves_as_soon_as_there_is_a_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Symptom: after the death of the broker that coordinated the owners' group, the partitions of the sidecar beside
    it were nobody's for another session. Cause: its LeaveGroup was sent once, to the dead broker."""
    monkeypatch.setattr(client_module, "LEAVE_AGAIN_S", 0.005)

    async def test(brokers: FakeBrokers, make: Make) -> None:
        one = make(1)
        await until(lambda: one.assigned)
        two = make(2)
        await agree(one, two)
        brokers.faults.fail(Api.LEAVE_GROUP, Code.COORDINATOR_LOAD_IN_PROGRESS)
        two.ownership.withdraw("broker 2 does not answer")
        await until(lambda: one.owners == (1, 1, 1, 1))
        assert brokers.count(Api.LEAVE_GROUP) == 2

    run(test)


def test_a_group_that_cannot_be_left_is_told() -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        one = make(1)
        await until(lambda: one.assigned)
        brokers.faults.drop(Api.LEAVE_GROUP)
        await one.ownership.stop()
        assert one.lines.events("warning") == ["could not leave the owners' group; the session will end by itself"]

    run(test)
