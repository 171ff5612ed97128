"""Random scripts to a sidecar and to Kafka's coordinator, and to a simulated broker and a real one: no difference.

Each run plays other seeds (the header of the run names the first), in each tier a share of the full number
(tests/harness/tiers.py); of consumer and classic groups a smaller one on the Kafka before the anchor. What differs on
purpose is in docs/reference/differences.md. More: `make differential SCRIPTS=10000`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from sidecar.drill.artifacts import BEFORE, KAFKA
from sidecar.drill.local import LocalKafka
from tests.differential.run import CLASSIC, MIXED, Play, cluster, play_all, play_classics
from tests.differential.share_and_streams import SHARE, Family, play_families, streams_of
from tests.harness.tiers import Seeds
from tests.whole.broker.differential import SIMULATED_VERSION, compare

SCRIPTS, WITH_TOPICS, CLASSIC_SCRIPTS, MIXED_SCRIPTS, BROKER_SCRIPTS = 2_000, 48, 1_000, 1_000, 250
SHARE_SCRIPTS, STREAMS_SCRIPTS, IN_ALL = 2_000, 2_000, 1_000
"""`IN_ALL`: scripts of share groups, and of streams groups, on each of the two Kafkas in test-all."""
OLDER_SHARE = 4
"""The Kafka before the anchor plays the scripts of consumer and classic groups of the anchor, divided by this."""
LEAST_STEPS = 20
"""The steps of a script on average, at least: the scripts are about something."""


@pytest.fixture(scope="module", params=[KAFKA, pytest.param(BEFORE, marks=pytest.mark.tier("all"))])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    with cluster(tmp_path_factory.mktemp("differential") / "run", request.param) as kafka:
        yield kafka


def _share(kafka: LocalKafka, scripts: int) -> int:
    return scripts // (1 if kafka.version == KAFKA else OLDER_SHARE)


@pytest.mark.parametrize("scripts, topics", [(SCRIPTS, False), (WITH_TOPICS, True)], ids=["consumer", "topics"])
def test_no_difference(both: LocalKafka, seeds: Seeds, scripts: int, topics: bool) -> None:
    played = seeds.of(_share(both, scripts), 16)
    steps, found = asyncio.run(play_all(both, played, topics=topics))
    print(f"{played}: {steps} steps")
    assert not found, "\n".join(found[:5])
    assert steps > LEAST_STEPS * len(played)


@pytest.mark.parametrize(
    ("what", "scripts"), [(CLASSIC, CLASSIC_SCRIPTS), (MIXED, MIXED_SCRIPTS)], ids=["classic", "mixed"]
)
def test_no_difference_with_the_classic_protocol(both: LocalKafka, seeds: Seeds, what: Play, scripts: int) -> None:
    played = seeds.of(_share(both, scripts))
    steps, found = asyncio.run(play_classics(both, played, what=what))
    print(f"{played}: {steps} steps")
    assert not found, "\n".join(found[:5])
    assert steps > LEAST_STEPS * len(played)


@pytest.mark.timeout(1800)
def test_no_difference_with_share_groups(both: LocalKafka, seeds: Seeds) -> None:
    _play(both, SHARE, seeds.of(SHARE_SCRIPTS, all=IN_ALL))


@pytest.mark.timeout(1800)
def test_no_difference_with_streams_groups(both: LocalKafka, seeds: Seeds) -> None:
    _play(both, streams_of(both.version), seeds.of(STREAMS_SCRIPTS, all=IN_ALL))


def _play(both: LocalKafka, what: Family, played: range) -> None:
    began_s = time.process_time()
    steps, found = asyncio.run(play_families(both, played, what=what))
    spent_s = time.process_time() - began_s
    print(f"{played}: {steps} steps, {1000 * spent_s / len(played):.0f} ms of CPU for each script, beside the broker's")
    assert not found, "\n".join(found[:5])
    assert steps > LEAST_STEPS * len(played)


@pytest.mark.tier("all")
@pytest.mark.parametrize("both", [SIMULATED_VERSION], indirect=True)
@pytest.mark.parametrize("kind", ["data", "classic"])
def test_the_simulated_broker_answers_like_a_real_one(both: LocalKafka, seeds: Seeds, kind: str) -> None:
    """The broker that tests/whole simulates. What is accepted: tests/whole/broker/differential.py."""
    played = seeds.of(BROKER_SCRIPTS)
    tally = asyncio.run(compare(both, {kind: played}))
    print(f"{played}: {tally.steps} steps")
    assert not tally.found, "\n".join(tally.found[:5])
    assert tally.steps > LEAST_STEPS * len(played)
