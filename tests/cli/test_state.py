"""The files that `sidecar state` takes, and what it refuses before it reaches a broker."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from sidecar.audit.errors import AuditError
from sidecar.audit.source.dump import DumpRecord, open_dump, read_dump
from sidecar.cli import state as module
from sidecar.cli.exits import Code
from sidecar.cli.main import app
from sidecar.core.vocabulary.placement import partition_for
from sidecar.state.keys import encode_key

PARTITIONS = 50
HOME = partition_for("g", PARTITIONS)


def record(offset: int, group: str = "g", partition: int = HOME, value: bytes | None = b"v") -> DumpRecord:
    return DumpRecord(partition, offset, 1_000, "create", encode_key("group", group, ""), value, [("why", b"x")])


def written(path: Path, records: Sequence[DumpRecord]) -> Path:
    with open_dump(path) as f:
        for r in records:
            f.write(msgspec.json.encode(r) + b"\n")
    return path


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_a_dump_is_read_as_it_was_written(tmp_path: Path, name: str) -> None:
    records = [record(3), record(7, value=None)]
    path = written(tmp_path / name, records)
    assert list(read_dump(path)) == records
    assert module._checked(path, PARTITIONS) == {HOME: 2}


@pytest.mark.parametrize(
    ("records", "why"),
    [
        ([], "has no records"),
        ([record(3), record(3)], "offset 3 comes after offset 3"),
        ([record(3), record(2)], "offset 2 comes after offset 3"),
        ([record(1, partition=PARTITIONS)], "the topic has 50 partitions"),
        ([record(1, partition=(HOME + 1) % PARTITIONS)], "group g is looked for elsewhere"),
        ([DumpRecord(0, 1, 1, "create", b"\x7f", b"")], "the key cannot be read"),
        ([DumpRecord(0, 1, 1, "create", None, b"")], "the key cannot be read"),
    ],
)
def test_a_file_that_does_not_fit_is_refused(tmp_path: Path, records: list[DumpRecord], why: str) -> None:
    with pytest.raises(AuditError, match=why):
        module._checked(written(tmp_path / "a.jsonl", records), PARTITIONS)


def test_a_line_that_is_none_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "a.jsonl", [record(1)])
    with path.open("ab") as f:
        f.write(b'{"partition": 1\n')
    with pytest.raises(AuditError, match=r"a\.jsonl, line 2"):
        module._checked(path, PARTITIONS)


def test_a_file_is_not_overwritten_and_its_name_says_what_it_is(tmp_path: Path) -> None:
    there = written(tmp_path / "a.jsonl", [record(1)])
    for name, why in (("a.jsonl", "exists already"), ("a.txt", "the name must end in")):
        done = CliRunner().invoke(app, ["state", "dump", str(tmp_path / name), "--bootstrap", "127.0.0.1:1"])
        assert done.exit_code == Code.USAGE and why in done.output
    assert list(read_dump(there)) == [record(1)]


def test_nobody_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sidecar.audit.source.topic.TIMEOUT_S", 0.3)
    path = written(tmp_path / "a.jsonl", [record(1)])
    for args in (["dump", str(tmp_path / "b.jsonl")], ["load", str(path)]):
        done = CliRunner().invoke(app, ["state", *args, "--bootstrap", "127.0.0.1:1"])
        assert done.exit_code == Code.UNREACHED and "--bootstrap" in done.output
    assert [p.name for p in tmp_path.iterdir()] == ["a.jsonl"], "no half of a file is left"
