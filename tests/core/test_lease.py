"""A lease limits what a sidecar may do, by both clocks. Time in which no member could be heard is given back."""

from __future__ import annotations

import pytest

from sidecar.core.consumer.events import HeartbeatReply
from sidecar.core.runtime.events import ListGroups, ListReply
from sidecar.core.runtime.lost_time import GAP_MS
from sidecar.core.runtime.service import PROVED_AT_ONCE
from sidecar.core.runtime.turn import Now
from sidecar.core.vocabulary.errors import Code
from tests.core.test_loading import CONFIG, NewOwner, beat, written
from tests.core.world import Client

SESSION_MS = CONFIG.session_timeout_ms


class Owner(NewOwner):
    """A sidecar that has loaded its one group. `wall_ms`: by how much the wall clock is ahead of the other."""

    def __init__(self, hold_ms: int = 0) -> None:
        log, clients = written(g=2)
        self.wall_ms = 0
        super().__init__(log, hold_ms)
        self.client: Client = clients["g"]
        self.take_over()
        self.all()

    @property
    def now(self) -> Now:
        return Now(self.at, self.at + self.wall_ms)

    def code(self, token: int) -> Code:
        answer = self.ask(token, beat(self.client))
        assert isinstance(answer, HeartbeatReply)
        return answer.code

    def wake_for(self, ms: int) -> None:
        for _ in range(ms // 50):
            self.at += 50
            self.service.wake(self.now)
            self.drive()

    def session_end(self) -> int | None:
        assert self.owner.shard is not None
        return self.owner.shard.timers.deadline(("session", "g", self.client.member_id))


def test_a_lease_ends_by_either_clock() -> None:
    """A pause of the whole machine is seen by the wall clock alone."""
    s = Owner()
    s.service.lease.lost()
    s.service.lease.extended(s.at + 10_000, s.at + 10_000)
    assert s.code(1) == Code.NONE
    s.wall_ms = 10_000
    assert s.code(2) == Code.NOT_COORDINATOR
    s.wall_ms = 0
    assert s.code(3) == Code.NONE
    s.at += 10_000
    assert s.code(4) == Code.NOT_COORDINATOR


def test_an_answer_that_was_asked_for_earlier_shortens_no_lease() -> None:
    s = Owner()
    s.service.lease.lost()
    s.service.lease.extended(20_000, 30_000)
    s.service.lease.extended(19_999, 29_999)
    assert s.service.lease.until == (20_000, 30_000)
    s.service.lease.extended(20_001, 30_001)
    assert s.service.lease.until == (20_001, 30_001)


def test_whoever_is_out_of_the_owners_group_has_no_lease_of_before() -> None:
    s = Owner()
    s.service.lost("removed")
    s.service.assigned([1], 2, {1}, s.now)
    s.drive()
    assert s.code(1) == Code.NOT_COORDINATOR
    s.service.lease.extended(s.at + 1_000)
    assert s.code(2) == Code.NONE


def test_in_doubt_only_a_proof_counts() -> None:
    s = Owner()
    s.service.map_missed()
    s.service.lease.extended(s.at + 1_000)
    assert s.code(1) == Code.NOT_COORDINATOR and s.service.lease.until[0] == 0
    s.owner.proved(s.owner.attempt, Now(s.at + 100, s.at + 100))
    assert s.code(2) == Code.NONE
    s.at += 100
    assert s.code(3) == Code.NOT_COORDINATOR
    s.service.lease.in_doubt = False
    assert s.code(4) == Code.NONE


def test_a_list_in_doubt_is_refused_and_not_shorter() -> None:
    s = Owner()
    s.service.map_missed()
    answer = s.ask(1, ListGroups())
    assert isinstance(answer, ListReply) and answer.code == Code.COORDINATOR_LOAD_IN_PROGRESS
    s.service.lease.in_doubt = False
    answer = s.ask(2, ListGroups())
    assert isinstance(answer, ListReply) and len(answer.groups) == 1


def test_a_touch_moves_a_session_only_under_a_lease() -> None:
    s = Owner()
    before = s.session_end()
    s.wake_for(2_000)
    s.service.lease.lost()
    s.service.touch("g", s.client.member_id, s.now)
    assert s.session_end() == before
    s.service.lease.extended(s.at + 1_000)
    s.service.touch("g", s.client.member_id, s.now)
    assert (s.session_end() or 0) > (before or 0)


@pytest.mark.parametrize("why", ["the process stood still", "there was no lease"])
def test_time_in_which_nobody_could_be_heard_is_given_back_once(why: str) -> None:
    s = Owner()
    s.wake_for(1_000)
    before, lost_ms = s.session_end(), 2 * GAP_MS + 500
    assert before is not None
    if why == "the process stood still":
        s.at += lost_ms
        s.wake_for(50)
    else:
        s.service.lease.lost()
        s.wake_for(lost_ms)
        s.service.lease.extended(10**9)
        s.wake_for(50)
    given = (s.session_end() or 0) - before
    assert lost_ms <= given <= lost_ms + 100
    s.wake_for(5_000)
    assert s.session_end() == before + given, "once, and not with every look"


def test_a_member_is_removed_at_the_end_of_its_session_and_not_before() -> None:
    s = Owner()
    s.wake_for(SESSION_MS - 100)
    assert s.session_end() is not None
    s.wake_for(200)
    assert s.session_end() is None


def test_nobody_is_given_back_time_of_before_the_takeover() -> None:
    """The partition was another's, or nobody's, for a minute; sessions begin with the takeover."""
    s = Owner()
    s.service.assigned([2], 2, {1, 2}, s.now)
    s.drive()
    s.service.lease.lost()
    s.wake_for(60_000)
    s.service.lease.extended(10**9)
    s.service.assigned([1], 3, {1, 2}, s.now)
    s.drive()
    s.all()
    began, end = s.at, s.session_end()
    assert end is not None
    s.wake_for(200)
    assert (s.session_end() or 0) <= began + SESSION_MS + 200


def test_a_request_that_waited_for_a_lease_is_handled_before_a_newer_one() -> None:
    """A member that gave up waiting asks again. Its first request is a join, which would take from it what the second
    has brought: a partition with two owners."""
    s = Owner(hold_ms=3_000)
    s.service.lease.lost()
    assert s.ask(1, beat(s.client)) is None
    s.service.lease.extended(10**9)
    s.ask(2, beat(s.client))
    assert list(s.replies) == [1, 2]


def test_requests_that_waited_for_a_lease_go_on_in_slices() -> None:
    """Symptom: each request for a proved partition walked through all requests that waited, 5 ms with 5,000 of them,
    and the first one let all of them go on."""
    s = Owner(hold_ms=3_000)
    s.service.lease.lost()
    count = 2 * PROVED_AT_ONCE
    for token in range(1, count + 1):
        assert s.ask(token, beat(s.client)) is None
    assert s.service.rest_s(s.now, 1.0) == 1.0
    s.service.lease.extended(10**9)
    s.service.wake(s.now)
    s.drive()
    assert len(s.replies) == PROVED_AT_ONCE and s.service.rest_s(s.now, 1.0) < 0.01
    s.service.tally.went_on = PROVED_AT_ONCE
    assert s.ask(count + 1, beat(s.client)) is None, "it must not overtake the others"
    for _ in range(2):
        s.service.wake(s.now)
        s.drive()
    assert list(s.replies) == list(range(1, count + 2))
    assert s.service.tally.open == 0 and s.service.rest_s(s.now, 1.0) > 0.01
