"""The texts of statuses, as Kafka has them."""

from __future__ import annotations

from sidecar.core.streams.status_texts import (
    StatusCode,
    missing_client_tags,
    missing_internal_topics,
    missing_source_topics,
    shutdown_application,
    stale_topology,
    with_creation,
)


def test_the_words_of_the_other_statuses() -> None:
    assert stale_topology(1, 2).detail == "The member's topology epoch 1 is behind the group's topology epoch 2."
    assert missing_source_topics({"b", "a"}).detail == "Source topics a, b are missing."
    assert missing_internal_topics(["d", "c", "b", "a"]).detail == (
        "Internal topics are missing: d, c, b and 1 additional topics"
    )
    assert shutdown_application("m").detail == (
        "Streams group member m encountered a fatal error and requested a shutdown for the entire application."
    )
    assert missing_client_tags(["zone", "rack"]).detail == (
        "Missing required client tags for rack-aware standby assignment: [zone, rack]. "
        "Configure them via 'client.tag.<tagKey>' in your Streams config."
    )
    assert list(StatusCode) == list(range(7))


def test_four_errors_are_three_and_one_more() -> None:
    told = with_creation(missing_internal_topics(["a"]), (), dict.fromkeys("wxyz", "no"))
    assert told.detail == "Internal topics are missing: a; Creation failed: w (no), x (no), y (no) and 1 more."
