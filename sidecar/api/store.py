"""Requests to the broker that keeps a group's offsets or share state.

While brokers are upgraded one by one, that broker may not serve the version in which the client speaks to its own. Then
the request goes on in the nearest version that it serves, unless that version would lose something of the request or
means something else: the client gets COORDINATOR_NOT_AVAILABLE then, and asks again. The sidecars' partitions follow
the brokers that keep the offsets, so that does not last.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from sidecar.api import slices
from sidecar.api.call import CLIENT_ID, Call, NotServed, Store, Want, ask
from sidecar.core.vocabulary.errors import Code
from sidecar.wire.apis import SERVED, Api, response_flexible
from sidecar.wire.frames import response_body
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
from sidecar.wire.primitives import WireError

REFUSED = Code.COORDINATOR_NOT_AVAILABLE
ADDS_PARTITION_SINCE = 5
"""The first version of TxnOffsetCommit in which the broker adds the partition to the transaction itself (KIP-890). The
client has added it before in older versions."""


def store(call: Call, group_id: str, version: int, body: bytes) -> Generator[Want, Any, bytes]:
    """Sends to the broker that keeps this group's offsets: on the client's own connection where that is the broker
    behind this sidecar, so the broker authorises it. Returns the body of the response."""
    return (yield from store_at(call, call.keeper_of(group_id), version, body))


def store_at(
    call: Call, node_id: int, version: int, body: bytes, api_key: int | None = None, slow: bool = False
) -> Generator[Want, Any, bytes]:
    """Sends like `store`, to this broker; a request of the sidecar's own, if an API is named. `slow`: as in `Store`."""
    key, client_id = (call.api_key, call.client_id) if api_key is None else (api_key, CLIENT_ID)
    flexible = version >= SERVED[key].flexible_from
    if node_id == call.scope.node_id:
        frame = yield from ask(call, key, version, body, flexible, client_id)
    else:
        want = Store(node_id, key, version, body, flexible, slow)
        answer: bytes | NotServed = yield want
        if isinstance(answer, NotServed):
            return (yield from _in_another_version(want, answer))
        frame = answer
    return frame[response_body(frame, response_flexible(key, version)) :]


def _in_another_version(want: Store, known: NotServed) -> Generator[Want, Any, bytes]:
    """Sends the request in a version that the broker serves. Returns the body of the response, in the version that was
    wanted."""
    messages, key, version = _MESSAGES[want.api_key], want.api_key, want.version
    request = yield from slices.decoded(messages.request, version, want.body)
    other = _nearest(want, known)
    sent = None if other is None else (yield from _same(messages, request, other))
    if other is not None and sent is not None:
        flexible = other >= SERVED[key].flexible_from
        answer = yield Store(want.node_id, key, other, sent, flexible, want.slow)
        if not isinstance(answer, NotServed):  # else the broker was restarted in between
            at = response_body(answer, response_flexible(key, other))
            response = yield from slices.decoded(messages.response, other, answer, at)
            return (yield from slices.encoded(response, version))
    return (yield from slices.encoded(messages.refused(request), version))


def _nearest(want: Store, known: NotServed) -> int | None:
    """Returns the version next to the wanted one that both know; None: there is none that means the same."""
    spec, version = SERVED[want.api_key], want.version
    low, high = max(spec.low, known.low), min(spec.high, known.high)
    if low > high:
        return None
    other = min(max(version, low), high)
    if want.api_key == Api.TXN_OFFSET_COMMIT and (other < ADDS_PARTITION_SINCE <= version):
        return None
    return other


def _same(messages: _Messages, request: Any, version: int) -> Generator[Want, Any, bytes | None]:
    """Returns the request in this version; None if the version lacks something that the request has."""
    try:
        sent = yield from slices.encoded(request, version)
        return sent if (yield from slices.decoded(messages.request, version, sent)) == request else None
    except WireError:
        return None


@dataclass(frozen=True, slots=True)
class _Messages:
    """The messages of one API. `refused`: makes the answer that refuses a request."""

    request: type[Any]
    response: type[Any]
    refused: Callable[[Any], Any]


def _commits(response: type[Any], topic: type[Any], partition: type[Any]) -> Callable[[Any], Any]:
    """Returns what refuses a request that commits offsets."""

    def refused(request: Any) -> Any:
        parts = [(t, [partition(p.partition_index, REFUSED) for p in t.partitions]) for t in request.topics]
        return response(topics=[topic(t.name, t.topic_id, refusals) for t, refusals in parts])

    return refused


def _fetch(request: of.OffsetFetchRequest) -> of.OffsetFetchResponse:
    part = of.OffsetFetchResponsePartition
    topics = [
        of.OffsetFetchResponseTopic(t.name, [part(p, -1, -1, "", REFUSED) for p in t.partition_indexes])
        for t in request.topics or ()
    ]
    groups = [of.OffsetFetchResponseGroup(g.group_id, [], REFUSED) for g in request.groups]
    return of.OffsetFetchResponse(topics=topics, error_code=REFUSED, groups=groups)


def _described(module: Any, request: type[Any], response: type[Any]) -> _Messages:
    """Returns the messages of an API that describes groups."""

    def refused(asked: Any) -> Any:
        names = asked.groups if module is dg else asked.group_ids
        return response(groups=[module.DescribedGroup(error_code=REFUSED, group_id=name) for name in names])

    return _Messages(request, response, refused)


def _share_offsets(request: ds.DescribeShareGroupOffsetsRequest) -> ds.DescribeShareGroupOffsetsResponse:
    group = ds.DescribeShareGroupOffsetsResponseGroup
    return ds.DescribeShareGroupOffsetsResponse(groups=[group(g.group_id, [], REFUSED) for g in request.groups])


def _deletion(request: dl.DeleteGroupsRequest) -> dl.DeleteGroupsResponse:
    return dl.DeleteGroupsResponse(results=[dl.DeletableGroupResult(g, REFUSED) for g in request.groups_names])


def _whole(response: type[Any]) -> Callable[[Any], Any]:
    """Returns what refuses a request whose response has one error for all."""
    return lambda request: response(error_code=REFUSED)


_MESSAGES: dict[int, _Messages] = {
    Api.OFFSET_COMMIT: _Messages(
        oc.OffsetCommitRequest,
        oc.OffsetCommitResponse,
        _commits(oc.OffsetCommitResponse, oc.OffsetCommitResponseTopic, oc.OffsetCommitResponsePartition),
    ),
    Api.TXN_OFFSET_COMMIT: _Messages(
        tc.TxnOffsetCommitRequest,
        tc.TxnOffsetCommitResponse,
        _commits(tc.TxnOffsetCommitResponse, tc.TxnOffsetCommitResponseTopic, tc.TxnOffsetCommitResponsePartition),
    ),
    Api.OFFSET_FETCH: _Messages(of.OffsetFetchRequest, of.OffsetFetchResponse, _fetch),
    Api.OFFSET_DELETE: _Messages(od.OffsetDeleteRequest, od.OffsetDeleteResponse, _whole(od.OffsetDeleteResponse)),
    Api.DELETE_GROUPS: _Messages(dl.DeleteGroupsRequest, dl.DeleteGroupsResponse, _deletion),
    Api.DESCRIBE_GROUPS: _described(dg, dg.DescribeGroupsRequest, dg.DescribeGroupsResponse),
    Api.CONSUMER_GROUP_DESCRIBE: _described(cd, cd.ConsumerGroupDescribeRequest, cd.ConsumerGroupDescribeResponse),
    Api.SHARE_GROUP_DESCRIBE: _described(sd, sd.ShareGroupDescribeRequest, sd.ShareGroupDescribeResponse),
    Api.STREAMS_GROUP_DESCRIBE: _described(st, st.StreamsGroupDescribeRequest, st.StreamsGroupDescribeResponse),
    Api.DESCRIBE_SHARE_GROUP_OFFSETS: _Messages(
        ds.DescribeShareGroupOffsetsRequest, ds.DescribeShareGroupOffsetsResponse, _share_offsets
    ),
    Api.ALTER_SHARE_GROUP_OFFSETS: _Messages(
        al.AlterShareGroupOffsetsRequest, al.AlterShareGroupOffsetsResponse, _whole(al.AlterShareGroupOffsetsResponse)
    ),
    Api.DELETE_SHARE_GROUP_OFFSETS: _Messages(
        do.DeleteShareGroupOffsetsRequest,
        do.DeleteShareGroupOffsetsResponse,
        _whole(do.DeleteShareGroupOffsetsResponse),
    ),
}
"""APIs of which other brokers are asked."""
