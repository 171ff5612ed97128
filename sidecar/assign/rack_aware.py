"""`rack-aware`: as `uniform` in how much each member gets, but partitions go to members in a rack that holds a replica.

The example of a plug-in: a plain callable, found by entry point, `GroupSpec` in and a mapping out (KIP-848 has no
rack-aware assignor; users ask for one). Balance comes first, then racks, then stickiness: fetching from the nearest
replica (KIP-392) then stays inside the rack.
"""

from __future__ import annotations

from collections import deque

from sidecar.assign.spec import GroupSpec


def assign(spec: GroupSpec) -> dict[str, dict[bytes, list[int]]]:
    """Topic by topic: each subscriber's quota is within one of the others' for that topic; of its quota a member
    keeps what it had in its rack, then gets free partitions of its rack, then keeps what it had elsewhere, then the
    rest. Members without a rack take what is left."""
    load = dict.fromkeys(spec.members, 0)
    result: dict[str, dict[bytes, list[int]]] = {m: {} for m in spec.members}
    subscribers: dict[bytes, list[str]] = {}
    for member_id, m in spec.members.items():
        for topic_id in m.topic_ids:
            subscribers.setdefault(topic_id, []).append(member_id)
    for topic_id, members in sorted(subscribers.items(), key=lambda s: (len(s[1]), s[0])):
        for member_id, partitions in _topic(spec, topic_id, members, load).items():
            if partitions:
                result[member_id][topic_id] = sorted(partitions)
                load[member_id] += len(partitions)
    return result


def _topic(spec: GroupSpec, topic_id: bytes, members: list[str], load: dict[str, int]) -> dict[str, list[int]]:
    count = spec.partitions[topic_id]
    racks = spec.racks.get(topic_id) or ((),) * count
    each, extra = divmod(count, len(members))
    # The member with fewest so far gets one more; among equals, the one that holds most of this topic already.
    order = sorted(members, key=lambda m: (load[m], -len(spec.members[m].owned.get(topic_id, ()))))
    room = {m: each + (i < extra) for i, m in enumerate(order)}
    given: dict[str, list[int]] = {m: [] for m in members}
    free = set(range(count))

    def near(member_id: str, p: int) -> bool:
        return spec.members[member_id].rack_id in racks[p]

    def take(member_id: str, p: int) -> None:
        if p in free and len(given[member_id]) < room[member_id]:
            given[member_id].append(p)
            free.discard(p)

    for m in order:
        for p in spec.members[m].owned.get(topic_id, ()):
            if p < count and near(m, p):
                take(m, p)
    # In turns, so that no member of a rack takes all of its partitions before another one has any.
    left_in: dict[str | None, deque[int]] = {}
    for p in sorted(free):
        for rack in racks[p]:
            left_in.setdefault(rack, deque()).append(p)
    turns = deque(m for m in order if spec.members[m].rack_id in left_in)
    while turns:
        m = turns.popleft()
        mine = left_in[spec.members[m].rack_id]
        while mine and mine[0] not in free:
            mine.popleft()
        if mine and len(given[m]) < room[m]:
            take(m, mine[0])
            turns.append(m)
    for m in order:
        for p in spec.members[m].owned.get(topic_id, ()):
            take(m, p)
    left = sorted(free, reverse=True)
    for m in order:
        while left and len(given[m]) < room[m]:
            given[m].append(left.pop())
    return given
