"""A sidecar announces to the others that it no longer answers for partitions."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from sidecar.coordinator.membership.owners_protocol import EVERY_GENERATION, Assignment
from sidecar.wire.apis import Api
from tests.coordinator.membership.test_owners_group import BOTH, SETTINGS, Make, Sidecar, agree, run
from tests.inprocess.broker import OFFSETS, FakeBrokers
from tests.inprocess.embedded_sidecar import until


def gave_up(sidecar: Sidecar, member_id: str = "") -> int:
    said = sidecar.records.stand().get(member_id or sidecar.ownership.member_id)
    return -1 if said is None else int(said["gave_up"])


def test_whoever_has_followed_a_map_that_gives_partitions_to_others_says_so_and_nobody_else_does() -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        one = make(1)
        await until(lambda: one.owners == (1, 1, 1, 1))
        two = make(2)
        await agree(one, two)
        first = one.assigned[-1].generation
        await until(lambda: gave_up(one) == first)
        assert gave_up(two) == -1
        brokers.topics[OFFSETS].leaders[0] = 2
        for sidecar in (one, two):
            sidecar.ownership.placement_changed()
        await until(lambda: one.owners == two.owners == (2, 2, 1, 2))
        generation = one.assigned[-1].generation
        await until(lambda: gave_up(one) == generation)
        assert generation > first and gave_up(two) == -1

    run(test)


def test_it_is_said_after_the_coordinator_has_dropped_them() -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        one = make(1)
        await until(lambda: one.assigned)
        dropped: list[int] = []

        def drop(a: Assignment, missed: bool = False) -> None:
            assert gave_up(one) == -1
            one.assigned.append(a)
            dropped.append(a.generation)

        one.owners_assigned = drop  # type: ignore[method-assign]
        two = make(2)
        await until(lambda: one.owners == two.owners == BOTH)
        await until(lambda: gave_up(one) == dropped[-1])

    run(test)


def test_whoever_comes_back_names_its_former_member_ids_the_last_ones() -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        one = make(1)
        had: list[str] = []
        for times in range(1, 11):
            await until(partial(one.has_assignment_after, times - 1))
            had.append(one.ownership.member_id)
            one.group.expel(had[-1])
            await until(partial(one.was_lost, times))
        await until(partial(one.has_assignment_after, 10))
        assert one.records.stand()[one.ownership.member_id]["former"] == had[-8:]

    run(test)


def test_whoever_leaves_or_withdraws_answers_for_nothing() -> None:
    async def test(brokers: FakeBrokers, make: Make) -> None:
        one, two = make(1), make(2)
        await agree(one, two)
        withdrawn, left = one.ownership.member_id, two.ownership.member_id
        one.ownership.withdraw("its broker is gone")
        await until(lambda: gave_up(one, withdrawn) == EVERY_GENERATION)
        await two.ownership.stop()
        assert gave_up(two, left) == EVERY_GENERATION

    run(test)


@pytest.mark.parametrize("ends", ["moves", "leaves", "withdraws", "comes back"])
def test_where_the_front_is_another_process_nothing_is_said(ends: str) -> None:
    """A front in another process may hear a moment later that its grants are void."""

    async def test(brokers: FakeBrokers, make: Make) -> None:
        s = replace(SETTINGS, front_within=False)
        one, two = make(1, s), make(2, s)
        await agree(one, two)
        member_id = one.ownership.member_id
        if ends == "leaves":
            await one.ownership.stop()
        elif ends == "withdraws":
            one.ownership.withdraw("its broker is gone")
        elif ends == "comes back":
            one.group.expel(member_id)
            await until(lambda: one.lost and one.ownership.member_id in one.records.stand())
        beats = brokers.count(Api.HEARTBEAT)
        await until(lambda: brokers.count(Api.HEARTBEAT) > beats + 50)
        said = one.records.stand()
        assert all(r["gave_up"] == -1 and r["former"] == [] for r in said.values())
        assert ends != "leaves" or said[member_id]["left_ms"]

    run(test)
