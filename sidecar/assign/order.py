"""Orders of strings that the results of assignors depend on."""

from __future__ import annotations

from collections.abc import Collection


def sorted_as_java(ids: Collection[str]) -> list[str]:
    """Sorts strings as Java does, by UTF-16 units; for ASCII that is Python's order."""
    if all(map(str.isascii, ids)):
        return sorted(ids)
    return sorted(ids, key=lambda i: i.encode("utf-16-be", "surrogatepass"))
