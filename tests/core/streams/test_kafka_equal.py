"""Streams groups do what Kafka's own classes do on a JVM: topologies, reconciliation, checks of requests."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from sidecar.core.runtime.records import Tombstone
from sidecar.core.streams.events import StreamsHeartbeat
from sidecar.core.streams.group import Member, StreamsGroup
from sidecar.core.streams.partitions import ConfiguredTopology, configure
from sidecar.core.streams.reconcile import reconcile
from sidecar.core.streams.records import (
    CurrentRecord,
    GroupRecord,
    Kind,
    MemberRecord,
    TargetMetadataRecord,
    TopologyRecord,
)
from sidecar.core.streams.tasks import TaskIds
from sidecar.core.streams.topology import Comparison, Topology, check_topology, compare
from sidecar.core.streams.validation import check_epoch, check_request, check_tasks
from sidecar.core.vocabulary.errors import Code, CoordinatorError
from tests.assign.oracle import Oracle
from tests.core.streams.cases import (
    MALFORMED,
    RandomProcesses,
    TopologyCase,
    member_question,
    outcome,
    random_member,
    random_owned,
    random_targets,
    random_tasks,
    random_topology_case,
    request,
    tasks_question,
    with_existing,
)
from tests.harness.tiers import Seeds

pytestmark = pytest.mark.tier("test")  # Kafka's own classes run on a JVM

CASES = 20_000
"""The full number of cases, of which `make test` plays 1,000, and test-all 6,000."""
INVALID = ("There may be loops", "is never used as a sink topic", "No source topics found")
"""In the texts of 130."""


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    o = Oracle("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", program="StreamsOracle")
    yield o
    o.close()


def joining(topology: Topology | None, **fields: object) -> StreamsHeartbeat:
    given = {"member_id": "m", "member_epoch": 0, "rebalance_timeout_ms": 1_000, "topology": topology}
    empty: dict[str, object] = {"active_tasks": (), "standby_tasks": (), "warmup_tasks": ()}
    return StreamsHeartbeat("g", **{**given, **empty, **fields})  # type: ignore[arg-type]


# ---- topologies -------------------------------------------------------------------------------------------
def configured(oracle: Oracle, case: TopologyCase, rng: random.Random) -> tuple[str, ConfiguredTopology | None]:
    """Both must say the same. Returns what it was, and ours."""
    tasks = tuple((rng.choice(("0", "1", "nope")), (rng.randint(-1, 13),)) for _ in range(rng.randint(0, 2)))
    hb = joining(case.topology, active_tasks=tasks if rng.random() < 0.2 else ())
    said = oracle.ask({"op": "configure", "request": request(hb), "image": case.image})
    try:
        check_topology(case.topology)
        ours = configure(case.topology, case.image.get)
    except CoordinatorError as exc:
        assert (exc.code, exc.message) == (said["code"], said["message"])
        return next(words for words in INVALID if words in exc.message), None
    assert "code" not in said, said
    assert ours.ready == said["ready"]
    status = None if ours.status is None else (ours.status.code, ours.status.detail)
    assert status == ((said["status"], said["detail"]) if "status" in said else None)
    counts = {
        name: {"tasks": s.tasks, "counts": {t.name: t.partitions for t in s.internal_topics()}}
        for name, s in ours.subtopologies.items()
    }
    assert list(counts.items()) == list(said["subtopologies"].items())
    create = [
        {"name": t.name, "partitions": t.partitions, "replication": t.replication_factor, "configs": dict(t.configs)}
        for t in ours.to_create.values()
    ]
    assert create == said["create"]
    assert case.topology.required_topics() == said["required"]
    assert case.topology.subtopology_of_topic() == said["by_topic"]
    if ours.ready:
        try:
            check_tasks(ours, hb)
            refused = None
        except CoordinatorError as exc:
            refused = exc.message
        assert refused == said.get("tasks")
    return "ready" if status is None else f"{status[0]} {status[1][:8]}", ours


def test_topologies_are_configured_alike(oracle: Oracle, seeds: Seeds) -> None:
    results: Counter[str] = Counter()
    for seed in seeds.of(CASES // 2):
        rng = random.Random(seed)
        case = random_topology_case(rng)
        what, ours = configured(oracle, case, rng)
        results[what] += 1
        if ours is not None and ours.subtopologies:
            counts = {t.name: t.partitions for s in ours.subtopologies.values() for t in s.internal_topics()}
            results[configured(oracle, with_existing(rng, case, counts), rng)[0]] += 1
    kinds = {"ready", "1 Source t", "2 Followin", "2 Number o", "2 Existing", "3 Internal", *INVALID}
    assert kinds <= results.keys(), results


@pytest.mark.parametrize("broken", MALFORMED)
def test_kafka_fails_inside_where_we_refuse(oracle: Oracle, broken: str) -> None:
    """UNKNOWN_SERVER_ERROR would end the client as well, and say nothing."""
    topology = MALFORMED[broken]
    said = oracle.ask({"op": "configure", "request": request(joining(topology)), "image": {"in": 3}})
    assert said["code"] == Code.UNKNOWN_SERVER_ERROR
    with pytest.raises(CoordinatorError) as refused:
        check_request(joining(topology))
    assert refused.value.code in (Code.INVALID_REQUEST, Code.STREAMS_INVALID_TOPOLOGY)


def test_topologies_are_compared_alike(oracle: Oracle, seeds: Seeds) -> None:
    """Subtopologies in another order are the same; anything else is another topology. Not where two read one topic,
    which no application has: Kafka then compares which of them its map names, and that is the order's doing."""
    for seed in seeds.of(CASES // 4):
        rng = random.Random(seed)
        one = random_topology_case(rng).topology
        other = Topology(one.epoch, tuple(rng.sample(one.subtopologies, len(one.subtopologies))))
        if rng.random() < 0.5:
            kept = other.subtopologies[1:]
            other = Topology(one.epoch, (*random_topology_case(random.Random(seed)).topology.subtopologies[:1], *kept))
        sources = [topic for s in one.subtopologies for topic in s.task_topics()]
        if len(other.by_id()) < len(other.subtopologies) or len(set(sources)) < len(sources):
            continue
        same = oracle.ask({"op": "compare", "a": request(joining(one)), "b": request(joining(other))})["same"]
        try:
            assert (compare(one, other) is Comparison.SAME) == same
        except CoordinatorError as exc:
            assert not same and exc.message == "Topology updates are not supported yet."


# ---- tasks ------------------------------------------------------------------------------------------------
def test_members_are_reconciled_alike(oracle: Oracle, seeds: Seeds) -> None:
    """Any member, target, report and holders, also such as no group comes to."""
    for seed in seeds.of(CASES):
        rng = random.Random(seed)
        epoch = rng.randint(5, 9)
        member = random_member(rng, epoch)
        target, owned, processes = random_tasks(rng), random_owned(rng, member), RandomProcesses(rng, member)
        question = {"member": member_question(member), "epoch": epoch, "target": tasks_question(target)}
        said = oracle.ask({"op": "reconcile", **question, "owned": tasks_question(owned), **processes.question()})
        ours = reconcile(member, epoch, target, owned, processes)
        assert (seed, outcome(ours)) == (seed, said)


class Script:
    """A group in which members come, go and are heard, played by records."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.group = StreamsGroup("g")
        self.group.replay(TopologyRecord("g", Topology(3)))
        self.processes: dict[str, str] = {}
        self.steps: list[dict[str, object]] = []
        self.results: list[dict[str, object]] = []

    def play(self) -> None:
        for _ in range(self.rng.randint(5, 40)):
            do = self.rng.choices((self.join, self.leave, self.assign, self.beat), (2, 1, 2, 12))[0]
            if do == self.join or self.processes:
                do()

    def step(self, do: str, **fields: object) -> None:
        self.steps.append({"do": do, **fields})
        self.results.append({"state": self.group.state_name()})

    def join(self) -> None:
        name = f"m{len(self.steps)}"
        process = f"p{self.rng.randrange(3)}"
        self.processes[name] = process
        self.group.replay(MemberRecord("g", name, None, None, "", "", 1_000, 3, process))
        self.step("join", id=name, process=process)
        self.bump()

    def leave(self) -> None:
        name = self.rng.choice(list(self.processes))
        del self.processes[name]
        for kind in (Kind.CURRENT, Kind.TARGET_MEMBER, Kind.MEMBER):
            self.group.replay(Tombstone(kind, "g", name))
        self.step("leave", id=name)
        self.bump()

    def bump(self) -> None:
        epoch, validated = self.group.epoch + 1, self.rng.choice((3, 3, 3, -1))
        self.group.replay(GroupRecord("g", epoch, 0, validated))
        self.step("bump", epoch=epoch, validated=validated)

    def assign(self) -> None:
        self.bump()
        epoch = self.group.epoch
        self.targets = random_targets(self.rng, self.processes)
        self.group.replay(TargetMetadataRecord("g", epoch, 0, "sticky"))
        self.group.target = dict(self.targets)
        self.step("target", epoch=epoch, tasks={m: tasks_question(t) for m, t in self.targets.items()})

    def beat(self) -> None:
        name = self.rng.choice(list(self.processes))
        member = self.group.members[name]
        owned = random_owned(self.rng, member)
        if not member.reconciled_to(self.group.assignment_epoch):
            target = self.group.target_of(name)
            new = reconcile(member, self.group.assignment_epoch, target, owned, self.group.holders)
            self.replay(new)
        self.step("beat", id=name, owned=tasks_question(owned))
        self.results[-1]["member"] = outcome(self.group.members[name])
        once_in_a_process(self.group)

    def replay(self, m: Member) -> None:
        current = CurrentRecord("g", m.member_id, m.member_epoch, m.previous_epoch, m.state, m.assigned, m.pending)
        self.group.replay(current)


def once_in_a_process(group: StreamsGroup) -> None:
    """No two members of a process have the same task, in whatever roles."""
    held: dict[tuple[str, str, int], str] = {}
    for m in group.members.values():
        for part in (m.assigned, m.pending):
            for role in (part.active, part.standby, part.warmup):
                for s, ps in role.items():
                    for p in ps:
                        assert held.setdefault((m.process_id, s, p), m.member_id) == m.member_id


def test_groups_come_to_the_same_states(oracle: Oracle, seeds: Seeds) -> None:
    for seed in seeds.of(CASES // 10):
        script = Script(random.Random(seed))
        script.play()
        said = oracle.ask({"op": "script", "topology_epoch": 3, "steps": script.steps})
        assert (seed, script.results) == (seed, said.get("steps", said))


# ---- requests ---------------------------------------------------------------------------------------------
def random_request(rng: random.Random) -> StreamsHeartbeat:
    """One that joins or goes on, with some fields odd."""
    text = (None, "", " ", "\t\n", "x")
    lists = (None, (), (("0", (1,)),))
    topology = random_topology_case(rng).topology if rng.random() < 0.5 else None
    if topology is not None and rng.random() < 0.2:
        s = topology.subtopologies[0]
        odd = rng.choice(({"source_topic_regex": ("a.*",)}, {"changelog_topics": s.repartition_source_topics}))
        odd_one = type(s)(**{**{f: getattr(s, f) for f in s.__struct_fields__}, **odd})
        topology = Topology(topology.epoch, (odd_one, *topology.subtopologies[1:]))
    hb = joining(topology) if rng.random() < 0.6 else joining(None, member_epoch=rng.choice((-3, -2, -1, 1)))
    odd_fields = {
        "member_id": rng.choice(text[1:]),
        "group_id": rng.choice(text[1:]),
        "instance_id": rng.choice(text),
        "rack_id": rng.choice(text),
        "member_epoch": rng.choice((0, 0, 1, -1, -2, -3, -(2**31))),
        "rebalance_timeout_ms": rng.choice((-1, 0, -2)),
        "active_tasks": rng.choice(lists),
        "standby_tasks": rng.choice(lists),
        "warmup_tasks": rng.choice(lists),
        "topology": topology,
    }
    for name in rng.sample(list(odd_fields), rng.choice((0, 1, 1, 2, 3))):
        setattr(hb, name, odd_fields[name])
    return hb


def test_requests_are_refused_alike(oracle: Oracle, seeds: Seeds) -> None:
    results: Counter[str] = Counter()
    for seed in seeds.of(CASES):
        hb = random_request(random.Random(seed))
        said = oracle.ask({"op": "validate", "request": request(hb)})
        try:
            check_request(hb)
            ours: tuple[int, str | None] = (0, None)
        except CoordinatorError as exc:
            ours = (exc.code, exc.message)
        assert (seed, *ours) == (seed, said["code"], said.get("message"))
        results[str(ours[1])[:25]] += 1
    assert len(results) >= 16, results


def test_epochs_are_refused_alike(oracle: Oracle, seeds: Seeds) -> None:
    for seed in seeds.of(CASES // 4):
        rng = random.Random(seed)
        member = random_member(rng, 9)
        member = replace(member, previous_epoch=rng.choice((member.member_epoch - 1, member.previous_epoch)))
        kept, epoch = member.assigned.without_epochs(), max(0, member.member_epoch - rng.randint(-1, 2))
        parts = (kept.active, kept.standby, kept.warmup)
        lists: list[tuple[TaskIds, ...] | None] = [tuple(part.items()) for part in parts]
        lists[rng.randrange(3)] = rng.choice(
            (None, (), lists[0], (*(lists[0] or ()), ("2", ())), (("0", (0, 1)), ("2", (3,))))
        )
        hb = joining(None, member_epoch=epoch, active_tasks=lists[0], standby_tasks=lists[1], warmup_tasks=lists[2])
        said = oracle.ask({"op": "epoch", "member": member_question(member), "request": request(hb)})
        try:
            check_epoch(member, hb)
            ours: tuple[int, str | None] = (0, None)
        except CoordinatorError as exc:
            ours = (exc.code, exc.message)
        assert (seed, *ours) == (seed, said["code"], said.get("message"))
