"""Checks that names use the words of docs/design/glossary.md, or one of the plain words in words.txt.

python -m tools.words        # the words that are in neither, and the plain ones that no name uses
python -m tools.words --new  # words.txt as it would be now: read the difference, and look for a word that is there

Names are those of modules, classes, settings, metrics and log events. A word that is in neither is a second word for a
concept that has one, or a new concept, which the glossary should explain.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GLOSSARY = "docs/design/glossary.md"
PLAIN = "tools/words.txt"
REFERENCE = {
    "docs/reference/settings.md": r"^- `([a-z_.]+)`",
    "docs/reference/metrics.md": r"`(sidecar_[a-z_]+)`",
    "docs/reference/logs.md": r"^- \*\*(.*?)\*\*",
}
"""Pages that are made from the code, and where a name stands in them."""
ELSEWHERE = ("generated", "drill", "parts")
"""Folders whose names are not ours, or are no part of what is installed for others."""


def words_of(name: str) -> list[str]:
    """Returns the words of a name in any spelling: snake_case, CamelCase, with dots, or a sentence."""
    return [w.lower() for w in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def names(root: Path = ROOT) -> Iterator[tuple[str, str]]:
    """Every name, and where it stands."""
    for path in sorted((root / "sidecar").rglob("*.py")):
        where = path.relative_to(root)
        if not set(ELSEWHERE) & set(where.parts):
            yield path.stem, str(where)
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    yield node.name, f"{where}:{node.lineno}"
    for page, pattern in REFERENCE.items():
        for name in re.findall(pattern, (root / page).read_text(encoding="utf-8"), re.MULTILINE):
            yield name, page


def problems(root: Path = ROOT) -> list[str]:
    explained = set(words_of((root / GLOSSARY).read_text(encoding="utf-8")))
    plain = set((root / PLAIN).read_text(encoding="utf-8").split())
    used = {word: f"{word}: in {name}, {where}" for name, where in names(root) for word in words_of(name)}
    unknown = [used[w] for w in sorted(used.keys() - explained - plain)]
    spare = [f"{w}: in {PLAIN}, but no name uses it" for w in sorted(plain - (used.keys() - explained))]
    without = [f"no name in {page}" for page in REFERENCE if page not in {where for _, where in names(root)}]
    return unknown + spare + without


def new(root: Path = ROOT) -> str:
    explained = set(words_of((root / GLOSSARY).read_text(encoding="utf-8")))
    used = {word for name, _ in names(root) for word in words_of(name)}
    return textwrap.fill(" ".join(sorted(used - explained)), 120) + "\n"


if __name__ == "__main__":
    if "--new" in sys.argv[1:]:
        sys.stdout.write(new())
    else:
        unknown = problems()
        print("\n".join(unknown))
        sys.exit(bool(unknown))
