"""OffsetFetch (api 9): the member is checked here, the broker returns the offsets.

v0: the offsets are in ZooKeeper, of which coordinators know nothing. A broker without ZooKeeper refuses it.
v1: they are the coordinator's.
v2: null topics mean all topics, and there is one error code for the whole group.
v3: the answer adds the throttle time.
v5: the answer adds the leader epoch.
v6: it is flexible.
v7: requireStable holds the answer back while transactional commits are pending (KIP-447).
v8: it takes several groups (KIP-709).
v9: it adds member id and member epoch, which are checked; STALE_MEMBER_EPOCH may be answered (KIP-848).
v10: topics are named by id instead of by name (KIP-848).

The broker knows no members of a managed group, so a checked request goes on without them. Each group is fetched from
the leader of its own `__consumer_offsets` partition: a request for several may become one to each of several brokers.
What a request names twice is asked for once: all clients share the connection to another broker, and an answer is as
large as what is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable
from typing import Any, TypeVar

from msgspec.structs import replace

from sidecar.api import access, slices
from sidecar.api.call import FORWARD, Call, Handler, Want, coordinate
from sidecar.api.offset_commit import COORDINATED
from sidecar.api.store import store, store_at
from sidecar.core.runtime.offset_checks import CheckReply, FetchCheck
from sidecar.core.vocabulary.errors import Code
from sidecar.wire.generated import offset_fetch as of

ONE_ERROR = 2
"""The first version with an error code for a group; before, each partition has its own."""
Topic = TypeVar("Topic", of.OffsetFetchRequestTopic, of.OffsetFetchRequestTopics)
BATCHED = 8
"""The first version that takes several groups."""


def offset_fetch(call: Call) -> Handler:
    req = yield from slices.request(call, of.OffsetFetchRequest)
    if call.version < COORDINATED and not call.scope.own.is_group(req.group_id):
        return FORWARD
    checks = yield from _checks(req, call.version)
    managed = yield from slices.chosen(checks, lambda c: call.scope.managed(c.group_id))
    if not managed:
        return FORWARD
    errors: dict[str, Code] = {}
    hidden = yield from access.hidden_groups(call, [c.group_id for c in managed])
    for i, event in enumerate(managed):
        yield from slices.turns(i)
        code = Code.GROUP_AUTHORIZATION_FAILED
        if event.group_id not in hidden:
            check: CheckReply = yield from coordinate(event)
            code = check.code
        if code != Code.NONE:
            errors[event.group_id] = code
    left = [c.group_id for c in checks if c.group_id not in errors]
    failed = _failed(req, call.version, errors)
    if not left:
        return (yield from slices.encoded(failed, call.version))
    if call.version < BATCHED:
        if req.topics is not None:
            req.topics = yield from _topics_once(req.topics, lambda t: t.name)
        sent = yield from slices.encoded(req, call.version, slices.small(call))
        body = yield from store(call, left[0], call.version, sent)
        if not _goes_elsewhere(call, call.keeper_of(left[0])):
            return body
        old = yield from slices.decoded(of.OffsetFetchResponse, call.version, body)
        yield from _hide_old(call, req, old)
        return (yield from slices.encoded(old, call.version))
    yield from _strip(call, req, left)
    parts = yield from _by_keeper(call, req)
    res = of.OffsetFetchResponse()
    for node_id, part in parts.items():
        sent = yield from slices.encoded(part, call.version, slices.small(call))
        body = yield from store_at(call, node_id, call.version, sent)
        elsewhere = _goes_elsewhere(call, node_id)
        if len(parts) == 1 and not errors and not elsewhere:
            return body
        groups = (yield from slices.decoded(of.OffsetFetchResponse, call.version, body)).groups
        if elsewhere:
            yield from _hide(call, node_id, part, groups)
        res.groups += groups
    names = (c.group_id for c in checks)
    res.groups = yield from slices.as_asked(names, res.groups + failed.groups, lambda g: g.group_id)
    return (yield from slices.encoded(res, call.version))


def _goes_elsewhere(call: Call, node_id: int) -> bool:
    """Returns whether the request goes over the sidecar's own connection: the broker there does not see the client's
    principal."""
    return call.view.authorizer and node_id != call.scope.node_id


def _hide_old(call: Call, req: of.OffsetFetchRequest, res: of.OffsetFetchResponse) -> Generator[Want, Any, None]:
    """Hides the topics that the principal may not DESCRIBE, as the broker does. They are left out if all topics were
    asked for; otherwise they have an error and no offset."""
    hidden = yield from access.hidden_topics(call, {t.name for t in res.topics})
    if req.topics is None:
        res.topics = [t for t in res.topics if t.name not in hidden]
    for t in res.topics:
        if t.name in hidden:
            for p in t.partitions:
                _blank(p, Code.TOPIC_AUTHORIZATION_FAILED)


def _hide(
    call: Call, node_id: int, req: of.OffsetFetchRequest, groups: list[of.OffsetFetchResponseGroup]
) -> Generator[Want, Any, None]:
    """Hides topics in an answer of another broker. A topic that only an id names is asked for by its name, as a broker
    does; the broker has refused an id without a name itself."""
    topics = [t for g in groups for t in g.topics]
    names = yield from access.names_of(call, node_id, (t.topic_id for t in topics if not t.name))
    called = {id(t): t.name or names.get(t.topic_id, "") for t in topics}
    hidden = yield from access.hidden_topics(call, (name for name in called.values() if name))
    in_full = {g.group_id for g in req.groups if g.topics is None}
    for g in groups:
        if g.group_id in in_full:
            g.topics = [t for t in g.topics if called[id(t)] and called[id(t)] not in hidden]
            continue
        for t in g.topics:
            for p in t.partitions if called[id(t)] in hidden else ():
                _blank(p, Code.TOPIC_AUTHORIZATION_FAILED)


def _blank(p: of.OffsetFetchResponsePartition | of.OffsetFetchResponsePartitions, code: Code) -> None:
    p.committed_offset, p.committed_leader_epoch, p.metadata, p.error_code = -1, -1, "", code


def _by_keeper(call: Call, req: of.OffsetFetchRequest) -> Generator[Want, Any, dict[int, of.OffsetFetchRequest]]:
    """Returns a request for each broker. Groups that are not managed stay with the client's own broker."""
    parts: dict[int, of.OffsetFetchRequest] = {}

    def place(g: of.OffsetFetchRequestGroup) -> None:
        node_id = call.keeper_of(g.group_id) if call.scope.managed(g.group_id) else call.scope.node_id
        parts.setdefault(node_id, replace(req, groups=[])).groups.append(g)

    yield from slices.each(req.groups, place)
    return parts


def _checks(req: of.OffsetFetchRequest, version: int) -> Generator[Want, Any, list[FetchCheck]]:
    """Returns one check for each group in the request."""
    if version < BATCHED:
        return [FetchCheck(req.group_id, None, -1)]
    return (yield from slices.made(req.groups, lambda g: FetchCheck(g.group_id, g.member_id, g.member_epoch)))


def _strip(call: Call, req: of.OffsetFetchRequest, left: list[str]) -> Generator[Want, Any, None]:
    """Keeps these groups only, the managed ones without members: the broker does not know them."""
    stays = set(left)
    ours: dict[str, of.OffsetFetchRequestGroup] = {}
    kept: list[of.OffsetFetchRequestGroup] = []

    def keep(g: of.OffsetFetchRequestGroup) -> None:
        if not call.scope.managed(g.group_id):
            kept.append(g)
            return
        g.member_id, g.member_epoch = None, -1
        first = ours.setdefault(g.group_id, g)
        if first is g:
            kept.append(g)
        elif first.topics is None or g.topics is None:
            first.topics = None
        else:
            first.topics += g.topics

    yield from slices.each([g for g in req.groups if g.group_id in stays], keep)
    for g in ours.values():
        if g.topics is not None:
            g.topics = yield from _topics_once(g.topics, lambda t: (t.name, t.topic_id))
    req.groups = kept


def _topics_once(topics: Iterable[Topic], key: Callable[[Topic], Hashable]) -> Generator[Want, Any, list[Topic]]:
    """Returns the same topics and partitions, each once."""
    once: dict[Hashable, Topic] = {}

    def add(t: Topic) -> None:
        first = once.setdefault(key(t), t)
        if first is not t:
            first.partition_indexes += t.partition_indexes

    def tidy(t: Topic) -> None:
        t.partition_indexes = list(dict.fromkeys(t.partition_indexes))

    yield from slices.each(topics, add)
    yield from slices.each(once.values(), tidy)
    return list(once.values())


def _failed(req: of.OffsetFetchRequest, version: int, errors: dict[str, Code]) -> of.OffsetFetchResponse:
    if version >= BATCHED:
        groups = [of.OffsetFetchResponseGroup(group_id=g, error_code=c) for g, c in errors.items()]
        return of.OffsetFetchResponse(groups=groups)
    code = next(iter(errors.values()), Code.NONE)
    if version >= ONE_ERROR:
        return of.OffsetFetchResponse(error_code=code)
    topics = [
        of.OffsetFetchResponseTopic(
            name=t.name,
            partitions=[
                of.OffsetFetchResponsePartition(
                    partition_index=p, committed_offset=-1, committed_leader_epoch=-1, metadata="", error_code=code
                )
                for p in t.partition_indexes
            ],
        )
        for t in (req.topics or ())
    ]
    return of.OffsetFetchResponse(error_code=code, topics=topics)
