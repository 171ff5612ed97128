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

Events = Sequence[Event]


@dataclass(frozen=True, slots=True)
class DryRun:
    """Events of a dry run, for one kind of group. `wants`: a member's subscription; new members get the most common."""

    wants: Callable[[Any], Hashable]
    join: Callable[[Any, str, Any], Event]
    """(group, id of the new member, its subscription)."""
    leave: Callable[[Any, tuple[str, ...]], Events]
    """(group, ids of members)."""
    beat: Callable[[Any], Events]
    """A heartbeat of one member: with it the coordinator notices changed topics."""
    config: Callable[[Any], Mapping[str, Any]] = lambda group: {}
    """Settings with which the group's last target was made, as far as its records have them."""

    def joins(self, group: Any, count: int) -> Events | None:
        """Returns joins of `count` new members; None if the group has no member whose subscription they can take."""
        if not count:
            return ()
        common = Counter(self.wants(m) for m in group.members.values()).most_common(1)
        return [self.join(group, f"new-{i}", common[0][0]) for i in range(1, count + 1)] if common else None


def _leaves(heartbeat: Callable[..., Event]) -> Callable[[Any, tuple[str, ...]], Events]:
    return lambda group, members: [heartbeat(group.group_id, m, LEAVE_EPOCH) for m in members]


def _beats(heartbeat: Callable[..., Event], *more: str) -> Callable[[Any], Events]:
    """Returns a function that makes a heartbeat of one joined member of the group's own protocol. `more`: further
    attributes of the member that the heartbeat has."""

    def beat(group: Any) -> Events:
        joined = (m for m in group.members.values() if m.member_epoch > 0 and getattr(m, "classic", None) is None)
        attributes = ("client_id", "client_host", *more)
        return [
            heartbeat(group.group_id, m.member_id, m.member_epoch, **{name: getattr(m, name) for name in attributes})
            for m in islice(joined, 1)
        ]

    return beat


def _joins_consumer(group: ConsumerGroup, member_id: str, subscription: Any) -> Event:
    names, regex = subscription
    return ConsumerHeartbeat(
        group.group_id,
        member_id,
        0,
        rebalance_timeout_ms=300_000,
        topic_names=names,
        topic_regex=regex,
        owned={},
        client_id=member_id,
        client_host="/",
    )


def _leaves_consumer(group: ConsumerGroup, members: tuple[str, ...]) -> Events:
    """Returns a LeaveGroup, which removes members of either protocol."""
    return [LeaveGroup(group.group_id, tuple(Leaving(m, None, "what if") for m in members))] if members else ()


def _joins_share(group: ShareGroup, member_id: str, topic_names: Any) -> Event:
    return ShareHeartbeat(group.group_id, member_id, 0, topic_names=topic_names, client_id=member_id, client_host="/")


def _joins_streams(group: StreamsGroup, member_id: str, client_tags: Any) -> Event:
    """Returns a join of a member in a process of its own."""
    return StreamsHeartbeat(
        group.group_id,
        member_id,
        0,
        rebalance_timeout_ms=300_000,
        topology=group.topology,
        active_tasks=(),
        standby_tasks=(),
        warmup_tasks=(),
        process_id=member_id,
        client_tags=client_tags,
        client_id=member_id,
        client_host="/",
    )


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
    ConsumerGroup: DryRun(
        lambda m: (m.topic_names, m.topic_regex),
        _joins_consumer,
        _leaves_consumer,
        _beats(ConsumerHeartbeat, "instance_id"),
    ),
    ShareGroup: DryRun(lambda m: m.topic_names, _joins_share, _leaves(ShareHeartbeat), _beats(ShareHeartbeat)),
    StreamsGroup: DryRun(
        lambda m: tuple(m.client_tags.items()),
        _joins_streams,
        _leaves(StreamsHeartbeat),
        _beats(StreamsHeartbeat, "instance_id"),
        _config_of_streams,
    ),
}
"""Dry runs of the kinds whose assignor runs at the coordinator: classic groups have none."""
