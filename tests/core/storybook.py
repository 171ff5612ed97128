"""Plays a story: lines that do something, each followed by what it was answered (tests/stories/README.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path


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
