"""The log of the groups was lost, and the coordinator knows no member: nobody joins before every former member has
heard that it owns nothing (core/runtime/quarantine.py)."""

from __future__ import annotations

import pytest

from sidecar.assign import BUILT_IN
from sidecar.core.classic.config import CLASSIC, ClassicConfig
from sidecar.core.classic.events import ClassicHeartbeat, JoinGroup, SyncGroup
from sidecar.core.consumer.config import ConsumerConfig
from sidecar.core.consumer.events import ConsumerHeartbeat
from sidecar.core.kinds import REGISTRY
from sidecar.core.runtime.events import DeletionCheck, Event, GroupsWithRecords, GroupsWithRecordsReply
from sidecar.core.runtime.offset_checks import CommitCheck, FetchCheck
from sidecar.core.runtime.quarantine import Quarantine
from sidecar.core.runtime.service import Service
from sidecar.core.runtime.settings import ServiceSettings
from sidecar.core.runtime.turn import Computed, Ports
from sidecar.core.vocabulary.errors import Code
from tests.core.test_loading import Log, NewOwner
from tests.core.world import topic

QUARANTINE_MS, UNTIL_MS = 7_000, 60_000
CONFIG = ConsumerConfig(assignor_offload_enable=False, assignment_interval_ms=0, join_wait_ms=0)


class Successor(NewOwner):
    """A sidecar that began anew; the log is empty, or holds what was not lost."""

    def __init__(self, quarantine: Quarantine, log: Log | None = None) -> None:
        super().__init__(log or Log([]))
        config = Computed(lambda kind, group_id: ClassicConfig() if kind == CLASSIC else CONFIG)
        ports = Ports({"consumer": BUILT_IN}, config, quarantine=quarantine)
        self.service = Service(1, 1, REGISTRY, ports, self.log, ServiceSettings())
        self.service.lease.extended(10**9)
        self.service.topics((topic(1, "t", 12),), self.now)
        self.token = 100

    def code(self, event: Event) -> Code:
        self.token += 1
        answer = self.ask(self.token, event)
        assert answer is not None, f"{event} waits"
        return answer.code

    def held(self, token: int) -> bool:
        return token not in self.replies


def beat(member_id: str, epoch: int, instance_id: str | None = None) -> ConsumerHeartbeat:
    said = {"rebalance_timeout_ms": 30_000, "topic_names": ("t",), "owned": {}} if epoch == 0 else {}
    return ConsumerHeartbeat("g", member_id, epoch, instance_id, **said)  # type: ignore[arg-type]


def join(member_id: str = "", instance_id: str | None = None) -> JoinGroup:
    protocols = (("range", b""),)
    new_id = "" if member_id else "0"
    return JoinGroup("g", member_id, instance_id, "x", protocols, 10_000, 10_000, None, "c", "/h", 9, new_id)


def commit(epoch: int) -> CommitCheck:
    return CommitCheck("g", "m", epoch, None, 9, False, (("t", bytes(16), 0),))


def name_of(event: Event) -> str:
    return type(event).__name__


JOINS: list[Event] = [beat("m", 0), beat("m", 0, "static"), join(), join(instance_id="static")]
OF_MEMBERS: list[Event] = [
    beat("m", 3),
    beat("m", 3, "static"),
    join("m"),
    join("m", "static"),
    ClassicHeartbeat("g", "m", None, 1),
    SyncGroup("g", "m", None, 1, "x", "range", ()),
    commit(3),
]


def in_quarantine(quarantine_ms: int = QUARANTINE_MS) -> Successor:
    made = Successor(Quarantine(quarantine_ms, UNTIL_MS))
    made.take_over()
    return made


@pytest.mark.parametrize("event", JOINS, ids=name_of)
def test_nobody_joins_before_its_time(event: Event) -> None:
    new_owner = in_quarantine()
    assert new_owner.code(event) == Code.COORDINATOR_LOAD_IN_PROGRESS
    new_owner.at += QUARANTINE_MS - 1
    assert new_owner.code(event) == Code.COORDINATOR_LOAD_IN_PROGRESS
    assert new_owner.ask(1, GroupsWithRecords(candidates=("g",))) == GroupsWithRecordsReply(groups=frozenset())
    new_owner.at += 1
    answer = new_owner.ask(2, event)
    assert answer is None or answer.code in (Code.NONE, Code.MEMBER_ID_REQUIRED)


@pytest.mark.parametrize("event", OF_MEMBERS, ids=name_of)
def test_whoever_was_a_member_hears_at_once_that_it_is_none(event: Event) -> None:
    """A classic member that was joining again has a member id, and may own partitions (cooperative rebalancing)."""
    assert in_quarantine().code(event) == Code.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("event", OF_MEMBERS, ids=name_of)
def test_a_coordinator_that_has_lost_nothing_says_the_same(event: Event) -> None:
    """A group that is not there may have been lost, or may just have come from the broker without this member. Kafka's
    answer, GROUP_ID_NOT_FOUND, ends Java's and librdkafka's consumers for good."""
    lost_nothing = Successor(Quarantine())
    lost_nothing.take_over()
    assert lost_nothing.code(event) == Code.UNKNOWN_MEMBER_ID
    assert lost_nothing.code(beat("m", 0)) == Code.NONE


@pytest.mark.parametrize("event", [DeletionCheck("g"), FetchCheck("g", "m", 3), commit(-1), beat("m", -1)], ids=name_of)
def test_whoever_owns_nothing_by_it_is_answered_as_ever(event: Event) -> None:
    lost_nothing = Successor(Quarantine())
    lost_nothing.take_over()
    assert in_quarantine().code(event) == lost_nothing.code(event)


def test_the_time_counts_from_each_takeover() -> None:
    """Before, nobody could be told anything."""
    new_owner = in_quarantine()
    new_owner.at += QUARANTINE_MS
    new_owner.service.assigned([2], 2, {1, 2}, new_owner.now)
    new_owner.drive()
    new_owner.at += 1_000
    new_owner.service.assigned([1], 3, {1, 2}, new_owner.now)
    new_owner.drive()
    assert new_owner.code(beat("m", 0)) == Code.COORDINATOR_LOAD_IN_PROGRESS
    new_owner.at += QUARANTINE_MS
    assert new_owner.code(beat("m", 0)) == Code.NONE


def test_it_lasts_its_time_for_a_takeover_at_the_last_moment_and_is_over_for_later_ones() -> None:
    last = Successor(Quarantine(QUARANTINE_MS, UNTIL_MS))
    last.at = UNTIL_MS - 1
    last.take_over()
    last.at += QUARANTINE_MS - 1
    assert last.code(beat("m", 3)) == Code.UNKNOWN_MEMBER_ID
    assert last.code(beat("m", 0)) == Code.COORDINATOR_LOAD_IN_PROGRESS
    last.at += 1
    assert last.code(beat("m", 0)) == Code.NONE
    late = Successor(Quarantine(QUARANTINE_MS, UNTIL_MS))
    late.at = UNTIL_MS
    late.take_over()
    assert late.code(beat("m", 0)) == Code.NONE


def test_a_request_that_waited_for_the_takeover_does_not_slip_in() -> None:
    new_owner = Successor(Quarantine(QUARANTINE_MS, UNTIL_MS))
    new_owner.service.assigned([1], 1, {1}, new_owner.now)
    assert new_owner.service.out, "it has to be fenced first"
    new_owner.service.request(1, beat("m", 0), new_owner.now)
    assert new_owner.held(1)
    new_owner.drive()
    new_owner.all()
    answer = new_owner.replies[1]
    assert answer.code == Code.COORDINATOR_LOAD_IN_PROGRESS


def test_without_a_quarantine_they_join_and_are_still_told_that_they_are_no_members() -> None:
    new_owner = in_quarantine(quarantine_ms=0)
    assert new_owner.code(beat("m", 3)) == Code.UNKNOWN_MEMBER_ID
    assert new_owner.code(beat("m", 0)) == Code.NONE
