"""The check that no member hears what ends its client (tests/harness/endings.py) sees what it is there for."""

from __future__ import annotations

import pytest

from sidecar.core.classic.events import ClassicHeartbeat, JoinGroup, JoinReply, SyncGroup
from sidecar.core.consumer.events import ConsumerHeartbeat, HeartbeatReply
from sidecar.core.runtime.events import Answer, Event
from sidecar.core.runtime.offset_checks import CheckReply, CommitCheck
from sidecar.core.vocabulary.errors import Code
from tests.harness.endings import ENDS, Endings, ends

BEAT = ConsumerHeartbeat("g", "m", 3)
COMES = ConsumerHeartbeat("g", "m", 0, "i")
SYNC = SyncGroup("g", "m", "i", 3, "consumer", "range", ())
COMMIT = CommitCheck("g", "m", 3, None, 9, False, ())
INNOCENT: list[tuple[Event, Code]] = [
    (BEAT, Code.GROUP_ID_NOT_FOUND),
    (COMES, Code.GROUP_ID_NOT_FOUND),
    (COMES, Code.UNRELEASED_INSTANCE_ID),
    (ConsumerHeartbeat("g", "m", 3, "i"), Code.FENCED_INSTANCE_ID),
    (BEAT, Code.STALE_MEMBER_EPOCH),
    (BEAT, Code.INVALID_REQUEST),
    (BEAT, Code.UNKNOWN_SERVER_ERROR),
    (ClassicHeartbeat("g", "m", "i", 3), Code.FENCED_INSTANCE_ID),
    (ClassicHeartbeat("g", "m", None, 3), Code.INCONSISTENT_GROUP_PROTOCOL),
    (SYNC, Code.INCONSISTENT_GROUP_PROTOCOL),
    (COMMIT, Code.GROUP_ID_NOT_FOUND),
    (COMMIT, Code.UNSUPPORTED_VERSION),
]


@pytest.mark.parametrize(("event", "code"), INNOCENT, ids=lambda x: x.name if isinstance(x, Code) else type(x).__name__)
def test_a_member_that_has_done_nothing_is_not_ended(event: Event, code: Code) -> None:
    seen = Endings(lambda event: Code.NONE)
    if isinstance(event, SyncGroup | ClassicHeartbeat):
        seen.asked(0, JoinGroup("g", "", event.instance_id, "consumer", (("range", b""),), 1, 1, None, "", "", 9, ""))
        seen.answered(0, JoinReply(member_id="m", protocol_type="consumer", protocol="range"))
    elif event == ConsumerHeartbeat("g", "m", 3, "i"):
        seen.asked(0, COMES)
        seen.answered(0, HeartbeatReply(member_id="m", member_epoch=3))
    seen.asked(1, event)
    seen.answered(1, event.refused(code, None))
    assert len(seen.wrong) == 1
    with pytest.raises(AssertionError, match=code.name):
        seen.check()


@pytest.mark.parametrize("event", [BEAT, COMES, SYNC, COMMIT, ClassicHeartbeat("g", "m", None, 3)])
@pytest.mark.parametrize("code", [Code.NONE, Code.NOT_COORDINATOR, Code.UNKNOWN_MEMBER_ID])
def test_from_these_every_client_goes_on(event: Event, code: Code) -> None:
    seen = Endings()
    seen.asked(1, event)
    seen.answered(1, event.refused(code, None))
    assert not seen.wrong
    assert not seen.seen


def test_a_process_in_whose_place_another_came_has_earned_it_and_the_other_has_not() -> None:
    seen = Endings()
    for key, member in enumerate(("old", "new")):
        seen.asked(key, ConsumerHeartbeat("g", member, 0, "i"))
        seen.answered(key, HeartbeatReply(member_id=member, member_epoch=2))
    for key, member in ((2, "old"), (3, "new")):
        seen.asked(key, ConsumerHeartbeat("g", member, 2, "i"))
        seen.answered(key, HeartbeatReply(Code.FENCED_INSTANCE_ID))
    assert ["member_id='new'" in told for told in seen.wrong] == [True]


def test_a_process_that_asked_before_another_may_have_been_heard_after_it() -> None:
    seen = Endings()
    for key, member in ((0, "late"), (1, "in time")):
        seen.asked(key, ConsumerHeartbeat("g", member, 0, "i"))
    for key, member in ((1, "in time"), (0, "late")):
        seen.answered(key, HeartbeatReply(member_id=member, member_epoch=2))
    seen.asked(2, ConsumerHeartbeat("g", "in time", 2, "i"))
    seen.answered(2, HeartbeatReply(Code.FENCED_INSTANCE_ID))
    assert not seen.wrong


@pytest.mark.parametrize("asks_before", [False, True])
def test_who_comes_after_a_static_member_has_left_has_not_earned_that_it_holds_its_instance(asks_before: bool) -> None:
    seen = Endings()
    seen.asked(0, ConsumerHeartbeat("g", "old", 0, "i"))
    seen.answered(0, HeartbeatReply(member_id="old", member_epoch=2))
    seen.asked(1, ConsumerHeartbeat("g", "old", -2, "i"))
    for key in (2, 1) if asks_before else (1, 2):
        if key == 1:
            seen.answered(1, HeartbeatReply(member_id="old", member_epoch=-2))
        else:
            seen.asked(2, ConsumerHeartbeat("g", "new", 0, "i"))
    seen.answered(2, HeartbeatReply(Code.UNRELEASED_INSTANCE_ID))
    assert bool(seen.wrong) is not asks_before


def test_who_has_left_holds_its_instance_again_where_that_never_reached_the_log() -> None:
    seen = Endings()
    seen.asked(0, ConsumerHeartbeat("g", "old", 0, "i"))
    seen.answered(0, HeartbeatReply(member_id="old", member_epoch=2))
    seen.asked(1, ConsumerHeartbeat("g", "old", -2, "i"))
    seen.answered(1, HeartbeatReply(member_id="old", member_epoch=-2))
    seen.lost()
    seen.asked(2, ConsumerHeartbeat("g", "new", 0, "i"))
    seen.answered(2, HeartbeatReply(Code.UNRELEASED_INSTANCE_ID))
    assert not seen.wrong


def test_what_a_commit_is_told_counts() -> None:
    seen = Endings()
    seen.asked(1, COMMIT)
    seen.answered(1, CheckReply(Code.UNKNOWN_SERVER_ERROR))
    assert seen.wrong


def test_every_api_says_by_what_java_ends() -> None:
    """Java's code has the shortest lists of errors that it goes on from. An error that ends another client ends Java,
    too, or the table is not read off the code."""
    for api, clients in ENDS.items():
        assert "Java" in clients, api
        for code in Code:
            others = [c for c in ends(api, code) if c not in ("Java", "franz-go")]
            assert not others or "Java" in ends(api, code) or api == "TxnOffsetCommit", (api, code.name, others)


def test_answers_to_others_than_members_are_not_looked_at() -> None:
    seen = Endings()
    seen.asked(1, Event("g"))
    seen.answered(1, Answer(Code.GROUP_ID_NOT_FOUND))
    assert not seen.wrong


def test_an_answer_that_its_member_has_given_up_ends_nobody() -> None:
    """The first join was heard before the leave, and the second behind it: but the first answer comes last."""
    seen = Endings()
    seen.asked(0, ConsumerHeartbeat("g", "old", 0, "i"))
    seen.answered(0, HeartbeatReply(member_id="old", member_epoch=2))
    seen.asked(1, ConsumerHeartbeat("g", "new", 0, "i"))
    seen.asked(2, ConsumerHeartbeat("g", "old", -2, "i"))
    seen.asked(3, ConsumerHeartbeat("g", "new", 0, "i"))
    seen.answered(2, HeartbeatReply(member_id="old", member_epoch=-2))
    seen.answered(3, HeartbeatReply(member_id="new", member_epoch=2))
    seen.answered(1, HeartbeatReply(Code.UNRELEASED_INSTANCE_ID))
    assert not seen.wrong
    seen.asked(4, ConsumerHeartbeat("g", "new", 0, "i"))
    seen.answered(4, HeartbeatReply(Code.UNRELEASED_INSTANCE_ID))
    assert seen.wrong
