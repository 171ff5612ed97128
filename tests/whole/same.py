"""Whether a share or streams group in memory is what the log says. Consumer and classic groups: tests/sim/checks.py."""

from __future__ import annotations

from typing import Any

from sidecar.core.share.group import ShareGroup
from sidecar.core.streams.group import StreamsGroup
from sidecar.core.streams.records import GROUP_FIELDS
from tests.sim.checks import same_group as same_group_of_consumers
from tests.sim.world import Violation

EACH = ("members", "assignment_epoch", "assignment_timestamp_ms", "assignor")
STREAMS = (*GROUP_FIELDS, *EACH, "assignment_configs", "static_members", "topology", "topology_partial")
SHARE = ("epoch", "metadata_hash", *EACH)
PLACEHOLDER = ("member_id", "keeper", "topic_names", "since_ms", "initialised")
"""Fields of its record that must be equal. Names of topics, which are for people, are written of what is initialised
only."""


def same_group(live: Any, folded: Any) -> None:
    """Raises Violation."""
    if not isinstance(live, ShareGroup | StreamsGroup):
        same_group_of_consumers(live, folded)
        return
    for name in STREAMS if isinstance(live, StreamsGroup) else SHARE:
        if getattr(live, name) != getattr(folded, name):
            raise Violation(f"{name}: live {getattr(live, name)!r}, in the log {getattr(folded, name)!r}")
    if isinstance(live, ShareGroup) and _placeholder(live) != _placeholder(folded):
        raise Violation(f"placeholder: live {live.placeholder}, in the log {folded.placeholder}")
    targets = [_targets(group) for group in (live, folded)]
    if targets[0] != targets[1]:
        raise Violation(f"targets: live {targets[0]}, in the log {targets[1]}")
    if stray := targets[0].keys() - live.members.keys():
        raise Violation(f"a target for {stray}, who are no members")
    if isinstance(live, StreamsGroup) and _held(live.holders) != _held(folded.holders):
        raise Violation(f"holders: live {_held(live.holders)}, in the log {_held(folded.holders)}")


def _targets(group: Any) -> dict[str, Any]:
    """Without members that have none: not each of them has a record of that."""
    if isinstance(group, StreamsGroup):
        return {m: tasks for m, tasks in group.target.items() if tasks}
    return {m: parts for m in group.target if (parts := dict(group.target.of(m)))}


def _placeholder(group: ShareGroup) -> tuple[object, ...] | None:
    return None if group.placeholder is None else tuple(getattr(group.placeholder, name) for name in PLACEHOLDER)


def _held(holders: Any) -> dict[tuple[str, str, int], Any]:
    roles = (("active", holders.active), ("standby", holders.standby), ("warmup", holders.warmup))
    return {(role, s, p): who for role, held in roles for s, ps in held.items() for p, who in ps.items() if who}
