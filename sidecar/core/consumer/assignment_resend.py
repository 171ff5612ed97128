"""An assignment is told again while the member has not said that it owns it.

The answer that told it may be lost. Java's client then sends all that it knows with its next heartbeat, which brings
the assignment again (KIP-848, 'Heartbeat Process'). librdkafka does so if its coordinator is gone, but not if a request
has timed out (2.16): it waits for partitions then, or keeps those that another member waits for, until its rebalance
timeout. Kafka's coordinator leaves it so. Who has the assignment finds nothing new in an answer that repeats it.
"""

from __future__ import annotations

from sidecar.core.consumer.group import Member
from sidecar.core.consumer.soft_state import ConsumerSoft, Told
from sidecar.core.runtime.records import Partitions

INTERVALS = 2
"""Heartbeat intervals until it is told again."""
TIMES = 3
"""So often: there are clients that never say what they own."""


def tell(soft: ConsumerSoft, member: Member, owned: Partitions | None, due: bool, at_ms: int, interval_ms: int) -> bool:
    """Whether the answer to a heartbeat is to name the assignment. `member`: as it is behind the heartbeat; `owned`:
    what it said that it owns; `due`: the assignment is named in any case."""
    told = soft.told.get(member.member_id)
    if owned is not None and not member.pending and _owns(owned, member):
        left = 0
    elif due:
        left = TIMES if member.assigned or member.pending else 0
    elif told is None or at_ms < told.again_ms:
        return False
    else:
        left, due = told.left - 1, True
    if left:
        soft.told[member.member_id] = Told(at_ms + INTERVALS * interval_ms, left)
    elif told is not None:
        del soft.told[member.member_id]
    return due


def _owns(owned: Partitions, member: Member) -> bool:
    there = {t: ps for t, ps in member.assigned_partitions().items() if ps}
    return {t: set(ps) for t, ps in owned.items() if ps} == {t: set(ps) for t, ps in there.items()}
