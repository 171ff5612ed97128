"""Which groups the sidecars coordinate: patterns, and what was said of single groups. Pure; both halves use it."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import re2

_QUIET = re2.Options()
_QUIET.log_errors = False
_QUIET.never_capture = True
"""Else RE2 writes to stderr what an administrator gave it."""


class Patterns:
    """Whether a name matches one of `include` as a whole, and none of `exclude`; those of `never` do not count."""

    def __init__(self, include: Iterable[str], exclude: Iterable[str], never: Collection[str] = ()) -> None:
        """Raises re2.error for what is no regular expression."""
        self.include, self.exclude = tuple(include), tuple(exclude)
        self.never = frozenset(never)
        self._include = [re2.compile(p, _QUIET) for p in self.include]
        self._exclude = [re2.compile(p, _QUIET) for p in self.exclude]

    def __call__(self, group_id: str) -> bool:
        if group_id in self.never or not any(p.fullmatch(group_id) for p in self._include):
            return False
        return not any(p.fullmatch(group_id) for p in self._exclude)


def split(text: str) -> tuple[str, ...]:
    """Comma-separated patterns. A comma inside of braces or brackets belongs to its pattern."""
    parts, depth, begin = [], 0, 0
    escaped = False
    for i, c in enumerate(text):
        if escaped:
            escaped = False
        elif c == "\\":
            escaped = True
        elif c in "{[":
            depth += 1
        elif c in "}]":
            depth = max(depth - 1, 0)
        elif c == "," and not depth:
            parts.append(text[begin:i])
            begin = i + 1
    parts.append(text[begin:])
    return tuple(p for part in parts if (p := part.strip()))


def fault(text: str) -> str:
    """Why these patterns are none; empty if they are."""
    for pattern in split(text):
        try:
            re2.compile(pattern, _QUIET)
        except re2.error as exc:
            reason = exc.args[0].decode() if exc.args and isinstance(exc.args[0], bytes) else str(exc)
            return f"{pattern} is no regular expression: {reason}"
    return ""
