"""Chooses the connection that gives way to a new one when all places are taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


def gives_way(holders: Iterable[T], host: Callable[[T], str], order: Callable[[T], Any]) -> T:
    """Returns the first one by `order` of the address that has most places. So a client that takes all places, from one
    address or from a few, takes them from itself."""
    all_of = list(holders)
    taken = Counter(map(host, all_of))
    most = max(taken.values())
    return min((one for one in all_of if taken[host(one)] == most), key=order)
