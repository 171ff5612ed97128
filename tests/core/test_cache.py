"""Caches whose keys clients choose are bounded, however many keys there are and however long they are."""

from __future__ import annotations

import random
import re
from pathlib import Path

from sidecar.core.vocabulary.cache import ENTRY_BYTES, KEY_BYTES, BoundedCache, Shared, bytes_of

CACHED = re.compile(r"lru_cache|functools\.cache\b|@cache\b")
ON_PURPOSE = {
    "api/api_versions.py": "the key is the answer of the broker",
    "link/": "a table of our own messages",
    "kafka/net.py": "the keys are our own messages and versions",
    "state/schema.py": "the key is a schema of the state topic",
}


def test_an_entry_is_made_once_and_kept() -> None:
    made: list[str] = []

    def make(key: str) -> int:
        made.append(key)
        return len(key)

    cache = BoundedCache(make=make)
    assert [cache["abc"], cache["abc"], cache["de"]] == [3, 3, 2] and made == ["abc", "de"]
    cache.clear()
    assert cache["de"] == 2 and made == ["abc", "de", "de"]


def test_a_long_key_is_served_and_not_kept() -> None:
    cache: BoundedCache[object, int] = BoundedCache(make=lambda key: 1)
    for key in ("x" * (KEY_BYTES + 1), "\N{SNOWMAN}" * (KEY_BYTES // 4 + 1), ("kind", "x" * KEY_BYTES), b"x" * 301):
        assert cache[key] == 1 and not cache and cache.used_bytes == 0
    assert cache["x" * KEY_BYTES] == 1 and len(cache) == 1


def test_of_a_full_one_the_older_half_goes() -> None:
    cache: BoundedCache[str, int] = BoundedCache(10 * (ENTRY_BYTES + 1))
    for n, key in enumerate("abcdefghij"):
        cache[key] = n
    cache["a"] = 0
    assert len(cache) == 10, "it was set anew, so it is the youngest"
    cache["k"] = 10
    assert list(cache) == ["g", "h", "i", "j", "a", "k"]


def test_the_books_are_right_whatever_is_done() -> None:
    rng = random.Random(34)
    shared = Shared(5_000)
    caches = [BoundedCache[str, str](2_000, weigh=len) for _ in range(5)]
    for cache in caches:
        cache.shared = shared
    for _ in range(20_000):
        cache, key = rng.choice(caches), "k" * rng.randrange(320)
        if rng.random() < 0.01:
            cache.clear()
        elif rng.random() < 0.2:
            cache.forget(key)
        else:
            cache[key] = "v" * rng.randrange(1_000)
        assert cache.used_bytes == sum(bytes_of(k) + ENTRY_BYTES + len(v) for k, v in cache.items()) <= 2_000
        assert shared.used_bytes == sum(c.used_bytes for c in caches) <= 5_000
    assert shared.forgotten > 100


def test_nothing_else_is_a_cache_in_the_rooms_that_hear_clients(root: Path) -> None:
    """Symptom: 80 requests of 2 MB left 600 MB behind, in a cache of 65,536 entries of any length."""
    found = []
    for room in ("api", "core", "coordinator", "front", "link", "proxy", "kafka", "state"):
        for path in sorted((root / "sidecar" / room).rglob("*.py")):
            name = path.relative_to(root / "sidecar").as_posix()
            if CACHED.search(path.read_text()) and not name.startswith(tuple(ON_PURPOSE)):
                found.append(name)
    assert not found, "use BoundedCache"
