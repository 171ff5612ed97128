"""Finds docstrings that begin without a subject: with a pronoun, a question word, or "Of".

python -m tools.docstrings [FOLDER ...]     # prints them; folders of the repository, such as sidecar/core/share

The first line of a docstring is an action ("Returns the owner of the partition") or a noun phrase ("The partitions
whose leaders have moved").
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("sidecar", "tests", "tools", "benchmarks")
GENERATED = "sidecar/wire/generated"
WITHOUT_SUBJECT = frozenset(
    [
        "what",
        "who",
        "whom",
        "whose",
        "which",
        "whoever",
        "whatever",
        "whichever",
        "that",
        "this",
        "these",
        "those",
        "it",
        "its",
        "they",
        "them",
        "their",
        "he",
        "his",
        "she",
        "her",
        "nobody",
        "nothing",
        "somebody",
        "anybody",
        "where",
        "when",
        "how",
        "why",
        "here",
        "there",
        "then",
        "so",
        "of",
        "and",
        "or",
        "but",
        "also",
        "not",
    ]
)


def faults(root: Path = ROOT, folders: Iterable[str] = FOLDERS) -> Iterator[str]:
    """Yields the file, the line and the first line of each, below these folders of the repository."""
    for folder in folders:
        for path in sorted((root / folder).rglob("*.py")):
            file = path.relative_to(root)
            if file.is_relative_to(GENERATED):
                continue
            for line, text in _texts(ast.parse(path.read_text())):
                if text.split(maxsplit=1)[0].strip(".,:;").lower() in WITHOUT_SUBJECT:
                    yield f"{file}:{line}: {text}"


def _texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yields each string that stands as a statement: the docstrings, those of attributes and constants among them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines = node.value.value.strip().splitlines() if isinstance(node.value.value, str) else []
            yield from ((node.lineno, line) for line in lines[:1])


def main() -> None:
    found = list(faults(folders=sys.argv[1:] or FOLDERS))
    print(*found, len(found), sep="\n")


if __name__ == "__main__":
    main()
