"""Two thousand random scripts, and some in which topics change, to a sidecar and to Kafka's coordinator: no difference.

What differs on purpose is in docs/differences.md. More: `make differential SCRIPTS=10000`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from sidecar.drill.local import LocalKafka
from tests.differential.run import CLASSIC, MIXED, Play, cluster, play_all, play_classics

pytestmark = pytest.mark.tier("all")
SCRIPTS = 2_000
WITH_TOPICS = 48
CLASSIC_SCRIPTS, MIXED_SCRIPTS = 1_000, 1_000


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalKafka]:
    with cluster(tmp_path_factory.mktemp("differential") / "run") as kafka:
        yield kafka


@pytest.mark.parametrize("scripts, topics, least", [(SCRIPTS, False, 50_000), (WITH_TOPICS, True, 1_000)])
def test_no_difference(both: LocalKafka, scripts: int, topics: bool, least: int) -> None:
    steps, found = asyncio.run(play_all(both, range(scripts), topics=topics))
    print(f"seeds 0 to {scripts - 1}: {steps} steps")
    assert not found, "\n".join(found[:5])
    assert steps > least, "the scripts are about something"


@pytest.mark.parametrize(
    ("what", "scripts"), [(CLASSIC, CLASSIC_SCRIPTS), (MIXED, MIXED_SCRIPTS)], ids=["classic", "mixed"]
)
def test_no_difference_with_the_classic_protocol(both: LocalKafka, what: Play, scripts: int) -> None:
    steps, found = asyncio.run(play_classics(both, range(scripts), what=what))
    print(f"seeds 0 to {scripts - 1}: {steps} steps")
    assert not found, "\n".join(found[:5])
    assert steps > 20 * scripts, "the scripts are about something"
