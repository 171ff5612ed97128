"""The archive of a broker's classes counts for the Java and the Kafka that it was made with, and may be missing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from sidecar.drill.artifacts import archive_file, class_archive, java


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KAFKA_SIDECAR_CACHE", str(tmp_path))
    return tmp_path


def test_without_it_a_jvm_gets_no_option() -> None:
    assert class_archive("4.3.1") == ()


def test_it_is_one_of_a_java_and_of_a_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = archive_file("4.3.1")
    here.parent.mkdir(parents=True)
    here.touch()
    assert class_archive("4.3.1")[0] == f"-XX:SharedArchiveFile={here}"
    assert class_archive("4.2.0") == ()
    other = tmp_path / "jdk" / "bin" / "java"
    other.parent.mkdir(parents=True)
    other.touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    assert class_archive("4.3.1") == ()


def test_one_that_is_damaged_is_passed_over_in_silence() -> None:
    here = archive_file("4.3.1")
    here.parent.mkdir(parents=True)
    here.write_bytes(b"no archive")
    done = subprocess.run([java(), *class_archive("4.3.1"), "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("openjdk") or "Java" in done.stdout
