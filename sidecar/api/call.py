"""What a handler of one API is given, and what it may ask for.

A handler is a generator: it yields a want, is resumed with what came of it, and returns the body of the response, or
`FORWARD` to let the request pass to the broker as it is. It waits for nothing and knows no connection, so that a test
can play the front (tests/api). front/dispatcher.py drives it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sidecar.core.runtime.events import Answer, Event
from sidecar.core.vocabulary.cache import BoundedCache, Shared
from sidecar.core.vocabulary.placement import partition_for
from sidecar.link.messages import CommitEnded, SettingsPassed, View
from sidecar.native import pack
from sidecar.wire.apis import SERVED, response_flexible
from sidecar.wire.frames import request_frame, response_body
from sidecar.wire.primitives import WireError

CLIENT_ID = "kafka-group-sidecar"
CLIENT_ID_MAX = 100


@dataclass(frozen=True, slots=True)
class Forward:
    """The request passes to the broker byte for byte, or this frame in its place; so does the answer."""

    frame: bytes | None = None


FORWARD: Final = Forward()


class BrokerSilent(Exception):
    """Raised in a handler that waits for the broker behind this sidecar, when that is found silent. A handler that does
    not catch it has no answer, and the connection is closed."""


# ---- wants ------------------------------------------------------------------------------------------------------
@dataclass(slots=True)
class Ask:
    """Send this request frame to the broker on the client's own connection. Resumed with the response frame."""

    frame: bytes


@dataclass(slots=True)
class Coordinate:
    """Send this event to the coordinator. Resumed with its answer."""

    event: Event


@dataclass(slots=True)
class Store:
    """Send this request to another broker on the sidecar's own connection. Resumed with the response frame."""

    node_id: int
    api_key: int
    version: int
    body: bytes
    flexible: bool
    slow: bool = False
    """The broker asks others before it answers: nothing else may wait behind it."""


@dataclass(slots=True)
class Tell:
    """Send this message to the coordinator; nothing is owed any more. Resumed at once, with None."""

    message: SettingsPassed | CommitEnded


@dataclass(slots=True)
class Owe:
    """Send this message to the coordinator if the handler is given up before it tells something else. Resumed at once,
    with None."""

    message: CommitEnded


@dataclass(slots=True)
class Start:
    """Send this request frame to the broker on the client's own connection, and wait for nothing: resumed at once, with
    None. What `then` makes of the response frame goes to the coordinator; of None, if no response will come. It is the
    last want of a handler."""

    frame: bytes
    then: Callable[[bytes | None], Event]


@dataclass(slots=True)
class Settle:
    """If the owner of one of these groups may be gone, wait a while for the word who owns them. Resumed with None."""

    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pause:
    """Let others have their turn. Resumed with None, in a later turn of the event loop."""


PAUSE: Final = Pause()
Want = Ask | Coordinate | Store | Tell | Owe | Start | Settle | Pause
Handler = Generator[Want, Any, bytes | Forward]


# ---- what a handler knows ---------------------------------------------------------------------------------------
Kept = BoundedCache[str, tuple[int, int]]
"""Name -> error code, until when it counts (monotonic ms)."""
CONSUMER_COMMIT = 9
"""Members of consumer groups commit with this version of OffsetCommit. An older broker gets the same bytes as v8."""
RIGHTS_BYTES, FREE_BYTES = 1 << 20, 1 << 18
"""Of what is kept of one connection and of one kind, and of `Learnt.free`."""


def _kept() -> Kept:
    return BoundedCache(RIGHTS_BYTES)


@dataclass(slots=True)
class Client:
    """What is known of one connection. The kept answers of the broker's authorizer belong to access.py."""

    host: str = ""
    number: int = 0
    """Of the connections of one front, each has its own."""
    broker_versions: Mapping[int, tuple[int, int]] | None = None
    """The broker's own ranges, once the client has asked for ApiVersions."""
    readable: Kept = field(default_factory=_kept)
    describable: Kept = field(default_factory=_kept)
    topics: Kept = field(default_factory=_kept)
    authenticates: bool = False
    """It has sent something of SASL."""
    mechanism: str = ""
    """Of SASL, as the broker has accepted it; "": none."""
    principal: str = ""
    """As whom the broker knows it, as far as that can be told from the exchange (sasl.py): `User:alice`, "" if not. For
    records only: it gives no rights."""
    claimed: str = ""
    """The name in an exchange that goes on."""
    let_in: bool = False
    """The broker has answered something that it answers to nobody before it knows who that is."""
    left: bool = False
    """It sends nothing more, as a client that has gone, or that asks again over another connection."""

    def share(self, shared: Shared) -> None:
        """Count the rights that are kept of this connection with those of the others."""
        self.readable.shared = self.describable.shared = self.topics.shared = shared

    def forget(self) -> None:
        """The connection has ended."""
        for kept in (self.readable, self.describable, self.topics):
            kept.clear()


@dataclass(slots=True)
class Learnt:
    """What the brokers' answers on one connection say of all connections. `open_until_ms`: until then it counts that
    the listener wants no client to authenticate (access.py); `open_meanwhile`: the same while the broker is silent, as
    no setting of a silent broker changes; `versions`: of ApiVersions -> the broker's last answer; `served`: which
    versions of which APIs may be used, by the last of these; `free`: name of a group -> when its broker was last asked
    and had no group of another kind (one_name.py), `free_to_share`, `free_to_streams`: of another kind than that."""

    open_until_ms: int = 0
    open_meanwhile: bool = False
    versions: dict[int, bytes] = field(default_factory=dict)
    served: frozenset[tuple[int, int]] | None = None
    free: BoundedCache[str, int] = field(default_factory=lambda: BoundedCache(FREE_BYTES))
    free_to_share: BoundedCache[str, int] = field(default_factory=lambda: BoundedCache(FREE_BYTES))
    free_to_streams: BoundedCache[str, int] = field(default_factory=lambda: BoundedCache(FREE_BYTES))


@dataclass(frozen=True, slots=True)
class Sizes:
    """`answer_bytes`: of an answer that describes groups (response_limit.py); `request_elements`: of all arrays in one
    request together."""

    answer_bytes: int = 8_388_608
    request_elements: int = 25_000


@dataclass(frozen=True, slots=True)
class OwnNames:
    """Names that belong to the sidecars alone: their group, and the transactional ids of the partitions of `topic`. A
    client has no rights to these, whatever the broker's authorizer says. Empty: nothing is kept from this client.
    `brokers_come`: the listener serves brokers as well, which verify transactions for each other."""

    group: str = ""
    topic: str = ""
    brokers_come: bool = False

    def is_group(self, group_id: str) -> bool:
        return group_id == self.group and group_id != ""

    def is_transactional(self, transactional_id: str | None) -> bool:
        topic, _, partition = (transactional_id or "").rpartition("-")
        return topic == self.topic and topic != "" and partition.isdecimal()


@dataclass(slots=True)
class Scope:
    """What all calls of one front have in common. `managed` says whether the sidecars coordinate a group, `managing`
    whether they may coordinate any: both change while the sidecar runs. `new_id` makes a member id;
    `modern_as_classic`: DescribeGroups shows consumer groups, too. The group in `own` is among the managed ones, and
    nobody has a right to it: so each handler refuses it where it refuses any group (access.py)."""

    node_id: int
    managed: Callable[[str], bool]
    managing: bool
    access_keep_ms: int
    new_id: Callable[[], str]
    modern_as_classic: bool = False
    share: bool = False
    """Whether share groups are among those that the sidecars coordinate."""
    streams: bool = False
    """The same of streams groups."""
    moved: Callable[[str], bool] = lambda group_id: False
    """Whether something else was said of this group than the patterns say; "": whether patterns were stored."""
    learnt: Learnt = field(default_factory=Learnt)
    committed: Callable[[int], None] = lambda code: None
    """Told of each commit of a managed group that is answered: the first error in its answer, or NONE."""
    sizes: Sizes = field(default_factory=Sizes)
    cut: Callable[[str], None] = lambda limit: None
    """Told of each request that has come to one of the limits of `sizes`, with the name of the setting."""
    own: OwnNames = OwnNames()

    def keeps_from_broker(self, group_id: str) -> bool:
        """Whether what a request about share groups says of this one is not for the broker alone."""
        return self.own.is_group(group_id) or (self.share and self.managed(group_id))

    def keeps_streams(self, group_id: str) -> bool:
        """The same of requests about streams groups."""
        return self.own.is_group(group_id) or (self.streams and self.managed(group_id))


@dataclass(slots=True)
class Call:
    """One request. Its body begins at `pos` of `frame`. `now_ms`: monotonic, when the handler was last resumed."""

    scope: Scope
    client: Client
    view: View
    api_key: int
    version: int
    correlation_id: int
    frame: bytes
    pos: int
    client_id: str | None
    now_ms: int
    rights_until_ms: int | None = field(default=None, kw_only=True)
    """The end of the oldest right that was looked at for this request (access.py); None: none was."""

    def leader_of(self, group_id: str) -> int:
        """Node id of the broker that keeps the group's offsets; -1 while unknown."""
        leaders = self.view.leaders
        return leaders[partition_for(group_id, len(leaders))] if leaders else -1

    def keeper_of(self, group_id: str) -> int:
        """The same, but the broker behind this sidecar while it is unknown: that one says where it is."""
        leader = self.leader_of(group_id)
        return self.scope.node_id if leader < 0 else leader

    def owner_of(self, group_id: str) -> int:
        """Node id of the broker beside the group's coordinator; -1 while unknown."""
        owners = self.view.owners
        return owners[partition_for(group_id, len(owners))] if owners else -1


def who(call: Call) -> str:
    """Who asks for this, and from where, for the reason in a record: `User:alice from 10.0.0.1, client id "app"`. The
    client's own words come last, quoted, so that they cannot say anything else."""
    client = call.client
    name = client.principal or ("somebody authenticated" if client.mechanism else "User:ANONYMOUS")
    told = json.dumps((call.client_id or "")[:CLIENT_ID_MAX])
    return f"{name} from {client.host or 'nowhere'}, client id {told}"


def packed(layout: str, *values: object) -> bytes:
    """The bytes of an answer. Raises WireError if a string in it is longer than a client may read: the connection is
    closed, as a broker's would be."""
    try:
        return pack(layout, *values)
    except ValueError as exc:
        raise WireError(str(exc)) from None


# ---- the steps that handlers share --------------------------------------------------------------------------------
def ask(call: Call, api_key: int, version: int, body: bytes, flexible: bool) -> Generator[Want, Any, bytes]:
    """A request of the sidecar's own on the client's connection; returns the response frame."""
    frame = yield Ask(request_frame(api_key, version, call.correlation_id, CLIENT_ID, flexible, body))
    assert isinstance(frame, bytes)
    return frame


def upstream(call: Call, body: bytes | None = None) -> Generator[Want, Any, bytes]:
    """The client's request, as it is or with another body; returns the body of the response."""
    if body is None:
        frame = yield Ask(call.frame)
        assert isinstance(frame, bytes)
    else:
        flexible = call.version >= SERVED[call.api_key].flexible_from
        frame = yield from ask(call, call.api_key, call.version, body, flexible)
    return frame[response_body(frame, response_flexible(call.api_key, call.version)) :]


def store(call: Call, group_id: str, version: int, body: bytes) -> Generator[Want, Any, bytes]:
    """Send to the broker that keeps this group's offsets: on the client's own connection where that is the broker
    behind this sidecar, so that the broker authorises it. Returns the body of the response."""
    return (yield from store_at(call, call.keeper_of(group_id), version, body))


def store_at(
    call: Call, node_id: int, version: int, body: bytes, api_key: int | None = None, slow: bool = False
) -> Generator[Want, Any, bytes]:
    """Like `store`, to this broker; of another API, if one is named. `slow`: as in `Store`."""
    key = call.api_key if api_key is None else api_key
    flexible = version >= SERVED[key].flexible_from
    if node_id == call.scope.node_id:
        frame = yield from ask(call, key, version, body, flexible)
    else:
        frame = yield Store(node_id, key, version, body, flexible, slow)
    return frame[response_body(frame, response_flexible(key, version)) :]


def coordinate(event: Event) -> Generator[Want, Any, Any]:
    """The coordinator's answer to this event."""
    answer = yield Coordinate(event)
    assert isinstance(answer, Answer)
    return answer
