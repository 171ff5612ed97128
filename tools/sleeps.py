"""Counts the sleeps of the tests: a file may have no more than SLEEPS says, so that their number only goes down.

python -m tools.sleeps      # the table as it would be now

A sleep is a call of `sleep` of `asyncio` or `time` (but not `asyncio.sleep(0)`, which only lets the others run), or
Playwright's `wait_for_timeout`. A test that waits waits for an event, with a limit that is no part of its verdict, or
on virtual time (tests/inprocess/clock.py, tests/whole/loop.py).
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent / "tests"
CLOCKS = ("asyncio", "time")
VIRTUAL = "on virtual time"
BROKER = "real brokers and processes: what it waits for sends no event, or nobody has asked for it yet"
SLEEPS: Mapping[str, tuple[int, str]] = {
}
"""File, how many sleeps it may have, and why."""


def _is_sleep(call: ast.Call, bare: set[str]) -> bool:
    f = call.func
    if isinstance(f, ast.Attribute) and f.attr == "wait_for_timeout":
        return True
    ours = isinstance(f, ast.Attribute) and f.attr == "sleep" and isinstance(f.value, ast.Name) and f.value.id in CLOCKS
    ours = ours or (isinstance(f, ast.Name) and f.id in bare)
    at_once = len(call.args) == 1 and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0
    return ours and not at_once


def count(source: str) -> int:
    tree = ast.parse(source)
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module in CLOCKS]
    bare = {alias.asname or alias.name for node in imports for alias in node.names if alias.name == "sleep"}
    return sum(isinstance(node, ast.Call) and _is_sleep(node, bare) for node in ast.walk(tree))


def counts(root: Path) -> dict[str, int]:
    """Every file that sleeps, and how often."""
    found = {path.relative_to(root).as_posix(): count(path.read_text("utf-8")) for path in sorted(root.rglob("*.py"))}
    return {name: n for name, n in found.items() if n}


def problems(root: Path = TESTS, allowed: Mapping[str, tuple[int, str]] = SLEEPS) -> Iterator[str]:
    found = counts(root)
    for name in sorted({*found, *allowed}):
        n, most = found.get(name, 0), allowed.get(name, (0, ""))[0]
        if n > most:
            yield f"tests/{name}: {n} sleeps, and it may have {most}: wait for an event, or on virtual time"
        elif n < most:
            yield f"tests/{name}: {n} sleeps, and SLEEPS allows {most}: lower it in tools/sleeps.py"


def main() -> int:
    for name, n in counts(TESTS).items():
        why = SLEEPS.get(name, (0, ""))[1]
        known = next((word for word, text in (("VIRTUAL", VIRTUAL), ("BROKER", BROKER)) if text == why), repr(why))
        print(f'    "{name}": ({n}, {known}),')
    return 0


if __name__ == "__main__":
    sys.exit(main())
