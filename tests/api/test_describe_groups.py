"""DescribeGroups: classic groups are described, groups of other kinds do not exist for it (docs/reference/behaviour.md,
row 1.26; KIP-40)."""

from __future__ import annotations

import pytest

from sidecar.core.classic.events import DescribeClassic, DescribeClassicReply, DescribedClassicMember
from sidecar.core.consumer.events import DescribeConsumerGroup, DescribedMember, DescribeReply
from sidecar.core.runtime.events import GroupsWithRecords, GroupsWithRecordsReply
from sidecar.core.vocabulary.errors import Code
from sidecar.wire.apis import SERVED, Api
from sidecar.wire.generated import describe_groups as dg
from tests.api.play import Play

HERE = GroupsWithRecordsReply(groups=frozenset({"g"}))
THEIRS = dg.DescribedGroup(group_id="theirs", group_state="Stable", protocol_type="consumer")
OPAQUE = b"\x00\xff what a member says is not read \x80"
STABLE = DescribeClassicReply(
    state="Stable",
    protocol_type="consumer",
    protocol="range",
    members=(
        DescribedClassicMember("m1", None, "app", "/10.0.0.9", OPAQUE, b"\x80 nor is what it got"),
        DescribedClassicMember("m2", "i", "app", "/10.0.0.8", b"", b""),
    ),
)
VERSIONS = range(SERVED[Api.DESCRIBE_GROUPS].low, SERVED[Api.DESCRIBE_GROUPS].high + 1)
OPERATIONS = 1 << 3 | 1 << 8
"""READ and DESCRIBE."""


def response(*groups: dg.DescribedGroup) -> dg.DescribeGroupsResponse:
    return dg.DescribeGroupsResponse(groups=list(groups))


def stable(version: int) -> dg.DescribedGroup:
    members = [
        dg.DescribedGroupMember("m1", None, "app", "/10.0.0.9", OPAQUE, b"\x80 nor is what it got"),
        dg.DescribedGroupMember("m2", "i" if version >= 4 else None, "app", "/10.0.0.8", b"", b""),
    ]
    return dg.DescribedGroup(0, None, "g", "Stable", "consumer", "range", members)


def play(*groups: str, version: int = 6, operations: bool = False) -> Play:
    managed = tuple(g for g in groups if g.startswith("g"))
    request = dg.DescribeGroupsRequest(list(groups), operations)
    return Play(Api.DESCRIBE_GROUPS, request, version).coordinates(GroupsWithRecords(candidates=managed))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_classic_group(version: int) -> None:
    conversation = play("g", version=version).coordinator(HERE).may_describe("g")
    conversation.coordinates(DescribeClassic("g", version)).coordinator(STABLE).answers(response(stable(version)))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_group_that_is_not_there_or_of_another_kind_is_dead(version: int) -> None:
    conversation = (
        play("g", version=version).coordinator(HERE).may_describe("g").coordinates(DescribeClassic("g", version))
    )
    dead = dg.DescribedGroup(group_id="g", group_state="Dead")
    if version >= 6:
        dead.error_code, dead.error_message = Code.GROUP_ID_NOT_FOUND, "Group g is not a classic group."
    reply = DescribeClassicReply(Code.GROUP_ID_NOT_FOUND, "Group g is not a classic group.")
    conversation.coordinator(reply).answers(response(dead))


def test_a_managed_group_of_which_nothing_but_offsets_is_there_is_still_the_brokers() -> None:
    play("g", "theirs").coordinator(GroupsWithRecordsReply()).forwards()


@pytest.mark.parametrize("version", VERSIONS)
def test_groups_of_the_broker_pass_untouched(version: int) -> None:
    Play(Api.DESCRIBE_GROUPS, dg.DescribeGroupsRequest(["theirs"]), version).forwards()


def test_managed_and_other_groups_in_one_request() -> None:
    conversation = play("g", "theirs", "g2").coordinator(GroupsWithRecordsReply(groups=frozenset({"g", "g2"})))
    conversation.asks(dg.DescribeGroupsRequest(["theirs"])).broker(response(THEIRS)).may_describe(
        "g", "g2", hidden=["g"]
    )
    refused = DescribeClassicReply(Code.NOT_COORDINATOR, "a text that nobody gets")
    conversation.coordinates(DescribeClassic("g2", 6)).coordinator(refused)
    conversation.answers(
        response(
            dg.DescribedGroup(Code.GROUP_AUTHORIZATION_FAILED, group_id="g"),
            THEIRS,
            dg.DescribedGroup(Code.NOT_COORDINATOR, group_id="g2"),
        )
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_several_groups_are_described_in_one_request(version: int) -> None:
    """KIP-40: a tool sends one request for all groups of a coordinator."""
    conversation = play("g", "g2", version=version).coordinator(GroupsWithRecordsReply(groups=frozenset({"g", "g2"})))
    conversation.may_describe("g", "g2").coordinates(DescribeClassic("g", version)).coordinator(STABLE)
    conversation.coordinates(DescribeClassic("g2", version)).coordinator(DescribeClassicReply(state="Empty"))
    conversation.answers(response(stable(version), dg.DescribedGroup(group_id="g2", group_state="Empty")))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "code", [Code.COORDINATOR_LOAD_IN_PROGRESS, Code.NOT_COORDINATOR, Code.COORDINATOR_NOT_AVAILABLE]
)
def test_an_error_of_the_coordinator_is_the_groups_error_code(version: int, code: Code) -> None:
    """KIP-40's state Initializing is an error in Kafka. Who coordinates the group instead, FindCoordinator tells."""
    conversation = play("g", version=version).coordinator(HERE).may_describe("g")
    conversation.coordinates(DescribeClassic("g", version)).coordinator(DescribeClassicReply(code))
    conversation.answers(response(dg.DescribedGroup(code, group_id="g")))


def test_without_a_coordinator_the_group_is_not_the_brokers_either() -> None:
    code = Code.COORDINATOR_NOT_AVAILABLE
    conversation = play("g").coordinator(GroupsWithRecordsReply(code)).may_describe("g")
    conversation.coordinates(DescribeClassic("g", 6)).coordinator(DescribeClassicReply(code))
    conversation.answers(response(dg.DescribedGroup(code, group_id="g")))


# ---- authorized operations (KIP-430) --------------------------------------------------------------------------------
def operations(*groups: str) -> tuple[dg.DescribeGroupsRequest, dg.DescribeGroupsResponse]:
    said = [dg.DescribedGroup(group_id=g, group_state="Dead", authorized_operations=OPERATIONS) for g in groups]
    return dg.DescribeGroupsRequest(list(groups), True), response(*said)


@pytest.mark.parametrize("version", range(3, 7))
def test_authorized_operations_are_the_brokers_word(version: int) -> None:
    asked, said = operations("g")
    conversation = play("g", version=version, operations=True).coordinator(HERE).may_describe("g")
    conversation.asks(asked, 3).broker(said).coordinates(DescribeClassic("g", version)).coordinator(STABLE)
    group = stable(version)
    group.authorized_operations = OPERATIONS
    conversation.answers(response(group))


def test_a_group_that_is_dead_without_an_error_has_them_too() -> None:
    asked, said = operations("g")
    conversation = play("g", version=5, operations=True).coordinator(HERE).may_describe("g").asks(asked, 3).broker(said)
    conversation.coordinates(DescribeClassic("g", 5)).coordinator(DescribeClassicReply(Code.GROUP_ID_NOT_FOUND, "gone"))
    dead = dg.DescribedGroup(group_id="g", group_state="Dead", authorized_operations=OPERATIONS)
    conversation.answers(response(dead))


def test_a_group_with_an_error_has_none() -> None:
    asked, said = operations("g")
    conversation = play("g", operations=True).coordinator(HERE).may_describe("g").asks(asked, 3).broker(said)
    conversation.coordinates(DescribeClassic("g", 6)).coordinator(DescribeClassicReply(Code.GROUP_ID_NOT_FOUND, "gone"))
    conversation.answers(response(dg.DescribedGroup(Code.GROUP_ID_NOT_FOUND, "gone", "g", "Dead")))


def test_whether_they_are_wanted_goes_on_to_the_broker_and_hidden_groups_have_none() -> None:
    conversation = play("theirs", "g", operations=True).coordinator(HERE)
    conversation.asks(dg.DescribeGroupsRequest(["theirs"], True)).broker(response(THEIRS)).may_describe(
        "g", hidden=["g"]
    )
    conversation.answers(response(THEIRS, dg.DescribedGroup(Code.GROUP_AUTHORIZATION_FAILED, group_id="g")))


# ---- compat.describe_modern_as_classic ----------------------------------------------------------------------------
MODERN = DescribeReply(
    state="Reconciling",
    epoch=6,
    assignment_epoch=5,
    assignor="uniform",
    members=(
        DescribedMember("m", "i", None, 5, "app", "/h", ("orders",), None, ((b"\1" * 16, "orders", (0, 1)),), ()),
    ),
)


def as_classic() -> Play:
    request = dg.DescribeGroupsRequest(["g"])
    play = Play(Api.DESCRIBE_GROUPS, request, 5, modern_as_classic=True)
    play.coordinates(GroupsWithRecords(candidates=("g",))).coordinator(HERE).may_describe("g")
    play.coordinates(DescribeClassic("g", 5))
    return play.coordinator(DescribeClassicReply(Code.GROUP_ID_NOT_FOUND, "Group g is not a classic group."))


def test_a_consumer_group_is_shown_to_tools_that_know_classic_ones_only() -> None:
    play = as_classic().coordinates(DescribeConsumerGroup("g")).coordinator(MODERN).may_describe_topics("orders")
    given = b"\0\0\0\0\0\1\0\6orders\0\0\0\2\0\0\0\0\0\0\0\1\xff\xff\xff\xff"
    says = b"\0\0\0\0\0\1\0\6orders\xff\xff\xff\xff"
    member = dg.DescribedGroupMember("m", "i", "app", "/h", says, given)
    group = dg.DescribedGroup(0, None, "g", "CompletingRebalance", "consumer", "uniform", [member])
    play.answers(dg.DescribeGroupsResponse(groups=[group]))


def test_not_to_those_who_may_not_see_its_topics() -> None:
    play = (
        as_classic()
        .coordinates(DescribeConsumerGroup("g"))
        .coordinator(MODERN)
        .may_describe_topics("orders", hidden=("orders",))
    )
    play.answers(dg.DescribeGroupsResponse(groups=[dg.DescribedGroup(Code.TOPIC_AUTHORIZATION_FAILED, None, "g")]))


def test_a_group_that_is_not_there_stays_dead() -> None:
    missing = DescribeReply(Code.GROUP_ID_NOT_FOUND, "Group g not found.")
    play = as_classic().coordinates(DescribeConsumerGroup("g")).coordinator(missing)
    play.answers(dg.DescribeGroupsResponse(groups=[dg.DescribedGroup(group_id="g", group_state="Dead")]))
