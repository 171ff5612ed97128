"""Internal topics are created, created again after errors, and reported in a status."""

from __future__ import annotations

from sidecar.core.streams.internal_topics import GIVE_UP_MS, NewTopic, TopicCreations
from sidecar.core.streams.status_texts import (
    missing_internal_topics,
)

WANTED = {name: NewTopic(name, 1, -1) for name in ("a", "b", "c", "d")}
STATUS = missing_internal_topics(["a"])


def topics_to_create(creations: TopicCreations, now_ms: int) -> list[str]:
    return [t.name for t in creations.ask(WANTED, now_ms)]


def test_a_topic_is_asked_for_once() -> None:
    creations = TopicCreations()
    assert topics_to_create(creations, 0) == ["a", "b", "c", "d"] and topics_to_create(creations, 1) == []
    creations.answered(["a"])
    assert topics_to_create(creations, 2) == ["a"]
    assert topics_to_create(creations, GIVE_UP_MS) == ["b", "c", "d"]


def test_errors_are_shown_and_then_it_is_tried_again() -> None:
    creations = TopicCreations()
    topics_to_create(creations, 0)
    creations.failed("b", "no brokers", until_ms=10)
    assert creations.explain(STATUS, WANTED, 9).detail == (
        "Internal topics are missing: a; Creation failed: b (no brokers)."
    )
    assert topics_to_create(creations, 9) == []
    assert creations.explain(STATUS, WANTED, 10) == STATUS
    assert topics_to_create(creations, 10) == ["b"]


def test_topics_without_the_right_are_named() -> None:
    creations = TopicCreations()
    topics_to_create(creations, 0)
    creations.refused("b", until_ms=10)
    creations.refused("a", until_ms=10)
    assert creations.explain(STATUS, WANTED, 9).detail == (
        "Internal topics are missing: a; Unauthorized to CREATE on topics a, b."
    )
    assert creations.explain(STATUS, {}, 9) == STATUS and not creations.requested
