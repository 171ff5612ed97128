"""A copy of the state topic with many groups of both kinds, written as sidecars write it, and views of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from sidecar.coordinator.inspect.broker_groups import BrokerGroups
from sidecar.coordinator.inspect.group_views import ClusterFacts, Views
from sidecar.coordinator.inspect.rebalance_history import RebalanceHistory
from sidecar.coordinator.membership.owners_protocol import Assignment, SidecarInfo
from sidecar.coordinator.moves.managed_groups import OwnRules, Rules
from sidecar.coordinator.settings.stored_settings import StoredSettings
from sidecar.coordinator.statelog.tail import StateLog
from sidecar.core.classic import records as classic
from sidecar.core.classic.embedded import assignment, plain_subscription
from sidecar.core.consumer import records as consumer
from sidecar.core.runtime.records import Record, Tombstone
from sidecar.core.vocabulary.placement import partition_for
from sidecar.kafka.net import BrokerConnection, ConnectionLost
from sidecar.process.tasks import Lasting
from sidecar.state.codec import Stamp, StateCodec
from sidecar.state.keys import decode_key
from sidecar.wire.frames import response_frame
from sidecar.wire.generated import list_groups as lg
from tests.inprocess.embedded_sidecar import Counted, Lines

PARTITIONS = 50
TOPIC_ID = b"T" * 16
NAMES = {TOPIC_ID: "orders"}
BEGIN_MS = 1_760_000_000_000


class Listed:
    """Brokers and what each lists: groups with kind and state; None: it does not answer. `asked`: nodes, in order."""

    def __init__(self, partitions: int) -> None:
        self.at: dict[int, dict[str, tuple[str, str]] | None] = {}
        self.asked: list[int] = []
        self.groups = BrokerGroups(
            self._reach, lambda: self.at.keys(), partitions, "owners", Lasting(Lines(), Counted())
        )

    async def _reach(self, node_id: int) -> BrokerConnection:
        self.asked.append(node_id)
        groups = self.at[node_id]
        if groups is None:
            raise ConnectionLost("it stands still")
        answer = lg.ListGroupsResponse(
            groups=[lg.ListedGroup(name, "consumer", state, kind) for name, (kind, state) in groups.items()]
        )
        return cast(BrokerConnection, Answers(answer.encode(5)))


class Answers:
    """A connection whose broker answers this to ListGroups."""

    def __init__(self, body: bytes) -> None:
        self._frame = response_frame(1, True, body)

    async def exchange(self, module: Any, name: str, req: Any, timeout_s: float) -> tuple[int, bool, bytes]:
        assert name == "ListGroups"
        return 5, True, self._frame


class Synthetic:
    """Node 1 looks; nodes 1 and 2 own the partitions by turns."""

    def __init__(self, kept: int = 20) -> None:
        self.codec = StateCodec()
        self.lines = Lines()
        self.state = StateLog(PARTITIONS, self.codec, self.lines, Counted())
        self.past = self.state.watcher = RebalanceHistory(kept, self.codec)
        self.rules = Rules(
            OwnRules(lambda name: name != "theirs"), StoredSettings(self.codec, self.state, self.lines), self.lines
        )
        members = {1: ("a", "broker-1", 9092), 2: ("b", "broker-2", 9092)}
        self.assignment = Assignment(7, tuple(1 + p % 2 for p in range(PARTITIONS)), members)
        self.cluster = "lkc-1"
        self.suspects: tuple[int, ...] = ()
        self.listed = Listed(PARTITIONS)
        self.peers: dict[int, tuple[SidecarInfo | None, bool | None]] = {}
        known = ClusterFacts(self.listed.groups, lambda: self.cluster, lambda: self.suspects, self._peer)
        self.views = Views(1, self.state, self.codec, self.rules, self.past, lambda: self.assignment, known)
        self.now_ms = BEGIN_MS

    def write(self, *records: Record) -> None:
        for record in records:
            partition = partition_for(record.group_id, PARTITIONS)
            written = self.codec.encode(record, Stamp(1, self.now_ms), 1)
            offset = self.state.partitions[partition].position
            self.state.apply(partition, offset, decode_key(written.key), written.value)

    def _peer(self, node: int) -> tuple[SidecarInfo | None, bool | None]:
        return self.peers.get(node, (None, None))

    def consumer_group(self, group_id: str, members: int = 2, each: int = 2, epoch: int = 1, why: str = "") -> None:
        """Writes a consumer group whose members have all reached their target."""
        names = [f"m{i:05d}" for i in range(members)]
        said = [
            consumer.MemberRecord(group_id, m, None, None, "client", "/10.0.0.1", 1000, ("orders",), None, None)
            for m in names
        ]
        self.write(*said, consumer.GroupRecord(group_id, epoch, 0, why or "members joined"))
        self.target(group_id, names, each, epoch)
        self.now_ms += 250
        for i, m in enumerate(names):
            self.current(group_id, m, epoch, range(i * each, (i + 1) * each))

    def target(self, group_id: str, names: Sequence[str], each: int, epoch: int) -> None:
        for i, m in enumerate(names):
            shall = {TOPIC_ID: tuple(range(i * each, (i + 1) * each))}
            self.write(consumer.TargetMemberRecord(group_id, m, shall, NAMES))
        self.write(consumer.TargetMetadataRecord(group_id, epoch, self.now_ms, "uniform"))

    def current(
        self,
        group_id: str,
        member: str,
        epoch: int,
        owned: range,
        pending: range = range(0),
        state: consumer.MemberState = consumer.MemberState.STABLE,
    ) -> None:
        has = {TOPIC_ID: dict.fromkeys(owned, epoch)}
        gives = {TOPIC_ID: dict.fromkeys(pending, epoch)} if pending else {}
        self.write(consumer.CurrentRecord(group_id, member, epoch, epoch - 1, state, has, gives, NAMES))

    def classic_group(self, group_id: str, members: int = 2, generation: int = 1, why: str = "") -> None:
        """A whole rebalance, from empty to stable."""
        names = [f"c{i:05d}" for i in range(members)]
        protocols = (("range", plain_subscription(["orders"])),)
        self.state_of(group_id, classic.State.PREPARING, generation - 1, why or "a member joined")
        self.write(
            *(
                classic.MemberRecord(group_id, m, None, "client", "/10.0.0.2", 1000, 1000, protocols, generation=1)
                for m in names
            )
        )
        self.now_ms += 100
        self.state_of(group_id, classic.State.COMPLETING, generation, "all members have joined", leader=names[0])
        for i, m in enumerate(names):
            owned = assignment(3, [("orders", (2 * i, 2 * i + 1))])
            self.write(classic.AssignmentRecord(group_id, m, generation, owned))
        self.now_ms += 100
        self.state_of(group_id, classic.State.STABLE, generation, "the leader has assigned", leader=names[0])

    def state_of(
        self, group_id: str, state: classic.State, generation: int, why: str, leader: str | None = None
    ) -> None:
        of = (state, generation, "consumer", "range", leader, generation, self.now_ms)
        self.write(classic.GroupRecord(group_id, *of, why=why))

    def leaves(self, group_id: str, member: str) -> None:
        """Writes the records of a member that leaves a consumer group."""
        for kind in (consumer.Kind.CURRENT, consumer.Kind.TARGET_MEMBER, consumer.Kind.MEMBER):
            self.write(Tombstone(kind, group_id, member))

    def many(self, groups: int) -> None:
        for i in range(groups):
            if i % 2:
                self.classic_group(f"group-{i:05d}", members=1 + i % 3)
            else:
                self.consumer_group(f"group-{i:05d}", members=1 + i % 3)
