"""Subscriptions by regular expression. Same syntax as Kafka's RE2J, linear time (KIP-848 'Regular expressions')."""

from __future__ import annotations

from collections.abc import Iterable

import re2

from sidecar.core.errors import Code, CoordinatorError

_QUIET = re2.Options()
_QUIET.log_errors = False
"""Else RE2 writes what a client sent to stderr."""


def validate(regex: str) -> None:
    """Raises INVALID_REGULAR_EXPRESSION."""
    try:
        re2.compile(regex, _QUIET)
    except re2.error as exc:
        reason = exc.args[0].decode() if exc.args and isinstance(exc.args[0], bytes) else str(exc)
        raise CoordinatorError(
            Code.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {_in_kafkas_words(reason)}.",
        ) from None


RE2J = {
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "no argument for repetition operator": "missing argument to repetition operator",
    "trailing \\": "trailing backslash at end of expression",
    "invalid named capture group": "invalid named capture",
    "unexpected )": "regexp/syntax: internal error",
}
"""What RE2 says, and RE2/J of the same."""


def _in_kafkas_words(reason: str) -> str:
    return next((theirs for ours, theirs in RE2J.items() if reason.startswith(ours)), reason.partition(":")[0])


def resolve(regexes: Iterable[str], names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """regex -> sorted names that match it as a whole."""
    names = list(names)
    found: dict[str, tuple[str, ...]] = {}
    for regex in regexes:
        pattern = re2.compile(regex, _QUIET)
        found[regex] = tuple(sorted(n for n in names if pattern.fullmatch(n)))
    return found
