"""A topic as assignors and the coordinator see it."""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import pack

from xxhash import xxh3_64_intdigest


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic. `racks[p]`: the sorted racks of partition p's replicas; its length is the partition count."""

    id: bytes
    name: str
    racks: tuple[tuple[str, ...], ...]
    _digest: list[int] = field(default_factory=list, compare=False, repr=False)

    @property
    def partitions(self) -> int:
        return len(self.racks)

    def digest(self) -> int:
        """A 64-bit hash of id, name, partition count and racks (KIP-848: a change bumps the group epoch)."""
        if self._digest:
            return self._digest[0]
        raw = bytearray(self.id)
        raw += self.name.encode()
        raw += pack(">i", len(self.racks))
        for racks in self.racks:
            for rack in racks:
                data = rack.encode()
                raw += pack(">i", len(data)) + data
            raw += b"\xff"
        self._digest.append(xxh3_64_intdigest(bytes(raw)))
        return self._digest[0]
