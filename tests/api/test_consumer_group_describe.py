"""ConsumerGroupDescribe: what the coordinator tells, for those who may see the group and all topics in it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from sidecar.api.access import OPERATIONS_OMITTED
from sidecar.api.call import Client
from sidecar.core.consumer.events import DescribeConsumerGroup, DescribedMember, DescribeReply
from sidecar.core.vocabulary.errors import TEXT, Code
from sidecar.wire.apis import Api
from sidecar.wire.generated import consumer_group_describe as cd
from sidecar.wire.generated import describe_groups as dg
from tests.api.play import NO_AUTHORIZER, Play

A, B = b"a" * 16, b"b" * 16
MEMBER = DescribedMember(
    "m", "i", "rack", 5, "app", "/10.0.0.9", ("orders",), None, ((A, "orders", (0, 1)),), ((B, "refunds", (2,)),)
)
REPLY = DescribeReply(state="Reconciling", epoch=6, assignment_epoch=5, assignor="uniform", members=(MEMBER,))
DESCRIBED = cd.DescribedGroup(
    group_id="g",
    group_state="Reconciling",
    group_epoch=6,
    assignment_epoch=5,
    assignor_name="uniform",
    members=[
        cd.Member(
            "m",
            "i",
            "rack",
            5,
            "app",
            "/10.0.0.9",
            ["orders"],
            "",
            cd.Assignment([cd.TopicPartitions(A, "orders", [0, 1])]),
            cd.Assignment([cd.TopicPartitions(B, "refunds", [2])]),
            1,
        )
    ],
    authorized_operations=OPERATIONS_OMITTED,
)
VERSION_0 = Client("10.0.0.9", broker_versions={69: (0, 0)})
WITHOUT = Client(broker_versions={18: (0, 3), 8: (0, 8)})
"""The broker has no consumer protocol."""


def response(*groups: cd.DescribedGroup) -> cd.ConsumerGroupDescribeResponse:
    return cd.ConsumerGroupDescribeResponse(groups=list(groups))


def refused(group_id: str, code: Code, message: str | None = None) -> cd.DescribedGroup:
    return cd.DescribedGroup(code, message, group_id, authorized_operations=OPERATIONS_OMITTED)


def play(*groups: str, version: int = 1, client: Client | None = None, operations: bool = False) -> Play:
    request = cd.ConsumerGroupDescribeRequest(list(groups), include_authorized_operations=operations)
    return Play(Api.CONSUMER_GROUP_DESCRIBE, request, version, client=client)


@pytest.mark.parametrize("version", range(2))
def test_a_group_as_the_coordinator_tells_it(version: int) -> None:
    conversation = play("g", version=version).may_describe("g").coordinates(DescribeConsumerGroup("g"))
    conversation.coordinator(REPLY).may_describe_topics("orders", "refunds").answers(response(DESCRIBED))


def test_authorized_operations_are_the_brokers_word() -> None:
    asked = dg.DescribeGroupsRequest(["g"], include_authorized_operations=True)
    said = dg.DescribeGroupsResponse(groups=[dg.DescribedGroup(group_id="g", authorized_operations=3400)])
    conversation = play("g", operations=True).may_describe("g").asks(asked, 3).broker(said)
    conversation.coordinates(DescribeConsumerGroup("g")).coordinator(REPLY).may_describe_topics("orders", "refunds")
    conversation.answers(response(replace(DESCRIBED, authorized_operations=3400)))


def test_a_member_of_the_classic_protocol() -> None:
    member = DescribedMember("m", None, None, 1, "app", "/h", ("orders",), "", (), (), classic=True)
    reply = DescribeReply(state="Stable", epoch=2, assignment_epoch=2, assignor="range", members=(member,))
    conversation = play("g").may_describe("g").coordinates(DescribeConsumerGroup("g")).coordinator(reply)
    shown = cd.Member("m", None, None, 1, "app", "/h", ["orders"], "", member_type=0)
    group = cd.DescribedGroup(
        group_id="g",
        group_state="Stable",
        group_epoch=2,
        assignment_epoch=2,
        assignor_name="range",
        members=[shown],
        authorized_operations=OPERATIONS_OMITTED,
    )
    conversation.answers(response(group))


def test_a_member_with_a_regular_expression() -> None:
    member = DescribedMember("m", None, None, 1, "app", "/h", (), "orders.*", (), ())
    reply = DescribeReply(state="Stable", epoch=2, assignment_epoch=2, assignor="range", members=(member,))
    conversation = play("g").may_describe("g").coordinates(DescribeConsumerGroup("g")).coordinator(reply)
    shown = cd.Member("m", None, None, 1, "app", "/h", [], "orders.*", member_type=1)
    conversation.answers(
        response(cd.DescribedGroup(0, None, "g", "Stable", 2, 2, "range", [shown], OPERATIONS_OMITTED))
    )


def test_a_group_that_the_principal_may_not_describe() -> None:
    hidden = play("g").may_describe("g", hidden=["g"])
    hidden.answers(response(refused("g", Code.GROUP_AUTHORIZATION_FAILED)))


@pytest.mark.parametrize("topic", ["orders", "refunds"])
def test_a_group_with_a_topic_that_the_principal_may_not_describe(topic: str) -> None:
    conversation = play("g").may_describe("g").coordinates(DescribeConsumerGroup("g")).coordinator(REPLY)
    what = "The group has described topic(s) that the client is not authorized to describe."
    conversation.may_describe_topics("orders", "refunds", hidden=[topic])
    conversation.answers(response(refused("g", Code.TOPIC_AUTHORIZATION_FAILED, what)))


def test_a_topic_that_is_gone_hides_nothing() -> None:
    conversation = play("g").may_describe("g").coordinates(DescribeConsumerGroup("g")).coordinator(REPLY)
    conversation.may_describe_topics("orders", "refunds", code=Code.UNKNOWN_TOPIC_OR_PARTITION)
    conversation.answers(response(DESCRIBED))


def test_without_an_authorizer_no_topic_is_asked_for() -> None:
    request = cd.ConsumerGroupDescribeRequest(["g"])
    conversation = Play(Api.CONSUMER_GROUP_DESCRIBE, request, 1, view=NO_AUTHORIZER).may_describe("g")
    conversation.coordinates(DescribeConsumerGroup("g")).coordinator(REPLY).answers(response(DESCRIBED))


def test_managed_and_other_groups_in_one_request() -> None:
    theirs = cd.DescribedGroup(group_id="theirs", group_state="Stable")
    conversation = play("g", "theirs", "g2").asks(cd.ConsumerGroupDescribeRequest(["theirs"]))
    conversation.broker(response(theirs)).may_describe("g", "g2")
    missing = "Group g not found."
    conversation.coordinates(DescribeConsumerGroup("g")).coordinator(DescribeReply(Code.GROUP_ID_NOT_FOUND, missing))
    code = Code.NOT_COORDINATOR  # its text is not told here, as at a broker
    conversation.coordinates(DescribeConsumerGroup("g2")).coordinator(DescribeReply(code, TEXT[code]))
    conversation.asks(cd.ConsumerGroupDescribeRequest(["g"]))
    conversation.broker(response(refused("g", Code.GROUP_ID_NOT_FOUND, missing)))
    conversation.answers(response(refused("g", Code.GROUP_ID_NOT_FOUND, missing), theirs, refused("g2", code)))


def test_a_broker_without_the_protocol_is_not_asked_for_its_groups() -> None:
    conversation = play("theirs", "g", client=WITHOUT).may_describe("g").coordinates(DescribeConsumerGroup("g"))
    conversation.coordinator(DescribeReply(state="Empty", epoch=3, assignment_epoch=3, assignor="uniform"))
    empty = cd.DescribedGroup(
        group_id="g",
        group_state="Empty",
        group_epoch=3,
        assignment_epoch=3,
        assignor_name="uniform",
        authorized_operations=OPERATIONS_OMITTED,
    )
    none = refused("theirs", Code.GROUP_ID_NOT_FOUND, "Group theirs is not a consumer group.")
    conversation.answers(response(none, empty))


def test_a_broker_without_the_protocol_does_not_see_the_request_at_all() -> None:
    none = refused("theirs", Code.GROUP_ID_NOT_FOUND, "Group theirs is not a consumer group.")
    play("theirs", client=WITHOUT).answers(response(none))


def test_a_broker_with_the_protocol_describes_its_own_groups() -> None:
    play("theirs", client=Client(broker_versions={69: (0, 1)})).forwards()


def test_a_broker_of_fewer_versions_is_asked_in_its_own() -> None:
    """Kafka 3.9 has version 0 only. Symptom: Kafka 4's tools could describe no group of such a broker."""
    theirs = cd.DescribedGroup(group_id="theirs", members=[cd.Member("m")])
    request = cd.ConsumerGroupDescribeRequest(["theirs"])
    play("theirs", client=VERSION_0).asks(request, 0).broker(response(theirs)).answers(response(theirs))
    conversation = play("g", "theirs", client=VERSION_0).asks(request, 0).broker(response(theirs))
    conversation = conversation.may_describe("g").coordinates(DescribeConsumerGroup("g")).coordinator(REPLY)
    conversation.may_describe_topics("orders", "refunds").answers(response(DESCRIBED, theirs))
