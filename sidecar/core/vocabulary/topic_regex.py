"""Subscriptions by regular expression. Same syntax as Kafka's RE2J, linear time (KIP-848 'Regular expressions')."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import re2

from sidecar.core.vocabulary.cache import BoundedCache, bytes_of
from sidecar.core.vocabulary.errors import Code, CoordinatorError

_QUIET = re2.Options()
_QUIET.log_errors = False
"""Without this option RE2 writes a client's expression to stderr."""
_QUIET.never_capture = True
"""Captures of groups in parentheses would cost a hundred times as much, and are not used."""
_QUIET.max_mem = 4 << 20
"""Half of RE2's default: to compile an expression that needs all of it takes 20 ms."""


KEPT_BYTES, CACHE_BYTES = 1 << 15, 4 << 20
"""Cache limits: for one compiled expression, which may be as long as a string, and for all of them, more than a group
may have."""


def validate(regex: str) -> None:
    """Raises INVALID_REGULAR_EXPRESSION for an expression that RE2 refuses."""
    if reason := _REFUSED[regex]:
        raise CoordinatorError(
            Code.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {reason}.",
        )


def is_validated(regex: str) -> bool:
    """Whether this expression's verdict is cached. If not, `validate` compiles it, which takes some ms."""
    return regex in _REFUSED


def compile_into_cache(regex: str) -> None:
    """Compiles the expression into the cache, so that `validate` finds it there when a shard asks."""
    _REFUSED[regex]


def _refused(regex: str) -> str:
    """Returns RE2's reason against the expression; empty if it is valid."""
    try:
        re2.compile(regex, _QUIET)
    except re2.error as exc:
        return _in_kafkas_words(exc.args[0].decode() if exc.args and isinstance(exc.args[0], bytes) else str(exc))
    finally:
        re2.purge()  # it keeps the last 128, each with all the memory that it may take
    return ""


_REFUSED: BoundedCache[str, str] = BoundedCache(CACHE_BYTES, _refused, key_bytes=KEPT_BYTES, weigh=bytes_of)


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
"""RE2's error messages -> those of RE2/J."""


def _in_kafkas_words(reason: str) -> str:
    return next((theirs for ours, theirs in RE2J.items() if reason.startswith(ours)), reason.partition(":")[0])


def resolve(
    regexes: Iterable[str],
    names: Iterable[str],
    limit_s: float = float("inf"),
    cpu_s: Callable[[], float] = lambda: 0.0,
) -> dict[str, tuple[str, ...]]:
    """Returns regex -> sorted names that match it as a whole. All expressions together have `limit_s` of CPU time, by
    the clock `cpu_s`, and each a quarter of that. An expression that needs more is missing in the result."""
    names = list(names)
    until_s = cpu_s() + limit_s
    matches: dict[str, tuple[str, ...]] = {}
    for regex in regexes:
        matching = _matching(regex, names, min(until_s, cpu_s() + limit_s / 4), cpu_s)
        re2.purge()  # all of them together would take 1 MB each, of which the allocator keeps the half
        if matching is not None:
            matches[regex] = matching
    return matches


def _matching(regex: str, names: list[str], until_s: float, cpu_s: Callable[[], float]) -> tuple[str, ...] | None:
    """Returns the sorted names that match, or None if there was not enough time."""
    if cpu_s() >= until_s:
        return None
    pattern = re2.compile(regex, _QUIET)
    matching = []
    for name in names:
        if pattern.fullmatch(name):
            matching.append(name)
        if cpu_s() >= until_s:
            return None
    return tuple(sorted(matching))
