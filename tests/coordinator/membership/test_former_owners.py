"""A new owner removes no member for silence while former owners may have leases."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sidecar.coordinator.membership.former_owners import FormerOwners
from sidecar.coordinator.membership.owners_protocol import EVERY_GENERATION, Assignment, SidecarInfo
from sidecar.core.runtime.turn import Now
from sidecar.state.codec import Stamp
from sidecar.state.keys import decode_key
from tests.inprocess import clock
from tests.inprocess.embedded_sidecar import Lines
from tests.inprocess.records import Records

LEASE_MS = 15_000
P = 2


class NewOwner:
    """Sidecar 3, member `mine`, as reader of the records of partition 2."""

    def __init__(self) -> None:
        self.records = Records()
        self.roster = self.records.roster(Lines())
        self.log = self.roster._state
        self.map = Assignment(7, members={1: ("one", "h", 1), 2: ("two", "h", 1), 3: ("mine", "h", 1)})
        self.former = FormerOwners(self.log, self.roster, lambda: self.map, LEASE_MS)
        self.epoch = 0

    def claims(self, node_id: int, member_id: str, generation: int, at_ms: int, damaged: bool = False) -> None:
        self.epoch += 1
        claim = self.records.codec.claim(Stamp(self.epoch, 1), node_id, "h:1", member_id, generation, "assigned")
        self.log.apply(P, self.epoch, decode_key(claim.key), b"nonsense" if damaged else claim.value)
        self.former.claim_read(P, at_ms)

    def enrol(self, member_id: str, info: SidecarInfo) -> None:
        async def main() -> None:
            async def present() -> set[str]:
                return set()

            await self.roster.enrol(member_id, info, present)

        clock.run(main())

    def open_ms(self, at_ms: int) -> int:
        """Milliseconds until the leases of all former owners have ended."""
        return self.former._leases_end_ms(P, Now(at_ms, 0)) - at_ms


def test_a_former_owner_that_is_gone_may_have_a_lease_for_its_whole_time() -> None:
    heir = NewOwner()
    heir.claims(1, "one", 5, at_ms=1_000)
    heir.claims(3, "mine", 7, at_ms=60_000)
    assert heir.open_ms(60_000) == LEASE_MS
    assert heir.open_ms(70_000) == LEASE_MS - 10_000
    assert heir.open_ms(80_000) == 0


def test_nobody_was_there_before() -> None:
    heir = NewOwner()
    heir.claims(3, "mine", 7, at_ms=60_000)
    assert heir.open_ms(60_000) == 0


@pytest.mark.parametrize(("generation", "expected_ms"), [(6, LEASE_MS), (7, 0), (8, 0), (EVERY_GENERATION, 0)])
def test_one_that_gave_the_partition_up_has_none(generation: int, expected_ms: int) -> None:
    """If it was this time: it may have had the partition before, too."""
    heir = NewOwner()
    heir.claims(2, "two", 6, at_ms=1_000)
    heir.claims(3, "mine", 7, at_ms=60_000)
    assert heir.open_ms(60_000) == LEASE_MS
    heir.enrol("two", SidecarInfo(2, "h", 1, gave_up=generation))
    assert heir.open_ms(60_100) == max(0, expected_ms - 100)


@pytest.mark.parametrize(("generation", "expected_ms"), [(57, LEASE_MS), (EVERY_GENERATION, 0)])
def test_generations_of_a_group_that_is_gone_say_nothing(generation: int, expected_ms: int) -> None:
    heir = NewOwner()
    heir.claims(2, "two of old", 55, at_ms=1_000)
    heir.claims(3, "mine", 7, at_ms=60_000)
    heir.enrol("two of old", SidecarInfo(2, "h", 1, gave_up=generation))
    assert heir.open_ms(60_000) == expected_ms


def test_one_that_came_back_under_another_member_id_has_none_under_the_former() -> None:
    heir = NewOwner()
    heir.claims(2, "two of old", 6, at_ms=1_000)
    heir.claims(3, "mine", 7, at_ms=60_000)
    heir.enrol("two", SidecarInfo(2, "h", 1))
    assert heir.open_ms(60_000) == LEASE_MS, "it may be another process"
    heir.enrol("two", SidecarInfo(2, "h", 1, former=("two of old",)))
    assert heir.open_ms(60_000) == 0


def test_the_time_does_not_begin_anew_when_the_partition_moves_on() -> None:
    heir = NewOwner()
    heir.claims(1, "gone", 5, at_ms=1_000)
    heir.claims(2, "two", 6, at_ms=50_000)
    heir.claims(3, "mine", 7, at_ms=60_000)
    assert heir.open_ms(60_000) == LEASE_MS, "that of 2 may be open"
    heir.enrol("two", SidecarInfo(2, "h", 1, gave_up=7))
    assert heir.open_ms(60_000) == LEASE_MS - 10_000, "that of 1 may be, which went before"
    assert heir.open_ms(65_000) == 0


def test_a_claim_of_the_same_owner_is_no_change_of_owners() -> None:
    """Fences are renewed, and partitions are built anew."""
    heir = NewOwner()
    heir.claims(2, "two", 6, at_ms=1_000)
    heir.claims(3, "mine", 7, at_ms=40_000)
    heir.claims(3, "mine", 7, at_ms=60_000)
    assert heir.open_ms(60_000) == 0
    assert heir.open_ms(50_000) == LEASE_MS - 10_000


def test_where_a_claim_cannot_be_read_the_time_is_the_longest() -> None:
    heir = NewOwner()
    heir.claims(2, "two", 6, at_ms=1_000, damaged=True)
    heir.enrol("two", SidecarInfo(2, "h", 1, gave_up=EVERY_GENERATION))
    heir.claims(3, "mine", 7, at_ms=60_000)
    assert heir.open_ms(60_000) == LEASE_MS


def test_what_is_told_is_read_and_strangers_are_bounded() -> None:
    said = SidecarInfo(2, "h", 1, gave_up=7, former=("a", "b"))
    assert SidecarInfo.decode(said.encode()) == said
    many = replace(said, former=tuple(map(str, range(1_000))))
    assert len(SidecarInfo.decode(many.encode()).former) == 8
