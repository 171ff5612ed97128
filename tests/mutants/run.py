"""Plant each bug of the table in a copy of the tree, and see which test finds it.

    python -m tests.mutants.run [--room R] [--id X] [--jobs 2] [--tier quick|test|all] [--only-by] [--again]

The tests that the table expects come first; if they pass, all tests of the tier do. A bug of a later tier than the
wanted one is tried on the wanted tier alone. Ends with 1 if a bug of the wanted tier was not found. What was found is
kept in out/mutants.json, also from run to run, so that rooms can be run one by one.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import SimpleQueue
from threading import Lock

from tests.mutants.slot import Slot
from tests.mutants.suites import BY_S, SUITE_S, Clean, command_of, play, suite
from tests.mutants.table import ROOT, TIERS, Planted, all_planted

OUT = ROOT / "out"
KEPT = OUT / "mutants.json"
SURVIVED = "SURVIVED"


@dataclass(frozen=True, slots=True)
class Result:
    """`tier`: the cheapest that found the bug, SURVIVED if none did. `expected`: the table names the test."""

    id: str
    room: str
    kind: str
    tier: str
    by: str
    expected: bool
    s: float

    def line(self) -> str:
        if self.tier == SURVIVED:
            return f"{self.id}: {SURVIVED} {self.by}"
        return f"{self.id}: found by {self.by} in {self.s:.1f} s{'' if self.expected else ' (another test)'}"


def hunt(slot: Slot, clean: Clean, bug: Planted, tier: str, only_by: bool) -> Result:
    """Plant it, look for it, take it out again."""
    try:
        slot.plant(bug.file, bug.plant((ROOT / bug.file).read_text()))
        return _look(slot, clean, bug, tier, only_by)
    except RuntimeError as exc:
        return Result(bug.id, bug.room, bug.kind, SURVIVED, f"not planted: {exc}", False, 0.0)
    finally:
        slot.restore(bug.file)


def _look(slot: Slot, clean: Clean, bug: Planted, tier: str, only_by: bool) -> Result:
    wanted = TIERS[: TIERS.index(tier) + 1]
    spent_s = 0.0
    if bug.tier in wanted and bug.by:
        command = command_of(bug.by)
        ended = play(slot, command, BY_S)
        spent_s += ended.s
        if test := clean.finding_test(ended, command, BY_S):
            return Result(bug.id, bug.room, bug.kind, bug.tier, test, True, spent_s)
    for name in () if only_by else wanted:
        command = suite(name)
        ended = play(slot, command, SUITE_S[name])
        spent_s += ended.s
        if test := clean.finding_test(ended, command, SUITE_S[name]):
            return Result(bug.id, bug.room, bug.kind, name, test, False, spent_s)
    return Result(bug.id, bug.room, bug.kind, SURVIVED, "", False, spent_s)


def run(bugs: Sequence[Planted], tier: str, jobs: int, only_by: bool, keep: Callable[[Result], object]) -> list[Result]:
    """Each job has a copy of the tree of its own. `only_by`: whole tiers are not run; `keep`: told each result."""
    one_by_one = Lock()
    trees = OUT / f"mutants-{os.getpid()}"
    clean_slot, slots = Slot(trees / "clean"), [Slot(trees / f"slot-{i}") for i in range(jobs)]
    clean = Clean(clean_slot)
    free: SimpleQueue[Slot] = SimpleQueue()
    for slot in slots:
        free.put(slot)

    def hunt_in_free_slot(bug: Planted) -> Result:
        slot = free.get()
        try:
            result = hunt(slot, clean, bug, tier, only_by)
        finally:
            free.put(slot)
        with one_by_one:
            print(result.line(), flush=True)
            keep(result)
        return result

    try:
        with ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(hunt_in_free_slot, bugs))
    finally:
        for slot in (clean_slot, *slots):
            slot.close()
        shutil.rmtree(trees, ignore_errors=True)


# ---- what is told --------------------------------------------------------------------------------------------------
def in_the_simulations() -> dict[str, int]:
    """Bugs that the simulations plant by themselves, each with a test of its own: not in the table."""
    from tests.sim.planted import PLANTED as CORE
    from tests.sim.planted_classic import PLANTED_CLASSIC
    from tests.whole.planted import PLANTED as WHOLE

    return {"core": len(CORE) + len(PLANTED_CLASSIC), "whole": len(WHOLE)}


def shares(results: Iterable[Result]) -> dict[str, float]:
    """Returns the percentage of all bugs that this tier or a cheaper one finds."""
    found = list(results)
    return {
        tier: round(100 * sum(r.tier in TIERS[: i + 1] for r in found) / max(len(found), 1), 1)
        for i, tier in enumerate(TIERS)
    }


def table(results: Sequence[Result]) -> str:
    head = f"{'room':<16}{'bugs':>6}" + "".join(f"{t:>8}" for t in TIERS) + f"{'survive':>9}{'share':>8}"
    lines = [head]
    for room in [*sorted({r.room for r in results}), "all rooms"]:
        those = [r for r in results if room in (r.room, "all rooms")]
        counts = [sum(r.tier == t for r in those) for t in TIERS]
        left = sum(r.tier == SURVIVED for r in those)
        cells = "".join(f"{n:>8}" for n in counts)
        lines.append(f"{room:<16}{len(those):>6}{cells}{left:>9}{100 * sum(counts) / len(those):>7.1f}%")
    return "\n".join(lines)


def earlier(path: Path) -> list[Result]:
    return [Result(**row) for row in json.loads(path.read_text())["bugs"]] if path.is_file() else []


def keep(results: Sequence[Result], path: Path, known: Iterable[str]) -> list[Result]:
    """Writes and returns these results, and those of earlier runs that are still in the table."""
    before = earlier(path)
    new = {r.id for r in results}
    still = set(known) - new
    every = sorted([*results, *(r for r in before if r.id in still)], key=lambda r: (r.room, r.id))
    told = {
        "bugs": [asdict(r) for r in every],
        "found_percent": shares(every),
        "planted_in_the_simulations": in_the_simulations(),
    }
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(told, indent=1) + "\n")
    return every


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--room", action="append", help="only bugs of this room; may be repeated")
    parser.add_argument("--id", action="append", help="only this bug; may be repeated")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--tier", choices=TIERS, default="quick")
    parser.add_argument("--only-by", action="store_true", help="run the expected tests alone, and no whole tier")
    parser.add_argument("--again", action="store_true", help="only bugs that no run has found so far")
    args = parser.parse_args()
    every = all_planted()
    bugs = [b for b in every if (not args.room or b.room in args.room) and (not args.id or b.id in args.id)]
    if args.again:
        found = {r.id for r in earlier(KEPT) if r.tier != SURVIVED}
        bugs = [b for b in bugs if b.id not in found]
    if problems := [problem for bug in bugs if (problem := bug.problem())] or ([] if bugs else ["no such bug"]):
        print(*problems, sep="\n")
        return 2
    ids = [b.id for b in every]
    results = run(bugs, args.tier, args.jobs, args.only_by, lambda result: keep([result], KEPT, ids))
    print(table(keep(results, KEPT, ids)))
    counts = ", ".join(f"{where} {n}" for where, n in in_the_simulations().items())
    print(f"planted in the simulations, each with a test of its own: {counts}")
    wanted = TIERS[: TIERS.index(args.tier) + 1]
    tiers = {b.id: b.tier for b in bugs}
    return int(any(r.tier == SURVIVED and tiers[r.id] in wanted for r in results))


if __name__ == "__main__":
    sys.exit(main())
