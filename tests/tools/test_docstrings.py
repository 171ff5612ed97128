from __future__ import annotations

from pathlib import Path

from tools.docstrings import faults

CODE = '''"""{module}"""
LIMIT = 1
"""{constant}"""


class Member:
    """{cls}"""

    def owns(self) -> None:
        """{method}

        Those of the last epoch count.
        """
        text = "What is no docstring."
'''
GOOD = {
    "module": "The members of a group.",
    "constant": "Members of a group at most.",
    "cls": "A member.",
    "method": "Returns the partitions that it owns.",
}


def faults_in(root: Path, **lines: str) -> list[str]:
    (root / "sidecar" / "core").mkdir(parents=True, exist_ok=True)
    (root / "sidecar" / "core" / "group.py").write_text(CODE.format(**{**GOOD, **lines}))
    return [fault.partition(": ")[2] for fault in faults(root)]


def test_every_docstring_begins_with_a_subject_or_an_action(tmp_path: Path) -> None:
    assert faults_in(tmp_path) == []
    for place in GOOD:
        for text in ("What a member owns.", "Those that left.", "Of one member.", "it: a member"):
            assert faults_in(tmp_path, **{place: text}) == [text]


def test_generated_code_is_not_read(tmp_path: Path) -> None:
    (generated := tmp_path / "sidecar" / "wire" / "generated").mkdir(parents=True)
    (generated / "fetch.py").write_text('"""What is sent."""\n')
    assert faults_in(tmp_path) == []


def test_tests_tools_and_benchmarks_are_read_too(tmp_path: Path) -> None:
    for folder in ("tests", "tools", "benchmarks"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "run.py").write_text('"""What is run."""\n')
    assert list(faults(tmp_path)) == [f"{f}/run.py:1: What is run." for f in ("tests", "tools", "benchmarks")]
    assert list(faults(tmp_path, ["tests"])) == ["tests/run.py:1: What is run."]
