"""The coordinator's view of topics: ids, partition counts, racks. Events bring it; the coordinator never asks for
it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from struct import pack

from xxhash import xxh3_64_intdigest

from sidecar.assign.topic import Topic as Topic


@dataclass(slots=True)
class TopicsMoved:
    """`now`: topics were made, grown or deleted through this sidecar, and no lookup that surely has the change has
    ended since."""

    now: bool = False


@dataclass(frozen=True)
class TopicImage:
    """One consistent view of all topics. `names_version` rises whenever there are new names: regexes are due then."""

    by_name: Mapping[str, Topic] = field(default_factory=dict)
    by_id: Mapping[bytes, Topic] = field(default_factory=dict)
    names_version: int = 0
    serial: int = field(default_factory=count(1).__next__, compare=False, repr=False)
    """Number of this image in its process. Groups remember it in place of the image, which they would keep alive."""

    def next(self, topics: Iterable[Topic]) -> tuple[TopicImage, frozenset[str]]:
        """Returns the image after this listing of all topics, and the names that were added, removed or changed."""
        by_name = {t.name: t for t in topics}
        for name, topic in by_name.items():
            old = self.by_name.get(name)
            if old == topic:
                by_name[name] = old  # with the digest it may have
        changed = {n for n, t in by_name.items() if self.by_name.get(n) != t}
        removed = self.by_name.keys() - by_name.keys()
        new_names = any(n not in self.by_name for n in changed)
        image = TopicImage(by_name, {t.id: t for t in by_name.values()}, self.names_version + new_names)
        return image, frozenset(changed | removed)

    @cached_property
    def names(self) -> Mapping[bytes, str]:
        """Topic id -> name. Made at the first use, and the same object from then on."""
        return {t.id: t.name for t in self.by_name.values()}

    def hash_of(self, names: Iterable[str]) -> int:
        """Returns a signed 64-bit hash over the topics of these names that exist; 0 for none."""
        topics = [self.by_name[n] for n in sorted(names) if n in self.by_name]
        if not topics:
            return 0
        value = xxh3_64_intdigest(b"".join(pack(">Q", t.digest()) for t in topics))
        return value - (1 << 64) if value >= 1 << 63 else value
