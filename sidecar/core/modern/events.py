"""Base classes of the members' heartbeats and their answers. Times are milliseconds."""

from __future__ import annotations

from sidecar.core.runtime.events import Answer, Event


class MemberReply(Answer):
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0


class MemberHeartbeat(Event):
    """One request in which a member joins with epoch 0, stays alive with its own epoch, and leaves with a negative
    one."""

    member_id: str
    member_epoch: int

    def joins(self) -> bool:
        return self.member_epoch == 0


TopicPartitions = tuple[bytes, str, tuple[int, ...]]
"""Topic id, name, sorted partitions."""
