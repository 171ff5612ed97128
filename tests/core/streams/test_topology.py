"""Topologies: comparison, order, what is refused, and the names of topics."""

from __future__ import annotations

import pytest

from sidecar.core.streams.events import StreamsHeartbeat
from sidecar.core.streams.java_order import compare_order, hash_order
from sidecar.core.streams.topology import (
    Comparison,
    CopartitionGroup,
    Subtopology,
    TopicInfo,
    Topology,
    check_topology,
    compare,
)
from sidecar.core.streams.validation import check_topic_names
from sidecar.core.vocabulary.errors import Code, CoordinatorError
from tests.core.streams.cases import MALFORMED

REPARTITION = TopicInfo("r", 0, 3, (("a", "1"), ("b", "2")))
FIRST = Subtopology("0", ("in", "also"), ("r",), (), (), (CopartitionGroup((0, 1)),))
SECOND = Subtopology("1", (), (), (REPARTITION,), (TopicInfo("c"),))
GROUPS = Topology(2, (FIRST, SECOND))
UPDATE = "Topology updates are not supported yet."


def test_the_first_topology_becomes_the_groups() -> None:
    assert compare(None, GROUPS) is Comparison.FIRST


def test_the_order_of_subtopologies_means_nothing() -> None:
    assert compare(GROUPS, Topology(2, (SECOND, FIRST))) is Comparison.SAME


def test_a_lower_epoch_is_stale_whatever_it_has() -> None:
    assert compare(GROUPS, Topology(1)) is Comparison.STALE


@pytest.mark.parametrize(
    "other",
    [
        Topology(3, (FIRST, SECOND)),
        Topology(2, (FIRST,)),
        Topology(2, (FIRST, Subtopology("1", (), (), (TopicInfo("r", 4),), (TopicInfo("c"),)))),
        Topology(2, (Subtopology("0", ("also", "in"), ("r",), (), (), FIRST.copartition_groups), SECOND)),
        Topology(2, (Subtopology("0", ("in", "also"), ("r",)), SECOND)),
    ],
    ids=["a greater epoch alone", "one less", "another count", "another order of topics", "no copartition groups"],
)
def test_anything_else_is_an_update(other: Topology) -> None:
    with pytest.raises(CoordinatorError) as refused:
        compare(GROUPS, other)
    assert (refused.value.code, refused.value.message) == (Code.INVALID_REQUEST, UPDATE)


DESCRIBED = Topology(
    2,
    (
        Subtopology("0", ("also", "in"), ("r",)),
        Subtopology("1", (), (), (TopicInfo("r", 6, 3, (("b", "2"), ("a", "1"))),), (TopicInfo("c", 6),)),
    ),
)
"""GROUPS as StreamsGroupDescribe tells it when it is ready."""


def test_a_topology_from_a_description_is_completed() -> None:
    """A described topology has computed counts, sorted lists and no copartition groups."""
    assert compare(DESCRIBED, GROUPS, partial=True) is Comparison.COMPLETES
    assert compare(DESCRIBED, DESCRIBED, partial=True) is Comparison.COMPLETES
    assert compare(DESCRIBED, Topology(1), partial=True) is Comparison.STALE
    for other in (Topology(2, (FIRST,)), Topology(3, GROUPS.subtopologies)):
        with pytest.raises(CoordinatorError, match=UPDATE):
            compare(DESCRIBED, other, partial=True)
    with pytest.raises(CoordinatorError, match=UPDATE):
        compare(DESCRIBED, GROUPS)


def test_a_sound_topology_is_not_refused() -> None:
    check_topology(GROUPS)


@pytest.mark.parametrize("broken", MALFORMED)
def test_what_kafka_fails_at_is_refused(broken: str) -> None:
    with pytest.raises(CoordinatorError) as refused:
        check_topology(MALFORMED[broken])
    wanted = Code.INVALID_REQUEST if broken == "a negative epoch" else Code.STREAMS_INVALID_TOPOLOGY
    assert refused.value.code == wanted


def test_topics_that_no_topology_may_name() -> None:
    """KafkaApis asks this of sources, sinks, repartition sources and changelogs, in this order."""
    check_topic_names(GROUPS)
    internal = Topology(0, (Subtopology("0", ("__consumer_offsets",), (), (), (TopicInfo("__share_group_state"),)),))
    odd = Topology(0, (Subtopology("0", ("..", "in"), ("a b",), (TopicInfo("x" * 250), TopicInfo("y" * 249))),))
    for topology, text in (
        (
            internal,
            "Use of Kafka internal topics __consumer_offsets,__share_group_state in a Kafka Streams topology is "
            "prohibited.",
        ),
        (odd, f"Topic names ..,a b,{'x' * 250} are not valid topic names."),
    ):
        with pytest.raises(CoordinatorError) as refused:
            check_topic_names(topology)
        assert (refused.value.code, refused.value.message) == (Code.STREAMS_INVALID_TOPOLOGY, text)


def test_javas_order_of_strings() -> None:
    """ "10" has the bucket of "?" in a table of 16; 13 keys make it one of 32."""
    assert hash_order(str(i) for i in (3, 2, 10, 1)) == ["1", "2", "3", "10"]
    assert hash_order(["Aa", "BB"]) == ["Aa", "BB"] and hash_order(["BB", "Aa", "BB"]) == ["BB", "Aa"]
    assert hash_order(f"k{i}" for i in range(13)) != sorted(f"k{i}" for i in range(13))
    assert sorted(["\uffee", "\U0001f600"], key=compare_order) == ["\U0001f600", "\uffee"]


def test_a_heartbeat_tells_how_large_its_record_is() -> None:
    hb = StreamsHeartbeat("g", "m", 0, topology=GROUPS)
    assert hb.joins() and hb.largest_bytes() == sum(map(len, GROUPS.texts())) + GROUPS.indices()
    assert StreamsHeartbeat("g", "m", 3).largest_bytes() == 0
    assert StreamsHeartbeat("g", "m", 3, client_tags=(("zone", "a"),)).largest_bytes() == len("zone" + "a")


def test_every_text_and_index_of_a_topology_counts() -> None:
    assert sorted(GROUPS.texts()) == sorted(["0", "in", "also", "r", "1", "r", "a", "1", "b", "2", "c"])
    assert GROUPS.indices() == 1 + 2
