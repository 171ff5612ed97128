"""Assigns the partitions of `__group_state` to sidecars. Pure.

Partition p goes to the sidecar beside the leader of `__consumer_offsets`-p if that sidecar is alive, so that offset
requests need no second hop. Else it stays with its owner, or goes to the live sidecar with the fewest partitions. It
also stays while the leader is new, or the sidecar beside it. When a broker comes back, all its partitions move at once,
and a new owner would then wait for leaders that load (docs/design/decisions.md, One owner). A sidecar that was away for
a moment may go away again, and its groups have only just moved.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from sidecar.core.vocabulary.cache import BoundedCache
from sidecar.native import java_hash


def group_hash(group_id: str) -> int:
    """Returns Kafka's Utils.abs(groupId.hashCode()), where abs(Integer.MIN_VALUE) is 0."""
    h = java_hash(group_id)
    return 0 if h == -(1 << 31) else abs(h)


_HASHES: BoundedCache[str, int] = BoundedCache(make=group_hash)


def partition_for(group_id: str, partitions: int) -> int:
    """Returns the partition of `__group_state` and of `__consumer_offsets` that a group belongs to, as Kafka does."""
    return _HASHES[group_id] % partitions


def place(leaders: Sequence[int], alive: Set[int], current: Sequence[int], new: Set[int] = frozenset()) -> list[int]:
    """Returns the node id of each partition's owner; -1 if no sidecar is alive. `current`: owners now, -1 or missing if
    none; `new`: partitions that must not follow their leaders yet."""
    if not alive:
        return [-1] * len(leaders)
    load = dict.fromkeys(sorted(alive), 0)
    owners: list[int] = []
    open_: list[int] = []
    for p, leader in enumerate(leaders):
        now = current[p] if p < len(current) else -1
        stays = now in load and (p in new or leader not in load)
        owner = now if stays else leader if leader in load else -1
        owners.append(owner)
        if owner < 0:
            open_.append(p)
        else:
            load[owner] += 1
    for p in open_:
        owner = min(load, key=lambda n: (load[n], n))
        owners[p] = owner
        load[owner] += 1
    return owners
