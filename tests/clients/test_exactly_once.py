"""Read-process-write in transactions, with members and owners that die. `make exactly-once N=20` does it longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from sidecar.drill.local import LocalKafka
from tests.clients.exactly_once import PROPERTIES, late_commit, run

pytestmark = pytest.mark.tier("all")


@pytest.mark.parametrize("protocol", ["classic", pytest.param("consumer", marks=pytest.mark.tier("test"))])
def test_every_record_is_in_the_output_once(trio: LocalKafka, protocol: str) -> None:
    """One application is killed, then the other one together with the owner; then one sleeps past its session."""
    figures = run(trio, 3, protocol)
    assert (figures["missing"], figures["twice"]) == (0, 0), figures


@pytest.mark.tier("nightly")
def test_a_removed_member_that_has_joined_again_cannot_commit_what_it_read_before(trio: LocalKafka) -> None:
    """Symptom: 100 records were processed twice, and a committed offset went back."""
    found = late_commit(trio)
    assert found["twice"] == 0 and found["refused"], found


@pytest.mark.tier("nightly")
def test_it_can_at_kafka(tmp_path: Path) -> None:
    """At Kafka the late commit counts and records are processed twice, as docs/reference/differences.md says."""
    with LocalKafka(tmp_path, brokers=1, front="none", properties=PROPERTIES) as kafka:
        found = late_commit(kafka)
    assert found["twice"] and not found["refused"], found
