"""When a new target assignment is computed, and writing it down (KIP-848 'Assignment', KIP-1263 'Request Handling').

Unlike Kafka: a due batch also runs by a timer, a clock that jumped back does not stall it, and a failing
assignor leaves the group on its last target and is tried again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from sidecar.core.assignor import GroupSpec, MemberSpec
from sidecar.core.consumer.group import ConsumerGroup
from sidecar.core.events import GroupConfig
from sidecar.core.records import Partitions, TargetMemberRecord, TargetMetadataRecord
from sidecar.core.topics import TopicImage

if TYPE_CHECKING:
    from sidecar.core.shard import Turn

RETRY_MS = 1_000
"""After a failed assignor run."""


def update_target(turn: Turn, group: ConsumerGroup) -> None:
    """Compute and write the target if the group's epoch asks for it and the interval allows it now."""
    if group.assignment_epoch >= group.epoch or not group.members:
        return
    key = ("assign", group.group_id)
    wait_ms = _wait_ms(group, turn.config(group.group_id), turn.now.wall_ms)
    if wait_ms > 0:
        if turn.timers.deadline(key) is None:
            turn.timers.set(key, turn.now.mono_ms + wait_ms)
        return
    turn.timers.cancel(key)
    name = preferred_assignor(group, turn.config(group.group_id))
    spec = group_spec(group, turn.image)
    try:
        result = turn.assignors[name](spec)
    except Exception as exc:  # noqa: BLE001 - plug-in code: whatever it raises, the group keeps its last target
        turn.fx.log("assignor failed", group_id=group.group_id, assignor=name, error=repr(exc))
        turn.timers.set(key, turn.now.mono_ms + RETRY_MS)
        return
    apply_target(turn, group, name, group.epoch, result)


def _wait_ms(group: ConsumerGroup, config: GroupConfig, wall_ms: int) -> int:
    last, interval = group.assignment_timestamp_ms, config.assignment_interval_ms
    if last == 0 or interval == 0 or wall_ms < last:
        return 0
    return max(0, last + interval - wall_ms)


def preferred_assignor(group: ConsumerGroup, config: GroupConfig) -> str:
    """The one most members ask for, else the first configured."""
    votes = Counter(m.server_assignor for m in group.members.values() if m.server_assignor in config.assignors)
    best = votes.most_common(1)
    name = best[0][0] if best else None
    return name or config.assignors[0]


def group_spec(group: ConsumerGroup, image: TopicImage) -> GroupSpec:
    counts: dict[bytes, int] = {}
    members: dict[str, MemberSpec] = {}
    seen: dict[tuple[tuple[str, ...], str | None], tuple[bytes, ...]] = {}
    for m in group.members.values():
        key = (m.topic_names, m.topic_regex)
        ids = seen.get(key)
        if ids is None:
            topics = [image.by_name[n] for n in sorted(group.topics_of(m)) if n in image.by_name]
            ids = seen[key] = tuple(t.id for t in topics)
            counts.update((t.id, t.partitions) for t in topics)
        owned = group.target.get(m.member_id, {})
        members[m.member_id] = MemberSpec(m.rack_id, m.instance_id, ids, _existing(owned, image))
    return GroupSpec(members, counts, len(set(seen.values())) <= 1)


def _existing(owned: Partitions, image: TopicImage) -> Partitions:
    """Without what no longer exists: topics deleted, partitions of a topic made anew with fewer."""
    if all(t in image.by_id and (not ps or ps[-1] < image.by_id[t].partitions) for t, ps in owned.items()):
        return owned
    kept = {t: tuple(p for p in ps if p < image.by_id[t].partitions) for t, ps in owned.items() if t in image.by_id}
    return {t: ps for t, ps in kept.items() if ps}


def apply_target(turn: Turn, group: ConsumerGroup, assignor: str, epoch: int, result: Mapping[str, Partitions]) -> None:
    """Write what changed, then the metadata record with the time the calculation finished."""
    why = f"target of epoch {epoch} by {assignor}"
    moved = 0
    for member_id in group.members:
        new = {t: ps for t, ps in sorted(result.get(member_id, {}).items()) if ps}
        old = group.target.get(member_id)
        if old is None or old != new:
            moved += sum(len(set(ps) - set((old or {}).get(t, ()))) for t, ps in new.items())
            turn.write(TargetMemberRecord(group.group_id, member_id, new, turn.names(new), why))
    turn.write(TargetMetadataRecord(group.group_id, epoch, turn.now.wall_ms, assignor, why))
    turn.fx.log(
        "target assignment",
        group_id=group.group_id,
        epoch=epoch,
        assignor=assignor,
        members=len(group.members),
        partitions_moved=moved,
    )
