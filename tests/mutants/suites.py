"""The tests that each tier runs, and the verdict of such a run on a planted bug."""

from __future__ import annotations

import re
import sys
from threading import Lock

from tests.mutants.slot import Ended, Slot

PYTEST = ("pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header", "--tb=line", "-rfE")
BY_S = 240.0
SUITE_S = {"quick": 900.0, "test": 2_400.0, "all": 7_200.0}


def suite(tier: str) -> list[str]:
    return [*PYTEST, "--tier", tier]


def command_of(by: str) -> list[str]:
    """Returns the command for the tests that should find a bug, or for a module with its arguments."""
    return [sys.executable, *by.split()] if by.startswith("-m ") else [*PYTEST, *by.split()]


def play(slot: Slot, command: list[str], limit_s: float) -> Ended:
    return slot.tests(command[1:], limit_s) if command[0] == PYTEST[0] else slot.run(command, limit_s)


def failed_test(out: str) -> str:
    """The first test that failed, or the last line."""
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", out, re.MULTILINE)
    lines = out.strip().splitlines()
    return found.group(1) if found else (lines[-1][:120] if lines else "nothing said")


class Clean:
    """Results of the same commands for the tree without a bug, run only where they matter."""

    def __init__(self, slot: Slot) -> None:
        self._slot = slot
        self._ended: dict[tuple[str, ...], Ended] = {}
        self._one = Lock()

    def run(self, command: list[str], limit_s: float) -> Ended:
        key = tuple(command)
        with self._one:
            if key not in self._ended:
                self._ended[key] = play(self._slot, command, limit_s)
            return self._ended[key]

    def finding_test(self, ended: Ended, command: list[str], limit_s: float) -> str:
        """Returns the test that has found the bug; "" if none has. A run whose time is over has found it only if the
        clean tree needs less than a third of that; one that did not come to its tests, if the clean tree passes."""
        if ended.code == 0:
            return ""
        if ended.code is None:
            clean = self.run(command, limit_s)
            return "hangs" if clean.code == 0 and clean.s < limit_s / 3 else ""
        if ended.code != 1 and self.run(command, limit_s).code != 0:
            return ""
        return failed_test(ended.out)
