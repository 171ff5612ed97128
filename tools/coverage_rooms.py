"""Prints the branch coverage of each room, and the functions that no test has entered.

`make coverage` runs the tests of a tier and then this. Sidecars and commands under test are measured as well, but a
process that a test kills with SIGKILL leaves nothing behind.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
GENERATED = "sidecar/wire/generated/"
SHOWN = 60


def report() -> dict[str, Any]:
    """Returns coverage's own report of each file, by its path below the root."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "coverage.json"
        subprocess.run([sys.executable, "-m", "coverage", "json", "-q", "-o", str(out)], cwd=ROOT, check=True)
        files: dict[str, Any] = json.loads(out.read_text())["files"]
    return files


def room_of(file: str) -> str:
    parts = file.split("/")
    return parts[1] if len(parts) > 2 else parts[0]


def functions(file: str) -> Iterator[tuple[str, int, int]]:
    """Yields name, first line of the body and last line of every function, but for those that only declare one."""
    for node in ast.walk(ast.parse((ROOT / file).read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not _declares(node):
            yield node.name, node.body[0].lineno, node.end_lineno or node.lineno


def _declares(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether the function has no code, as that of a protocol."""
    return all(isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant) for s in node.body)


def never_entered(file: str, executed: set[int]) -> Iterator[str]:
    for name, first, last in functions(file):
        if not executed & set(range(first, last + 1)):
            yield f"{file}:{first} {name}"


def main() -> int:
    files = {name: coverage for name, coverage in report().items() if not name.startswith(GENERATED)}
    rooms: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    missed: list[str] = []
    for name, coverage in sorted(files.items()):
        s, row = coverage["summary"], rooms[room_of(name)]
        for i, key in enumerate(("num_branches", "covered_branches", "num_statements", "covered_lines")):
            row[i] += s[key]
        missed += never_entered(name, set(coverage["executed_lines"]))
    print(f"{'room':16}{'branches':>10}{'covered':>9}{'lines':>9}{'covered':>9}")
    for room, (branches, taken, lines, run) in sorted(rooms.items()):
        print(f"{room:16}{branches:10}{taken / max(branches, 1):9.1%}{lines:9}{run / max(lines, 1):9.1%}")
    print(f"functions that no test has entered: {len(missed)}")
    for line in missed[:SHOWN]:
        print(f"  {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
