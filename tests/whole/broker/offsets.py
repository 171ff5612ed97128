"""Committed offsets of groups: what is stored, what a transaction has pending, what may be committed, read, deleted and
when it expires. Source: OffsetMetadataManager, ClassicGroup.validateOffsetCommit and offsetExpirationCondition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tests.whole.broker.batches import Batch
from tests.whole.broker.classic import ClassicShard
from tests.whole.broker.codes import Err, Refused
from tests.whole.broker.group import Group, State, StoredGroup, restored
from tests.whole.broker.replica import Replica
from tests.whole.broker.shard import Done
from tests.whole.broker.share import ShareGroups, StoredShare
from tests.whole.broker.streams import StoredStreams, StreamsGroups

if TYPE_CHECKING:
    from tests.whole.broker.node import Node

Place = tuple[str, int]
ZERO = b"\0" * 16


@dataclass(frozen=True, slots=True)
class Committed:
    """`expire_ms` -1: after the broker's retention. `at` is the offset of the record itself."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = -1
    topic_id: bytes = ZERO
    at: int = -1


class OffsetStore:
    """By group and by partition. One has everything that was written, another only what is committed."""

    def __init__(self) -> None:
        self.groups: dict[str, dict[Place, Committed]] = {}
        self.pending: dict[int, dict[tuple[str, Place], Committed]] = {}
        """By producer id: offsets of open transactions."""

    def put(self, group_id: str, place: Place, value: Committed | None, producer_id: int) -> None:
        if value is None:
            held = self.groups.get(group_id, {})
            held.pop(place, None)
            if not held:
                self.groups.pop(group_id, None)
            for pending in self.pending.values():
                pending.pop((group_id, place), None)
        elif producer_id >= 0:
            self.pending.setdefault(producer_id, {})[group_id, place] = value
        else:
            self.groups.setdefault(group_id, {})[place] = value

    def end(self, producer_id: int, commit: bool) -> None:
        for (group_id, place), value in self.pending.pop(producer_id, {}).items():
            known = self.groups.get(group_id, {}).get(place)
            if commit and (known is None or value.at > known.at):
                self.groups.setdefault(group_id, {})[place] = value

    def open_places(self, group_id: str) -> list[Place]:
        return [p for pending in self.pending.values() for g, p in pending if g == group_id]

    def apply(self, batch: Batch) -> None:
        if batch.marker:
            self.end(batch.producer_id, batch.marker == "commit")
            return
        producer_id = batch.producer_id if batch.transactional else -1
        for r in batch.records:
            match r.key:
                case ("offset", str(group_id), str(topic), int(partition)):
                    value = replace(r.value, at=r.offset) if r.value is not None else None
                    self.put(group_id, (topic, partition), value, producer_id)


class GroupShard(ClassicShard):
    """One partition of `__consumer_offsets` at its leader."""

    def __init__(self, node: Node, replica: Replica) -> None:
        super().__init__(node, replica)
        self.latest = OffsetStore()
        self.stable = OffsetStore()
        self._uncommitted: list[Batch] = []
        self.shares = ShareGroups(self)
        self.streams = StreamsGroups(self)

    # ---- the log --------------------------------------------------------------------------------------------
    def replay(self, batch: Batch) -> None:
        self.latest.apply(batch)
        self._uncommitted.append(batch)
        for r in batch.records:
            match r.key:
                case ("group", str(group_id)) if r.value is None:
                    self.groups.pop(group_id, None)
                case ("group", str(group_id)) if not self.active:
                    assert isinstance(r.value, StoredGroup)
                    self.groups[group_id] = restored(group_id, r.value)
                case ("share", str(group_id)) if not self.active:
                    assert isinstance(r.value, StoredShare)
                    self.shares.groups[group_id] = r.value
                case ("streams", str(group_id)) if not self.active:
                    self.streams.groups.pop(group_id, None)
                    if r.value is not None:
                        assert isinstance(r.value, StoredStreams)
                        self.streams.groups[group_id] = r.value
                case ("offset", str(group_id), _, _) if r.value is not None and group_id not in self.streams.groups:
                    self.group_or_new(group_id)

    def committed(self) -> None:
        mark = self.replica.high_watermark
        while self._uncommitted and self._uncommitted[0].last < mark:
            self.stable.apply(self._uncommitted.pop(0))

    def begin(self) -> None:
        """The log has been read: sessions begin anew, and offsets are looked through from time to time."""
        for group in self.groups.values():
            for member_id in group.members:
                self.member_lives(group, member_id)
            if len(group.members) > self.node.settings.number("group.max.size"):
                self._prepare(group)
        self.shares.begin()
        self.streams.begin()
        self._look_for_expired()

    def _look_for_expired(self) -> None:
        interval_ms = self.node.settings.number("offsets.retention.check.interval.ms")

        def look() -> None:
            self.expire()
            self._look_for_expired()

        self.timer("expiry", interval_ms, look)

    # ---- commit ---------------------------------------------------------------------------------------------
    def check_commit(
        self, group_id: str, member: tuple[str, str | None, int], version: int, in_transaction: bool
    ) -> None:
        """Whether this member may commit. Raises Refused."""
        member_id, instance_id, generation = member
        if group_id in self.streams.groups:
            self.streams.check_commit(self.streams.groups[group_id], member_id, generation, in_transaction)
            return
        group = self.groups.get(group_id)
        if group is None:
            if generation >= 0:
                newer = version >= 9 and not in_transaction
                raise Refused(Err.GROUP_ID_NOT_FOUND if newer else Err.ILLEGAL_GENERATION)
            group = self.group_or_new(group_id)
        if not (generation < 0 and group.state is State.EMPTY):
            self._check_member(group, member_id, instance_id, generation, in_transaction)
        if not in_transaction and group.state in (State.STABLE, State.PREPARING):
            self.member_lives(group, member_id)

    @staticmethod
    def _check_member(
        group: Group, member_id: str, instance_id: str | None, generation: int, in_transaction: bool
    ) -> None:
        if generation >= 0 or member_id or instance_id is not None:
            group.validate(member_id, instance_id)
            if generation != group.generation:
                raise Refused(Err.ILLEGAL_GENERATION)
        elif not in_transaction and group.state is not State.EMPTY:
            raise Refused(Err.UNKNOWN_MEMBER_ID)
        if not in_transaction and group.state is State.COMPLETING:
            raise Refused(Err.REBALANCE_IN_PROGRESS)

    def commit(
        self,
        group_id: str,
        offsets: Iterable[tuple[Place, Committed]],
        done: Done,
        producer: tuple[int, int] = (-1, -1),
    ) -> None:
        self.write([(("offset", group_id, *place), value) for place, value in offsets], done, producer)

    # ---- fetch ----------------------------------------------------------------------------------------------
    def fetch(
        self, group_id: str, places: list[Place] | None, stable: bool
    ) -> Iterator[tuple[Place, Committed | Err | None]]:
        """Yields the offsets of these partitions, or of all. With `stable`, a partition with an open transaction is an
        error."""
        store = self.latest if stable else self.stable
        held = store.groups.get(group_id, {})
        unstable = set(self.latest.open_places(group_id)) if stable else set()
        for place in list(held) if places is None else places:
            yield place, Err.UNSTABLE_OFFSET_COMMIT if place in unstable else held.get(place)

    # ---- deletion -------------------------------------------------------------------------------------------
    def delete_offsets(
        self, group_id: str, places: list[Place]
    ) -> tuple[list[tuple[Place, Err]], list[tuple[tuple[str, str, str, int], None]]]:
        """A code for each, and the tombstones. Raises Refused."""
        group = self.groups.get(group_id)
        if group is None:
            raise Refused(Err.GROUP_ID_NOT_FOUND)
        if group.state is not State.EMPTY and group.protocol_type != "consumer":
            raise Refused(Err.NON_EMPTY_GROUP)
        codes, tombstones = [], []
        held = {*self.latest.groups.get(group_id, {}), *self.latest.open_places(group_id)}
        for place in places:
            if group.is_subscribed_to(place[0]):
                codes.append((place, Err.GROUP_SUBSCRIBED_TO_TOPIC))
                continue
            codes.append((place, Err.NONE))
            if place in held:
                tombstones.append((("offset", group_id, *place), None))
        return codes, tombstones

    def delete_group(self, group_id: str, done: Done) -> None:
        """Raises Refused."""
        group = self.groups.get(group_id)
        if group is None:
            raise Refused(Err.GROUP_ID_NOT_FOUND)
        if group.state is not State.EMPTY:
            raise Refused(Err.NON_EMPTY_GROUP)
        held = {*self.latest.groups.get(group_id, {}), *self.latest.open_places(group_id)}
        tombstones = [(("offset", group_id, *place), None) for place in sorted(held)]
        self.write([*tombstones, (("group", group_id), None)], done)

    def topics_deleted(self, gone: dict[str, bytes]) -> None:
        """Removes the offsets of these topics. `gone`: ids by name."""
        stored = {(g, place): value for g, held in self.latest.groups.items() for place, value in held.items()}
        tombstones = [
            (("offset", g, *place), None)
            for held in (stored, *self.latest.pending.values())
            for (g, place), value in held.items()
            if place[0] in gone and value.topic_id in (ZERO, gone[place[0]])
        ]
        if tombstones:
            self.write(tombstones, lambda code: None)

    # ---- expiry ---------------------------------------------------------------------------------------------
    def expire(self) -> None:
        """Offsets that have expired, and groups that have none left (cleanupExpiredGroupMetadata)."""
        for group in list(self.groups.values()):
            held = self.latest.groups.get(group.group_id)
            unstable = set(self.latest.open_places(group.group_id))
            gone: list[Place] = []
            if held is not None:
                base = self._expiry_base(group)
                if base is None:
                    continue
                gone = [p for p, v in held.items() if p not in unstable and self._is_expired(group, p, v, base)]
            tombstones = [(("offset", group.group_id, *place), None) for place in gone]
            left = len(held or {}) - len(gone)
            if not left and not unstable and group.state is State.EMPTY:
                self.write([*tombstones, (("group", group.group_id), None)], lambda code: None)
            elif tombstones:
                self.write(tombstones, lambda code: None)

    @staticmethod
    def _expiry_base(group: Group) -> str | None:
        """From when an offset's retention counts: its commit or the group's last change. None: nothing expires."""
        if group.protocol_type is None:
            return "commit"
        if group.state is State.EMPTY:
            return "state"
        readable = group.protocol_type == "consumer" and group.subscribed is not None
        return "commit" if readable and group.state is State.STABLE else None

    def _is_expired(self, group: Group, place: Place, v: Committed, base: str) -> bool:
        if group.is_subscribed_to(place[0]):
            return False
        now_ms = self.node.host.wall_ms()
        if v.expire_ms >= 0:
            return now_ms >= v.expire_ms
        since_ms = group.state_ms if base == "state" and group.state_ms is not None else v.commit_ms
        return now_ms - since_ms >= self.node.settings.retention_ms()
