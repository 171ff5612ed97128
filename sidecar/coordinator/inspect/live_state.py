"""What only the owner of a group knows and no record says: who has joined the rebalance under way, whether an assignor
runs, when a silent member would be removed. For people; all of it is lost with the owner."""

from __future__ import annotations

from collections.abc import Generator

from sidecar.core.runtime.shard import Shard

LOOKED_AT = 256
"""Members between two turns of others."""


def live(shard: Shard | None, group_id: str, now_ms: int) -> Generator[None, None, dict[str, object] | None]:
    """`shard`: of the group's partition, None where it is not served; `now_ms`: monotonic. A little at a time; None: it
    is not here, or not loaded yet. Else the fields of core/runtime/inspect.py's Live that the kind knows."""
    group = None if shard is None else shard.groups.get(group_id)
    if shard is None or group is None:
        return None
    inspect, left = shard.registry.kinds[group.kind].inspect, {}
    for i, member_id in enumerate(list(group.member_ids())):
        if i % LOOKED_AT == 0:
            yield
        if (at := shard.timers.deadline((inspect.session, group_id, member_id))) is not None:
            left[member_id] = at - now_ms
    soft = shard.soft.get(group_id)  # the group may be gone by now
    return {"silence_left_ms": left} | ({} if soft is None else dict(inspect.live(soft)))
