"""What the broker tells of a group, as an event of the core: so a group is taken in."""

from __future__ import annotations

from sidecar.core.classic.adoption import AdoptClassic, NativeMember
from sidecar.core.consumer.adoption import AdoptConsumer, NativeConsumer
from sidecar.core.runtime.events import Event
from sidecar.kafka.native import CLASSIC, CONSUMER, Native

SESSION_TIMEOUT_MS, REBALANCE_TIMEOUT_MS = 45_000, 300_000
"""Of members whose own nobody tells: clients' defaults. They count until the member joins again."""


def obstacle(found: Native) -> str:
    """Why this group cannot be taken in, stable or not; empty if nothing speaks against it."""
    if found.kind == CONSUMER and any(m.classic for m in found.members):
        return "it is a consumer group with members of the classic protocol; wait until it is one or the other"
    return ""


def adoption(group_id: str, found: Native, why: str) -> Event:
    if found.kind == CLASSIC:
        natives = tuple(
            NativeMember(m.member_id, m.instance_id, m.client_id, m.client_host, m.metadata, m.assignment)
            for m in found.members
        )
        timeouts = (SESSION_TIMEOUT_MS, REBALANCE_TIMEOUT_MS)
        return AdoptClassic(group_id, found.protocol_type, found.protocol, natives, *timeouts, why)
    members = tuple(
        NativeConsumer(
            m.member_id, m.instance_id, m.rack_id, m.client_id, m.client_host, m.names, m.regex or "", m.owned
        )
        for m in found.members
    )
    return AdoptConsumer(group_id, found.epoch, found.assignor, members, found.topics, REBALANCE_TIMEOUT_MS, why)
