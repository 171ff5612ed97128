"""DescribeGroups: a managed group does not exist for it (docs/reference/behaviour.md 1.26)."""

from __future__ import annotations

import pytest

from sidecar.core.errors import Code
from sidecar.core.events import KnownGroups, KnownReply, Standing, StandingReply
from sidecar.wire.apis import Api
from sidecar.wire.generated import describe_groups as dg
from tests.api.play import Play

HERE = KnownReply(groups=frozenset({"g"}))
CLASSIC = dg.DescribedGroup(group_id="theirs", group_state="Stable", protocol_type="consumer")


def told(*groups: dg.DescribedGroup) -> dg.DescribeGroupsResponse:
    return dg.DescribeGroupsResponse(groups=list(groups))


def play(*groups: str, version: int = 6) -> Play:
    managed = tuple(g for g in groups if g.startswith("g"))
    conversation = Play(Api.DESCRIBE_GROUPS, dg.DescribeGroupsRequest(list(groups)), version)
    return conversation.coordinates(KnownGroups(candidates=managed))


@pytest.mark.parametrize("version", range(7))
def test_a_managed_group_is_not_classic(version: int) -> None:
    conversation = play("g", version=version).coordinator(HERE).may_describe("g")
    conversation.coordinates(Standing("g")).coordinator(StandingReply(exists=True, members=3))
    dead = dg.DescribedGroup(group_id="g", group_state="Dead")
    if version >= 6:
        dead.error_code, dead.error_message = Code.GROUP_ID_NOT_FOUND, "Group g is not a classic group."
    conversation.answers(told(dead))


def test_a_managed_group_of_which_nothing_but_offsets_is_there_is_still_the_brokers() -> None:
    play("g", "theirs").coordinator(KnownReply()).forwards()


def test_managed_and_other_groups_in_one_request() -> None:
    conversation = play("g", "theirs", "g2").coordinator(KnownReply(groups=frozenset({"g", "g2"})))
    conversation.asks(dg.DescribeGroupsRequest(["theirs"])).broker(told(CLASSIC)).may_describe("g", "g2", hidden=["g"])
    conversation.coordinates(Standing("g2")).coordinator(StandingReply(Code.NOT_COORDINATOR, "any text"))
    conversation.answers(
        told(
            CLASSIC,
            dg.DescribedGroup(Code.GROUP_AUTHORIZATION_FAILED, group_id="g"),
            dg.DescribedGroup(Code.NOT_COORDINATOR, group_id="g2"),
        )
    )


def test_whether_authorized_operations_are_wanted_goes_on_to_the_broker() -> None:
    request = dg.DescribeGroupsRequest(["theirs", "g"], include_authorized_operations=True)
    conversation = Play(Api.DESCRIBE_GROUPS, request, 6).coordinates(KnownGroups(candidates=("g",))).coordinator(HERE)
    conversation.asks(dg.DescribeGroupsRequest(["theirs"], True)).broker(told(CLASSIC)).may_describe("g", hidden=["g"])
    conversation.answers(told(CLASSIC, dg.DescribedGroup(Code.GROUP_AUTHORIZATION_FAILED, group_id="g")))


def test_without_a_coordinator_the_group_is_not_the_brokers_either() -> None:
    code = Code.COORDINATOR_NOT_AVAILABLE
    conversation = play("g").coordinator(KnownReply(code)).may_describe("g")
    conversation.coordinates(Standing("g")).coordinator(StandingReply(code))
    conversation.answers(told(dg.DescribedGroup(code, group_id="g")))
