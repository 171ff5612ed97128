"""Offsets of share groups: DescribeShareGroupOffsets (api 90), AlterShareGroupOffsets (api 91) and
DeleteShareGroupOffsets (api 92).

v0: KIP-932. v1 of DescribeShareGroupOffsets: the response has the lag (KIP-1226).

The broker that coordinates its own group of that name keeps the share state, and does what is asked. It refuses to
alter state under a group that has members. So the members here are looked at first, and then the placeholder leaves
that group. A member that joins meanwhile brings another placeholder, and the broker refuses.

Rights are those of the client: its own broker is asked where another one does it. A broker may take long to return
or alter share state while the share coordinator is away, so such a request to another broker has its own connection.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

from sidecar.api import access, slices
from sidecar.api.call import FORWARD, Call, Handler, Want, coordinate, upstream, who
from sidecar.api.store import store_at
from sidecar.core.runtime.events import Answer
from sidecar.core.share.events import Operation, ShareAdmin, ShareAdministered, ShareAdminReply
from sidecar.core.vocabulary.errors import Code
from sidecar.link.messages import OpenShareState
from sidecar.wire.generated import alter_share_group_offsets as al
from sidecar.wire.generated import delete_share_group_offsets as dl
from sidecar.wire.generated import describe_share_group_offsets as ds
from sidecar.wire.primitives import ZERO_UUID

NO_GROUP_RIGHT, NO_TOPIC_RIGHT = "Group authorization failed.", "Topic authorization failed."
"""Kafka's texts for these errors, where it gives the default text."""
Named = TypeVar("Named", al.AlterShareGroupOffsetsRequestTopic, dl.DeleteShareGroupOffsetsRequestTopic)


# ---- describing ---------------------------------------------------------------------------------------------------
def describe_share_group_offsets(call: Call) -> Handler:
    """Describes offsets. Any broker knows those of named partitions; only the group's coordinator knows those of a
    whole group."""
    req = yield from slices.request(call, ds.DescribeShareGroupOffsetsRequest)
    asked = [(_not_here(call, g), g.group_id) for g in req.groups]
    elsewhere = [group_id for away, group_id in asked if away]
    if not elsewhere:
        return FORWARD
    res = ds.DescribeShareGroupOffsetsResponse()
    groups = [g for g, (away, _) in zip(req.groups, asked, strict=True) if not away]
    if groups:
        local = ds.DescribeShareGroupOffsetsRequest(groups)
        body = yield from upstream(call, (yield from slices.encoded(local, call.version)))
        res = yield from slices.decoded(ds.DescribeShareGroupOffsetsResponse, call.version, body)
    answers = [(False, g) for g in res.groups]
    hidden = yield from access.hidden_groups(call, elsewhere)
    for group_id in elsewhere:
        if group_id in hidden:
            code = Code.GROUP_AUTHORIZATION_FAILED
            answers.append((True, ds.DescribeShareGroupOffsetsResponseGroup(group_id, [], code, NO_GROUP_RIGHT)))
        else:
            answers.append((True, (yield from _all_of(call, group_id))))
    ordered = yield from slices.as_asked(asked, answers, lambda a: (a[0], a[1].group_id))
    res.groups = [g for _, g in ordered]
    return (yield from slices.encoded(res, call.version))


def _not_here(call: Call, g: ds.DescribeShareGroupOffsetsRequestGroup) -> bool:
    """Returns whether another broker has to answer, or the sidecar itself."""
    return call.scope.own.is_group(g.group_id) or (g.topics is None and _kept_elsewhere(call, g.group_id))


def _kept_elsewhere(call: Call, group_id: str) -> bool:
    return call.scope.keeps_from_broker(group_id) and call.keeper_of(group_id) != call.scope.node_id


def _all_of(call: Call, group_id: str) -> Generator[Want, Any, ds.DescribeShareGroupOffsetsResponseGroup]:
    req = ds.DescribeShareGroupOffsetsRequest([ds.DescribeShareGroupOffsetsRequestGroup(group_id, None)])
    body = yield from store_at(call, call.keeper_of(group_id), call.version, req.encode(call.version), slow=True)
    res = yield from slices.decoded(ds.DescribeShareGroupOffsetsResponse, call.version, body)
    group = slices.only(res.groups)
    hidden = yield from access.hidden_topics(call, (t.topic_name for t in group.topics))
    group.topics = [t for t in group.topics if t.topic_name not in hidden]
    return group


# ---- altering and deleting ----------------------------------------------------------------------------------------
def alter_share_group_offsets(call: Call) -> Handler:
    req = yield from slices.request(call, al.AlterShareGroupOffsetsRequest)
    right, response = access.refused_read, al.AlterShareGroupOffsetsResponse
    return (yield from _administer(call, req, Operation.ALTER, right, response, _not_altered))


def delete_share_group_offsets(call: Call) -> Handler:
    req = yield from slices.request(call, dl.DeleteShareGroupOffsetsRequest)
    right, response = access.refused_delete, dl.DeleteShareGroupOffsetsResponse
    return (yield from _administer(call, req, Operation.DELETE, right, response, _not_deleted))


def _administer(
    call: Call,
    req: Any,
    operation: Operation,
    right: Callable[[Call, str], Generator[Want, Any, Code]],
    response: type[Any],
    not_done: Callable[[Any], Any],
) -> Handler:
    """Alters or deletes offsets. `right`: asks for the right of the group; `not_done`: the answer for a topic that the
    client may not READ."""
    if not _concerns(call, req.group_id):
        return FORWARD
    code = yield from right(call, req.group_id)
    if code != Code.NONE:
        text = NO_GROUP_RIGHT if code == Code.GROUP_AUTHORIZATION_FAILED else None
        return _refused(call, response, code, text)
    unreadable, req.topics = yield from _readable(call, req.group_id, req.topics)
    res = response()
    if req.topics or not unreadable:  # without topics it is asked whether it might, too
        code, message = yield from administrable(call, req.group_id, operation)
        if code != Code.NONE:
            return _refused(call, response, code, message)
        body = yield from _sent(call, req.group_id, (yield from slices.encoded(req, call.version)))
        res = yield from slices.decoded(response, call.version, body)
        if res.error_code == Code.NONE and any(t.topic_id != ZERO_UUID for t in res.responses):
            yield from _done(call, req.group_id, operation)
    res.responses += [not_done(t) for t in unreadable]
    return (yield from slices.encoded(res, call.version))


def _refused(call: Call, response: type[Any], code: Code, text: str | None) -> bytes:
    body: bytes = response(error_code=code, error_message=text).encode(call.version)
    return body


def _concerns(call: Call, group_id: str) -> bool:
    return group_id != "" and call.scope.keeps_from_broker(group_id)


def _readable(
    call: Call, group_id: str, topics: Sequence[Named]
) -> Generator[Want, Any, tuple[list[Named], list[Named]]]:
    """Returns the topics that the client may not READ, and the others. The broker behind this sidecar checks that by
    itself."""
    if not _kept_elsewhere(call, group_id) or not call.view.authorizer:
        return [], list(topics)
    readable = yield from access.readable_topics(call, (t.topic_name for t in topics))
    return [t for t in topics if t.topic_name not in readable], [t for t in topics if t.topic_name in readable]


def administrable(call: Call, group_id: str, operation: Operation) -> Generator[Want, Any, tuple[Code, str | None]]:
    """Returns the error, or NONE when the group has no members and no placeholder member at the broker any more."""
    reply: ShareAdminReply = yield from coordinate(ShareAdmin(group_id, operation))
    if reply.code != Code.NONE or not reply.placeholder:
        return reply.code, reply.message
    opened: Answer = yield from coordinate(OpenShareState(group_id))
    return opened.code, opened.message


def _sent(call: Call, group_id: str, body: bytes) -> Generator[Want, Any, bytes]:
    return (yield from store_at(call, call.keeper_of(group_id), call.version, body, slow=True))


def _done(call: Call, group_id: str, operation: Operation) -> Generator[Want, Any, None]:
    """Reports the change to the coordinator. A sidecar that ends before this leaves a group without members, which
    expires."""
    yield from coordinate(ShareAdministered(group_id, operation, f"{operation} by {who(call)}"))


def _not_altered(t: al.AlterShareGroupOffsetsRequestTopic) -> al.AlterShareGroupOffsetsResponseTopic:
    code = Code.TOPIC_AUTHORIZATION_FAILED
    parts = [al.AlterShareGroupOffsetsResponsePartition(p.partition_index, code, NO_TOPIC_RIGHT) for p in t.partitions]
    return al.AlterShareGroupOffsetsResponseTopic(t.topic_name, partitions=parts)


def _not_deleted(t: dl.DeleteShareGroupOffsetsRequestTopic) -> dl.DeleteShareGroupOffsetsResponseTopic:
    code = Code.TOPIC_AUTHORIZATION_FAILED
    return dl.DeleteShareGroupOffsetsResponseTopic(t.topic_name, error_code=code, error_message=NO_TOPIC_RIGHT)
