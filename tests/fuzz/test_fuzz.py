"""A short run of every target, with other inputs each time, and what longer ones found.
`python -m tests.fuzz.run` runs more."""

from __future__ import annotations

from pathlib import Path

import pytest

from sidecar.coordinator.statelog.tail import StateLog
from sidecar.core.classic import embedded
from sidecar.state.codec import StateCodec
from sidecar.state.keys import StateKey
from tests.fuzz.run import NATIVES, fuzz, replay
from tests.fuzz.targets import TARGETS
from tests.harness.tiers import Seeds
from tests.inprocess.embedded_sidecar import Counted, Lines

INPUTS = 20_000
"""Inputs of all targets together, besides their seeds."""

FOUND: dict[str, tuple[str, bytes]] = {
    "a response header that ends too soon was an IndexError": ("headers", b"\0\6client"),
    "the same from a broker": ("own connection", b"\x31\0\0\0\x08\0\0\0\x01\xff\xff\xff\xff" + b"\0\0\0\x04\0\0\0\x02"),
    "text that is no UTF-8 ended the link by an exception nobody expected": (
        "link",
        b"\0\0\0\x2e\x09\x92\x0f\x83\xa4type\xb0Describ\x80Settings\xa8group_id\xa0\xa6groups\x91\xa1g",
    ),
    "a damaged schema in the state topic ended every sidecar": ("state topic", b"\0\x09\x0cschema\0\0{"),
    "so did one that is no text": ("state topic", b"\0\x09\x0cschema\0\0\xff\xfe"),
    "and one that is JSON, but no schema": ("state topic", b'\0\x09\x0cschema\0\0{"type": 5}'),
    "and a claim whose key is no number": ("state topic", b"\0\x0f\x16owner_claim\0\x02x\xc3\x01"),
    "a setting whose value is of another kind was a KeyError": (
        "state topic",
        bytes.fromhex(
            "000d0c636f6e666967026706612e6dc301d52175ab8c4f360b8e808880c0f50380f8b2e5bd6806000000",
        ),
    ),
    "settings whose names are no text": ("settings", b"1: 2"),
    "a settings file that is no text": ("settings", b"\xff\xfe"),
    "a date without such a month": ("settings", b"node_id: 2001-99-99"),
    "lists within lists within lists": ("settings", b"[" * 1_500),
    "of partitions claimed under a topic twice only the last counted": (
        "metadata",
        b"\0\1\0\0\0\1\0\1a\xff\xff\xff\xff\0\0\0\2" + b"\0\1a\0\0\0\1\0\0\0\1" + b"\0\1a\0\0\0\1\0\0\0\2",
    ),
}


DEAR = pytest.param("session", marks=pytest.mark.tier("test"))
"""The target that plays a request of every API and version first; tests/api does so in `quick`."""


@pytest.mark.parametrize("name", [DEAR if name == "session" else name for name in TARGETS])
def test_only_documented_exceptions_come_of_changed_bytes(name: str, seeds: Seeds) -> None:
    share = TARGETS[name].share / sum(t.share for t in TARGETS.values())
    inputs = len(seeds.of(round(INPUTS * share)))
    result = fuzz(name, inputs + len(TARGETS[name].seeds()), seed=seeds.first, slow_ms=1_000)
    again = [
        f"{what}: python -m tests.fuzz.run --only {name!r} --replay {data.hex()}" for data, what in result.findings
    ]
    assert not again, "\n".join(again)


def test_the_sanitizer_has_every_extension() -> None:
    """`make sanitize` compiles these and no others."""
    folder = Path(__file__).parents[2] / "sidecar" / "native"
    assert sorted(NATIVES) == sorted(c.stem for c in folder.glob("*.c"))


@pytest.mark.parametrize("found", FOUND)
def test_what_was_found_stays_found(found: str) -> None:
    replay(*FOUND[found])


def test_partitions_of_a_topic_that_is_named_twice_all_count() -> None:
    subscription = embedded.subscription(FOUND["of partitions claimed under a topic twice only the last counted"][1])
    assert subscription is not None and subscription.owned == {"a": (1, 2)}


def test_a_schema_that_cannot_be_read_is_told_and_the_tail_goes_on() -> None:
    lines = Lines()
    log = StateLog(1, StateCodec(), lines, Counted())
    log.apply(0, 7, StateKey("schema", "", "00"), b"{")
    log.apply(0, 8, StateKey("owner_claim", "", "none"), b"x")
    assert lines.fields("a schema in the state topic cannot be read")["at"] == "0@7"
    assert log.partitions[0].position == 9 and log.partitions[0].owners.void == 1


def test_large_metadata_is_not_kept() -> None:
    """Symptom: the last 4,096 subscriptions were kept whatever their size, 16 MB each if somebody wanted it so."""
    before = len(embedded._SUBSCRIPTIONS), len(embedded._TOPICS)
    large = b"\0\0\0\0\0\0" + (100_000).to_bytes(4, "big") + b"u" * 100_000
    found = embedded.subscription(large)
    assert found is not None and found.user_data == b"u" * 100_000 and embedded.topics_of(large) == ()
    assert (len(embedded._SUBSCRIPTIONS), len(embedded._TOPICS)) == before
