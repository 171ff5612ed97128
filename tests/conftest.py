"""Shared fixtures. `libs`: Kafka's jars, fetched once. Worlds with brokers: tests/harness/worlds.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from sidecar.drill.artifacts import kafka_libs

pytest_plugins = ("tests.harness.tiers", "tests.harness.costs", "tests.harness.worlds")
ROOT = Path(__file__).resolve().parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="write what the stories do now; read the diff before you commit"
    )


@pytest.fixture(scope="session")
def libs() -> Path:
    return kafka_libs()


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT
