"""The sidecar answers raw requests as the broker behind it does, in every version that both announce.

Each run plays other cases. What may differ is in docs/reference/differences.md, row by row (tolerated.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sidecar.drill.artifacts import ANCHORS
from sidecar.drill.local import LocalKafka
from sidecar.native import java_hash
from tests.harness.tiers import Seeds
from tests.player import states
from tests.player.cases import Case, Versions, pairs, sample, singles
from tests.player.compare import Listeners, both, differing_answers, play
from tests.player.run import cluster, listeners, make_topics
from tests.player.schema import Messages
from tests.player.side import PREFIXES
from tests.player.tolerated import ORDER, RULES

SINGLES, PAIRS, EVERY_NIGHT = 1_500, 500, 3_000
VERSIONS = (*ANCHORS, "3.9.1")
SHARED_WORLD = frozenset({*states.CLASSIC, *states.TRANSACTIONS, states.producer, states.consumer}) - {
    # Groups of both protocols are assigned by timers there; the cluster of the nightly run has none.
    states.transaction_mixed,
}
Cases = Callable[[Messages, Versions], Iterator[Case]]


def _play(at: Listeners, cases: list[Case], seeds: range) -> None:
    found = play(at, sample(cases, seeds.start, len(seeds)), f"{seeds.start:x}")
    print(f"{seeds.start}: {found.played} cases; {dict(found.agreed)}")
    assert not found.differences, "\n".join(differing_answers(*d) for d in found.differences[:5])
    assert found.played == len(seeds)


@pytest.mark.parametrize(("cases", "count"), [(singles, SINGLES), (pairs, PAIRS)], ids=["one value", "two values"])
def test_no_difference(kafka: LocalKafka, seeds: Seeds, cases: Cases, count: int) -> None:
    make_topics(kafka)
    at = listeners(kafka)
    here = [c for c in cases(at.messages, both(at)) if c.state in SHARED_WORLD]
    _play(at, here, seeds.of(count))


@pytest.fixture(scope="module", params=VERSIONS)
def cluster_of_version(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalKafka]:
    with cluster(tmp_path_factory.mktemp("player") / "run", request.param) as kafka:
        yield kafka


@pytest.mark.tier("nightly")
@pytest.mark.timeout(2 * 3600)
@pytest.mark.parametrize("cases", [singles, pairs], ids=["one value", "two values"])
def test_no_difference_before_any_broker(cluster_of_version: LocalKafka, seeds: Seeds, cases: Cases) -> None:
    """Every case of one value, and some of the pairs, of which there are a hundred thousand."""
    at = listeners(cluster_of_version)
    all_cases = list(cases(at.messages, both(at)))
    first = seeds.of(1).start
    _play(at, all_cases, range(first, first + (len(all_cases) if cases is singles else EVERY_NIGHT)))


def test_a_group_has_the_same_partition_at_both() -> None:
    for ours, theirs in zip(*PREFIXES.values(), strict=True):
        assert ours != theirs and java_hash(ours) == java_hash(theirs)


def test_each_difference_that_is_tolerated_is_in_the_page(root: Path) -> None:
    rows = [
        line[2:] for line in (root / "docs/reference/differences.md").read_text().splitlines() if line.startswith("| ")
    ]
    tolerated = (ORDER, *(rule.row for rule in RULES))
    missing = [name for name in tolerated if not any(row.startswith(name) for row in rows)]
    assert not missing
