"""Counts of internal topics, readiness and statuses; the cases that a real broker was asked."""

from __future__ import annotations

import random

import pytest

from sidecar.core.streams.config import StreamsConfig
from sidecar.core.streams.internal_topics import NewTopic
from sidecar.core.streams.partitions import configure, repartition_counts
from sidecar.core.streams.status_texts import Status, StatusCode
from sidecar.core.streams.topology import CopartitionGroup, Subtopology, TopicInfo, Topology
from sidecar.core.vocabulary.errors import Code, CoordinatorError
from tests.harness.tiers import seeds_of_run

RETENTION = (("retention.ms", "-1"),)
CHAIN = Topology(
    0,
    (
        Subtopology("0", ("in",), ("r",)),
        Subtopology("1", (), (), (TopicInfo("r", configs=RETENTION),), (TopicInfo("c", 0, 2),)),
    ),
)


def test_counts_go_along_the_chain() -> None:
    found = configure(CHAIN, {"in": 4}.get)
    assert {i: s.tasks for i, s in found.subtopologies.items()} == {"0": 4, "1": 4}
    assert found.to_create == {"c": NewTopic("c", 4, 2), "r": NewTopic("r", 4, -1, RETENTION)}
    assert found.status == Status(StatusCode.MISSING_INTERNAL_TOPICS, "Internal topics are missing: r, c")
    assert not found.ready


def test_it_is_ready_when_all_topics_are_there() -> None:
    found = configure(CHAIN, {"in": 4, "r": 4, "c": 4}.get)
    assert found.ready and not found.to_create and list(found.subtopologies) == ["0", "1"]


def test_a_topic_of_another_size_is_wrong() -> None:
    found = configure(CHAIN, {"in": 4, "r": 4, "c": 5}.get)
    assert found.status == Status(
        StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
        "Existing topic c has different number of partitions: expected 4, found 5",
    )
    assert not found.subtopologies and not found.to_create


def test_missing_sources_come_first() -> None:
    topology = Topology(0, (Subtopology("0", ("nope3", "nope", "there", "nope2", "nope4")),))
    found = configure(topology, {"there": 1}.get)
    text = "Source topics nope, nope2, nope3 and 1 additional topics are missing."
    assert found.status == Status(StatusCode.MISSING_SOURCE_TOPICS, text)


def test_a_topology_has_no_more_tasks_than_a_group_may_have() -> None:
    """Symptom: a join of 100 KB, 12,000 subtopologies that read a topic of 400 partitions, made 4.8 million tasks. The
    event loop stood still for 20 s, and the record of the member's tasks fitted into no batch: its partition of the
    state topic was rebuilt again and again, for all groups."""
    topology = Topology(0, tuple(Subtopology(str(i), ("in",)) for i in range(100)))
    most = StreamsConfig().max_tasks
    assert configure(topology, {"in": most // 100}.get, most).ready
    with pytest.raises(CoordinatorError, match=f"has {most + 100} tasks, and a group may have {most}") as e:
        configure(topology, {"in": most // 100 + 1}.get, most)
    assert e.value.code == Code.STREAMS_INVALID_TOPOLOGY
    fixed = (Subtopology("0", ("in",), ("r",)), Subtopology("1", (), (), (TopicInfo("r", 2**31 - 1),)))
    with pytest.raises(CoordinatorError):
        configure(Topology(0, fixed), {"in": 1}.get, most)


def copartitioned(*repartition: TopicInfo, groups: tuple[CopartitionGroup, ...]) -> Topology:
    sinks = Subtopology("a", ("in",), tuple(t.name for t in repartition if not t.partitions))
    return Topology(0, (sinks, Subtopology("b", ("si", "si2"), (), repartition, (), groups)))


@pytest.mark.parametrize(
    ("topology", "detail"),
    [
        (
            copartitioned(groups=(CopartitionGroup((0, 1)),)),
            "Following topics do not have the same number of partitions: [{si=3, si2=2}]",
        ),
        (
            copartitioned(TopicInfo("r9", 5), groups=(CopartitionGroup((0,), (0,)),)),
            "Number of partitions [5] of repartition topic [r9] doesn't match number of partitions [3] of the source "
            "topic.",
        ),
        (
            copartitioned(TopicInfo("x", 5), TopicInfo("r", 4), groups=(CopartitionGroup((), (0, 1)),)),
            "Following topics do not have the same number of partitions: [{r=4, x=5}]",
        ),
    ],
)
def test_copartition_groups_that_do_not_agree(topology: Topology, detail: str) -> None:
    found = configure(topology, {"in": 7, "si": 3, "si2": 2}.get)
    assert found.status == Status(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, detail)


def test_repartition_topics_follow_their_copartition_group() -> None:
    flexible = TopicInfo("r"), TopicInfo("r2")
    with_source = copartitioned(*flexible, groups=(CopartitionGroup((0,), (0,)),))
    assert configure(with_source, {"in": 7, "si": 3, "si2": 2}.get).to_create["r"].partitions == 3
    with_fixed = copartitioned(flexible[0], TopicInfo("r3", 9), groups=(CopartitionGroup((), (0, 1)),))
    assert configure(with_fixed, {"in": 7, "si": 3, "si2": 2}.get).to_create["r"].partitions == 9


@pytest.mark.parametrize(
    ("topology", "text"),
    [
        (
            Topology(0, (Subtopology("0", (), ("r",), (TopicInfo("r"),)),)),
            "Failed to compute number of partitions for all repartition topics. There may be loops in the topology "
            "that cannot be resolved.",
        ),
        (
            Topology(0, (Subtopology("0", ("in",), (), (TopicInfo("r"),)),)),
            "Failed to compute number of partitions for all repartition topics, because a repartition source topic is "
            "never used as a sink topic.",
        ),
        (Topology(0, (Subtopology("0"),)), "No source topics found for subtopology 0"),
    ],
)
def test_what_fails_the_request(topology: Topology, text: str) -> None:
    with pytest.raises(CoordinatorError) as refused:
        configure(topology, {"in": 4}.get)
    assert (refused.value.code, refused.value.message) == (Code.STREAMS_INVALID_TOPOLOGY, text)


def in_passes(order: list[Subtopology], external: dict[str, int]) -> dict[str, int]:
    """Counts the partitions as Kafka does: in passes over all subtopologies, until none brings anything new."""
    counts: dict[str, int] = {}
    before = -1
    while before < len(counts):
        before = len(counts)
        for s in order:
            for sink in s.repartition_sink_topics:
                known = [external[t] for t in s.source_topics]
                known += [counts[t.name] for t in s.repartition_source_topics if t.name in counts]
                if known and sink not in counts:
                    counts[sink] = max(known)
    return counts


@pytest.mark.parametrize("seed", seeds_of_run(20))
def test_each_subtopology_has_its_turn_in_the_pass_in_which_kafka_reaches_it(seed: int) -> None:
    rng, external = random.Random(seed), {"small": 1, "large": 9}
    for _ in range(20):
        names = [f"r{i}" for i in range(rng.randrange(2, 7))]
        subs = [
            Subtopology(str(i), tuple(rng.sample(sorted(external), rng.choice((0, 0, 1)))), (sink,), tuple(reads))
            for i, sink in enumerate((*names, *rng.sample(names, 1)))
            for reads in [[TopicInfo(t) for t in rng.sample(names, rng.randrange(0, 3))]]
        ]
        rng.shuffle(subs)
        counts = in_passes(subs, external)
        if set(names) <= set(counts):
            assert repartition_counts(subs, external.get) == counts
