"""`range`: each topic in contiguous runs, in the order of instance ids, then member ids (Kafka's RangeAssignor)."""

from __future__ import annotations

from sidecar.core.assignor import AssignorError, GroupSpec


def assign_range(spec: GroupSpec) -> dict[str, dict[bytes, tuple[int, ...]]]:
    def order(member_id: str) -> tuple[bool, str]:
        instance = spec.members[member_id].instance_id
        return (instance is None, member_id if instance is None else instance)

    member_ids = sorted(spec.members, key=order)
    subscribers: dict[bytes, int] = {}
    for m in spec.members.values():
        for topic in m.topic_ids:
            if topic not in spec.partitions:
                raise AssignorError("Member is subscribed to a non-existent topic")
            subscribers[topic] = subscribers.get(topic, 0) + 1
    start = dict.fromkeys(subscribers, 0)
    extra = {t: spec.partitions[t] % n for t, n in subscribers.items()}
    result: dict[str, dict[bytes, tuple[int, ...]]] = {}
    for member_id in member_ids:
        mine = result[member_id] = {}
        for topic in spec.members[member_id].topic_ids:
            count = spec.partitions[topic] // subscribers[topic]
            if extra[topic] > 0:
                extra[topic] -= 1
                count += 1
            if count:
                mine[topic] = tuple(range(start[topic], start[topic] + count))
                start[topic] += count
    return result
