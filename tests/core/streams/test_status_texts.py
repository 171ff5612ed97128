"""The texts of statuses, as Kafka has them."""

from __future__ import annotations

from sidecar.core.streams.status_texts import (
    StatusCode,
    missing_client_tags,
    missing_internal_topics,
    missing_source_topics,
    shutdown_application,
    stale_topology,
    with_denial,
    with_errors,
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
    told = with_errors(missing_internal_topics(["a"]), dict.fromkeys("wxyz", "no"))
    assert told.detail == "Internal topics are missing: a; Creation failed: w (no), x (no), y (no) and 1 more."


def test_all_topics_of_a_denial_are_named_but_those_that_are_only_counted() -> None:
    status = missing_internal_topics(["a"])
    every = "Internal topics are missing: a; Unauthorized to CREATE on topics w, x, y, z."
    assert with_denial(status, "wxyz", 0).detail == every
    assert with_denial(status, "wx", 2).detail == (
        "Internal topics are missing: a; Unauthorized to CREATE on topics w, x and 2 more."
    )
