"""The state topic as the brokers have it: what is committed, read in the order of the log. No sidecar is asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sidecar.assign import BUILT_IN
from sidecar.coordinator.settings.stored_settings import order_of
from sidecar.core.classic.group import ClassicGroup
from sidecar.core.classic.records import Kind as ClassicKind
from sidecar.core.consumer.group import ConsumerGroup
from sidecar.core.consumer.records import Kind as ConsumerKind
from sidecar.core.kinds import REGISTRY
from sidecar.core.runtime.commands import RENEWED
from sidecar.core.runtime.shard import Shard
from sidecar.core.runtime.turn import Computed, Ports
from sidecar.core.share.group import ShareGroup
from sidecar.core.share.records import Kind as ShareKind
from sidecar.core.streams.group import StreamsGroup
from sidecar.core.streams.records import Kind as StreamsKind
from sidecar.core.vocabulary.errors import InvariantError
from sidecar.core.vocabulary.group_config import MANAGED, VERDICT
from sidecar.core.vocabulary.placement import partition_for
from sidecar.state.codec import CONFIG, OWNER_CLAIM, SCHEMA, StateCodec, owner_epoch_of
from sidecar.state.keys import StateKey, decode_key
from tests.whole.kafka import Kafka
from tests.whole.violation import Violation

MEMBERS = (ConsumerKind.MEMBER, ClassicKind.MEMBER, ShareKind.MEMBER, StreamsKind.MEMBER)
Group = ConsumerGroup | ClassicGroup | ShareGroup | StreamsGroup


def _settings(group_id: str, name: str) -> Any:
    return REGISTRY.kinds[name].config()


@dataclass
class Part:
    """`claimed`: the owner epoch of the last claim in the order of the log."""

    position: int = 0
    topic_id: bytes = b""
    claimed: int = -1
    claims: int = 0
    claimed_ms: float = 0.0
    taken_ms: float = 0.0
    """The time at which its owner took it over. Renewals of its fence are claims as well."""
    owner: int = -1
    """Node id of who made it."""
    shard: Shard = field(default_factory=lambda: Shard(REGISTRY, Ports({"consumer": BUILT_IN}, Computed(_settings))))
    values: dict[StateKey, bytes] = field(default_factory=dict)


class Fold:
    """`changed(group_id)` is called when a batch of records about this group has been read, and
    `removed(group_id, member_id, why, partition)` when a member's record is gone, and `said(group_id, name, value,
    why, order)` when it is said whose the group is, or what its owner has found about that. `emptied(group_id)`: the
    last record is gone of a group that nobody could read."""

    def __init__(
        self,
        kafka: Kafka,
        topic: str,
        partitions: int,
        changed: Callable[[str], None],
        removed: Callable[[str, str, str, Part], None],
        said: Callable[[str, str, str | None, str, str], None],
        emptied: Callable[[str], None],
    ) -> None:
        self._kafka, self._topic = kafka, topic
        self.parts = [Part() for _ in range(partitions)]
        self.records = 0
        self.say: Callable[[str, str], None] = lambda who, text: None
        self._without: dict[tuple[str, str], tuple[str, int]] = {}
        """Members whose record is gone, why, and behind how many claims, as far as a batch has been read."""
        self.gone: dict[tuple[str, str], tuple[float, int, str]] = {}
        """Members that were removed and have not come back: when, by which node's sidecar, and why."""
        self.injected: set[StateKey] = set()
        """Keys of records that nobody here can read, and that no sidecar writes."""
        self.foreign: set[str] = set()
        """Groups with records that nobody here can read: they are kept as they are."""
        self._codec = StateCodec()
        self._changed, self._removed, self._said = changed, removed, said
        self._emptied = emptied

    def partition_of(self, group_id: str) -> int:
        return partition_for(group_id, len(self.parts))

    def group(self, group_id: str) -> Group | None:
        found = self.parts[partition_for(group_id, len(self.parts))].shard.groups.get(group_id)
        assert found is None or isinstance(found, Group)
        return found

    def has_records(self, group_id: str) -> bool:
        return any(key.group_id == group_id for key in self.parts[self.partition_of(group_id)].values)

    def forget(self) -> None:
        """The topic is another one, and empty."""
        self.parts = [Part() for _ in self.parts]
        self.gone.clear()

    def _begins_anew(self, group_id: str) -> None:
        """Forgets a group of which nothing is left, and follows it again."""
        self.foreign.discard(group_id)
        self.injected = {key for key in self.injected if key.group_id != group_id}
        self.parts[self.partition_of(group_id)].shard.groups.pop(group_id, None)
        for member in [m for m in self.gone if m[0] == group_id]:
            del self.gone[member]
        self._emptied(group_id)

    def read(self, p: int) -> None:
        """Reads what has been committed to this partition since the last call."""
        cluster, part = self._kafka.cluster, self.parts[p]
        node_id = self._kafka.furthest(self._topic, p)
        if node_id is None:
            return
        while True:
            found = cluster.read(node_id, self._topic, p, part.position, 500)
            if found.error or not found.records:
                if not found.error:
                    part.position = max(part.position, found.next_offset)
                return
            groups: dict[str, None] = {}
            self._without.clear()
            for r in found.records:
                self._take(part, r, groups)
            part.position = found.next_offset
            for (group_id, member_id), (why, claims) in self._without.items():
                group = self.group(group_id)
                if group is None or member_id not in group.members:  # else it has changed its protocol
                    self.gone[group_id, member_id] = self._kafka.universe.now_ms, part.owner, why
                    if claims == part.claims:  # else nobody can say when the former owner wrote it
                        self._removed(group_id, member_id, why, part)
            for group_id in groups:
                self._changed(group_id)

    def _move(self, group_id: str, name: str, r: Any) -> None:
        body = None if r.value is None else self._codec.schemas.decode(r.value)
        value = None if body is None else str(body["value"])
        why = (dict(r.headers).get("why") or b"").decode() if body is None else str(body["why"])
        self.say("log", f"{group_id}: {name} is {value}: {why}")
        self._said(group_id, name, value, why, order_of(body))

    def is_whole(self, p: int) -> bool:
        """Returns whether everything in the log has been read, and nothing of it may still go away."""
        node_id = self._kafka.leader(self._topic, p)
        node = self._kafka.cluster.nodes[node_id] if node_id is not None else None
        replica = node.replica(self._topic, p) if node is not None and node.up else None
        return replica is not None and replica.high_watermark == replica.log.end == self.parts[p].position

    def _take(self, part: Part, r: Any, groups: dict[str, None]) -> None:
        key = decode_key(r.key)
        self.records += 1
        if key.kind == OWNER_CLAIM:
            if r.value is not None:
                part.claimed, part.claims = int(key.sub_id), part.claims + 1
                part.claimed_ms = self._kafka.universe.now_ms
                claim = self._codec.schemas.decode(r.value)
                part.owner = int(claim["node_id"])
                if claim["why"] != RENEWED:
                    part.taken_ms = part.claimed_ms
                told = f"partition {self.parts.index(part)} is claimed by sidecar {part.owner}"
                self.say("log", f"{told}, owner epoch {part.claimed}, at {r.offset}")
            return
        if key.kind == SCHEMA:
            if r.value is not None:
                self._codec.schemas.learn(r.value.decode())
            return
        if key.kind == CONFIG:
            if key.group_id and key.sub_id in (MANAGED, VERDICT):
                self._move(key.group_id, key.sub_id, r)
            return
        if key in self.injected and r.value is not None:
            if owner_epoch_of(r.value) == part.claimed:  # else it is void for everybody
                self.foreign.add(key.group_id)
                _put(part.values, key, r.value)
            return
        if key.group_id in self.foreign:
            _put(part.values, key, r.value)
            if not any(k.group_id == key.group_id for k in part.values):
                self._begins_anew(key.group_id)
            return
        epoch = int(dict(r.headers).get("owner_epoch", b"-1")) if r.value is None else owner_epoch_of(r.value)
        if epoch != part.claimed:
            raise Violation(f"{key}@{r.offset}: a record of owner epoch {epoch} behind the claim {part.claimed}")
        if r.value is not None and part.values.get(key) == r.value:
            raise Violation(f"{key}@{r.offset} is in the log twice")
        _put(part.values, key, r.value)
        try:
            part.shard.replay(self._codec.decode(key, r.value)[0])
        except InvariantError as exc:
            raise Violation(f"in the log, {key}@{r.offset}: {exc}") from exc
        groups[key.group_id] = None
        if key.kind in MEMBERS:
            member = (key.group_id, key.sub_id)
            if r.value is None:
                self._without[member] = (dict(r.headers).get("why") or b"").decode(), part.claims
            else:
                self.gone.pop(member, None)
                self._without.pop(member, None)


def _put(into: dict[StateKey, bytes], key: StateKey, value: bytes | None) -> None:
    if value is None:
        into.pop(key, None)
    else:
        into[key] = value
