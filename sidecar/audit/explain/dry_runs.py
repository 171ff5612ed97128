"""The events of a dry run, by kind of group: a member joins, leaves, or heartbeats once more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from sidecar.core.classic.events import LeaveGroup, Leaving
from sidecar.core.consumer.events import ConsumerHeartbeat
from sidecar.core.consumer.group import ConsumerGroup
from sidecar.core.modern.group import LEAVE_EPOCH
from sidecar.core.runtime.events import Event
from sidecar.core.share.events import ShareHeartbeat
from sidecar.core.share.group import ShareGroup
from sidecar.core.streams.events import StreamsHeartbeat
from sidecar.core.streams.group import StreamsGroup

REBALANCE_TIMEOUT_MS = 300_000


@dataclass(frozen=True, slots=True)
class DryRun:
    """Events of a dry run, for one kind of group. `wants`: a member's subscription; new members get the most common."""

    heartbeat: Callable[..., Event]
    wants: Callable[[Any], Hashable]
    join: Callable[[Any, str, Any], Mapping[str, Any]]
    """(group, id of a new member, its subscription) -> fields of its first heartbeat."""
    static: bool = True
    """Whether its members may have instance ids."""
    config: Callable[[Any], Mapping[str, Any]] = lambda group: {}
    """Settings with which the group's last target was made, as far as its records have them."""

    def joins(self, group: Any, count: int) -> Sequence[Event] | None:
        """Returns joins of `count` new members; None if the group has no member whose subscription they can take."""
        common = Counter(map(self.wants, group.members.values())).most_common(1)
        if count and not common:
            return None
        new = (f"new-{i}" for i in range(1, count + 1))
        fields = {m: {"client_id": m, "client_host": "/", **self.join(group, m, common[0][0])} for m in new}
        return [self.heartbeat(group.group_id, m, 0, **first) for m, first in fields.items()]

    def leaves(self, group: Any, members: Sequence[str]) -> Sequence[Event]:
        if not isinstance(group, ConsumerGroup):
            return [self.heartbeat(group.group_id, m, LEAVE_EPOCH) for m in members]
        leaving = tuple(Leaving(m, None, "what if") for m in members)
        return [LeaveGroup(group.group_id, leaving)] if members else ()  # removes members of either protocol

    def beat(self, group: Any) -> Sequence[Event]:
        """Returns a heartbeat of one joined member of the group's own protocol: with it the coordinator notices changed
        topics."""
        joined = (m for m in group.members.values() if m.member_epoch > 0 and getattr(m, "classic", None) is None)
        names = ("client_id", "client_host", *(("instance_id",) if self.static else ()))
        return [
            self.heartbeat(group.group_id, m.member_id, m.member_epoch, **{n: getattr(m, n) for n in names})
            for m in islice(joined, 1)
        ]


def _consumer(group: ConsumerGroup, member_id: str, subscription: Any) -> Mapping[str, Any]:
    names, regex = subscription
    return {"rebalance_timeout_ms": REBALANCE_TIMEOUT_MS, "topic_names": names, "topic_regex": regex, "owned": {}}


def _share(group: ShareGroup, member_id: str, topic_names: Any) -> Mapping[str, Any]:
    return {"topic_names": topic_names}


def _streams(group: StreamsGroup, member_id: str, client_tags: Any) -> Mapping[str, Any]:
    """Returns the fields of a member in a process of its own."""
    return {
        "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS,
        "topology": group.topology,
        **dict.fromkeys(("active_tasks", "standby_tasks", "warmup_tasks"), ()),
        "process_id": member_id,
        "client_tags": client_tags,
    }


def _config_of_streams(group: StreamsGroup) -> Mapping[str, Any]:
    configs = group.assignment_configs
    standbys = int(configs.get("num.standby.replicas", 0))
    tags = tuple(filter(None, configs.get("rack.aware.assignment.tags", "").split(",")))
    return {
        "num_standby_replicas": standbys,
        "max_standby_replicas": standbys,
        "rack_aware_assignment_tags": tags,
        "initial_rebalance_delay_ms": 0,
    }


DRY_RUNS: Mapping[type, DryRun] = {
    ConsumerGroup: DryRun(ConsumerHeartbeat, lambda m: (m.topic_names, m.topic_regex), _consumer),
    ShareGroup: DryRun(ShareHeartbeat, lambda m: m.topic_names, _share, static=False),
    StreamsGroup: DryRun(StreamsHeartbeat, lambda m: tuple(m.client_tags.items()), _streams, config=_config_of_streams),
}
"""Dry runs of the kinds whose assignor runs at the coordinator: classic groups have none."""
