"""Iteration orders of java.util.HashMap and HashSet, so that our results can be compared with Kafka's one by one.

A kernel takes as an argument what is an accident of hash maps in Kafka. In production all orders ascend.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
WORD = 0xFFFFFFFF


def of_int(number: int) -> int:
    return number & WORD


def of_string(text: str) -> int:
    units, value = text.encode("utf-16-be"), 0
    for i in range(0, len(units), 2):
        value = (value * 31 + (units[i] << 8 | units[i + 1])) & WORD
    return value


def of_uuid(raw: bytes) -> int:
    both = int.from_bytes(raw[:8], "big") ^ int.from_bytes(raw[8:], "big")
    return (both >> 32 ^ both) & WORD


def of_topic_partition(key: tuple[bytes, int]) -> int:
    return (of_uuid(key[0]) * 31 + key[1]) & WORD


def sized(mappings: int) -> int:
    """The capacity that Kafka asks for where it knows the number of mappings (AssignorHelpers.newHashMap)."""
    return int((mappings + 1) / 0.75 + 1)


class JavaOrder(Generic[K]):
    """The keys of a HashMap in the order of its iterator. `put` appends to a bucket and resizes afterwards;
    `compute_if_absent` resizes first, even if the key is there, and inserts at the head of a bucket."""

    def __init__(self, hash_of: Callable[[K], int], capacity: int = 16) -> None:
        self.hash_of = hash_of
        self.buckets: list[list[K]] = []
        self.capacity = 1
        while self.capacity < capacity:
            self.capacity *= 2
        self.known: set[K] = set()

    def _bucket(self, key: K) -> list[K]:
        value = self.hash_of(key)
        return self.buckets[(value ^ value >> 16) & (self.capacity - 1)]

    def _resize(self) -> None:
        keys = self.order()
        if self.buckets:
            self.capacity *= 2
        self.buckets = [[] for _ in range(self.capacity)]
        for key in keys:
            self._bucket(key).append(key)

    def put(self, key: K) -> None:
        if not self.buckets:
            self._resize()
        if key in self.known:
            return
        self._bucket(key).append(key)
        self.known.add(key)
        if len(self.known) > self.capacity * 0.75:
            self._resize()

    def compute_if_absent(self, key: K) -> None:
        if not self.buckets or len(self.known) > self.capacity * 0.75:
            self._resize()
        if key not in self.known:
            self._bucket(key).insert(0, key)
            self.known.add(key)

    def order(self) -> list[K]:
        return [key for bucket in self.buckets for key in bucket]
