"""The consumer's own protocol inside the classic one: a member's subscription and owned partitions (KIP-429, KIP-792),
and its assignment. The coordinator passes these bytes on unchanged. It reads them for claims, OffsetDelete and
migration, never to decide about a join.

The bytes begin with a version. A version newer than NEWEST is read as NEWEST, as all clients do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError

from sidecar.core.vocabulary.cache import BoundedCache, bytes_of
from sidecar.wire.generated import consumer_protocol_assignment as ca
from sidecar.wire.generated import consumer_protocol_subscription as cs
from sidecar.wire.primitives import WireError

CONSUMER_TYPE = "consumer"
"""The protocol type of consumers."""
NEWEST = 3
UNKNOWN_GENERATION = -1
LAST_GENERATION = 2**30
"""A member that claims this generation or a later one is not believed: all that follow must fit into 32 bits."""
TOPICS_MAX, OWNED_MAX, PARTITIONS_MAX = 25_000, 5_000, 50_000
"""Most topics that a member subscribes to, and most topics and partitions that it owns: a larger subscription is read
as none. A shard reads it in one go, and 5,000 topics take about 8 ms."""
FEW_BYTES = 100_000
"""Shorter bytes cannot exceed these limits, so they are not counted."""
KEPT_BYTES, CACHE_BYTES = 2_048, 8 << 20
"""Cache limits: for the bytes of one subscription, and for all of them. Larger subscriptions are decoded each time."""
_INT, _SHORT = Struct(">i"), Struct(">h")
Owned = Mapping[str, tuple[int, ...]]
"""Topic name -> partitions."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """`generation`: in which the member got the partitions it owns; -1 if its client does not send it (versions 0 and
    1)."""

    version: int
    topics: tuple[str, ...]
    user_data: bytes | None
    owned: Owned
    generation: int
    rack_id: str | None


def subscription(metadata: bytes) -> Subscription | None:
    """Returns the subscription in these bytes. None: they are no subscription, or exceed the limits."""
    return _SUBSCRIPTIONS[metadata]


def _subscription(metadata: bytes) -> Subscription | None:
    return None if _exceeds_limits(metadata) else whole_subscription(metadata)


def _exceeds_limits(metadata: bytes) -> bool:
    """Whether the subscription exceeds the limits. Counts before anything is decoded."""
    if len(metadata) <= FEW_BYTES:
        return False
    try:
        topics, pos = _INT.unpack_from(metadata, 2)[0], 6
        for _ in range(min(topics, TOPICS_MAX)):
            pos += 2 + _SHORT.unpack_from(metadata, pos)[0]
        if topics > TOPICS_MAX or _version(metadata) == 0:
            return bool(topics > TOPICS_MAX)
        pos += 4 + max(0, _INT.unpack_from(metadata, pos)[0])
        return _array_exceeds_limits(metadata, pos)
    except (WireError, StructError):
        return False


def _array_exceeds_limits(raw: bytes, pos: int) -> bool:
    """Whether the array of topics with partitions at `pos` has more topics or partitions than the limits. Raises
    StructError."""
    topics, partitions = _INT.unpack_from(raw, pos)[0], 0
    if topics > OWNED_MAX:
        return True
    pos += 4
    for _ in range(topics):
        pos += 2 + _SHORT.unpack_from(raw, pos)[0]
        count = max(0, _INT.unpack_from(raw, pos)[0])
        pos += 4 + 4 * count
        partitions += count
    return partitions > PARTITIONS_MAX


def whole_subscription(metadata: bytes) -> Subscription | None:
    """Returns the subscription without a limit on its size, for the audit."""
    try:
        version = _version(metadata)
        s = cs.ConsumerProtocolSubscription.decode(min(version, NEWEST), metadata, 2)
    except WireError:
        return None
    owned = _by_topic(s.owned_partitions)
    return Subscription(version, tuple(s.topics), s.user_data, owned, s.generation_id, s.rack_id)


def _by_topic(entries: Iterable[cs.TopicPartition] | Iterable[ca.TopicPartition]) -> Owned:
    """Returns topic -> partitions. A topic may come more than once: all its partitions count, as for Kafka's own
    clients."""
    owned: dict[str, list[int]] = {}
    for t in entries:
        owned.setdefault(t.topic, []).extend(t.partitions)
    return {topic: tuple(partitions) for topic, partitions in owned.items()}


def topics_of(metadata: bytes) -> tuple[str, ...] | None:
    """Returns the topics alone, which all versions begin with. None: these bytes are no subscription, or exceed the
    limits."""
    return _TOPICS[metadata]


def _topics_of(metadata: bytes) -> tuple[str, ...] | None:
    if len(metadata) > FEW_BYTES and _INT.unpack_from(metadata, 2)[0] > TOPICS_MAX:
        return None
    try:
        _version(metadata)
        return tuple(cs.ConsumerProtocolSubscription.decode(0, metadata, 2).topics)
    except WireError:
        return None


def _weight(s: Subscription | None) -> int:
    """Returns about how many bytes a decoded subscription takes: a number takes ten times as many as on the wire."""
    if s is None:
        return 0
    return _weight_of(s.topics) + _weight_of(s.owned) + 40 * sum(map(len, s.owned.values())) + len(s.user_data or b"")


def _weight_of(names: Iterable[str] | None) -> int:
    return sum(60 + bytes_of(name) for name in names or ())


_SUBSCRIPTIONS: BoundedCache[bytes, Subscription | None] = BoundedCache(
    CACHE_BYTES, _subscription, key_bytes=KEPT_BYTES, weigh=_weight
)
_TOPICS: BoundedCache[bytes, tuple[str, ...] | None] = BoundedCache(
    CACHE_BYTES, _topics_of, key_bytes=KEPT_BYTES, weigh=_weight_of
)


def without_claims(metadata: bytes, of: Mapping[str, Iterable[int]]) -> bytes:
    """Returns the subscription of a member without claims to these partitions. Bytes behind the known fields are
    kept."""
    version = min(_version(metadata), NEWEST)
    s = cs.ConsumerProtocolSubscription.decode(version, metadata, 2)
    known = 2 + len(s.encode(version))
    removed = {topic: frozenset(partitions) for topic, partitions in of.items()}
    for t in s.owned_partitions:
        t.partitions = [p for p in t.partitions if p not in removed.get(t.topic, ())]
    s.owned_partitions = [t for t in s.owned_partitions if t.partitions]
    return metadata[:2] + s.encode(version) + metadata[known:]


def is_large(assignment: bytes) -> bool:
    """Whether this assignment exceeds the limits of a shard that reads it in one go."""
    try:
        return len(assignment) > FEW_BYTES and _array_exceeds_limits(assignment, 2)
    except StructError:
        return False


def assigned(assignment: bytes) -> Owned | None:
    """Returns the assigned partitions. None: these bytes are no assignment. Empty bytes assign nothing."""
    decoded = assigned_with_data(assignment)
    return None if decoded is None else decoded[0]


def assigned_with_data(assignment: bytes) -> tuple[Owned, bytes | None] | None:
    """Returns the assigned partitions, and the assignor's own data. None: these bytes are no assignment."""
    if not assignment:
        return {}, None
    try:
        a = ca.ConsumerProtocolAssignment.decode(min(_version(assignment), NEWEST), assignment, 2)
    except WireError:
        return None
    return _by_topic(a.assigned_partitions), a.user_data


def assignment(version: int, partitions: Iterable[tuple[str, tuple[int, ...]]]) -> bytes:
    """Returns an assignment as a client of this subscription version reads it."""
    known = max(0, min(version, NEWEST))
    topics = [ca.TopicPartition(t, list(ps)) for t, ps in partitions]
    return known.to_bytes(2, "big") + ca.ConsumerProtocolAssignment(topics).encode(known)


def plain_subscription(topics: Iterable[str]) -> bytes:
    """Returns a subscription that has only topics."""
    return b"\0\0" + cs.ConsumerProtocolSubscription(list(topics)).encode(0)


def _version(data: bytes) -> int:
    if len(data) < 2:
        raise WireError("no version")
    version = int.from_bytes(data[:2], "big", signed=True)
    if version < 0:
        raise WireError(f"version {version}")
    return version
