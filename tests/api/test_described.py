"""Managed groups that no sidecar has: empty ones of the broker's, from before they were managed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from sidecar.api.access import OPERATIONS_OMITTED
from sidecar.api.call import Client
from sidecar.core.consumer.events import DescribeConsumerGroup, DescribeReply
from sidecar.core.share.events import DescribeShareGroup, ShareDescribeReply
from sidecar.core.streams.events import DescribeStreamsGroup, StreamsDescribeReply
from sidecar.core.vocabulary.errors import Code
from sidecar.wire.apis import Api
from sidecar.wire.generated import consumer_group_describe as cd
from sidecar.wire.generated import describe_groups as dg
from sidecar.wire.generated import share_group_describe as sd
from sidecar.wire.generated import streams_group_describe as td
from tests.api.play import GUARDED_ELSEWHERE, VIEW, Play


@dataclass(frozen=True)
class Kind:
    api: Api
    name: str
    request: type[Any]
    response: type[Any]
    described: type[Any]
    event: type[Any]
    reply: type[Any]

    def refused(self, message: str) -> Any:
        return self.described(Code.GROUP_ID_NOT_FOUND, message, "g", authorized_operations=OPERATIONS_OMITTED)

    def play(self, message: str, **given: Any) -> Play:
        play = Play(self.api, self.request(["g"]), 1, share=True, streams=True, **given).may_describe("g")
        return play.coordinates(self.event("g")).coordinator(self.reply(Code.GROUP_ID_NOT_FOUND, message))


KINDS = (
    Kind(
        Api.CONSUMER_GROUP_DESCRIBE,
        "consumer",
        cd.ConsumerGroupDescribeRequest,
        cd.ConsumerGroupDescribeResponse,
        cd.DescribedGroup,
        DescribeConsumerGroup,
        DescribeReply,
    ),
    Kind(
        Api.SHARE_GROUP_DESCRIBE,
        "share",
        sd.ShareGroupDescribeRequest,
        sd.ShareGroupDescribeResponse,
        sd.DescribedGroup,
        DescribeShareGroup,
        ShareDescribeReply,
    ),
    Kind(
        Api.STREAMS_GROUP_DESCRIBE,
        "streams",
        td.StreamsGroupDescribeRequest,
        td.StreamsGroupDescribeResponse,
        td.DescribedGroup,
        DescribeStreamsGroup,
        StreamsDescribeReply,
    ),
)
MISSING = "Group g not found."


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_an_empty_group_of_the_broker_is_described_by_it(kind: Kind) -> None:
    """Symptom: ListGroups had the broker's empty group, and its description was "not found": the tools' --describe
    --all-groups failed for all groups."""
    empty = kind.described(0, None, "g", "Empty", 7, 7, authorized_operations=OPERATIONS_OMITTED)
    for group in (empty, kind.refused(f"Group g is not a {kind.name} group."), kind.refused(MISSING)):
        answer = kind.response(groups=[group])
        kind.play(MISSING).asks(kind.request(["g"])).broker(answer).answers(answer)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("case", ["of another kind", "kept elsewhere", "a broker of Kafka 3"])
def test_the_broker_is_not_asked_for_a_group(kind: Kind, case: str) -> None:
    message = f"Group g is not a {kind.name} group." if case == "of another kind" else MISSING
    client = Client("10.0.0.9", broker_versions={Api.DESCRIBE_GROUPS: (0, 6)}) if "Kafka 3" in case else None
    view = GUARDED_ELSEWHERE if case == "kept elsewhere" else VIEW
    kind.play(message, view=view, client=client).answers(kind.response(groups=[kind.refused(message)]))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_broker_is_asked_once_for_all_groups(kind: Kind) -> None:
    play = Play(kind.api, kind.request(["g", "g2", "g"], True), 1, share=True, streams=True).may_describe("g", "g2")
    play.asks(dg.DescribeGroupsRequest(["g", "g2"], include_authorized_operations=True), 3)
    play.broker(dg.DescribeGroupsResponse(groups=[dg.DescribedGroup(group_id=g) for g in ("g", "g2")]))
    for g in ("g", "g2"):
        play.coordinates(kind.event(g)).coordinator(kind.reply(Code.GROUP_ID_NOT_FOUND, f"Group {g} not found."))
    one, two = (kind.described(0, None, g, "Empty", authorized_operations=7) for g in ("g", "g2"))
    play.asks(kind.request(["g", "g2"], True)).broker(kind.response(groups=[two, one]))
    play.answers(kind.response(groups=[one, two, one]))
