"""The order in which Java's HashMap and HashSet walk through strings.

Kafka's partition counts of repartition topics depend on the order in which it walks through the subtopologies, and so
do the topic that an error names and the first three topics of a status. A group that moves here from a broker keeps its
internal topics, so another count would make it NotReady for ever.
"""

from __future__ import annotations

from collections.abc import Iterable

from sidecar.native import java_hash

CAPACITY = 16
"""Java's default size of a table."""


def hash_order(keys: Iterable[str]) -> list[str]:
    """Returns the distinct keys in Java's order, for keys that are put in the order given.

    Buckets that Java turns into trees (eight keys and more) are not imitated."""
    distinct = dict.fromkeys(keys)
    capacity = CAPACITY
    while len(distinct) * 4 > capacity * 3:
        capacity *= 2
    return sorted(distinct, key=lambda key: _bucket(key, capacity))


def _bucket(key: str, capacity: int) -> int:
    h = java_hash(key) & 0xFFFFFFFF
    return (h ^ (h >> 16)) & (capacity - 1)


def compare_order(text: str) -> bytes:
    """Returns a sort key for the order of Java's String.compareTo: by UTF-16 units."""
    return text.encode("utf-16-be", "surrogatepass")
