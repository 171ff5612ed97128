"""Random topologies, members and requests of streams groups, and how the oracle on the JVM is asked about them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sidecar.core.streams.events import StreamsHeartbeat
from sidecar.core.streams.group import Member
from sidecar.core.streams.records import MemberState
from sidecar.core.streams.tasks import AssignedTasks, Partitions, TaskIds, Tasks, table_of
from sidecar.core.streams.topology import CopartitionGroup, Subtopology, TopicInfo, Topology

COUNTS = (1, 2, 3, 4, 6, 12)
ROLES = ("active", "standby", "warmup")


# ---- topologies -------------------------------------------------------------------------------------------
@dataclass
class TopologyCase:
    topology: Topology
    image: dict[str, int] = field(default_factory=dict)


def random_topology_case(rng: random.Random) -> TopologyCase:
    """Mostly one that can be configured; with loops, fixed counts, copartition groups and missing topics at times."""
    sources = {f"{rng.choice(('in', 'orders', 'Z', 'a.b'))}-{i}": rng.choice(COUNTS) for i in range(rng.randint(1, 8))}
    if rng.random() < 0.5:
        same = rng.choice(COUNTS)
        sources = {name: same if rng.random() < 0.9 else n for name, n in sources.items()}
    ids = _subtopology_ids(rng)
    repartition = [f"app-r{i}-repartition" for i in range(rng.choice((0, 0, 1, 2, 4, 9)))]
    fixed = {r: rng.choice(COUNTS) for r in repartition if rng.random() < 0.25}
    if fixed and rng.random() < 0.5:
        fixed = dict.fromkeys(fixed, rng.choice(COUNTS))
    writes: dict[str, list[str]] = {i: [] for i in ids}
    reads: dict[str, list[str]] = {i: [] for i in ids}
    for r in repartition:
        if rng.random() < 0.97:
            writes[rng.choice(ids)].append(r)
        if rng.random() < 0.95:
            reads[rng.choice(ids)].append(r)
    subtopologies = []
    for i in ids:
        own = rng.sample(list(sources), rng.randint(0 if reads[i] else 1, min(3, len(sources))))
        if rng.random() < 0.01:
            own = []
        subtopologies.append(_subtopology(rng, i, own, writes[i], reads[i], fixed))
    image = {name: n for name, n in sources.items() if rng.random() < 0.98}
    if rng.random() < 0.1:
        image = {name: n for name, n in image.items() if rng.random() < 0.5}
    return TopologyCase(Topology(rng.choice((0, 1, 7)), tuple(subtopologies)), image)


def _subtopology_ids(rng: random.Random) -> list[str]:
    n = rng.choice((1, 2, 3, 5, 11, 14, 30))
    if rng.random() < 0.5:
        return [str(i) for i in range(n)]
    words = ("sub", "ä", "\uffee", "\U0001f600", "Aa", "BB")
    return [f"{rng.choice(words)}{rng.randrange(1000)}-{i}" for i in range(n)]


def _subtopology(
    rng: random.Random, name: str, sources: list[str], sinks: list[str], reads: list[str], fixed: Mapping[str, int]
) -> Subtopology:
    repartition = tuple(TopicInfo(r, fixed.get(r, 0), rng.choice((0, 0, 3)), _configs(rng)) for r in reads)
    store = f"app-{rng.randrange(10**6)}-store"
    changelogs = tuple(
        TopicInfo(f"{store}-{i}-changelog", 0, rng.choice((0, 2)), _configs(rng))
        for i in range(rng.choice((0, 0, 1, 3)))
    )
    groups = tuple(
        CopartitionGroup(
            tuple(rng.sample(range(len(sources)), rng.randint(0, len(sources)))),
            tuple(rng.sample(range(len(repartition)), rng.randint(0, len(repartition)))),
        )
        for _ in range(rng.choice((0, 0, 1, 2)))
    )
    return Subtopology(name, tuple(sources), tuple(sinks), repartition, changelogs, groups)


def _configs(rng: random.Random) -> tuple[tuple[str, str], ...]:
    return (("cleanup.policy", "compact"), ("retention.ms", "-1"))[: rng.randint(0, 2)]


def with_existing(rng: random.Random, case: TopologyCase, counts: Mapping[str, int]) -> TopologyCase:
    """The same with some of its internal topics: `counts` are those that they should have."""
    share = rng.choice((0.5, 1.0, 1.0))
    wrong = rng.choice((0.0, 0.0, 0.2))
    there = {
        topic: rng.choice(COUNTS) if rng.random() < wrong else n for topic, n in counts.items() if rng.random() < share
    }
    return TopologyCase(case.topology, {**case.image, **there})


def _broken(**fields: Any) -> Topology:
    whole: dict[str, Any] = {"source_topics": ("in",), "changelog_topics": (TopicInfo("c"),)}
    return Topology(0, (Subtopology("0", **{**whole, **fields}),))


MALFORMED = {
    "a negative epoch": Topology(-1, (Subtopology("0", ("in",)),)),
    "a subtopology twice": Topology(0, (Subtopology("0", ("in",)), Subtopology("0", ("in",)))),
    "an index too large": _broken(copartition_groups=(CopartitionGroup((1,)),)),
    "a negative index": _broken(copartition_groups=(CopartitionGroup((), (-1,)),)),
    "a negative count": _broken(repartition_source_topics=(TopicInfo("r", -2),)),
    "a repartition topic twice": _broken(repartition_source_topics=(TopicInfo("r", 3), TopicInfo("r", 3))),
    "a changelog twice": _broken(changelog_topics=(TopicInfo("c"), TopicInfo("c"))),
    "a config twice": _broken(changelog_topics=(TopicInfo("c", configs=(("k", "1"), ("k", "2"))),)),
}
"""Topologies at which Kafka fails with an error of its own."""


# ---- tasks ------------------------------------------------------------------------------------------------
SUBTOPOLOGIES = ("0", "1", "2")
PARTITIONS = 4
Task = tuple[str, int]
TASKS: list[Task] = [(s, p) for s in SUBTOPOLOGIES for p in range(PARTITIONS)]


def table(tasks: list[Task]) -> dict[str, tuple[int, ...]]:
    sets: dict[str, set[int]] = {}
    for s, p in tasks:
        sets.setdefault(s, set()).add(p)
    return table_of(sets)


def random_tasks(rng: random.Random, most: int = 5) -> Tasks:
    """Each role anything, so a task may have two roles."""
    return Tasks(*(table(rng.sample(TASKS, rng.randint(0, most))) for _ in ROLES))


def assigned(tasks: Tasks, rng: random.Random) -> AssignedTasks:
    epochs = {s: {p: rng.randint(0, 9) for p in ps} for s, ps in tasks.active.items()}
    return AssignedTasks(epochs, tasks.standby, tasks.warmup)


def random_member(rng: random.Random, epoch: int) -> Member:
    state = rng.choice(list(MemberState))
    pending = random_tasks(rng, 3) if state is MemberState.UNREVOKED_TASKS else Tasks()
    return Member(
        "m",
        process_id=rng.choice(("p1", "p2")),
        member_epoch=rng.randint(epoch - 2, epoch),
        previous_epoch=rng.randint(epoch - 4, epoch),
        state=state,
        assigned=assigned(random_tasks(rng, 3), rng),
        pending=assigned(pending, rng),
    )


class RandomProcesses:
    """Processes by role and task, in any combination, but for those of the member itself, which are there."""

    def __init__(self, rng: random.Random, member: Member) -> None:
        self.active: dict[Task, str] = {}
        self.standby: dict[Task, set[str]] = {}
        self.warmup: dict[Task, set[str]] = {}
        others = ("p1", "p2", "p3")
        for task in TASKS:
            if rng.random() < 0.3:
                self.active[task] = rng.choice(others)
            for by_task in (self.standby, self.warmup):
                if rng.random() < 0.2:
                    by_task[task] = set(rng.sample(others, rng.randint(1, 2)))
        for part in (member.assigned, member.pending):
            self.active.update(((s, p), member.process_id) for s, ps in part.active.items() for p in ps)
            for by_task, role in ((self.standby, part.standby), (self.warmup, part.warmup)):
                for s, ps in role.items():
                    for p in ps:
                        by_task.setdefault((s, p), set()).add(member.process_id)

    def active_process(self, subtopology: str, partition: int) -> str | None:
        return self.active.get((subtopology, partition))

    def standby_processes(self, subtopology: str, partition: int) -> set[str]:
        return self.standby.get((subtopology, partition), set())

    def warmup_processes(self, subtopology: str, partition: int) -> set[str]:
        return self.warmup.get((subtopology, partition), set())

    def question(self) -> dict[str, object]:
        return {
            "active": [[s, p, [process]] for (s, p), process in self.active.items()],
            "standby": [[s, p, sorted(ids)] for (s, p), ids in self.standby.items()],
            "warmup": [[s, p, sorted(ids)] for (s, p), ids in self.warmup.items()],
        }


def random_owned(rng: random.Random, member: Member) -> Tasks | None:
    """Returns tasks that a member may report: none, its own, those that it keeps, or any."""
    keeps, all_of_it = member.assigned.without_epochs(), _together(member)
    return rng.choice((None, keeps, keeps, all_of_it, random_tasks(rng, 2)))


def _together(member: Member) -> Tasks:
    parts = (member.assigned.without_epochs(), member.pending.without_epochs())
    return Tasks(*(_union(getattr(parts[0], role), getattr(parts[1], role)) for role in ROLES))


def _union(one: Partitions, two: Partitions) -> dict[str, tuple[int, ...]]:
    return table([(s, p) for part in (one, two) for s, ps in part.items() for p in ps])


def random_targets(rng: random.Random, processes: Mapping[str, str]) -> dict[str, Tasks]:
    """A target as an assignor makes it: each task active once, at most once in a process."""
    parts: dict[str, dict[str, list[Task]]] = {m: {r: [] for r in ROLES} for m in processes}
    members = list(processes)
    for task in TASKS:
        if not members or rng.random() < 0.1:
            continue
        active = rng.choice(members)
        parts[active]["active"].append(task)
        used = {processes[active]}
        for role in ("standby", "warmup"):
            for m in rng.sample(members, len(members)):
                if processes[m] not in used and rng.random() < 0.4:
                    used.add(processes[m])
                    parts[m][role].append(task)
    return {m: Tasks(*(table(roles[r]) for r in ROLES)) for m, roles in parts.items()}


# ---- questions --------------------------------------------------------------------------------------------
def member_question(m: Member) -> dict[str, object]:
    return {
        "id": m.member_id,
        "process": m.process_id,
        "epoch": m.member_epoch,
        "previous": m.previous_epoch,
        "state": str(m.state),
        "assigned": assigned_question(m.assigned),
        "pending": assigned_question(m.pending),
    }


def assigned_question(t: AssignedTasks) -> list[object]:
    active = {s: {str(p): e for p, e in ps.items()} for s, ps in t.active.items()}
    return [active, *({s: list(ps) for s, ps in part.items()} for part in (t.standby, t.warmup))]


def tasks_question(t: Tasks | None) -> list[object] | None:
    if t is None:
        return None
    return [{s: list(ps) for s, ps in part.items()} for part in (t.active, t.standby, t.warmup)]


def outcome(m: Member) -> dict[str, object]:
    """A member as the oracle tells it."""
    said = member_question(m)
    return {name: said[name] for name in ("epoch", "previous", "state", "assigned", "pending")}


def request(hb: StreamsHeartbeat) -> dict[str, object]:
    """The heartbeat as Kafka's JSON converter reads it."""
    return {
        "groupId": hb.group_id,
        "memberId": hb.member_id,
        "memberEpoch": hb.member_epoch,
        "endpointInformationEpoch": hb.endpoint_epoch,
        "instanceId": hb.instance_id,
        "rackId": hb.rack_id,
        "rebalanceTimeoutMs": hb.rebalance_timeout_ms,
        "topology": None if hb.topology is None else _topology(hb.topology),
        "activeTasks": _task_ids(hb.active_tasks),
        "standbyTasks": _task_ids(hb.standby_tasks),
        "warmupTasks": _task_ids(hb.warmup_tasks),
        "processId": hb.process_id,
        "userEndpoint": None,
        "clientTags": None,
        "taskOffsets": None,
        "taskEndOffsets": None,
        "shutdownApplication": hb.shutdown_application,
    }


def _task_ids(tasks: tuple[TaskIds, ...] | None) -> list[dict[str, object]] | None:
    return None if tasks is None else [{"subtopologyId": s, "partitions": list(ps)} for s, ps in tasks]


def _topology(t: Topology) -> dict[str, object]:
    return {
        "epoch": t.epoch,
        "subtopologies": [
            {
                "subtopologyId": s.subtopology_id,
                "sourceTopics": list(s.source_topics),
                "sourceTopicRegex": list(s.source_topic_regex),
                "stateChangelogTopics": list(map(_topic_info, s.changelog_topics)),
                "repartitionSinkTopics": list(s.repartition_sink_topics),
                "repartitionSourceTopics": list(map(_topic_info, s.repartition_source_topics)),
                "copartitionGroups": [
                    {
                        "sourceTopics": list(g.source_topics),
                        "sourceTopicRegex": [],
                        "repartitionSourceTopics": list(g.repartition_source_topics),
                    }
                    for g in s.copartition_groups
                ],
            }
            for s in t.subtopologies
        ],
    }


def _topic_info(t: TopicInfo) -> dict[str, object]:
    return {
        "name": t.name,
        "partitions": t.partitions,
        "replicationFactor": t.replication_factor,
        "topicConfigs": [{"key": k, "value": v} for k, v in t.configs],
    }
