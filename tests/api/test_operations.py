"""Authorized operations of a group (KIP-430), also where the client's broker does not keep its offsets."""

from __future__ import annotations

import pytest

from sidecar.api.call import Client
from sidecar.core.consumer.events import DescribeConsumerGroup, DescribeReply
from sidecar.core.vocabulary.errors import Code
from sidecar.wire.apis import Api
from sidecar.wire.generated import consumer_group_describe as cd
from sidecar.wire.generated import describe_configs as dc
from sidecar.wire.generated import describe_groups as dg
from sidecar.wire.generated import incremental_alter_configs as ia
from tests.api.play import GUARDED_ELSEWHERE, Play

GROUP, DENIED = 32, Code.GROUP_AUTHORIZATION_FAILED
READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS = (1 << code for code in (3, 6, 8, 10, 11))


def response(operations: int) -> cd.ConsumerGroupDescribeResponse:
    group = cd.DescribedGroup(group_id="g", group_state="Empty", authorized_operations=operations)
    return cd.ConsumerGroupDescribeResponse(groups=[group])


def asking(answer: dg.DescribedGroup, client: Client | None = None) -> Play:
    request = cd.ConsumerGroupDescribeRequest(["g"], include_authorized_operations=True)
    play = Play(Api.CONSUMER_GROUP_DESCRIBE, request, 1, view=GUARDED_ELSEWHERE, client=client).may_describe("g")
    play.asks(dg.DescribeGroupsRequest(["g"], True), 3)
    return play.broker(dg.DescribeGroupsResponse(groups=[answer]))


def described(play: Play, operations: int) -> None:
    play.coordinates(DescribeConsumerGroup("g")).coordinator(DescribeReply(state="Empty")).answers(response(operations))


def test_the_broker_that_keeps_the_offsets_tells_them() -> None:
    described(asking(dg.DescribedGroup(group_id="g", authorized_operations=READ | DESCRIBE)), READ | DESCRIBE)


@pytest.mark.parametrize(
    ("read", "delete", "shows", "alters", "operations"),
    [
        (0, 0, 0, 0, READ | DELETE | DESCRIBE | DESCRIBE_CONFIGS | ALTER_CONFIGS),
        (25, 16, Code.INVALID_REQUEST, Code.INVALID_REQUEST, READ | DELETE | DESCRIBE),
        (DENIED, DENIED, DENIED, DENIED, DESCRIBE),
        (DENIED, 16, DENIED, 0, DELETE | DESCRIBE | ALTER_CONFIGS),
    ],
)
def test_another_broker_is_asked_for_each(read: int, delete: int, shows: int, alters: int, operations: int) -> None:
    play = asking(dg.DescribedGroup(Code.NOT_COORDINATOR, group_id="g")).may_read("g", Code(read))
    play.may_delete("g", Code(delete)).asks(dc.DescribeConfigsRequest([dc.DescribeConfigsResource(GROUP, "g", [])]), 1)
    play.broker(dc.DescribeConfigsResponse(results=[dc.DescribeConfigsResult(shows, None, GROUP, "g")]))
    play.asks(ia.IncrementalAlterConfigsRequest([ia.AlterConfigsResource(GROUP, "g", [])], True), 0)
    play.broker(
        ia.IncrementalAlterConfigsResponse(responses=[ia.AlterConfigsResourceResponse(alters, None, GROUP, "g")])
    )
    described(play, operations)


def test_a_broker_that_says_nothing_of_what_it_was_asked_is_a_fault_of_its_answer() -> None:
    """Symptom: the handler broke with an IndexError. Found by fuzzing a session's broker."""
    play = asking(dg.DescribedGroup(Code.NOT_COORDINATOR, group_id="g")).may_read("g").may_delete("g")
    play.asks(dc.DescribeConfigsRequest([dc.DescribeConfigsResource(GROUP, "g", [])]), 1)
    play.breaks(dc.DescribeConfigsResponse(), "lacks")


def test_a_broker_that_knows_no_settings_of_groups_is_not_asked_of_them() -> None:
    old = Client("10.0.0.9", broker_versions={Api.DESCRIBE_CLUSTER: (0, 1)})
    play = asking(dg.DescribedGroup(Code.NOT_COORDINATOR, group_id="g"), old).may_read("g").may_delete("g")
    described(play, READ | DELETE | DESCRIBE)
