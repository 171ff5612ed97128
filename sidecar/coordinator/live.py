"""What only the owner of a group knows and no record says: who has joined the rebalance under way, whether an assignor
runs, when a silent member would be removed. For people; all of it is lost with the owner."""

from __future__ import annotations

from sidecar.core.classic.rebalance import SESSION
from sidecar.core.classic.soft import ClassicSoft
from sidecar.core.consumer.soft import ConsumerSoft
from sidecar.core.shard import Shard

SESSIONS = ("session", SESSION)
"""Timers that remove a silent member, of either kind of group."""


def live(shard: Shard | None, group_id: str, now_ms: int) -> dict[str, object] | None:
    """`shard`: of the group's partition, None where it is not served; `now_ms`: monotonic. None: it is not here, or not
    loaded yet. `silence_left_ms`: by member."""
    group = None if shard is None else shard.groups.get(group_id)
    if shard is None or group is None:
        return None
    left = {
        member_id: at - now_ms
        for member_id in group.member_ids()
        for name in SESSIONS
        if (at := shard.timers.deadline((name, group_id, member_id))) is not None
    }
    found: dict[str, object] = {"silence_left_ms": left}
    soft = shard.soft[group_id]
    if isinstance(soft, ClassicSoft):
        found |= {"joined": sorted(soft.joins), "to_come": sorted(soft.pending), "not_synced": sorted(soft.unsynced)}
    if isinstance(soft, ConsumerSoft):
        found |= {"assignor_runs": "" if soft.flight is None else soft.flight.assignor, "failures": soft.failures}
    return found
