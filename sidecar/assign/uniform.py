"""`uniform`: counts within one of each other, then as few moves as can be (Kafka's UniformAssignor).

One subscription for all members: a quota each, what exceeds it moves. Different subscriptions: balance topic by
topic, the scarcest first, for at most 16 rounds; then "within one" holds per topic, not for the whole group.
"""

from __future__ import annotations

from sidecar.assign.balance import Heterogeneous
from sidecar.core.assignor import AssignorError, GroupSpec

Result = dict[str, dict[bytes, tuple[int, ...]]]


def assign_uniform(spec: GroupSpec) -> Result:
    if not spec.members:
        return {}
    for m in spec.members.values():
        for topic in m.topic_ids:
            if topic not in spec.partitions:
                raise AssignorError(f"Members are subscribed to topic {topic.hex()} which doesn't exist")
    return _homogeneous(spec) if spec.homogeneous else Heterogeneous(spec).build()


def _homogeneous(spec: GroupSpec) -> Result:
    topics = next(iter(spec.members.values())).topic_ids
    if not topics:
        return {}
    subscribed = set(topics)
    taken = _taken(spec)
    unassigned = [(t, p) for t in topics for p in range(spec.partitions[t]) if (t, p) not in taken]
    total = sum(spec.partitions[t] for t in topics)
    quota_min, extra = divmod(total, len(spec.members))
    kept: dict[str, dict[bytes, list[int]]] = {}
    unfilled: list[tuple[str, int]] = []
    left = len(spec.members)
    for member_id, m in spec.members.items():
        quota, has_extra = (quota_min + 1, True) if extra > 0 else (quota_min, False)
        mine: dict[bytes, list[int]] = {}
        for topic, partitions in m.owned.items():
            if topic not in subscribed:
                continue
            keep = list(partitions[:quota])
            if keep:
                mine[topic] = keep
            quota -= len(keep)
            unassigned += [(topic, p) for p in partitions[len(keep) :]]
        if quota > 0 and has_extra and left > extra:
            # Leave the extra one to another, unless only those are left who must take one.
            quota, has_extra = quota - 1, False
        if quota > 0:
            unfilled.append((member_id, quota))
        extra -= has_extra
        left -= 1
        kept[member_id] = mine
    given = iter(unassigned)
    for member_id, quota in unfilled:
        mine = kept[member_id]
        for _, (topic, p) in zip(range(quota), given, strict=False):
            mine.setdefault(topic, []).append(p)
    if next(given, None) is not None:
        raise AssignorError("Partitions were left unassigned")
    return {m: {t: tuple(sorted(ps)) for t, ps in mine.items()} for m, mine in kept.items()}


def _taken(spec: GroupSpec) -> set[tuple[bytes, int]]:
    return {(t, p) for m in spec.members.values() for t, ps in m.owned.items() for p in ps}
