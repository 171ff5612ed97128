"""Subscriptions and assignments of the classic protocol, as bytes: read where they must be, and passed on unchanged."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from sidecar.core.classic.embedded import (
    Subscription,
    assigned,
    assignment,
    subscription,
    topics_of,
    without_claims,
)
from sidecar.wire.generated import consumer_protocol_assignment as ca
from sidecar.wire.generated import consumer_protocol_subscription as cs

USER_DATA = b"\x00\x07 of an assignor's own"
SUBSCRIPTION = cs.ConsumerProtocolSubscription(
    ["a", "b"], USER_DATA, [cs.TopicPartition("a", [0, 1]), cs.TopicPartition("b", [2])], 7, "rack-1"
)
OWNED = {"a": (0, 1), "b": (2,)}


def encoded(version: int, as_version: int | None = None, more: bytes = b"") -> bytes:
    return (version if as_version is None else as_version).to_bytes(2, "big") + SUBSCRIPTION.encode(version) + more


KNOWN = {
    0: Subscription(0, ("a", "b"), USER_DATA, {}, -1, None),
    1: Subscription(1, ("a", "b"), USER_DATA, OWNED, -1, None),
    2: Subscription(2, ("a", "b"), USER_DATA, OWNED, 7, None),
    3: Subscription(3, ("a", "b"), USER_DATA, OWNED, 7, "rack-1"),
}


@pytest.mark.parametrize("version", KNOWN)
def test_each_version_adds_a_field_after_those_of_the_assignor(version: int) -> None:
    """KIP-429, KIP-792 and KIP-881: older readers do not see the new fields, and read the rest as before."""
    assert subscription(encoded(version)) == KNOWN[version]
    for older in range(version):
        read = subscription(encoded(version, as_version=older))
        assert read is not None
        assert read == KNOWN[older], "what follows is not looked at"


def test_a_newer_version_is_read_as_the_newest_that_is_known() -> None:
    assert subscription(encoded(3, as_version=9, more=b"new")) == Subscription(
        9, ("a", "b"), USER_DATA, OWNED, 7, "rack-1"
    )
    assert topics_of(encoded(3, as_version=9, more=b"new")) == ("a", "b")


@pytest.mark.parametrize(
    "data", [b"", b"\x00", b"\xff\xff" + SUBSCRIPTION.encode(0), b"\x00\x01", encoded(3)[:-3], b"x" * 40]
)
def test_bytes_that_are_no_subscription(data: bytes) -> None:
    assert subscription(data) is None


def test_the_topics_can_be_read_even_if_the_rest_cannot() -> None:
    assert topics_of(encoded(0, as_version=3)) == ("a", "b") and subscription(encoded(0, as_version=3)) is None
    assert topics_of(b"") is None and topics_of(b"\xff\xff" + SUBSCRIPTION.encode(0)) is None


@pytest.mark.parametrize(("version", "as_version"), [(1, 1), (2, 2), (3, 3), (3, 9)])
def test_a_claim_goes_and_everything_else_stays(version: int, as_version: int) -> None:
    whole = encoded(version, as_version, b"what a newer version adds")
    assert without_claims(whole, {}) == whole
    assert without_claims(whole, {"a": (5,), "c": (0,)}) == whole
    fewer = cs.ConsumerProtocolSubscription(
        SUBSCRIPTION.topics, USER_DATA, [cs.TopicPartition("a", [1])], SUBSCRIPTION.generation_id, SUBSCRIPTION.rack_id
    )
    head = as_version.to_bytes(2, "big")
    left = without_claims(whole, {"a": (0,), "b": (2,)})
    assert left == head + fewer.encode(version) + b"what a newer version adds"
    read = subscription(left)
    assert read is not None
    assert (read.owned, read.user_data) == ({"a": (1,)}, USER_DATA), "an assignor's own generation in there stays, too"


def test_what_is_assigned() -> None:
    for version in range(4):
        made = assignment(version, [("a", (0, 1)), ("b", ())])
        assert made[:2] == version.to_bytes(2, "big") and assigned(made) == {"a": (0, 1), "b": ()}
    assert assignment(9, []) == assignment(3, []) and assignment(-1, []) == assignment(0, [])
    assert assigned(b"") == {}
    newer = b"\x00\x09" + ca.ConsumerProtocolAssignment([ca.TopicPartition("a", [3])]).encode(3) + b"new"
    assert assigned(newer) == {"a": (3,)}
    assert assigned(b"\x00") is None and assigned(b"\x00\x00\xff") is None and assigned(b"a word") is None


@pytest.mark.tier("test")
def test_no_bytes_of_a_client_are_an_exception() -> None:
    rng = random.Random(7)
    for n in range(20_000):
        data = bytearray(encoded(n % 4))
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        cut = bytes(data[: rng.choice((len(data), rng.randrange(len(data))))])
        read = subscription(cut)
        if read is not None:
            assert subscription(without_claims(cut, read.owned)) == replace(read, owned={})
        topics_of(cut)
        assigned(cut)
