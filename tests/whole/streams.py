"""Members of streams groups (KIP-1071), as far as a coordinator sees them: one thread of an application each.

What a member sends is what StreamsGroupHeartbeatRequestManager of the Java client sends: everything when it joins, then
its tasks when they have changed, nothing else. Heartbeats go on while it gives tasks up, which may take long. It reads
the source partitions of its active tasks from their committed offsets on, as any consumer here does with its
partitions, so `owned` are those partitions. What ends StreamThread is a violation: a topology with wrong partition
counts, and source topics that are missing for two heartbeat intervals.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sidecar.core.streams.status_texts import StatusCode
from sidecar.core.vocabulary.errors import Code
from sidecar.wire.generated import streams_group_heartbeat as st
from tests.whole.client import MOVED, PARTITIONS_OF, WAIT, Client, Habits, Place
from tests.whole.members import LEAVES, LEAVES_FOR_A_WHILE, NOT_A_MEMBER
from tests.whole.violation import Violation

VERSION = 1
NOT_READY = (
    StatusCode.MISSING_SOURCE_TOPICS,
    StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
    StatusCode.MISSING_INTERNAL_TOPICS,
    StatusCode.ASSIGNMENT_DELAYED,
)
"""StreamsMembershipManager.isGroupReady."""
PATIENT_INTERVALS = 2
"""StreamThread.handleMissingSourceTopicsWithTimeout."""
Task = tuple[str, int]
Roles = tuple[frozenset[Task], frozenset[Task], frozenset[Task]]
"""Active, standby and warm-up tasks."""
NOTHING: Roles = (frozenset(), frozenset(), frozenset())


@dataclass(frozen=True)
class Internal:
    """A repartition or changelog topic, without the group's name before its own. `fixed`: the number of partitions that
    the application gives; `partitions`: those that it must get."""

    name: str
    partitions: int
    fixed: int = 0


@dataclass(frozen=True)
class Sub:
    sources: tuple[str, ...] = ()
    reads: tuple[Internal, ...] = ()
    writes: tuple[str, ...] = ()
    changelogs: tuple[Internal, ...] = ()
    copartitioned: bool = False
    """All that it reads."""


@dataclass(frozen=True)
class Application:
    subs: Mapping[str, Sub]
    by_task: dict[Task, tuple[tuple[str, int, bool], ...]] = field(default_factory=dict)
    """The source partitions of each task: topic, partition, and whether the topic is internal."""

    def __post_init__(self) -> None:
        for name, sub in self.subs.items():
            topics = [(t, PARTITIONS_OF[t], False) for t in sub.sources]
            topics += [(t.name, t.partitions, True) for t in sub.reads]
            for p in range(max(n for _, n, _ in topics)):
                self.by_task[name, p] = tuple((t, p, internal) for t, n, internal in topics if p < n)


COUNTS = Application({"0": Sub(("t1",), changelogs=(Internal("counts-changelog", 4),))})
"""One subtopology, with a state store."""
GROUPED = Application(
    {
        "0": Sub(("t1", "t2"), writes=("by-key-repartition",)),
        "1": Sub(reads=(Internal("by-key-repartition", 4),), changelogs=(Internal("sums-changelog", 4),)),
    }
)
"""The number of partitions of its repartition topic is computed."""
JOINED = Application(
    {
        "0": Sub(("t1",), writes=("left-repartition",)),
        "1": Sub(
            ("t2",),
            reads=(Internal("left-repartition", 3),),
            writes=("out-repartition",),
            changelogs=(Internal("join-changelog", 3),),
            copartitioned=True,
        ),
        "2": Sub(reads=(Internal("out-repartition", 2, fixed=2),), changelogs=(Internal("out-changelog", 2),)),
    }
)
"""A repartition topic that follows the topic that it is joined with, and one with a number of its own."""
APPLICATIONS = (COUNTS, GROUPED, JOINED)


@dataclass(frozen=True)
class StreamsHabits(Habits):
    application: Application = COUNTS
    process_id: str = ""
    """Threads of one process share it; "": it is the only one of its process."""
    endpoint: bool = False

    def topic(self, name: str, internal: bool) -> str:
        return f"{self.group_id}-{name}" if internal else name

    def places(self, tasks: Iterable[Task]) -> list[Place]:
        return [(self.topic(t, internal), p) for task in tasks for t, p, internal in self.application.by_task[task]]


def topology(h: StreamsHabits) -> st.Topology:
    """As the application's members send it."""

    def info(t: Internal, fixed: int) -> st.TopicInfo:
        policy = st.KeyValue("cleanup.policy", "compact" if t.name.endswith("changelog") else "delete")
        return st.TopicInfo(h.topic(t.name, True), fixed, 0, [policy])

    made = []
    for name, sub in h.application.subs.items():
        one = st.Subtopology(name, list(sub.sources))
        one.repartition_sink_topics = [h.topic(t, True) for t in sub.writes]
        one.repartition_source_topics = [info(t, t.fixed) for t in sub.reads]
        one.state_changelog_topics = [info(t, 0) for t in sub.changelogs]
        if sub.copartitioned:
            sources, reads = list(range(len(sub.sources))), list(range(len(sub.reads)))
            one.copartition_groups = [st.CopartitionGroup(sources, [], reads)]
        made.append(one)
    return st.Topology(0, made)


class StreamsMember(Client):
    commits_as = "consumer"
    habits: StreamsHabits

    def __post_init__(self) -> None:
        super().__post_init__()
        self.tasks: Roles = NOTHING
        """The tasks that it has."""
        self._wanted: Roles = NOTHING
        self._sent: Roles | None = None
        """The tasks of which the coordinator was told last, as far as it has answered well."""
        self._revoked_at_ms: float | None = None
        """The time at which it will have given up what it must."""
        self._lacks_since_ms: float | None = None
        """The time at which it first heard that source topics are missing."""
        self._endpoint_epoch = -1

    @property
    def process(self) -> str:
        return self.habits.process_id or self.name

    def wanted(self) -> set[Place]:
        return set(self.habits.places(self.habits.application.by_task))

    async def run(self) -> None:
        self.member_id = f"{self.name}-{self.proc.universe.rng.getrandbits(32):08x}"
        while not self.leaving:
            res = await self.ask(st, "StreamsGroupHeartbeat", self._beat(), high=VERSION)
            if res is None or res.error_code != Code.NONE:
                self._sent = None
                if res is not None and not await self._refused(res.error_code):
                    return
                continue
            self.epoch = res.member_epoch
            self._endpoint_epoch = res.endpoint_information_epoch
            self._hear(res)
            if not await self._reconcile():
                await self.pause(self._rest_ms() / 1000)
        await self._leave()

    async def _refused(self, code: int) -> bool:
        """False: it ends."""
        if code in (*MOVED, *WAIT):
            return True
        if code in NOT_A_MEMBER:
            self.lose_all()
            self.epoch, self._endpoint_epoch = 0, -1
            await self.pause(0.05)
            return code != Code.FENCED_INSTANCE_ID
        await self.pause(0.5)
        return True

    def _beat(self) -> st.StreamsGroupHeartbeatRequest:
        h = self.habits
        req = st.StreamsGroupHeartbeatRequest(h.group_id, self.member_id, self.epoch, self._endpoint_epoch)
        req.instance_id = h.instance_id
        given: Roles | None = None
        if self.epoch == 0:
            req.topology, req.rebalance_timeout_ms = topology(h), h.rebalance_ms
            req.process_id, req.client_tags = self.process, []
            req.user_endpoint = st.Endpoint(self.proc.host, 8080) if h.endpoint else None
            given = NOTHING
        elif self.tasks != self._sent:
            given = self._sent = self.tasks
        if given is not None:
            req.active_tasks, req.standby_tasks, req.warmup_tasks = map(_ids, given)
        return req

    # ---- what it hears ------------------------------------------------------------------------------------------
    def _hear(self, res: st.StreamsGroupHeartbeatResponse) -> None:
        told = (res.active_tasks, res.standby_tasks, res.warmup_tasks)
        if any(t is None for t in told) and any(t is not None for t in told):
            raise Violation(f"{self.name} is told of some roles only, which ends Kafka Streams: {told}")
        if all(t is not None for t in told):
            self._wanted = (_tasks(told[0]), _tasks(told[1]), _tasks(told[2]))
            if odd := {task for role in self._wanted for task in role} - self.habits.application.by_task.keys():
                raise Violation(f"{self.name} is assigned {sorted(odd)}, which its topology does not have")
            if odd_topics := self._internal_topics(self._wanted[0]) - self.topic_ids().keys():
                raise Violation(f"{self.name} is assigned tasks whose topics do not exist: {sorted(odd_topics)}")
        statuses = {s.status_code: s.status_detail for s in res.status or ()}
        for code in statuses:
            self.judge.status(self, StatusCode(code))
        self._survives(statuses)

    def _survives(self, statuses: Mapping[int, str]) -> None:
        if StatusCode.INCORRECTLY_PARTITIONED_TOPICS in statuses:
            told = statuses[StatusCode.INCORRECTLY_PARTITIONED_TOPICS]
            raise Violation(f"{self.name} is told what ends Kafka Streams: {told}")
        if StatusCode.MISSING_SOURCE_TOPICS not in statuses:
            self._lacks_since_ms = None
            return
        now_ms = self.proc.universe.now_ms
        since_ms = self._lacks_since_ms = now_ms if self._lacks_since_ms is None else self._lacks_since_ms
        if now_ms - since_ms >= PATIENT_INTERVALS * self.habits.heartbeat_ms:
            told = statuses[StatusCode.MISSING_SOURCE_TOPICS]
            raise Violation(f"{self.name} has heard for {now_ms - since_ms:.0f} ms what ends Kafka Streams: {told}")

    def _internal_topics(self, tasks: Iterable[Task]) -> set[str]:
        subs = [self.habits.application.subs[s] for s in {s for s, _ in tasks}]
        return {self.habits.topic(t.name, True) for sub in subs for t in (*sub.reads, *sub.changelogs)}

    # ---- tasks --------------------------------------------------------------------------------------------------
    def _rest_ms(self) -> float:
        rest_ms = float(self.habits.heartbeat_ms)
        if self._revoked_at_ms is not None:
            rest_ms = min(rest_ms, max(1.0, self._revoked_at_ms - self.proc.universe.now_ms))
        return rest_ms

    async def _reconcile(self) -> bool:
        """True: it has other tasks now, and says so at once. What is to be given up takes a while; standby and warm-up
        tasks change with the active ones."""
        if self.tasks == self._wanted:
            self._revoked_at_ms = None
            return False
        lost = self.tasks[0] - self._wanted[0]
        now_ms = self.proc.universe.now_ms
        if lost:
            if self._revoked_at_ms is None:
                self._revoked_at_ms = now_ms + self.habits.revoke_ms
            if now_ms < self._revoked_at_ms:
                return False
        wanted, losses = self._wanted, self.losses
        self._revoked_at_ms = None
        if lost:
            await self.commit_last()
            if self.losses != losses:
                return False
            for place in self.habits.places(lost):
                self.owned.pop(place, None)
            self._hold((self.tasks[0] - lost, self.tasks[1] & wanted[1], self.tasks[2] & wanted[2]))
        if not await self.take(sorted(self.habits.places(wanted[0]))) or self.losses != losses:
            return False
        self._hold(wanted)
        return True

    def _hold(self, tasks: Roles) -> None:
        self.tasks = tasks
        self.judge.owns(self)

    def lose_all(self) -> None:
        self.tasks = self._wanted = NOTHING
        self._sent = self._revoked_at_ms = None
        super().lose_all()

    async def _leave(self) -> None:
        await self.commit_last()
        epoch = LEAVES if self.habits.instance_id is None else LEAVES_FOR_A_WHILE
        req = st.StreamsGroupHeartbeatRequest(self.habits.group_id, self.member_id, epoch, -1, self.habits.instance_id)
        self.lose_all()
        await self.ask(st, "StreamsGroupHeartbeat", req, high=VERSION)


def lacks_standbys(live: Sequence[Client], wanted: int) -> str:
    """Each task with a state store has so many standbys, if there are processes enough."""
    members = [c for c in live if isinstance(c, StreamsMember)]
    if not members:
        return ""
    h, processes = members[0].habits, {c.process for c in members}
    wanted = min(wanted, len(processes) - 1)
    for task in h.application.by_task:
        has = sum(task in c.tasks[1] for c in members)
        if h.application.subs[task[0]].changelogs and has != wanted:
            return f"{h.group_id}: {task} has {has} standbys of {wanted}"
    return ""


def _ids(tasks: frozenset[Task]) -> list[st.TaskIds]:
    by_sub: dict[str, list[int]] = defaultdict(list)
    for name, p in sorted(tasks):
        by_sub[name].append(p)
    return [st.TaskIds(name, ps) for name, ps in by_sub.items()]


def _tasks(told: Any) -> frozenset[Task]:
    return frozenset((t.subtopology_id, p) for t in told for p in t.partitions)
