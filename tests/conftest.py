"""Shared fixtures. `libs`: Kafka's jars, fetched once. Worlds with brokers: tests/harness/worlds.py."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path

import psutil
import pytest

from tests.harness import spark_archive

pytest_plugins = ("tests.harness.tiers", "tests.harness.costs", "tests.harness.worlds")
ROOT = Path(__file__).resolve().parent.parent
if sys.dont_write_bytecode:
    # Each process of a run would compile all tests anew, for 8 s. They are kept where pytest keeps what it remembers.
    sys.dont_write_bytecode, sys.pycache_prefix = False, str(ROOT / ".pytest_cache" / "compiled")

MEMORY, ROOM = Path("/dev/shm"), 8 << 30
if MEMORY.is_dir() and min(shutil.disk_usage(MEMORY).free, psutil.virtual_memory().available) > ROOM:
    # A broker syncs its files with every topic that is made: on a disk that is half of what some tests cost.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

spark_archive.use()

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # So begins what a shell runs in the background, and each process that a test starts and interrupts.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="write what the stories do now; read the diff before you commit"
    )


@pytest.fixture(scope="session")
def libs() -> Path:
    from sidecar.drill.artifacts import kafka_libs

    return kafka_libs()


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT
