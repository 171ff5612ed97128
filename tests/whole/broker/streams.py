"""Streams groups at one broker, as far as moves of live groups need them: members, epochs, and active tasks, each of
which has one holder at a time. There are no standby tasks, and no static members.

The number of tasks and the internal topics are those of the product's `configure`, which is compared with Kafka's
elsewhere; what a member is told, and when, is written anew. Source: GroupMetadataManager.streamsGroupHeartbeat,
CurrentAssignmentBuilder of streams groups; assignments are by turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sidecar.core.streams.partitions import ConfiguredTopology, configure
from sidecar.core.streams.topology import Topology
from tests.whole.broker.codes import Err, Refused
from tests.whole.broker.group import State

if TYPE_CHECKING:
    from tests.whole.broker.offsets import GroupShard

LEAVES = -1
CREATING_MS = (5.0, 400.0)
REPLICAS = 3
Task = tuple[str, int]
Tasks = frozenset[Task]
NOTHING: Tasks = frozenset()


@dataclass(frozen=True, slots=True)
class StreamsMember:
    """`client`: its client id and host; `assigned`: the tasks that are its own; `pending`: those that it has not given
    up yet."""

    process_id: str
    client: tuple[str, str]
    epoch: int = 0
    previous: int = -1
    assigned: Tasks = NOTHING
    pending: Tasks = NOTHING


@dataclass(frozen=True, slots=True)
class StoredStreams:
    """The whole group, as one record. `tasks`: all that there are; none while the topology is not ready."""

    topology: Topology
    epoch: int = 0
    members: Mapping[str, StreamsMember] = field(default_factory=dict)
    tasks: Tasks = NOTHING

    def target(self, member_id: str) -> Tasks:
        takers = sorted(self.members)
        return frozenset(t for n, t in enumerate(sorted(self.tasks)) if takers[n % len(takers)] == member_id)

    def settled(self, member_id: str) -> bool:
        m = self.members[member_id]
        return m.epoch == self.epoch and m.assigned == self.target(member_id) and not m.pending

    def state(self) -> str:
        if not self.members:
            return "Empty"
        if not self.tasks:
            return "NotReady"
        return "Stable" if all(map(self.settled, self.members)) else "Reconciling"


@dataclass(frozen=True, slots=True)
class Beat:
    """A heartbeat, read for the coordinator. `owned` None: nothing is said of it."""

    group_id: str
    member_id: str
    epoch: int
    topology: Topology | None
    process_id: str
    client: tuple[str, str]
    owned: Tasks | None


class StreamsGroups:
    """The streams groups of one shard."""

    def __init__(self, shard: GroupShard) -> None:
        self._shard = shard
        self._node = shard.node
        self.groups: dict[str, StoredStreams] = {}
        self._creating: set[str] = set()

    def begin(self) -> None:
        for group_id, group in self.groups.items():
            for member_id in group.members:
                self._lives(group_id, member_id)

    def _write(self, group_id: str, group: StoredStreams) -> None:
        if group != self.groups.get(group_id):
            self.groups[group_id] = group
            self._shard.write([(("streams", group_id), group)], lambda code: None)

    def configured(self, group: StoredStreams) -> ConfiguredTopology:
        topics = self._node.image.topics
        return configure(group.topology, lambda name: len(topics[name].partitions) if name in topics else None)

    # ---- classic groups of the same name ------------------------------------------------------------------------
    def gives_way(self, group_id: str) -> None:
        """To a classic member: an empty group is deleted for it. Raises Refused."""
        group = self.groups.get(group_id)
        if group is None:
            return
        if group.members:
            raise Refused(Err.INCONSISTENT_GROUP_PROTOCOL)
        del self.groups[group_id]
        self._shard.write([(("streams", group_id), None)], lambda code: None)

    def _replaces_classic(self, group_id: str, joins: bool) -> None:
        classic = self._shard.groups.get(group_id)
        if classic is None:
            return
        if not joins or classic.state is not State.EMPTY:
            raise Refused(Err.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a streams group.")
        self._shard.write([(("group", group_id), None)], lambda code: None)

    # ---- members ------------------------------------------------------------------------------------------------
    def heartbeat(self, beat: Beat) -> tuple[int, bool]:
        """The member's epoch, and whether it is to be told its tasks. Raises Refused."""
        group_id, member_id, joins = beat.group_id, beat.member_id, beat.epoch == 0
        self._replaces_classic(group_id, joins)
        group = self.groups.get(group_id)
        if group is None and not joins:
            raise Refused(Err.GROUP_ID_NOT_FOUND, f"Streams group {group_id} not found.")
        if group is None:
            assert beat.topology is not None
            group = StoredStreams(beat.topology)
        known = group.members.get(member_id)
        if known is None and not joins:
            raise Refused(Err.UNKNOWN_MEMBER_ID)
        if beat.epoch == LEAVES:
            self._remove(group_id, member_id)
            return LEAVES, False
        if known is not None:
            self._check_epoch(known, beat)
        self._lives(group_id, member_id)
        member = replace(known, client=beat.client) if known else StreamsMember(beat.process_id, beat.client)
        group = replace(group, epoch=group.epoch + (known is None), members={**group.members, member_id: member})
        group = self._with_tasks(group_id, group)
        now = self._reconciled(group, member_id, beat.owned)
        self._write(group_id, replace(group, members={**group.members, member_id: now}))
        told = joins or beat.owned is not None or now.assigned != member.assigned
        return now.epoch, told

    @staticmethod
    def _check_epoch(known: StreamsMember, beat: Beat) -> None:
        if beat.epoch in (0, known.epoch):
            return
        lost_answer = beat.epoch == known.previous and beat.owned is not None and beat.owned <= known.assigned
        if not lost_answer:
            raise Refused(Err.FENCED_MEMBER_EPOCH)

    def _with_tasks(self, group_id: str, group: StoredStreams) -> StoredStreams:
        """With the tasks that its topology has now, which begin a new epoch when they are others."""
        configured = self.configured(group)
        for topic in configured.to_create.values():
            self._create(topic.name, topic.partitions)
        found = {(name, p) for name, sub in configured.subtopologies.items() for p in range(sub.tasks)}
        tasks = frozenset(found) if configured.ready else NOTHING
        return group if tasks == group.tasks else replace(group, epoch=group.epoch + 1, tasks=tasks)

    def _create(self, name: str, partitions: int) -> None:
        if name in self._creating:
            return
        self._creating.add(name)

        def create() -> None:
            self._creating.discard(name)
            cluster = self._node.cluster
            if not cluster.controller_reachable(self._node.node_id):
                return
            try:
                cluster.create_topic(name, partitions, REPLICAS)
            except Refused:
                return  # it is there, or another heartbeat asks again

        self._node.later(self._node.cluster.draw(CREATING_MS), create)

    @staticmethod
    def _reconciled(group: StoredStreams, member_id: str, owned: Tasks | None) -> StreamsMember:
        m, target = group.members[member_id], group.target(member_id)
        pending = m.pending if owned is None else m.pending & owned
        lost = m.assigned - target
        if lost:
            # What it never had need not be given up; whoever says nothing has what it was given.
            pending |= lost if owned is None else lost & owned
            m = replace(m, assigned=m.assigned & target)
        if pending:
            return replace(m, pending=pending)
        held: set[Task] = set()
        for other_id, other in group.members.items():
            if other_id != member_id:
                held |= other.assigned | other.pending
        previous = m.epoch if m.epoch != group.epoch else m.previous
        return replace(m, epoch=group.epoch, previous=previous, assigned=target - held, pending=NOTHING)

    def _lives(self, group_id: str, member_id: str) -> None:
        session_ms = self._node.settings.number("group.streams.session.timeout.ms")
        self._shard.timer(("streams", group_id, member_id), session_ms, lambda: self._remove(group_id, member_id))

    def _remove(self, group_id: str, member_id: str) -> None:
        group = self.groups.get(group_id)
        self._shard.cancel(("streams", group_id, member_id))
        if group is not None and member_id in group.members:
            members = {m: member for m, member in group.members.items() if m != member_id}
            self._write(group_id, replace(group, epoch=group.epoch + 1, members=members))

    # ---- commits ------------------------------------------------------------------------------------------------
    def check_commit(self, group: StoredStreams, member_id: str, epoch: int, in_transaction: bool) -> None:
        """Raises Refused."""
        if epoch < 0 and not group.members:
            return
        member = group.members.get(member_id)
        if member is None:
            raise Refused(Err.UNKNOWN_MEMBER_ID)
        if epoch != member.epoch:
            raise Refused(Err.ILLEGAL_GENERATION if in_transaction else Err.STALE_MEMBER_EPOCH)


def by_subtopology(tasks: Iterable[Task]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for name, p in sorted(tasks):
        found.setdefault(name, []).append(p)
    return found
