"""Sends an assignment again until the member acknowledges that it owns it.

The answer with the assignment may be lost. Java's client then sends its whole state with its next heartbeat, which
brings the assignment again (KIP-848, 'Heartbeat Process'). librdkafka does so if its coordinator is gone, but not if a
request has timed out (2.16): it waits for partitions then, or keeps those that another member waits for, until its
rebalance timeout. Kafka's coordinator leaves it so. A member that has the assignment finds nothing new in a repeated
one.
"""

from __future__ import annotations

from sidecar.core.modern.group import ModernMember
from sidecar.core.modern.soft_state import ModernSoft, Resend

INTERVALS = 2
"""Heartbeat intervals between two sends of an unacknowledged assignment."""
TIMES = 3
"""Most resends of one assignment: some clients never acknowledge one."""


def must_send_assignment(
    soft: ModernSoft, member: ModernMember, acknowledged: bool, due: bool, at_ms: int, interval_ms: int
) -> bool:
    """Whether the answer to a heartbeat carries the assignment. `member`: as it is after the heartbeat; `acknowledged`:
    it reported to own just that assignment; `due`: the answer must carry it in any case."""
    resend = soft.unacknowledged.get(member.member_id)
    if acknowledged:
        left = 0
    elif due:
        left = TIMES if member.holds else 0
    elif resend is None or at_ms < resend.next_ms:
        return False
    else:
        left, due = resend.resends_left - 1, True
    if left:
        soft.unacknowledged[member.member_id] = Resend(at_ms + INTERVALS * interval_ms, left)
    elif resend is not None:
        del soft.unacknowledged[member.member_id]
    return due
