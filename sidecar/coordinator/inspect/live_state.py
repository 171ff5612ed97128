"""A group's live state, which only its owner knows and no record has: the members that have joined the rebalance under
way, whether an assignor runs, when a silent member would be removed. For people; it is lost with the owner."""

from __future__ import annotations

from collections.abc import Generator

from sidecar.core.runtime.shard import Shard

LOOKED_AT = 256
"""Members of one step, before the loop turns."""


def live(shard: Shard | None, group_id: str, now_ms: int) -> Generator[None, None, dict[str, object] | None]:
    """Returns, in small steps, the fields of core/runtime/inspect.py's Live that the group's kind knows; None if the
    group is not here, or not loaded yet. `shard`: the group's partition, None where it is not served; `now_ms`:
    monotonic."""
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
