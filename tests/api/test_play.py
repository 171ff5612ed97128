"""The player itself: it fails where the handler does something else than the test says."""

from __future__ import annotations

import pytest

from sidecar.core.runtime.events import DeletionCheck, DeletionCheckReply, GroupsWithRecords, GroupsWithRecordsReply
from sidecar.wire.apis import Api
from sidecar.wire.generated import describe_groups as dg
from sidecar.wire.generated import heartbeat as hb
from tests.api.play import Play

REQUEST = dg.DescribeGroupsRequest(["g"])
KNOWN = GroupsWithRecords(candidates=("g",))


def play() -> Play:
    return Play(Api.DESCRIBE_GROUPS, REQUEST, 6)


def abandon() -> None:
    Play.open.clear()


def test_an_unexpected_step_of_the_handler_fails() -> None:
    with pytest.raises(AssertionError, match="the handler wants"):
        play().asks()
    with pytest.raises(AssertionError, match="the handler wants"):
        play().forwards()
    with pytest.raises(AssertionError):
        play().coordinates(GroupsWithRecords(candidates=("other",)))
    abandon()


def test_an_answer_to_what_was_not_looked_at_fails() -> None:
    with pytest.raises(AssertionError, match="the coordinator was not asked"):
        play().coordinator(GroupsWithRecordsReply())
    with pytest.raises(AssertionError, match="no broker was asked"):
        play().coordinates(KNOWN).broker(dg.DescribeGroupsResponse())
    with pytest.raises(AssertionError, match="no answer to this event"):
        play().coordinates(KNOWN).coordinator(DeletionCheckReply())
    with pytest.raises(AssertionError, match="still waits"):
        play().coordinates(KNOWN).coordinates(KNOWN)
    abandon()


def test_another_request_to_the_broker_fails() -> None:
    known = GroupsWithRecordsReply(groups=frozenset({"g"}))
    with pytest.raises(AssertionError):
        play().coordinates(KNOWN).coordinator(known).may_read("g")
    with pytest.raises(AssertionError):
        play().coordinates(KNOWN).coordinator(known).may_describe("g2")
    with pytest.raises(AssertionError):
        play().coordinates(KNOWN).coordinator(known).asks()
    abandon()


def beat(group_id: str) -> Play:
    return Play(Api.HEARTBEAT, hb.HeartbeatRequest(group_id, 1, "m"), 4)


def refused() -> Play:
    return beat("g").may_not_read("g")


def test_another_end_fails() -> None:
    with pytest.raises(AssertionError, match="answers"):
        refused().forwards()
    with pytest.raises(AssertionError, match="forwarded"):
        beat("theirs").answers(hb.HeartbeatResponse())
    with pytest.raises(AssertionError):
        refused().answers(hb.HeartbeatResponse(error_code=1))
    with pytest.raises(AssertionError, match="has ended"):
        refused().coordinates(DeletionCheck("g"))
    abandon()


def test_a_conversation_that_does_not_end_is_noticed() -> None:
    play()
    assert len(Play.open) == 1
    abandon()
