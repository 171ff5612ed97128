"""What only the owner of a group knows and no record says: who has joined the rebalance under way, whether an assignor
runs, when a silent member would be removed. For people; all of it is lost with the owner."""

from __future__ import annotations

from collections.abc import Generator

from sidecar.core.classic.rebalance import SESSION
from sidecar.core.classic.soft_state import ClassicSoft
from sidecar.core.modern.sessions import SESSION as MODERN_SESSION
from sidecar.core.modern.soft_state import ModernSoft
from sidecar.core.runtime.shard import Shard

LOOKED_AT = 256
"""Members between two turns of others."""
SESSIONS = (MODERN_SESSION, SESSION)
"""Timers that remove a silent member, of any kind of group."""


def live(shard: Shard | None, group_id: str, now_ms: int) -> Generator[None, None, dict[str, object] | None]:
    """`shard`: of the group's partition, None where it is not served; `now_ms`: monotonic. A little at a time; None: it
    is not here, or not loaded yet. `silence_left_ms`: by member."""
    group = None if shard is None else shard.groups.get(group_id)
    if shard is None or group is None:
        return None
    left = {}
    for i, member_id in enumerate(list(group.member_ids())):
        if i % LOOKED_AT == 0:
            yield
        for name in SESSIONS:
            if (at := shard.timers.deadline((name, group_id, member_id))) is not None:
                left[member_id] = at - now_ms
    found: dict[str, object] = {"silence_left_ms": left}
    soft = shard.soft.get(group_id)  # the group may be gone by now
    if isinstance(soft, ClassicSoft):
        found |= {"joined": sorted(soft.joins), "to_come": sorted(soft.pending), "not_synced": sorted(soft.unsynced)}
    if isinstance(soft, ModernSoft):
        found |= {"assignor_runs": "" if soft.flight is None else soft.flight.assignor, "failures": soft.failures}
    return found
