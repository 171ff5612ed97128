"""Mutants by rules, made from the syntax tree: how many of them survive the quick tests?

    python -m tests.mutants.random [--n 60] [--seed 1] [--jobs 2] [--whole] [--list]

One small change each: a comparison turned round, a condition negated, `and` for `or`, a constant off by one, a call
left out, a `return` of nothing. Each is tried on the tests of the rooms that its file belongs to,
and with `--whole` on all of the quick tier if these pass. What survives is printed as a diff: it is the same program in
other words, or a test is missing.
"""

from __future__ import annotations

import argparse
import ast
import copy
import difflib
import json
import os
import random
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.run import OUT
from tests.mutants.slot import Slot
from tests.mutants.suites import PYTEST, SUITE_S, Clean, play, suite
from tests.mutants.table import ROOT

OVER = ("sidecar/core", "sidecar/coordinator/membership/owners_group.py", "sidecar/front", "sidecar/state/fold.py")
FAR = ("tests/coordinator", "tests/api", "tests/front/test_steady.py")
RANDOM = tuple(f"tests/core/test_random_{of}.py" for of in ("groups", "classic", "mixed"))
ROOMS: dict[str, tuple[tuple[str, ...], ...]] = {
    "sidecar/core": (
        (
            "tests/core/test_stories.py",
            "tests/core/consumer",
            "tests/core/test_timers.py",
            "tests/core/test_takeover.py",
        ),
        ("tests/core", *(f"--ignore={test}" for test in RANDOM), "--ignore=tests/core/test_stories.py"),
    ),
    "sidecar/front": (("tests/front", "--ignore=tests/front/test_tls_hostile.py"),),
    "sidecar/coordinator": (
        (
            "tests/coordinator/membership/test_owners_group.py",
            "tests/coordinator/membership/test_member_lease.py",
            "tests/coordinator/membership/test_peer_links.py",
        ),
    ),
    "sidecar/state": (
        ("tests/coordinator/statelog/test_tail.py", "tests/audit/test_fold.py", "tests/core/test_takeover.py"),
    ),
}
"""The tests of a folder, the cheapest first."""
FLIPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
REPORTING_CALLS = frozenset({"log", "debug", "info", "warning", "error", "count", "observe", "inc", "set_function"})
"""Calls that only log or count."""


@dataclass(frozen=True, slots=True)
class Mutant:
    file: str
    line: int
    what: str
    text: str
    """The whole file with the change."""

    def diff(self) -> str:
        before, after = (ROOT / self.file).read_text().splitlines(), self.text.splitlines()
        lines = list(difflib.unified_diff(before, after, self.file, self.file, lineterm="", n=2))
        return "\n".join(lines[2:])


def mutants(file: Path) -> Iterator[Mutant]:
    """Returns all mutants of one file, in their order."""
    text = file.read_text()
    lines = text.splitlines(keepends=True)
    tree = ast.parse(text)
    for node in list(ast.walk(tree)):
        for what, new in _changes(node):
            changed = _spliced(lines, node, new)
            if changed != text and _compiles(changed):
                yield Mutant(str(file.relative_to(ROOT)), getattr(node, "lineno", 0), what, changed)


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in FLIPPED:
        other = copy.copy(node)
        other.ops = [FLIPPED[type(node.ops[0])]()]
        yield "comparison", other
    elif isinstance(node, ast.BoolOp):
        yield "and or", ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    elif isinstance(node, ast.If | ast.While) and not isinstance(node.test, ast.Constant):
        other_if = copy.copy(node.test)
        yield "condition", _Test(other_if)
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and not _reports(node.value):
        yield "call left out", ast.Pass()
    elif isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
        yield "return", ast.Return(ast.Constant(None))
    elif isinstance(node, ast.Return) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, bool):
        yield "return", ast.Return(ast.Constant(not node.value.value))
    elif isinstance(node, ast.Constant) and type(node.value) is int and 0 <= node.value <= 2:
        yield "constant", ast.Constant(node.value + 1)


@dataclass
class _Test(ast.AST):
    """Stands for the condition of an `if`, negated."""

    test: ast.expr


def _reports(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr in REPORTING_CALLS


def _spliced(lines: list[str], node: ast.AST, new: ast.AST) -> str:
    """The source with this node written anew, and everything else as it is."""
    where: ast.AST = node.test if isinstance(new, _Test) and isinstance(node, ast.If | ast.While) else node
    said = f"not ({ast.unparse(new.test)})" if isinstance(new, _Test) else ast.unparse(new)
    if isinstance(new, ast.expr):
        said = f"({said})" if not isinstance(new, ast.Constant) else said
    first, last = getattr(where, "lineno", 0) - 1, getattr(where, "end_lineno", 0) - 1
    begin, end = getattr(where, "col_offset", 0), getattr(where, "end_col_offset", 0)
    head = lines[first].encode()[:begin].decode()
    tail = lines[last].encode()[end:].decode()
    return "".join((*lines[:first], head + said + tail, *lines[last + 1 :]))


def _compiles(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def sample(n: int, seed: int) -> list[Mutant]:
    """Returns `n` mutants of all files; a long file has more of them."""
    files = sorted(p for over in OVER for p in ([ROOT / over] if over.endswith(".py") else (ROOT / over).rglob("*.py")))
    every = [m for file in files for m in mutants(file)]
    return random.Random(seed).sample(every, min(n, len(every)))


def commands(file: str, whole: bool) -> list[list[str]]:
    room = next(r for r in ROOMS if file.startswith(r))
    found = [[*PYTEST, *tests] for tests in ROOMS[room]]
    if not whole:
        return found
    return [*found, [*PYTEST, *RANDOM], [*PYTEST, *FAR], suite("quick")]


def hunt(slot: Slot, clean: Clean, mutant: Mutant, whole: bool) -> str:
    """Returns the test that has found the mutant; "" if none has."""
    try:
        slot.plant(mutant.file, mutant.text)
        for command in commands(mutant.file, whole):
            limit_s = SUITE_S["quick"]
            if test := clean.finding_test(play(slot, command, limit_s), command, limit_s):
                return test
        return ""
    finally:
        slot.restore(mutant.file)


def run(some: Sequence[Mutant], jobs: int, whole: bool) -> list[str]:
    trees = OUT / f"random-{os.getpid()}"
    clean_slot, slots = Slot(trees / "clean"), [Slot(trees / f"slot-{i}") for i in range(jobs)]
    clean, free = Clean(clean_slot), SimpleQueue[Slot]()
    for slot in slots:
        free.put(slot)

    def hunt_in_free_slot(mutant: Mutant) -> str:
        slot = free.get()
        try:
            found = hunt(slot, clean, mutant, whole)
        finally:
            free.put(slot)
        where = f"{mutant.file}:{mutant.line} {mutant.what}"
        print(f"{where}: {found}" if found else f"{where}: SURVIVED\n{mutant.diff()}", flush=True)
        return found

    try:
        with ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(hunt_in_free_slot, some))
    finally:
        for slot in (clean_slot, *slots):
            slot.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--whole", action="store_true", help="try survivors on the whole quick tier")
    parser.add_argument("--list", action="store_true", help="only say which mutants there would be")
    args = parser.parse_args()
    some = sample(args.n, args.seed)
    if args.list:
        for mutant in some:
            print(f"{mutant.file}:{mutant.line} {mutant.what}\n{mutant.diff()}")
        return 0
    found = run(some, args.jobs, args.whole)
    left = sum(not f for f in found)
    share = round(100 * left / len(some), 1)
    told = {"n": len(some), "seed": args.seed, "survived": left, "survived_percent": share, "whole": args.whole}
    (OUT / "mutants-random.json").write_text(json.dumps(told) + "\n")
    print(f"{left} of {len(some)} mutants survive, {share} %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
