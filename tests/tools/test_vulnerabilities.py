"""Verdicts on the answers that pip-audit may give. A program that prints what it is given plays pip-audit."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tools.vulnerabilities import CLEAN, NOT_LOOKED_UP, VULNERABLE, check

FINE = {"name": "a", "version": "1", "vulns": []}
BAD = {"name": "b", "version": "2", "vulns": [{"id": "CVE-1", "fix_versions": ["3"]}]}
SKIPPED = {"name": "c", "skip_reason": "Dependency not found"}


def played(folder: Path, **answers: object) -> list[str]:
    """Exits with 0 whatever it says, as pip-audit does when it has skipped everything."""
    texts = {name: a if isinstance(a, str) else json.dumps({"dependencies": a}) for name, a in answers.items()}
    file = folder / "audit.py"
    file.write_text(f"import sys\ntexts = {texts!r}\nprint(texts[sys.argv[-1].partition('=')[2]])\n")
    return [sys.executable, str(file)]


@pytest.mark.parametrize(
    ("pypi", "osv", "code", "said"),
    [
        ([FINE], "-", CLEAN, "1 packages were looked up at pypi"),
        ([FINE, BAD], "-", VULNERABLE, "VULNERABLE b 2: CVE-1, fixed in 3"),
        ([SKIPPED, BAD], "-", VULNERABLE, "CVE-1"),
        ([FINE, SKIPPED], [FINE, FINE], CLEAN, "2 packages were looked up at osv"),
        ([FINE, SKIPPED], [FINE, BAD], VULNERABLE, "CVE-1"),
        ([SKIPPED], "", NOT_LOOKED_UP, "NOT LOOKED UP"),
        ("not JSON", [], NOT_LOOKED_UP, "NOT LOOKED UP"),
    ],
)
def test_only_what_was_looked_up_passes(
    pypi: object, osv: object, code: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(tmp_path / "x.lock", played(tmp_path, pypi=pypi, osv=osv)) == code
    assert said in capsys.readouterr().out
