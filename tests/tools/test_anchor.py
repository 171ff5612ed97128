"""The Kafka that is the anchor is named in one place: a newer one is one line, and nothing is left behind."""

from __future__ import annotations

import subprocess
from pathlib import Path

from sidecar.drill.artifacts import ANCHORS, KAFKA
from tests.api.announced import announced
from tests.matrix.broker_table import VERSIONS
from tools.wire_model import NEWEST

PLACE = "sidecar/drill/artifacts.py"
EXAMPLES = frozenset({"tests/differential/test_older.py", "tests/drill/test_zookeeper.py"})
"""Tests with versions as examples: their order, and what each needs, whatever the anchor is."""
FOLDERS = ("sidecar", "tests", "tools", "benchmarks")


def names_it(path: Path) -> bool:
    return f'"{KAFKA}"' in path.read_text()


def test_no_other_code_names_it(root: Path) -> None:
    """Symptom: the codecs, the scripts beside Kafka and the Makefile each had a version of their own."""
    found = {str(p.relative_to(root)) for f in FOLDERS for p in (root / f).rglob("*.py") if names_it(p)}
    assert found - EXAMPLES == {PLACE}


def test_make_reads_it_there(root: Path) -> None:
    assert KAFKA not in (root / "Makefile").read_text()
    said = subprocess.run(["make", "-n", "kafka"], cwd=root, capture_output=True, text=True, check=True).stdout
    assert f"sidecar.drill.artifacts {' '.join(sorted(ANCHORS))}\n" in said


def test_what_was_recorded_is_of_it() -> None:
    assert NEWEST == KAFKA
    assert set(VERSIONS) == announced().keys(), "python -m tests.api.announced"
    assert list(VERSIONS)[-len(ANCHORS) :] == sorted(ANCHORS)
