"""Sources that cannot be read say so: each wrong file, option or checkpoint is an AuditError that says what to do."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from sidecar.audit.errors import AuditError
from sidecar.audit.source.uri import dump, open_source
from tests.audit.lake.making import bronze, log

ENTRIES = log(3, 40)


@pytest.fixture
def line(tmp_path: Path) -> str:
    """The first line of a dump."""
    dump([bronze(ENTRIES, 0)], tmp_path / "whole.jsonl.gz")
    return gzip.decompress((tmp_path / "whole.jsonl.gz").read_bytes()).splitlines()[0].decode()


# ---- dumps ----------------------------------------------------------------------------------------------------------
def test_a_dump_that_is_no_gzip_or_was_cut_short(tmp_path: Path, line: str) -> None:
    whole = (tmp_path / "whole.jsonl.gz").read_bytes()
    damaged = bytearray(whole)
    damaged[len(whole) // 2] ^= 0xFF
    for content in (whole[: len(whole) // 2], line.encode(), bytes(damaged)):
        (file := tmp_path / "bad.jsonl.gz").write_bytes(content)
        with pytest.raises(AuditError, match=r"bad\.jsonl\.gz, .*line \d+: "):
            open_source(f"file://{file}").bounds()


@pytest.mark.parametrize(
    ("valid", "wrong"),
    [
        ('"partition":0', '"partition":3000000000'),
        ('"partition":0', '"partition":-1'),
        ('"offset":0', '"offset":-1'),
        ('"offset":0', '"offset":9223372036854775807'),
        ('"time_ms":1', '"time_ms":9999999'),
        ('"create"', '"CreateTime"'),
        ('"key":"', '"key":"?'),
    ],
)
def test_a_record_of_a_dump_that_cannot_be(valid: str, wrong: str, tmp_path: Path, line: str) -> None:
    assert valid in line
    (tmp_path / "bad.jsonl").write_text(f"{line}\n{line.replace(valid, wrong)}\n")
    with pytest.raises(AuditError, match=r"bad\.jsonl, line 2: "):
        open_source(f"file://{tmp_path}/bad.jsonl").bounds()


def test_text_of_a_dump_that_is_no_utf_8(tmp_path: Path, line: str) -> None:
    (tmp_path / "bad.jsonl").write_bytes(line.replace('"create"', '"\udcff"').encode(errors="surrogateescape"))
    with pytest.raises(AuditError, match=r"bad\.jsonl, line 1: "):
        open_source(f"file://{tmp_path}/bad.jsonl").bounds()


def test_a_dump_that_is_being_written_is_not_read_yet(tmp_path: Path, line: str) -> None:
    (tmp_path / ".part-next.jsonl.gz").write_bytes(b"\x1f\x8b")  # as `sidecar state dump` names it
    (tmp_path / "folder.json").mkdir()
    assert open_source(f"file://{tmp_path}").bounds() == {0: (0, len(ENTRIES))}
