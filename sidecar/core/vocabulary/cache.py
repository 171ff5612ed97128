"""Caches whose keys clients choose: bounded in bytes, for any number of names of any length."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import islice
from typing import Any, TypeVar

KEY_BYTES = 300
"""Longest key of a cache of names; entries with longer keys are not kept. Names of topics end at 249 characters, and
ids of groups are seldom longer."""
ENTRY_BYTES = 150
"""About how many bytes an entry takes beside its key."""
CACHE_BYTES = 4 << 20
"""Size of one cache of names: some 25,000 ordinary names."""
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Shared:
    """A budget in bytes that several caches share. When it is used up, all of these caches are cleared."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.forgotten = 0
        """Number of times that all caches were cleared."""
        self._caches: dict[int, BoundedCache[Any, Any]] = {}
        """The caches that have entries, by their identity."""

    def take(self, cache: BoundedCache[Any, Any], size: int) -> None:
        if self.used_bytes + size > self.limit_bytes:
            self.forgotten += 1
            for each in list(self._caches.values()):
                each.clear()
        self._caches[id(cache)] = cache
        self.used_bytes += size

    def give_back(self, cache: BoundedCache[Any, Any], size: int) -> None:
        self.used_bytes -= size
        if not cache:
            self._caches.pop(id(cache), None)


class BoundedCache(dict[K, V]):
    """A dict of bounded size. `make(key)` makes a missing value; `weigh(value)`: bytes of a value, where it may be
    large. When `limit_bytes` are used up, the older half goes. Entries are set one by one: `update` would bypass the
    limits."""

    __slots__ = ("_make", "_weigh", "key_bytes", "limit_bytes", "shared", "used_bytes")

    def __init__(
        self,
        limit_bytes: int = CACHE_BYTES,
        make: Callable[[K], V] | None = None,
        *,
        key_bytes: int = KEY_BYTES,
        weigh: Callable[[V], int] | None = None,
    ) -> None:
        super().__init__()
        self.limit_bytes, self.key_bytes = limit_bytes, key_bytes
        self.used_bytes = 0
        self.shared: Shared | None = None
        self._make, self._weigh = make, weigh

    def __missing__(self, key: K) -> V:
        if self._make is None:
            raise KeyError(key)
        value = self._make(key)
        self[key] = value
        return value

    def __setitem__(self, key: K, value: V) -> None:
        self.forget(key)
        size = self._size(key, value)
        if bytes_of(key) > self.key_bytes or size > self.limit_bytes:
            return
        while self.used_bytes + size > self.limit_bytes:
            for older in list(islice(self, (len(self) + 1) // 2)):
                del self[older]
        if self.shared is not None:
            self.shared.take(self, size)
        self.used_bytes += size
        super().__setitem__(key, value)

    def __delitem__(self, key: K) -> None:
        size = self._size(key, super().__getitem__(key))
        super().__delitem__(key)
        self._give_back(size)

    def forget(self, key: K) -> None:
        if key in self:
            del self[key]

    def clear(self) -> None:
        super().clear()
        self._give_back(self.used_bytes)

    def _size(self, key: K, value: V) -> int:
        return bytes_of(key) + ENTRY_BYTES + (self._weigh(value) if self._weigh is not None else 0)

    def _give_back(self, size: int) -> None:
        self.used_bytes -= size
        if self.shared is not None:
            self.shared.give_back(self, size)


def bytes_of(key: object) -> int:
    """Bytes of the text in a key: up to 4 bytes for a character where not all are ASCII."""
    if isinstance(key, str):
        return len(key) if key.isascii() else 4 * len(key)
    if isinstance(key, tuple):
        return sum(map(bytes_of, key))
    return len(key) if isinstance(key, bytes) else 8
