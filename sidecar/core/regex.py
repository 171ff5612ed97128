"""Subscriptions by regular expression. Same syntax as Kafka's RE2J, linear time (KIP-848 'Regular expressions')."""

from __future__ import annotations

from collections.abc import Iterable

import re2

from sidecar.core.errors import Code, CoordinatorError


def validate(regex: str) -> None:
    """Raises INVALID_REGULAR_EXPRESSION."""
    try:
        re2.compile(regex)
    except re2.error as exc:
        reason = exc.args[0].decode() if exc.args and isinstance(exc.args[0], bytes) else str(exc)
        raise CoordinatorError(
            Code.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {reason}.",
        ) from None


def resolve(regexes: Iterable[str], names: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """regex -> sorted names that match it as a whole."""
    names = list(names)
    found: dict[str, tuple[str, ...]] = {}
    for regex in regexes:
        pattern = re2.compile(regex)
        found[regex] = tuple(sorted(n for n in names if pattern.fullmatch(n)))
    return found
