"""The differences that the player tolerates, and those that it does not."""

from __future__ import annotations

import pytest

from tests.player import states
from tests.player.cases import Case
from tests.player.side import ASKED
from tests.player.tolerated import judge


@pytest.mark.parametrize(
    ("theirs", "ours", "same"),
    [
        ("aacb", "abac", True),
        ("cab", "abc", True),  # each name is answered once, as by DeleteGroups
        ("aacb", "baac", False),
        ("cab", "bac", False),
        ("aacb", "abc", False),
        ("aacb", "aacb", True),  # the broker's own answer
    ],
)
def test_a_group_is_answered_where_it_was_asked_for(theirs: str, ours: str, same: bool) -> None:
    heard = [
        ("DescribeGroups", 5, {"groups": [{"groupId": g, "groupState": "Stable"} for g in ids], ASKED: list("abac")})
        for ids in (theirs, ours)
    ]
    assert judge(Case("DescribeGroups", 5, states.no_group), heard[:1], heard[1:])[1] is same


@pytest.mark.parametrize(("api", "same"), [("OffsetCommit", True), ("TxnOffsetCommit", True), ("JoinGroup", False)])
def test_only_a_commit_leaves_an_empty_group_at_the_broker_behind_the_sidecar(api: str, same: bool) -> None:
    left = {"groupId": "g", "protocolType": "", "groupState": "Empty", "groupType": "classic"}
    theirs, ours = ([("ListGroups", 5, {"groups": groups})] for groups in ([], [left]))
    case = Case(api, 9, states.no_group)
    assert judge(case, theirs, ours)[1] is same
    assert judge(case, ours, theirs)[1]


@pytest.mark.parametrize(("state", "same"), [(states.consumer_empty, True), (states.consumer, False)])
def test_only_an_empty_consumer_group_is_forgotten(state: states.Make, same: bool) -> None:
    answers = (
        {"errorCode": 69, "groupState": "", "members": []},
        {"errorCode": 0, "groupState": "Empty", "members": []},
    )
    told = [("ConsumerGroupDescribe", 1, {"groups": [{"groupId": "g", **a}], ASKED: ["g"]}) for a in answers]
    assert judge(Case("JoinGroup", 5, state), told[:1], told[1:])[1] is same
    assert not judge(Case("JoinGroup", 5, state), told[1:], told[:1])[1]
