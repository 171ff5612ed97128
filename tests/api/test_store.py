"""Requests to another broker that serves other versions than the client's own: brokers are upgraded one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from sidecar.api import store as module
from sidecar.api.call import PAUSE, NotServed, Store, Want
from sidecar.core.runtime.offset_checks import CheckReply
from sidecar.core.vocabulary.errors import Code
from sidecar.kafka.lanes import Lane
from sidecar.wire.apis import SERVED, Api, response_flexible
from sidecar.wire.frames import response_frame
from sidecar.wire.generated import alter_share_group_offsets as al
from sidecar.wire.generated import consumer_group_describe as cd
from sidecar.wire.generated import delete_groups as dl
from sidecar.wire.generated import delete_share_group_offsets as do
from sidecar.wire.generated import describe_groups as dg
from sidecar.wire.generated import describe_share_group_offsets as ds
from sidecar.wire.generated import offset_commit as oc
from sidecar.wire.generated import offset_delete as od
from sidecar.wire.generated import offset_fetch as of
from sidecar.wire.generated import share_group_describe as sd
from sidecar.wire.generated import streams_group_describe as st
from sidecar.wire.generated import txn_offset_commit as tc
from tests.api.play import ELSEWHERE, OTHER, Play
from tests.inprocess import clock
from tests.inprocess.embedded_front import EmbeddedFront
from tests.inprocess.embedded_sidecar import turns
from tests.inprocess.messages import commit

COMMITTED = [oc.OffsetCommitRequestTopic("t", partitions=[oc.OffsetCommitRequestPartition(0, 5)])]
IN_TRANSACTION = [tc.TxnOffsetCommitRequestTopic("t", partitions=[tc.TxnOffsetCommitRequestPartition(0, 5)])]
REQUESTS: dict[Api, Any] = {
    Api.OFFSET_COMMIT: oc.OffsetCommitRequest("g", topics=COMMITTED),
    Api.TXN_OFFSET_COMMIT: tc.TxnOffsetCommitRequest("tx", "g", 4, 0, topics=IN_TRANSACTION),
    Api.OFFSET_FETCH: of.OffsetFetchRequest(
        "g", [of.OffsetFetchRequestTopic("t", [0])], [of.OffsetFetchRequestGroup("g", topics=None)]
    ),
    Api.OFFSET_DELETE: od.OffsetDeleteRequest("g"),
    Api.DELETE_GROUPS: dl.DeleteGroupsRequest(["g"]),
    Api.DESCRIBE_GROUPS: dg.DescribeGroupsRequest(["g"]),
    Api.CONSUMER_GROUP_DESCRIBE: cd.ConsumerGroupDescribeRequest(["g"]),
    Api.SHARE_GROUP_DESCRIBE: sd.ShareGroupDescribeRequest(["g"]),
    Api.STREAMS_GROUP_DESCRIBE: st.StreamsGroupDescribeRequest(["g"]),
    Api.DESCRIBE_SHARE_GROUP_OFFSETS: ds.DescribeShareGroupOffsetsRequest(
        [ds.DescribeShareGroupOffsetsRequestGroup("g", None)]
    ),
    Api.ALTER_SHARE_GROUP_OFFSETS: al.AlterShareGroupOffsetsRequest("g"),
    Api.DELETE_SHARE_GROUP_OFFSETS: do.DeleteShareGroupOffsetsRequest("g"),
}
REFUSED = Code.COORDINATOR_NOT_AVAILABLE


def other_version(api: Api, version: int, request: Any, known: NotServed) -> tuple[int | None, Any]:
    """Sends the request to a broker with these versions. Returns the version in which it was sent in the end, and the
    client's answer."""
    call = Play(api, request, version, view=ELSEWHERE)
    Play.open.remove(call)
    steps = module.store_at(call.call, OTHER, version, request.encode(version))
    first = next(steps)
    assert isinstance(first, Store) and first.version == version
    sent = None
    messages = module._MESSAGES[api]
    try:
        want: Want = steps.send(known)
        while want is PAUSE:
            want = steps.send(None)
        assert isinstance(want, Store) and want.node_id == OTHER
        sent = want.version
        assert known.low <= sent <= known.high and want.flexible == (sent >= SERVED[api].flexible_from)
        assert messages.request.decode(sent, want.body) == messages.request.decode(version, first.body)
        steps.send(response_frame(7, response_flexible(api, sent), messages.response().encode(sent)))
    except StopIteration as ended:
        return sent, messages.response.decode(version, ended.value)
    raise AssertionError("it waits again")


def versions(api: Api) -> Iterator[int]:
    return iter(range(SERVED[api].low, SERVED[api].high + 1))


@pytest.mark.parametrize("api", module._MESSAGES)
def test_a_request_goes_on_in_a_version_of_that_broker_or_is_refused(api: Api) -> None:
    """Symptom: it went in the client's version. That broker closed the connection, which other clients use, too."""
    request = REQUESTS[api]
    for version in versions(api):
        for highest in versions(api):
            if highest != version:
                sent, answer = other_version(api, version, request, NotServed(highest, highest))
                assert sent in (None, highest)
                assert (sent is None) == (f"error_code={REFUSED.value}" in repr(answer)), (version, highest)
        sent, answer = other_version(api, version, request, NotServed(0, -1))
        assert sent is None and f"error_code={REFUSED.value}" in repr(answer), version


@pytest.mark.parametrize(
    ("api", "version", "highest", "sent"),
    [
        (Api.OFFSET_COMMIT, 9, 8, 8),
        (Api.OFFSET_COMMIT, 10, 9, 9),
        (Api.TXN_OFFSET_COMMIT, 4, 3, 3),
        (Api.TXN_OFFSET_COMMIT, 5, 4, None),  # the broker adds the partition to the transaction only in version 5
        (Api.OFFSET_FETCH, 9, 8, 8),
        (Api.OFFSET_FETCH, 8, 7, None),  # of several groups
        (Api.DESCRIBE_GROUPS, 6, 5, 5),
        (Api.DELETE_GROUPS, 3, 2, 2),
    ],
)
def test_which_versions_mean_the_same(api: Api, version: int, highest: int, sent: int | None) -> None:
    assert other_version(api, version, REQUESTS[api], NotServed(0, highest))[0] == sent


def test_what_an_older_version_lacks_is_not_left_out() -> None:
    topics = [replace(COMMITTED[0], name="", topic_id=b"t" * 16)]
    sent, answer = other_version(Api.OFFSET_COMMIT, 10, oc.OffsetCommitRequest("g", topics=topics), NotServed(2, 9))
    assert sent is None
    assert [(t.topic_id, [p.error_code for p in t.partitions]) for t in answer.topics] == [(b"t" * 16, [REFUSED])]


def test_the_connection_to_that_broker_stays_for_others() -> None:
    async def main() -> None:
        embedded = EmbeddedFront(commit_lanes=1)
        embedded.show(leaders=(2,), authorizer=False)
        brokers = embedded.brokers
        topic_id = brokers.add_topic("orders", 1).topic_id
        own, older = brokers.versions, {**brokers.versions, int(Api.OFFSET_COMMIT): (2, 9)}
        brokers.versions = older
        lane = await embedded.cluster.lane(2, Lane.COMMITS, 0)
        brokers.versions = own
        under_way = brokers.faults.hang(Api.OFFSET_COMMIT)
        by_name, by_id = commit("g", "m", 1, "orders", {0: 5}), commit("g", "m", 1, "", {0: 5})
        by_id.topics[0].topic_id = topic_id
        first, second = await embedded.client(), await embedded.client()
        first.post(by_name, 9)
        embedded.reply(await embedded.request(), CheckReply())
        await turns()
        assert under_way.met == 1
        second.post(by_id, 10)
        embedded.reply(await embedded.request(), CheckReply())
        (topic,) = (await second.answer(by_id, 10)).topics
        assert (topic.topic_id, topic.partitions[0].error_code) == (topic_id, REFUSED)
        under_way.release()
        assert (await first.answer(by_name, 9)).topics[0].partitions[0].error_code == Code.NONE
        assert not lane.closed and brokers.count(Api.OFFSET_COMMIT) == 1

    clock.run(main())
