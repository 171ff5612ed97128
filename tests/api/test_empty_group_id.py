"""A pattern such as .* also matches the empty group id, which no group has: it gets the broker's answers."""

from __future__ import annotations

from typing import Any

import pytest

from sidecar.api.call import Client
from sidecar.core.vocabulary.errors import Code
from sidecar.wire.apis import Api
from sidecar.wire.generated import consumer_group_describe as cd
from sidecar.wire.generated import offset_delete as od
from sidecar.wire.generated import share_group_describe as sd
from sidecar.wire.generated import streams_group_describe as st
from sidecar.wire.generated import txn_offset_commit as tc
from tests.api.play import Message, Play

NOT_VALID = (Code.INVALID_GROUP_ID, None, "")
DESCRIBES: list[tuple[Api, Any, Any]] = [
    (Api.CONSUMER_GROUP_DESCRIBE, cd.ConsumerGroupDescribeRequest, cd.ConsumerGroupDescribeResponse),
    (Api.SHARE_GROUP_DESCRIBE, sd.ShareGroupDescribeRequest, sd.ShareGroupDescribeResponse),
    (Api.STREAMS_GROUP_DESCRIBE, st.StreamsGroupDescribeRequest, st.StreamsGroupDescribeResponse),
]


def play(api: Api, request: Message, version: int, **given: Any) -> Play:
    return Play(api, request, version, managed=("", "g"), share=True, streams=True, **given)


def refusals(response: Any, answer: bytes) -> list[tuple[int, str | None, str]]:
    return [(g.error_code, g.error_message, g.group_id) for g in response.decode(1, answer).groups]


@pytest.mark.parametrize(("api", "request_of", "response"), DESCRIBES, ids=[api.name for api, _, _ in DESCRIBES])
def test_it_has_no_description(api: Api, request_of: Any, response: Any) -> None:
    conversation = play(api, request_of(["", ""]), 1).may_describe("")
    assert refusals(response, conversation.gives()) == [NOT_VALID] * 2
    hidden = play(api, request_of([""]), 1).may_describe("", hidden=[""])
    assert refusals(response, hidden.gives()) == [(Code.GROUP_AUTHORIZATION_FAILED, None, "")]


@pytest.mark.parametrize("kind", ["CONSUMER_GROUP_DESCRIBE", "STREAMS_GROUP_DESCRIBE"])
def test_it_has_none_at_a_broker_without_this_api(kind: str) -> None:
    api, request_of, response = next(d for d in DESCRIBES if d[0].name == kind)
    without = Client("10.0.0.9", broker_versions={Api.METADATA: (0, 8)})
    answer = Play(api, request_of([""]), 1, streams=True, client=without).gives()
    assert refusals(response, answer) == [NOT_VALID]


def test_the_broker_refuses_its_offsets() -> None:
    play(Api.OFFSET_DELETE, od.OffsetDeleteRequest(""), 0).forwards()
    topic = tc.TxnOffsetCommitRequestTopic("t", partitions=[tc.TxnOffsetCommitRequestPartition(0, 100)])
    play(Api.TXN_OFFSET_COMMIT, tc.TxnOffsetCommitRequest("tx", "", 4, 0, 3, "m", None, [topic]), 3).forwards()
