"""A conversation with one handler, step by step (the model is mitmproxy's Playbook).

    (
        Play(Api.OFFSET_COMMIT, request, 9)
        .may_read("g")                  the handler asks the broker about the group, which has nothing against it
        .coordinates(CommitCheck(...))  then it sends this event to the coordinator
        .coordinator(CheckReply())      and gets this answer
        .asks(stripped)                 then it sends this to the broker on the client's own connection
        .broker(response)               and gets this response
        .answers(response)              which is what the client gets
    )

A step fails if the handler wants something else. A conversation must end with `answers` or `forwards`; conftest.py
looks after that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, ClassVar, Protocol, TypeVar

import pytest
from msgspec.structs import replace

from sidecar.api.access import ASKED
from sidecar.api.call import (
    CLIENT_ID,
    FORWARD,
    PAUSE,
    Ask,
    BrokerSilent,
    Call,
    Client,
    Coordinate,
    Forward,
    Learnt,
    Owe,
    Scope,
    SendToCoordinator,
    Settle,
    Start,
    Store,
    Want,
)
from sidecar.api.handlers import HANDLERS, READ_THEIR_HEADER
from sidecar.core.runtime.events import Answer, Event
from sidecar.core.vocabulary.errors import Code
from sidecar.link.messages import CheckGroupIsBrokers, CommitEnded, OpenOffsets, SettingsPassed, View
from sidecar.wire.apis import NEVER, SERVED, Api, message_name
from sidecar.wire.frames import PREFIX, VERSION, header_end, request_frame, response_frame
from sidecar.wire.generated import describe_groups as dg
from sidecar.wire.generated import heartbeat as hb
from sidecar.wire.generated import list_offsets as lo
from sidecar.wire.generated import metadata as md
from sidecar.wire.generated import offset_commit as oc
from sidecar.wire.generated import offset_delete as od
from sidecar.wire.generated import txn_offset_commit as tc
from sidecar.wire.primitives import WireError

NODE, OTHER = 1, 2
"""The broker behind this sidecar, and another one."""
ADDRESSES = {NODE: ("b1", 9092), OTHER: ("b2", 9093)}
VIEW = View(owners=(NODE,), leaders=(NODE,), brokers=ADDRESSES)
NO_AUTHORIZER = View(owners=(NODE,), leaders=(NODE,), brokers=ADDRESSES, authorizer=False)
ELSEWHERE = View(owners=(NODE,), leaders=(OTHER,), brokers=ADDRESSES, authorizer=False)
"""The group's offsets are kept by another broker."""
GUARDED_ELSEWHERE = View(owners=(NODE,), leaders=(OTHER,), brokers=ADDRESSES)
"""The same with an authorizer: it is asked of topics, as the other broker sees the sidecar's principal only."""
TAKEOVER = View(owners=(-1,), leaders=(NODE,), brokers=ADDRESSES)
"""The group has no owner at the moment."""
KEEP_MS = 10_000
CORRELATION = 7
WHO = 'User:ANONYMOUS from 10.0.0.9, client id "app"'
"""The client of a conversation, as records name it."""
KEYS = {message_name(api): api for api in Api}


class Message(Protocol):
    def encode(self, version: int) -> bytes: ...


W = TypeVar("W", Ask, Coordinate, Store, SendToCoordinator, Owe, Start, Settle)


class Clock:
    """Monotonic milliseconds that stand still until a test moves them."""

    def __init__(self) -> None:
        self.ms = 1_000

    def __call__(self) -> int:
        return self.ms


def api_of(message: Message) -> Api:
    return KEYS[type(message).__name__.removesuffix("Request")]


def flexible(api: int, version: int) -> bool:
    return version >= (SERVED[api].flexible_from if api in SERVED else NEVER)


READ = 1 << 3


def nowhere(request: oc.OffsetCommitRequest | tc.TxnOffsetCommitRequest, **refused: Code) -> Message:
    """Returns a broker's answer for partitions that do not exist."""
    none = Code.UNKNOWN_TOPIC_OR_PARTITION
    if isinstance(request, tc.TxnOffsetCommitRequest):
        row = tc.TxnOffsetCommitResponsePartition
        parts = [
            tc.TxnOffsetCommitResponseTopic(t.name, partitions=[row(-1, refused.get(t.name, none))])
            for t in request.topics
        ]
        return tc.TxnOffsetCommitResponse(topics=parts)
    topics = []
    for t in request.topics:
        answer = [oc.OffsetCommitResponsePartition(-1, refused.get(t.name, none))]
        topics.append(oc.OffsetCommitResponseTopic(t.name, t.topic_id, answer))
    return oc.OffsetCommitResponse(topics=topics)


class Play:
    """`managed`: ids of the groups that this sidecar coordinates. `client` and `clock` may be those of an earlier
    conversation on the same connection."""

    open: ClassVar[list[Play]] = []
    """Conversations that have not ended."""

    def __init__(
        self,
        api: Api,
        request: Message | bytes,
        version: int,
        *,
        view: View = VIEW,
        managed: Collection[str] = ("g", "g2"),
        client: Client | None = None,
        clock: Clock | None = None,
        client_id: str | None = "app",
        modern_as_classic: bool = False,
        moved: Collection[str] = (),
        learnt: Learnt | None = None,
        share: bool = False,
        streams: bool = False,
    ) -> None:
        body = request if isinstance(request, bytes) else request.encode(version)
        self.request = request
        self.client = client or Client("10.0.0.9")
        frame = request_frame(api, version, CORRELATION, client_id, flexible(api, version), body)
        told, pos = None, PREFIX.size
        if api not in READ_THEIR_HEADER:
            told, pos = header_end(frame, pos, flexible(api, version))
        scope = Scope(
            NODE,
            lambda g: g in managed,
            bool(managed),
            KEEP_MS,
            lambda: "new-id",
            modern_as_classic,
            share,
            streams,
            lambda g: g in moved,
            learnt or Learnt(),
        )
        self.pauses = 0
        """The number of times that the handler has let others have their turn."""
        self._clock = clock or Clock()
        self._call = Call(scope, self.client, view, api, version, CORRELATION, frame, pos, told, self._clock())
        self._handler = HANDLERS[api](self._call)
        self._want: Want | None = None
        self._asked: tuple[int, int] | None = None
        self._seen = False
        self._result: bytes | Forward | None = None
        Play.open.append(self)
        self._resume(None)

    @property
    def call(self) -> Call:
        return self._call

    # ---- what the handler does ------------------------------------------------------------------------------
    def asks(self, request: Message | None = None, version: int | None = None) -> Play:
        """Checks that the handler sends this to the broker on the client's own connection; None is the client's request
        as it came. The version is that of the client's request unless another is given."""
        frame = self._take(Ask).frame
        size, api, v, correlation = PREFIX.unpack_from(frame, 0)
        assert size == len(frame) - 4
        assert correlation == CORRELATION
        self._asked = (api, v)
        if request is None:
            assert frame == self._call.frame, f"the request has changed: {frame!r}"
            return self
        assert (api, v) == (api_of(request), self._call.version if version is None else version)
        client_id, pos = header_end(frame, PREFIX.size, flexible(api, v))
        assert client_id in (CLIENT_ID, self._call.client_id)
        _same(request, v, frame[pos:])
        return self

    def stores(self, node_id: int, request: Message, version: int) -> Play:
        """The handler sends this to another broker on the sidecar's own connection."""
        want = self._take(Store)
        api = api_of(request)
        assert (want.node_id, want.api_key, want.version) == (node_id, api, version)
        assert want.flexible == flexible(api, version)
        self._asked = (api, version)
        _same(request, version, want.body)
        return self

    def coordinates(self, event: Event) -> Play:
        assert self._take(Coordinate).event == event
        return self

    def reports_settings(self) -> Play:
        """The handler reports a change of settings to the coordinator, and does not wait."""
        assert self._take(SendToCoordinator).message == SettingsPassed()
        self._resume(None)
        return self

    def settles(self, *groups: str) -> Play:
        """The handler waits until these groups have an owner."""
        assert self._take(Settle).groups == groups
        return self

    def settled(self) -> Play:
        self._resume(None)
        return self

    def owes(self, ticket: int, sent: bool = True) -> Play:
        """If the request is cancelled from now on, the coordinator gets `CommitEnded`: the commit may still arrive, or
        was never sent."""
        assert self._take(Owe).message == CommitEnded(ticket, sure=not sent)
        self._resume(None)
        return self

    def reports(self, ticket: int) -> Play:
        """The commit has ended, and the coordinator hears of it."""
        assert self._take(SendToCoordinator).message == CommitEnded(ticket, sure=True)
        self._resume(None)
        return self

    def starts(self, request: Message, version: int) -> Start:
        """Checks that the handler sends this to the broker on the client's own connection and goes on at once. Returns
        the step, for a test to look at what becomes of the answer."""
        want = self._take(Start)
        api = api_of(request)
        size, key, v, correlation = PREFIX.unpack_from(want.frame, 0)
        assert (size, key, v, correlation) == (len(want.frame) - 4, api, version, CORRELATION)
        client_id, pos = header_end(want.frame, PREFIX.size, flexible(api, version))
        assert client_id == self._call.client_id, "the broker has quotas by client id"
        _same(request, version, want.frame[pos:])
        self._resume(None)
        return want

    def answers(self, response: Message, version: int | None = None) -> None:
        assert isinstance(self._end(), bytes), "the request is forwarded"
        assert isinstance(self._result, bytes)
        _same(response, self._call.version if version is None else version, self._result)

    def forwards(self, version: int | None = None) -> None:
        """The request passes as it is; or in this version, with the same bytes behind it."""
        end, frame = self._end(), self._call.frame
        if version is None:
            assert end is FORWARD, f"the handler answers {self._result!r}"
            return
        assert isinstance(end, Forward), f"the handler answers {self._result!r}"
        assert end.frame == frame[: VERSION.start] + version.to_bytes(2, "big") + frame[VERSION.stop :]

    def gives(self) -> bytes:
        """The handler ends with an answer, which is returned."""
        end = self._end()
        assert isinstance(end, bytes), "the request is forwarded"
        return end

    # ---- what comes back to it ------------------------------------------------------------------------------
    def broker(self, response: Message, version: int | None = None) -> Play:
        """The answer to the last request, in its version unless another is told."""
        assert self._asked is not None and self._seen, "no broker was asked"
        api, asked = self._asked
        self._asked = None
        body = response.encode(asked if version is None else version)
        self._resume(response_frame(CORRELATION, api != Api.API_VERSIONS and flexible(api, asked), body))
        return self

    def silent(self) -> Play:
        """The broker is found silent."""
        assert self._asked is not None and self._seen, "no broker was asked"
        self._asked = None
        self._resume(BrokerSilent())
        return self

    def breaks(self, response: Message, match: str) -> None:
        """The broker answers so, and the handler cannot use that."""
        with pytest.raises(WireError, match=match):
            self.broker(response)
        Play.open.remove(self)

    def coordinator(self, answer: Answer) -> Play:
        assert isinstance(self._want, Coordinate) and self._seen, "the coordinator was not asked"
        assert type(answer) is self._want.event.answer, "that is no answer to this event"
        self._resume(answer)
        return self

    def core(self, ask: Callable[[Event], Answer]) -> Play:
        """The coordinator is a real one."""
        return self.coordinator(ask(self._take(Coordinate).event))

    def whose(self, group_id: str, code: Code = Code.NONE, taken_in: bool = False) -> Play:
        """Before a member joins at the broker, the coordinator reads its log to the end. `taken_in`: there it reads
        that the group is a managed one."""
        play = self.coordinates(CheckGroupIsBrokers("", name=group_id))
        if taken_in:
            play._call.scope.managed = lambda group: group == group_id
        return play.coordinator(Answer(code))

    def view_changes(self, view: View) -> Play:
        """The front gets a new view of the cluster while the handler waits."""
        self._call.view = view
        return self

    # ---- the broker's word on rights ------------------------------------------------------------------------
    def may_read(self, group_id: str, code: Code = Code.UNKNOWN_MEMBER_ID) -> Play:
        probe = hb.HeartbeatRequest(group_id, -1, "")
        return self.asks(probe, 3).broker(hb.HeartbeatResponse(error_code=code))

    def may_not_read(self, group_id: str) -> Play:
        return self.may_read(group_id, Code.GROUP_AUTHORIZATION_FAILED)

    def may_describe(self, *groups: str, hidden: Collection[str] = ()) -> Play:
        said = [dg.DescribedGroup(Code.GROUP_AUTHORIZATION_FAILED * (g in hidden), group_id=g) for g in groups]
        return self.asks(dg.DescribeGroupsRequest(list(groups)), 0).broker(dg.DescribeGroupsResponse(groups=said))

    def may_delete(self, group_id: str, code: Code = Code.NONE) -> Play:
        probe = od.OffsetDeleteRequest(group_id)
        return self.asks(probe, 0).broker(od.OffsetDeleteResponse(error_code=code), 0)

    def opens(self, group_id: str, *subscribed: str) -> Play:
        """The coordinator sees to it that the broker lets offsets of this group be deleted."""
        return self.coordinates(OpenOffsets(group_id, frozenset(subscribed))).coordinator(Answer())

    def may_describe_topics(self, *topics: str, hidden: Collection[str] = (), code: Code = Code.NONE) -> Play:
        """The broker is asked of so many at a time."""
        play = self
        for at in range(0, len(topics), ASKED):
            play = play._may_describe_topics(topics[at : at + ASKED], hidden, code)
        return play

    def _may_describe_topics(self, topics: Sequence[str], hidden: Collection[str], code: Code) -> Play:
        probe = [lo.ListOffsetsTopic(t, [lo.ListOffsetsPartition(0, timestamp=-1)]) for t in topics]
        said = []
        for t in topics:
            error = Code.TOPIC_AUTHORIZATION_FAILED if t in hidden else code
            said.append(lo.ListOffsetsTopicResponse(t, [lo.ListOffsetsPartitionResponse(0, error)]))
        asked = self.asks(lo.ListOffsetsRequest(-1, topics=probe), 1)
        return asked.broker(lo.ListOffsetsResponse(topics=said))

    def may_read_topics(
        self, *topics: str, refused: Collection[str] = (), partitions: Collection[int] = (0, 1)
    ) -> Play:
        """Metadata tells what the principal may do with the topics, and their partitions."""
        probe = [md.MetadataRequestTopic(name=t) for t in topics]
        parts = [md.MetadataResponsePartition(partition_index=p) for p in partitions]
        told = [
            md.MetadataResponseTopic(name=t, partitions=parts, topic_authorized_operations=0 if t in refused else READ)
            for t in topics
        ]
        asked = self.asks(
            md.MetadataRequest(probe, allow_auto_topic_creation=False, include_topic_authorized_operations=True), 8
        )
        return asked.broker(md.MetadataResponse(topics=told))

    def shows(self, request: oc.OffsetCommitRequest | tc.TxnOffsetCommitRequest, **refused: Code) -> Play:
        """The commit is shown to the broker with partitions that no topic has; `refused`: by topic."""
        shown: Any = request
        of_txn = isinstance(request, tc.TxnOffsetCommitRequest)
        row: Any = tc.TxnOffsetCommitRequestPartition if of_txn else oc.OffsetCommitRequestPartition
        self.asks(replace(shown, topics=[replace(t, partitions=[row(-1)]) for t in shown.topics]))
        return self.broker(nowhere(request, **refused))

    # ---- the generator --------------------------------------------------------------------------------------
    def _resume(self, value: object) -> None:
        self._call.now_ms = self._clock()
        self._seen = False
        try:
            self._want = self._handler.throw(value) if isinstance(value, BrokerSilent) else self._handler.send(value)
            while self._want is PAUSE:
                self.pauses += 1
                self._want = self._handler.send(None)
        except StopIteration as end:
            self._want, self._result = None, end.value

    def _take(self, kind: type[W]) -> W:
        want = self._want
        assert want is not None, f"the handler has ended with {self._result!r}"
        assert isinstance(want, kind), f"the handler wants {want!r}"
        assert not self._seen, "the handler still waits for what comes of its last want"
        self._seen = True
        return want

    def _end(self) -> bytes | Forward | None:
        assert self._want is None, f"the handler wants {self._want!r}"
        Play.open.remove(self)
        return self._result


def _same(expected: Message, version: int, raw: bytes) -> None:
    decode: Any = type(expected)
    wanted = expected.encode(version)
    if raw != wanted:  # both are decoded, so that pytest can show the difference
        assert decode.decode(version, raw) == decode.decode(version, wanted)
    assert raw == wanted
