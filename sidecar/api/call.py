"""The call that a handler of one API gets, and the wants that it may yield.

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
from sidecar.wire.frames import VERSION, request_frame, response_body
from sidecar.wire.primitives import WireError

CLIENT_ID = "kafka-group-sidecar"
CLIENT_ID_MAX = 100


@dataclass(frozen=True, slots=True)
class Forward:
    """The request passes to the broker byte for byte, or this frame in its place; so does the answer."""

    frame: bytes | None = None


FORWARD: Final = Forward()
Ranges = Mapping[int, tuple[int, int]]
"""Api key -> lowest and highest version."""


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
    """Send this request to another broker on the sidecar's own connection. Resumed with the response frame, or with
    `NotServed`."""

    node_id: int
    api_key: int
    version: int
    body: bytes
    flexible: bool
    slow: bool = False
    """Whether the broker asks others before it answers: nothing else may wait behind this request."""


@dataclass(frozen=True, slots=True)
class NotServed:
    """The result of a `Store` that was not sent: the broker serves this API in these versions; `high` -1: in none."""

    low: int
    high: int


@dataclass(slots=True)
class SendToCoordinator:
    """Send this message to the coordinator; the handler owes it nothing any more. Resumed at once, with None."""

    message: SettingsPassed | CommitEnded


@dataclass(slots=True)
class Owe:
    """Send this message to the coordinator if the handler ends early, before its next `SendToCoordinator`. Resumed at
    once, with None."""

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
    """If the owner of one of these groups may be gone, wait a while until the owner is known. Resumed with None."""

    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pause:
    """Let others have their turn. Resumed with None, in a later turn of the event loop."""


PAUSE: Final = Pause()
Want = Ask | Coordinate | Store | SendToCoordinator | Owe | Start | Settle | Pause
Handler = Generator[Want, Any, bytes | Forward]


# ---- what a handler knows ---------------------------------------------------------------------------------------
Kept = BoundedCache[str, tuple[int, int]]
"""Name -> error code, and until when it is valid (monotonic ms)."""
CONSUMER_COMMIT = 9
"""Version of OffsetCommit in which members of consumer groups commit. An older broker gets the same bytes as v8."""
RIGHTS_BYTES, FREE_BYTES = 1 << 20, 1 << 18
"""Limits of kept rights: for one connection and one kind of names, and for each of the `free` tables in `Learnt`."""


def _kept() -> Kept:
    return BoundedCache(RIGHTS_BYTES)


@dataclass(slots=True)
class Client:
    """The facts about one connection. The kept answers of the broker's authorizer belong to access.py."""

    host: str = ""
    number: int = 0
    """Number of the connection, unique in its front."""
    broker_versions: Ranges | None = None
    """The broker's own ranges, once this connection has asked for ApiVersions. Read them by `Call.broker_versions`."""
    readable: Kept = field(default_factory=_kept)
    describable: Kept = field(default_factory=_kept)
    topics: Kept = field(default_factory=_kept)
    authenticates: bool = False
    """Whether the client has sent anything of SASL."""
    mechanism: str = ""
    """SASL mechanism that the broker has accepted; "": none."""
    principal: str = ""
    """Principal by which the broker knows the client, as far as the exchange reveals it (sasl.py): `User:alice`, or "".
    For records only: it gives no rights."""
    claimed: str = ""
    """Name in an exchange that is not complete."""
    let_in: bool = False
    """Whether the broker has answered a request that it answers only to a client that it has let in."""
    left: bool = False
    """Whether the client sends nothing more: it has gone, or asks again over another connection."""

    def share(self, shared: Shared) -> None:
        """Counts the rights that are kept of this connection together with those of the others."""
        self.readable.shared = self.describable.shared = self.topics.shared = shared

    def forget(self) -> None:
        """Drops the kept rights: the connection has ended."""
        for kept in (self.readable, self.describable, self.topics):
            kept.clear()


@dataclass(slots=True)
class Learnt:
    """Facts about all connections, learnt from the brokers' answers on one. `open_until_ms`: until then the listener
    counts as one that wants no client to authenticate (access.py); `open_meanwhile`: the same while the broker is
    silent, as no setting of a silent broker changes; `versions`: version of ApiVersions -> the broker's last answer;
    `ranges`: its own ranges, by the last of these; `served`: API keys and versions that may be used, by the same;
    `free`: name of a group -> when its broker was last asked and had no group of another kind (one_name.py);
    `free_to_share`, `free_to_streams`: the same for a new group of that kind."""

    open_until_ms: int = 0
    open_meanwhile: bool = False
    versions: dict[int, bytes] = field(default_factory=dict)
    ranges: Ranges | None = None
    served: frozenset[tuple[int, int]] | None = None
    free: BoundedCache[str, int] = field(default_factory=lambda: BoundedCache(FREE_BYTES))
    free_to_share: BoundedCache[str, int] = field(default_factory=lambda: BoundedCache(FREE_BYTES))
    free_to_streams: BoundedCache[str, int] = field(default_factory=lambda: BoundedCache(FREE_BYTES))


@dataclass(frozen=True, slots=True)
class Sizes:
    """Limits of handlers. `answer_bytes`: of an answer that describes groups (response_limit.py); `request_elements`:
    of all arrays in one request together."""

    answer_bytes: int = 8_388_608
    request_elements: int = 25_000


@dataclass(frozen=True, slots=True)
class OwnNames:
    """Names that belong to the sidecars alone: their group, and the transactional ids of the partitions of `topic`. A
    client has no rights to these, whatever the broker's authorizer says. Empty: nothing is kept from this client.
    `brokers_come`: the listener serves brokers as well, which verify transactions for each other. `unlisted`: their
    group where nothing tells sidecars from clients, so that only ListGroups is without it."""

    group: str = ""
    topic: str = ""
    brokers_come: bool = False
    unlisted: str = ""

    def is_group(self, group_id: str) -> bool:
        return group_id == self.group and group_id != ""

    def is_unlisted(self, group_id: str) -> bool:
        return group_id in (self.group, self.unlisted) and group_id != ""

    def is_transactional(self, transactional_id: str | None) -> bool:
        topic, _, partition = (transactional_id or "").rpartition("-")
        return topic == self.topic and topic != "" and partition.isdecimal()


@dataclass(slots=True)
class Scope:
    """The facts that all calls of one front share. `managed`: whether the sidecars coordinate a group; `managing`:
    whether they may coordinate any; both change while the sidecar runs. `new_id` makes a member id;
    `modern_as_classic`: DescribeGroups shows consumer groups, too. The group in `own` is among the managed ones, and no
    client has a right to it: so each handler refuses it where it refuses any group (access.py)."""

    node_id: int
    managed: Callable[[str], bool]
    managing: bool
    access_keep_ms: int
    new_id: Callable[[], str]
    modern_as_classic: bool = False
    share: bool = False
    """Whether the sidecars coordinate share groups, too."""
    streams: bool = False
    """Whether the sidecars coordinate streams groups, too."""
    moved: Callable[[str], bool] = lambda group_id: False
    """Whether an order for this group overrides the patterns; for "", whether patterns are stored."""
    learnt: Learnt = field(default_factory=Learnt)
    committed: Callable[[int], None] = lambda code: None
    """Called for each answered commit of a managed group, with the first error in the answer, or NONE."""
    sizes: Sizes = field(default_factory=Sizes)
    cut: Callable[[str], None] = lambda limit: None
    """Called for each request that reaches one of the limits of `sizes`, with the name of the setting."""
    own: OwnNames = OwnNames()

    def keeps_from_broker(self, group_id: str) -> bool:
        """Returns whether a request about this share group must not pass to the broker as it is."""
        return self.own.is_group(group_id) or (self.share and self.managed(group_id))

    def keeps_streams(self, group_id: str) -> bool:
        """Returns the same for a streams group."""
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
    """Earliest end of the rights on which the answer relies (access.py); None: no right was looked at."""

    @property
    def broker_versions(self) -> Ranges | None:
        """The broker's own ranges, as it has shown them on this connection, or else on the last one that asked: some
        clients ask once and then open further connections. None: unknown."""
        return self.client.broker_versions or self.scope.learnt.ranges

    @property
    def broker_version(self) -> int:
        """The version in which this request goes to the broker: that of the client, or the broker's highest if that is
        lower, since the sidecar announces more; -1: the broker lacks the API."""
        versions = self.broker_versions
        return self.version if versions is None else min(self.version, versions.get(self.api_key, (0, -1))[1])

    def leader_of(self, group_id: str) -> int:
        """Returns the node id of the broker that keeps the group's offsets; -1 while unknown."""
        leaders = self.view.leaders
        return leaders[partition_for(group_id, len(leaders))] if leaders else -1

    def keeper_of(self, group_id: str) -> int:
        """Returns the same, but while it is unknown the broker behind this sidecar, which knows where the group is."""
        leader = self.leader_of(group_id)
        return self.scope.node_id if leader < 0 else leader

    def owner_of(self, group_id: str) -> int:
        """Returns the node id of the broker beside the group's owner; -1 while unknown."""
        owners = self.view.owners
        return owners[partition_for(group_id, len(owners))] if owners else -1


def who(call: Call) -> str:
    """Returns the client's principal, address and client id, for the reason in a record: `User:alice from 10.0.0.1,
    client id "app"`. The client's own words come last, quoted, so they cannot pass for anything else."""
    client = call.client
    name = client.principal or ("somebody authenticated" if client.mechanism else "User:ANONYMOUS")
    client_id = json.dumps((call.client_id or "")[:CLIENT_ID_MAX])
    return f"{name} from {client.host or 'nowhere'}, client id {client_id}"


def packed(layout: str, *values: object) -> bytes:
    """Returns the bytes of an answer. Raises WireError if a string in it is longer than a client may read: the
    connection is closed, as a broker's would be."""
    try:
        return pack(layout, *values)
    except ValueError as exc:
        raise WireError(str(exc)) from None


def forward_in(call: Call, version: int) -> Forward:
    """Passes the request in another version that has the same bytes; -1: there is none, and the broker refuses it."""
    if version in (call.version, -1):
        return FORWARD
    return Forward(call.frame[: VERSION.start] + version.to_bytes(2, "big") + call.frame[VERSION.stop :])


# ---- the steps that handlers share --------------------------------------------------------------------------------
def ask(
    call: Call, api_key: int, version: int, body: bytes, flexible: bool, client_id: str | None = CLIENT_ID
) -> Generator[Want, Any, bytes]:
    """Sends a request on the client's connection: one of the sidecar's own, or in place of the client's, under its
    `client_id`, by which the broker has quotas and names members. Returns the response frame."""
    frame = yield Ask(request_frame(api_key, version, call.correlation_id, client_id, flexible, body))
    assert isinstance(frame, bytes)
    return frame


def upstream(call: Call, body: bytes | None = None) -> Generator[Want, Any, bytes]:
    """Sends the client's request, as it is or with another body. Returns the body of the response."""
    if body is None:
        frame = yield Ask(call.frame)
        assert isinstance(frame, bytes)
    else:
        flexible = call.version >= SERVED[call.api_key].flexible_from
        frame = yield from ask(call, call.api_key, call.version, body, flexible, call.client_id)
    return frame[response_body(frame, response_flexible(call.api_key, call.version)) :]


def coordinate(event: Event) -> Generator[Want, Any, Any]:
    """Returns the coordinator's answer to this event."""
    answer = yield Coordinate(event)
    assert isinstance(answer, Answer)
    return answer
