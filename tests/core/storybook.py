"""Plays a story: lines that do something, each followed by what it was answered (tests/stories/README.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

STORIES = Path(__file__).parent.parent / "stories"
OF_MEMBERS = ("consumer", "classic", "migration", "moves")
"""Folders of the stories that tests/core/test_stories.py plays; their numbers go on from folder to folder."""


def stories(*folders: str) -> list[Path]:
    return sorted((p for f in folders for p in (STORIES / f).glob("*.txt")), key=lambda p: p.name)


def check(path: Path, run: Callable[[str], Iterable[str]], rewrite: bool) -> None:
    """The answers are those of the file. `rewrite`: they are written there first."""
    wanted = path.read_text()
    got: list[str] = []
    for line in wanted.splitlines():
        if line.startswith("    "):
            continue  # an answer of last time
        got.append(line)
        command = line if line.startswith("event ") else line.partition("#")[0].strip()
        if command:
            got += [f"    {answer}" for answer in run(command)]
    text = "\n".join(got) + "\n"
    if rewrite:
        path.write_text(text)
    assert text == wanted
