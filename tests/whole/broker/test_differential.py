"""Five hundred random scripts to a simulated broker and to a real one: no difference. More, and what is accepted:
tests/whole/broker/differential.py."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sidecar.drill.local import LocalKafka
from tests.whole.broker.differential import PROPERTIES, compare

pytestmark = pytest.mark.tier("all")
SCRIPTS = 500


def test_the_simulated_broker_answers_like_a_real_one(tmp_path: Path) -> None:
    kinds = ("data", "classic")
    with LocalKafka(tmp_path / "run", brokers=1, front="none", properties=PROPERTIES) as kafka:
        tally = asyncio.run(compare(kafka, dict.fromkeys(kinds, range(SCRIPTS // len(kinds)))))
    print(f"{SCRIPTS} scripts: {tally.steps} steps")
    assert not tally.found, "\n".join(tally.found[:5])
    assert tally.steps > 20 * SCRIPTS, "the scripts are about something"
