"""Leaders with the highest leader epochs are believed."""

from __future__ import annotations

from sidecar.core.vocabulary.topics import Topic
from sidecar.kafka.cluster import ClusterView
from sidecar.kafka.leaders import Leaders

ONE, OTHER = b"1" * 16, b"2" * 16


def view(leaders: tuple[int, ...], epochs: tuple[int, ...], topic_id: bytes = ONE) -> ClusterView:
    return ClusterView(leaders={"t": leaders}, topics=(Topic(topic_id, "t", ()),), epochs={"t": epochs})


def test_a_broker_that_has_not_heard_of_a_change_is_not_believed() -> None:
    known = Leaders("t", (1, 1))
    assert known.take(view((2, 1), (5, 3))) and known.now == (2, 1)
    assert known.take(view((1, 3), (4, 4))) and known.now == (2, 3), "partition by partition"
    assert known.take(view((-1, 3), (5, 4))) and known.now == (-1, 3), "without a leader in the same epoch"


def test_a_broker_that_tells_no_leader_epochs_is_believed() -> None:
    known = Leaders("t")
    assert known.take(view((1,), (7,))) and known.take(view((2,), (-1,))) and known.now == (2,)
    assert known.take(view((3,), (0,))) and known.now == (3,)


def test_a_topic_that_was_made_anew_begins_anew() -> None:
    known = Leaders("t")
    assert known.take(view((1, 1), (7, 7))) and known.take(view((2, 2), (0, 0), OTHER)) and known.now == (2, 2)


def test_a_topic_with_more_partitions_is_taken_as_it_is() -> None:
    known = Leaders("t", (1, 1))
    assert known.take(view((3, 3, 3), (0, 0, 0))) and len(known.now) == 3


def test_a_view_without_the_topic_changes_nothing() -> None:
    known = Leaders("t", (1,))
    assert not known.take(ClusterView()) and known.now == (1,)
