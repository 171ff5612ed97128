"""Names use words that are explained or listed: on a tiny repository, never on this one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from tools import words

FILES = {
    words.GLOSSARY: "| group epoch | Rises with each change. | KIP-848 |\n",
    words.PLAIN: "of the rises sidecar\n",
    "sidecar/core/epoch.py": "class GroupEpoch: ...\n",
    "sidecar/wire/generated/strange.py": "class NotOurs: ...\n",
    "docs/reference/settings.md": "- `group.rises` = 1: It does.\n",
    "docs/reference/metrics.md": "`sidecar_group_epoch`\n",
    "docs/reference/logs.md": "- **the epoch of the group rises** (`n`) It does.\n",
}


def problems(root: Path, files: Mapping[str, str]) -> list[str]:
    for name, text in {**FILES, **files}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return words.problems(root)


def test_words_of_names_in_any_spelling() -> None:
    assert words.words_of("SASLLogin_of.a topic's HTTPPage2") == [
        "sasl",
        "login",
        "of",
        "a",
        "topic",
        "s",
        "http",
        "page",
    ]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("sidecar/core/tenure.py", ""),
        ("sidecar/core/epoch.py", "class GroupEpoch: ...\nclass _Tenure: ...\n"),
        ("docs/reference/settings.md", "- `group.tenure` = 1: It ends.\n"),
        ("docs/reference/metrics.md", "`sidecar_tenure`\n"),
        ("docs/reference/logs.md", FILES["docs/reference/logs.md"] + "- **a tenure of the group** It ends.\n"),
    ],
)
def test_a_word_that_is_neither_explained_nor_listed_is_found(tmp_path: Path, file: str, text: str) -> None:
    plain = FILES[words.PLAIN] + " a"
    found = problems(tmp_path, {file: text, words.PLAIN: plain})
    assert [f for f in found if f.startswith("tenure: in ") and file in f], found


def test_a_listed_word_that_no_name_uses_is_found(tmp_path: Path) -> None:
    assert problems(tmp_path, {words.PLAIN: "of the sidecar tenure"}) == [
        f"tenure: in {words.PLAIN}, but no name uses it"
    ]


@pytest.mark.parametrize("page", words.REFERENCE)
def test_a_page_in_which_no_name_is_found_is_a_problem(tmp_path: Path, page: str) -> None:
    """Symptom: the page of settings was written in another form, and its names were not checked any more."""
    assert f"no name in {page}" in problems(tmp_path, {page: "# A page of another form\n"})


def test_the_list_can_be_made_anew(tmp_path: Path) -> None:
    problems(tmp_path, {})
    (tmp_path / words.PLAIN).write_text(words.new(tmp_path))
    assert words.problems(tmp_path) == []
