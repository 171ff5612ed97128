"""Answers that end a client for good, and a check that no member hears one that it has not earned.

`ENDS` is read off the clients' code: kafka-clients 4.3.1 (AbstractHeartbeatRequestManager,
ConsumerHeartbeatRequestManager, ShareHeartbeatRequestManager, StreamsGroupHeartbeatRequestManager,
CommitRequestManager, AbstractCoordinator, ConsumerCoordinator, TransactionManager; of 4.4.0 for TxnOffsetCommit v6),
librdkafka (rdkafka_cgrp.c, rdkafka_request.c, rdkafka_txnmgr.c), franz-go (consumer_group.go, consumer_group_848.go),
kafka-python (coordinator/base.py, coordinator/consumer.py) as of summer 2026. Kafka Streams takes what Java's consumer
throws: CommitFailedException is a task that has moved, any other exception ends the thread. "Ends" is: the client does
not join again by itself, or throws from `poll` or from a commit what an application does not expect.

`Endings` sees each request and each answer of a world (tests/core, tests/sim, tests/inprocess/embedded_sidecar.py), and
tests/whole asks `ends` of each answer. So a new story, a new scene or a new test of a move cannot escape.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from sidecar.core.classic.events import ClassicHeartbeat, JoinGroup, JoinReply, SyncGroup
from sidecar.core.consumer.events import ConsumerHeartbeat
from sidecar.core.runtime.events import Answer, Event
from sidecar.core.runtime.offset_checks import TXN_OF_CONSUMERS, CommitCheck, FetchCheck
from sidecar.core.share.events import ShareHeartbeat
from sidecar.core.streams.events import StreamsHeartbeat
from sidecar.core.vocabulary.errors import Code, name_of

JAVA, STREAMS, LIBRDKAFKA, FRANZ, PYTHON = "Java", "Kafka Streams", "librdkafka", "franz-go", "kafka-python"
CONSUMER, CLASSIC = "consumer", "classic"
ELSEWHERE = (Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR)
AGAIN = (*ELSEWHERE, Code.COORDINATOR_LOAD_IN_PROGRESS)
OFFSET_METADATA_TOO_LARGE, INVALID_COMMIT_OFFSET_SIZE, UNSTABLE_OFFSET_COMMIT = 12, 28, 88
TRANSACTION_ABORTABLE = 120
"""A code of brokers only."""


@dataclass(frozen=True)
class Ends:
    """The client ends by `by`; or, if `but` is given, by whatever is not in that."""

    by: frozenset[int] = frozenset()
    but: frozenset[int] | None = None

    def __contains__(self, code: object) -> bool:
        return code in self.by if self.but is None else code not in self.but


def only(*codes: int) -> Ends:
    return Ends(frozenset(codes))


def but(*codes: int) -> Ends:
    return Ends(but=frozenset(codes))


_JOIN = but(*AGAIN, Code.UNKNOWN_MEMBER_ID, Code.MEMBER_ID_REQUIRED, Code.REBALANCE_IN_PROGRESS)
_SYNC = but(*ELSEWHERE, Code.UNKNOWN_MEMBER_ID, Code.ILLEGAL_GENERATION, Code.REBALANCE_IN_PROGRESS)
"""COORDINATOR_LOAD_IN_PROGRESS is an "unexpected error" to Java, in SyncGroup as in Heartbeat."""
_COMMIT = (*AGAIN, Code.UNKNOWN_TOPIC_OR_PARTITION, Code.REQUEST_TIMED_OUT, Code.UNKNOWN_MEMBER_ID)
_OF_THE_APPLICATION = (Code.TOPIC_AUTHORIZATION_FAILED, OFFSET_METADATA_TOO_LARGE, INVALID_COMMIT_OFFSET_SIZE)
"""Thrown by the commit, because of the application's own request."""
_CLASSIC_COMMIT = but(*_COMMIT, *_OF_THE_APPLICATION, Code.ILLEGAL_GENERATION, Code.REBALANCE_IN_PROGRESS)
_FETCH = (*AGAIN, UNSTABLE_OFFSET_COMMIT, Code.STALE_MEMBER_EPOCH)
_FENCED = only(Code.FENCED_INSTANCE_ID)

ENDS: dict[str, dict[str, Ends]] = {
    "ConsumerGroupHeartbeat": {
        JAVA: but(*AGAIN, Code.TOPIC_AUTHORIZATION_FAILED, Code.FENCED_MEMBER_EPOCH, Code.UNKNOWN_MEMBER_ID),
        LIBRDKAFKA: but(*AGAIN, Code.TOPIC_AUTHORIZATION_FAILED, Code.FENCED_MEMBER_EPOCH, Code.UNKNOWN_MEMBER_ID),
        FRANZ: but(
            *AGAIN,
            Code.FENCED_MEMBER_EPOCH,
            Code.UNKNOWN_MEMBER_ID,
            Code.STALE_MEMBER_EPOCH,
            Code.REBALANCE_IN_PROGRESS,
            Code.GROUP_MAX_SIZE_REACHED,
            Code.UNSUPPORTED_ASSIGNOR,
        ),
    },
    "ShareGroupHeartbeat": {JAVA: but(*AGAIN, Code.FENCED_MEMBER_EPOCH, Code.UNKNOWN_MEMBER_ID)},
    "StreamsGroupHeartbeat": {
        JAVA: but(*AGAIN, Code.TOPIC_AUTHORIZATION_FAILED, Code.FENCED_MEMBER_EPOCH, Code.UNKNOWN_MEMBER_ID)
    },
    "JoinGroup": {JAVA: _JOIN, STREAMS: _JOIN, PYTHON: _JOIN, LIBRDKAFKA: _FENCED},
    "SyncGroup": {JAVA: _SYNC, STREAMS: _SYNC, PYTHON: _SYNC, LIBRDKAFKA: _FENCED},
    "Heartbeat": {JAVA: _SYNC, STREAMS: _SYNC, PYTHON: _SYNC, LIBRDKAFKA: _FENCED},
    "OffsetCommit of the classic protocol": {
        JAVA: _CLASSIC_COMMIT,
        STREAMS: _CLASSIC_COMMIT,
        PYTHON: _CLASSIC_COMMIT,
        LIBRDKAFKA: _FENCED,
    },
    "OffsetCommit of the consumer protocol": {
        JAVA: but(*_COMMIT, *_OF_THE_APPLICATION, Code.UNKNOWN_TOPIC_ID, Code.STALE_MEMBER_EPOCH),
        LIBRDKAFKA: _FENCED,
    },
    "TxnOffsetCommit": {
        JAVA: but(
            *_COMMIT,
            Code.CONCURRENT_TRANSACTIONS,
            Code.ILLEGAL_GENERATION,
            Code.FENCED_INSTANCE_ID,
            Code.GROUP_AUTHORIZATION_FAILED,
            TRANSACTION_ABORTABLE,
        ),
        LIBRDKAFKA: only(Code.INVALID_PRODUCER_EPOCH, Code.INVALID_TXN_STATE),
    },
    "TxnOffsetCommit with the errors of consumers": {
        JAVA: but(
            *_COMMIT,
            Code.CONCURRENT_TRANSACTIONS,
            Code.ILLEGAL_GENERATION,
            Code.STALE_MEMBER_EPOCH,
            Code.GROUP_ID_NOT_FOUND,
            Code.FENCED_INSTANCE_ID,
            Code.GROUP_AUTHORIZATION_FAILED,
            TRANSACTION_ABORTABLE,
        ),
    },
    "OffsetFetch": {JAVA: but(*_FETCH), PYTHON: but(*_FETCH), LIBRDKAFKA: only()},
}
"""API -> client -> the codes that end it. franz-go joins again after every error of the classic protocol."""
APIS = {ConsumerHeartbeat: "ConsumerGroupHeartbeat", JoinGroup: "JoinGroup", SyncGroup: "SyncGroup"}
APIS |= {ClassicHeartbeat: "Heartbeat", FetchCheck: "OffsetFetch", ShareHeartbeat: "ShareGroupHeartbeat"}
APIS |= {StreamsHeartbeat: "StreamsGroupHeartbeat"}


def ends(api: str, code: int) -> list[str]:
    """The clients that this answer ends."""
    return [client for client, by in ENDS[api].items() if code and code in by]


class Endings:
    """`alone(event)`: how a coordinator that knows nobody and has the same settings answers it. None: members of this
    world say nothing that is wrong in itself."""

    def __init__(self, code_of_empty_shard: Callable[[Event], Code] | None = None) -> None:
        self._code_of_empty_shard = code_of_empty_shard
        self._asked: dict[object, tuple[int, Event]] = {}
        """By key: requests that are not answered yet, numbered as they came."""
        self._number = 0
        """Counts requests, and answers that let somebody in."""
        self._of_consumers: set[str] = set()
        """Member ids that speak the consumer protocol, or that of streams groups, and commit alike."""
        self._holders: dict[tuple[str, str], list[str]] = defaultdict(list)
        """By group and instance id: the member ids that have come with it, in that order."""
        self._came_with: dict[tuple[str, str], str | None] = {}
        """By group and member id: the instance id with which it came first."""
        self._coming: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
        """By group and instance id: who has asked to come with it, and the number of its last request, or of the answer
        that let it in: it was heard at some time between them."""
        self._in_since: dict[tuple[str, str], int] = {}
        """By group and member id: the number of the request by which it was let in last."""
        self._members: dict[str, dict[str, str]] = defaultdict(dict)
        """By group: members that were let in, each with its protocol."""
        self._chosen: dict[str, tuple[str | None, str | None]] = {}
        """By member id: protocol type and protocol in the answers to a member of the classic protocol."""
        self._let_in: list[tuple[Event, str]] = []
        """Joins that the last event let in, with their new member ids."""
        self._let_go: list[tuple[list[str], str]] = []
        """By the last event that was asked: the holders of an instance id, and the one that has left."""
        self._unheard: set[str] = set()
        """Member ids that nobody has heard of, as their answers never left."""
        self.wrong: list[str] = []
        self.seen: Counter[str] = Counter()
        """The number of times that each answer that ends a client was earned, or not."""

    def asked(self, key: object, event: Event) -> None:
        if type(event) in APIS or isinstance(event, CommitCheck):
            self._number += 1
            self._asked[key] = self._number, event
            self._let_in.clear()
            self._let_go.clear()
            if isinstance(event, ConsumerHeartbeat | StreamsHeartbeat):
                self._of_consumers.add(event.member_id)
            if _is_joining(event):
                with_instance = self._coming[event.group_id, getattr(event, "instance_id", None) or ""]
                with_instance[_name_of(event)] = self._number
                self._came(event, _name_of(event))

    def answered(self, key: object, answer: Answer) -> None:
        """Checks an answer; adds what is wrong with it to `wrong`."""
        number, event = self._asked.pop(key, (0, None))
        if event is None or _name_of(event) in self._unheard:
            return
        if number < self._in_since.get((event.group_id, _name_of(event)), 0):
            return  # a later request has let the member in: it has given this one up
        if _leaves(event):
            if answer.code == Code.NONE:
                self._left(event)
            return
        if answer.code == Code.COORDINATOR_LOAD_IN_PROGRESS and isinstance(event, ClassicHeartbeat | SyncGroup):
            return  # the front says something else instead (sidecar/api/classic.py)
        api = self._api(event)
        code = int(answer.code)
        if clients := ends(api, code):
            self.seen[f"{api}: {name_of(code)}"] += 1
            if not self._earned(event, code):
                told = f"{api} is answered {name_of(code)}, which ends {', '.join(clients)}"
                self.wrong.append(f"{told}: {event}")
        self._learn(number, event, answer)

    def lost(self) -> None:
        """The records of the last event never reached the log."""
        for event, name in self._let_in:
            self._turned_away(event, name)
            self._unheard.add(name)
        for holders, name in self._let_go:
            holders.append(name)

    def check(self) -> None:
        """Raises AssertionError."""
        assert not self.wrong, self.wrong[0]

    # ---- who is who ---------------------------------------------------------------------------------------
    def _api(self, event: Event) -> str:
        if not isinstance(event, CommitCheck):
            return APIS[type(event)]
        if event.transactional:
            return "TxnOffsetCommit" + " with the errors of consumers" * (event.version >= TXN_OF_CONSUMERS)
        return f"OffsetCommit of the {CONSUMER if event.member_id in self._of_consumers else CLASSIC} protocol"

    def _came(self, event: Event, name: str) -> None:
        self._members[event.group_id][name] = CLASSIC if isinstance(event, JoinGroup) else CONSUMER
        instance_id = getattr(event, "instance_id", None)
        self._came_with.setdefault((event.group_id, name), instance_id)
        if instance_id is not None and name not in self._holders[event.group_id, instance_id]:
            self._holders[event.group_id, instance_id].append(name)

    def _left(self, event: Event) -> None:
        """Frees the member's instance id, unless another join with it is open: that one may have come first."""
        name = _name_of(event)
        instance_id = self._came_with.get((event.group_id, name))
        if any(_is_joining(e) and _instance_of(e) == (event.group_id, instance_id) for _, e in self._asked.values()):
            return
        holders = self._holders.get((event.group_id, instance_id or ""), [])
        if name in holders:
            holders.remove(name)
            self._let_go.append((holders, name))

    def _turned_away(self, event: Event, name: str) -> None:
        self._members[event.group_id].pop(name, None)
        holders = self._with_its_instance(event)
        if name in holders:
            holders.remove(name)

    def _learn(self, number: int, event: Event, answer: Answer) -> None:
        given = _name_of_answered(event, answer)
        if _is_joining(event) and (ends(self._api(event), answer.code) or _name_of(event) != given):
            self._turned_away(event, _name_of(event))
        if isinstance(answer, JoinReply) and answer.member_id:
            self._chosen[answer.member_id] = (answer.protocol_type, answer.protocol)
        if _is_joining(event) and answer.code == Code.NONE:
            self._turned_away(event, given)  # one that comes again is the last that has come
            self._came(event, given)
            self._in_since[event.group_id, given] = number
            self._number += 1
            instance_id = getattr(event, "instance_id", None) or ""
            self._coming[event.group_id, instance_id][given] = self._number
            if given != getattr(event, "member_id", None):
                self._let_in.append((event, given))

    # ---- what a client may have earned ----------------------------------------------------------------------
    def _earned(self, event: Event, code: int) -> bool:
        rule = EARNED.get(Code(code))
        if rule is not None and rule(self, event):
            return True
        return self._code_of_empty_shard is not None and code in BY_ITSELF and self._code_of_empty_shard(event) == code

    def another_has_its_instance(self, event: Event) -> bool:
        """Whether another member has the event's instance id, unless this one joined with it last."""
        if (event.group_id, _name_of(event)) in self._in_since:
            return self.another_came_in_its_place(event)
        return any(h != _name_of(event) for h in self._with_its_instance(event))

    def another_came_in_its_place(self, event: Event) -> bool:
        """Returns whether another member may have come in its place: it has asked to since this one did, and was let
        in. Or this one says another instance id than it came with, or a member id that nobody has given it."""
        group_id, name = event.group_id, _name_of(event)
        said = getattr(event, "instance_id", None) or ""
        since = self._in_since.get((group_id, name))
        if since is None and (not _is_joining(event) or (isinstance(event, JoinGroup) and event.member_id)):
            return True
        if since is None:
            since = self._coming[group_id, said][name]
        if (self._came_with.get((group_id, name), said) or "") != said:
            return True
        if any(number > since and other != name for other, number in self._coming[group_id, said].items()):
            return True
        return any(  # it asked before this one did, and is not answered yet: it may have been heard behind it
            _is_joining(e)
            and e.group_id == group_id
            and getattr(e, "instance_id", None) == said
            and _name_of(e) != name
            for _, e in self._asked.values()
        )

    def _with_its_instance(self, event: Event) -> list[str]:
        instance_id = getattr(event, "instance_id", None)
        return [] if instance_id is None else self._holders[event.group_id, instance_id]

    def joins_another_protocol(self, event: Event) -> bool:
        """Whether the event joins a group of the classic protocol: only a join may get GROUP_ID_NOT_FOUND for that."""
        return event.joins() and CLASSIC in self._members[event.group_id].values()

    def joins_others(self, event: Event) -> bool:
        return _is_joining(event) and any(m != _name_of(event) for m in self._members[event.group_id])

    def names_another_protocol(self, event: Event) -> bool:
        if isinstance(event, JoinGroup):
            return self.joins_others(event)
        if not isinstance(event, SyncGroup):
            return False
        told = self._chosen.get(event.member_id, (None, None))
        said = (event.protocol_type, event.protocol)
        return any(name not in (None, chosen) for name, chosen in zip(said, told, strict=True))

    def assigns_too_much(self, event: Event) -> bool:
        """Kafka's record of a whole group takes no more."""
        return isinstance(event, SyncGroup) and sum(len(given) for _, given in event.assignments) >= RECORD_BYTES

    def of_an_old_client(self, event: Event) -> bool:
        """Members of the consumer protocol commit in version 9 and newer."""
        return isinstance(event, CommitCheck) and event.version < SINCE_CONSUMERS


def _is_joining(event: Event) -> bool:
    """Whether the request joins a group."""
    return isinstance(event, JoinGroup) or event.joins()


def _instance_of(event: Event) -> tuple[str, str | None]:
    return event.group_id, getattr(event, "instance_id", None)


def _leaves(event: Event) -> bool:
    """Whether the event leaves a group: no error code ends such a client."""
    return isinstance(event, ConsumerHeartbeat | ShareHeartbeat | StreamsHeartbeat) and event.member_epoch < 0


def _name_of_answered(event: Event, answer: Answer) -> str:
    return (getattr(answer, "member_id", None) if answer.code == Code.NONE else None) or _name_of(event)


def _name_of(event: Event) -> str:
    """Returns the member id, or a stand-in for a member without one."""
    new = f"new {getattr(event, 'client_id', '')} {getattr(event, 'new_id', '')}"
    return getattr(event, "member_id", None) or new


RECORD_BYTES = 1 << 20
SINCE_CONSUMERS = 9
"""Version of OffsetCommit."""
EARNED: dict[Code, Callable[[Endings, Event], bool]] = {
    Code.FENCED_INSTANCE_ID: Endings.another_came_in_its_place,
    Code.UNRELEASED_INSTANCE_ID: Endings.another_has_its_instance,
    Code.GROUP_ID_NOT_FOUND: Endings.joins_another_protocol,
    Code.GROUP_MAX_SIZE_REACHED: Endings.joins_others,
    Code.INCONSISTENT_GROUP_PROTOCOL: Endings.names_another_protocol,
    Code.UNSUPPORTED_VERSION: Endings.of_an_old_client,
    Code.UNKNOWN_SERVER_ERROR: Endings.assigns_too_much,
    Code.ILLEGAL_GENERATION: Endings.of_an_old_client,
    Code.UNKNOWN_MEMBER_ID: lambda endings, event: isinstance(event, FetchCheck),
}
"""Answers that a member earns by what others have done, or the client itself. Java throws UNKNOWN_MEMBER_ID from `poll`
only if it fetches offsets; whether a member was removed for good cause is another check's."""
BY_ITSELF = (
    Code.INVALID_REQUEST,
    Code.UNSUPPORTED_ASSIGNOR,
    Code.INVALID_REGULAR_EXPRESSION,
    Code.INVALID_SESSION_TIMEOUT,
    Code.INVALID_GROUP_ID,
    Code.INCONSISTENT_GROUP_PROTOCOL,
    Code.UNKNOWN_SERVER_ERROR,
)
"""Codes for requests that a coordinator without groups would refuse as well."""
