"""Imports before the clients' port opens are as few as can be, as clients wait for it. The coordinator comes when the
port passes requests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

import sidecar.wire.generated
from sidecar.process import broker_credentials

LATER = (
    "aiohttp",
    "confluent_kafka",
    "cryptography.x509",
    "fastavro",
    "rich",
    "sidecar.coordinator",
    "sidecar.core.share.group",
    "sidecar.core.streams.group",
    "sidecar.state",
    "yaml",
)
SAYS = """
import sys
import sidecar.process.app
for name in sys.argv[1:]:
    print(*(m for m, module in sys.modules.items() if (m == name or m.startswith(name + ".")) and module is not None))
import rich
"""
NAMED = {"sidecar.coordinator", "sidecar.coordinator.statelog", "sidecar.coordinator.statelog.startup_errors"}
"""A name for what ends a start, and nothing else."""


@pytest.mark.tier("test")
def test_nothing_of_the_coordinator_is_imported_before_the_port_opens() -> None:
    done = subprocess.run([sys.executable, "-c", SAYS, *LATER], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == NAMED


def test_a_generated_message_costs_next_to_nothing_at_the_start() -> None:
    """A dataclass is written as text and compiled when its module is imported. Those of 46 modules took a fifth of what
    a worker needs before it serves clients (`make bench NAME=start`)."""
    modules = Path(sidecar.wire.generated.__file__).parent.glob("*.py")
    texts = [path.read_text("utf-8") for path in modules]
    assert sum(text.count("\nclass ") for text in texts) > 100
    assert not any("\n@" in text for text in texts)


def test_librdkafka_has_these_codes() -> None:
    assert (KafkaError._AUTHENTICATION, KafkaError._SSL) == broker_credentials.NOT_AUTHENTICATED
