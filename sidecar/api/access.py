"""Asks the broker what the principal of a connection may do, on the client's own connection, and keeps the answers for
a while.

READ of a group: a Heartbeat (api 12) of an unknown member is refused with GROUP_AUTHORIZATION_FAILED before anything
else is looked at. DELETE of a group: so is an OffsetDelete without topics, which deletes nothing. DESCRIBE of groups:
DescribeGroups. DESCRIBE of topics: ListOffsets, which no other right opens. READ of topics and DESCRIBE of the cluster:
Metadata, whose response has authorized operations if they are requested (KIP-430).
A broker without an authorizer is asked all the same, so that nothing is served to a client that has not
authenticated: once per connection and group where clients authenticate. An answer on a connection without
authentication shows that the listener needs none, and counts for all such connections, as long as any answer is kept.

No client has a right to the owners' group, so the broker is not asked about it.

If the authorizer fails, a broker answers UNKNOWN_SERVER_ERROR, or REQUEST_TIMED_OUT. That is no right, and is not kept.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from sidecar.api import slices
from sidecar.api.call import CLIENT_ID, Call, Kept, NotServed, Store, Want, ask
from sidecar.core.vocabulary.errors import Code
from sidecar.wire.apis import Api
from sidecar.wire.frames import request_frame, response_body
from sidecar.wire.generated import describe_configs as dc
from sidecar.wire.generated import describe_groups as dg
from sidecar.wire.generated import heartbeat as hb
from sidecar.wire.generated import incremental_alter_configs as ia
from sidecar.wire.generated import list_offsets as lo
from sidecar.wire.generated import metadata as md
from sidecar.wire.generated import offset_delete as od
from sidecar.wire.primitives import WireError

T = TypeVar("T")
LATEST = -1
GROUP_SETTINGS_SINCE = 2
"""The version of DescribeCluster that came with settings of groups: Kafka 4.0."""
METADATA_BY_ID = 12
"""The version of Metadata that takes topic ids without names."""
METADATA_OF_RIGHTS = 8
"""The version of Metadata with the authorised operations of topics and of the cluster."""
READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS = (1 << code for code in (3, 6, 8, 10, 11))
"""Bits of Kafka's AclOperation."""
OPERATIONS_OMITTED = -2147483648
FAILED = (Code.UNKNOWN_SERVER_ERROR, Code.REQUEST_TIMED_OUT)
UNSURE = Code.COORDINATOR_NOT_AVAILABLE
"""Answer to a client whose rights are unknown: clients retry after it."""
ASKED = 2_048
"""Topics in one question to the broker."""
GROUP = 32
"""Resource type of a group in requests about settings."""


def lets_in(correlation_id: int) -> bytes:
    """Returns a request that a broker answers to every client that it lets in, whatever its rights. It closes the
    connection of any other client."""
    probe = md.MetadataRequest(topics=[], allow_auto_topic_creation=False).encode(METADATA_OF_RIGHTS)
    return request_frame(Api.METADATA, METADATA_OF_RIGHTS, correlation_id, CLIENT_ID, False, probe)


def kept_read(call: Call, group_id: str) -> Code | None:
    """Returns the answer of `refused_read` if it is known without the broker, else None."""
    if call.scope.own.is_group(group_id):
        return Code.GROUP_AUTHORIZATION_FAILED
    known = call.client.readable.get(group_id)
    if known is None or known[1] <= call.now_ms:
        return None
    _rests(call, known[1])
    return Code.NONE if known[0] == 0 else Code(known[0])


def refused_read(call: Call, group_id: str) -> Generator[Want, Any, Code]:
    """Returns GROUP_AUTHORIZATION_FAILED without READ of the group, COORDINATOR_NOT_AVAILABLE if the right is unknown,
    or NONE."""
    known = kept_read(call, group_id)
    if known is not None:
        return known
    open_to_all, learnt = _anybody(call), call.scope.learnt
    if open_to_all and learnt.open_until_ms > call.now_ms:
        yield from _keep(call, call.client.readable, {group_id: Code.NONE}, learnt.open_until_ms)
        return Code.NONE
    if open_to_all and learnt.open_meanwhile:
        return Code.NONE
    probe = hb.HeartbeatRequest(group_id=group_id, generation_id=-1, member_id="")
    frame = yield from ask(call, Api.HEARTBEAT, 3, probe.encode(3), flexible=False)
    res = yield from slices.decoded(hb.HeartbeatResponse, 3, frame, response_body(frame, False))
    code = _verdict(res.error_code)
    if code == UNSURE:
        return code
    yield from _keep(call, call.client.readable, {group_id: code})
    if open_to_all and code == Code.NONE:
        learnt.open_until_ms = call.now_ms + call.scope.access_keep_ms
    return code


def _anybody(call: Call) -> bool:
    """Returns whether all clients have the same rights: there is no authorizer, and this client does not
    authenticate."""
    return not call.view.authorizer and not call.client.authenticates


def may_see_meanwhile(call: Call, group_id: str) -> bool:
    """Returns whether a kept answer shows that the principal may DESCRIBE this group, while the broker is silent. READ
    of a group includes that."""
    for kept in (call.client.readable, call.client.describable):
        code, until_ms = kept.get(group_id, (Code.GROUP_AUTHORIZATION_FAILED, 0))
        if code == Code.NONE and until_ms > call.now_ms:
            return True
    return _anybody(call) and call.scope.learnt.open_meanwhile


def refused_delete(call: Call, group_id: str) -> Generator[Want, Any, Code]:
    """Returns a code as `refused_read`, for DELETE of the group. It is asked so rarely that the answer is not kept."""
    if call.scope.own.is_group(group_id):
        return Code.GROUP_AUTHORIZATION_FAILED
    probe = od.OffsetDeleteRequest(group_id=group_id)
    frame = yield from ask(call, Api.OFFSET_DELETE, 0, probe.encode(0), flexible=False)
    res = yield from slices.decoded(od.OffsetDeleteResponse, 0, frame, response_body(frame, False))
    return _verdict(res.error_code)


def _verdict(answered: int) -> Code:
    if answered in FAILED:
        return UNSURE
    return Code.GROUP_AUTHORIZATION_FAILED if answered == Code.GROUP_AUTHORIZATION_FAILED else Code.NONE


def hidden_groups(call: Call, group_ids: Iterable[str]) -> Generator[Want, Any, set[str]]:
    """Returns the groups that the principal may not DESCRIBE."""
    wanted = list(dict.fromkeys(group_ids))
    own = set((yield from slices.chosen(wanted, call.scope.own.is_group)))
    groups = yield from slices.chosen(wanted, lambda g: g not in own)
    if groups and not call.view.authorizer:
        groups = groups[:1]  # one probe: the broker turns away a client that has not authenticated
    codes = yield from _known(call, call.client.describable, groups)
    missing = yield from slices.chosen(groups, lambda g: g not in codes)
    if missing:
        probe = yield from slices.encoded(dg.DescribeGroupsRequest(groups=missing), 0)
        frame = yield from ask(call, Api.DESCRIBE_GROUPS, 0, probe, flexible=False)
        res = yield from slices.decoded(dg.DescribeGroupsResponse, 0, frame, response_body(frame, False))
        answers = yield from slices.made(res.groups, lambda g: (g.group_id, g.error_code))
        codes |= yield from _answers_kept(call, call.client.describable, missing, dict(answers))
    denials = (Code.GROUP_AUTHORIZATION_FAILED, *FAILED)
    return own.union((yield from slices.chosen(groups, lambda g: codes[g] in denials)))


def sees_all_groups(call: Call) -> Generator[Want, Any, bool]:
    """Returns whether the principal may DESCRIBE the cluster: then a broker lists every group to it. It is asked so
    rarely that the answer is not kept."""
    res = yield from _rights(call, md.MetadataRequest(topics=[], include_cluster_authorized_operations=True))
    return bool(_bits(res.cluster_authorized_operations) & DESCRIBE)


def operations(call: Call, group_ids: Iterable[str]) -> Generator[Want, Any, dict[str, int]]:
    """Returns the principal's operations on each of these groups, which it may DESCRIBE, as bits of AclOperation
    (KIP-430). Only the broker that keeps a group's offsets knows them all; another one is asked for each operation."""
    groups = list(dict.fromkeys(group_ids))
    if not groups:
        return {}
    wanted = dg.DescribeGroupsRequest(groups=groups, include_authorized_operations=True)
    frame = yield from ask(call, Api.DESCRIBE_GROUPS, 3, (yield from slices.encoded(wanted, 3)), flexible=False)
    res = yield from slices.decoded(dg.DescribeGroupsResponse, 3, frame, response_body(frame, False))
    by_group = {g.group_id: g.authorized_operations for g in res.groups if g.error_code == Code.NONE}
    for group_id in groups:
        if group_id not in by_group:
            by_group[group_id] = yield from _each_operation(call, group_id)
    return by_group


def knows_group_settings(call: Call) -> bool:
    """Returns whether the broker knows settings of groups. Those before Kafka 4.0 refuse a whole request for them, and
    log an error with a stack trace."""
    versions = call.broker_versions
    return versions is None or versions.get(Api.DESCRIBE_CLUSTER, (0, -1))[1] >= GROUP_SETTINGS_SINCE


def _of_settings(call: Call, group_id: str) -> Generator[Want, Any, tuple[int, int]]:
    """Returns the error codes of describing this group's settings, and of changing them."""
    if not knows_group_settings(call):
        return Code.INVALID_REQUEST, Code.INVALID_REQUEST
    shown = dc.DescribeConfigsRequest([dc.DescribeConfigsResource(GROUP, group_id, [])]).encode(1)
    frame = yield from ask(call, Api.DESCRIBE_CONFIGS, 1, shown, flexible=False)
    described = _first(dc.DescribeConfigsResponse.decode(1, frame, response_body(frame, False)).results).error_code
    nothing = ia.IncrementalAlterConfigsRequest([ia.AlterConfigsResource(GROUP, group_id, [])], True).encode(0)
    frame = yield from ask(call, Api.INCREMENTAL_ALTER_CONFIGS, 0, nothing, flexible=False)
    res = ia.IncrementalAlterConfigsResponse.decode(0, frame, response_body(frame, False))
    altered = _first(res.responses).error_code
    return described, altered


def _first(answers: Sequence[T]) -> T:
    """Returns the first answer. Raises WireError if the broker gave none."""
    if not answers:
        raise WireError("the broker's answer lacks what it was asked")
    return answers[0]


def _each_operation(call: Call, group_id: str) -> Generator[Want, Any, int]:
    """Returns the bits of the operations, asked one by one. A broker without settings of groups has no rights to them
    either."""
    read = yield from refused_read(call, group_id)
    delete = yield from refused_delete(call, group_id)
    described, altered = yield from _of_settings(call, group_id)
    codes = {READ: read, DELETE: delete, DESCRIBE_CONFIGS: described, ALTER_CONFIGS: altered}
    denials = (Code.GROUP_AUTHORIZATION_FAILED, Code.INVALID_REQUEST, Code.UNSUPPORTED_VERSION, *FAILED, UNSURE)
    return DESCRIBE | sum(bit for bit, code in codes.items() if code not in denials)


def hidden_topics(call: Call, names: Iterable[str]) -> Generator[Want, Any, set[str]]:
    """Returns the topics that the principal may not DESCRIBE, whether they exist or not."""
    codes = yield from _of_topics(call, names)
    denials = (Code.TOPIC_AUTHORIZATION_FAILED, *FAILED)
    return set((yield from slices.chosen(codes, lambda t: codes[t] in denials)))


def surely_hidden_topics(call: Call, names: Iterable[str]) -> Generator[Want, Any, set[str] | None]:
    """Returns the topics as `hidden_topics` does; None if the authorizer failed for one of them."""
    codes = yield from _of_topics(call, names)
    if any(code in FAILED for code in codes.values()):
        return None
    return {t for t, code in codes.items() if code == Code.TOPIC_AUTHORIZATION_FAILED}


def _of_topics(call: Call, names: Iterable[str]) -> Generator[Want, Any, dict[str, int]]:
    if not call.view.authorizer:
        return {}
    topics = yield from slices.sorted_once(names)
    codes = yield from _known(call, call.client.topics, topics)
    missing = yield from slices.chosen(topics, lambda t: t not in codes)
    for at in range(0, len(missing), ASKED):  # what is made of a name takes ten times as much memory
        batch = missing[at : at + ASKED]
        codes |= yield from _answers_kept(call, call.client.topics, batch, (yield from _asked_of_topics(call, batch)))
    return codes


def _asked_of_topics(call: Call, topics: list[str]) -> Generator[Want, Any, dict[str, int]]:
    probe = lo.ListOffsetsRequest(replica_id=-1, topics=list(map(_latest, topics)))
    frame = yield from ask(call, Api.LIST_OFFSETS, 1, probe.encode(1), flexible=False)
    res = yield from slices.decoded(lo.ListOffsetsResponse, 1, frame, response_body(frame, False))
    return {t.name: t.partitions[0].error_code for t in res.topics if t.partitions}


def _latest(topic: str) -> lo.ListOffsetsTopic:
    return lo.ListOffsetsTopic(topic, [lo.ListOffsetsPartition(0, timestamp=LATEST)])


def readable_topics(call: Call, names: Iterable[str]) -> Generator[Want, Any, dict[str, frozenset[int]]]:
    """Returns the topics that the principal may READ, whether they exist or not, with the partitions that they have.
    The broker is asked so rarely that the answer is not kept."""
    wanted = yield from slices.sorted_once(names)
    if not wanted:
        return {}
    topics = yield from slices.made(wanted, lambda n: md.MetadataRequestTopic(name=n))
    res = yield from _rights(call, md.MetadataRequest(topics=topics, include_topic_authorized_operations=True))
    free = not call.view.authorizer
    readable = yield from slices.chosen(res.topics, lambda t: free or _bits(t.topic_authorized_operations) & READ)
    return dict(
        (yield from slices.made(readable, lambda t: (t.name or "", frozenset(p.partition_index for p in t.partitions))))
    )


def _rights(call: Call, probe: md.MetadataRequest) -> Generator[Want, Any, md.MetadataResponse]:
    probe.allow_auto_topic_creation = False
    body = yield from slices.encoded(probe, METADATA_OF_RIGHTS)
    frame = yield from ask(call, Api.METADATA, METADATA_OF_RIGHTS, body, flexible=False)
    return (yield from slices.decoded(md.MetadataResponse, METADATA_OF_RIGHTS, frame, response_body(frame, False)))


def _bits(operations: int) -> int:
    return 0 if operations == OPERATIONS_OMITTED else operations


def names_of(call: Call, node_id: int, ids: Iterable[bytes]) -> Generator[Want, Any, Mapping[bytes, str]]:
    """Returns the names of topics by id, as another broker returns them to the sidecar."""
    wanted = yield from slices.sorted_once(ids)
    if not wanted:
        return {}
    topics = yield from slices.made(wanted, lambda i: md.MetadataRequestTopic(topic_id=i, name=None))
    probe = yield from slices.encoded(
        md.MetadataRequest(topics=topics, allow_auto_topic_creation=False), METADATA_BY_ID
    )
    frame: bytes | NotServed = yield Store(node_id, Api.METADATA, METADATA_BY_ID, probe, flexible=True)
    if isinstance(frame, NotServed):
        raise WireError("a broker that answers by topic id does not take ids")
    res = yield from slices.decoded(md.MetadataResponse, METADATA_BY_ID, frame, response_body(frame, True))
    known = yield from slices.chosen(res.topics, lambda t: t.error_code == Code.NONE and t.name)
    return {t.topic_id: t.name for t in known if t.name}


def _known(call: Call, kept: Kept, names: list[str]) -> Generator[Want, Any, dict[str, int]]:
    """Returns the kept answers. One that is valid when the request begins counts for all of it, even if it is forgotten
    while the broker is asked."""
    now = call.now_ms
    nothing = (0, now)
    kept_now = yield from slices.made(names, lambda n: (n, *kept.get(n, nothing)))
    valid = yield from slices.chosen(kept_now, lambda x: x[2] > now)
    if valid:
        _rests(call, min(until for _, _, until in valid))
    return {n: code for n, code, _ in valid}


def _answers_kept(
    call: Call, kept: Kept, names: Iterable[str], answers: Mapping[str, int]
) -> Generator[Want, Any, dict[str, int]]:
    """Returns the broker's answers, and keeps them. A name that it left out counts as UNKNOWN_SERVER_ERROR, which is
    not kept."""
    new = dict((yield from slices.made(names, lambda name: (name, answers.get(name, Code.UNKNOWN_SERVER_ERROR)))))
    yield from _keep(call, kept, dict((yield from slices.chosen(new.items(), lambda x: x[1] not in FAILED))))
    return new


def _keep(call: Call, kept: Kept, codes: Mapping[str, int], until_ms: int = 0) -> Generator[Want, Any, None]:
    until = until_ms or call.now_ms + call.scope.access_keep_ms
    yield from slices.each(codes.items(), lambda x: kept.__setitem__(x[0], (int(x[1]), until)))
    _rests(call, until)


def _rests(call: Call, until_ms: int) -> None:
    """Notes that the answer to this request relies on a right until `until_ms`; the earliest such time counts."""
    call.rights_until_ms = until_ms if call.rights_until_ms is None else min(until_ms, call.rights_until_ms)
