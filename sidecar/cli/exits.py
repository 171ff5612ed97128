"""The exit codes of all commands, and how a command says what is wrong and what to do next."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum


class Code(IntEnum):
    OK = 0
    FINDINGS = 1
    USAGE = 2
    UNREACHED = 3
    INCOMPLETE = 4
    BROKEN = 70
    INTERRUPTED = 130
    UNREAD = 141


MEANINGS: Mapping[Code, str] = {
    Code.OK: "Done, or found, and nothing is wrong: the group is stable, the doctor found no fault.",
    Code.FINDINGS: "There is something to see to: refused, nothing found, not stable, not ready, a second owner.",
    Code.USAGE: "The command line or a file that it names is wrong; nothing was done.",
    Code.UNREACHED: "Brokers, sidecars, the topic or the lake cannot be read, or it was not done in time.",
    Code.INCOMPLETE: "`sidecar audit`: no findings, but the history is not complete.",
    Code.BROKEN: "A bug of this program. The trace is on stderr.",
    Code.INTERRUPTED: "Ended by Ctrl-C.",
    Code.UNREAD: "Whoever read the output went before its end, as `head` does.",
}
"""docs/use/cli.md shows this table, and so does `sidecar --help`; tests/cli/test_docs.py compares."""


class Failed(Exception):
    """A command failed. `what` is wrong, in one line; `then`: what to do next, empty where `what` tells it. program.py
    prints both and ends with the code."""

    def __init__(self, code: Code, what: str, then: str) -> None:
        super().__init__(what)
        self.code, self.what, self.then = code, what, then
