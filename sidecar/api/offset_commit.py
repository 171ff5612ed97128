"""OffsetCommit (api 8) and TxnOffsetCommit (api 28): the member is checked here, the broker stores the offsets.

OffsetCommit
v0: the offsets go to ZooKeeper, of which coordinators know nothing. A broker without ZooKeeper refuses it.
v1: they go to the coordinator, each with the time of its commit; Kafka 4 no longer has this version.
v2: the time of the commit is gone.
v5: the retention time is gone; the broker's setting decides (v2-v4 have it).
v6: it adds the leader epoch.
v7: it adds the group instance id (KIP-345).
v8: it is flexible.
v9: members of consumer groups may commit; STALE_MEMBER_EPOCH and GROUP_ID_NOT_FOUND may be answered (KIP-848).
v10: topics are named by id instead of by name (KIP-848).

TxnOffsetCommit
v2: it adds the leader epoch; COORDINATOR_LOAD_IN_PROGRESS may be answered (KAFKA-7296).
v3: it is flexible and adds member id, generation id and group instance id (KIP-447).
v4: TRANSACTION_ABORTABLE may be answered (KIP-890).
v5: the broker adds the partition to the transaction itself (KIP-890).
v6: topics are named by id; STALE_MEMBER_EPOCH and GROUP_ID_NOT_FOUND may be answered (KIP-1319).

A checked request goes to the leader of the group's `__consumer_offsets` partition. The broker does not know the member,
so the request names the coordinator's placeholder there while the group has members, and else no member, as a broker
requires for a group without members. If the broker does not know the placeholder (any more), the coordinator is asked
once more, and its second answer is tried. The client never gets an error about a member that is not its own.

Rights come before all else, as at the broker, whose authorizer decides on them. The authorizer does not see a client's
request that is refused here or goes to another broker. So it is asked beforehand, with partitions that no topic has:
such a request commits nothing.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Set
from itertools import chain
from typing import Any

from msgspec.structs import replace

from sidecar.api import access, slices
from sidecar.api.call import (
    CONSUMER_COMMIT,
    FORWARD,
    Call,
    Handler,
    Owe,
    SendToCoordinator,
    Want,
    coordinate,
    forward_in,
)
from sidecar.api.store import store, store_at
from sidecar.core.runtime.offset_checks import CheckReply, CommitCheck, MemberIdentity, Place
from sidecar.core.vocabulary.errors import Code
from sidecar.link.messages import CommitEnded
from sidecar.wire.generated import offset_commit as oc
from sidecar.wire.generated import txn_offset_commit as tc

COORDINATED = 1
"""The first version of OffsetCommit, and of OffsetFetch, whose offsets are not in ZooKeeper."""
TXN_KNOWS_LOADING = 2
"""The first version of TxnOffsetCommit that may be answered COORDINATOR_LOAD_IN_PROGRESS: an older Java producer would
end (KAFKA-7296)."""
COMMIT_NAMES_INSTANCE, TXN_NAMES_INSTANCE = 7, 3
"""The first versions that carry the placeholder's name. An older request goes on in that version, too."""
NOT_A_MEMBER = frozenset(
    (
        Code.FENCED_INSTANCE_ID,
        Code.UNKNOWN_MEMBER_ID,
        Code.ILLEGAL_GENERATION,
        Code.REBALANCE_IN_PROGRESS,
        Code.GROUP_ID_NOT_FOUND,
    )
)
"""Errors of the broker about a placeholder member that it does not know, or knows under another generation or instance
id."""


def offset_commit(call: Call) -> Handler:
    req = yield from slices.request(call, oc.OffsetCommitRequest)
    elsewhere = call.version < COORDINATED and not call.scope.own.is_group(req.group_id)
    if elsewhere or not call.scope.managed(req.group_id):
        return forward_in(call, call.broker_version) if call.version == CONSUMER_COMMIT else FORWARD  # bytes as in v8
    req.topics = [t for t in req.topics if t.partitions]  # a broker leaves the others out
    named = yield from slices.made(req.topics, _places)
    places = tuple(chain.from_iterable(named))
    event = CommitCheck(
        req.group_id,
        req.member_id,
        req.generation_id_or_member_epoch,
        req.group_instance_id,
        call.version,
        False,
        places,
        connection=call.client.number,
    )
    check = yield from _check(call, event)
    rights_checked = _in_doubt(call, req.group_id, check.code)
    hidden = yield from _refused_topics(call, req, check)
    while check.code == Code.NONE and not call.client.left:
        version = call.broker_version
        if check.identity is not None:
            version = max(version, COMMIT_NAMES_INSTANCE)
        sent = replace(req, topics=_without(req.topics, hidden.keys()))
        sent.generation_id_or_member_epoch, sent.member_id, sent.group_instance_id = _in_whose_name(check.identity)
        raw = yield from _encoded(call, check, sent, version)
        body = yield from _send(call, req.group_id, check, version, raw)
        res = yield from slices.decoded(oc.OffsetCommitResponse, version, body)
        codes = {p.error_code for t in res.topics for p in t.partitions}
        code = _not_a_member(check.identity, codes)
        if code == Code.NONE:
            call.scope.committed(next(filter(None, (*codes, *hidden.values())), Code.NONE))
            if version == call.version and not hidden:
                return body
            _merge(res, hidden)
            return (yield from slices.encoded(res, call.version))
        check = yield from _check_again(event, check.identity, code)
        event.again = True
        # Another broker, which sees the sidecar's principal, may be due.
        if not rights_checked and check.code == Code.NONE:
            hidden = yield from _refused_topics(call, req, check)
    yield from _not_sent(check)
    code = check.code or Code.COORDINATOR_NOT_AVAILABLE
    call.scope.committed(code)
    topics = yield from slices.made(req.topics, lambda t: _failed(t, code, hidden))
    return (yield from slices.encoded(oc.OffsetCommitResponse(topics=topics), call.version))


def txn_offset_commit(call: Call) -> Handler:
    req = yield from slices.request(call, tc.TxnOffsetCommitRequest)
    if (own := _own(call, req)) != Code.NONE:
        failed = yield from slices.made(req.topics, lambda t: _txn_failed(t, own))
        return (yield from slices.encoded(tc.TxnOffsetCommitResponse(topics=failed), call.version))
    if not req.group_id or not call.scope.managed(req.group_id):  # any broker refuses an empty id
        return FORWARD
    req.topics = [t for t in req.topics if t.partitions]
    named = yield from slices.made(req.topics, _txn_places)
    places = tuple(chain.from_iterable(named))
    identity = (req.group_id, req.member_id, req.generation_id_or_member_epoch, req.group_instance_id)
    event = CommitCheck(*identity, call.version, True, places, connection=call.client.number)
    check = yield from _check(call, event)
    rights_checked = _in_doubt(call, req.group_id, check.code)
    hidden = yield from _txn_refused_topics(call, req, check)
    req.topics = _others(req.topics, hidden)
    nothing = bool(hidden) and not req.topics
    while check.code == Code.NONE and not nothing and not call.client.left:
        version = call.version if check.identity is None else max(call.version, TXN_NAMES_INSTANCE)
        req.generation_id_or_member_epoch, req.member_id, req.group_instance_id = _in_whose_name(check.identity)
        raw = yield from _encoded(call, check, req, version)
        body = yield from _send(call, req.group_id, check, version, raw)
        res = yield from slices.decoded(tc.TxnOffsetCommitResponse, version, body)
        codes = {p.error_code for t in res.topics for p in t.partitions}
        code = _not_a_member(check.identity, codes)
        if code == Code.NONE:
            codes.update(p.error_code for t in hidden for p in t.partitions)
            call.scope.committed(next(filter(None, codes), Code.NONE))
            if version == call.version and not hidden:
                return body
            for p in chain.from_iterable(t.partitions for t in res.topics):
                p.error_code = _txn_code(call, p.error_code)
            res.topics += hidden
            return (yield from slices.encoded(res, call.version))
        check = yield from _check_again(event, check.identity, code)
        event.again = True
        if not rights_checked and check.code == Code.NONE:
            hidden = yield from _txn_refused_topics(call, req, check)
            req.topics = _others(req.topics, hidden)
            nothing = bool(hidden) and not req.topics
    yield from _not_sent(check)
    code = _txn_code(call, check.code or Code.COORDINATOR_NOT_AVAILABLE)
    call.scope.committed(code)
    failed = yield from slices.made(req.topics, lambda t: _txn_failed(t, code))
    return (yield from slices.encoded(tc.TxnOffsetCommitResponse(topics=failed + hidden), call.version))


def _places(t: oc.OffsetCommitRequestTopic) -> list[Place]:
    return [(t.name, t.topic_id, p.partition_index) for p in t.partitions]


def _txn_places(t: tc.TxnOffsetCommitRequestTopic) -> list[Place]:
    return [(t.name, t.topic_id, p.partition_index) for p in t.partitions]


def _others(
    topics: list[tc.TxnOffsetCommitRequestTopic], hidden: list[tc.TxnOffsetCommitResponseTopic]
) -> list[tc.TxnOffsetCommitRequestTopic]:
    refused = {(h.name, h.topic_id) for h in hidden}
    return [t for t in topics if (t.name, t.topic_id) not in refused]


def _own(call: Call, req: tc.TxnOffsetCommitRequest) -> Code:
    """Returns the error for a client that uses the sidecars' transactional ids or their group, or NONE."""
    if call.scope.own.is_transactional(req.transactional_id):
        return Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return Code.GROUP_AUTHORIZATION_FAILED if call.scope.own.is_group(req.group_id) else Code.NONE


def _check(call: Call, event: CommitCheck) -> Generator[Want, Any, CheckReply]:
    """Checks a commit: it needs READ of the group. The broker itself asks for READ of the topics."""
    if (refused := (yield from access.refused_read(call, event.group_id))) != Code.NONE:
        return CheckReply(refused)
    check = yield from coordinate(event)
    assert isinstance(check, CheckReply)
    return check


def _check_again(event: CommitCheck, identity: MemberIdentity | None, code: int) -> Generator[Want, Any, CheckReply]:
    """Asks the coordinator again after the broker refused the identity of the commit. The second refusal is final."""
    if event.again:
        return CheckReply(Code.NOT_COORDINATOR if identity is not None else Code(code))
    check = yield from coordinate(replace(event, again=True, sent_as=identity))
    assert isinstance(check, CheckReply)
    return check


def _not_sent(check: CheckReply) -> Generator[Want, Any, None]:
    """Ends the ticket of a commit that was not sent: it was refused, or its client has left. That client has given it
    up, and may have committed newer offsets over another connection."""
    if check.ticket:
        yield SendToCoordinator(CommitEnded(check.ticket, sure=True))


def _send(call: Call, group_id: str, check: CheckReply, version: int, body: bytes) -> Generator[Want, Any, bytes]:
    """Sends a commit to its broker. Until the coordinator gets its CommitEnded, these partitions take no other commit,
    and no fetch."""
    if not check.ticket:
        return (yield from store(call, group_id, version, body))
    yield Owe(CommitEnded(check.ticket, sure=False))
    answer = yield from store(call, group_id, version, body)
    yield SendToCoordinator(CommitEnded(check.ticket, sure=True))
    return answer


def _encoded(call: Call, check: CheckReply, message: slices.Message, version: int) -> Generator[Want, Any, bytes]:
    if slices.small(call):
        return message.encode(version)
    yield from _owe_nothing_sent(check)  # the client may go between two slices
    return (yield from slices.encoded(message, version))


def _in_whose_name(identity: MemberIdentity | None) -> tuple[int, str, str | None]:
    return (-1, "", None) if identity is None else (identity.generation, identity.member_id, identity.instance_id)


def _not_a_member(identity: MemberIdentity | None, codes: set[int]) -> int:
    """Returns the error that concerns the identity in which the commit was sent, or NONE."""
    known = {Code.UNKNOWN_MEMBER_ID} if identity is None else NOT_A_MEMBER
    return next((c for c in codes if c in known), Code.NONE)


def _without(topics: list[oc.OffsetCommitRequestTopic], refused: Set[Place]) -> list[oc.OffsetCommitRequestTopic]:
    if not refused:
        return topics
    left = []
    for t in topics:
        parts = [p for p in t.partitions if (t.name, t.topic_id, p.partition_index) not in refused]
        if parts:
            left.append(replace(t, partitions=parts))
    return left


def _merge(res: oc.OffsetCommitResponse, refused: Mapping[Place, int]) -> None:
    """Adds the partitions that were not sent on."""
    by_topic: dict[tuple[str, bytes], list[oc.OffsetCommitResponsePartition]] = {}
    for (name, topic_id, partition), code in sorted(refused.items()):
        by_topic.setdefault((name, topic_id), []).append(oc.OffsetCommitResponsePartition(partition, code))
    for t in res.topics:
        t.partitions += by_topic.pop((t.name, t.topic_id), [])
    for (name, topic_id), parts in by_topic.items():
        res.topics.append(oc.OffsetCommitResponseTopic(name=name, topic_id=topic_id, partitions=parts))


# ---- rights of which the broker does not judge by itself -----------------------------------------------------------
NO_PARTITION = -1
"""A partition that no topic has."""
AUTHORIZER_ERRORS = frozenset(
    (
        Code.TOPIC_AUTHORIZATION_FAILED,
        Code.GROUP_AUTHORIZATION_FAILED,
        Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        Code.UNKNOWN_TOPIC_ID,
    )
)
"""Errors that a broker gives before it looks at the group. It cannot check rights to a topic id without a name."""


RETRIABLE = frozenset((Code.COORDINATOR_NOT_AVAILABLE, Code.COORDINATOR_LOAD_IN_PROGRESS, Code.NOT_COORDINATOR))
"""Errors after which a client asks again, here or elsewhere; its rights are checked then."""


def _in_doubt(call: Call, group_id: str, refused: int) -> bool:
    """Returns whether the broker's authorizer will not see the client's own request. `refused`: the error with which
    the request ends here."""
    if not call.view.authorizer or refused in RETRIABLE:
        return False
    return bool(refused) or call.keeper_of(group_id) != call.scope.node_id


def _refused_topics(
    call: Call, req: oc.OffsetCommitRequest, check: CheckReply
) -> Generator[Want, Any, dict[Place, int]]:
    """Returns the places for which the principal lacks a right -> the error. Without READ of the group there is nothing
    more to ask."""
    if check.code == Code.GROUP_AUTHORIZATION_FAILED or not req.topics or not _in_doubt(call, req.group_id, check.code):
        return {}
    yield from _owe_nothing_sent(check)
    version = call.broker_version
    nowhere = [oc.OffsetCommitRequestPartition(NO_PARTITION)]
    probe = yield from slices.made(req.topics, lambda t: replace(t, partitions=nowhere))
    shown = yield from slices.encoded(replace(req, topics=probe), version)
    body = yield from store_at(call, call.scope.node_id, version, shown)
    res = yield from slices.decoded(oc.OffsetCommitResponse, version, body)
    codes = {
        (t.name, t.topic_id): p.error_code
        for t in res.topics
        for p in t.partitions
        if p.error_code in AUTHORIZER_ERRORS
    }
    refused = ((t, codes[t.name, t.topic_id]) for t in req.topics if (t.name, t.topic_id) in codes)
    return {(t.name, t.topic_id, p.partition_index): code for t, code in refused for p in t.partitions}


def _txn_refused_topics(
    call: Call, req: tc.TxnOffsetCommitRequest, check: CheckReply
) -> Generator[Want, Any, list[tc.TxnOffsetCommitResponseTopic]]:
    """Returns the refused topics as in `_refused_topics`. WRITE of the transactional id comes before READ of the
    group."""
    if not _in_doubt(call, req.group_id, check.code):
        return []
    yield from _owe_nothing_sent(check)
    nowhere = [tc.TxnOffsetCommitRequestPartition(NO_PARTITION)]
    probe = yield from slices.made(req.topics, lambda t: replace(t, partitions=nowhere))
    shown = yield from slices.encoded(replace(req, topics=probe), call.version)
    body = yield from store_at(call, call.scope.node_id, call.version, shown)
    res = yield from slices.decoded(tc.TxnOffsetCommitResponse, call.version, body)
    codes = {
        (t.name, t.topic_id): p.error_code
        for t in res.topics
        for p in t.partitions
        if p.error_code in AUTHORIZER_ERRORS
    }
    refused = (t for t in req.topics if (t.name, t.topic_id) in codes)
    return (yield from slices.made(refused, lambda t: _txn_failed(t, codes[t.name, t.topic_id])))


def _owe_nothing_sent(check: CheckReply) -> Generator[Want, Any, None]:
    """Lets the coordinator end the ticket if the client goes while its broker is asked: that commit was never sent."""
    if check.ticket:
        yield Owe(CommitEnded(check.ticket, sure=True))


def _failed(t: oc.OffsetCommitRequestTopic, code: int, hidden: Mapping[Place, int]) -> oc.OffsetCommitResponseTopic:
    codes = ((p.partition_index, hidden.get((t.name, t.topic_id, p.partition_index), code)) for p in t.partitions)
    parts = [oc.OffsetCommitResponsePartition(*c) for c in codes]
    return oc.OffsetCommitResponseTopic(name=t.name, topic_id=t.topic_id, partitions=parts)


def _txn_code(call: Call, code: int) -> int:
    """Returns the code by which the client knows this error."""
    loading = code == Code.COORDINATOR_LOAD_IN_PROGRESS and call.version < TXN_KNOWS_LOADING
    return Code.COORDINATOR_NOT_AVAILABLE if loading else code


def _txn_failed(t: tc.TxnOffsetCommitRequestTopic, code: int) -> tc.TxnOffsetCommitResponseTopic:
    parts = [tc.TxnOffsetCommitResponsePartition(p.partition_index, code) for p in t.partitions]
    return tc.TxnOffsetCommitResponseTopic(t.name, t.topic_id, parts)
