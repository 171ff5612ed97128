"""Patterns of managed groups: matching, parsing, and warnings. Pure; both halves of the sidecar use it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import pairwise

import re2

_QUIET = re2.Options()
_QUIET.log_errors = False
_QUIET.never_capture = True
"""Without this option RE2 writes an administrator's pattern to stderr."""


class Patterns:
    """Matches group ids: those that one of `include` matches as a whole, and none of `exclude`; never those in
    `never`."""

    def __init__(self, include: Iterable[str], exclude: Iterable[str], never: Collection[str] = ()) -> None:
        """Raises re2.error for a pattern that is no regular expression."""
        self.include, self.exclude = tuple(include), tuple(exclude)
        self.never = frozenset(never)
        self._include = [re2.compile(p, _QUIET) for p in self.include]
        self._exclude = [re2.compile(p, _QUIET) for p in self.exclude]

    def __call__(self, group_id: str) -> bool:
        if group_id in self.never or not any(p.fullmatch(group_id) for p in self._include):
            return False
        return not any(p.fullmatch(group_id) for p in self._exclude)


def split(text: str) -> tuple[str, ...]:
    """Splits comma-separated patterns. A comma inside braces or brackets belongs to its pattern."""
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
    """Returns the reason why a pattern in this text is invalid; empty if all are valid."""
    for pattern in split(text):
        if reason := reason_against(pattern):
            return f"{pattern} is no regular expression: {reason}"
    return ""


def reason_against(pattern: str) -> str:
    """Returns RE2's reason against this pattern; empty if it is a regular expression."""
    try:
        re2.compile(pattern, _QUIET)
    except re2.error as exc:
        return exc.args[0].decode() if exc.args and isinstance(exc.args[0], bytes) else str(exc)
    return ""


def without_brackets(text: str) -> str:
    """Returns the value as kafka-configs would pass it on: it takes every [ and ] for the mark of a list, and drops
    it."""
    return text.replace("[", "").replace("]", "")


def doubts(patterns: Iterable[str], former: Iterable[str] = ()) -> list[str]:
    """Returns warnings about patterns that are probably mistakes. `former`: the patterns that they replace."""
    bracketed = {without_brackets(p): p for p in former if p != without_brackets(p)}
    notes = []
    for p in patterns:
        if p in bracketed:
            notes.append(f"{p} is the former {bracketed[p]} without its brackets, which kafka-configs drops")
        elif never_matches(p):
            notes.append(f"{p} matches no name: ^ and $ count inside of [...] only, and kafka-configs drops brackets")
    return notes


def never_matches(pattern: str) -> bool:
    """Whether a ^ stands behind a character, or a $ before one. Detects plain cases only."""
    plain = _outside_of_brackets(pattern)
    ends_early = any(before == "$" and c.isalnum() for before, c in pairwise(plain))
    return "^" in _fixed(plain)[1:] or (ends_early and not any(c in plain for c in "|?*{"))


def beginning(pattern: str) -> tuple[str, bool] | None:
    """Returns the fixed beginning of all names that this pattern matches, and whether it is the whole name. None: none
    is fixed."""
    plain = pattern.removeprefix("^").removesuffix("$")
    if "|" in plain:
        return None
    fixed = _fixed(plain)
    whole = fixed == plain.replace("\\", "")
    return (fixed, whole) if fixed else None


def _fixed(pattern: str) -> str:
    """Returns the literal characters at the beginning of the pattern."""
    prefix, i = "", 0
    while i < len(pattern):
        c = pattern[i]
        if c == "\\" and i + 1 < len(pattern) and not pattern[i + 1].isalnum():
            c, i = pattern[i + 1], i + 1
        elif c in "\\.[](){}*+?|$":
            return prefix[:-1] if c in "*?{" else prefix
        prefix += c
        i += 1
    return prefix


def _outside_of_brackets(pattern: str) -> str:
    """Replaces each [...] and each escaped character by an x."""
    plain, inside, escaped = "", False, False
    for c in pattern:
        if escaped:
            escaped, c = False, "x"
        elif c == "\\":
            escaped = True
            continue
        elif inside:
            inside, c = c != "]", ""
        elif c == "[":
            inside, c = True, "x"
        plain += c
    return plain
