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
    (root / "core").mkdir(exist_ok=True)
    (root / "core" / "group.py").write_text(CODE.format(**{**GOOD, **lines}))
    return [fault.partition(": ")[2] for fault in faults(root)]


def test_every_docstring_begins_with_a_subject_or_an_action(tmp_path: Path) -> None:
    assert faults_in(tmp_path) == []
    for place in GOOD:
        for text in ("What a member owns.", "Those that left.", "Of one member.", "it: a member"):
            assert faults_in(tmp_path, **{place: text}) == [text]


def test_generated_code_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "wire" / "generated").mkdir(parents=True)
    (tmp_path / "wire" / "generated" / "fetch.py").write_text('"""What is sent."""\n')
    assert faults_in(tmp_path) == []
